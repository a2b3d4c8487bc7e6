"""Templates: found by name, path, id or reference, with what a clone of them needs to know."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, moid, read_one
from banlieue.providers.vsphere.hardware import devices
from banlieue.providers.vsphere.places.inventory import (
    Cluster,
    Datacenter,
    Datastore,
    Inventory,
    below,
)
from banlieue.providers.vsphere.places.references import References
from banlieue.providers.vsphere.places.stores import anywhere
from banlieue.providers.vsphere.watching.census import Census, Entry
from banlieue.sdk.errors import NeedsOperator

_PATHS = (
    "name",
    "config.hardware.device",
    "config.firmware",
    "config.version",
    "config.hardware.numCoresPerSocket",
    "snapshot.currentSnapshot",
    "snapshot.rootSnapshotList",
)
_KIB_PER_GIB = 1024 * 1024
_MISS_SECONDS = 30.0
"""How old the list of VMs may be before a name that is not on it is looked up again."""


@dataclass(frozen=True, slots=True)
class TemplateDisk:
    """A disk of a template; `device` is pyVmomi's, for edits, and is never changed."""

    slot: str
    size_kib: int
    datastore: str | None
    device: Any = field(repr=False, compare=False)

    @property
    def size_gib(self) -> int:
        """Size in whole GiB, rounded up."""
        return -(-self.size_kib // _KIB_PER_GIB)


@dataclass(frozen=True, slots=True)
class Template:
    """A template or VM that machines are cloned from.

    `disks` are in the order of their slots, the first is the boot disk. `cards` are the keys of its
    network cards. `controllers` are the bus names of its disk controllers by key.
    """

    moid: str
    name: str
    disks: tuple[TemplateDisk, ...]
    cards: tuple[Any, ...]
    controllers: Mapping[int, str]
    firmware: str | None
    snapshot: str | None
    snapshots: Mapping[str, str]
    devices: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    cores_per_socket: int | None = None
    version: str | None = None

    @property
    def root(self) -> TemplateDisk | None:
        """The boot disk."""
        return self.disks[0] if self.disks else None


class Templates:
    """Looks templates up and keeps what was read of them. Thread-safe."""

    def __init__(
        self,
        session: Session,
        census: Census,
        monotonic: Callable[[], float],
        max_age: float,
        references: References | None = None,
    ) -> None:
        self._session = session
        self._references = references
        self._monotonic = monotonic
        self._max_age = max_age
        self._census = census
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Template, float]] = {}

    def find(
        self,
        wanted: str,
        places: Inventory,
        cluster: Cluster,
        stores: Iterable[Datastore] = (),
    ) -> Template | None:
        """The template a name, inventory path, id or instance UUID means for a cluster.

        Templates of one name are taken for copies of each other: one on the datastores that are
        wanted goes before one on another datastore the cluster reaches.

        Args:
            wanted: what it is called.
            places: the inventory.
            cluster: where its clones are made.
            stores: the datastores the boot disk may be put on; none where nothing is said.

        Raises:
            NeedsOperator: several templates are as good; a path is needed.
        """
        copies = self.copies(wanted, places, places.datacenters[cluster.datacenter])
        near = self._near(copies, places, cluster, frozenset(it.id for it in stores))
        self._check_told_apart(near, wanted, places, cluster)
        return near[0] if near else None

    def nearest(
        self, wanted: str, places: Inventory, cluster: Cluster
    ) -> tuple[Template | None, int]:
        """A template that could be meant for a cluster, and how many there are.

        Raises:
            NeedsOperator: which is meant cannot be told wherever the disks are put.
        """
        copies = self.copies(wanted, places, places.datacenters[cluster.datacenter])
        near = self._near(copies, places, cluster, frozenset())
        if len(near) > 1 and len({_store_of(copy) for copy in near}) == 1:
            self._check_told_apart(near, wanted, places, cluster)
        return (near[0] if near else None), len(copies)

    def copies(self, wanted: str, places: Inventory, datacenter: Datacenter) -> list[Template]:
        """All templates of a datacenter that a name, inventory path, id or instance UUID means."""
        self._census.ensure()
        found = self._read_all(wanted, places, datacenter)
        for age in (_MISS_SECONDS, 0.0):
            if found:
                break
            self._census.refresh(age)
            found = self._read_all(wanted, places, datacenter)
        return found

    def _read_all(self, wanted: str, places: Inventory, datacenter: Datacenter) -> list[Template]:
        ids = self._references.resolve(wanted) if self._references else None
        hits = _candidates(self._census.all(), wanted, places, datacenter, ids)
        found = []
        for entry in [entry for entry in hits if entry.template] or hits:
            try:
                found.append(self.read(entry.moid))
            except vmodl.fault.ManagedObjectNotFound:
                self._census.drop(entry.moid)  # one of the same name may have taken its place
        return found

    def _near(
        self, copies: list[Template], places: Inventory, cluster: Cluster, stores: frozenset[str]
    ) -> list[Template]:
        """The copies that are nearest to a cluster and datastores, most space left first."""
        reached = {store.id for store in anywhere(places, cluster)}

        def distance(copy: Template) -> int:
            store = _store_of(copy)
            return 0 if store in stores else 1 if store in reached else 2

        least = min(map(distance, copies), default=0)
        near = [copy for copy in copies if distance(copy) == least]
        return sorted(near, key=lambda copy: _most_space(copy, places))

    def _check_told_apart(
        self, near: list[Template], wanted: str, places: Inventory, cluster: Cluster
    ) -> None:
        """Copies on one datastore are no copies made to be near; nobody knows which is meant."""
        if len({_store_of(copy) for copy in near}) == len(near):
            return
        paths = sorted(self._path(copy, places) for copy in near)
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"datacenter {places.datacenters[cluster.datacenter].name} has {len(near)} templates "
            f"named {wanted!r}; give the path of one ({', '.join(paths)})",
        )

    def _path(self, copy: Template, places: Inventory) -> str:
        entry = self._census.get(copy.moid)
        return "/".join((*places.path(entry.folder if entry else None), copy.name))

    def elsewhere(self, wanted: str, places: Inventory) -> tuple[str, ...]:
        """Names of the datacenters that have a template of that name, path or id."""
        return tuple(
            datacenter.name
            for datacenter in places.datacenters.values()
            if _candidates(self._census.all(), wanted, places, datacenter)
        )

    def datacenter_of(self, template: str, places: Inventory) -> Datacenter | None:
        """The datacenter a template lies in; None when that is not known."""
        self._census.ensure()
        entry = self._census.get(template)
        return places.datacenter_of(entry.folder) if entry else None

    def read(self, template: str) -> Template:
        """What a clone of it needs to know, as last read.

        Raises:
            ManagedObjectNotFound: it is gone.
        """
        now = self._monotonic()
        with self._lock:
            known, until = self._known.get(template, (None, 0.0))
        if known is not None and now < until:
            return known
        found = read_one(self._session, template, vim.VirtualMachine, _PATHS)
        made = parse(found)
        with self._lock:
            self._known[template] = made, now + self._max_age
        return made

    def throw_away(self) -> None:
        """Read again at the next use, since something is not as it was."""
        with self._lock:
            self._known.clear()


def _candidates(
    entries: tuple[Entry, ...],
    wanted: str,
    places: Inventory,
    datacenter: Datacenter,
    ids: frozenset[str] | None = None,
) -> list[Entry]:
    """VMs and templates of a datacenter that a name, path or id means, or that have those ids."""

    def here(found: Iterable[Entry]) -> list[Entry]:
        return [
            entry
            for entry in found
            if (place := places.datacenter_of(entry.folder)) and place.id == datacenter.id
        ]

    if ids is not None:
        return here(entry for entry in entries if entry.moid in ids)
    uuid = wanted.lower()
    by_id = here(entry for entry in entries if wanted == entry.moid or uuid == entry.uuid)
    by_name = by_id or here(entry for entry in entries if entry.name == wanted)
    path = below(wanted, datacenter.name, "vm") if "/" in wanted else None
    if by_name or not path:
        return by_name
    last = here(entry for entry in entries if entry.name == path[-1])
    return [entry for entry in last if places.path(entry.folder) == path[:-1]]


def parse(found: Found) -> Template:
    """A template from the reply that describes it."""
    attached = tuple(found.get("config.hardware.device") or ())
    buses = devices.controllers(attached)
    snapshots: dict[str, str] = {}
    _collect(found.get("snapshot.rootSnapshotList") or (), snapshots)
    return Template(
        moid=found.moid,
        name=found.get("name", ""),
        disks=tuple(
            TemplateDisk(
                slot=devices.slot_of(disk, buses),
                size_kib=disk.capacityInKB,
                datastore=moid(disk.backing.datastore)
                if getattr(disk.backing, "datastore", None)
                else None,
                device=disk,
            )
            for disk in devices.virtual_disks(attached)
        ),
        cards=tuple(devices.network_cards(attached)),
        controllers=buses,
        firmware=found.get("config.firmware"),
        snapshot=found.ref("snapshot.currentSnapshot"),
        snapshots=snapshots,
        devices=attached,
        cores_per_socket=found.get("config.hardware.numCoresPerSocket"),
        version=found.get("config.version"),
    )


def _store_of(copy: Template) -> str | None:
    return copy.root.datastore if copy.root else None


def _most_space(copy: Template, places: Inventory) -> tuple[int, str]:
    """For sorting: the copy on the datastore with most space left first."""
    store = places.datastores.get(_store_of(copy) or "")
    return -(store.free_gib if store else 0), copy.moid


def _collect(trees: Any, into: dict[str, str]) -> None:  # noqa: ANN401 - a list of snapshot trees
    for tree in trees:
        into.setdefault(tree.name, moid(tree.snapshot))
        _collect(tree.childSnapshotList or (), into)
