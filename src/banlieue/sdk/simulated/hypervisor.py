"""The hypervisor itself: VMs, disks, tasks and guests, moved on by the time that has passed.

Nothing here knows sessions, faults on the wire or threads. Work that takes time becomes a task;
`settle` carries out, in order, whatever has become due since.
"""

import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Protocol
from uuid import UUID

from banlieue.sdk.simulated.changes import ChangeLog
from banlieue.sdk.simulated.faults import Code, WorldFault
from banlieue.sdk.simulated.records import (
    OFF,
    ON,
    SUSPENDED,
    Disk,
    DiskSpec,
    Domain,
    Fault,
    Hardware,
    Host,
    Nic,
    NicSpec,
    State,
    Task,
    Vm,
    VmSpec,
)

_POWER = {"power-on": ON, "power-off": OFF, "shutdown": OFF, "suspend": SUSPENDED}
_FIRST_ADDRESS = ipaddress.IPv4Address("10.128.0.0")


class WorldClock(Protocol):
    """The time a world lives in."""

    def now(self) -> datetime:
        """Current time in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What an injected fault does to a task: makes it slower, makes it fail."""

    seconds: float = 0.0
    fault: Fault | None = None


class Hypervisor:
    """Operations on a state. Every operation either starts a task or raises and does nothing."""

    def __init__(self, state: State, *, clock: WorldClock, rng: Random, log: ChangeLog) -> None:
        self.state = state
        self.log = log
        self._clock = clock
        self._rng = rng
        self._moment: float | None = None

    # Looking

    def visible(self) -> Iterable[Vm]:
        """The VMs an account can see, in the order they were made."""
        return (vm for vm in self.state.vms.values() if not vm.hidden)

    def vm(self, vm_id: str) -> Vm:
        """A VM an account can see; raises what a real one would for others."""
        vm = self.state.vms.get(vm_id)
        if vm is None:
            raise WorldFault(Code.NOT_FOUND, f"there is no VM {vm_id}")
        if vm.hidden:
            raise WorldFault(Code.NO_PERMISSION, f"no right to read VM {vm_id}")
        return vm

    def domain(self, domain_id: str) -> Domain:
        """A failure domain by its id."""
        for domain in self.state.domains:
            if domain.id == domain_id:
                return domain
        raise WorldFault(Code.INVALID_ARGUMENT, f"there is no failure domain {domain_id}")

    def free_memory(self, domain: Domain) -> dict[str, int]:
        """MiB left on each usable host of a failure domain."""
        free = {host.name: host.memory_mib for host in domain.hosts if host.usable}
        for vm in self.state.vms.values():
            if vm.power == ON and vm.host in free:
                free[vm.host] -= vm.memory_mib
        return free

    def running(self, vm_id: str) -> Task | None:
        """The unfinished task on a VM; there is never more than one."""
        for task in self._unfinished():
            if task.vm == vm_id:
                return task
        return None

    def creating(self, name: str, domain: str | None = None) -> list[Task]:
        """Unfinished create tasks of that name, in one failure domain or in all."""
        return [
            task
            for task in self._unfinished()
            if task.create
            and task.create.name == name
            and (domain is None or task.create.domain == domain)
        ]

    def _unfinished(self) -> Iterable[Task]:
        return (task for task in self.state.tasks.values() if task.state == "running")

    # Starting work

    def create(self, spec: VmSpec, account: str, fate: Fate) -> Task:
        """Start making a VM. Its name is taken from now on, within its failure domain."""
        domain = self.domain(spec.domain)
        self.check_name(spec.name, domain.id)
        if spec.image is not None and spec.image not in domain.images:
            raise WorldFault(Code.IMAGE_NOT_FOUND, f"no image {spec.image} in {domain.id}")
        self._check_devices(domain, spec.disks, spec.nics)
        self._pick_host(domain, spec.memory_mib, coming=self._coming(domain.id))
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
        """Ask the guest to stop. A hung guest does not: then, after `timeout`, force or fail."""
        vm = self._idle(vm_id)
        if vm.power != ON:
            raise WorldFault(Code.INVALID_POWER_STATE, f"VM {vm_id} is not on")
        answers = vm.guest_up and not vm.guest_hung
        seconds = self.state.latencies.shutdown if answers else timeout
        return self.start("shutdown", account, seconds, fate, vm=vm_id, force=force or answers)

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
        self._check_devices(self.domain(vm.domain), hardware.disks, ())
        sizes = {disk.name: disk.size_gib for disk in vm.disks if disk.name}
        if any(
            disk.size_gib and disk.size_gib < sizes.get(disk.name, 0) for disk in hardware.disks
        ):
            raise WorldFault(Code.INVALID_ARGUMENT, "a disk cannot shrink")
        latency = self.state.latencies.reconfigure
        return self.start("reconfigure", account, latency, fate, vm=vm_id, hardware=hardware)

    def detach(self, vm_id: str, disks: list[str], account: str, fate: Fate) -> Task:
        """Start taking disks off a VM; their data stays."""
        attached = {disk.id for disk in self._idle(vm_id).disks}
        if missing := sorted(set(disks) - attached):
            raise WorldFault(Code.DISK_NOT_FOUND, f"not attached: {', '.join(missing)}")
        latency = self.state.latencies.reconfigure
        return self.start("detach", account, latency, fate, vm=vm_id, disks=disks)

    def remove_mark(self, vm_id: str, account: str, fate: Fate) -> Task:
        """Start taking the mark off a VM."""
        self._idle(vm_id)
        latency = self.state.latencies.reconfigure
        return self.start("remove-mark", account, latency, fate, vm=vm_id)

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

    def _check_devices(
        self, domain: Domain, disks: Iterable[DiskSpec], nics: Iterable[NicSpec]
    ) -> None:
        for disk in disks:
            if disk.pool not in domain.pools:
                raise WorldFault(Code.POOL_NOT_FOUND, f"no pool {disk.pool} in {domain.id}")
            if disk.existing and disk.existing not in self.state.detached:
                raise WorldFault(Code.DISK_NOT_FOUND, f"no detached disk {disk.existing}")
        for nic in nics:
            if nic.network not in domain.networks:
                raise WorldFault(Code.NETWORK_NOT_FOUND, f"no network {nic.network} here")

    def _coming(self, domain: str) -> int:
        """MiB that running create tasks will take."""
        specs = [task.create for task in self._unfinished() if task.create]
        return sum(spec.memory_mib for spec in specs if spec.domain == domain)

    def _pick_host(self, domain: Domain, memory_mib: int, coming: int = 0) -> str:
        free = self.free_memory(domain)
        fitting = {name: left for name, left in free.items() if left >= memory_mib}
        if not fitting or sum(free.values()) - coming < memory_mib:
            raise WorldFault(Code.NO_MEMORY, f"no host of {domain.id} has {memory_mib} MiB left")
        return min(fitting, key=lambda name: (-fitting[name], name))

    # Time

    def time(self) -> float:
        """Seconds of the world's clock, or the moment that is being caught up on."""
        return self._clock.monotonic() if self._moment is None else self._moment

    @contextmanager
    def at(self, moment: float) -> Iterator[None]:
        """What is done meanwhile counts as done at that moment, which may be past."""
        self._moment = moment
        try:
            yield
        finally:
            self._moment = None

    def next_due(self) -> float | None:
        """When the next thing happens by itself, in seconds of the clock."""
        dues = [task.due for task in self._unfinished()]
        dues += [vm.guest_due for vm in self.state.vms.values() if vm.guest_due is not None]
        return min(dues, default=None)

    def settle(self, until: float) -> None:
        """Carry out what is due by that moment, in order."""
        while (due := self.next_due()) is not None and due <= until:
            for task in [task for task in self._unfinished() if task.due <= due]:
                self._finish(task)
            for vm in self.state.vms.values():
                if vm.guest_due is not None and vm.guest_due <= due:
                    self._boot(vm)
        tasks, memory = self.state.tasks, self.state.task_memory
        for task in [t for t in tasks.values() if t.ended is not None and t.ended + memory < until]:
            del tasks[task.id]

    def _finish(self, task: Task) -> None:
        task.ended = task.due
        task.state = "done"
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
        if task.operation == "shutdown" and not task.force:
            raise WorldFault(Code.GUEST_TIMEOUT, "the guest did not shut down in time")
        if task.operation in _POWER:
            self.set_power(vm, _POWER[task.operation], task.due)
        elif task.operation == "delete":
            self.remove(vm)
        elif task.hardware:
            self._change(vm, task.hardware)
        elif task.operation == "remove-mark":
            vm.mark = None
        self._take_off(vm, task.disks)

    # Effects

    def make(self, spec: VmSpec, at: float) -> Vm:
        """Put a VM into the inventory, whole, with name, UUID and mark."""
        domain = self.domain(spec.domain)
        self._check_devices(domain, spec.disks, spec.nics)
        image = self.state.images.get(spec.image or "")
        vm = Vm(
            id=self.new_id("vm"),
            name=spec.name,
            uuid=spec.uuid,
            domain=domain.id,
            host=self._pick_host(domain, spec.memory_mib),
            power=OFF,
            cpus=spec.cpus,
            memory_mib=spec.memory_mib,
            mark=spec.mark,
            firmware=spec.firmware,
            hostname=spec.hostname,
            os_name=image.os_name if image else "",
            seed_digest=spec.seed_digest,
            tags=spec.tags,
        )
        for number, disk in enumerate(spec.disks):
            content = f"image:{spec.image}" if number == 0 and spec.image else None
            default = image.disk_gib if image and number == 0 else 1
            vm.disks.append(self._disk(disk, default, content))
        vm.nics = [self._nic(nic) for nic in spec.nics]
        self.state.vms[vm.id] = vm
        self.set_power(vm, spec.power, at)
        return vm

    def _disk(self, spec: DiskSpec, default_gib: int, content: str | None) -> Disk:
        if spec.existing:
            kept = self.state.detached.pop(spec.existing, None)
            if kept is None:
                raise WorldFault(Code.DISK_NOT_FOUND, f"no detached disk {spec.existing}")
            return kept.model_copy(update={"name": spec.name})
        return self.new_disk(spec.pool, spec.size_gib or default_gib, content, spec.name)

    def new_disk(self, pool: str, size_gib: int, content: str | None, name: str | None) -> Disk:
        """A fresh disk; without given content it holds data found nowhere else."""
        data = content or f"data:{self._rng.getrandbits(64):016x}"
        return Disk(id=self.new_id("disk"), pool=pool, size_gib=size_gib, content=data, name=name)

    def _nic(self, spec: NicSpec) -> Nic:
        mac = spec.mac or "02:" + ":".join(f"{self._rng.getrandbits(8):02x}" for _ in range(5))
        lease = (str(_FIRST_ADDRESS + self._next()),) if spec.dhcp else ()
        return Nic(
            name=spec.name,
            network=spec.network,
            mac=mac,
            connected=spec.connected,
            addresses=spec.static + lease,
        )

    def set_power(self, vm: Vm, power: str, at: float) -> None:
        """Change a VM's power at once; a guest that starts will report after its boot time."""
        woken = vm.power == SUSPENDED and power == ON
        vm.power = power
        if power == ON and not woken:
            ago = timedelta(seconds=max(0.0, self._clock.monotonic() - at))
            vm.last_boot = (self._clock.now() - ago).strftime("%Y-%m-%dT%H:%M:%SZ")
        vm.guest_up = False
        boot = 0.0 if woken else self.state.latencies.boot
        vm.guest_due = at + boot if power == ON and not vm.guest_hung else None
        self.note(vm)

    def _boot(self, vm: Vm) -> None:
        vm.guest_due = None
        vm.guest_up = True
        self.note(vm)

    def remove(self, vm: Vm) -> None:
        """Take a VM out of the inventory, and with it the disks that are attached to it."""
        del self.state.vms[vm.id]
        self.note(vm)

    def _change(self, vm: Vm, hardware: Hardware) -> None:
        self._check_devices(self.domain(vm.domain), hardware.disks, ())
        vm.cpus, vm.memory_mib = hardware.cpus, hardware.memory_mib
        named = {disk.name: disk for disk in vm.disks if disk.name}
        for spec in hardware.disks:
            if disk := named.get(spec.name):
                disk.size_gib = max(disk.size_gib, spec.size_gib or 0)
            else:
                vm.disks.append(self._disk(spec, 1, None))
        for nic in vm.nics:
            nic.connected = hardware.connected.get(nic.name, nic.connected)

    def _take_off(self, vm: Vm, disks: Iterable[str]) -> None:
        wanted = set(disks)
        for disk in [disk for disk in vm.disks if disk.id in wanted]:
            vm.disks.remove(disk)
            self.state.detached[disk.id] = disk

    def note(self, vm: Vm, *other_words: str) -> None:
        """Tell listeners that a VM changed."""
        self.log.vm(vm.uuid, vm.name, *other_words)

    def new_id(self, kind: str) -> str:
        """An id that was never used in this world."""
        return f"{kind}-{self._next()}"

    def new_uuid(self) -> str:
        """A random UUID."""
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def host(self, name: str) -> Host:
        """A host by its name."""
        for domain in self.state.domains:
            for host in domain.hosts:
                if host.name == name:
                    return host
        raise WorldFault(Code.INVALID_ARGUMENT, f"there is no host {name}")

    def _next(self) -> int:
        self.state.serial += 1
        return self.state.serial
