"""Writes the provider ID of Machines into their Nodes, for systems whose kubelet is told none.

Talos, RKE2 and k3s start a kubelet that no bootstrap data of ours reaches. Cluster API finds the
Node of a Machine by equal provider IDs only, so without this such a Machine never gets ready.
"""

import base64
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pydantic import SecretBytes

from banlieue.api.events import EventReason
from banlieue.api.names import (
    BOOTSTRAP_DATA_KEY,
    CAPI_ANNOTATION_DELETE_FOR_MOVE,
    INFRASTRUCTURE_GROUP,
    NODE_PATCHER_ACCOUNT,
)
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES, PROVIDER_CLASSES, SECRETS
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.controller.nodes.pairing import Member, Pairing, pair, uuid_of
from banlieue.sdk.kube import ApiError, Conflict, Forbidden, Key, Obj
from banlieue.sdk.reconcile import Context, Result
from banlieue.sdk.workload import KubeconfigError, OpenNodes

CONTROLLER = "node-patcher"
"""Name of the controller in queues, logs and metrics."""

_SOONEST, _LATEST, _PATIENCE = 10.0, 300.0, 6.0
_UNUSABLE_SECONDS = 60.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class NodePatcher:
    """Looks at one Cluster: at its Machines in the cache, and only then at its Nodes."""

    ctx: Context
    open_nodes: OpenNodes

    async def reconcile(self, key: Key) -> Result:
        """Pair the Machines without a Node of the Cluster `key` with its Nodes."""
        cluster = self.ctx.cache.get(CAPI_CLUSTERS, key)
        if cluster is None or _hands_off(cluster):
            return Result()
        machines = {it["metadata"]["name"]: it for it in self._machines(key)}
        members = [_member(machine) for machine in machines.values()]
        if not any(member.waits for member in members):
            return Result()
        later = self._pause(machines, members)
        try:
            kubeconfig = await self._kubeconfig(key)
            done = await self._identify(key, machines, members, kubeconfig)
        except KubeconfigError as e:
            self._refused(cluster, f"Secret {key.name}-kubeconfig is not used: {e}")
            return Result(_UNUSABLE_SECONDS)
        except Conflict:
            return Result(_SOONEST)
        except ApiError as e:
            # Until its first control plane machine is up, every cluster is like this.
            log.info("no Nodes yet", extra={"cluster": str(key), "status": e.status})
            return Result(later)
        return Result(None if done else later)

    async def _identify(
        self,
        key: Key,
        machines: dict[str, Obj],
        members: list[Member],
        kubeconfig: SecretBytes,
    ) -> bool:
        """Look at the Nodes of the Cluster; tells whether every Machine that waits has one."""
        async with self.open_nodes(kubeconfig) as nodes:
            pairing = pair(members, await nodes.list())
            for member, node in pairing.settled:
                await nodes.set_provider_id(node, member.provider_id)
                log.info(
                    "gave a Node its provider ID",
                    extra={"cluster": str(key), "machine": member.name},
                )
                self.ctx.recorder.event(
                    machines[member.name],
                    EventReason.NODE_IDENTIFIED,
                    f"Node {_shown(node.name)} was given the provider ID of this machine",
                )
        self._tell(machines, pairing)
        return not (pairing.ambiguous or pairing.taken or pairing.unseen)

    def _machines(self, key: Key) -> Iterator[Obj]:
        """Machines of the Cluster that are ours and exist on their backend."""
        kinds = {
            (kind.group, kind.kind)
            for it in self.ctx.cache.list(PROVIDER_CLASSES)
            for kind in [ProviderClass.from_api(it).spec.machine.to_resource()]
        }
        for obj in self.ctx.cache.list(CAPI_MACHINES, namespace=key.namespace):
            spec = obj.get("spec") or {}
            reference = spec.get("infrastructureRef") or {}
            kind = (reference.get("apiGroup"), reference.get("kind"))
            ours = kind in kinds or kind[0] == INFRASTRUCTURE_GROUP
            if ours and spec.get("clusterName") == key.name and uuid_of(spec.get("providerID", "")):
                yield obj

    async def _kubeconfig(self, cluster: Key) -> SecretBytes:
        """The kubeconfig Cluster API keeps for the Cluster.

        Raises:
            ApiError: it is not there yet, or could not be read.
            KubeconfigError: it may not be read, or is none.
        """
        name = f"{cluster.name}-kubeconfig"
        try:
            secret = await self.ctx.api.get(SECRETS, Key(cluster.namespace, name))
        except Forbidden:
            raise KubeconfigError(
                f"it may not be read; let ServiceAccount {NODE_PATCHER_ACCOUNT} get it, by a Role "
                "of this namespace with resourceNames"
            ) from None
        try:
            return SecretBytes(base64.b64decode(secret["data"][BOOTSTRAP_DATA_KEY], validate=True))
        except (KeyError, TypeError, ValueError):
            # No word about what it holds, not even in a traceback.
            raise KubeconfigError("it has no kubeconfig in key value") from None

    def _pause(self, machines: dict[str, Obj], members: list[Member]) -> float:
        """Seconds until the next look: soon after a Machine was made, and more rarely later."""
        made = max(_made(machines[member.name]) for member in members if member.waits)
        age = (self.ctx.clock.now() - made).total_seconds()
        return min(_LATEST, max(_SOONEST, age / _PATIENCE))

    def _tell(self, machines: dict[str, Obj], pairing: Pairing) -> None:
        for member in pairing.ambiguous:
            self._refused(
                machines[member.name],
                "several Nodes or machines have the system UUID of this machine; "
                "none was given its provider ID",
            )
        for member, node in pairing.taken:
            self._refused(
                machines[member.name],
                f"Node {_shown(node.name)} has the system UUID of this machine and provider ID "
                f"{_shown(node.provider_id)} already, which is never changed; "
                "switch off what sets it and make the machine anew",
            )

    def _refused(self, obj: Obj, message: str) -> None:
        self.ctx.recorder.event(obj, EventReason.NODE_NOT_IDENTIFIED, message, warning=True)


def _hands_off(cluster: Obj) -> bool:
    """Whether the Cluster is paused, on its way to another management cluster, or going."""
    meta = cluster["metadata"]
    moving = CAPI_ANNOTATION_DELETE_FOR_MOVE in (meta.get("annotations") or {})
    paused = bool((cluster.get("spec") or {}).get("paused"))
    return paused or moving or bool(meta.get("deletionTimestamp"))


def _member(machine: Obj) -> Member:
    meta, status = machine["metadata"], machine.get("status") or {}
    waits = not status.get("nodeRef") and not meta.get("deletionTimestamp")
    return Member(meta["name"], machine["spec"]["providerID"], waits)


def _made(machine: Obj) -> datetime:
    return datetime.fromisoformat(machine["metadata"]["creationTimestamp"])


def _shown(word: str) -> str:
    """A word of the workload cluster, as far as it is fit for an event."""
    return "".join(it for it in word[:80] if it.isascii() and it.isprintable()) or "without a name"
