"""Changes of VMs: power, hardware, disks, marks, destruction; and the tasks they run in."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import Found, moid, read_all
from banlieue.providers.vsphere.hardware import cards, devices
from banlieue.providers.vsphere.hardware.diskwork import DEVICES, MOVES, DiskWork
from banlieue.providers.vsphere.hardware.macs import Macs
from banlieue.providers.vsphere.places import placement
from banlieue.providers.vsphere.places.inventory import Network
from banlieue.providers.vsphere.places.offers import Offers
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.vms import firstboot, obstacles, preparing
from banlieue.providers.vsphere.vms.machines import Live, Machines
from banlieue.providers.vsphere.vms.preparing import Preparing
from banlieue.providers.vsphere.watching.ends import Sign
from banlieue.providers.vsphere.watching.records import (
    DISKS,
    DISKS_KEY,
    KEPT_KEY,
    MARK_KEY,
    NICS,
    NICS_KEY,
    SNAPSHOTS,
    VALUES,
    Records,
    VmRecord,
)
from banlieue.providers.vsphere.watching.watcher import Watcher
from banlieue.sdk.driver import DiskState, MachineRef, NicPlan, Task
from banlieue.sdk.errors import FieldLacks, Foreign, InvalidSpec, NeedsOperator, Transient

SHUTDOWN = "shutdown-"
"""What the handle of a guest shutdown begins with; the vCenter has no task for it."""

_ON, _OFF, _SUSPENDED = "poweredOn", "poweredOff", "suspended"
_POWER = {
    PowerState.POWERED_ON: _ON,
    PowerState.POWERED_OFF: _OFF,
    PowerState.SUSPENDED: _SUSPENDED,
}
_SOON = 2.0
_LATE = 30.0
"""Seconds to wait when the watch tells the end of a task anyway."""
_AT_ONCE, _MOMENT = 0.05, 0.5
"""The same for a task that is over, and for one whose VM told its end before it did."""


@dataclass(slots=True)
class _Shutdown:
    """A guest that was asked to stop."""

    mode: PowerOffMode
    until: float


@dataclass(slots=True, kw_only=True)
class Work:
    """Starts changes; each method takes one step and gives its task. Thread-safe."""

    session: Session
    records: Records
    watcher: Watcher
    machines: Machines
    monotonic: Callable[[], float]
    offers: Offers
    macs: Macs
    leaving: Callable[[str, str], object] = field(default=lambda *_: None)
    """Told the UUID and id of a VM right before it is destroyed."""
    disks: DiskWork = field(init=False)
    preparing: Preparing = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _tasks: dict[str, tuple[str, str]] = field(init=False, default_factory=dict)
    _shutdowns: dict[str, _Shutdown] = field(init=False, default_factory=dict)
    _shown: deque[str] = field(init=False, default_factory=lambda: deque(maxlen=256))
    """Tasks of ours that were over as far as their VMs tell."""

    def __post_init__(self) -> None:
        self.disks = DiskWork(work=self)
        self.preparing = Preparing(work=self, offers=self.offers)

    # Steps

    def update(self, plan: Plan, backend_id: str) -> Task | None:
        """One step from what is now towards the plan: hardware while off, then power."""
        live = self.own(plan, backend_id)
        record = live.record
        busy = self.busy(live)
        if busy is not None:
            return busy
        if record.power == _OFF and not plan.power_only:
            step = self.preparing.step(plan, live)
            if step is not None:
                return step
        if plan.power_only:
            return None if record.power == _POWER[plan.power] else self._power(plan, record)
        found = self.disks.step(plan, live)
        refused: FieldLacks | None = None
        try:
            step = found.task or self._interfaces(plan, live)
        except FieldLacks as error:
            step, refused = None, error  # of no concern to anything but its card
        if step is not None:
            return step
        if record.power != _POWER[plan.power] and not found.holds_start:
            return self._power(plan, record)
        if found.blocked is not None:
            raise found.blocked
        step = self._running(plan, live)
        if step is None and refused is not None:
            raise refused
        return step

    def _running(self, plan: Plan, live: Live) -> Task | None:
        """What is left to do for a VM whose power is as it should be."""
        record = live.record
        lacking = self._attributes(plan, live)
        spec = preparing.hot(plan, live) if record.power != _OFF else None
        if spec is not None:
            return self.reconfigure(record.moid, "reconfigure", spec)
        self.preparing.check_upgrade(plan, live)
        if lacking is not None:
            raise lacking
        return None

    def _attributes(self, plan: Plan, live: Live) -> FieldLacks | None:
        """Set the custom attributes that differ; the refusal, which holds up nothing else."""
        vm, wanted = live.record.moid, plan.spec.custom_attributes
        try:
            written = self.machines.attributes.write(vm, wanted, live.found.get(VALUES))
        except vim.fault.NotAuthenticated:
            raise
        except FieldLacks as error:
            return error
        except vmodl.MethodFault as error:
            told = faults.driver_error(error, Reason.UPDATE_FAILED)
            return FieldLacks("customAttributes", told.reason, told.message, native=told.native)
        if written:
            self._doubt(vm)
        return None

    def _interfaces(self, plan: Plan, live: Live) -> Task | None:
        """Add cards that are missing and remove those of ours that nobody asks for any more."""
        record, known = live.record, live.found.get(NICS)
        names = cards.decode(getattr(known, "value", None))
        if names is None:
            return None  # nobody can tell which cards are ours
        left = {mac: name for mac, name in names.items() if name in plan.left_alone}
        ours = {mac: name for mac, name in names.items() if mac not in left}
        attached = live.found.get(DEVICES) or ()

        def find(nic: NicPlan) -> Network:
            places = self.machines.places.get()
            cluster = places.cluster_of(record.host) or placement.cluster_of(places, plan)
            return placement.network(places, cluster, nic.network, nic.name)

        running = record.power == _ON
        change = cards.change(plan.ref.uuid or "", plan.nics, attached, ours, find, running=running)
        if change is None:
            return None
        if record.power == _SUSPENDED:
            if plan.power is not PowerState.SUSPENDED:
                return None  # it is woken or stopped first
            raise NeedsOperator(
                Reason.RESTART_REQUIRED, "interfaces of a suspended VM cannot be changed; wake it"
            )
        new = set(change.names.values()) - set(ours.values())
        try:
            self.macs.check(plan, ((nic, find(nic)) for nic in plan.nics if nic.name in new))
        except (NeedsOperator, InvalidSpec) as error:
            raise FieldLacks("networkInterfaces", error.reason, error.message) from error
        option = vim.option.OptionValue(key=NICS_KEY, value=cards.encode({**left, **change.names}))
        spec = vim.vm.ConfigSpec(
            deviceChange=list(change.edits),
            extraConfig=[option],
            changeVersion=record.change_version,
        )
        return self.reconfigure(record.moid, "reconfigure", spec)

    def _power(self, plan: Plan, record: VmRecord) -> Task | None:
        wanted = plan.power
        if wanted == PowerState.SUSPENDED and record.power == _ON:
            return self.start(record.moid, "suspend", lambda vm: vm.SuspendVM_Task())
        if wanted == PowerState.POWERED_OFF:
            return self._power_off(plan, record)
        return self._power_on(record.moid)

    def _power_on(self, vm: str) -> Task:
        """Start a VM, or wake one that sleeps."""
        return self.start(vm, "power-on", lambda vm: vm.PowerOnVM_Task(host=None))

    def _power_off(self, plan: Plan, record: VmRecord) -> Task | None:
        vm = record.moid
        if record.power == _SUSPENDED and plan.power_off_mode is not PowerOffMode.HARD:
            # Its guest is asked once it runs; what it has in memory may not be on disk yet.
            return self._power_on(vm)
        with self._lock:
            shutdown = self._shutdowns.get(vm)
        until = shutdown.until if shutdown else self.monotonic() + plan.power_off_timeout
        expired = self.monotonic() >= until
        hard = plan.power_off_mode is PowerOffMode.HARD or record.power != _ON
        if hard or (expired and plan.power_off_mode is PowerOffMode.TRY_SOFT):
            with self._lock:
                self._shutdowns.pop(vm, None)
            return self.start(vm, "power-off", lambda vm: vm.PowerOffVM_Task())
        if shutdown is not None and not expired:
            return self._stopping(vm, until)
        return self._shut_down(plan, vm)

    def _shut_down(self, plan: Plan, vm: str) -> Task | None:
        """Ask the guest to stop; pull the plug when it has no agent and the mode allows it."""
        try:
            self.session.run(lambda login: vim.VirtualMachine(vm, login.ops).ShutdownGuest())
        except vim.fault.ToolsUnavailable:
            if plan.power_off_mode is not PowerOffMode.TRY_SOFT:
                raise
            return self.start(vm, "power-off", lambda vm: vm.PowerOffVM_Task())
        until = self.monotonic() + plan.power_off_timeout
        with self._lock:
            self._shutdowns[vm] = _Shutdown(plan.power_off_mode, until)
        self._doubt(vm)
        return self._stopping(vm, until)

    def _stopping(self, vm: str, until: float) -> Task:
        """The handle of a guest's shutdown; the vCenter has no task for it."""
        left = max(0.0, until - self.monotonic())
        return Task(SHUTDOWN + vm, "power-off", _SOON, seconds_left=left)

    def delete(self, ref: MachineRef) -> Task | None:
        """One step towards "gone": pull the plug, then destroy; None when there is nothing."""
        live = self.own_of(ref)
        if live is None:
            return None
        busy = self.busy(live)
        if busy is not None:
            return busy
        vm = live.record.moid
        self._check_snapshots(live)
        obstacles.check_allowed(live, "ReconfigVM_Task")
        begun = self.disks.finish(live, clear=False)
        if begun is not None:
            return begun
        self.watcher.expect_end(vm)
        if live.record.power != _OFF:
            return self._end(vm, Sign.OFF, lambda vm: vm.PowerOffVM_Task())
        # What is remembered may be from before a disk was attached; this was read now.
        states = _disk_states(live, live.found.get(DEVICES) or ())
        foreign = [disk.id for disk in states if disk.name is None]
        if foreign:
            raise NeedsOperator(
                Reason.FOREIGN_DISK_ATTACHED,
                f"the VM has disks that were not made for it ({', '.join(foreign)}); detach them",
            )
        self.leaving(ref.uuid or "", vm)
        return self._end(vm, Sign.GONE, lambda vm: vm.Destroy_Task())

    def _end(self, vm: str, sign: Sign, call: Callable[[Any], Any]) -> Task:
        """Start a task of a deletion, whose end shows on the VM."""
        self.watcher.ends.expect(vm, sign)
        try:
            task = self._send(vm, call)
        # Whatever ended the call, nothing is waited for; raised again.
        except BaseException:
            self.watcher.ends.cancel(vm)
            raise
        with self._lock:
            self._tasks[task] = ("delete", vm)
        self.watcher.follow_end(task, vm)
        return Task(task, "delete", self._pause(task))

    def detach(self, ref: MachineRef, disks: Sequence[DiskState]) -> Task | None:
        """Take disks off a VM and leave their files; None when none of them is attached."""
        live = self.own_of(ref)
        if live is None:
            return None
        wanted = {disk.id for disk in disks}
        attached = live.found.get("config.hardware.device") or ()
        buses = devices.controllers(attached)
        removals = [
            vim.vm.device.VirtualDeviceSpec(operation="remove", device=disk)
            for disk in devices.virtual_disks(attached)
            if wanted & {devices.disk_id(disk), devices.slot_id(devices.slot_of(disk, buses))}
        ]
        if not removals:
            return None
        if live.found.get(SNAPSHOTS):
            raise NeedsOperator(
                Reason.BLOCKED_BY_SNAPSHOT,
                "the VM has snapshots, which hold on to its disks; delete the snapshots",
            )
        busy = self.busy(live)
        if busy is not None:
            return busy
        obstacles.check_allowed(live, "ReconfigVM_Task")
        spec = vim.vm.ConfigSpec(deviceChange=removals, changeVersion=live.record.change_version)
        return self.reconfigure(live.record.moid, "detach", spec)

    def _check_snapshots(self, live: Live) -> None:
        """Refuse to destroy disks that only a snapshot still refers to: they go with the VM.

        A disk that was taken off, by us or by a storage driver, keeps its data only as long as no
        snapshot from before holds on to its file.
        """
        snapshots = obstacles.snapshot_ids(live.found.get(SNAPSHOTS) or ())
        if not snapshots:
            return
        found = read_all(self.session, dict.fromkeys(snapshots, vim.vm.Snapshot), (DEVICES,))
        attached = live.found.get(DEVICES) or ()
        buses = devices.controllers(attached)
        here = {devices.slot_of(disk, buses) for disk in devices.virtual_disks(attached)}
        left = sorted({disk for item in found for disk in _left_behind(live, item, here)})
        if left:
            raise NeedsOperator(
                Reason.FOREIGN_DISK_ATTACHED,
                "snapshots of the VM hold on to disks that must live on "
                f"({', '.join(left)}); delete the snapshots",
            )

    def remove_mark(self, ref: MachineRef) -> Task | None:
        """Take our mark off a VM; None when it has none."""
        live = self.own_of(ref)
        if live is None or (live.record.mark is None and live.found.get(DISKS) is None):
            return None
        busy = self.busy(live)
        if busy is not None:
            return busy
        keys = {MARK_KEY, DISKS_KEY, NICS_KEY, KEPT_KEY, firstboot.STAGE_KEY}
        try:
            begun = self.disks.finish(live, clear=False)
        except NeedsOperator:
            # Somebody has a disk that was kept, or its storage is away: the note tells where.
            begun, keys = None, keys - {KEPT_KEY}
        if begun is not None:
            return begun
        # An empty value takes the key away.
        gone = [vim.option.OptionValue(key=key, value="") for key in sorted(keys)]
        spec = vim.vm.ConfigSpec(extraConfig=gone, changeVersion=live.record.change_version)
        return self.reconfigure(live.record.moid, "remove-mark", spec)

    # What a step works on

    def own(self, plan: Plan, backend_id: str) -> Live:
        """The VM of a plan.

        Raises:
            Transient: it is not there at the moment.
            Foreign: it has another identity.
        """
        live = self.machines.by_id(backend_id)
        if live is None:
            raise Transient(Reason.PROVIDER_BUSY, "the VM is gone; it is looked for again")
        if live.record.uuid != (plan.ref.uuid or "").lower():
            raise Foreign("the VM has another UUID than this machine; it is left alone")
        return live

    def own_of(self, ref: MachineRef) -> Live | None:
        """The VM of the machine's UUID, never one of its name only; None when there is none."""
        if ref.uuid is None:
            return None
        return self.machines.of_machine(ref)

    def busy(self, live: Live) -> Task | None:
        """Our own unfinished task on the VM; raises when the task is somebody else's."""
        if not live.tasks:
            return None
        with self._lock:
            for task in live.tasks:
                if task in self._tasks:
                    asked = live.record.question
                    return Task(task, self._tasks[task][0], self._pause(task), question=asked)
                if task in self._shown:
                    return Task(task, "delete", _MOMENT)
        obstacles.check_free(live.tasks.values())
        return None

    # Tasks

    def reconfigure(self, vm: str, operation: str, spec: Any) -> Task:  # noqa: ANN401 - a ConfigSpec
        """Start to change a VM."""
        return self.start(vm, operation, lambda managed: managed.ReconfigVM_Task(spec=spec))

    def start(self, vm: str, operation: str, call: Callable[[Any], Any]) -> Task:
        """Start a task on a VM and watch it."""
        return self.follow(self._send(vm, call), operation, vm)

    def _send(self, vm: str, call: Callable[[Any], Any]) -> str:
        def start(login: Login) -> str:
            return moid(call(vim.VirtualMachine(vm, login.ops)))

        self._doubt(vm)
        return self.session.run(start)

    def follow(self, task: str, operation: str, vm: str) -> Task:
        """Watch a task that was started; the handle the SDK keeps."""
        with self._lock:
            self._tasks[task] = (operation, vm)
        self.watcher.add(task)
        return Task(task, operation, self._pause(task))

    def vm_of(self, task: str) -> str:
        """The VM that a task of ours works on, "" when it is none of ours."""
        with self._lock:
            return self._tasks.get(task, ("", ""))[1]

    def over(self, task: str) -> None:
        """Take note of a task's end."""
        with self._lock:
            operation, vm = self._tasks.pop(task, ("", ""))
        if operation in MOVES:
            self.disks.kept.forget()
        told = self.watcher.task(task)
        self.watcher.settle(task)
        if told is not None and told.shown:
            with self._lock:
                self._shown.append(task)  # what is known of the VM is from after it
        elif vm:
            self._doubt(vm)

    def still(self, task: Task) -> Task:
        """The task, to be asked about again; one that an earlier process started is watched too."""
        if self.watcher.task(task.handle) is None:
            self.watcher.add(task.handle)
        with self._lock:
            _, vm = self._tasks.get(task.handle, ("", ""))
        record = self.records.get(vm) if vm else None
        asked = record.question if record else None
        return Task(task.handle, task.operation, self._pause(task.handle), question=asked)

    def _pause(self, task: str) -> float:
        told, left = self.watcher.task(task), self.watcher.ends.seconds_left(task)
        if told is None:
            return _SOON
        if told.ended:
            return _AT_ONCE
        return _LATE if left is None else left + _MOMENT

    def _doubt(self, vm: str) -> None:
        """What is known of the VM is not current until the watch tells more, or it is read."""
        with self.records.lock:
            record = self.records.get(vm)
            if record is not None:
                record.dirty = True

    def poll_shutdown(self, task: Task) -> Task | None:
        """Whether a guest that was asked to stop did so, or has no time left.

        Raises:
            Transient: it did not stop in time, and the mode does not allow to pull the plug.
        """
        vm = task.handle.removeprefix(SHUTDOWN)
        with self._lock:
            shutdown = self._shutdowns.get(vm)
        if shutdown is None:
            return None
        record = self.records.get(vm) if self.watcher.healthy else None
        if record is None or record.dirty:
            live = self.machines.by_id(vm)
            record = live.record if live else None
        if record is None or record.power == _OFF:
            with self._lock:
                self._shutdowns.pop(vm, None)
            return None
        if self.monotonic() < shutdown.until:
            return self._stopping(vm, shutdown.until)
        if shutdown.mode is PowerOffMode.TRY_SOFT:
            return None  # the next step pulls the plug
        with self._lock:
            self._shutdowns.pop(vm, None)
        raise Transient(
            Reason.SHUTDOWN_TIMED_OUT,
            "the guest did not shut down in time; look at its console or use powerOffMode Hard",
        )


def _disk_states(live: Live, attached: Sequence[Any]) -> tuple[DiskState, ...]:
    """Disks of a VM or of a snapshot of it, by what was just read of the VM."""
    option, path = live.found.get(DISKS), live.found.get("config.files.vmPathName") or ""
    slots = devices.decode_slots(getattr(option, "value", None))
    return devices.disk_states(attached, slots, path, live.record.name)


def _left_behind(live: Live, snapshot: Found, here: set[str]) -> Iterator[str]:
    """Disks of a snapshot that are not the VM's own, or that the VM has no longer."""
    attached = snapshot.get(DEVICES) or ()
    buses = devices.controllers(attached)
    states = _disk_states(live, attached)
    yield from (state.id for state in states if state.name is None)
    for disk in devices.virtual_disks(attached):
        if devices.slot_of(disk, buses) not in here:
            yield devices.disk_id(disk)
