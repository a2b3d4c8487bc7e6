"""The one call that makes a VM: a clone with its name, identity, mark, devices and first-boot data.

Pure over the plan, its target and the template. The pyVmomi objects it builds go into one call.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.differing import CLONE_MODE, HARDWARE_VERSION
from banlieue.providers.vsphere.hardware import cards, devices, disks
from banlieue.providers.vsphere.images.specs import IMAGE_KEY
from banlieue.providers.vsphere.models import RESERVED_EXTRA_CONFIG, CloneMode
from banlieue.providers.vsphere.places import linking
from banlieue.providers.vsphere.places.inventory import Datastore
from banlieue.providers.vsphere.places.placement import Plan, Target
from banlieue.providers.vsphere.places.stores import Bus, Provisioning, Wish
from banlieue.providers.vsphere.places.templates import Template
from banlieue.providers.vsphere.vms import beside, guestinfo, shape
from banlieue.providers.vsphere.watching.records import DISKS_KEY, KEPT_KEY, MARK_KEY, NICS_KEY
from banlieue.sdk.disks import check_name, image_disk
from banlieue.sdk.driver import DiskPlan, DiskState
from banlieue.sdk.errors import InvalidSpec, NeedsOperator

_RESERVED = re.compile(RESERVED_EXTRA_CONFIG)
_OF_TEMPLATE = dict.fromkeys((IMAGE_KEY, KEPT_KEY, beside.TAGS_KEY), "")
"""What is written on a template about itself, and would be taken for the clone's: where disks of
another VM go, above all. An empty value takes a key away.
"""


@dataclass(frozen=True, slots=True)
class Moved:
    """How a disk of the template comes to the clone, where that is to be said."""

    key: int
    provisioning: Provisioning | None
    policy: str | None


@dataclass(frozen=True, slots=True)
class Clone:
    """The arguments of the clone call, but for the objects that belong to a session.

    `missing` are folders to make below `folder` first. `policy` is the storage policy of the VM's
    own files, `pod` the datastore cluster that is asked where they go, and `pod_stores` what it may
    answer. `sizes` are the GiB that disks take at most, by datastore.
    """

    template: str
    folder: str
    pool: str
    datastore: str
    host: str | None
    snapshot: str | None
    config: Any = field(repr=False)  # it has the user data in it
    power_on: bool
    disks: tuple[DiskState, ...]
    disk_datastores: dict[int, str]
    card_networks: dict[int, str]
    missing: tuple[str, ...] = ()
    policy: str | None = None
    moved: tuple[Moved, ...] = ()
    pod: str | None = None
    replaces_tpm: bool = False
    pod_stores: frozenset[str] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)


def build(plan: Plan, target: Target, template: Template, offered: shape.Offered = {}) -> Clone:  # noqa: B006 - never changed
    """What to send for a plan.

    Args:
        plan: the machine.
        target: where it is made.
        template: what it is cloned from.
        offered: the PCI devices that hosts offer there.

    Raises:
        InvalidSpec: the plan cannot be honoured with this template.
        NeedsOperator: a snapshot it names is not there.
    """
    root, spec = target.wish(0), plan.spec
    mode = spec.clone_mode
    snapshot = linking.snapshot_to_link(
        mode, spec.snapshot, plan.disks, template, root.provisioning
    )
    snapshot = snapshot if target.linkable else None
    made = _Disks(plan, target, template, linked=snapshot is not None)
    nics = _Cards(plan, target, template)
    slots = made.slots()
    upgrade = shape.upgrade_to(plan, template.version)
    labels = spec.pci_device_labels
    pci = shape.pci_changes(labels, template.devices, offered)
    if pci:
        shape.check_version("pciDeviceLabels", shape.PCI_VERSION, upgrade or template.version)
    config = vim.vm.ConfigSpec(
        name=plan.ref.name,
        uuid=plan.ref.uuid,
        instanceUuid=plan.ref.uuid,
        annotation=f"{plan.ref.owner.kind} {plan.ref.owner.namespace}/{plan.ref.owner.name}, "
        "managed by banlieue",
        numCPUs=plan.cpus,
        memoryMB=plan.memory_mib,
        extraConfig=_options(plan, slots),
        # Devices that only newer hardware has follow once it was upgraded.
        deviceChange=[
            *made.changes,
            *nics.changes,
            *(() if upgrade else (*shape.tpm(plan, template.devices), *pci)),
        ],
        **shape.config(plan, template),
    )
    return Clone(
        template=template.moid,
        folder=target.folder,
        pool=target.pool,
        datastore=target.datastores[0].id,
        host=target.host.id if target.host else None,
        snapshot=snapshot,
        config=config,
        power_on=plan.power == PowerState.POWERED_ON
        and upgrade is None
        and not _waits_for_disks(plan)
        and not beside.joins_first(plan, target.cluster),
        disks=made.states(),
        disk_datastores=made.datastores,
        card_networks=nics.networks,
        missing=target.missing,
        policy=root.policy,
        moved=_moved(root, template, linked=snapshot is not None),
        pod=root.pod.id if root.pod and root.pod.recommends else None,
        replaces_tpm=any(isinstance(it, vim.vm.device.VirtualTPM) for it in template.devices),
        sizes=made.promised(full=snapshot is None),
        facts=_facts(template, linked=snapshot is not None),
    )


def _facts(template: Template, *, linked: bool) -> dict[str, str]:
    """What the VM will be when it is there, so that a look at it finds nothing new."""
    facts = {CLONE_MODE: (CloneMode.LINKED if linked else CloneMode.FULL).value}
    if template.version:
        facts[HARDWARE_VERSION] = template.version
    return facts


def _moved(root: Wish, template: Template, *, linked: bool) -> tuple[Moved, ...]:
    provisioning = None if linked else root.provisioning
    if provisioning is None and root.policy is None:
        return ()
    return tuple(Moved(disk.device.key, provisioning, root.policy) for disk in template.disks)


def _waits_for_disks(plan: Plan) -> bool:
    """Whether disks that exist are attached to the VM before it is started."""
    return any(disk.existing is not None for disk in plan.disks)


def _options(plan: Plan, slots: devices.Slots) -> list[Any]:
    """Extra configuration: the machine's own keys first, so that ours win."""
    for key in plan.spec.extra_config:
        if _RESERVED.match(key.lower()):
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
        **_OF_TEMPLATE,
        **beside.note(plan.tags),
    }
    return [vim.option.OptionValue(key=key, value=value) for key, value in values.items()]


class _Disks:
    """Edits of the template's disks and additions."""

    def __init__(self, plan: Plan, target: Target, template: Template, *, linked: bool) -> None:
        self.changes: list[Any] = []
        self.datastores: dict[int, str] = {}
        self._template = template
        self._names: dict[str, str] = {}
        self._promised: dict[str, int] = {}
        self._key = -100
        root = template.root
        if root is None:
            raise NeedsOperator(
                Reason.IMAGE_NOT_AVAILABLE,
                f"template {template.name} has no disk; use another template",
            )
        self._names[root.slot] = plan.disks[0].name if plan.disks else "root"
        for number, disk in enumerate(template.disks[1:], start=1):
            self._names[disk.slot] = image_disk(number)
        self._sizes = {disk.slot: disk.size_gib for disk in template.disks}
        size = linking.grown_gib(plan.disks, template)
        if size is not None and not linked:
            self.changes.append(disks.grown(root.device, size))
            self._sizes[root.slot] = size
        self._free = disks.Slots(template.devices, self._names)
        self._root_store = target.datastores[0].id
        for number, disk_plan in enumerate(plan.disks[1:], start=1):
            check_name(disk_plan.name)
            if disk_plan.existing is None:
                self._add(disk_plan, target.datastores[number], target.wish(number))
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

    def promised(self, *, full: bool) -> dict[str, int]:
        """GiB the VM's disks will take at most, by datastore."""
        sizes: dict[str, int] = dict(self._promised)
        if full:
            own = sum(self._sizes[disk.slot] for disk in self._template.disks)
            sizes[self._root_store] = sizes.get(self._root_store, 0) + own
        return sizes

    def _add(self, plan: DiskPlan, datastore: Datastore, wish: Wish) -> None:
        if plan.size_gib is None:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION, f"disk {plan.name}: sizeGiB must be set"
            )
        if wish.bus is Bus.NVME:
            field_name = f"disk {plan.name}: controller nvme of its storage class"
            remedy = "use a newer template, or another storage class"
            shape.check_version(field_name, shape.NVME_VERSION, self._template.version, remedy)
        controller, unit, slot = self._free.take(plan.name, wish.bus)
        self._key -= 1
        self._names[slot], self._sizes[slot] = plan.name, plan.size_gib
        self.datastores[self._key] = datastore.id
        self._promised[datastore.id] = self._promised.get(datastore.id, 0) + plan.size_gib
        made = disks.new_disk(self._key, (controller, unit), plan.size_gib, datastore, wish)
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
            self.changes.append(cards.new(uuid, key, nic, network, target.adapter(number)))


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
    how = (
        "createNewChildDiskBacking"
        if clone.snapshot is not None
        else "moveAllDiskBackingsAndDisallowSharing"
    )
    return vim.vm.CloneSpec(
        location=vim.vm.RelocateSpec(
            pool=vim.ResourcePool(clone.pool, stub),
            host=vim.HostSystem(clone.host, stub) if clone.host else None,
            datastore=vim.Datastore(clone.datastore, stub),
            diskMoveType=how,
            disk=[_locator(clone, moved, how, stub) for moved in clone.moved],
            profile=disks.profile(clone.policy),
        ),
        snapshot=vim.vm.Snapshot(clone.snapshot, stub) if clone.snapshot else None,
        config=clone.config,
        template=False,
        powerOn=clone.power_on,
        # Two VMs with one module would share its secrets. Unknown to a vCenter 7, which refuses
        # to clone what has one while it is on only.
        tpmProvisionPolicy="replace" if clone.replaces_tpm else None,
    )


def _locator(clone: Clone, moved: Moved, how: str, stub: Any) -> Any:  # noqa: ANN401 - a Stub and a DiskLocator
    backing = None
    if moved.provisioning is not None:
        backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
            fileName="", diskMode="persistent", **disks.provisioned(moved.provisioning)
        )
    return vim.vm.RelocateSpec.DiskLocator(
        diskId=moved.key,
        datastore=vim.Datastore(clone.datastore, stub),
        diskMoveType=how,
        diskBackingInfo=backing,
        profile=disks.profile(moved.policy),
    )
