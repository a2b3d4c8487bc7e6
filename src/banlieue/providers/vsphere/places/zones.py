"""What a failure domain is: a compute cluster, or a resource pool or host group in one. Pure.

A zone is the part of a cluster that one failure domain stands for, as a `Cluster` with the pool and
hosts of that part. Its id is the managed object id of the cluster or pool; a host group has none of
its own and is known by its cluster's id and its name.
"""

from collections.abc import Iterator
from dataclasses import replace

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.places.inventory import Cluster, Inventory, ZoneKind
from banlieue.sdk.driver import Target
from banlieue.sdk.errors import NeedsOperator

ZONE_SETTING = "failureDomains"
"""Setting of the Provider that says what its failure domains are."""


def kind_of(settings: Target) -> ZoneKind:
    """What the failure domains of a Provider are; raises `NeedsOperator` for an unknown word."""
    value = str(settings.get(ZONE_SETTING, ZoneKind.CLUSTER))
    try:
        return ZoneKind(value)
    except ValueError:
        raise NeedsOperator(
            Reason.CAPABILITY_INVALID,
            f"settings.{ZONE_SETTING} {value!r} is not one of {', '.join(ZoneKind)}; correct it",
        ) from None


def zone(inventory: Inventory, identity: str) -> Cluster | None:
    """The part of a cluster that a failure domain's id means; None when it is not there."""
    if identity in inventory.clusters:
        return inventory.clusters[identity]
    pool = inventory.pools.get(identity)
    if pool is not None:
        cluster = inventory.clusters.get(pool.owner or "")
        return replace(cluster, pool=pool.id) if cluster else None
    key, _, group = identity.partition("/")
    cluster = inventory.clusters.get(key)
    if cluster is None or group not in cluster.groups:
        return None
    # The cluster itself would choose among all its hosts.
    return replace(cluster, hosts=cluster.groups[group], places_vms=False)


def zones(inventory: Inventory) -> Iterator[tuple[str, tuple[str, ...], Cluster]]:
    """Id, path and part of every failure domain, sorted by id."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for cluster in inventory.clusters.values():
        path: tuple[str, ...] = (inventory.datacenters[cluster.datacenter].name, cluster.name)
        if inventory.kind is ZoneKind.CLUSTER:
            found.append((cluster.id, path))
        elif inventory.kind is ZoneKind.POOL:
            found += [
                (pool.id, (*path, pool.name))
                for pool in inventory.pools.values()
                if pool.parent == cluster.pool and pool.owner == cluster.id
            ]
        else:
            found += [(f"{cluster.id}/{name}", (*path, name)) for name in cluster.groups]
    for identity, path in sorted(found):
        part = zone(inventory, identity)
        if part is not None:
            yield identity, path, part


def zone_of(inventory: Inventory, host: str | None, pool: str | None) -> str | None:
    """The id of the failure domain a VM is in; None when it is in none, or that is not known."""
    cluster = inventory.cluster_of(host)
    if cluster is None:
        return None
    if inventory.kind is ZoneKind.CLUSTER:
        return cluster.id
    if inventory.kind is ZoneKind.GROUP:
        names = sorted(name for name, hosts in cluster.groups.items() if host in hosts)
        return f"{cluster.id}/{names[0]}" if names else None
    above = inventory.pools.get(pool or "")
    while above is not None and above.parent != cluster.pool:
        above = inventory.pools.get(above.parent or "")
    return above.id if above else None
