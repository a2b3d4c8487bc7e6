"""The one call that makes a VM: a clone with its name, identity, mark, devices and first-boot data.

Pure over the plan, its target and the template. The pyVmomi objects it builds go into one call.
"""

from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.hardware import cards, devices, disks
from banlieue.providers.vsphere.models import RESERVED_EXTRA_CONFIG, CloneMode
from banlieue.providers.vsphere.places.inventory import Datastore
from banlieue.providers.vsphere.places.placement import Plan, Target
from banlieue.providers.vsphere.places.templates import Template
from banlieue.providers.vsphere.vms import guestinfo
from banlieue.providers.vsphere.watching.records import DISKS_KEY, MARK_KEY, NICS_KEY
from banlieue.sdk.driver import DiskPlan, DiskState
from banlieue.sdk.errors import InvalidSpec, NeedsOperator

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
    made = _Disks(plan, target, template, linked=snapshot is not None)
    nics = _Cards(plan, target, template)
    slots = made.slots()
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
        deviceChange=[*made.changes, *nics.changes],
    )
    return Clone(
        template=template.moid,
        folder=target.folder,
        pool=target.pool,
        datastore=target.datastores[0].id,
        host=target.host.id if target.host else None,
        snapshot=snapshot,
        config=config,
        power_on=plan.power == PowerState.POWERED_ON and not _waits_for_disks(plan),
        disks=made.states(),
        disk_datastores=made.datastores,
        card_networks=nics.networks,
    )


def _waits_for_disks(plan: Plan) -> bool:
    """Whether disks that exist are attached to the VM before it is started."""
    return any(disk.existing is not None for disk in plan.disks)


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
    keeps_size = _grown_gib(plan, template) is None
    if mode is CloneMode.FULL or (mode is None and plan.disks and plan.disks[0].retain):
        return None  # what hangs on a template cannot be kept apart from it
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
    if mode is CloneMode.LINKED and plan.disks and plan.disks[0].retain:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            "the boot disk of a linked clone cannot be retained, as it hangs on its template's; "
            "use reclaimPolicy Delete, or cloneMode Full",
        )
    if mode is CloneMode.LINKED and not keeps_size:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            "the boot disk of a linked clone cannot be larger than its template's; "
            "keep its size, or use cloneMode Full",
        )
    return found if keeps_size else None


def _grown_gib(plan: Plan, template: Template) -> int | None:
    """The size to grow the boot disk to in GiB; None when it keeps its size."""
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
    return wanted


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
        size = _grown_gib(plan, template)
        if size is not None and not linked:
            self.changes.append(disks.grown(root.device, size))
            self._sizes[root.slot] = size
        self._free = disks.Slots(template.devices, self._names)
        for disk_plan, datastore in zip(plan.disks[1:], target.datastores[1:], strict=True):
            if disk_plan.existing is None:
                self._add(disk_plan, datastore)
        self.changes = [*self._free.changes, *self.changes]

    def slots(self) -> devices.Slots:
        """Which disk of the plan stands where."""
        return self._names

    def states(self) -> tuple[DiskState, ...]:
        """The disks as the VM will have them."""
        return tuple(
            DiskState(devices.slot_id(slot), name, self._sizes[slot])
            for slot, name in self._names.items()
        )

    def _add(self, plan: DiskPlan, datastore: Datastore) -> None:
        if plan.size_gib is None:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION, f"disk {plan.name}: sizeGiB must be set"
            )
        controller, unit, slot = self._free.take(plan.name)
        self._key -= 1
        self._names[slot], self._sizes[slot] = plan.name, plan.size_gib
        self.datastores[self._key] = datastore.id
        made = disks.new_disk(self._key, (controller, unit), plan.size_gib, datastore)
        self.changes.append(made)


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
