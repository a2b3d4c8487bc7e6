"""What a storage class means: which datastores may hold a disk, which of them does, and how. Pure.

Keys of a class's target, which may be combined and then all hold: `datastore`, `datastoreCluster`,
`storagePolicy` and `tag` choose datastores, `provisioning` and `controller` say how disks are made.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from banlieue.providers.vsphere.places.inventory import Cluster, Datastore, Host, Inventory, Pod
from banlieue.sdk.driver import Target

STORAGE_KEY = "datastore"
POD_KEY = "datastoreCluster"
POLICY_KEY = "storagePolicy"
TAG_KEY = "tag"
PROVISIONING_KEY = "provisioning"
CONTROLLER_KEY = "controller"

CHOOSING = (STORAGE_KEY, POD_KEY, POLICY_KEY, TAG_KEY)
"""Keys that say which datastores are meant; one of them is needed."""

KEYS = frozenset({*CHOOSING, PROVISIONING_KEY, CONTROLLER_KEY})

_E = TypeVar("_E", bound=StrEnum)

Promised = Callable[[str], int]
"""GiB that were promised on a datastore since its free space was read."""


class NotReachable(LookupError):
    """A class cannot be used in a cluster; the text is one sentence for people."""


class Provisioning(StrEnum):
    """How the space of a disk is taken: as it is written, at once, or at once and zeroed."""

    THIN = "thin"
    THICK = "thick"
    EAGER = "eager"


class Bus(StrEnum):
    """The kind of controller disks hang on."""

    SCSI = "scsi"
    NVME = "nvme"


@dataclass(frozen=True, slots=True)
class Wish:
    """How a disk is to be made; None where nothing is said about it."""

    provisioning: Provisioning | None = None
    bus: Bus | None = None
    policy: str | None = None
    pod: Pod | None = None


def wish(inventory: Inventory, cluster: Cluster, target: Target) -> Wish:
    """How a class's disks are made; raises `NotReachable` for a value that means nothing."""
    policy = _text(target, POLICY_KEY)
    if policy is not None and policy not in inventory.policies:
        raise NotReachable(_no_policy(policy))
    pod = _text(target, POD_KEY)
    return Wish(
        provisioning=_one_of(Provisioning, target, PROVISIONING_KEY),
        bus=_one_of(Bus, target, CONTROLLER_KEY),
        policy=inventory.policies[policy].id if policy is not None else None,
        pod=_pod(inventory, cluster, pod) if pod is not None else None,
    )


def candidates(inventory: Inventory, cluster: Cluster, target: Target) -> tuple[Datastore, ...]:
    """The usable datastores a class means in a cluster, at least one.

    Raises:
        NotReachable: there is none; the text says which part of the target fails.
    """
    wish(inventory, cluster, target)
    if not any(key in target for key in CHOOSING):
        others = " or ".join(repr(key) for key in CHOOSING[1:])
        raise NotReachable(
            f"its target lacks the key {STORAGE_KEY!r} (or {others}); name one there"
        )
    seen = {key for host in inventory.usable_hosts(cluster) for key in host.datastores}
    found = [store for key, store in inventory.datastores.items() if key in seen and store.usable]
    name = _text(target, STORAGE_KEY)
    if name is not None:
        found = [_named(inventory, cluster, name, seen)]
    pod = _text(target, POD_KEY)
    if pod is not None:
        found = _in_pod(_pod(inventory, cluster, pod), found, cluster)
    tag = _text(target, TAG_KEY)
    if tag is not None:
        found = _with_tag(inventory, tag, found, cluster)
    policy = _text(target, POLICY_KEY)
    if policy is not None:
        compatible = inventory.policies[policy].datastores
        found = [store for store in found if store.id in compatible]
        if not found:
            raise NotReachable(
                f"no datastore that cluster {cluster.name} reaches fulfils storage policy "
                f"{policy!r}"
            )
    return tuple(found)


def anywhere(inventory: Inventory, cluster: Cluster) -> tuple[Datastore, ...]:
    """Every usable datastore a cluster reaches."""
    seen = {key for host in inventory.usable_hosts(cluster) for key in host.datastores}
    found = (store for key, store in inventory.datastores.items() if key in seen)
    return tuple(store for store in found if store.usable)


def choose(
    options: Iterable[Datastore], hosts: Iterable[Host], gib: int, promised: Promised
) -> Datastore | None:
    """The datastore to take of several: always the same one while nothing changes.

    One that has room for the disk goes before one that has not, one that more of the hosts see
    before one that fewer see, then the one with the most space left. None when no host sees any.

    Args:
        options: the datastores that may be taken.
        hosts: the hosts the VM can be made on.
        gib: size of what is to be put there.
        promised: what is on its way to a datastore already.
    """
    there = tuple(hosts)

    def seen_by(store: Datastore) -> int:
        return sum(store.id in host.datastores for host in there)

    def rank(store: Datastore) -> tuple[bool, int, int, str]:
        left = store.free_gib - promised(store.id)
        return left < gib, -seen_by(store), -left, store.id

    visible = [store for store in options if seen_by(store)]
    return min(visible, key=rank) if visible else None


def _named(inventory: Inventory, cluster: Cluster, wanted: str, seen: set[str]) -> Datastore:
    """The one reachable datastore of that name or id in the cluster's datacenter."""
    here = inventory.datacenters[cluster.datacenter].name
    last = wanted.rstrip("/").rpartition("/")[2] if wanted.startswith("/") else wanted
    named = [
        store
        for store in inventory.datastores.values()
        if wanted == store.id
        or (last == store.name and _is_in(inventory, store.id, cluster.datacenter))
    ]
    usable = [store for store in named if store.id in seen]
    if len(usable) > 1:
        raise NotReachable(
            f"{len(usable)} datastores named {wanted!r} are reachable from cluster {cluster.name}; "
            f"rename one, or give the id of one ({', '.join(sorted(p.id for p in usable))})"
        )
    if usable and not usable[0].usable:
        raise NotReachable(f"datastore {wanted!r} is inaccessible or in maintenance")
    if usable:
        return usable[0]
    if named:
        raise NotReachable(
            f"datastore {wanted!r} is not reachable from any connected host of cluster "
            f"{cluster.name}"
        )
    if any(wanted in {pod.name, pod.id} for pod in inventory.pods.values()):
        raise NotReachable(f"{wanted!r} is a datastore cluster; name it by {POD_KEY}")
    raise NotReachable(f"datacenter {here} has no datastore {wanted!r}")


def pod_named(inventory: Inventory, cluster: Cluster, wanted: str) -> Pod | None:
    """The datastore cluster of that name or id in the cluster's datacenter, if there is one."""
    last = wanted.rstrip("/").rpartition("/")[2]
    for pod in inventory.pods.values():
        if wanted == pod.id or (last == pod.name and _is_in(inventory, pod.id, cluster.datacenter)):
            return pod
    return None


def _pod(inventory: Inventory, cluster: Cluster, wanted: str) -> Pod:
    found = pod_named(inventory, cluster, wanted)
    if found is None:
        here = inventory.datacenters[cluster.datacenter].name
        raise NotReachable(f"datacenter {here} has no datastore cluster {wanted!r}")
    return found


def _with_tag(
    inventory: Inventory, tag: str, found: Iterable[Datastore], cluster: Cluster
) -> list[Datastore]:
    """Those that carry a tag, themselves or by their datastore cluster."""
    try:
        carriers = inventory.carriers(tag)
    except LookupError as problem:
        raise NotReachable(str(problem)) from None
    tagged = [store for store in found if store.id in carriers or store.parent in carriers]
    if not tagged:
        raise NotReachable(f"no datastore that cluster {cluster.name} reaches carries tag {tag!r}")
    return tagged


def _in_pod(pod: Pod, found: Iterable[Datastore], cluster: Cluster) -> list[Datastore]:
    inside = [store for store in found if store.parent == pod.id]
    if not inside:
        raise NotReachable(
            f"datastore cluster {pod.name!r} has no datastore that cluster {cluster.name} reaches "
            "and that is not in maintenance"
        )
    return inside


def _is_in(inventory: Inventory, place: str, datacenter: str) -> bool:
    found = inventory.datacenter_of(place)
    return found is not None and found.id == datacenter


def _no_policy(wanted: str) -> str:
    return (
        f"there is no storage policy {wanted!r}, or policies cannot be read (that needs "
        "StorageProfile.View)"
    )


def _text(target: Target, key: str) -> str | None:
    value = target.get(key)
    if value is None:
        return None
    if str(value) == "":
        raise NotReachable(f"its target lacks the key {key!r}; name one there")
    return str(value)


def _one_of(kind: type[_E], target: Target, key: str) -> _E | None:
    value = _text(target, key)
    if value is None:
        return None
    try:
        return kind(value.lower())
    except ValueError:
        words = ", ".join(kind)
        raise NotReachable(f"{key} {value!r} of its target is not one of {words}") from None
