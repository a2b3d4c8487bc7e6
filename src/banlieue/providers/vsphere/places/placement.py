"""From a plan to the objects of a vCenter it is made of: where, on which host, on what networks.

Pure over the inventory. Everything is checked here, before the clone is sent, because a vCenter
says little about what was wrong with one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.models import VSphereMachineSpec
from banlieue.providers.vsphere.places import domains
from banlieue.providers.vsphere.places.inventory import (
    Cluster,
    Datacenter,
    Datastore,
    Host,
    Inventory,
    Network,
    Place,
    below,
)
from banlieue.providers.vsphere.places.templates import Template
from banlieue.sdk.driver import DiskPlan, MachinePlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator, Refused

Plan = MachinePlan[VSphereMachineSpec]
Load = Callable[[str], int]
"""MiB that VMs being made on a host will take."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a VM is made. `host` is None where the cluster picks it."""

    datacenter: Datacenter
    cluster: Cluster
    folder: str
    pool: str
    datastores: tuple[Datastore, ...]
    networks: tuple[Network, ...]
    host: Host | None


def cluster_of(places: Inventory, plan: Plan) -> Cluster:
    """The cluster a plan names by its failure domain.

    Raises:
        NeedsOperator: the cluster is not there.
        InvalidSpec: the machine's own `cluster` or `datacenter` is another one.
    """
    cluster = places.clusters.get(plan.failure_domain.id)
    if cluster is None:
        raise NeedsOperator(
            Reason.FAILURE_DOMAIN_NOT_FOUND,
            f"the compute cluster of failure domain {'-'.join(plan.failure_domain.path)} is gone",
        )
    datacenter = places.datacenters[cluster.datacenter]
    _same(plan.spec.cluster, "cluster", cluster)
    _same(plan.spec.datacenter, "datacenter", datacenter)
    return cluster


def _same(wanted: str | None, field: str, place: Place) -> None:
    if wanted is not None and wanted.rstrip("/").rpartition("/")[2] not in {place.name, place.id}:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"{field} {wanted!r} is not that of the failure domain ({place.name}); "
            f"leave it out, or choose a failure domain in it",
        )


def locate(places: Inventory, plan: Plan, template: Template, load: Load) -> Target:
    """Resolve all a plan names.

    Raises:
        InvalidSpec, NeedsOperator: something it names is not there; the message says what.
        Refused: no host of the cluster can take the VM.
    """
    cluster = cluster_of(places, plan)
    datacenter = places.datacenters[cluster.datacenter]
    datastores = tuple(
        _datastore(places, cluster, plan, template, disk) for disk in plan.disks or (_ROOT,)
    )
    networks = tuple(network(places, cluster, nic.network, nic.name) for nic in plan.nics)
    return Target(
        datacenter=datacenter,
        cluster=cluster,
        folder=_folder(places, datacenter, plan.spec.folder),
        pool=_pool(places, cluster, plan.spec.resource_pool),
        datastores=datastores,
        networks=networks,
        host=_host(places, cluster, datastores, networks, load),
    )


_ROOT = DiskPlan("root", None, {})


def _datastore(
    places: Inventory, cluster: Cluster, plan: Plan, template: Template, disk: DiskPlan
) -> Datastore:
    wanted: Mapping[str, str | int] = disk.storage
    is_root = not plan.disks or disk is plan.disks[0]
    if is_root and plan.spec.datastore:
        wanted = {domains.STORAGE_KEY: plan.spec.datastore}
    elif not wanted and template.root and template.root.datastore:
        wanted = {domains.STORAGE_KEY: template.root.datastore}
    return datastore(places, cluster, wanted, disk.name)


def datastore(
    places: Inventory, cluster: Cluster, target: Mapping[str, str | int], disk: str
) -> Datastore:
    """The datastore a disk is made on; raises `NeedsOperator` when it is not there."""
    try:
        return domains.datastore(places, cluster, target)
    except domains.NotReachable as problem:
        raise NeedsOperator(
            Reason.STORAGE_CLASS_NOT_AVAILABLE,
            f"disk {disk}: {problem}; correct the storage class, or choose another one",
        ) from None


def network(
    places: Inventory, cluster: Cluster, target: Mapping[str, str | int], nic: str
) -> Network:
    """The network an interface is plugged into; raises `NeedsOperator` when it is not there."""
    try:
        return domains.network(places, cluster, target)
    except domains.NotReachable as problem:
        raise NeedsOperator(
            Reason.NETWORK_NOT_AVAILABLE,
            f"interface {nic}: {problem}; correct the network class, or choose another one",
        ) from None


def _folder(places: Inventory, datacenter: Datacenter, wanted: str | None) -> str:
    """The id of a folder by name, path or id; the datacenter's VM folder by default."""
    if wanted is None:
        return datacenter.vm_folder
    if wanted in places.folders:
        return wanted
    here = {
        folder.id: places.path(folder.id)
        for folder in places.folders.values()
        if _lies_in(places, folder, datacenter.vm_folder)
    }
    path = below(wanted, datacenter.name, "vm")
    if path == ():
        return datacenter.vm_folder
    hits = [key for key, steps in here.items() if steps == path]
    if not hits and path is not None and len(path) == 1:
        hits = [key for key, steps in here.items() if steps[-1:] == path]
    return _only(hits, "folder", wanted, f"datacenter {datacenter.name}")


def _lies_in(places: Inventory, folder: Place, top: str) -> bool:
    parent = folder.parent
    while parent:
        if parent == top:
            return True
        above = places.folders.get(parent)
        parent = above.parent if above else None
    return False


def _pool(places: Inventory, cluster: Cluster, wanted: str | None) -> str:
    """The id of a resource pool by name, path or id; the cluster's own by default."""
    if wanted is None:
        return cluster.pool
    here = {
        pool.id: _pool_path(places, pool.id, cluster.pool)
        for pool in places.pools.values()
        if pool.owner == cluster.id
    }
    if wanted in here:
        return wanted
    datacenter = places.datacenters[cluster.datacenter].name
    path = below(wanted, datacenter, "host", cluster.name, "Resources")
    if path == ():
        return cluster.pool
    hits = [key for key, steps in here.items() if steps == path]
    if not hits and path is not None and len(path) == 1:
        hits = [key for key, steps in here.items() if steps[-1:] == path]
    return _only(hits, "resource pool", wanted, f"cluster {cluster.name}")


def _pool_path(places: Inventory, pool: str, top: str) -> tuple[str, ...]:
    names: list[str] = []
    while pool != top and pool in places.pools:
        names.append(places.pools[pool].name)
        pool = places.pools[pool].parent or ""
    return tuple(reversed(names))


def _only(hits: list[str], kind: str, wanted: str, where: str) -> str:
    if len(hits) == 1:
        return hits[0]
    problem = f"there are {len(hits)}" if hits else "there is none"
    raise InvalidSpec(
        Reason.INVALID_CONFIGURATION,
        f"{kind} {wanted!r}: {problem} of that name in {where}; give the path of one that exists",
    )


def _host(
    places: Inventory,
    cluster: Cluster,
    datastores: tuple[Datastore, ...],
    networks: tuple[Network, ...],
    load: Load,
) -> Host | None:
    """The host to make the VM on, the one with the most memory left; None where DRS picks it."""
    stores = {store.id for store in datastores}
    nets = {network.id for network in networks}
    fitting = [
        host
        for host in places.usable_hosts(cluster)
        if stores <= host.datastores and nets <= host.networks
    ]
    if not fitting:
        raise Refused(
            Reason.INSUFFICIENT_CAPACITY,
            f"no connected host of cluster {cluster.name} has all the networks and datastores the "
            "VM needs; connect one, or choose another failure domain",
        )
    if cluster.places_vms:
        return None
    return min(fitting, key=lambda host: (host.used_mib + load(host.id) - host.memory_mib, host.id))
