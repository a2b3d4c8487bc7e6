"""What a network class means: which network a card is put on, and which kind of card. Pure.

The key `portGroup` of a class's target names a standard or distributed port group, an NSX segment
or an opaque network: by name, by `switch/name` where switches have groups of one name, by inventory
path, by managed object id, or by the id of the segment; `tag` by a tag it carries, as
`category/name`. `adapter` is the kind of card.
"""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from banlieue.providers.vsphere.places.inventory import Cluster, Inventory, Network, below
from banlieue.providers.vsphere.places.stores import NotReachable
from banlieue.sdk.driver import Target

NETWORK_KEY = "portGroup"
ADAPTER_KEY = "adapter"

TAG_KEY = "tag"

KEYS = frozenset({NETWORK_KEY, ADAPTER_KEY, TAG_KEY})


class Adapter(StrEnum):
    """The kind of a network card, as its guest sees it."""

    VMXNET3 = "vmxnet3"
    E1000E = "e1000e"
    E1000 = "e1000"


def adapter(target: Target) -> Adapter:
    """The kind of card of a network class; raises `NotReachable` for a word that means none."""
    value = str(target.get(ADAPTER_KEY, Adapter.VMXNET3))
    try:
        return Adapter(value.lower())
    except ValueError:
        words = ", ".join(Adapter)
        raise NotReachable(f"{ADAPTER_KEY} {value!r} of its target is not one of {words}") from None


def find(inventory: Inventory, cluster: Cluster, target: Target) -> Network:
    """The one network a class means that is reachable from a cluster; raises `NotReachable`."""
    adapter(target)
    wanted, tag = str(target.get(NETWORK_KEY) or ""), str(target.get(TAG_KEY) or "")
    if not wanted and not tag:
        raise NotReachable(f"its target lacks the key {NETWORK_KEY!r} (or {TAG_KEY!r}); name one")
    what = f"named {wanted!r}" if wanted else f"with tag {tag!r}"
    carriers = _carriers(inventory, tag) if tag else None
    reachable = {key for host in inventory.usable_hosts(cluster) for key in host.networks}
    here = inventory.datacenters[cluster.datacenter]
    named = [
        network
        for network in inventory.networks.values()
        if (not wanted or _is_meant(inventory, network, wanted, here.name))
        and (carriers is None or network.id in carriers)
        and (place := inventory.datacenter_of(network.id)) is not None
        and place.id == here.id
    ]
    usable = [network for network in named if network.id in reachable]
    groups = [it for it in inventory.networks.values() if it.id in reachable and it.logical_switch]
    usable = list(dict.fromkeys(_as_port_group(network, groups) for network in usable))
    if len(usable) > 1:
        ways = ", ".join(sorted(_precisely(network) for network in usable))
        raise NotReachable(
            f"{len(usable)} port groups {what} are reachable from cluster "
            f"{cluster.name}; rename one, or give one as {ways}"
        )
    if usable:
        return usable[0]
    told = f"port group {wanted!r}" if wanted else f"port group {what}"
    if named:
        raise NotReachable(
            f"{told} is not reachable from any connected host of cluster {cluster.name}"
        )
    raise NotReachable(f"datacenter {here.name} has no {told}")


def _carriers(inventory: Inventory, tag: str) -> frozenset[str]:
    try:
        return inventory.carriers(tag)
    except LookupError as problem:
        raise NotReachable(str(problem)) from None


def tags_of(inventory: Inventory, network: Network) -> frozenset[str] | None:
    """Those of the tags that classes name which a network carries; None where nobody can tell."""
    if any(found is None for found in inventory.tagged.values()):
        return None
    return frozenset(tag for tag, found in inventory.tagged.items() if network.id in (found or ()))


def words(inventory: Inventory, network: Network) -> frozenset[str]:
    """Every value of `portGroup` that means a network."""
    twins = (
        other
        for other in inventory.networks.values()
        if other.opaque is not None and other.opaque[0] == network.logical_switch
    )
    return frozenset(word for it in (network, *twins) for word in _own_words(inventory, it))


def _own_words(inventory: Inventory, network: Network) -> Iterator[str]:
    path = inventory.path(network.id)
    here = inventory.datacenter_of(network.id)
    yield from _short_words(network)
    if here is not None and path:
        yield "/".join(path)
        yield "/".join(("", here.name, "network", *path))


def _short_words(network: Network) -> tuple[str, ...]:
    """What means a network wherever it lies."""
    told = (network.id, network.name, network.segment, network.logical_switch)
    opaque = (network.opaque or ())[:1]
    ways = (f"{network.switch}/{network.name}",) if network.switch is not None else ()
    return tuple(word for word in (*told, *opaque, *ways) if word)


def _as_port_group(network: Network, groups: Iterable[Network]) -> Network:
    """The port group a vCenter makes of an opaque network where it has one for the same segment."""
    if network.opaque is None:
        return network
    return next((it for it in groups if it.logical_switch == network.opaque[0]), network)


def of_words(inventory: Inventory, told: Collection[str]) -> Network | None:
    """The network that a card tells of, by any id of it."""
    known = (inventory.networks[word] for word in told if word in inventory.networks)
    found = next(known, None)
    if found is None:
        opaque = (it for it in inventory.networks.values() if it.opaque and it.opaque[0] in told)
        found = next(opaque, None)
    return found


def _is_meant(inventory: Inventory, network: Network, wanted: str, datacenter: str) -> bool:
    """Asked of every network for every class, so paths are made for those of the name only."""
    if wanted in _short_words(network):
        return True
    if not wanted.endswith(f"/{network.name}"):
        return False
    path = below(wanted, datacenter, "network")
    return bool(path) and inventory.path(network.id) == path


def _precisely(network: Network) -> str:
    """How a network is named so that no other one is meant."""
    return f"{network.switch}/{network.name}" if network.switch else network.id
