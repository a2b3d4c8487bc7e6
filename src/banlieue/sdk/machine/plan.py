"""From a machine object to a plan a driver can carry out: everything abstract is resolved here."""

from typing import Any

from banlieue.api.devices import AddressAssignment, NetworkInterface
from banlieue.api.infrastructure.machine import Machine, MoveRole
from banlieue.api.reasons import Reason
from banlieue.api.resources import VM_IMAGES
from banlieue.api.types import (
    AddressSource,
    Firmware,
    IPFamily,
    PowerOffMode,
    PowerState,
    ReclaimPolicy,
)
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind, VMImage
from banlieue.sdk import pools, shape
from banlieue.sdk.driver import (
    AddressPlan,
    DiskPlan,
    FailureDomain,
    Image,
    MachinePlan,
    MachineState,
    NicPlan,
    Target,
)
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.image import lookup
from banlieue.sdk.image.sources import import_of, source_for
from banlieue.sdk.kube import Key
from banlieue.sdk.machine import disks, tags
from banlieue.sdk.machine.adopted import left_alone
from banlieue.sdk.machine.ownership import wanted_mark
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.machine.stopped import seconds_to_stop
from banlieue.sdk.provider import capabilities


def make_plan(scope: Scope, where: FailureDomain, image: Image | None = None) -> MachinePlan[Any]:
    """The plan of a machine in a failure domain, without first-boot data.

    Without an image it is the plan of a machine that exists. Firmware nobody asked for is what the
    image was installed with: with any other it would not boot.

    Raises:
        NeedsOperator: a class is not offered there.
        InvalidSpec: the machine does not say how large it is, or an address is not allowed.
    """
    machine, ref, desired = scope.machine, scope.ref(), scope.desired
    spec, snapshot = machine.spec, machine.spec.class_
    if ref.uuid is None:
        raise LookupError("a plan needs a minted identity")
    if desired.cpus is None or desired.memory_mib is None:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION, "cpus and memoryMiB must be set, here or by a class"
        )
    firmware = spec.firmware or (snapshot.firmware if snapshot else None)
    installed = (image.firmware if image else None) or Firmware.BIOS.value
    features = [*(snapshot.features if snapshot else ()), *spec.features]
    nics = _nic_plans(scope, where)
    return MachinePlan(
        ref=ref,
        mark=wanted_mark(ref),
        spec=spec,
        provider_id=scope.backend.provider_id(ref.uuid),
        failure_domain=where,
        image=image,
        hostname=spec.hostname or ref.owner.name,
        cpus=desired.cpus,
        memory_mib=desired.memory_mib,
        firmware=firmware.value if firmware else installed,
        features=tuple(dict.fromkeys(feature.value for feature in features)),
        disks=disk_plans(scope, where),
        nics=nics,
        power=desired.power,
        power_off_mode=spec.wanted_power_off_mode,
        power_off_timeout=seconds_to_stop(scope),
        removals=disks.removals(scope),
        left_alone=left_alone(spec, [nic.name for nic in nics]),
        tags=tags.allowed(scope),
    )


def power_plan(scope: Scope, seen: MachineState) -> MachinePlan[Any]:
    """A plan that asks for the power state and for nothing else, with no class looked up.

    What it says of hardware is what was seen.
    """
    spec, ref = scope.machine.spec, scope.ref()
    if ref.uuid is None:
        raise LookupError("a plan needs a minted identity")
    left, asleep = spec.role is MoveRole.PREVIOUS, seen.power is PowerState.SUSPENDED
    return MachinePlan(
        ref=ref,
        mark=wanted_mark(ref),
        spec=spec,
        provider_id=scope.backend.provider_id(ref.uuid),
        failure_domain=FailureDomain(seen.failure_domain or "", ()),
        image=None,
        hostname=spec.hostname or ref.owner.name,
        cpus=seen.cpus or 1,
        memory_mib=seen.memory_mib or 1,
        firmware=Firmware.BIOS.value,
        disks=tuple(DiskPlan(disk.name, disk.size_gib, {}) for disk in seen.disks if disk.name),
        nics=tuple(
            NicPlan(nic.name, {}, nic.mac_address, nic.connected)
            for nic in seen.nics or ()
            if nic.name
        ),
        power=scope.desired.power,
        # What a move left behind is never woken to be shut down: another has its addresses by now.
        power_off_mode=PowerOffMode.HARD if left and asleep else spec.wanted_power_off_mode,
        power_off_timeout=seconds_to_stop(scope),
        power_only=True,
    )


def disk_plans(scope: Scope, where: FailureDomain | None = None) -> tuple[DiskPlan, ...]:
    """The disks of a machine, the boot disk first; its own entries beat those of its class.

    Without a failure domain the storage is left unresolved, which is enough to know what to keep.
    """
    return tuple(
        DiskPlan(
            name=disk.name,
            size_gib=disk.size_gib,
            storage=_storage(scope, disk.storage_class, where),
            retain=disk.wanted_reclaim_policy is ReclaimPolicy.RETAIN,
            existing=disk.existing,
        )
        for disk in disks.wanted(scope)
    )


def _storage(scope: Scope, name: str | None, where: FailureDomain | None) -> Target:
    if name is None or where is None:
        return {}
    return capabilities.storage_target(scope.open.provider.spec.capabilities, name, where)


def _nic_plans(scope: Scope, where: FailureDomain) -> tuple[NicPlan, ...]:
    snapshot = scope.machine.spec.class_
    inherited = snapshot.network if snapshot else None
    nics = shape.interfaces(NetworkInterface, inherited, scope.machine.spec.network_interfaces)
    instance = scope.machine.spec.instance
    reserved = instance.reserved.mac_addresses if instance and instance.reserved else ()
    addresses = {entry.nic: entry.address for entry in reserved}
    return tuple(_nic_plan(scope, where, nic, addresses) for nic in nics)


def _nic_plan(
    scope: Scope, where: FailureDomain, nic: NetworkInterface, reserved: dict[str, str]
) -> NicPlan:
    if nic.network_class is None:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"networkInterfaces[{nic.name}].networkClass must be set, here or by the class",
        )
    net = capabilities.network(scope.open.provider.spec.capabilities, nic.network_class, where)
    return NicPlan(
        name=nic.name,
        network=net.target,
        mac_address=nic.mac_address or reserved.get(nic.name),
        connected=nic.connected is not False,
        addresses=tuple(_address_plan(scope.machine, net, nic.name, item) for item in nic.ipam),
        nameservers=net.nameservers,
        search_domains=net.search_domains,
        mtu=net.mtu,
    )


def _address_plan(
    machine: Machine, net: capabilities.Network, nic: str, wanted: AddressAssignment
) -> AddressPlan:
    family, source = wanted.family.value, wanted.source.value
    if wanted.source is AddressSource.STATIC and wanted.address is not None:
        static = capabilities.static_address(net, wanted.address)
        return AddressPlan(family, source, static.address, static.prefix, static.gateway)
    if wanted.source is AddressSource.POOL and wanted.address is None:
        raise NeedsOperator(Reason.ADDRESS_PENDING, _unclaimed(machine, net, nic, wanted.family))
    return AddressPlan(family, source, wanted.address, wanted.prefix, wanted.gateway)


def _unclaimed(machine: Machine, net: capabilities.Network, nic: str, family: IPFamily) -> str:
    """Why an address from a pool is not there yet, and where to look."""
    which = f"networkInterfaces[{nic}]: the {family.value} address"
    pool = pools.pool_of(net.subnets, family)
    if pool is None:
        return (
            f"{which} cannot come from a pool: network class {net.name!r} of the Provider has none "
            "of that family; declare subnets[].pool, or choose another source"
        )
    claim = pools.claim_of(machine, nic, family, pool)
    return f"{which} is being claimed from {pool.kind} {pool.name}; see IPAddressClaim {claim}"


async def _own_image(scope: Scope, name: str, where: FailureDomain) -> Image:
    source = ImageSource(provider_class=scope.backend.name, kind=SourceKind.TEMPLATE, ref=name)
    found = await scope.open.call(lambda driver: driver.find_image(source, where))
    if found is None:
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"template {name!r} of the machine is not there in this failure domain; correct it, "
            "or put it there",
        )
    return found


async def find_image(scope: Scope, where: FailureDomain) -> Image:
    """The machine's image as the backend has it in that failure domain.

    Raises:
        NeedsOperator: no such VMImage, no source for this backend, or it is not there.
        InvalidSpec: the machine names no image.
    """
    own = scope.machine.spec.own_image
    if own is not None:
        return await _own_image(scope, own, where)
    reference = scope.machine.spec.image_ref
    if reference is None:
        raise InvalidSpec(Reason.INVALID_CONFIGURATION, "imageRef must be set")
    raw = scope.ctx.cache.get(VM_IMAGES, Key("", reference.name))
    if raw is None:
        raise NeedsOperator(
            Reason.IMAGE_NOT_FOUND, f"VMImage {reference.name} does not exist; create it"
        )
    provider = scope.open.provider
    image = VMImage.from_api(raw)
    source = source_for(image, scope.backend.name, provider)
    if source is None:
        raise NeedsOperator(
            Reason.IMAGE_SOURCE_MISSING,
            f"VMImage {reference.name} has no source for this Provider; add one",
        )
    copy = import_of(image, source, provider, scope.ref().owner.installation_id)
    found = await scope.open.call(lambda driver: lookup.find(driver, source, copy, where))
    if found is None:
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"image {source.ref!r} of VMImage {reference.name} is not there in this failure domain",
        )
    return found
