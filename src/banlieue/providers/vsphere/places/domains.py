"""Failure domains: one per compute cluster, with the classes that can really be used there. Pure.

The admin declares what a class means; a class is published for a cluster only if its datastore or
port group is reachable from a connected host of that cluster.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.places.inventory import Cluster, Datastore, Host, Inventory, Network
from banlieue.sdk.driver import Capacity, FailureDomain, Target

STORAGE_KEY = "datastore"
NETWORK_KEY = "portGroup"

_P = TypeVar("_P", Datastore, Network)


class NotReachable(LookupError):
    """A class cannot be used in a cluster; the text is one sentence for people."""


def failure_domains(inventory: Inventory, declared: Capabilities) -> list[FailureDomain]:
    """Every cluster as a failure domain, sorted by id.

    Args:
        inventory: the places of the vCenter.
        declared: what the Provider says its classes mean.
    """
    clusters = sorted(inventory.clusters.values(), key=lambda cluster: cluster.id)
    return [_domain(inventory, cluster, declared) for cluster in clusters]


def _domain(inventory: Inventory, cluster: Cluster, declared: Capabilities) -> FailureDomain:
    hosts = inventory.usable_hosts(cluster)
    datacenter = inventory.datacenters[cluster.datacenter].name
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
        id=cluster.id,
        path=(datacenter, cluster.name),
        storage_classes=tuple(storage),
        network_classes=tuple(networks),
        features=tuple(feature.value for feature in declared.features),
        capacity=_capacity(hosts),
        schedulable=bool(hosts),
        raw={"cluster": cluster.name, "datacenter": datacenter, "moRef": cluster.id},
        problems=tuple(problems),
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
    """The datastore a storage class means in a cluster; raises `NotReachable`."""
    wanted = _wanted(target, STORAGE_KEY)
    reachable = {key for host in inventory.usable_hosts(cluster) for key in host.datastores}
    found = _one(wanted, "datastore", inventory, cluster, inventory.datastores, reachable)
    if not found.usable:
        raise NotReachable(f"datastore {wanted!r} is inaccessible or in maintenance")
    return found


def network(inventory: Inventory, cluster: Cluster, target: Target) -> Network:
    """The network a network class means in a cluster; raises `NotReachable`."""
    wanted = _wanted(target, NETWORK_KEY)
    reachable = {key for host in inventory.usable_hosts(cluster) for key in host.networks}
    return _one(wanted, "port group", inventory, cluster, inventory.networks, reachable)


def _wanted(target: Target, key: str) -> str:
    value = target.get(key)
    if value is None or str(value) == "":
        raise NotReachable(f"its target lacks the key {key!r}; name one there")
    return str(value)


def _one(  # noqa: PLR0917 - the parts of one sentence
    wanted: str,
    word: str,
    inventory: Inventory,
    cluster: Cluster,
    known: Mapping[str, _P],
    reachable: set[str],
) -> _P:
    """The one reachable place of that name or id in the cluster's datacenter."""
    here = inventory.datacenters[cluster.datacenter].name
    named = [
        place
        for place in known.values()
        if wanted in {place.name, place.id}
        and _datacenter_id(inventory, place) == cluster.datacenter
    ]
    usable = [place for place in named if place.id in reachable]
    if len(usable) > 1:
        raise NotReachable(
            f"{len(usable)} {word}s named {wanted!r} are reachable from cluster {cluster.name}; "
            f"rename one, or give the id of one ({', '.join(sorted(p.id for p in usable))})"
        )
    if usable:
        return usable[0]
    if named:
        raise NotReachable(
            f"{word} {wanted!r} is not reachable from any connected host of cluster {cluster.name}"
        )
    raise NotReachable(f"datacenter {here} has no {word} {wanted!r}")


def _datacenter_id(inventory: Inventory, place: _P) -> str | None:
    found = inventory.datacenter_of(place.id)
    return found.id if found else None
