"""What is on backends and is not ours: VMs that nobody may touch, disks that must live on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from banlieue.sdk.identity import Mark
from banlieue.sdk.simulated.records import Vm
from test.simulation.backend import SimWorld

DISK_GRACE = 65.0
"""Seconds for which a VM may still be destroyed that was looked at before a disk was attached."""

_TOUCHING = frozenset(
    {
        "power_on",
        "power_off",
        "shutdown",
        "suspend",
        "reconfigure",
        "detach",
        "destroy",
        "remove_mark",
    }
)


@dataclass(slots=True)
class Strangers:
    """Sees every call that names a VM, and every move of a world.

    `vms` holds how each looks, by world and ID; None where nothing tells it from one of ours.
    `disks` holds the content of each and when it was noted, by world and ID.
    """

    now: Callable[[], float]
    blame: Callable[[str], None]
    vms: dict[tuple[str, str], tuple[Any, ...] | None] = field(default_factory=dict)
    disks: dict[str, dict[str, tuple[str, float]]] = field(default_factory=dict)

    # What actions of the schedule tell.

    def note(self, world: SimWorld, vm_id: str) -> None:
        """This VM is not ours and stays as it is now; gone ones are forgotten."""
        vm = world.state.vms.get(vm_id)
        if vm is None:
            self.vms.pop((world.name, vm_id), None)
        else:
            self.vms[world.name, vm_id] = _looks(vm)

    def note_disk(self, world: SimWorld, disk_id: str, content: str) -> None:
        """This disk is not ours and must live on."""
        self.disks.setdefault(world.name, {})[disk_id] = (content, self.now())

    def note_removed(self, world: SimWorld, vm_id: str) -> None:
        """Somebody else removes this VM, with its disks."""
        vm = world.state.vms.get(vm_id)
        for disk in vm.disks if vm else ():
            self.disks.get(world.name, {}).pop(disk.id, None)
        self.vms.pop((world.name, vm_id), None)

    # The backends.

    def called(self, world: SimWorld, method: str, vm_id: str) -> bool:
        """A driver calls; answers whether it rightly takes somebody else's VM for its own."""
        if method not in _TOUCHING or (world.name, vm_id) not in self.vms:
            return False
        if _stands_alone(world, vm_id):
            self.vms[world.name, vm_id] = None
            return True
        self.blame(f"{method} of foreign VM {world.name}/{vm_id}")
        return False

    def moved(self, world: SimWorld) -> None:
        """Something moved on a backend: is everything there, and as it was?"""
        for (name, vm_id), looks in self.vms.items():
            if name != world.name or looks is None:
                continue
            vm = world.state.vms.get(vm_id)
            if vm is None or _looks(vm) != looks:
                self.blame(f"foreign VM {name}/{vm_id} was changed")
        if disks := self.disks.get(world.name):
            self._check_disks(world, disks)

    def _check_disks(self, world: SimWorld, disks: dict[str, tuple[str, float]]) -> None:
        there = {disk.id: disk.content for disk in world.state.detached.values()}
        for vm in world.state.vms.values():
            there.update((disk.id, disk.content) for disk in vm.disks)
        for disk_id, (content, since) in list(disks.items()):
            if there.get(disk_id) == content:
                continue
            if self.now() > since + DISK_GRACE:
                self.blame(f"foreign disk {world.name}/{disk_id} is gone or changed")
            del disks[disk_id]


def _stands_alone(world: SimWorld, vm_id: str) -> bool:
    """Whether this copy has UUID and mark of an original that is hidden or gone.

    Nothing on such a backend tells the two apart then.
    """
    vm = world.state.vms.get(vm_id)
    mark = Mark.decode(vm.mark) if vm else None
    if vm is None or mark is None or mark.uuid != vm.uuid:
        return False
    others = (it for it in world.state.vms.values() if it is not vm and it.uuid == vm.uuid)
    return all(it.hidden for it in others)


def _looks(vm: Vm) -> tuple[Any, ...]:
    """Everything of a VM that nobody but its owner may change."""
    return (
        vm.name,
        vm.uuid,
        vm.mark,
        vm.power,
        vm.cpus,
        vm.memory_mib,
        vm.domain,
        tuple((disk.id, disk.size_gib, disk.content) for disk in vm.disks),
        tuple((nic.name, nic.mac, nic.connected) for nic in vm.nics),
    )
