"""The driver of the vSphere backend: one session to one vCenter."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from pyVmomi import vmodl

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.creates import Creates
from banlieue.providers.vsphere.client.rest import Rest
from banlieue.providers.vsphere.client.session import Session, Timings
from banlieue.providers.vsphere.client.tags import Tags, may_create
from banlieue.providers.vsphere.client.transport import operation
from banlieue.providers.vsphere.hardware.macs import Macs
from banlieue.providers.vsphere.images.images import Images
from banlieue.providers.vsphere.models import VSphereMachineSpec
from banlieue.providers.vsphere.places import domains, sight
from banlieue.providers.vsphere.places.folders import Folders, Home
from banlieue.providers.vsphere.places.inventory import InventoryCache
from banlieue.providers.vsphere.places.offers import Offers
from banlieue.providers.vsphere.places.policies import Policies, declared
from banlieue.providers.vsphere.places.reading import read_inventory
from banlieue.providers.vsphere.places.references import References
from banlieue.providers.vsphere.places.rights import Rights
from banlieue.providers.vsphere.places.tagged import Tagged
from banlieue.providers.vsphere.places.tagged import declared as named_tags
from banlieue.providers.vsphere.places.templates import Templates
from banlieue.providers.vsphere.places.zones import kind_of, zone
from banlieue.providers.vsphere.vms.absence import Absence
from banlieue.providers.vsphere.vms.adopting import Adopting
from banlieue.providers.vsphere.vms.attributes import Attributes
from banlieue.providers.vsphere.vms.grouping import Grouping
from banlieue.providers.vsphere.vms.keeping import Keeping
from banlieue.providers.vsphere.vms.machines import Machines
from banlieue.providers.vsphere.vms.making import CREATE, Making
from banlieue.providers.vsphere.vms.marking import Marking
from banlieue.providers.vsphere.vms.outfit import Outfit
from banlieue.providers.vsphere.vms.redacting import Redacting
from banlieue.providers.vsphere.vms.restarts import Restarts
from banlieue.providers.vsphere.vms.spreading import Spreading
from banlieue.providers.vsphere.vms.tagging import Tagging
from banlieue.providers.vsphere.vms.tasks import Tasks
from banlieue.providers.vsphere.vms.work import Work
from banlieue.providers.vsphere.watching.census import Census
from banlieue.providers.vsphere.watching.records import Records, machine_state
from banlieue.providers.vsphere.watching.watcher import Watcher
from banlieue.providers.vsphere.watching.whereabouts import Whereabouts
from banlieue.sdk.driver import (
    About,
    Connection,
    DiskState,
    FailureDomain,
    Image,
    MachinePlan,
    MachineRef,
    MachineState,
    Target,
    Task,
)
from banlieue.sdk.errors import InvalidSpec
from banlieue.sdk.identity import Mark, Owner, valid_mark
from banlieue.sdk.image.ports import ImageImport, ImportTask
from banlieue.sdk.image.transfers import Transfers
from banlieue.sdk.powers import Candidate, Changes, KeptDisk
from banlieue.sdk.upkeep import Upkeep

Plan = MachinePlan[VSphereMachineSpec]

_REASONS = {CREATE: Reason.PROVISIONING_FAILED, "delete": Reason.DELETION_FAILED}
_GOODBYE = 2.0
"""Seconds that imports have at the end of a session to take their parts away."""


class VSphereDriver:
    """A driver with the powers of a change feed, an inventory, detaching, unmarking, adopting."""

    def __init__(
        self,
        session: Session,
        capabilities: Capabilities,
        creates: Creates,
        timings: Timings,
        monotonic: Callable[[], float],
        *,
        settings: Target | None = None,
        provider: str = "",
    ) -> None:
        self._session = session
        self._capabilities = capabilities
        self._monotonic = monotonic
        self._creates = creates
        self._records = Records()
        self._spreading = Spreading(records=self._records)
        self._watcher = Watcher(session, self._records, timings, monotonic)
        self._census = Census(session, monotonic, self._rest_before_census)
        self._timings = timings
        age, kind = timings.inventory, kind_of(settings or {})
        policies = Policies(
            session=session, monotonic=monotonic, max_age=age, named=declared(capabilities)
        )
        self._rest = Rest(session, monotonic)
        tags = Tags(self._rest, monotonic, create=may_create(settings or {}))
        reader = Tagged(
            tags=tags, named=named_tags(capabilities), reader=partial(read_inventory, kind=kind)
        )
        self._places = InventoryCache(session, monotonic, age, reader, policies.attach)
        self._whereabouts = Whereabouts(self._records, self._places)
        references = References(rest=self._rest, tags=tags, monotonic=monotonic, max_age=age)
        self._templates = Templates(session, self._census, monotonic, age, references)
        self._absence = Absence(session=session, census=self._census, monotonic=monotonic)
        self._watcher.on_leave = self._absence.left
        self._machines = Machines(
            session=session,
            records=self._records,
            watcher=self._watcher,
            census=self._census,
            creates=creates,
            places=self._places,
            attributes=Attributes(session=session),
            absence=self._absence,
            monotonic=monotonic,
        )
        self._watcher.on_stopped = self._machines.look_ahead
        offers = Offers(session=session, monotonic=monotonic, max_age=age)
        macs = Macs(session=session, creates=creates, monotonic=monotonic)
        self._work = Work(
            session=session,
            records=self._records,
            watcher=self._watcher,
            machines=self._machines,
            offers=offers,
            macs=macs,
            monotonic=monotonic,
        )
        self._restarts = Restarts(
            session=session,
            records=self._records,
            watcher=self._watcher,
            machines=self._machines,
            work=self._work,
            monotonic=monotonic,
        )
        self._marking = Marking(machines=self._machines, work=self._work)
        self._redacting = Redacting(session=session, work=self._work)
        self._adopting = Adopting(
            session=session,
            machines=self._machines,
            work=self._work,
            places=self._places,
            monotonic=monotonic,
        )
        self._making = Making(
            session=session,
            records=self._records,
            watcher=self._watcher,
            census=self._census,
            creates=creates,
            outfit=Outfit(
                session=session,
                creates=creates,
                places=self._places,
                templates=self._templates,
                folders=Folders(session=session, places=self._places),
                offers=offers,
                home=Home.of(settings or {}),
                spreading=self._spreading,
                macs=macs,
            ),
            work=self._work,
            monotonic=monotonic,
        )
        self._transfers = Transfers()
        self._images = Images(
            session=session,
            places=self._places,
            census=self._census,
            transfers=self._transfers,
            capabilities=capabilities,
            settings=settings or {},
            monotonic=monotonic,
        )
        self._keeping = self._kept_up(session, tags, provider)
        self._work.leaving = self._leaves
        self._tasks = Tasks(
            session=session,
            watcher=self._watcher,
            creates=creates,
            making=self._making,
            restarts=self._restarts,
            keeping=self._keeping,
            work=self._work,
        )
        self._seeded = False
        self._rights = Rights(
            session=session, places=self._places, declared=capabilities, monotonic=monotonic
        )

    def _kept_up(self, session: Session, tags: Tags, provider: str) -> Keeping:
        return Keeping(
            places=self._places,
            records=self._records,
            tagging=Tagging(
                session=session,
                tags=tags,
                census=self._census,
                work=self._work,
                poll=self.poll,
            ),
            grouping=Grouping(session=session, provider=provider, monotonic=self._monotonic),
            spreading=self._spreading,
            monotonic=self._monotonic,
        )

    def _leaves(self, uuid: str, vm: str) -> None:
        self._keeping.leaves(uuid, vm)
        self._absence.destroying(uuid, vm)

    def _rest_before_census(self, rest: float) -> float:
        """Seconds a bulk read is put off so that others join it; a single VM hardly waits."""
        return max(self._timings.coalesce, rest if self._watcher.making else 0.0)

    # The place

    def about(self) -> About:
        """Who answers now, its version, and which rights are missing."""
        with _verb("about"):
            content = self._session.ask_about()
            if content.identity != self._session.login.content.identity:
                return About(content.identity, content.version)
            return About(content.identity, content.version, self._rights.missing())

    def failure_domains(self) -> Sequence[FailureDomain]:
        """All failure domains, with the declared classes that can be used there."""
        with _verb("domains"):
            return domains.failure_domains(self._places.get(), self._capabilities)

    def hidden_domains(self, ids: Collection[str]) -> Collection[str]:
        """Those of the failure domains that are there, and that the account may not read."""
        with _verb("domains"):
            return sight.hidden(self._session, ids)

    def find_image(self, image: ImageSource, where: FailureDomain) -> Image | None:
        """The template a source names, in the failure domain's datacenter."""
        if image.kind is not SourceKind.TEMPLATE:
            raise InvalidSpec(
                Reason.UNSUPPORTED_BY_PROVIDER,
                f"image sources of kind {image.kind.value} cannot be used here; use Template",
            )
        with _verb("image"):
            places = self._places.get()
            cluster = zone(places, where.id)
            if cluster is None:
                return None
            try:
                found, copies = self._templates.nearest(image.ref, places, cluster)
            except vmodl.fault.ManagedObjectNotFound:
                self._templates.throw_away()
                return None
            if found is None:
                return None
            size = found.root.size_gib if found.root else None
            # Of several copies each machine takes the one nearest to its disks.
            return Image(image.ref if copies > 1 else found.moid, size, found.firmware)

    def import_image(self, wanted: ImageImport, where: FailureDomain) -> ImportTask | None:
        """Bring an OVA or VMDK to the failure domain's datacenter, as a template."""
        with _verb("import", Reason.IMAGE_IMPORT_FAILED):
            return self._images.bring(wanted, where)

    def delete_image(self, name: str, where: FailureDomain) -> ImportTask | None:
        """Destroy a template that was imported, unless a linked clone hangs on it."""
        with _verb("delete-image", Reason.DELETION_FAILED):
            return self._images.delete(name, where)

    def close(self) -> None:
        """End what goes on in threads of the session."""
        self._transfers.close(_GOODBYE)
        self._rest.close()

    def keep_up(self, plan: Plan, seen: MachineState) -> Upkeep:
        """Take one step towards the tags and groups of a VM."""
        with _verb(f"keep-up-{plan.ref.name}", Reason.UPDATE_FAILED):
            return self._keeping.keep_up(plan, seen)

    # Looking

    def observe(self, ref: MachineRef) -> MachineState | None:
        """The machine's VM, or one that has its name; None proves that there is none."""
        with _verb(f"observe-{ref.name}"):
            return self._machines.observe(ref)

    def marked(self) -> Sequence[MachineState]:
        """Every visible VM that carries a readable mark, from one bulk read."""
        with _verb("marked"):
            places = self._places.get()
            self._census.refresh()
            return [machine_state(entry.as_record(), places) for entry in self._census.marked()]

    def made_for(self, owner: Owner) -> Sequence[MachineState]:
        """Every VM with a valid mark of that owner."""
        with _verb("made-for"):
            return self._marking.made_for(owner)

    def creating(self) -> Sequence[str]:
        """Names of ours that unfinished clone tasks of any process will have."""
        with _verb("creating"):
            return self._machines.creating()

    def changes(self, timeout: float) -> Changes:
        """Block until something changed, for at most `timeout` seconds."""
        with _verb("changes"), self._watcher.preparing():
            if not self._seeded:
                self._seed()
            words = self._making.look_for_lost()
            look = self._making.next_look()
            wait = timeout if look is None else min(timeout, max(1.0, look))
            told = self._watcher.changes(0.0 if words else wait)
            words |= self._whereabouts.changed()
            return Changes(told.uuids | words, told.tasks, everything=told.everything)

    def _seed(self) -> None:
        """Watch every VM with a valid mark from the start, instead of one after the other."""
        self._census.ensure()
        marked = (
            entry.moid
            for entry in self._census.marked()
            if valid_mark(entry.mark, entry.uuid or "")
        )
        self._watcher.add(*marked)
        self._seeded = True

    # Changing

    def create(self, plan: Plan) -> Task | None:
        """Start making the VM, whole in one call; one that is made or under way is found."""
        with _verb(f"create-{plan.ref.name}", Reason.PROVISIONING_FAILED):
            task = self._making.create(plan)
            if task is not None and plan.tags:
                self._keeping.tagging.made(plan.ref.uuid or "", plan.tags)
            return task

    def update(self, plan: Plan, seen: MachineState) -> Task | None:
        """Take one step towards the plan; CPUs and memory change while the VM is off."""
        with _verb(f"update-{plan.ref.name}", Reason.UPDATE_FAILED):
            if plan.restart:
                return self._restarts.restart(plan, seen.backend_id)
            joins = self._keeping.before_start(plan, seen)
            if joins is not None:
                return joins
            return self._work.update(plan, seen.backend_id)

    def delete(self, ref: MachineRef) -> Task | None:
        """Take one step: power off, then destroy; never while a foreign disk is attached."""
        with _verb(f"delete-{ref.name}", Reason.DELETION_FAILED):
            create = self._creates.get(ref.uuid or "")
            if create is not None and create.task and self._tasks.is_running(create.task):
                return self._work.follow(create.task, CREATE, "")
            return self._work.delete(ref) or self._keeping.after_delete(ref.uuid or "")

    def detach_disks(self, ref: MachineRef, disks: Sequence[DiskState]) -> Task | None:
        """Detach disks and leave their files."""
        with _verb(f"detach-{ref.name}", Reason.UPDATE_FAILED):
            return self._work.detach(ref, disks)

    def keep_disks(self, ref: MachineRef, disks: Mapping[str, str]) -> Task | None:
        """Detach disks and move their files to where kept disks lie, step by step."""
        with _verb(f"keep-{ref.name}", Reason.UPDATE_FAILED):
            return self._work.disks.keep(ref, disks)

    def kept_disk(self, owner: Owner, disk: str) -> KeptDisk | None:
        """The kept disk of that id, if it lies in the owner's own folder on any datastore."""
        with _verb("kept-disk"):
            return self._work.disks.kept.find(owner, disk)

    def kept_disks(self, installation_id: str) -> Sequence[KeptDisk] | None:
        """All kept disks of an installation, by a search of each datastore, step by step."""
        with _verb("kept-disks"):
            return self._work.disks.kept.all(installation_id)

    def remove_mark(self, ref: MachineRef) -> Task | None:
        """Take the mark off the VM."""
        with _verb(f"unmark-{ref.name}", Reason.UPDATE_FAILED):
            return self._work.remove_mark(ref)

    def write_mark(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Write another mark on the VM."""
        with _verb(f"mark-{ref.name}", Reason.UPDATE_FAILED):
            return self._marking.write(ref, mark)

    def redact_seed(self, ref: MachineRef) -> Task | None:
        """Clear the user data of the VM."""
        with _verb(f"redact-{ref.name}", Reason.UPDATE_FAILED):
            return self._redacting.redact(ref)

    # Adopting

    def find(self, id_: str) -> Candidate | None:
        """The VM of that instance UUID, marked or not."""
        with _verb("find"):
            return self._adopting.find(id_)

    def candidates(self) -> Sequence[Candidate]:
        """Every VM and template, from one bulk read."""
        with _verb("candidates"):
            return self._adopting.candidates()

    def take_over(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Mark the VM and name its devices, unless somebody else was faster."""
        with _verb(f"take-over-{ref.name}", Reason.UPDATE_FAILED):
            return self._adopting.take_over(ref, mark)

    # Tasks

    def poll(self, task: Task) -> Task | None:
        """The task while it runs; raises what it failed with."""
        otherwise = _REASONS.get(task.operation, Reason.UPDATE_FAILED)
        with _verb(f"poll-{task.handle}", otherwise):
            return self._tasks.poll(task, otherwise)

    # Counting

    def calls(self) -> Mapping[str, int]:
        """SOAP calls sent so far, by method."""
        return self._session.calls()


@contextmanager
def _verb(name: str, otherwise: Reason = Reason.INVENTORY_FAILED) -> Iterator[None]:
    """The frame of every verb: names its calls, and turns every failure into a uniform one."""
    with faults.translated(otherwise), operation(name):
        yield


@contextmanager
def open_driver(
    to: Connection,
    creates: Creates,
    timings: Timings,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[VSphereDriver]:
    """Log in, and log out at the end; raises `DriverError`."""
    session = Session(to, timings)
    session.open()
    try:
        driver = VSphereDriver(
            session,
            to.capabilities,
            creates,
            timings,
            monotonic,
            settings=to.settings,
            provider=f"{to.provider_namespace}/{to.provider_name}",
        )
        try:
            yield driver
        finally:
            driver.close()
    finally:
        session.close()
