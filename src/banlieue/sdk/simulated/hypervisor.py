"""The work of a simulated hypervisor: tasks, moved on by the time that has passed.

Nothing here knows sessions, faults on the wire or threads. Work that takes time becomes a task;
`settle` carries out, in order, whatever has become due since.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from banlieue.sdk.simulated.changes import ChangeLog
from banlieue.sdk.simulated.faults import Code, WorldFault
from banlieue.sdk.simulated.inventory import Inventory, WorldClock
from banlieue.sdk.simulated.records import (
    OFF,
    ON,
    SUSPENDED,
    Detaching,
    Fault,
    Hardware,
    State,
    TakeOver,
    Task,
    Vm,
    VmSpec,
)

_POWER = {"power-on": ON, "power-off": OFF, "shutdown": OFF, "suspend": SUSPENDED, "restart": ON}
_ASKED = frozenset({"shutdown", "restart"})
"""What a guest may leave undone; forced, it is done all the same."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What an injected fault does to a task: makes it slower, makes it fail."""

    seconds: float = 0.0
    fault: Fault | None = None


class Hypervisor(Inventory):
    """An inventory with work that takes time; an operation starts a task or does nothing."""

    def __init__(self, state: State, *, clock: WorldClock, rng: Random, log: ChangeLog) -> None:
        super().__init__(state, clock=clock, rng=rng, log=log)
        self._running = {key: task for key, task in state.tasks.items() if task.ended is None}
        ended = ((task.ended, key) for key, task in state.tasks.items() if task.ended is not None)
        self._ended = deque(sorted(ended))

    # Looking

    def running(self, vm_id: str) -> Task | None:
        """The unfinished task on a VM; there is never more than one."""
        for task in self._unfinished():
            if task.vm == vm_id:
                return task
        return None

    def creating(self, name: str | None, domain: str | None = None) -> list[Task]:
        """Unfinished create tasks of that name or of all, in one failure domain or in all."""
        return [
            task
            for task in self._unfinished()
            if task.create
            and name in (None, task.create.name)
            and (domain is None or task.create.domain == domain)
        ]

    def _unfinished(self) -> Iterable[Task]:
        return self._running.values()

    # Starting work

    def create(self, spec: VmSpec, account: str, fate: Fate) -> Task:
        """Start making a VM. Its name is taken from now on, within its failure domain."""
        domain = self.domain(spec.domain)
        self.check_name(spec.name, domain.id)
        if spec.image is not None and spec.image not in domain.images:
            raise WorldFault(Code.IMAGE_NOT_FOUND, f"no image {spec.image} in {domain.id}")
        self.check_devices(domain, spec.disks, spec.nics)
        self.pick_host(domain, spec.memory_mib, coming=self._coming(domain.id))
        return self.start("create", account, self.state.latencies.create, fate, create=spec)

    def power_on(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start turning a VM on, or waking it."""
        vm = self._idle(vm_id)
        if vm.power == ON:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm_id} is on")
        return self.start("power-on", account, self.state.latencies.power, fate, vm=vm_id)

    def power_off(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start pulling a VM's plug."""
        if self._idle(vm_id).power == OFF:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm_id} is off")
        return self.start("power-off", account, self.state.latencies.power, fate, vm=vm_id)

    def suspend(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start suspending a running VM."""
        if self._idle(vm_id).power != ON:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm_id} is not on")
        return self.start("suspend", account, self.state.latencies.power, fate, vm=vm_id)

    def shutdown(
        self, vm_id: str, account: str, fate: Fate, *, timeout: float, force: bool
    ) -> Task:
        """Ask the guest to stop. A hung guest does not: then, after `timeout`, force or fail.

        One that still boots does when it is up.
        """
        return self._ask("shutdown", vm_id, account, fate, timeout=timeout, force=force)

    def reboot(self, vm_id: str, account: str, fate: Fate, *, timeout: float, force: bool) -> Task:
        """Ask the guest to restart. A hung one does not: then, after `timeout`, reset or fail."""
        return self._ask("restart", vm_id, account, fate, timeout=timeout, force=force)

    def reset(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start resetting a running VM, whatever its guest does."""
        if self._idle(vm_id).power != ON:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm_id} is not on")
        power = self.state.latencies.power
        return self.start("restart", account, power, fate, vm=vm_id, force=True)

    def _ask(
        self,
        operation: str,
        vm_id: str,
        account: str,
        fate: Fate,
        *,
        timeout: float,
        force: bool,
    ) -> Task:
        vm = self._idle(vm_id)
        if vm.power != ON:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm_id} is not on")
        # A guest that still boots obeys when it is up.
        boots = max(0.0, vm.guest_due - self.time()) if vm.guest_due is not None else 0.0
        obeyed = boots + self.state.latencies.shutdown
        answers = (vm.guest_up or vm.guest_due is not None) and obeyed <= timeout
        answers = answers and not (vm.guest_hung or vm.guest_deaf)
        seconds = obeyed if answers else timeout
        return self.start(operation, account, seconds, fate, vm=vm_id, force=force or answers)

    def destroy(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start destroying a VM that is off, with every disk that is attached then."""
        if self._idle(vm_id).power != OFF:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm_id} is not off")
        return self.start("delete", account, self.state.latencies.delete, fate, vm=vm_id)

    def reconfigure(self, vm_id: str, hardware: Hardware, account: str, fate: Fate) -> Task:
        """Start changing a VM's hardware; a running VM only grows."""
        vm = self._idle(vm_id)
        if vm.power != OFF and (hardware.cpus < vm.cpus or hardware.memory_mib < vm.memory_mib):
            raise WorldFault(Code.HOT_PLUG, "CPUs and memory shrink only while the VM is off")
        self.check_devices(self.domain(vm.domain), hardware.disks, hardware.nics)
        self.check_networks(self.domain(vm.domain), hardware.networks.values())
        sizes = {disk.name: disk.size_gib for disk in vm.disks if disk.name}
        if any(
            disk.size_gib and disk.size_gib < sizes.get(disk.name, 0) for disk in hardware.disks
        ):
            raise WorldFault(Code.INVALID_ARGUMENT, "a disk cannot shrink")
        self.check_snapshots(vm, hardware)
        latency = self.state.latencies.reconfigure
        return self.start("reconfigure", account, latency, fate, vm=vm_id, hardware=hardware)

    def detach(self, vm_id: str, detaching: Detaching, account: str, fate: Fate) -> Task:
        """Start taking disks off a VM; their data stays."""
        vm, disks = self._idle(vm_id), detaching.disks
        if missing := sorted(set(disks) - {disk.id for disk in vm.disks}):
            raise WorldFault(Code.DISK_NOT_FOUND, f"not attached: {', '.join(missing)}")
        if vm.snapshots:
            raise WorldFault(Code.SNAPSHOT, f"VM {vm_id} has snapshots")
        latency, keep = self.state.latencies.reconfigure, detaching.keep
        return self.start("detach", account, latency, fate, vm=vm_id, disks=disks, keep=keep)

    def remove_mark(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start taking the mark off a VM."""
        self._idle(vm_id)
        latency = self.state.latencies.reconfigure
        return self.start("remove-mark", account, latency, fate, vm=vm_id)

    def redact(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start clearing the first-boot data of a VM."""
        self._idle(vm_id)
        latency = self.state.latencies.reconfigure
        return self.start("redact-seed", account, latency, fate, vm=vm_id)

    def take_over(self, vm_id: str, wanted: TakeOver, account: str, fate: Fate) -> Task:
        """Start marking a VM; refused when it has another mark than expected."""
        self.check_mark(self._idle(vm_id), wanted)
        latency = self.state.latencies.reconfigure
        return self.start("take-over", account, latency, fate, vm=vm_id, take_over=wanted)

    def start(
        self,
        operation: str,
        account: str,
        seconds: float,
        fate: Fate = Fate(),
        **details: object,
    ) -> Task:
        """Queue a task that ends after about that many seconds."""
        stretch = 1 + self.state.latencies.jitter * self._rng.random()
        task = Task.model_validate(
            {
                "id": self.new_id("task"),
                "operation": operation,
                "account": account,
                "due": self.time() + seconds * stretch + fate.seconds,
                "fails_with": fate.fault,
                **details,
            }
        )
        self.state.tasks[task.id] = task
        self._running[task.id] = task
        if task.vm:
            self.note(self.state.vms[task.vm])
        return task

    def _idle(self, vm_id: str) -> Vm:
        vm = self.vm(vm_id)
        if task := self.running(vm_id):
            raise WorldFault(Code.BUSY, f"{task.operation} is running on VM {vm_id}")
        return vm

    # Rules of the house

    def check_name(self, name: str, domain: str) -> None:
        """Refuse a name that a VM or a running create task holds in that failure domain."""
        taken = any(vm.name == name and vm.domain == domain for vm in self.state.vms.values())
        if taken or self.creating(name, domain):
            raise WorldFault(Code.DUPLICATE_NAME, f"the name {name} is taken in {domain}")

    def _coming(self, domain: str) -> int:
        """MiB that running create tasks will take."""
        specs = [task.create for task in self._unfinished() if task.create]
        return sum(spec.memory_mib for spec in specs if spec.domain == domain)

    # Time

    def next_due(self) -> float | None:
        """When the next thing happens by itself, in seconds of the clock."""
        first: float | None = None
        for task in self._unfinished():
            if first is None or task.due < first:
                first = task.due
        for vm in self.state.vms.values():
            due = vm.guest_due
            if due is not None and (first is None or due < first):
                first = due
        return first

    def settle(self, until: float) -> None:
        """Carry out what is due by that moment, in order."""
        while (due := self.next_due()) is not None and due <= until:
            for task in [task for task in self._unfinished() if task.due <= due]:
                self._finish(task)
            for vm in self.state.vms.values():
                if vm.guest_due is not None and vm.guest_due <= due:
                    self.boot(vm)
        while self._ended and self._ended[0][0] + self.state.task_memory < until:
            del self.state.tasks[self._ended.popleft()[1]]

    def _finish(self, task: Task) -> None:
        task.ended = task.due
        task.state = "done"
        del self._running[task.id]
        self._ended.append((task.due, task.id))
        try:
            self._carry_out(task)
        except WorldFault as fault:
            task.state = "failed"
            task.fault = fault.record
        self.log.task(task.id)
        if task.vm and (vm := self.state.vms.get(task.vm)):
            self.note(vm)

    def _carry_out(self, task: Task) -> None:
        if task.fails_with:
            raise WorldFault(task.fails_with.code, task.fails_with.message)
        if task.create:
            self.make(task.create, task.due)
            return
        vm = self.state.vms.get(task.vm or "")
        if vm is None:
            raise WorldFault(Code.NOT_FOUND, f"there is no VM {task.vm}")
        if task.operation in _ASKED and not task.force:
            raise WorldFault(Code.GUEST_TIMEOUT, "the guest did not shut down in time")
        if task.operation == "restart" and vm.power != ON:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm.id} is not on")
        if task.operation in _POWER:
            self.set_power(vm, _POWER[task.operation], task.due)
        elif task.operation == "delete":
            self.remove(vm)
        elif task.hardware:
            self.change(vm, task.hardware)
        else:
            self._remark(vm, task)
        self.take_off(vm, task.disks, task.keep)

    def _remark(self, vm: Vm, task: Task) -> None:
        """Do what the task says about what is written on the VM, if it says anything."""
        if task.take_over:
            self.mark(vm, task.take_over)
        elif task.operation == "remove-mark":
            vm.mark = None
        elif task.operation == "redact-seed":
            self.clear_seed(vm)
