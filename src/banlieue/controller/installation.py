"""Makes and keeps ConfigMap `banlieue-installation`, and says whether anything may be done at all.

The id is part of every owner's identity, so it is made once, re-made only from what machines
carry, and never guessed. A ConfigMap that names another cluster came with a backup: until
`banlieue recover --confirm` says that the other installation is off, nothing is minted, changed
or destroyed.

`banlieue recover --confirm` writes annotation `banlieue.io/confirmed-cluster` with the uid of this
cluster's kube-system namespace; with it, machines of another id are no obstacle either.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, NAMESPACES
from banlieue.controller.infra.kinds import Found, MachineKinds, no_rights
from banlieue.sdk import installation
from banlieue.sdk.installation import Installation
from banlieue.sdk.kube import AlreadyExists, Key, NotFound, Obj
from banlieue.sdk.reconcile import Context

_SYSTEM = Key("", "kube-system")
_UNREAD_SECONDS = 30.0
"""Between looks at what machines say, where some of them may not be read."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Standing:
    """Which installation this is, and what keeps it from acting; `problem` is None when nothing."""

    id: str
    recovery: bool = False
    problem: str | None = None


@dataclass(slots=True)
class InstallationKeeper:
    """Answers which installation this is; makes the ConfigMap when it is not there."""

    ctx: Context
    kinds: MachineKinds
    namespace: str
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _cluster_uid: str = ""
    _checked: str = ""
    _checked_at: float = 0.0
    _unread: bool = False
    _unmade: str = ""
    _foreign_ids: frozenset[str] = frozenset()

    @property
    def key(self) -> Key:
        """Where the ConfigMap lives."""
        return Key(self.namespace, names.INSTALLATION_CONFIG_MAP)

    async def standing(self) -> Standing:
        """What holds now. Reads the API only when the ConfigMap changed or is not cached.

        Raises:
            ApiError: the API server does not say.
        """
        async with self._lock:
            cluster_uid = await self._cluster()
            config_map = self._cached() or await self._live() or await self._make(cluster_uid)
            if config_map is None:
                return Standing("", problem=self._unmade or _disagreement(self._foreign_ids))
            config_map = await self._confirm(config_map, cluster_uid)
            known = installation.read(config_map, cluster_uid)
            if known is None:
                return Standing("", problem=f"ConfigMap {self.key} has no id; give it one")
            await self._check_machines(config_map, known)
            return self._judge(config_map, known, cluster_uid)

    def _judge(self, config_map: Obj, known: Installation, cluster_uid: str) -> Standing:
        if not known.confirmed:
            return Standing(
                known.id,
                known.recovery,
                "this installation belongs to another cluster and may be a restored backup of it; "
                "run `banlieue recover --confirm` when the other one is off for good",
            )
        if self._foreign_ids and _confirmed_for(config_map) != cluster_uid:
            return Standing(known.id, known.recovery, _disagreement(self._foreign_ids | {known.id}))
        return Standing(known.id, known.recovery)

    async def _cluster(self) -> str:
        if not self._cluster_uid:
            system = await self.ctx.api.get(NAMESPACES, _SYSTEM)
            self._cluster_uid = system["metadata"]["uid"]
        return self._cluster_uid

    def _cached(self) -> Obj | None:
        return self.ctx.cache.get(CONFIG_MAPS, self.key)

    async def _live(self) -> Obj | None:
        try:
            return await self.ctx.api.get(CONFIG_MAPS, self.key)
        except NotFound:
            return None

    async def _make(self, cluster_uid: str) -> Obj | None:
        """A new ConfigMap: with the id machines carry, else with a new one.

        Machines that carry an id were restored without it, and so may be VirtualMachines whose
        machine objects are still to come: the installation is then in recovery.
        """
        machines, refused = await self.kinds.every_machine()
        ids = _ids(machines)
        # They may carry the id that is looked for, and a new one would make all VMs foreign.
        self._unmade = no_rights(refused[0]) if refused and not ids else ""
        if self._unmade:
            return None
        if len(ids) > 1:
            self._foreign_ids = ids
            return None
        data = {
            names.INSTALLATION_ID: next(iter(ids), "") or self._new_id(),
            names.INSTALLATION_CLUSTER_UID: cluster_uid,
        }
        if ids:
            data[names.INSTALLATION_RECOVERY] = "true"
        body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"namespace": self.namespace, "name": names.INSTALLATION_CONFIG_MAP},
            "data": data,
        }
        try:
            made = await self.ctx.api.create(CONFIG_MAPS, body, manager=names.MANAGER_CONTROLLER)
        except AlreadyExists:
            return await self._live()
        log.info("installation recorded", extra={"id": data[names.INSTALLATION_ID]})
        return made

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.ctx.rng.getrandbits(128), version=4))

    async def _confirm(self, config_map: Obj, cluster_uid: str) -> Obj:
        """Record this cluster when somebody confirmed it, or where an admin left it out."""
        recorded = (config_map.get("data") or {}).get(names.INSTALLATION_CLUSTER_UID)
        confirmed = _confirmed_for(config_map) == cluster_uid
        if recorded == cluster_uid or (recorded and not confirmed):
            return config_map
        if not config_map.get("data"):
            return config_map
        return await self.ctx.api.json_patch(
            CONFIG_MAPS,
            self.key,
            [
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": config_map["metadata"]["resourceVersion"],
                },
                {
                    "op": "add",
                    "path": f"/data/{names.INSTALLATION_CLUSTER_UID}",
                    "value": cluster_uid,
                },
            ],
            manager=names.MANAGER_CONTROLLER,
        )

    async def _check_machines(self, config_map: Obj, known: Installation) -> None:
        """Look once per version of the ConfigMap whether VirtualMachines' machines agree with it.

        Machines of Cluster API may carry another id: `clusterctl move` brings them along.
        """
        version, now = config_map["metadata"]["resourceVersion"], self.ctx.clock.monotonic()
        due = self._unread and now - self._checked_at > _UNREAD_SECONDS
        if self._checked == version and not due:
            return
        machines, refused = await self.kinds.every_machine()
        made_by_vms = (
            found for found in machines if (found.obj.get("spec") or {}).get("virtualMachineRef")
        )
        self._foreign_ids = _ids(made_by_vms) - {known.id}
        self._checked, self._checked_at, self._unread = version, now, bool(refused)


def _ids(machines: Iterable[Found]) -> frozenset[str]:
    instances = ((found.obj.get("spec") or {}).get("instance") or {} for found in machines)
    ids = (instance.get("installationID") for instance in instances)
    return frozenset(id_ for id_ in ids if id_)


def _confirmed_for(config_map: Obj) -> str:
    annotations = config_map["metadata"].get("annotations") or {}
    confirmed: str = annotations.get(names.ANNOTATION_CONFIRMED_CLUSTER, "")
    return confirmed


def _disagreement(ids: Iterable[str]) -> str:
    named = ", ".join(sorted(ids))
    return (
        f"machines here were made by several installations ({named}); "
        "run `banlieue recover --confirm` with the id to go on with"
    )
