"""The one call that makes a VM: a clone with its name, identity, mark, devices and first-boot data.

Pure over the plan, its target and the template. The pyVmomi objects it builds go into one call.
"""

from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere import cards, devices, guestinfo
from banlieue.providers.vsphere.inventory import Datastore
from banlieue.providers.vsphere.models import RESERVED_EXTRA_CONFIG, CloneMode
from banlieue.providers.vsphere.placement import Plan, Target
from banlieue.providers.vsphere.records import DISKS_KEY, MARK_KEY, NICS_KEY
from banlieue.providers.vsphere.templates import Template
from banlieue.sdk.driver import DiskPlan, DiskState
from banlieue.sdk.errors import InvalidSpec, NeedsOperator

_KIB_PER_GIB = 1024 * 1024
_SCSI_SELF = 7
_SCSI_UNITS = 16
_EFI = "efi"
_SECURE = "efi-secure"


@dataclass(frozen=True, slots=True)
class Clone:
    """The arguments of the clone call, but for the objects that belong to a session."""

    template: str
    folder: str
    pool: str
    datastore: str
    host: str | None
    snapshot: str | None
    config: Any
    power_on: bool
    disks: tuple[DiskState, ...]
    disk_datastores: dict[int, str]
    card_networks: dict[int, str]


def build(plan: Plan, target: Target, template: Template) -> Clone:
    """What to send for a plan.

    Raises:
        InvalidSpec: the plan cannot be honoured with this template.
        NeedsOperator: a snapshot it names is not there.
    """
    snapshot = _snapshot(plan, template)
    disks = _Disks(plan, target, template, linked=snapshot is not None)
    nics = _Cards(plan, target, template)
    slots = disks.slots()
    config = vim.vm.ConfigSpec(
        name=plan.ref.name,
        uuid=plan.ref.uuid,
        instanceUuid=plan.ref.uuid,
        annotation=f"{plan.ref.owner.kind} {plan.ref.owner.namespace}/{plan.ref.owner.name}, "
        "managed by banlieue",
        numCPUs=plan.cpus,
        numCoresPerSocket=plan.spec.num_cores_per_socket,
        memoryMB=plan.memory_mib,
        firmware=_EFI if plan.firmware.startswith(_EFI) else plan.firmware,
        bootOptions=vim.vm.BootOptions(efiSecureBootEnabled=plan.firmware == _SECURE)
        if plan.firmware.startswith(_EFI)
        else None,
        extraConfig=_options(plan, slots),
        deviceChange=[*disks.changes, *nics.changes],
    )
    return Clone(
        template=template.moid,
        folder=target.folder,
        pool=target.pool,
        datastore=target.datastores[0].id,
        host=target.host.id if target.host else None,
        snapshot=snapshot,
        config=config,
        power_on=plan.power == PowerState.POWERED_ON,
        disks=disks.states(),
        disk_datastores=disks.datastores,
        card_networks=nics.networks,
    )


def _options(plan: Plan, slots: devices.Slots) -> list[Any]:
    """Extra configuration: the machine's own keys first, so that ours win."""
    for key in plan.spec.extra_config:
        if key.lower().startswith(RESERVED_EXTRA_CONFIG):
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION, f"extraConfig key {key!r} is ours; remove it"
            )
    values = {
        **plan.spec.extra_config,
        "disk.EnableUUID": "TRUE",
        **guestinfo.extra_config(plan),
        MARK_KEY: plan.mark.encode(),
        DISKS_KEY: devices.encode_slots(slots),
        NICS_KEY: cards.encode(cards.planned(plan.ref.uuid or "", plan.nics)),
    }
    return [vim.option.OptionValue(key=key, value=value) for key, value in values.items()]


def _snapshot(plan: Plan, template: Template) -> str | None:
    """The snapshot a linked clone hangs on; None for a full clone.

    Linked unless told otherwise, where there is a snapshot and the boot disk keeps its size.
    """
    mode, wanted = plan.spec.clone_mode, plan.spec.snapshot
    keeps_size = _grown_kib(plan, template) is None
    if mode is CloneMode.FULL:
        return None
    if wanted is not None:
        if wanted not in template.snapshots:
            raise NeedsOperator(
                Reason.IMAGE_NOT_AVAILABLE,
                f"template {template.name} has no snapshot {wanted!r}; make it, or name another",
            )
        found: str | None = template.snapshots[wanted]
    else:
        found = template.snapshot
    if mode is CloneMode.LINKED and found is None:
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"template {template.name} has no snapshot to link to; make one, or use cloneMode Full",
        )
    if mode is CloneMode.LINKED and not keeps_size:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            "the boot disk of a linked clone cannot be larger than its template's; "
            "keep its size, or use cloneMode Full",
        )
    return found if keeps_size else None


def _grown_kib(plan: Plan, template: Template) -> int | None:
    """The size to grow the boot disk to in KiB; None when it keeps its size."""
    root = template.root
    wanted = plan.disks[0].size_gib if plan.disks else None
    if root is None or wanted is None or wanted == root.size_gib:
        return None
    if wanted < root.size_gib:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"disk {plan.disks[0].name} is {wanted} GiB, and the image's is {root.size_gib} GiB; "
            "a disk only grows: ask for that or more",
        )
    return wanted * _KIB_PER_GIB


class _Disks:
    """Edits of the template's disks and additions."""

    def __init__(self, plan: Plan, target: Target, template: Template, *, linked: bool) -> None:
        self.changes: list[Any] = []
        self.datastores: dict[int, str] = {}
        self._template = template
        self._names: dict[str, str] = {}
        self._key = -100
        root = template.root
        if root is None:
            raise NeedsOperator(
                Reason.IMAGE_NOT_AVAILABLE,
                f"template {template.name} has no disk; use another template",
            )
        self._names[root.slot] = plan.disks[0].name if plan.disks else "root"
        for number, disk in enumerate(template.disks[1:], start=1):
            self._names[disk.slot] = f"image-{number}"
        self._sizes = {disk.slot: disk.size_gib for disk in template.disks}
        size = _grown_kib(plan, template)
        if size is not None and not linked:
            self._grow(root.device, size)
            self._sizes[root.slot] = size // _KIB_PER_GIB
        for disk_plan, datastore in zip(plan.disks[1:], target.datastores[1:], strict=True):
            self._add(disk_plan, datastore)

    def slots(self) -> devices.Slots:
        """Which disk of the plan stands where."""
        return self._names

    def states(self) -> tuple[DiskState, ...]:
        """The disks as the VM will have them."""
        return tuple(
            DiskState(devices.slot_id(slot), name, self._sizes[slot])
            for slot, name in self._names.items()
        )

    def _grow(self, device: Any, size_kib: int) -> None:  # noqa: ANN401 - a VirtualDisk
        self.changes.append(
            vim.vm.device.VirtualDeviceSpec(
                operation="edit",
                device=vim.vm.device.VirtualDisk(
                    key=device.key,
                    backing=device.backing,
                    controllerKey=device.controllerKey,
                    unitNumber=device.unitNumber,
                    capacityInKB=size_kib,
                    capacityInBytes=size_kib * 1024,
                ),
            )
        )

    def _add(self, plan: DiskPlan, datastore: Datastore) -> None:
        if plan.existing is not None:
            raise InvalidSpec(
                Reason.UNSUPPORTED_BY_PROVIDER,
                f"disk {plan.name}: existing disks cannot be attached here; leave `existing` out",
            )
        if plan.size_gib is None:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION, f"disk {plan.name}: sizeGiB must be set"
            )
        controller, unit = self._free_slot(plan)
        self._key -= 1
        slot = f"{self._template.controllers[controller]}:{unit}"
        self._names[slot], self._sizes[slot] = plan.name, plan.size_gib
        self.datastores[self._key] = datastore.id
        self.changes.append(
            vim.vm.device.VirtualDeviceSpec(
                operation="add",
                fileOperation="create",
                device=vim.vm.device.VirtualDisk(
                    key=self._key,
                    controllerKey=controller,
                    unitNumber=unit,
                    capacityInKB=plan.size_gib * _KIB_PER_GIB,
                    backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
                        fileName=f"[{datastore.name}]",
                        diskMode="persistent",
                        thinProvisioned=True,
                    ),
                ),
            )
        )

    def _free_slot(self, plan: DiskPlan) -> tuple[int, int]:
        """A free unit of the boot disk's controller, or of another SCSI controller."""
        root = self._template.disks[0].device
        buses = self._template.controllers
        candidates = [root.controllerKey, *(key for key in buses if key != root.controllerKey)]
        for key in candidates:
            if not buses.get(key, "").startswith("scsi"):
                continue
            for unit in range(_SCSI_UNITS):
                if unit != _SCSI_SELF and f"{buses[key]}:{unit}" not in self._names:
                    return key, unit
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"disk {plan.name}: the image's SCSI controllers have no free unit; use fewer disks",
        )


class _Cards:
    """The template's network cards go, the plan's come."""

    def __init__(self, plan: Plan, target: Target, template: Template) -> None:
        self.changes: list[Any] = [
            vim.vm.device.VirtualDeviceSpec(operation="remove", device=card)
            for card in template.cards
        ]
        self.networks: dict[int, str] = {}
        uuid = plan.ref.uuid or ""
        for number, (nic, network) in enumerate(zip(plan.nics, target.networks, strict=True)):
            key = -200 - number
            self.networks[key] = network.id
            self.changes.append(cards.new(uuid, key, nic, network))


def _network(network: str | None, stub: Any) -> Any:  # noqa: ANN401 - a Stub and a Network
    return vim.Network(network, stub) if network else None


def clone_spec(clone: Clone, stub: Any) -> Any:  # noqa: ANN401 - a Stub and a CloneSpec
    """The `CloneSpec` of one session: objects are referred to through its stub."""
    for change in clone.config.deviceChange:
        key = change.device.key
        if key in clone.disk_datastores:
            change.device.backing.datastore = vim.Datastore(clone.disk_datastores[key], stub)
        backing = change.device.backing
        if isinstance(backing, vim.vm.device.VirtualEthernetCard.NetworkBackingInfo):
            backing.network = _network(clone.card_networks.get(key), stub)
    linked = clone.snapshot is not None
    return vim.vm.CloneSpec(
        location=vim.vm.RelocateSpec(
            pool=vim.ResourcePool(clone.pool, stub),
            host=vim.HostSystem(clone.host, stub) if clone.host else None,
            datastore=vim.Datastore(clone.datastore, stub),
            diskMoveType="createNewChildDiskBacking"
            if linked
            else "moveAllDiskBackingsAndDisallowSharing",
        ),
        snapshot=vim.vm.Snapshot(clone.snapshot, stub) if clone.snapshot else None,
        config=clone.config,
        template=False,
        powerOn=clone.power_on,
    )
