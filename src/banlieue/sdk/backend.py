"""What a distribution brings to serve a kind of hypervisor: its kinds, its words, its driver."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol

from banlieue.api.meta import Resource, ResourceObject
from banlieue.sdk.driver import Connection, Driver, MachineState, S


class Connect(Protocol[S]):
    """Opens a session; leaving the context logs out."""

    def __call__(self, to: Connection) -> AbstractContextManager[Driver[S]]:
        """Log in at the first endpoint that answers; raises `DriverError`."""


@dataclass(frozen=True, slots=True)
class Backend(Generic[S]):
    """What an entry point of the group `banlieue.backends` names: pure and cheap to import.

    `storage_target_keys`, `network_target_keys` and `settings_keys` are the keys that a class's
    target and the Provider's settings may have; others are `CapabilityInvalid`. `admits_itself`
    tells that the backend refuses what it has no room for, so that published free memory ranks
    places and excludes none. `differing` names those of the backend's own fields that a VM does not
    match and that `update` puts right; purely from what the driver told of it.
    """

    name: str
    machine_spec: type[S]
    machine: Resource
    kinds: tuple[type[ResourceObject], ...]
    connect: Connect[S]
    storage_target_keys: frozenset[str]
    network_target_keys: frozenset[str]
    provider_id_scheme: str
    admits_itself: bool = False
    settings_keys: frozenset[str] = frozenset()
    differing: Callable[[S, MachineState], tuple[str, ...]] | None = None

    def provider_id(self, uuid: str) -> str:
        """The provider ID a Node of this VM shows, as the backend's cloud provider writes it."""
        return f"{self.provider_id_scheme}://{uuid}"
