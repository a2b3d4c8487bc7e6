"""The places of a vCenter: datacenters, clusters, hosts, pools, datastores, networks, folders.

All of it is read at once (`places.reading`) and kept for a while; it changes rarely, and a
placement fault throws it away.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from banlieue.providers.vsphere.client.session import Session


class ZoneKind(StrEnum):
    """What the failure domains of a Provider are."""

    CLUSTER = "ComputeCluster"
    POOL = "ResourcePool"
    GROUP = "HostGroup"


@dataclass(frozen=True, slots=True)
class Place:
    """Anything with a name, and that as people write it: `a/b`, not `a%2fb`."""

    id: str
    name: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class Datacenter(Place):
    """A datacenter; VMs are made below its VM folder unless told otherwise."""

    vm_folder: str


@dataclass(frozen=True, slots=True)
class Cluster(Place):
    """A compute cluster, or the part of one that a failure domain is (`places.zones`).

    `places_vms` tells whether it picks the host of a new VM by itself; `browser` is the object that
    tells what its hosts support; `groups` are the hosts of its host groups, by name.
    """

    datacenter: str
    pool: str
    hosts: tuple[str, ...]
    places_vms: bool
    browser: str | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Host(Place):
    """A host; `usable` means connected and neither in maintenance nor in quarantine."""

    usable: bool
    cpus: int
    memory_mib: int
    used_mib: int
    datastores: frozenset[str]
    networks: frozenset[str]


@dataclass(frozen=True, slots=True)
class Pool(Place):
    """A resource pool; `owner` is its cluster."""

    owner: str | None


@dataclass(frozen=True, slots=True)
class Datastore(Place):
    """A datastore; `usable` means accessible and not in maintenance."""

    usable: bool
    free_gib: int = 0


@dataclass(frozen=True, slots=True)
class Pod(Place):
    """A datastore cluster; `recommends` tells whether it balances its datastores by itself."""

    recommends: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """A storage policy, and the datastores that fulfil it."""

    id: str
    name: str
    datastores: frozenset[str]


@dataclass(frozen=True, slots=True)
class Network(Place):
    """A network a card can be put on.

    `port_group`, `switch_uuid` and the switch's name only on a distributed one; `opaque` is id and
    type of one that another manager owns; `segment` and `logical_switch` are ids of an NSX segment.
    """

    port_group: str | None = None
    switch_uuid: str | None = None
    switch: str | None = None
    opaque: tuple[str, str] | None = None
    segment: str | None = None
    logical_switch: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """All places, by id."""

    root: str
    folders: Mapping[str, Place] = field(default_factory=dict)
    datacenters: Mapping[str, Datacenter] = field(default_factory=dict)
    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)
    pools: Mapping[str, Pool] = field(default_factory=dict)
    datastores: Mapping[str, Datastore] = field(default_factory=dict)
    networks: Mapping[str, Network] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """By name; only those that somebody names."""
    tagged: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """What carries the tags that classes name, as `category/name`; None where nobody could tell."""
    kind: ZoneKind = ZoneKind.CLUSTER

    def carriers(self, tag: str) -> frozenset[str]:
        """Ids of the places that carry a tag; raises `LookupError` with why that is not known."""
        if not all(tag.partition("/")):
            raise LookupError(f"tag {tag!r} is not written as category/name")
        found = self.tagged.get(tag)
        if found is None:
            raise LookupError(f"the vCenter does not tell what carries tag {tag!r}")
        return found

    def datacenter_of(self, place: str | None) -> Datacenter | None:
        """The datacenter something lies in, by the id of the thing or of its folder."""
        for found in self._upwards(place):
            if found.id in self.datacenters:
                return self.datacenters[found.id]
        return None

    def path(self, place: str | None) -> tuple[str, ...]:
        """Names from below the datacenter's own folder down to the thing."""
        names: list[str] = []
        for found in self._upwards(place):
            if found.parent in self.datacenters or found.id in self.datacenters:
                break
            names.append(found.name)
        return tuple(reversed(names))

    def cluster_of(self, host: str | None) -> Cluster | None:
        """The cluster a host belongs to."""
        found = self.hosts.get(host or "")
        return self.clusters.get(found.parent or "") if found else None

    def usable_hosts(self, cluster: Cluster) -> tuple[Host, ...]:
        """Hosts of a cluster that can take a VM."""
        hosts = (self.hosts.get(key) for key in cluster.hosts)
        return tuple(host for host in hosts if host is not None and host.usable)

    def _upwards(self, place: str | None) -> Iterator[Place]:
        kinds: tuple[Mapping[str, Place], ...] = (
            self.folders,
            self.datacenters,
            self.clusters,
            self.hosts,
            self.pools,
            self.datastores,
            self.networks,
        )
        while place:
            found = next((kind[place] for kind in kinds if place in kind), None)
            if found is None:
                return
            yield found
            place = found.parent


def below(path: str, *above: str) -> tuple[str, ...] | None:
    """The steps of a path below a place; None when the path leads past that place.

    Args:
        path: such as `web/prod`, or from the root `/dc-1/vm/web/prod`.
        above: names that lead to the place, the outermost first.
    """
    steps = tuple(step for step in path.split("/") if step)
    if path.startswith("/"):
        for name in above:
            if name not in steps:
                return None
            steps = steps[steps.index(name) + 1 :]
    return steps


class Attach(Protocol):
    """Completes an inventory by what another service tells."""

    def __call__(self, places: Inventory, *names: str) -> Inventory:
        """The inventory with the storage policies of these names; raises like the vendor."""


class InventoryCache:
    """The inventory, read again when it is too old or was thrown away. Thread-safe."""

    def __init__(
        self,
        session: Session,
        monotonic: Callable[[], float],
        max_age: float,
        reader: Callable[[Session], Inventory],
        attach: Attach | None = None,
    ) -> None:
        self._session = session
        self._monotonic = monotonic
        self._max_age = max_age
        self._reader = reader
        self._attach = attach
        self._lock = threading.Lock()
        self._known: Inventory | None = None
        self._read_at = 0.0
        self._stale = False

    @property
    def read_at(self) -> float:
        """When it was read, in seconds of the monotonic clock."""
        return self._read_at

    def get(self, *policies: str) -> Inventory:
        """The inventory, not older than allowed; raises what the vendor library raises.

        Args:
            policies: storage policies it has to know, besides those that were named before.
        """
        found = self._current()
        return self._attach(found, *policies) if self._attach else found

    def _current(self) -> Inventory:
        with self._lock:
            expired = self._monotonic() - self._read_at > self._max_age
            if self._known is None or self._stale or expired:
                self._known = self._reader(self._session)
                self._read_at = self._monotonic()
                self._stale = False
            return self._known

    def last(self) -> Inventory | None:
        """The inventory as last read, however old; makes no call."""
        return self._known

    def add_folder(self, folder: Place) -> None:
        """Take note of a folder that was just made, so that nothing has to be read again for it."""
        with self._lock:
            if self._known is not None and folder.id not in self._known.folders:
                folders = {**self._known.folders, folder.id: folder}
                self._known = replace(self._known, folders=folders)

    def throw_away(self) -> None:
        """Read again at the next use, since something is not where it was."""
        self._stale = True
