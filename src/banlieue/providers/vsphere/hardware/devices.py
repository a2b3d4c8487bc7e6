"""What hangs on a VM: its disks, and which of them are ours. Pure over pyVmomi's device objects.

Which disk of a plan stands in which slot is written on the VM when it is made (`Slots`). A disk is
taken for a plan's only if it stands in such a slot *and* its file lies in the VM's own directory
*and* it is neither a first class disk nor shared by several VMs: a volume or a backup's disk that
was put into a freed slot is somebody else's. Where that cannot be told, the disk counts as foreign,
which keeps its data.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyVmomi import vim

from banlieue.sdk.driver import DiskState

Slots = Mapping[str, str]
"""From a slot such as `scsi0:1` (bus and unit number) to the disk's name in the plan."""

_KIB_PER_GIB = 1024 * 1024

_SHARED_BY_NONE = frozenset({None, "sharingNone"})
"""How the backing of a disk says that no other VM writes to it, too."""


def encode_slots(slots: Slots) -> str:
    """The slots as one line of JSON."""
    return json.dumps(dict(slots), separators=(",", ":"))


def decode_slots(text: str | None) -> dict[str, str]:
    """The slots written on a VM; none when there is nothing or it is damaged."""
    return decode_texts(text)


def decode_texts(text: str | None) -> dict[str, str]:
    """Texts by name, as a note on a VM says them; none when there is nothing or it is damaged."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def virtual_disks(devices: Iterable[Any]) -> list[Any]:
    """The virtual disks among a VM's devices, in the order of their slots."""
    disks = [device for device in devices if isinstance(device, vim.vm.device.VirtualDisk)]
    return sorted(disks, key=lambda disk: (disk.controllerKey or 0, disk.unitNumber or 0))


def network_cards(devices: Iterable[Any]) -> list[Any]:
    """The network cards among a VM's devices, in the order of their keys."""
    kind = vim.vm.device.VirtualEthernetCard
    return sorted((d for d in devices if isinstance(d, kind)), key=lambda card: card.key)


def controllers(devices: Iterable[Any]) -> dict[int, str]:
    """The name of each disk controller, such as `scsi0`, by its device key."""
    families = (
        ("scsi", vim.vm.device.VirtualSCSIController),
        ("sata", vim.vm.device.VirtualSATAController),
        ("nvme", vim.vm.device.VirtualNVMEController),
        ("ide", vim.vm.device.VirtualIDEController),
    )
    return {
        device.key: f"{family}{device.busNumber}"
        for device in devices
        for family, kind in families
        if isinstance(device, kind)
    }


def slot_of(disk: Any, buses: Mapping[int, str]) -> str:  # noqa: ANN401 - a VirtualDisk
    """Where a disk is attached, in terms that a copy of the VM shares."""
    return f"{buses.get(disk.controllerKey, 'bus?')}:{disk.unitNumber}"


def slot_id(slot: str) -> str:
    """The id of a disk whose file is not known yet, by where it is attached."""
    return f"slot {slot}"


def disk_id(disk: Any) -> str:  # noqa: ANN401 - a VirtualDisk
    """The file of a disk, such as `[store] vm/vm.vmdk`: what its data is found by."""
    return str(getattr(disk.backing, "fileName", None) or f"device {disk.key}")


def guest_path(disk: Any, buses: Mapping[int, str]) -> str | None:  # noqa: ANN401 - a VirtualDisk
    """Where a Linux guest finds the disk for good, as `disk.EnableUUID` has it; SCSI disks only."""
    uuid = getattr(disk.backing, "uuid", None)
    if not uuid or not buses.get(disk.controllerKey, "").startswith("scsi"):
        return None
    return f"/dev/disk/by-id/wwn-0x{uuid.replace('-', '').lower()}"


def disk_states(
    devices: Sequence[Any], slots: Slots, vm_path: str, vm_name: str
) -> tuple[DiskState, ...]:
    """All disks of a VM, those of its plan first and by the order of the plan.

    Args:
        devices: the VM's devices.
        slots: what is written on the VM about its disks.
        vm_path: where its configuration file lies, such as `[store] vm/vm.vmx`.
        vm_name: its name, which its directories on other datastores begin with.
    """
    order = list(slots.values())
    buses = controllers(devices)
    states = [
        DiskState(
            id=disk_id(disk),
            name=slots.get(slot_of(disk, buses)) if _is_own(disk, vm_path, vm_name) else None,
            size_gib=(disk.capacityInKB or 0) // _KIB_PER_GIB,
            guest_path=guest_path(disk, buses),
        )
        for disk in virtual_disks(devices)
    ]
    last = len(order)
    return tuple(sorted(states, key=lambda state: order.index(state.name) if state.name else last))


def own_slots(devices: Sequence[Any], vm_path: str, vm_name: str) -> list[str]:
    """The slots of those disks that are the VM's own, in their order; as `disk_states`."""
    buses = controllers(devices)
    return [slot_of(disk, buses) for disk in own_disks(devices, vm_path, vm_name)]


def own_disks(devices: Sequence[Any], vm_path: str, vm_name: str) -> list[Any]:
    """The disks that are the VM's own, in the order of their slots; as `disk_states`."""
    return [disk for disk in virtual_disks(devices) if _is_own(disk, vm_path, vm_name)]


def lost(slots: Slots, disks: Iterable[DiskState]) -> tuple[str, ...]:
    """Names written on a VM whose disks it has no longer."""
    there = {disk.name for disk in disks}
    return tuple(name for name in slots.values() if name not in there)


def is_linked(devices: Sequence[Any], vm_path: str, vm_name: str) -> bool:
    """Whether the boot disk hangs on a file of another VM, however many snapshots lie between."""
    boot = next(iter(virtual_disks(devices)), None)
    backing = boot.backing if boot is not None else None
    while backing is not None:
        if not _is_in_own_directory(str(backing.fileName or ""), vm_path, vm_name):
            return True
        backing = getattr(backing, "parent", None)
    return False


def _is_own(disk: Any, vm_path: str, vm_name: str) -> bool:  # noqa: ANN401 - a VirtualDisk
    if getattr(disk, "vDiskId", None) is not None:
        return False
    if getattr(disk.backing, "sharing", None) not in _SHARED_BY_NONE:
        return False
    return _is_in_own_directory(disk_id(disk), vm_path, vm_name)


def _is_in_own_directory(file: str, vm_path: str, vm_name: str) -> bool:
    directory = _directory(file)
    if directory in {vm_name, _directory(vm_path)}:
        return bool(directory)
    return _store(file) != _store(vm_path) and _is_second(directory, vm_name)


def _is_second(directory: str, vm_name: str) -> bool:
    """Whether vSphere made it for the VM on a datastore with another directory of its name.

    On the datastore where the VM's configuration file lies it makes no second one.
    """
    name, _, number = directory.rpartition("_")
    return name == vm_name and number.isascii() and number.isdigit()


def _store(path: str) -> str:
    """`[store]` of `[store] vm/vm.vmdk`."""
    return path.partition("] ")[0]


def _directory(path: str) -> str:
    """`vm` of `[store] vm/vm.vmdk`."""
    return path.rpartition("] ")[2].rpartition("/")[0]
