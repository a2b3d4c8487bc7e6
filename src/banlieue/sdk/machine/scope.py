"""What one pass over a machine knows, gathered before any phase runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from banlieue.api import names
from banlieue.api.devices import NetworkInterface
from banlieue.api.infrastructure.machine import Machine, Move, MoveRole
from banlieue.api.meta import OwnerReference
from banlieue.api.reasons import Reason
from banlieue.api.resources import NAMESPACES, VIRTUAL_MACHINES
from banlieue.api.types import PowerState
from banlieue.sdk import shape
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import MachineRef, MachineState, Task
from banlieue.sdk.errors import DriverError, NeedsOperator
from banlieue.sdk.identity import OWNER_MACHINE, OWNER_VIRTUAL_MACHINE, Owner, backend_name
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.machine.adopted import as_adopted
from banlieue.sdk.machine.drift import Desired
from banlieue.sdk.machine.nic_drift import DesiredNic
from banlieue.sdk.outcome import Wait
from banlieue.sdk.provider.ports import OpenProvider
from banlieue.sdk.reconcile import Context
from banlieue.sdk.upkeep import Kept, Shortfall

_OWNER_GROUPS = {OWNER_VIRTUAL_MACHINE: names.GROUP, OWNER_MACHINE: names.CAPI_GROUP}


@dataclass(slots=True)
class Memory:
    """What a process remembers of a machine between passes; losing it costs only time."""

    task: Task | None = None
    minted: str | None = None
    tried: bool = False
    failures: int = 0
    hints_taken: bool = False
    rests_until: float | None = None
    rests_as: str | None = None
    unchanged: int = 0
    diverged_at: float | None = None
    restarted: datetime | None = None
    owed: int | None = None
    correcting: frozenset[str] = frozenset()
    epoch_checked: tuple[str, int] | None = None
    kept: Kept = field(default_factory=Kept)
    redacting: Task | None = None
    seed_tries: int = 0
    seed_failures: int = 0
    seed_rests_until: float = 0.0
    ends_by: float | None = None
    secrets: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """One machine, the Provider it is on and what was seen, for the length of one pass."""

    ctx: Context
    backend: Backend[Any]
    open: OpenProvider
    raw: Obj
    machine: Machine
    memory: Memory
    installation_namespace: str
    owner: Owner | None = None
    seen: MachineState | None = None
    told_move: Move | None = None
    differing: tuple[str, ...] = ()
    waits_for_restart: bool = False
    blocked: DriverError | None = None
    unsupported: tuple[str, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    status_lost: bool = False
    missing: bool = False
    owner_had_vm: bool = False
    again_after: float | None = None
    restart_after: float | None = None
    restart_met: bool = False
    seed_waits: Wait | None = None
    seed_after: float | None = None
    seed_proven: bool = False

    @property
    def key(self) -> Key:
        """Key of the machine object."""
        return Key.of(self.raw)

    @property
    def manager(self) -> str:
        """Field manager of the process that serves this Provider."""
        provider = self.open.provider.metadata
        return names.provider_manager(self.backend.name, provider.namespace or "", provider.name)

    @property
    def finalizer(self) -> str:
        """The finalizer this backend holds on its machines."""
        return names.machine_finalizer(self.backend.machine.kind)

    @property
    def domain_name(self) -> str:
        """Name of the failure domain the machine is to be made in; empty when none is set."""
        placement = self.machine.spec.placement
        if placement is None and self.seen is not None and self.seen.failure_domain is not None:
            # An adopted VM is where it is, until the controller has written that down.
            return self.open.domain_name(self.seen.failure_domain) or ""
        return placement.failure_domain if placement else ""

    @property
    def desired(self) -> Desired:
        """What the machine asks for; its own fields beat those of its class."""
        spec = self.machine.spec
        if spec.role is MoveRole.PREVIOUS:
            # What a move left behind is kept off, and as it is.
            return Desired(power=PowerState.POWERED_OFF, cpus=None, memory_mib=None)
        hardware = spec.class_.hardware if spec.class_ else None
        network = spec.class_.network if spec.class_ else None
        nics = shape.interfaces(NetworkInterface, network, spec.network_interfaces)
        want = Desired(
            power=spec.wanted_power_state,
            cpus=spec.cpus or (hardware.cpus if hardware else None),
            memory_mib=spec.memory_mib or (hardware.memory_mib if hardware else None),
            disks={disk.name: disk.size_gib for disk in shape.disks(hardware, spec.disks)},
            nics=tuple(nic.name for nic in nics),
            cards={nic.name: self._card(nic) for nic in nics},
            removed_disks=tuple(disk.name for disk in spec.removed_disks),
        )
        return as_adopted(want, spec, self.seen)

    def _card(self, nic: NetworkInterface) -> DesiredNic:
        declared = self.open.provider.spec.capabilities.network_classes
        target = next((item.target for item in declared if item.name == nic.network_class), None)
        return DesiredNic(nic.connected is not False, nic.mac_address, target)

    @property
    def edited(self) -> bool:
        """Whether the spec was changed since it was last met.

        A VM that was seen and whose machine has no status at all tells nothing of an edit: the
        status was lost, and what differs may be what an admin did.
        """
        if self.status_lost:
            return False
        generation = self.machine.metadata.generation
        owed = self.memory.owed == generation  # its change was put off and is still to be made
        return owed or self.machine.status.observed_generation != generation

    def namespace_labels(self) -> Mapping[str, str]:
        """Labels of the machine's namespace."""
        namespace = self.ctx.cache.get(NAMESPACES, Key("", self.key.namespace)) or {}
        labels: Mapping[str, str] = (namespace.get("metadata") or {}).get("labels") or {}
        return labels

    async def confirm_live(self) -> None:
        """Read the machine live and go on only if it is what this pass looked at.

        Raises:
            Conflict: it changed, so the pass must not end in an irreversible call.
        """
        live = await self.ctx.api.get(self.backend.machine, self.key)
        seen, now = self.raw["metadata"], live["metadata"]
        if (seen["uid"], seen["resourceVersion"]) != (now["uid"], now["resourceVersion"]):
            raise Conflict(409, "Conflict", "the machine changed while it was looked at")

    def replace(self, raw: Obj) -> None:
        """Take over the object as a write just returned it."""
        self.raw = raw
        self.machine = type(self.machine).from_api(raw)

    def ref(self) -> MachineRef:
        """The VM this machine stands for, as far as it is known.

        Raises:
            NeedsOperator: the owner is not known, so no mark can be compared with it.
        """
        spec = self.machine.spec
        instance = spec.instance
        if self.owner is None:
            raise NeedsOperator(
                Reason.NOT_REFERENCED,
                "the owner reference was lost, so it is not known whose VM this is; "
                "restore the reference to the Machine that owns this object",
            )
        domain = self.open.domain(self.domain_name)
        # Names of adopted VMs are no locks: they are found by their UUID, and others may share one.
        made = instance if spec.adopt is None else None
        return MachineRef(
            owner=self.owner,
            epoch=spec.epoch,
            name=made.name if made else backend_name(self.owner, spec.epoch),
            uuid=instance.uuid if instance else None,
            seen=spec.provider_id is not None,
            backend_id=self.machine.status.backend_id,
            failure_domain=domain.id if domain else None,
            incoming=spec.role is MoveRole.INCOMING,
            fresh=instance is not None
            and instance.uuid == self.memory.minted
            and self.machine.metadata.deletion_timestamp is None,
        )


def told_of(scope: Scope) -> Obj:
    """What the user looks at: the VirtualMachine where there is one, else the machine."""
    reference = scope.machine.spec.virtual_machine_ref
    if reference is None:
        return scope.raw
    return {
        "apiVersion": VIRTUAL_MACHINES.api_version,
        "kind": VIRTUAL_MACHINES.kind,
        "metadata": {
            "namespace": scope.key.namespace,
            "name": reference.name,
            "uid": reference.uid,
        },
    }


def controller_owner(machine: Machine) -> OwnerReference | None:
    """The owner reference a VM may be made for: a VirtualMachine or a Cluster API Machine."""
    for reference in machine.metadata.owner_references:
        group = reference.api_version.partition("/")[0]
        if reference.controller and _OWNER_GROUPS.get(reference.kind) == group:
            return reference
    return None


def owner_of(machine: Machine, installation_id: str) -> Owner | None:
    """The owner as identity knows it; from spec where it stands there, as references get lost."""
    namespace = machine.metadata.namespace or ""
    made_by = machine.spec.virtual_machine_ref
    if made_by is not None:
        return Owner(installation_id, OWNER_VIRTUAL_MACHINE, namespace, made_by.name)
    reference = controller_owner(machine)
    if reference is None:
        return None
    return Owner(installation_id, reference.kind, namespace, reference.name)
