"""Machines of Cluster API among the others a scheduler counts. Pure.

They have keys of their own there: a VirtualMachine may have the same name, and anti-affinity of
the one sort does not look at the other.
"""

from collections.abc import Iterable, Iterator

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import LabelSelector, Resource
from banlieue.api.v1alpha1.vmimage import VMImage
from banlieue.controller.capi import objects
from banlieue.controller.scheduling.placement import (
    TOPOLOGY_HOST,
    Apart,
    Demand,
    Place,
    PoolWish,
    Resident,
    StaticAddress,
)
from banlieue.sdk.identity import OWNER_MACHINE, Owner
from banlieue.sdk.kube import Key, ObjectReader

LABEL_GROUP = f"{names.GROUP}/anti-affinity-group"
"""Stands for `antiAffinityGroup` among the labels a scheduler matches; on no object."""

_SUFFIX = "/cluster-api"


def berth(kind: Resource, key: Key) -> Key:
    """The key of a machine in the ledger."""
    return of_request(Key(key.namespace, f"{kind.crd_name}/{key.name}"))


def of_request(request: Key) -> Key:
    """The key of a machine in the ledger, from the key passes over it are asked for with.

    That is one of `infra.machines.request_key`.
    """
    return Key(f"{request.namespace}{_SUFFIX}", request.name)


def request_of(ledger_key: Key) -> Key:
    """The key to ask for a pass over a machine with, from its key in the ledger."""
    return Key(ledger_key.namespace.removesuffix(_SUFFIX), ledger_key.name)


def digest(installation_id: str, namespace: str, owner: str) -> str:
    """Digest of the owner a Machine is, as Providers list it."""
    return Owner(installation_id, OWNER_MACHINE, namespace, owner).digest


def demand(
    kind: Resource,
    machine: Machine,
    image: VMImage | None,
    *,
    digest: str,
    selector: LabelSelector | None = None,
) -> Demand:
    """What a machine needs of a place.

    Args:
        kind: its kind.
        machine: the machine; what it leaves to its image is not known and counts nothing.
        image: the image it names, None when the backend's own field says what it is made from.
        digest: its owner's.
        selector: labels of the failure domains it may be in.
    """
    spec, group = machine.spec, machine.spec.anti_affinity_group
    root = next((disk for disk in spec.disks if disk.name == names.ROOT_DISK), None)
    storage = {disk.storage_class for disk in spec.disks if disk.storage_class}
    networks = {nic.network_class for nic in spec.network_interfaces if nic.network_class}
    asked = [(nic, wish) for nic in spec.network_interfaces for wish in nic.ipam]
    return Demand(
        key=berth(kind, Key(machine.metadata.namespace or "", machine.metadata.name)),
        cpus=spec.cpus or 0,
        memory_mib=spec.memory_mib or 0,
        image=image.metadata.name if image else "",
        labels=_labels(group),
        digest=digest,
        architecture=image.spec.architecture if image else "",
        firmware=spec.firmware,
        image_firmware=tuple(image.spec.firmware) if image else (),
        root_disk_gib=root.size_gib if root else None,
        min_disk_gib=image.spec.min_disk_gib if image else None,
        storage_classes=tuple(sorted(storage)),
        network_classes=tuple(sorted(networks)),
        static_addresses=tuple(
            StaticAddress(nic.network_class or "", wish.address)
            for nic, wish in asked
            if wish.source == "static" and wish.address
        ),
        pool_wishes=tuple(
            PoolWish(nic.network_class or "", wish.family.value)
            for nic, wish in asked
            if wish.source == "pool"
        ),
        features=tuple(spec.features),
        bootstrap=image.spec.bootstrap.value if image else "",
        first_boot=("userData",),
        domain_selector=selector,
        apart=_apart(group),
    )


def resident(kind: Resource, machine: Machine, installation_id: str) -> Resident:
    """A machine as the others' neighbour: where observed, else where it was stamped to be."""
    spec, status, meta = machine.spec, machine.status, machine.metadata
    owner, at = objects.owner_reference(machine), spec.provider_ref
    places: tuple[Place, ...] = ()
    if at is not None:
        placed = spec.placement.failure_domain if spec.placement else ""
        places = (Place(Key(at.namespace, at.name), status.failure_domain or placed),)
    resources, begun, made = status.resources, status.initialization, meta.creation_timestamp
    installation = spec.instance.installation_id if spec.instance else installation_id
    namespace = meta.namespace or ""
    return Resident(
        key=berth(kind, Key(namespace, meta.name)),
        places=places,
        labels=_labels(spec.anti_affinity_group),
        digest=digest(installation, namespace, owner.name) if owner else "",
        cpus=(resources.cpus if resources else None) or spec.cpus or 0,
        memory_mib=(resources.memory_mib if resources else None) or spec.memory_mib or 0,
        apart=_apart(spec.anti_affinity_group),
        since=made.timestamp() if made else None,
        settled=begun is not None and begun.provisioned,
    )


def residents(
    cache: ObjectReader, kinds: Iterable[Resource], installation_id: str
) -> Iterator[Resident]:
    """Every machine of Cluster API that has its Provider."""
    for kind in kinds:
        for obj in cache.list(kind):
            spec = obj.get("spec") or {}
            if spec.get("providerRef") and not spec.get("virtualMachineRef"):
                yield resident(kind, Machine.from_api(obj), installation_id)


def _labels(group: str | None) -> dict[str, str]:
    return {LABEL_GROUP: group} if group else {}


def _apart(group: str | None) -> tuple[Apart, ...]:
    """Members of a group would rather be in other failure domains; hosts are the backend's."""
    if not group:
        return ()
    return (Apart(TOPOLOGY_HOST, LabelSelector(match_labels={LABEL_GROUP: group})),)
