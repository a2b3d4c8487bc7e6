"""Disks that a VirtualMachine listed once and does not list any more. Pure.

What becomes of a disk is written beside it, and gone from the spec with it; so the machine object
remembers. A disk that a class gave is never removed by another class: nobody said a word about it.
"""

from banlieue.api.devices import Disk, RemovedDisk
from banlieue.api.infrastructure.machine import ClassSnapshot, Machine
from banlieue.api.types import ReclaimPolicy
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.sdk import shape

_MOST = 32


def removed_disks(
    vm: VirtualMachine, snapshot: ClassSnapshot | None, current: Machine | None
) -> list[RemovedDisk]:
    """What is to go from the machine, with what becomes of it.

    Args:
        vm: what is asked for now.
        snapshot: the class in force.
        current: the machine object as it stands; None when it is still to be made.
    """
    if current is None:
        return []
    hardware = snapshot.hardware if snapshot else None
    listed = {disk.name for disk in shape.disks(hardware, vm.spec.disks)}
    known = {gone.name: gone for gone in current.spec.removed_disks if not _is_done(gone, current)}
    certain = _saw_every_edit(vm)
    known |= {disk.name: _removed(disk, certain=certain) for disk in current.spec.disks}
    return [gone for name, gone in sorted(known.items()) if name not in listed][:_MOST]


def _removed(disk: Disk, *, certain: bool) -> RemovedDisk:
    policy = disk.wanted_reclaim_policy if certain else ReclaimPolicy.RETAIN
    return RemovedDisk(name=disk.name, reclaim_policy=policy, existing=disk.existing)


def _saw_every_edit(vm: VirtualMachine) -> bool:
    """Whether no edit was missed in between, which may have asked to retain the disk."""
    followed, now = vm.status.followed_generation, vm.metadata.generation
    return followed is not None and now is not None and now - followed <= 1


def _is_done(gone: RemovedDisk, machine: Machine) -> bool:
    """Whether the machine's provider has met the removal, as far as its status tells."""
    status = machine.status
    there = {disk.name for disk in status.resources.disks} if status.resources else {gone.name}
    return (
        status.observed_generation == machine.metadata.generation
        and gone.name not in there
        and status.task is None
    )
