"""What one pass over a VirtualMachine knows, and the services its phases use."""

from dataclasses import dataclass, field
from datetime import datetime

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.devices import InterfaceRequest
from banlieue.api.infrastructure.machine import ClassSnapshot, Machine
from banlieue.api.meta import KindRef, Resource
from banlieue.api.resources import (
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.api.v1alpha1.virtualmachine_status import (
    MoveStatus,
    Previous,
    ResolvedNetwork,
    ResolvedStorage,
    Scheduled,
    ScheduledClass,
    VirtualMachineStatus,
)
from banlieue.api.v1alpha1.vmclass import VMClass
from banlieue.api.v1alpha1.vmimage import VMImage
from banlieue.controller.capi import berths
from banlieue.controller.infra.kinds import Found, MachineKinds, reference_to
from banlieue.controller.infra.traces import Traces
from banlieue.controller.installation import InstallationKeeper, Standing
from banlieue.controller.refusals import Refusals
from banlieue.controller.scheduling import census, facts
from banlieue.controller.scheduling.assume import Ledger, Waiting
from banlieue.controller.scheduling.atlas import Atlas
from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.placement import Claim, Place, Site
from banlieue.controller.vm import mirror
from banlieue.controller.vm.conditions import View
from banlieue.sdk import shape
from banlieue.sdk.conditions import Finding
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.outcome import CONTINUE, Outcome
from banlieue.sdk.reconcile import Context
from banlieue.sdk.status import replace_status


@dataclass(slots=True)
class Services:
    """What all passes share."""

    ctx: Context
    kinds: MachineKinds
    ledger: Ledger
    keeper: InstallationKeeper
    cluster_machines: Ledger = field(init=False)
    traces: Traces = field(init=False)
    _atlas: Atlas = field(init=False)
    refused: Refusals = field(init=False)

    def __post_init__(self) -> None:
        self.cluster_machines = self.ledger.beside()
        self.traces = Traces(self.ctx.clock)
        self._atlas = Atlas(self.ctx.cache)
        self.refused = Refusals(self.ctx)

    def vm_class(self, name: str) -> VMClass | None:
        """The VMClass of that name as cached."""
        obj = self.ctx.cache.get(VM_CLASSES, Key("", name))
        return VMClass.from_api(obj) if obj else None

    def image(self, name: str) -> VMImage | None:
        """The VMImage of that name as cached."""
        obj = self.ctx.cache.get(VM_IMAGES, Key("", name))
        return VMImage.from_api(obj) if obj else None

    def provider(self, key: Key) -> Provider | None:
        """The Provider of that name as cached."""
        obj = self.ctx.cache.get(PROVIDERS, key)
        return Provider.from_api(obj) if obj else None

    def kind_at(self, provider: Key) -> Resource | None:
        """The machine kind of a Provider, None when it or its class is not there."""
        found = self.provider(provider)
        return self.kinds.of_class(found.spec.provider_class_ref.name) if found else None

    def site(self, provider: Key, image: VMImage | None, namespace: str) -> Site | None:
        """A Provider as a namespace sees it, None when there is none of that name."""
        return self._atlas.site(provider, image, namespace)

    def tells(self, provider: Key) -> bool:
        """Whether a Provider is served and told all it holds; one that is gone never will."""
        found = self.site(provider, None, provider.namespace)
        return found is None or (found.ready and found.complete)

    def claims(self, digest: str) -> list[tuple[Key, Claim]]:
        """VMs of an owner that no machine object claims, by Provider."""
        return [
            (provider, claim)
            for provider, claim in self._atlas.claims()
            if digest and claim.digest and digest.startswith(claim.digest)
        ]

    def everybody(self, installation_id: str) -> Crowd:
        """All machines; filled from the cache before the first look of this process."""
        if not self.ledger.seeded:
            self.ledger.seed(census.residents(self.ctx.cache, installation_id))
            known = berths.residents(self.ctx.cache, self.kinds.named(), installation_id)
            self.cluster_machines.seed(known)
        return self.ledger.residents()

    def sites(self, image: VMImage | None, namespace: str) -> list[Site]:
        """All Providers as a namespace sees them."""
        return self._atlas.sites(image, namespace)


@dataclass(slots=True)
class Course:
    """What the status will say about a move, and about what one left behind."""

    incoming_ref: KindRef | None = None
    move: MoveStatus | None = None
    previous: Previous | None = None

    @classmethod
    def of(cls, status: VirtualMachineStatus) -> "Course":
        """What it says now."""
        return cls(status.incoming_ref, status.move, status.previous)

    def write(self, status: VirtualMachineStatus) -> VirtualMachineStatus:
        """Have a status say so."""
        status.incoming_ref, status.move, status.previous = (
            self.incoming_ref,
            self.move,
            self.previous,
        )
        return status


@dataclass(slots=True)
class Scope:
    """One VirtualMachine for the length of one pass.

    `followed` tells that the machine object was brought up to this very spec. `reference`,
    `scheduled` and `course` are what the status will say; `found` are the conditions
    that phases settled themselves. `power` is what a move makes of the machine's power state, None
    where that is the user's. `again_after` asks for another pass, in seconds.
    """

    services: Services
    raw: Obj
    vm: VirtualMachine
    reference: KindRef | None = None
    followed: bool = False
    scheduled: Scheduled | None = None
    standing: Standing | None = None
    vm_class: VMClass | None = None
    image: VMImage | None = None
    kind: Resource | None = None
    machine_raw: Obj | None = None
    machine: Machine | None = None
    epoch: int = 0
    found: dict[ConditionType, Finding] = field(default_factory=dict)
    gone: bool = False
    waits: bool = False
    course: Course = field(default_factory=Course)
    power: PowerState | None = None
    again_after: float | None = None

    @classmethod
    def of(cls, services: Services, raw: Obj) -> "Scope":
        """Start a pass with what the status says and the objects the spec names."""
        vm = VirtualMachine.from_api(raw)
        reference, placed = vm.status.infrastructure_ref, vm.status.scheduled
        course = Course.of(vm.status)
        if reference is not None and reference.namespace != (vm.metadata.namespace or ""):
            reference = placed = None  # restored elsewhere: that machine is somebody else's
            course = Course()
        spec = vm.spec
        return cls(
            services=services,
            raw=raw,
            vm=vm,
            reference=reference,
            scheduled=placed,
            vm_class=services.vm_class(spec.class_ref.name) if spec.class_ref else None,
            image=services.image(spec.image_ref.name) if spec.image_ref else None,
            course=course,
        )

    @property
    def ctx(self) -> Context:
        """The injected seams."""
        return self.services.ctx

    @property
    def key(self) -> Key:
        """Key of the VirtualMachine."""
        return Key.of(self.raw)

    @property
    def deleting(self) -> bool:
        """Whether the VirtualMachine is being deleted."""
        return self.vm.metadata.deletion_timestamp is not None

    @property
    def finalizer_held(self) -> bool:
        """Whether our finalizer keeps the VirtualMachine."""
        return names.FINALIZER_VIRTUAL_MACHINE in self.vm.metadata.finalizers

    @property
    def place(self) -> Place | None:
        """Where the machine was placed."""
        if self.scheduled is None:
            return None
        provider = Key(self.scheduled.provider_namespace, self.scheduled.provider_name)
        return Place(provider, self.scheduled.failure_domain or "")

    def replace(self, raw: Obj) -> None:
        """Take over the VirtualMachine as a write just returned it."""
        self.raw = raw
        self.vm = VirtualMachine.from_api(raw)

    def take_machine(self, kind: Resource, raw: Obj) -> None:
        """Take over the machine object as it was read or written."""
        self.kind, self.machine_raw = kind, raw
        self.machine = Machine.from_api(raw)

    def refer_to(self, found: Found) -> None:
        """Let the status name this machine object and its place."""
        self.take_machine(found.kind, found.obj)
        self.reference = reference_to(found.kind, found.key)
        self.follow_machine()

    def drop_machine(self) -> None:
        """The machine object is not there (any more)."""
        self.machine_raw = self.machine = None

    def follow_machine(self) -> None:
        """Let the status say about the place and the class what the machine object says."""
        machine, known = self.machine, self.vm.status.scheduled
        spec = machine.spec if machine else None
        if spec is None or spec.provider_ref is None or (known and spec.placement is None):
            self.scheduled = known
            return
        # A machine that adopts and has not found its VM names no failure domain yet.
        domain = spec.placement.failure_domain if spec.placement else ""
        provider = Key(spec.provider_ref.namespace, spec.provider_ref.name)
        self.record(Place(provider, domain), spec.class_)

    def record(self, where: Place, snapshot: ClassSnapshot | None) -> None:
        """Let the status say where the machine is placed; an unchanged place keeps its time."""
        provider = self.services.provider(where.provider)
        self.scheduled = record(
            self.vm,
            where,
            snapshot,
            provider.spec.provider_class_ref.name if provider else None,
            self.ctx.clock.now(),
        )

    def wait_for_others(self) -> None:
        """Ask to be woken when class, image, a Provider or a neighbour changes."""
        self.waits = True

    def listen(self) -> None:
        """Be woken from now on, until the pass has ended without a need to wait.

        What is decided upon is read as the pass goes on: a change in the meantime must not be lost.
        """
        spec = self.vm.spec
        self.services.ledger.wait(
            self.key,
            Waiting(
                spec.class_ref.name if spec.class_ref else None,
                spec.image_ref.name if spec.image_ref else None,
            ),
        )

    def come_back(self, seconds: float) -> None:
        """Ask for another pass after so many seconds at the latest."""
        self.again_after = min(seconds, self.again_after or seconds)

    def settle(self, finding: Finding) -> None:
        """Say what one condition is; it replaces what would be derived."""
        self.found[finding.type] = finding

    def view(self, outcome: Outcome = CONTINUE) -> View:
        """Everything the status is computed from."""
        return View(
            vm=self.vm,
            machine=self.machine,
            scheduled=self.scheduled,
            gates=mirror.readiness_gates(self.vm, self.image),
            outcome=outcome,
            found=self.found,
            moving=self.course.incoming_ref is not None,
        )

    async def write_status(self, outcome: Outcome = CONTINUE) -> None:
        """Write the status if it differs; a pass over an old copy of the object fails here.

        Raises:
            Conflict: the object changed since it was read.
        """
        status = self.course.write(
            mirror.status_of(self.view(outcome), self.reference, self.ctx.clock.now())
        )
        # Said along with the rest, never alone.
        if self.followed and status.to_api() != self.raw.get("status"):
            status.followed_generation = self.vm.metadata.generation
        await self.replace_status(status)

    async def replace_status(self, status: VirtualMachineStatus) -> None:
        """Write this status if it differs.

        Raises:
            Conflict: the object changed since it was read.
        """
        answer = await replace_status(
            self.ctx.api,
            VIRTUAL_MACHINES,
            self.raw,
            status.to_api(),
            manager=names.MANAGER_CONTROLLER,
        )
        if answer is not None:
            self.replace(answer)


def record(
    vm: VirtualMachine,
    where: Place,
    snapshot: ClassSnapshot | None,
    provider_class: str | None,
    now: datetime,
) -> Scheduled:
    """The record of a placement; an unchanged place keeps its time and class of the Provider."""
    known = vm.status.scheduled if facts.place_of(vm) == where else None
    disks = shape.disks(snapshot.hardware, vm.spec.disks) if snapshot else ()
    nics = shape.interfaces(
        InterfaceRequest,
        snapshot.network if snapshot else None,
        vm.spec.network_interfaces if snapshot else (),
    )
    return Scheduled(
        provider_name=where.provider.name,
        provider_namespace=where.provider.namespace,
        provider_class=provider_class or (known.provider_class if known else None),
        failure_domain=where.domain or None,
        class_=ScheduledClass(name=snapshot.name, uid=snapshot.uid, hash=snapshot.hash)
        if snapshot
        else None,
        resolved_storage=[
            ResolvedStorage(disk=disk.name, storage_class=disk.storage_class)
            for disk in disks
            if disk.storage_class
        ],
        resolved_networks=[
            ResolvedNetwork(interface=nic.name, network_class=nic.network_class)
            for nic in nics
            if nic.network_class
        ],
        scheduled_at=known.scheduled_at if known else now,
    )
