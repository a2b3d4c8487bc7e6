"""Resource pools of a failure domain by what people call them. Pure."""

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.places.inventory import Cluster, Inventory, below
from banlieue.sdk.errors import InvalidSpec


def find(places: Inventory, cluster: Cluster, wanted: str | None) -> str:
    """The id of a resource pool by name, path or id; the failure domain's own by default.

    Raises:
        InvalidSpec: there is none of that name in the failure domain, or several.
    """
    if wanted is None:
        return cluster.pool
    root = places.clusters[cluster.id].pool
    here = {
        pool.id: _pool_path(places, pool.id, root)
        for pool in places.pools.values()
        if pool.owner == cluster.id and _is_below(places, pool.id, cluster.pool)
    }
    if wanted in here:
        return wanted
    datacenter = places.datacenters[cluster.datacenter].name
    path = below(wanted, datacenter, "host", cluster.name, "Resources")
    hits = [key for key, steps in here.items() if steps == path]
    if not hits and path is not None and len(path) == 1:
        hits = [key for key, steps in here.items() if steps[-1:] == path]
    where = "-".join(filter(None, (cluster.name, *_pool_path(places, cluster.pool, root))))
    return _only(hits, "resourcePool", wanted, f"cluster {where}")


def _is_below(places: Inventory, pool: str, top: str) -> bool:
    """Whether a pool is another one or lies somewhere in it."""
    while pool != top:
        found = places.pools.get(pool)
        if found is None:
            return False
        pool = found.parent or ""
    return True


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
