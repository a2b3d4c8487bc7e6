"""What a simulated hypervisor holds, and how it changes at once: VMs, disks, guests, hosts."""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Protocol
from uuid import UUID

from banlieue.sdk.simulated.changes import ChangeLog
from banlieue.sdk.simulated.faults import Code, WorldFault
from banlieue.sdk.simulated.records import (
    DONE,
    OFF,
    ON,
    SUSPENDED,
    Disk,
    DiskSpec,
    Domain,
    Hardware,
    Host,
    Keeping,
    Nic,
    NicSpec,
    State,
    TakeOver,
    Vm,
    VmSpec,
)

_FIRST_ADDRESS = ipaddress.IPv4Address("10.128.0.0")


class WorldClock(Protocol):
    """The time a world lives in."""

    def now(self) -> datetime:
        """Current time in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class Inventory:
    """A state and the changes that take no time. Every change is told to the log."""

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

    def host(self, name: str) -> Host:
        """A host by its name."""
        for domain in self.state.domains:
            for host in domain.hosts:
                if host.name == name:
                    return host
        raise WorldFault(Code.INVALID_ARGUMENT, f"there is no host {name}")

    def pick_host(self, domain: Domain, memory_mib: int, coming: int = 0) -> str:
        """The host with most memory left; `coming` MiB are promised to others already."""
        free = self.free_memory(domain)
        fitting = {name: left for name, left in free.items() if left >= memory_mib}
        if not fitting or sum(free.values()) - coming < memory_mib:
            raise WorldFault(Code.NO_MEMORY, f"no host of {domain.id} has {memory_mib} MiB left")
        return min(fitting, key=lambda name: (-fitting[name], name))

    def check_devices(
        self, domain: Domain, disks: Iterable[DiskSpec], nics: Iterable[NicSpec]
    ) -> None:
        """Refuse devices that name a pool, a network or a detached disk that is not there."""
        for disk in disks:
            if disk.pool and disk.pool not in domain.pools:
                raise WorldFault(Code.POOL_NOT_FOUND, f"no pool {disk.pool} in {domain.id}")
            if disk.existing and disk.existing not in self.state.detached:
                raise WorldFault(Code.DISK_NOT_FOUND, f"no detached disk {disk.existing}")
        self.check_networks(domain, (nic.network for nic in nics))

    def check_networks(self, domain: Domain, networks: Iterable[str]) -> None:
        """Refuse networks that are not there."""
        for network in networks:
            if network not in domain.networks:
                raise WorldFault(Code.NETWORK_NOT_FOUND, f"no network {network} here")

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

    # Changing

    def make(self, spec: VmSpec, at: float) -> Vm:
        """Put a VM into the inventory, whole, with name, UUID and mark."""
        domain = self.domain(spec.domain)
        self.check_devices(domain, spec.disks, spec.nics)
        image = self.state.images.get(spec.image or "")
        vm = Vm(
            id=self.new_id("vm"),
            name=spec.name,
            uuid=spec.uuid,
            domain=domain.id,
            host=self.pick_host(domain, spec.memory_mib),
            power=OFF,
            cpus=spec.cpus,
            memory_mib=spec.memory_mib,
            mark=spec.mark,
            firmware=spec.firmware,
            hostname=spec.hostname,
            os_name=image.os_name if image else "",
            seed_digest=spec.seed_digest,
            seeded=spec.seeded,
            given=spec.seed_digest is not None,
            tells=image.tells if image else DONE,
            tags=spec.tags,
        )
        for number, disk in enumerate(spec.disks):
            content = f"image:{spec.image}" if number == 0 and spec.image else None
            default = image.disk_gib if image and number == 0 else 1
            vm.disks.append(self._disk(domain, disk, default, content))
        vm.had = [disk.name for disk in spec.disks]
        vm.nics = [self.new_nic(nic) for nic in spec.nics]
        self.state.vms[vm.id] = vm
        self.set_power(vm, spec.power, at)
        return vm

    def _disk(self, domain: Domain, spec: DiskSpec, default_gib: int, content: str | None) -> Disk:
        if spec.existing:
            kept = self.state.detached.pop(spec.existing, None)
            if kept is None:
                raise WorldFault(Code.DISK_NOT_FOUND, f"no detached disk {spec.existing}")
            grown = max(kept.size_gib, spec.size_gib or 0)
            return kept.model_copy(update={"name": spec.name, "size_gib": grown})
        pool = spec.pool or domain.pools[0]
        return self.new_disk(pool, spec.size_gib or default_gib, content, spec.name)

    def new_disk(self, pool: str, size_gib: int, content: str | None, name: str | None) -> Disk:
        """A fresh disk; without given content it holds data found nowhere else."""
        data = content or f"data:{self._rng.getrandbits(64):016x}"
        return Disk(id=self.new_id("disk"), pool=pool, size_gib=size_gib, content=data, name=name)

    def new_nic(self, spec: NicSpec) -> Nic:
        """A fresh interface, with a lease where it asks for one."""
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

    def boot(self, vm: Vm) -> None:
        """Let the guest of a VM report."""
        vm.guest_due = None
        vm.guest_up = True
        if vm.seeded and vm.first_boot != DONE:
            # As long as it did not go well, the guest reads its data anew.
            vm.read_digest = vm.seed_digest
            vm.first_boot = vm.tells
        self.note(vm)

    def clear_seed(self, vm: Vm) -> None:
        """Clear the first-boot data of a VM; what its guest read stays in the guest."""
        vm.seed_digest = None

    def remove(self, vm: Vm) -> None:
        """Take a VM out of the inventory, and with it the disks that are attached to it."""
        del self.state.vms[vm.id]
        self.note(vm)

    def change(self, vm: Vm, hardware: Hardware) -> None:
        """Give a VM other hardware; raises `WorldFault` and changes nothing when that cannot be."""
        self.check_devices(self.domain(vm.domain), hardware.disks, hardware.nics)
        self.check_networks(self.domain(vm.domain), hardware.networks.values())
        vm.cpus, vm.memory_mib = hardware.cpus, hardware.memory_mib
        named = {disk.name: disk for disk in vm.disks if disk.name}
        for spec in hardware.disks:
            if disk := named.get(spec.name):
                disk.size_gib = max(disk.size_gib, spec.size_gib or 0)
            elif spec.name not in vm.had:
                vm.disks.append(self._disk(self.domain(vm.domain), spec, 1, None))
                vm.had.append(spec.name)
        for disk in [disk for disk in vm.disks if disk.id in hardware.destroyed]:
            vm.disks.remove(disk)
            vm.had = [name for name in vm.had if name != disk.name]
        for nic in vm.nics:
            nic.connected = hardware.connected.get(nic.name or "", nic.connected)
            nic.network = hardware.networks.get(nic.name or "", nic.network)
        vm.nics = [nic for nic in vm.nics if nic.mac not in hardware.unplugged]
        there = {nic.name for nic in vm.nics}
        vm.nics += [self.new_nic(nic) for nic in hardware.nics if nic.name not in there]

    def check_mark(self, vm: Vm, wanted: TakeOver) -> None:
        """Refuse to mark a VM whose mark is another one than whoever asks has seen."""
        if vm.mark != wanted.expected:
            raise WorldFault(Code.CHANGED, f"the mark of VM {vm.id} changed")

    def mark(self, vm: Vm, wanted: TakeOver) -> None:
        """Write a mark on a VM, and names on those of its devices that have none."""
        self.check_mark(vm, wanted)
        vm.mark = wanted.mark
        for disk in vm.disks:
            disk.name = disk.name or wanted.disks.get(disk.id)
        given = set(wanted.disks.values())
        vm.had += [it.name for it in vm.disks if it.name in given - set(vm.had)]
        for nic in vm.nics:
            nic.name = nic.name or wanted.nics.get(nic.mac)

    def check_snapshots(self, vm: Vm, hardware: Hardware) -> None:
        """Refuse to grow or destroy disks that snapshots hold on to."""
        sizes = {disk.name: disk.size_gib for disk in vm.disks if disk.name}
        grows = any((disk.size_gib or 0) > sizes.get(disk.name, 1 << 40) for disk in hardware.disks)
        if vm.snapshots and (grows or hardware.destroyed):
            raise WorldFault(Code.SNAPSHOT, f"VM {vm.id} has snapshots")

    def take_off(self, vm: Vm, disks: Iterable[str], keep: Mapping[str, Keeping]) -> None:
        """Detach disks, by their ids; their data stays, and some say what they are kept as."""
        wanted = set(disks)
        for disk in [disk for disk in vm.disks if disk.id in wanted]:
            vm.disks.remove(disk)
            vm.had = [name for name in vm.had if name != disk.name]
            kept = keep.get(disk.id)
            if kept is not None:
                disk.kept, disk.keeper = kept.id, kept.keeper
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

    def _next(self) -> int:
        self.state.serial += 1
        return self.state.serial
