"""Where kept disks lie: files in a folder of ours on each datastore, by whose they are.

A disk that is kept lies at `[store] banlieue-retained/<installation>/<namespace>/<id>.vmdk`. The
path is the mark: only machines of that installation and namespace look there. A VM that attaches
it takes the file into its own directory first, by a rename, which only one of several can do.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, TypeVar

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid, read
from banlieue.providers.vsphere.places.inventory import (
    Datacenter,
    Datastore,
    Inventory,
    InventoryCache,
)
from banlieue.providers.vsphere.watching.watchlist import RUNNING, read_task
from banlieue.sdk.identity import Owner
from banlieue.sdk.powers import KeptDisk

T = TypeVar("T")

FOLDER = "banlieue-retained"
"""The folder at the top of each datastore; nothing in it is ever deleted by us."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,200}")
_KIB_PER_GIB = 1024 * 1024
_SEARCH_SECONDS = 20.0
_SEARCH_PAUSE = 0.1
_FRESH_SECONDS = 3600.0
_AT_ONCE = 8
"""Searches that a vCenter is given at once."""


def folder(store: str, owner: Owner) -> str:
    """The directory of an owner's namespace on a datastore: what is kept for it lies there."""
    return f"[{store}] {FOLDER}/{_installation(owner.installation_id)}/{owner.namespace}"


def file(store: str, owner: Owner, disk: str) -> str:
    """Where a kept disk lies on a datastore."""
    return f"{folder(store, owner)}/{disk}.vmdk"


def is_id(text: str) -> bool:
    """Whether it can be the id of a kept disk; anything else could lead to other folders."""
    return _ID.fullmatch(text) is not None


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

    # One file

    def is_there(self, path: str, datacenter: Datacenter) -> bool:
        """Whether a virtual disk lies at that path, in one call."""

        def query(login: Login) -> bool:
            manager = vim.VirtualDiskManager(login.content.disk_manager, login.ops)
            try:
                manager.QueryVirtualDiskUuid(path, vim.Datacenter(datacenter.id, login.ops))
            except (vim.fault.FileNotFound, vim.fault.InvalidDatastore):
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
        """Name of a VM that has the file attached, None when none of its datastore's VMs has."""
        store = self._store(store_of(path), datacenter)
        if store is None:
            return None
        vms = read(self.session, {store.id: vim.Datastore}, ("vm",))[0].refs("vm")
        if not vms:
            return None
        wanted = ("name", "config.hardware.device")
        for found in read(self.session, dict.fromkeys(vms, vim.VirtualMachine), wanted):
            for device in found.get("config.hardware.device") or ():
                if getattr(getattr(device, "backing", None), "fileName", None) == path:
                    return str(found.get("name"))
        return None

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
        for store, datacenter in _stores(places):
            if self.is_kept(file(store.name, owner, disk), datacenter):
                return KeptDisk(disk, owner.namespace, None, _domains(places, store))
        return None

    def forget(self) -> None:
        """What is kept changes: it is listed anew when it is asked for."""
        with self._lock:
            self._changes += 1
            self._listed.clear()

    def all(self, installation_id: str) -> tuple[KeptDisk, ...]:
        """Everything that is kept for an installation; searched for once an hour, and on changes.

        One search per datastore, which the vCenter does as a task of its own.
        """
        with self._lock:
            until, known = self._listed.get(installation_id, (0.0, ()))
            changes = self._changes
        if self.now() < until:
            return known
        places = self.places.get()
        found: dict[str, KeptDisk] = {}
        for disk in _each(self._search(places, installation_id)):
            found.setdefault(disk.id, disk)
        listed = tuple(found[key] for key in sorted(found))
        with self._lock:
            if changes == self._changes:  # nothing moved while it was read
                self._listed[installation_id] = self.now() + _FRESH_SECONDS, listed
        return listed

    def _search(self, places: Inventory, installation_id: str) -> Iterator[tuple[KeptDisk, ...]]:
        stores = [store for store, _ in _stores(places)]
        if not stores:
            return
        known = dict.fromkeys((store.id for store in stores), vim.Datastore)
        browsers = read(self.session, known, ("browser",))
        by_id = {found.moid: found.ref("browser") for found in browsers}
        for chunk in (
            stores[first : first + _AT_ONCE] for first in range(0, len(stores), _AT_ONCE)
        ):
            started = [
                (store, task)
                for store in chunk
                if (task := self._start(by_id.get(store.id), store, installation_id)) is not None
            ]
            for store, task in started:
                domains = _domains(places, store)
                yield tuple(_listed(result, domains) for result in self._files(task))

    def _start(self, browser: str | None, store: Datastore, installation_id: str) -> str | None:
        """Start the search of a datastore; None where the account may not look."""
        if browser is None:
            return None
        top = f"[{store.name}] {FOLDER}/{_installation(installation_id)}"
        query = vim.host.DatastoreBrowser.VmDiskQuery(
            details=vim.host.DatastoreBrowser.VmDiskQuery.Details(
                diskType=False, capacityKb=True, hardwareVersion=False
            )
        )
        spec = vim.host.DatastoreBrowser.SearchSpec(query=[query], matchPattern=["*.vmdk"])

        def start(login: Login) -> str:
            found = vim.host.DatastoreBrowser(browser, login.ops)
            return moid(found.SearchDatastoreSubFolders_Task(top, spec))

        try:
            return self.session.run(start)
        except vim.fault.NotAuthenticated:
            raise
        except vim.fault.NoPermission:
            return None

    def _files(self, task: str) -> Iterator[tuple[str, Any]]:
        """Directories and files of a search; none where there is no folder of ours."""
        until = self.now() + _SEARCH_SECONDS
        while True:
            told = read_task(self.session, task)
            if told is None or told.state not in RUNNING or self.now() > until:
                break
            sleep(_SEARCH_PAUSE)
        if told is None or told.state in RUNNING:
            raise vmodl.fault.SystemError(reason="the search of a datastore did not end")
        if isinstance(told.error, vim.fault.FileNotFound | vim.fault.NoPermission):
            return  # there is no folder of ours, and where we have no rights we made none
        if told.error is not None:
            raise told.error
        for result in told.result or ():
            for found in result.file or ():
                if not found.path.endswith("-flat.vmdk"):
                    yield result.folderPath, found


def _listed(found: tuple[str, Any], domains: tuple[str, ...]) -> KeptDisk:
    directory, name = found
    namespace = directory.rstrip("/").rpartition("/")[2]
    capacity = getattr(name, "capacityKb", None)
    size = capacity // _KIB_PER_GIB if capacity else None
    return KeptDisk(name.path.removesuffix(".vmdk"), namespace, size, domains)


def _each(groups: Iterable[Iterable[T]]) -> Iterator[T]:
    for group in groups:
        yield from group


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
