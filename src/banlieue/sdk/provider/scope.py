"""What one pass over a Provider knows, and what the process remembers between passes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.identity import MoveRole, TeardownMode
from banlieue.api.meta import ConditionStatus
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Provider, Unclaimed
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import About, Connection, FailureDomain, MachineState
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.powers import KeptDisk
from banlieue.sdk.provider.claims import Claims
from banlieue.sdk.provider.connection import Source
from banlieue.sdk.provider.session import ProviderSession
from banlieue.sdk.reconcile import Context


@dataclass(slots=True)
class Memory:
    """What this process learned about a Provider. Times are monotonic seconds, None for never.

    `told` is what it told of unclaimed machines last; `doubted` that it said of what an earlier
    process told that it may not be true any more; `told_again` is when a pass was last asked for
    because the status said something else.
    """

    uid: str = ""
    connection: Connection | None = None
    protected: tuple[Source, ...] = ()
    protected_at: float | None = None
    lease_owned: bool = False
    readable: set[Source] = field(default_factory=set)
    refused: dict[Source, float] = field(default_factory=dict)
    sources_read: float | None = None
    sources_of: int | None = None
    about: About | None = None
    about_read: float | None = None
    domains: Mapping[str, FailureDomain] | None = None
    domains_read: float | None = None
    domains_time: datetime | None = None
    included: Mapping[str, Sequence[str]] | None = None
    inventory: Sequence[MachineState] | None = None
    inventory_read: float | None = None
    moves: bool | None = None
    keeps_up: bool | None = None
    coming: frozenset[str] = frozenset()
    pending: set[str] = field(default_factory=set)
    recount: bool = True
    counted: tuple[int, frozenset[str], frozenset[str]] | None = None
    claims: Claims = field(default_factory=Claims)
    told: Unclaimed | None = None
    doubted: bool = False
    told_again: float | None = None
    counts_written: float | None = None
    retained: Sequence[KeptDisk] | None = None
    retained_read: float | None = None
    retained_asked: bool = False
    retained_wanted: bool = False
    idle_since: float | None = None
    outage_since: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a pass from its end; the first one found.

    `about` are the conditions it speaks of, beside Ready. `lasting` tells that nothing changes by
    itself: somebody has to correct spec, Secret or rights. `after` is when to look again.
    """

    reason: Reason
    message: str
    about: tuple[ConditionType, ...] = ()
    lasting: bool = False
    after: float = 15.0


@dataclass(frozen=True, slots=True)
class KnownMachine:
    """What a Provider has to know of a machine object: a projection, as there may be thousands.

    `doomed` tells that it is being deleted with the intent to destroy its VM.
    """

    key: Key
    created: str
    domain: str | None = None
    uuid: str | None = None
    backend_name: str | None = None
    backend_identity: str | None = None
    owner: str | None = None
    seen: bool = False
    epoch: int = 0
    incoming: bool = False
    doomed: bool = False

    @classmethod
    def of(cls, raw: Obj) -> "KnownMachine":
        """Read the machine object; fields that are not set stay None."""
        spec = raw.get("spec") or {}
        instance, move = spec.get("instance") or {}, spec.get("move") or {}
        return cls(
            key=Key.of(raw),
            created=raw["metadata"].get("creationTimestamp") or "",
            domain=(spec.get("placement") or {}).get("failureDomain"),
            uuid=instance.get("uuid"),
            backend_name=instance.get("name"),
            backend_identity=instance.get("backendIdentity"),
            owner=_owner_digest(raw, spec, instance.get("installationID")),
            seen=bool(spec.get("providerID")),
            epoch=int(move.get("epoch") or 0),
            incoming=move.get("role") == MoveRole.INCOMING,
            doomed=_doomed(raw, spec),
        )


def _doomed(raw: Obj, spec: Obj) -> bool:
    intent, meta = spec.get("teardown") or {}, raw["metadata"]
    destroyed = intent.get("mode") == TeardownMode.DESTROY and intent.get("uid") == meta.get("uid")
    return destroyed and bool(meta.get("deletionTimestamp"))


def _owner_digest(raw: Obj, spec: Obj, installation_id: str | None) -> str | None:
    if installation_id is None:
        return None
    namespace = raw["metadata"].get("namespace") or ""
    made_by = spec.get("virtualMachineRef")
    if made_by:
        return Owner(installation_id, OWNER_VIRTUAL_MACHINE, namespace, made_by["name"]).digest
    for reference in raw["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return Owner(installation_id, reference["kind"], namespace, reference["name"]).digest
    return None


@dataclass(slots=True)
class ProviderScope:
    """One Provider, its session and what this pass found.

    `fresh` tells that this pass logged in, and so asked who answers.
    """

    ctx: Context
    backend: Backend[Any]
    installation_namespace: str
    raw: Obj
    provider: Provider
    session: ProviderSession
    memory: Memory
    machines: Sequence[KnownMachine]
    fresh: bool = False
    proven: set[ConditionType] = field(default_factory=set)
    problem: Problem | None = None
    flaws: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    class_paused: bool = False
    class_missing: bool = False
    unclaimed: Unclaimed | None = None
    machine_count: int | None = None
    counts_due: float | None = None

    @property
    def key(self) -> Key:
        """Key of the Provider."""
        return Key.of(self.raw)

    @property
    def manager(self) -> str:
        """Field manager of the process that serves this Provider."""
        return names.provider_manager(self.backend.name, self.key.namespace, self.key.name)

    @property
    def deleting(self) -> bool:
        """Whether the Provider is being deleted."""
        return self.provider.metadata.deletion_timestamp is not None

    @property
    def paused(self) -> bool:
        """Whether hands off was asked for, here or on the class."""
        return self.provider.spec.paused or self.class_paused

    @property
    def was_reachable(self) -> bool:
        """Whether the status says that the endpoint answers."""
        return any(
            condition.type == ConditionType.PROVIDER_REACHABLE
            and condition.status == ConditionStatus.TRUE
            for condition in self.provider.status.conditions
        )

    def replace(self, raw: Obj) -> None:
        """Take over the object as a write just returned it."""
        self.raw = raw
        self.provider = Provider.from_api(raw)

    def due(self, last: float | None, every: float) -> bool:
        """Whether something last done then is to be done again, being due every so many seconds."""
        return last is None or self.ctx.clock.monotonic() - last >= every
