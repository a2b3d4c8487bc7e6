"""What to change so that a VM has the disks of its plan. Pure over pyVmomi's device objects."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.hardware import devices
from banlieue.providers.vsphere.places.inventory import Datastore
from banlieue.providers.vsphere.places.stores import Bus, Provisioning, Wish
from banlieue.sdk.disks import check_name
from banlieue.sdk.driver import DiskPlan, DiskRemoval
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator

KIB_PER_GIB = 1024 * 1024

_MOST_CONTROLLERS = 4
_SCSI_SELF = 7
"""The unit a SCSI controller takes itself."""
_UNITS = {
    Bus.SCSI: tuple(unit for unit in range(16) if unit != _SCSI_SELF),
    Bus.NVME: tuple(range(15)),
}
_FIRST_DISK = -300
_FIRST_CONTROLLER = {Bus.SCSI: -400, Bus.NVME: -410}

Find = Callable[[DiskPlan], tuple[Datastore, Wish]]
"""The datastore a disk is made on, and how."""


@dataclass(frozen=True, slots=True)
class Attached:
    """What a VM has: its devices, which slots are written on it, and where its files lie."""

    devices: Sequence[Any] = field(repr=False)
    slots: Mapping[str, str]
    path: str
    name: str
    running: bool = False
    snapshots: bool = False

    @property
    def own(self) -> dict[str, Any]:
        """The disks of plans by their names."""
        buses = devices.controllers(self.devices)
        disks = devices.own_disks(self.devices, self.path, self.name)
        named = ((self.slots.get(devices.slot_of(disk, buses)), disk) for disk in disks)
        return {name: disk for name, disk in named if name is not None}

    @property
    def directory(self) -> str:
        """The directory of its configuration file, with the datastore: `[store] vm`."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes of devices, the slots as they are then, and on which datastores new disks are."""

    changes: tuple[Any, ...] = ()
    slots: Mapping[str, str] = field(default_factory=dict)
    blocked: DriverError | None = None


class Slots:
    """Free slots of a VM's disk controllers; further controllers are added as they are needed.

    Where nothing is said, a disk hangs on the kind of controller the boot disk does, if that is
    one that disks are added to.
    """

    def __init__(self, attached: Iterable[Any], taken: Iterable[str]) -> None:
        self.changes: list[Any] = []
        found = tuple(attached)
        disks = devices.virtual_disks(found)
        self._taken = set(taken)
        self._buses = devices.controllers(found)
        self._taken |= {devices.slot_of(device, self._buses) for device in found}
        self._first = disks[0].controllerKey if disks else None
        first = self._buses.get(self._first or 0, "")
        self._usual = Bus.NVME if first.startswith(Bus.NVME) else Bus.SCSI
        self._kinds = {device.key: type(device) for device in found if device.key in self._buses}

    def take(self, disk: str, bus: Bus | None = None) -> tuple[int, int, str]:
        """Key of the controller, unit and name of a free slot; raises `InvalidSpec`."""
        bus = bus or self._usual
        for key in self._candidates(bus):
            for unit in _UNITS[bus]:
                slot = f"{self._buses[key]}:{unit}"
                if slot not in self._taken:
                    self._taken.add(slot)
                    return key, unit, slot
        self._add_controller(disk, bus)
        return self.take(disk, bus)

    def _candidates(self, bus: Bus) -> list[int]:
        """The boot disk's controller first, then the others in the order of their buses."""
        there = [key for key, name in self._buses.items() if name.startswith(bus)]
        return sorted(there, key=lambda key: (key != self._first, self._buses[key]))

    def _add_controller(self, disk: str, bus: Bus) -> None:
        used = set(self._buses.values())
        free = [number for number in range(_MOST_CONTROLLERS) if f"{bus}{number}" not in used]
        if not free:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION,
                f"disk {disk}: all {bus.upper()} controllers the VM can have are full; use fewer "
                "disks, or another kind of controller",
            )
        key = _FIRST_CONTROLLER[bus] - free[0]
        self._buses[key] = f"{bus}{free[0]}"
        device = self._controller(key, free[0], bus)
        self.changes.append(vim.vm.device.VirtualDeviceSpec(operation="add", device=device))

    def _controller(self, key: int, number: int, bus: Bus) -> Any:  # noqa: ANN401 - a VirtualController
        if bus is Bus.NVME:
            return vim.vm.device.VirtualNVMEController(key=key, busNumber=number)
        kind = self._kinds.get(self._first or 0, vim.vm.device.ParaVirtualSCSIController)
        if not issubclass(kind, vim.vm.device.VirtualSCSIController):
            kind = vim.vm.device.ParaVirtualSCSIController
        return kind(key=key, busNumber=number, sharedBus="noSharing")


def new_disk(
    key: int,
    place: tuple[int, int],
    size_gib: int,
    store: Datastore,
    wish: Wish = Wish(),  # noqa: B008 - frozen
) -> Any:  # noqa: ANN401 - a VirtualDeviceSpec
    """A disk to make on a datastore, beside the VM's files there; without the reference to it."""
    controller, unit = place
    return vim.vm.device.VirtualDeviceSpec(
        operation="add",
        fileOperation="create",
        device=vim.vm.device.VirtualDisk(
            key=key,
            controllerKey=controller,
            unitNumber=unit,
            capacityInKB=size_gib * KIB_PER_GIB,
            backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
                fileName=f"[{store.name}]", diskMode="persistent", **provisioned(wish.provisioning)
            ),
        ),
        profile=profile(wish.policy),
    )


def provisioned(how: Provisioning | None) -> dict[str, bool]:
    """How a disk's file takes its space, in the words of its backing; thin by default."""
    thin = how in {None, Provisioning.THIN}
    return {"thinProvisioned": thin, "eagerlyScrub": how is Provisioning.EAGER}


def profile(policy: str | None) -> list[Any] | None:
    """A storage policy by its id, as specs of VMs and disks name it; None for none."""
    return [vim.vm.DefinedProfileSpec(profileId=policy)] if policy is not None else None


def grown(device: Any, size_gib: int) -> Any:  # noqa: ANN401 - a VirtualDisk, a VirtualDeviceSpec
    """The edit that grows a disk."""
    size = size_gib * KIB_PER_GIB
    return vim.vm.device.VirtualDeviceSpec(
        operation="edit",
        device=vim.vm.device.VirtualDisk(
            key=device.key,
            backing=device.backing,
            controllerKey=device.controllerKey,
            unitNumber=device.unitNumber,
            capacityInKB=size,
            capacityInBytes=size * 1024,
        ),
    )


def missing(plan: Iterable[DiskPlan], vm: Attached) -> list[DiskPlan]:
    """Disks of a plan that the VM never had; none where nobody can tell."""
    if not vm.slots:
        return []
    known = set(vm.slots.values())
    return [disk for disk in plan if disk.name not in known]


def edit(
    plan: Sequence[DiskPlan], removals: Iterable[DiskRemoval], vm: Attached, find: Find
) -> Edit:
    """What to change at once: disks to make, to grow and to destroy.

    What a snapshot, a linked clone or the running VM forbids is left out, and told as `blocked`.
    """
    own, slots = vm.own, dict(vm.slots)
    changes: list[Any] = []
    blocked: DriverError | None = None
    for disk in plan:
        device = own.get(disk.name)
        if device is None or not _is_smaller(device, disk.size_gib):
            continue
        hindrance = _hindrance(disk.name, device, vm)
        blocked = blocked or hindrance
        if hindrance is None and disk.size_gib is not None:
            changes.append(grown(device, disk.size_gib))
    made = [disk for disk in missing(plan, vm) if disk.existing is None]
    changes += _additions(made, vm, slots, find)
    root = plan[0].name if plan else ""
    gone = [it.name for it in removals if it.keep_as is None and it.name in own and it.name != root]
    if gone and vm.snapshots:
        blocked = blocked or snapshot_holds()
    elif gone:
        changes += [_destruction(own[name]) for name in gone]
        slots = without(slots, gone)
    return Edit(tuple(changes), slots, blocked)


def _additions(
    made: Iterable[DiskPlan], vm: Attached, slots: dict[str, str], find: Find
) -> list[Any]:
    free = Slots(vm.devices, slots)
    added = []
    for number, disk in enumerate(made):
        check_name(disk.name)
        if disk.size_gib is None:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION, f"disk {disk.name}: sizeGiB must be set"
            )
        store, wish = find(disk)
        controller, unit, slot = free.take(disk.name, wish.bus)
        slots[slot] = disk.name
        spec = new_disk(_FIRST_DISK - number, (controller, unit), disk.size_gib, store, wish)
        spec.device.backing.datastore = vim.Datastore(store.id, None)
        added.append(spec)
    return [*free.changes, *added]


def attachment(disk: DiskPlan, file: str, vm: Attached) -> Edit:
    """What attaches a disk that exists, by its file in the VM's own directory."""
    free, slots = Slots(vm.devices, vm.slots), dict(vm.slots)
    controller, unit, slot = free.take(disk.name)
    slots[slot] = disk.name
    spec = vim.vm.device.VirtualDeviceSpec(
        operation="add",
        device=vim.vm.device.VirtualDisk(
            key=_FIRST_DISK,
            controllerKey=controller,
            unitNumber=unit,
            capacityInKB=0,
            backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
                fileName=file, diskMode="persistent"
            ),
        ),
    )
    return Edit((*free.changes, spec), slots)


def detachment(names: Iterable[str], vm: Attached) -> Edit:
    """What takes disks off and leaves their files; raises `NeedsOperator` while that cannot be."""
    own = vm.own
    if vm.snapshots:
        raise snapshot_holds()
    gone = [name for name in names if name in own]
    for name in gone:
        if getattr(own[name].backing, "parent", None) is not None:
            raise NeedsOperator(
                Reason.BLOCKED_BY_LINKED_CLONE,
                f"disk {name} hangs on the disk of its template and cannot be kept apart from it; "
                "copy its data, and set its reclaimPolicy to Delete",
            )
    changes = [
        vim.vm.device.VirtualDeviceSpec(operation="remove", device=own[name]) for name in gone
    ]
    return Edit(tuple(changes), without(vm.slots, gone))


def without(slots: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The slots but for those of some disks."""
    gone = set(names)
    return {slot: name for slot, name in slots.items() if name not in gone}


def snapshot_holds() -> NeedsOperator:
    """Why nothing is done to disks under a snapshot."""
    return NeedsOperator(
        Reason.BLOCKED_BY_SNAPSHOT,
        "the VM has snapshots, which hold on to its disks; delete the snapshots",
    )


def _is_smaller(device: Any, size_gib: int | None) -> bool:  # noqa: ANN401 - a VirtualDisk
    return size_gib is not None and (device.capacityInKB or 0) // KIB_PER_GIB < size_gib


def _hindrance(name: str, device: Any, vm: Attached) -> DriverError | None:  # noqa: ANN401 - a VirtualDisk
    """Why a disk cannot grow at the moment, None when it can."""
    if vm.snapshots:
        return snapshot_holds()
    if getattr(device.backing, "parent", None) is not None:
        return NeedsOperator(
            Reason.BLOCKED_BY_LINKED_CLONE,
            f"disk {name} hangs on the disk of its template and cannot grow; it can in a VM that "
            "is no linked clone",
        )
    bus = devices.controllers(vm.devices).get(device.controllerKey, "")
    if vm.running and bus.startswith("ide"):
        return NeedsOperator(
            Reason.RESTART_REQUIRED, f"disk {name} is an IDE disk, which grows while the VM is off"
        )
    return None


def _destruction(device: Any) -> Any:  # noqa: ANN401 - a VirtualDisk, a VirtualDeviceSpec
    return vim.vm.device.VirtualDeviceSpec(
        operation="remove", fileOperation="destroy", device=device
    )
