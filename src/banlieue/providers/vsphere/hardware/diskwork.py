"""Steps that give a VM the disks of its plan, and that keep those which outlive it."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.soap import moid, read_all
from banlieue.providers.vsphere.hardware import devices, disks, holders, kept, notes
from banlieue.providers.vsphere.hardware.disks import Attached, Edit
from banlieue.providers.vsphere.hardware.kept import KeptDisks
from banlieue.providers.vsphere.places import placement
from banlieue.providers.vsphere.places.inventory import Cluster, Datacenter, Datastore, Inventory
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.places.stores import Wish
from banlieue.providers.vsphere.vms import obstacles
from banlieue.providers.vsphere.vms.machines import Live
from banlieue.providers.vsphere.watching.records import DISKS, DISKS_KEY, KEPT, KEPT_KEY, SNAPSHOTS
from banlieue.sdk.disks import check_name, disk_in_use, disk_not_found
from banlieue.sdk.driver import DiskPlan, MachineRef, Task
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator, Transient
from banlieue.sdk.identity import Mark, Owner

if TYPE_CHECKING:
    from banlieue.providers.vsphere.vms.work import Work

DEVICES = "config.hardware.device"

KEEP = "keep"
ATTACH = "attach"
MOVES = frozenset({KEEP, ATTACH})
"""Operations of tasks that move a disk's file."""
MOVES = frozenset({KEEP, ATTACH})
"""Operations of tasks after which other disks are kept than before."""

_ON, _SUSPENDED = "poweredOn", "suspended"


@dataclass(frozen=True, slots=True)
class Step:
    """What a look at the disks led to: work that began, or why nothing more can be done now.

    `holds_start` tells that the VM is not started before the disks are there.
    """

    task: Task | None = None
    blocked: DriverError | None = None
    holds_start: bool = False


def attached(live: Live) -> Attached:
    """The disks of a VM as it was just read."""
    known = getattr(live.found.get(DISKS), "value", None)
    return Attached(
        devices=tuple(live.found.get(DEVICES) or ()),
        slots=devices.decode_slots(known),
        path=live.found.get("config.files.vmPathName") or "",
        name=live.record.name,
        running=live.record.power == _ON,
        snapshots=bool(live.found.get(SNAPSHOTS)),
    )


@dataclass(slots=True, kw_only=True)
class DiskWork:
    """Starts changes of disks. Thread-safe."""

    work: "Work"
    kept: KeptDisks = field(init=False)

    def __post_init__(self) -> None:
        machines = self.work.machines
        self.kept = KeptDisks(
            session=self.work.session, places=machines.places, now=self.work.monotonic
        )

    # Following a plan

    def step(self, plan: Plan, live: Live) -> Step:
        """One step towards the disks of a plan; what cannot be done now is told."""
        vm = attached(live)
        waiting = [disk for disk in disks.missing(plan.disks, vm) if disk.existing is not None]
        coming = {disk.existing or "" for disk in waiting}
        try:
            begun, held = self.finish(live, clear=True, coming=coming), None
        except NeedsOperator as refusal:
            begun, held = None, refusal
        if begun is not None:
            return Step(begun)
        try:
            step = self._take(plan, live, vm, waiting)
        except NeedsOperator as refusal:
            return Step(None, refusal, holds_start=bool(waiting))
        return step if step.task or step.blocked else replace(step, blocked=held)

    def _take(self, plan: Plan, live: Live, vm: Attached, waiting: list[DiskPlan]) -> Step:
        places = self.work.machines.places.get()
        cluster = places.cluster_of(live.record.host) or placement.cluster_of(places, plan)
        edit = disks.edit(
            plan.disks, plan.removals, vm, self._finder((places, cluster), plan, live, vm)
        )
        kept_now = {it.name: it.keep_as for it in plan.removals if it.keep_as and it.name in vm.own}
        blocked = edit.blocked
        if (edit.changes or kept_now or waiting) and live.record.power == _SUSPENDED:
            return Step(None, _asleep(), holds_start=False)
        if edit.changes or kept_now or waiting:
            obstacles.check_allowed(live, "ReconfigVM_Task")
        if edit.changes:
            return Step(self._reconfigure(live, "reconfigure", edit))
        if kept_now:
            try:
                return Step(self._detach(live, vm, kept_now))
            except NeedsOperator as refusal:
                blocked = blocked or refusal
        for disk in waiting:
            return Step(self._attach(plan, live, vm, disk, (places, cluster)))
        return Step(None, blocked)

    def _finder(
        self, where: tuple[Inventory, Cluster], plan: Plan, live: Live, vm: Attached
    ) -> disks.Find:
        """Where disks are made: where their class says, or beside the boot disk."""
        root = devices.virtual_disks(vm.devices)
        beside = getattr(root[0].backing, "datastore", None) if root else None

        def find(disk: DiskPlan) -> tuple[Datastore, Wish]:
            store = moid(beside) if beside is not None else None
            return placement.storage(where, plan, disk, store, live.record.host)

        return find

    # Kept disks that a VM gets

    def _attach(
        self,
        plan: Plan,
        live: Live,
        vm: Attached,
        disk: DiskPlan,
        where: tuple[Inventory, Cluster],
    ) -> Task:
        """Take the file into the VM's own directory, then attach it from there.

        What is taken is noted on the VM before, so that it is given back if that comes to nothing.
        """
        check_name(disk.name)
        owner, wanted = plan.ref.owner, disk.existing or ""
        places, cluster = where
        datacenter = places.datacenters[cluster.datacenter]
        stores = [store.name for store in _reachable(places, cluster)]
        if not notes.is_id(wanted):
            raise disk_not_found(disk.name, wanted, owner)
        lying = [(kept.file(store, owner, wanted), datacenter) for store in stores]
        source = self.kept.first(lying)
        if source is not None:
            holder = self.kept.holder(source, datacenter)
            if holder is not None:
                raise disk_in_use(disk.name, wanted, f"VM {holder}")
            target = _own_file(vm, kept.store_of(source), wanted)
            noted = _noted(live)
            if noted.get(wanted) != target:
                return self._write_note(live, ATTACH, {**noted, wanted: target})
            return self._move(live, ATTACH, source, target, datacenter)
        taken = self.kept.first((_own_file(vm, it, wanted), datacenter) for it in stores)
        if taken is None:
            raise disk_not_found(disk.name, wanted, owner)
        left = {it: path for it, path in _noted(live).items() if it != wanted}
        edit = disks.attachment(disk, taken, vm)
        return self._reconfigure(live, ATTACH, edit, _note(left))

    # Disks that outlive their VM

    def keep(self, ref: MachineRef, wanted: Mapping[str, str]) -> Task | None:
        """One step towards keeping disks of a VM; None when all are where kept disks lie."""
        live = self.work.own_of(ref)
        if live is None:
            return None
        busy = self.work.busy(live)
        if busy is not None:
            return busy
        begun = self.finish(live, clear=False)
        if begun is not None:
            return begun
        vm = attached(live)
        now = {name: disk for name, disk in wanted.items() if name in vm.own}
        if now:
            obstacles.check_allowed(live, "ReconfigVM_Task")
            return self._detach(live, vm, now)
        return self._give_back(live, vm, ref.owner, wanted.values())

    def _detach(self, live: Live, vm: Attached, wanted: Mapping[str, str]) -> Task:
        """Take disks off and write on the VM, in the same step, where their files are to go."""
        wrong = [disk for disk in wanted.values() if not notes.is_id(disk)]
        if wrong:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION, f"{wrong[0]!r} cannot be the id of a kept disk"
            )
        edit = disks.detachment(wanted, vm)
        files = {disk: devices.disk_id(vm.own[name]) for name, disk in wanted.items()}
        return self._reconfigure(live, KEEP, edit, _note({**_noted(live), **files}))

    def finish(
        self, live: Live, *, clear: bool, coming: Collection[str] = frozenset()
    ) -> Task | None:
        """Move files to where kept disks lie: of disks that were taken off, or never attached.

        Args:
            live: the VM as it was just read.
            clear: whether what is done leaves the note.
            coming: disks that are to be attached still.

        Raises:
            NeedsOperator: another VM has such a file, so it stays where it is, and the note, too.
            Transient: nobody knows where they are.
        """
        mark, noted, vm = Mark.decode(live.record.mark), _noted(live), attached(live)
        # One that is listed again before its file was moved is moved first, then taken from there.
        taken = {
            disk: path
            for disk, path in noted.items()
            if disk in coming and path == _own_file(vm, kept.store_of(path), disk)
        }
        files = {disk: path for disk, path in noted.items() if disk not in taken}
        if mark is None or not files:
            return None
        places = self.work.machines.places.get()
        cluster = places.cluster_of(live.record.host)
        datacenter = places.datacenters.get(cluster.datacenter) if cluster else None
        if datacenter is None:
            raise _no_host()
        # A snapshot that was gone back to brings an old note; what is attached now, or what that
        # stands on, is in use.
        used, held = holders.files(vm.devices), None
        for disk, source in files.items():
            target = kept.file(kept.store_of(source), mark.owner, disk)
            if source in used or source == target:
                continue
            try:
                if self._may_leave(live, disk, source, datacenter):
                    return self._move(live, KEEP, source, target, datacenter)
            except NeedsOperator as refusal:
                held = held or refusal
        if held is not None:
            raise held
        return self._write_note(live, "reconfigure", taken) if clear else None

    def _may_leave(self, live: Live, disk: str, source: str, datacenter: Datacenter) -> bool:
        """Whether a file that was taken off is there to be moved.

        Raises:
            NeedsOperator: nobody knows, or a snapshot or another VM has it.
        """
        try:
            if not self.kept.is_there(source, datacenter):
                return False
        except vim.fault.InvalidDatastore as error:
            store = kept.store_of(source)
            raise NeedsOperator(
                Reason.INSUFFICIENT_STORAGE,
                f"disk {disk} is to be kept, and its datastore {store} cannot be reached; bring it "
                "back",
            ) from error
        shots = obstacles.snapshot_ids(live.found.get(SNAPSHOTS) or ())
        start = dict.fromkeys(shots, vim.vm.Snapshot)
        read = read_all(self.work.session, start, (DEVICES,)) if start else ()
        if any(source in holders.files(shot.get(DEVICES)) for shot in read):
            raise disks.snapshot_holds()
        holder = self.kept.holder(source, datacenter)
        if holder is not None:
            raise NeedsOperator(
                Reason.DISK_IN_USE,
                f"disk {disk} is to be kept, and VM {holder} has its file {source}; detach it "
                "there",
            )
        return True

    def _give_back(
        self, live: Live, vm: Attached, owner: Owner, wanted: Iterable[str]
    ) -> Task | None:
        """Move files back that were taken for this VM and never attached."""
        places = self.work.machines.places.get()
        cluster = places.cluster_of(live.record.host)
        if cluster is None:
            raise _no_host()
        datacenter = places.datacenters[cluster.datacenter]
        used = holders.files(vm.devices)
        for disk in wanted:
            for store in _reachable(places, cluster) if notes.is_id(disk) else ():
                source = _own_file(vm, store.name, disk)
                if source not in used and self.kept.is_kept(source, datacenter):
                    target = kept.file(store.name, owner, disk)
                    return self._move(live, KEEP, source, target, datacenter)
        return None

    # Tasks

    def _write_note(self, live: Live, operation: str, files: Mapping[str, str]) -> Task:
        spec = vim.vm.ConfigSpec(
            extraConfig=[_note(files)], changeVersion=live.record.change_version
        )
        return self.work.reconfigure(live.record.moid, operation, spec)

    def _move(
        self, live: Live, operation: str, source: str, target: str, datacenter: Datacenter
    ) -> Task:
        task = self.kept.move(source, target, datacenter)
        return self.work.follow(task, operation, live.record.moid)

    def _reconfigure(self, live: Live, operation: str, edit: Edit, *options: Any) -> Task:  # noqa: ANN401 - OptionValues
        slots = vim.option.OptionValue(key=DISKS_KEY, value=devices.encode_slots(edit.slots))
        spec = vim.vm.ConfigSpec(
            deviceChange=list(edit.changes),
            extraConfig=[slots, *options],
            changeVersion=live.record.change_version,
        )
        return self.work.reconfigure(live.record.moid, operation, spec)


def _noted(live: Live) -> dict[str, str]:
    """Files of disks on their way, by the ids they are kept under."""
    note = getattr(live.found.get(KEPT), "value", None)
    return notes.of_vm(note, Mark.decode(live.record.mark), live.record.uuid)


def _note(files: Mapping[str, str]) -> Any:  # noqa: ANN401 - an OptionValue
    """The note as it is written; one that says nothing takes the key away."""
    return vim.option.OptionValue(key=KEPT_KEY, value=json.dumps(dict(files)) if files else "")


def _own_file(vm: Attached, store: str, disk: str) -> str:
    """The file of an attached disk, in the VM's own directory on that datastore."""
    home = vm.directory if kept.store_of(vm.path) == store else f"[{store}] {vm.name}"
    return f"{home}/{disk}.vmdk"


def _reachable(places: Inventory, cluster: Cluster) -> list[Datastore]:
    """Usable datastores that hosts of a cluster see."""
    seen = {key for host in places.usable_hosts(cluster) for key in host.datastores}
    found = (places.datastores.get(key) for key in sorted(seen))
    return [store for store in found if store is not None and store.usable]


def _no_host() -> Transient:
    return Transient(Reason.PROVIDER_BUSY, "the VM's host is not known; it is looked for again")


def _asleep() -> NeedsOperator:
    return NeedsOperator(
        Reason.RESTART_REQUIRED, "disks of a suspended VM cannot be changed; wake it"
    )
