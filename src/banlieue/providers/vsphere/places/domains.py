"""Failure domains: their places, and the classes that can really be used there. Pure.

The admin declares what a class means; a class is published for a cluster only if its datastore or
port group is reachable from a connected host of that cluster.
"""

from collections.abc import Iterable

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.places import networks, stores
from banlieue.providers.vsphere.places.inventory import (
    Cluster,
    Datastore,
    Host,
    Inventory,
    Network,
    ZoneKind,
)
from banlieue.providers.vsphere.places.stores import STORAGE_KEY, NotReachable
from banlieue.providers.vsphere.places.zones import zones
from banlieue.sdk.driver import Capacity, FailureDomain, Target

__all__ = ["NETWORK_KEY", "STORAGE_KEY", "NotReachable", "datastore", "failure_domains", "network"]

NETWORK_KEY = networks.NETWORK_KEY


def failure_domains(inventory: Inventory, declared: Capabilities) -> list[FailureDomain]:
    """Every failure domain, sorted by id.

    Args:
        inventory: the places of the vCenter.
        declared: what the Provider says its classes mean.
    """
    return [
        _domain(inventory, identity, path, part, declared)
        for identity, path, part in zones(inventory)
    ]


def _domain(
    inventory: Inventory,
    identity: str,
    path: tuple[str, ...],
    cluster: Cluster,
    declared: Capabilities,
) -> FailureDomain:
    hosts = inventory.usable_hosts(cluster)
    problems: list[str] = []
    storage: list[str] = []
    networks: list[str] = []
    for storage_class in declared.storage_classes:
        try:
            datastore(inventory, cluster, storage_class.target)
            storage.append(storage_class.name)
        except NotReachable as problem:
            problems.append(f"storage class {storage_class.name}: {problem}")
    for network_class in declared.network_classes:
        try:
            network(inventory, cluster, network_class.target)
            networks.append(network_class.name)
        except NotReachable as problem:
            problems.append(f"network class {network_class.name}: {problem}")
    return FailureDomain(
        id=identity,
        path=path,
        storage_classes=tuple(storage),
        network_classes=tuple(networks),
        features=tuple(feature.value for feature in declared.features),
        capacity=_capacity(hosts),
        schedulable=bool(hosts),
        raw={"cluster": cluster.name, "datacenter": path[0], "moRef": cluster.id},
        problems=tuple(problems),
        bound=inventory.kind is ZoneKind.GROUP,
    )


def _capacity(hosts: Iterable[Host]) -> Capacity:
    there = tuple(hosts)
    total = sum(host.memory_mib for host in there)
    return Capacity(
        cpus=sum(host.cpus for host in there),
        memory_mib=total,
        free_memory_mib=max(0, total - sum(host.used_mib for host in there)),
        hosts=len(there),
    )


def datastore(inventory: Inventory, cluster: Cluster, target: Target) -> Datastore:
    """The datastore a storage class means in a cluster; of several, the one with most space left.

    Raises:
        NotReachable: there is none.
    """
    hosts = inventory.usable_hosts(cluster)
    options = stores.candidates(inventory, cluster, target)
    chosen = stores.choose(options, hosts, 0, lambda _: 0)
    return chosen or options[0]


def network(inventory: Inventory, cluster: Cluster, target: Target) -> Network:
    """The network a network class means in a cluster; raises `NotReachable`."""
    return networks.find(inventory, cluster, target)
