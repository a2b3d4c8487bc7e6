"""Powers nobody's account has: what admins, backups, failures and clocks do to a world.

Each public method of `Control` is a call of the control API, with the same parameters.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from banlieue.sdk.simulated.faults import Code, Rule, Rules, WorldFault
from banlieue.sdk.simulated.hypervisor import Hypervisor
from banlieue.sdk.simulated.records import (
    ON,
    Account,
    DiskSpec,
    Domain,
    Image,
    Latencies,
    NicSpec,
    State,
    Vm,
    VmSpec,
)

ADMIN = "admin@world"
"""Account of tasks that are nobody's but an admin's."""


class Control:
    """Changes a world behind the back of the accounts that use it."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        rules: Rules,
        calls: Counter[str],
        sessions: dict[str, str],
    ) -> None:
        self._hypervisor = hypervisor
        self._rules = rules
        self._calls = calls
        self._sessions = sessions

    def __call__(self, method: str, params: Mapping[str, Any]) -> object:
        """Call a public method by name; raises `WorldFault` for one that does not exist."""
        action = None if method.startswith("_") else getattr(self, method, None)
        if action is None:
            raise WorldFault(Code.INVALID_ARGUMENT, f"there is no control call {method}")
        try:
            return action(**params)
        except (TypeError, ValueError) as error:
            raise WorldFault(Code.INVALID_ARGUMENT, f"{method}: {error}") from error

    # Seeing

    def vms(self) -> list[Vm]:
        """All VMs, hidden ones too."""
        return list(self._state.vms.values())

    def detached(self) -> dict[str, Any]:
        """All disks that no VM has, by id."""
        return dict(self._state.detached)

    def tasks(self) -> list[Any]:
        """All tasks the world remembers."""
        return list(self._state.tasks.values())

    def live_addresses(self) -> dict[str, list[str]]:
        """By address, the ids of running VMs that have it on a connected interface."""
        found: dict[str, list[str]] = {}
        for vm in self._state.vms.values():
            for nic in vm.nics if vm.power == ON else ():
                for address in nic.addresses if nic.connected else ():
                    found.setdefault(address, []).append(vm.id)
        return found

    def calls(self) -> dict[str, int]:
        """How often each call was made."""
        return dict(self._calls)

    # Faults and time

    def inject(self, rule: Mapping[str, Any]) -> None:
        """Add a fault rule; `rule` has the fields of `Rule`."""
        self._rules.add(Rule.model_validate(rule))

    def heal(self) -> None:
        """Drop all fault rules."""
        self._rules.clear()

    def set_latencies(self, **seconds: float) -> None:
        """Change how long things take; the fields of `Latencies`."""
        merged = self._state.latencies.model_dump() | seconds
        self._state.latencies = Latencies.model_validate(merged)

    # VMs

    def make_foreign(
        self,
        name: str,
        domain: str,
        *,
        uuid: str | None = None,
        mark: str | None = None,
        power: str = ON,
        memory_mib: int = 1024,
    ) -> Vm:
        """Make a VM that somebody else wanted, at once, with a disk and an interface."""
        self._hypervisor.check_name(name, domain)
        place = self._hypervisor.domain(domain)
        spec = VmSpec(
            name=name,
            uuid=uuid or self._hypervisor.new_uuid(),
            domain=domain,
            mark=mark,
            memory_mib=memory_mib,
            disks=[DiskSpec(name="foreign", pool=place.pools[0], size_gib=1)],
            nics=[NicSpec(name="foreign", network=place.networks[0])],
            power=power,
        )
        vm = self._hypervisor.make(spec, self._hypervisor.time())
        vm.had = []
        for disk in vm.disks:
            disk.name = None
        for nic in vm.nics:
            nic.name = None
        return vm

    def copy(
        self,
        vm: str,
        name: str,
        *,
        domain: str | None = None,
        keep_uuid: bool = False,
        power: str = ON,
    ) -> Vm:
        """Copy a VM with everything written on it, as a clone (or a restore: `keep_uuid`) does."""
        source = self._any(vm)
        domain = domain or source.domain
        place = self._hypervisor.domain(domain)
        self._hypervisor.check_name(name, domain)
        twin = source.model_copy(
            deep=True,
            update={
                "id": self._hypervisor.new_id("vm"),
                "name": name,
                "domain": domain,
                "host": source.host if domain == source.domain else place.hosts[0].name,
                "uuid": source.uuid if keep_uuid else self._hypervisor.new_uuid(),
            },
        )
        twin.disks = [
            self._hypervisor.new_disk(disk.pool, disk.size_gib, disk.content, disk.name)
            for disk in source.disks
        ]
        self._state.vms[twin.id] = twin
        self._hypervisor.set_power(twin, power, self._hypervisor.time())
        return twin

    def remove(self, vm: str) -> None:
        """Destroy a VM out of band, with its disks."""
        self._hypervisor.remove(self._any(vm))

    def move(self, vm: str, domain: str) -> None:
        """Take a VM to another failure domain, or to another host of its own."""
        found = self._any(vm)
        if domain != found.domain:
            self._hypervisor.check_name(found.name, domain)
        hosts = (host.name for host in self._hypervisor.domain(domain).hosts)
        found.host = next((host for host in hosts if host != found.host), found.host)
        self._change(vm, domain=domain)

    def rename(self, vm: str, name: str) -> None:
        """Give a VM another name."""
        old = self._any(vm)
        self._hypervisor.check_name(name, old.domain)
        was = old.name
        self._change(vm, name=name)
        self._hypervisor.note(old, was)

    def set_uuid(self, vm: str, uuid: str) -> None:
        """Give a VM another UUID."""
        was = self._any(vm).uuid
        self._change(vm, uuid=uuid)
        self._hypervisor.note(self._any(vm), was)

    def set_mark(self, vm: str, mark: str | None) -> None:
        """Write on a VM whatever text, or nothing."""
        self._change(vm, mark=mark)

    def set_power(self, vm: str, power: str) -> None:
        """Switch a VM at once."""
        self._hypervisor.set_power(self._any(vm), power, self._hypervisor.time())

    def set_cpus(self, vm: str, cpus: int) -> None:
        """Give a VM another number of CPUs at once."""
        self._change(vm, cpus=cpus)

    def hide(self, vm: str) -> None:
        """Take the right to see a VM from every account."""
        self._change(vm, hidden=True)

    def unhide(self, vm: str) -> None:
        """Give the right to see a VM back."""
        self._change(vm, hidden=False)

    def hold(self, vm: str, *, held: bool = True) -> None:
        """Set or lift an admin's hold on a VM."""
        self._change(vm, held=held)

    def hang_guest(self, vm: str) -> None:
        """Make the guest stop answering, now and after every start."""
        self._change(vm, guest_hung=True, guest_up=False, guest_due=None)

    def deafen_guest(self, vm: str) -> None:
        """Make the guest ignore every wish to stop; else it is as ever."""
        self._change(vm, guest_deaf=True)

    def set_first_boot(self, vm: str, tells: str) -> None:
        """Have the guest tell that of its first boot, at its next boot and as if it had so far."""
        self._change(vm, tells=tells, first_boot=tells)

    def attach_disk(self, vm: str, *, content: str = "foreign", size_gib: int = 1) -> Any:  # noqa: ANN401 - JSON
        """Attach a disk that nobody's plan names, as a storage driver or a backup does."""
        found = self._any(vm)
        pool = self._hypervisor.domain(found.domain).pools[0]
        disk = self._hypervisor.new_disk(pool, size_gib, content, None)
        found.disks.append(disk)
        self._hypervisor.note(found)
        return disk

    def take_off_disk(self, vm: str, disk: str) -> None:
        """Detach a disk past all plans; its data stays."""
        found = self._any(vm)
        for known in [known for known in found.disks if known.id == disk]:
            found.disks.remove(known)
            self._state.detached[disk] = known
        self._hypervisor.note(found)

    def resize_disk(self, vm: str, disk: str, size_gib: int) -> None:
        """Give a disk another size at once."""
        for known in self._any(vm).disks:
            known.size_gib = size_gib if known.id == disk else known.size_gib
        self._hypervisor.note(self._any(vm))

    def snapshot(self, vm: str, name: str) -> None:
        """Make a snapshot, as a backup does."""
        self._any(vm).snapshots.append(name)
        self._hypervisor.note(self._any(vm))

    def drop_snapshots(self, vm: str) -> None:
        """Delete all snapshots of a VM."""
        self._change(vm, snapshots=[])

    def attach_nic(self, vm: str) -> Any:  # noqa: ANN401 - JSON
        """Attach an interface that nobody's plan names."""
        found = self._any(vm)
        network = self._hypervisor.domain(found.domain).networks[0]
        nic = self._hypervisor.new_nic(NicSpec(name="", network=network)).model_copy(
            update={"name": None}
        )
        found.nics.append(nic)
        self._hypervisor.note(found)
        return nic

    def write_disk(self, vm: str, disk: str, content: str) -> None:
        """Have the guest write something on one of the machine's disks, by the disk's name."""
        found = self._any(vm)
        (named,) = [item for item in found.disks if item.name == disk]
        named.content = content
        self._hypervisor.note(found)

    def set_nic(self, vm: str, nic: str, **fields: object) -> None:
        """Change an interface, by its name: `connected`, `network`, `mac`."""
        found = self._any(vm)
        (named,) = [item for item in found.nics if item.name == nic]
        for name, value in fields.items():
            setattr(named, name, value)
        self._hypervisor.note(found)

    def unplug(self, vm: str, mac: str) -> None:
        """Disconnect an interface, by its MAC address."""
        found = self._any(vm)
        for nic in found.nics:
            nic.connected = nic.connected and nic.mac != mac
        self._hypervisor.note(found)

    def run_task(self, vm: str, seconds: float) -> Any:  # noqa: ANN401 - JSON
        """Start somebody else's task on a VM."""
        return self._hypervisor.start("foreign", ADMIN, seconds, vm=self._any(vm).id)

    # The place

    def set_identity(self, identity: str) -> None:
        """Make another installation answer here; it knows none of the sessions."""
        self._state.identity = identity
        self.expire_sessions()

    def deny(self, privilege: str, where: str = "/") -> None:
        """Take a privilege from every account: Read, Create, Delete, Power or Configure."""
        self._state.missing_privileges.append((privilege, where))

    def allow(self) -> None:
        """Give all privileges back."""
        self._state.missing_privileges.clear()

    def set_password(self, username: str, salt: str, digest: str) -> None:
        """Set the salted digest of an account's password, and end its sessions."""
        self._state.accounts[username] = Account(salt=salt, digest=digest)
        self.expire_sessions()

    def expire_sessions(self) -> None:
        """End every session."""
        self._sessions.clear()

    def set_host(
        self, host: str, *, maintenance: bool | None = None, connected: bool | None = None
    ) -> None:
        """Put a host into maintenance or take it off the network, and back."""
        found = self._hypervisor.host(host)
        found.maintenance = found.maintenance if maintenance is None else maintenance
        found.connected = found.connected if connected is None else connected

    def set_domain(self, domain: Mapping[str, Any]) -> None:
        """Add a failure domain, or replace the one of that id."""
        new = Domain.model_validate(domain)
        self._state.domains = [old for old in self._state.domains if old.id != new.id] + [new]

    def set_image(self, image: Mapping[str, Any]) -> None:
        """Add an image to every failure domain, or replace it."""
        new = Image.model_validate(image)
        self._state.images[new.ref] = new
        for domain in self._state.domains:
            domain.images = sorted({*domain.images, new.ref})

    @property
    def _state(self) -> State:
        return self._hypervisor.state

    def _any(self, vm: str) -> Vm:
        found = self._state.vms.get(vm)
        if found is None:
            raise WorldFault(Code.NOT_FOUND, f"there is no VM {vm}")
        return found

    def _change(self, vm: str, **fields: object) -> None:
        found = self._any(vm)
        for name, value in fields.items():
            setattr(found, name, value)
        self._hypervisor.note(found)
