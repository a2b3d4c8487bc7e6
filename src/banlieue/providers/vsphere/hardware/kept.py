"""Where kept disks lie: files in a folder of ours on each datastore, by whose they are.

A disk that is kept lies at `[store] banlieue-retained/<installation>/<namespace>/<id>.vmdk`. The
path is the mark: only machines of that installation and namespace look there. A VM that attaches
it takes the file into its own directory first, by a rename, which only one of several can do.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from pyVmomi import vim

from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid
from banlieue.providers.vsphere.hardware.holders import Holders
from banlieue.providers.vsphere.hardware.notes import is_id
from banlieue.providers.vsphere.hardware.search import Search
from banlieue.providers.vsphere.places.inventory import (
    Datacenter,
    Datastore,
    Inventory,
    InventoryCache,
)
from banlieue.sdk.identity import Owner
from banlieue.sdk.powers import KeptDisk

FOLDER = "banlieue-retained"
"""The folder at the top of each datastore; nothing in it is ever deleted by us."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KIB_PER_GIB = 1024 * 1024
_FRESH_SECONDS = 3600.0
_MOST_BEGUN = 3
"""How often a search begins anew because of changes; then it ends, and another follows soon."""


def folder(store: str, owner: Owner) -> str:
    """The directory of an owner's namespace on a datastore: what is kept for it lies there."""
    return f"[{store}] {FOLDER}/{_installation(owner.installation_id)}/{owner.namespace}"


def file(store: str, owner: Owner, disk: str) -> str:
    """Where a kept disk lies on a datastore."""
    return f"{folder(store, owner)}/{disk}.vmdk"


def store_of(path: str) -> str:
    """The datastore of a path: `store` of `[store] vm/vm.vmdk`."""
    return path.partition("]")[0].removeprefix("[")


def _installation(installation_id: str) -> str:
    if _PLAIN.fullmatch(installation_id):
        return installation_id
    return hashlib.sha256(installation_id.encode()).hexdigest()[:32]


@dataclass(slots=True, kw_only=True)
class KeptDisks:
    """Looks files up, moves them, and lists what is kept. Thread-safe."""

    session: Session
    places: InventoryCache
    now: Callable[[], float] = monotonic
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _listed: dict[str, tuple[float, tuple[KeptDisk, ...]]] = field(init=False, default_factory=dict)
    _changes: int = field(init=False, default=0)
    _searching: threading.Lock = field(init=False, default_factory=threading.Lock)
    _searches: dict[str, Search] = field(init=False, default_factory=dict)
    _holders: Holders = field(init=False)

    def __post_init__(self) -> None:
        self._holders = Holders(session=self.session)

    # One file

    def is_there(self, path: str, datacenter: Datacenter) -> bool:
        """Whether a virtual disk lies at that path, in one call.

        Storage that cannot be asked, or is not known, proves nothing; its fault is raised.
        """

        def query(login: Login) -> bool:
            manager = vim.VirtualDiskManager(login.content.disk_manager, login.ops)
            try:
                manager.QueryVirtualDiskUuid(path, vim.Datacenter(datacenter.id, login.ops))
            except vim.fault.FileNotFound:
                return False
            return True

        return self.session.run(query)

    def is_kept(self, path: str, datacenter: Datacenter) -> bool:
        """The same, where the account may have no rights: then we never put anything there."""
        try:
            return self.is_there(path, datacenter)
        except vim.fault.NotAuthenticated:
            raise
        except vim.fault.NoPermission:
            return False

    def first(self, paths: Iterable[tuple[str, Datacenter]]) -> str | None:
        """The first of some paths at which a disk lies.

        A datastore that cannot be asked is passed over; when the disk is on none of the others,
        nobody knows, and its fault is raised.
        """
        away: vim.fault.InvalidDatastore | None = None
        for path, datacenter in paths:
            try:
                if self.is_kept(path, datacenter):
                    return path
            except vim.fault.InvalidDatastore as error:
                away = away or error
        if away is not None:
            raise away
        return None

    def move(self, source: str, target: str, datacenter: Datacenter) -> str:
        """Start to move a disk within its datastore; its directory is made. The task's id."""
        self.make_directory(target.rpartition("/")[0], datacenter)
        self.forget()

        def move(login: Login) -> str:
            manager = vim.VirtualDiskManager(login.content.disk_manager, login.ops)
            where = vim.Datacenter(datacenter.id, login.ops)
            return moid(
                manager.MoveVirtualDisk_Task(
                    sourceName=source,
                    sourceDatacenter=where,
                    destName=target,
                    destDatacenter=where,
                    force=False,
                )
            )

        return self.session.run(move)

    def make_directory(self, path: str, datacenter: Datacenter) -> None:
        """Make a directory with those above it, if it is not there.

        Where the storage has no plain directories at the top, as on vSAN, that one is asked for.
        """

        def make(login: Login) -> None:
            manager = vim.FileManager(login.content.file_manager, login.ops)
            where = vim.Datacenter(datacenter.id, login.ops)
            manager.MakeDirectory(path, where, createParentDirectories=True)

        try:
            self.session.run(make)
        except vim.fault.FileAlreadyExists:
            return
        except vim.fault.CannotCreateFile:
            self._make_top(path, datacenter)
            try:
                self.session.run(make)
            except vim.fault.FileAlreadyExists:
                return

    def _make_top(self, path: str, datacenter: Datacenter) -> None:
        top = path.partition("] ")[2].partition("/")[0]
        store = self._store(store_of(path), datacenter)
        if store is None:
            raise vim.fault.InvalidDatastore(name=store_of(path))

        def make(login: Login) -> None:
            content = vim.ServiceInstance("ServiceInstance", login.ops).RetrieveContent()
            manager: Any = content.datastoreNamespaceManager
            manager.CreateDirectory(datastore=vim.Datastore(store.id, login.ops), displayName=top)

        try:
            self.session.run(make)
        except vim.fault.FileAlreadyExists:
            return

    def holder(self, path: str, datacenter: Datacenter) -> str | None:
        """Name of a VM that has the file attached, None when none of its datastore's VMs has.

        Raises:
            Transient: not all of them were asked yet; the next call goes on.
        """
        store = self._store(store_of(path), datacenter)
        return self._holders.find(path, store.id) if store is not None else None

    def _store(self, name: str, datacenter: Datacenter) -> Datastore | None:
        places = self.places.get()
        here = (store for store in places.datastores.values() if store.name == name)
        return next((it for it in here if places.datacenter_of(it.id) == datacenter), None)

    # Looking

    def find(self, owner: Owner, disk: str) -> KeptDisk | None:
        """The kept disk of that id, asked for on every datastore until it is found."""
        if not is_id(disk):
            return None
        places = self.places.get()
        stores = {file(it.name, owner, disk): (it, where) for it, where in _stores(places)}
        found = self.first((path, where) for path, (_, where) in stores.items())
        if found is None:
            return None
        return KeptDisk(disk, owner.namespace, None, _domains(places, stores[found][0]))

    def forget(self) -> None:
        """What is kept changes: it is listed anew when it is asked for."""
        with self._lock:
            self._changes += 1
            self._listed.clear()

    def all(self, installation_id: str) -> tuple[KeptDisk, ...] | None:
        """Everything that is kept for an installation; None while it is being searched for.

        It is searched for once an hour, and on changes: one search per datastore, which the vCenter
        does as a task of its own. Each call goes on with the search and never waits.
        """
        with self._searching:
            until, known = self._listed.get(installation_id, (0.0, ()))
            if self.now() < until:
                return known
            search = self._searches.pop(installation_id, None)
            if search is None:
                search = self._new_search(installation_id)
            elif search.changes != self._changes and search.begun < _MOST_BEGUN:
                search = self._new_search(installation_id, search.begun)
            if not search.step():
                self._searches[installation_id] = search
                return None
            listed = self._all_found(search)
            with self._lock:
                if search.changes == self._changes:  # nothing moved while it was read
                    self._listed[installation_id] = self.now() + _FRESH_SECONDS, listed
            return listed

    def _new_search(self, installation_id: str, begun: int = 0) -> Search:
        with self._lock:
            changes = self._changes
        return Search(
            session=self.session,
            folder=f"{FOLDER}/{_installation(installation_id)}",
            left=[store for store, _ in _stores(self.places.get())],
            changes=changes,
            begun=begun + 1,
            now=self.now,
        )

    def _all_found(self, search: Search) -> tuple[KeptDisk, ...]:
        places = self.places.get()
        found: dict[str, KeptDisk] = {}
        for store, directory, file in search.found:
            disk = _listed((directory, file), _domains(places, store))
            found.setdefault(disk.id, disk)
        return tuple(found[key] for key in sorted(found))


def _listed(found: tuple[str, Any], domains: tuple[str, ...]) -> KeptDisk:
    directory, name = found
    namespace = directory.rstrip("/").rpartition("/")[2]
    capacity = getattr(name, "capacityKb", None)
    size = capacity // _KIB_PER_GIB if capacity else None
    return KeptDisk(name.path.removesuffix(".vmdk"), namespace, size, domains)


def _stores(places: Inventory) -> list[tuple[Datastore, Datacenter]]:
    """Usable datastores with their datacenters."""
    found = []
    for store in sorted(places.datastores.values(), key=lambda it: it.id):
        datacenter = places.datacenter_of(store.id)
        if store.usable and datacenter is not None:
            found.append((store, datacenter))
    return found


def _domains(places: Inventory, store: Datastore) -> tuple[str, ...]:
    """Ids of the failure domains a datastore can be reached from."""
    return tuple(
        sorted(
            cluster.id
            for cluster in places.clusters.values()
            if any(store.id in host.datastores for host in places.usable_hosts(cluster))
        )
    )
