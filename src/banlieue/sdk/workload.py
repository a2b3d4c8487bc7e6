"""The Nodes of a workload cluster, as far as their machines have to be told apart."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretBytes


class KubeconfigError(Exception):
    """A kubeconfig that is not used; the message says why and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a Node says of itself; what it does not say is empty."""

    name: str
    uid: str
    resource_version: str
    system_uuid: str
    provider_id: str


class Nodes(Protocol):
    """The Nodes of one workload cluster. Every method raises `banlieue.sdk.kube.ApiError`."""

    async def list(self) -> Sequence[Node]:
        """All of them, read live."""

    async def set_provider_id(self, node: Node, provider_id: str) -> None:
        """Write `spec.providerID` of a Node that is as it was read.

        Raises:
            Conflict: it is not any more.
        """


class OpenNodes(Protocol):
    """Connects to the workload cluster a kubeconfig names."""

    def __call__(self, kubeconfig: SecretBytes) -> AbstractAsyncContextManager[Nodes]:
        """The cluster's Nodes, for as long as the block lasts.

        Raises:
            KubeconfigError: the kubeconfig is not used.
        """
