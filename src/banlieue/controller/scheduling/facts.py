"""From API objects to what the scheduler looks at. Pure."""

import hashlib
import json

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.devices import InterfaceRequest
from banlieue.api.meta import ConditionStatus
from banlieue.api.reasons import Reason
from banlieue.api.types import AddressSource, IPFamily
from banlieue.api.v1alpha1.provider import Provider, ProviderMode
from banlieue.api.v1alpha1.provider_status import FailureDomainStatus
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.api.v1alpha1.virtualmachine import (
    AntiAffinity,
    AntiAffinityMode,
    ReadinessGate,
    VirtualMachine,
)
from banlieue.api.v1alpha1.vmclass import VMClass, VMClassSpec
from banlieue.api.v1alpha1.vmimage import AgentPresence, ProviderImageStatus, VMImage
from banlieue.controller.scheduling.placement import (
    Apart,
    Capacity,
    Claim,
    Demand,
    Domain,
    ImageState,
    Place,
    PoolWish,
    Resident,
    Site,
    StaticAddress,
)
from banlieue.sdk import shape
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from banlieue.sdk.kube import Key
from banlieue.sdk.provider.domains import MAX_INCLUDED

LABEL_ARCHITECTURE = "kubernetes.io/arch"
"""On a failure domain: the one architecture it runs. Absent: not known, so not filtered by."""


def key_of(provider: Provider) -> Key:
    """Namespace and name of a Provider."""
    return Key(provider.metadata.namespace or "", provider.metadata.name)


def owner_digest(installation_id: str, key: Key) -> str:
    """Digest of the owner a VirtualMachine is, as Providers list it."""
    return Owner(installation_id, OWNER_VIRTUAL_MACHINE, key.namespace, key.name).digest


def class_hash(spec: VMClassSpec) -> str:
    """Digest of a class's content, which tells a snapshot from a later edit."""
    text = json.dumps(spec.to_api(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Offer:
    """Where one image can be used, by its sources and by what the Providers say."""

    def __init__(self, image: VMImage | None) -> None:
        self._name = image.metadata.name if image else ""
        self._sources = {it.provider_class for it in image.spec.sources} if image else set()
        self._leaving = bool(image and image.metadata.deletion_timestamp)
        self._rows = {
            (row.provider_namespace, row.provider_name): _image_state(row)
            for row in (image.status.per_provider if image else ())
        }

    @property
    def image(self) -> str:
        """Name of the image, empty without one."""
        return self._name

    def at(self, site: Site) -> ImageState | None:
        """The image's state at a Provider, None while that has not told any.

        A row about a source that is not there any more does not count.
        """
        known = (site.class_name, site.backend)
        if self._leaving:
            return ImageState(False, Reason.DELETING, "it is being deleted")
        if site.backend and self._name and self._sources.isdisjoint(known):
            missing = f"it has no source for {site.backend}"
            return ImageState(False, Reason.IMAGE_SOURCE_MISSING, missing)
        return self._rows.get((site.key.namespace, site.key.name))


def _image_state(row: ProviderImageStatus) -> ImageState:
    """A row that lists no failure domain speaks of all of them."""
    where = frozenset(row.ready_failure_domains) or None
    return ImageState(row.ready, row.reason or "", row.message or "", where)


def site_for_anybody(provider: Provider, provider_class: ProviderClass | None) -> Site:
    """What of a Provider is the same for every namespace and every image."""
    spec, status = provider.spec, provider.status
    ready, why = _readiness(provider, provider_class)
    unclaimed = status.unclaimed
    networks = spec.capabilities.network_classes
    return Site(
        key=key_of(provider),
        domains=tuple(_domain(domain) for domain in status.failure_domains),
        labels=dict(provider.metadata.labels),
        class_name=spec.provider_class_ref.name,
        backend=provider_class.spec.backend if provider_class else "",
        ready=ready,
        not_ready=why,
        paused=spec.paused or bool(provider_class and provider_class.spec.paused),
        cordoned=spec.cordoned,
        deleting=provider.metadata.deletion_timestamp is not None,
        read_only=spec.mode is ProviderMode.READ_ONLY,
        admission_by_backend=names.FEATURE_BACKEND_ADMISSION in status.spec_features,
        allow_static={
            network.name: tuple(cidr for subnet in network.subnets for cidr in subnet.allow_static)
            for network in networks
        },
        pools={
            network.name: frozenset(
                _family(subnet.cidr) for subnet in network.subnets if subnet.pool is not None
            )
            for network in networks
        },
        kept_disks={
            (disk.namespace, disk.id): frozenset(disk.failure_domains)
            for disk in status.retained_disks
        },
        overcommit_cpu=float(spec.overcommit.cpu or 1),
        overcommit_memory=float(spec.overcommit.memory or 1),
        claims=tuple(
            Claim(owner.hash, owner.epoch, bool(owner.incoming), owner.vm or "")
            for owner in (unclaimed.owners if unclaimed else ())
        ),
        complete=unclaimed is not None and unclaimed.complete,
        told=unclaimed is not None,
        recovering=unclaimed is not None and bool(unclaimed.recovery),
    )


def _family(cidr: str) -> str:
    return (IPFamily.IPV6 if ":" in cidr else IPFamily.IPV4).value


def _readiness(provider: Provider, provider_class: ProviderClass | None) -> tuple[bool, str]:
    if provider_class is None:
        return False, f"ProviderClass {provider.spec.provider_class_ref.name} does not exist"
    for condition in provider.status.conditions:
        if condition.type == ConditionType.READY:
            ready = condition.status is ConditionStatus.TRUE
            return ready, "" if ready else condition.reason
    return False, "nobody serves it yet"


def _domain(published: FailureDomainStatus) -> Domain:
    attributes = published.attributes
    architecture = published.labels.get(LABEL_ARCHITECTURE)
    return Domain(
        name=published.name,
        labels=dict(published.labels),
        schedulable=published.schedulable,
        storage_classes=frozenset(attributes.available_storage_classes),
        network_classes=frozenset(attributes.available_network_classes),
        features=frozenset(attributes.features),
        architectures=frozenset({architecture} if architecture else ()),
        capacity=_capacity(published),
    )


def _capacity(published: FailureDomainStatus) -> Capacity | None:
    capacity = published.attributes.capacity
    memory = capacity.memory_mib if capacity else None
    if capacity is None or memory is None or memory.total is None or memory.free is None:
        return None
    return Capacity(
        memory_mib=memory.total,
        free_memory_mib=memory.free,
        cpus=capacity.cpus.total if capacity.cpus else None,
        included=frozenset(capacity.included_machines),
        cut_short=len(capacity.included_machines) >= MAX_INCLUDED,
        read_at=capacity.observed_at.timestamp() if capacity.observed_at else None,
    )


def image_row(image: VMImage | None, provider: Key) -> ProviderImageStatus | None:
    """What one Provider says about an image, None while it says nothing."""
    for row in image.status.per_provider if image else ():
        if Key(row.provider_namespace, row.provider_name) == provider:
            return row
    return None


def image_usable(row: ProviderImageStatus | None, domain: str) -> bool:
    """Whether a Provider's row says that machines can be made in a failure domain."""
    return row is not None and _image_state(row).usable_in(domain)


def demand(
    vm: VirtualMachine, vm_class: VMClass, image: VMImage, *, installation_id: str
) -> Demand:
    """What a VirtualMachine needs of a place."""
    spec, key = vm.spec, Key(vm.metadata.namespace or "", vm.metadata.name)
    hardware = vm_class.spec.hardware
    disks = shape.disks(hardware, spec.disks)
    nics = shape.interfaces(InterfaceRequest, vm_class.spec.network, spec.network_interfaces)
    pin = spec.provider_ref
    root = next((disk for disk in disks if disk.name == names.ROOT_DISK), None)
    return Demand(
        key=key,
        cpus=hardware.cpus,
        memory_mib=hardware.memory_mib,
        image=image.metadata.name,
        labels=dict(vm.metadata.labels),
        digest=owner_digest(installation_id, key),
        architecture=image.spec.architecture,
        firmware=vm_class.spec.firmware,
        image_firmware=tuple(image.spec.firmware),
        root_disk_gib=root.size_gib if root else None,
        min_disk_gib=image.spec.min_disk_gib,
        storage_classes=tuple(sorted({disk.storage_class for disk in disks if disk.storage_class})),
        existing_disks=tuple(sorted(disk.existing for disk in disks if disk.existing)),
        network_classes=tuple(sorted({nic.network_class for nic in nics if nic.network_class})),
        static_addresses=tuple(
            StaticAddress(nic.network_class or "", wish.address)
            for nic in nics
            for wish in nic.ipam
            if wish.address
        ),
        pool_wishes=tuple(
            PoolWish(nic.network_class or "", wish.family.value)
            for nic in nics
            for wish in nic.ipam
            if wish.source is AddressSource.POOL
        ),
        features=tuple(vm_class.spec.features),
        bootstrap=image.spec.bootstrap.value,
        first_boot=_first_boot(vm),
        agent_gates=_agent_gates(vm, image),
        provider_ref=Key(pin.namespace or key.namespace, pin.name) if pin else None,
        provider_selector=spec.placement.provider_selector,
        domain_selector=spec.placement.failure_domain_selector,
        apart=apart(spec.placement.anti_affinity),
    )


def _first_boot(vm: VirtualMachine) -> tuple[str, ...]:
    """Fields of the spec that the guest has to read at its first boot."""
    spec = vm.spec
    given = (
        ("userData", spec.user_data is not None),
        ("networkData", spec.network_data is not None),
        ("sshAuthorizedKeys", bool(spec.ssh_authorized_keys)),
    )
    return tuple(name for name, there in given if there)


def _agent_gates(vm: VirtualMachine, image: VMImage) -> tuple[str, ...]:
    """Readiness gates that only a guest agent can open, where the image has none."""
    if image.spec.agent is not AgentPresence.ABSENT:
        return ()
    gates = vm.spec.readiness_gates or ()
    return tuple(gate.value for gate in gates if gate is ReadinessGate.GUEST_BOOTSTRAPPED)


def apart(terms: list[AntiAffinity]) -> tuple[Apart, ...]:
    """Anti-affinity terms as the scheduler reads them."""
    return tuple(
        Apart(term.topology_key, term.label_selector, term.mode is AntiAffinityMode.REQUIRED)
        for term in terms
    )


def place_of(vm: VirtualMachine) -> Place | None:
    """Where a VirtualMachine was placed, None when it never was."""
    scheduled = vm.status.scheduled
    if scheduled is None:
        return None
    provider = Key(scheduled.provider_namespace, scheduled.provider_name)
    return Place(provider, scheduled.failure_domain or "")


def resident(vm: VirtualMachine, vm_class: VMClass | None, *, installation_id: str) -> Resident:
    """A VirtualMachine as the others' neighbour: where observed, else where placed."""
    key = Key(vm.metadata.namespace or "", vm.metadata.name)
    placed, status = place_of(vm), vm.status
    places: tuple[Place, ...] = ()
    if placed is not None:
        places = (Place(placed.provider, status.observed_failure_domain or placed.domain),)
    if status.incoming_ref is not None and status.move is not None:
        coming = Key(status.move.provider_namespace, status.move.provider_name)
        places += (Place(coming, status.move.failure_domain or ""),)
    scheduled, settled = status.scheduled, status.initialization
    resources, hardware = status.resources, vm_class.spec.hardware if vm_class else None
    cpus = (resources.cpus if resources else None) or (hardware.cpus if hardware else 0)
    memory = (resources.memory_mib if resources else None) or (
        hardware.memory_mib if hardware else 0
    )
    if vm.spec.adopt is not None and not (settled and settled.provisioned):
        cpus = memory = 0  # it is there already, and its Provider counts it among the others
    return Resident(
        key=key,
        places=places,
        labels=dict(vm.metadata.labels),
        digest=owner_digest(installation_id, key),
        cpus=cpus,
        memory_mib=memory,
        apart=apart(vm.spec.placement.anti_affinity),
        since=scheduled.scheduled_at.timestamp() if scheduled and scheduled.scheduled_at else None,
        settled=settled is not None and settled.provisioned,
    )


def promised(wanted: Demand, place: Place) -> Resident:
    """The neighbour a machine becomes when it is placed there."""
    return Resident(
        key=wanted.key,
        places=(place,),
        labels=wanted.labels,
        digest=wanted.digest,
        cpus=wanted.cpus,
        memory_mib=wanted.memory_mib,
        apart=wanted.apart,
    )
