"""The driver's power to import images and to delete what it imported."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import Found, find_child, moid, read_all, read_one
from banlieue.providers.vsphere.client.transport import Untold
from banlieue.providers.vsphere.hardware import devices
from banlieue.providers.vsphere.images.sink import UUID, ImageSink, Place, Source
from banlieue.providers.vsphere.images.specs import IMAGE_KEY, Wish, taken
from banlieue.providers.vsphere.places import stores
from banlieue.providers.vsphere.places.inventory import (
    Cluster,
    Datacenter,
    Datastore,
    Host,
    Inventory,
    InventoryCache,
    below,
)
from banlieue.providers.vsphere.places.stores import NotReachable
from banlieue.providers.vsphere.places.zones import zone
from banlieue.providers.vsphere.watching.census import Census, Entry
from banlieue.providers.vsphere.watching.records import extra_config
from banlieue.providers.vsphere.watching.watchlist import RUNNING, read_task
from banlieue.sdk.driver import FailureDomain, Target
from banlieue.sdk.errors import NeedsOperator, Transient
from banlieue.sdk.image.ports import ImageImport, ImportTask
from banlieue.sdk.image.transfers import Report, Transfers

FOLDER_SETTING = "imageFolder"
"""Setting of the Provider: folder that imported templates are put into."""

DATASTORE_SETTING = "imageDatastore"
"""Setting of the Provider: datastore that imported templates lie on."""

_PART = ".part"
_ABANDONED = 7200.0
"""Seconds after which a part that nobody finished belongs to a process that died.

A vCenter takes away what is not whole when its lease runs out, after some minutes.
"""

_SOON, _LATER = 1.0, 10.0
_CHUNK = 100
_LOOKS = 4
"""Times that VMs are looked at while some of them vanish, before it is told."""
_PATHS = (
    "name",
    "config.template",
    extra_config(IMAGE_KEY),
    "datastore",
    "config.files.vmPathName",
    "config.hardware.device",
    UUID,
)


@dataclass(slots=True, kw_only=True)
class Images:
    """Imports images and deletes what was imported. Thread-safe."""

    session: Session
    places: InventoryCache
    census: Census
    transfers: Transfers
    capabilities: Capabilities
    settings: Target
    monotonic: Callable[[], float]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _seen: dict[str, float] = field(init=False, default_factory=dict)
    _tasks: dict[tuple[str, str], str] = field(init=False, default_factory=dict)

    # Bringing

    def bring(self, wanted: ImageImport, where: FailureDomain) -> ImportTask | None:
        """See `ImageImporter.import_image`."""
        places = self.places.get()
        cluster = _cluster(places, where)
        datacenter = places.datacenters[cluster.datacenter]
        if self._is_published(wanted.name, places, datacenter):
            return None
        folder = self._folder(places, datacenter)
        if not self.transfers.runs(wanted.name, datacenter.id):
            if self._learn(wanted.name, folder):
                return None
            waits = self._foreign_part(wanted.name, folder)
            if waits is not None:
                return waits
        hosts = places.usable_hosts(cluster)
        store = self._datastore(places, cluster, hosts)
        host = next((it for it in hosts if store.id in it.datastores), None)
        if host is None:
            raise _nowhere(cluster, "no connected host reaches the datastore for images")
        wish = Wish(
            part=wanted.name + _PART,
            name=wanted.name,
            pool=cluster.pool,
            datastore=store.id,
            datastore_name=store.name,
            firmware=wanted.firmware,
        )

        def opened(total: int | None, report: Report) -> ImageSink:
            return ImageSink(
                self.session,
                wish,
                Place(folder, host.id),
                total,
                lambda vm: self._published(vm, wish.name, folder),
                Source(wanted.url, self.transfers.source, report),
            )

        return self.transfers.advance(wanted, datacenter.id, opened)

    def _is_published(self, name: str, places: Inventory, datacenter: Datacenter) -> bool:
        self.census.ensure()
        return any(True for _ in self._named(name, places, datacenter))

    def _named(self, name: str, places: Inventory, datacenter: Datacenter) -> Iterator[Entry]:
        for entry in self.census.named(name):
            found = places.datacenter_of(entry.folder)
            if found is not None and found.id == datacenter.id:
                yield entry

    def _published(self, vm: str, name: str, folder: str) -> None:
        self.census.put(Entry(vm, name, template=True, folder=folder))

    def _learn(self, name: str, folder: str) -> bool:
        """Whether another process published the image since all VMs were read."""
        found = find_child(self.session, folder, name)
        if found is not None:
            self._published(found, name, folder)
        return found is not None

    def _foreign_part(self, name: str, folder: str) -> ImportTask | None:
        """What to wait for when a part is there already; None when there is none (any more).

        One that is a template is whole, and only its rename is lacking.
        """
        vm = find_child(self.session, folder, name + _PART)
        if vm is None:
            with self._lock:
                self._seen.pop(name, None)
            return None
        found = self._look(vm)
        if found is None:
            return ImportTask(name, poll_after=_SOON)
        if not _is_ours(found, name):
            raise NeedsOperator(
                Reason.IMAGE_NOT_AVAILABLE,
                f"a VM named {name}{_PART} stands in the way that was not imported; rename it",
            )
        if found.get("config.template"):
            try:
                self._once(vm, "rename", lambda managed: managed.Rename_Task(newName=name))
            except vim.fault.DuplicateName as error:
                # It may be its own name: an earlier call whose answer was late has given it.
                if find_child(self.session, folder, name) != vm:
                    raise taken() from error
            return ImportTask(name, poll_after=_SOON)
        now = self.monotonic()
        with self._lock:
            since = self._seen.setdefault(name, now)
        if now - since >= _ABANDONED:
            self._once(vm, "destroy", lambda managed: managed.Destroy_Task())
            return ImportTask(name, poll_after=_SOON)
        return ImportTask(name, poll_after=_LATER)

    # Deleting

    def delete(self, name: str, where: FailureDomain) -> ImportTask | None:
        """See `ImageImporter.delete_image`."""
        places = self.places.get()
        cluster = zone(places, where.id)
        if cluster is None:
            return None
        datacenter = places.datacenters[cluster.datacenter]
        if not self.transfers.cancel(name, datacenter.id):
            return ImportTask(name, poll_after=_SOON)
        self.census.ensure()
        folder = self._folder(places, datacenter)
        known = [entry.moid for entry in self._named(name, places, datacenter)]
        fresh = (find_child(self.session, folder, it) for it in (name, name + _PART))
        for vm in dict.fromkeys((*known, *filter(None, fresh))):
            found = self._look(vm)
            if found is None:
                self.census.drop(vm)
                continue
            if not _is_ours(found, name):
                raise NeedsOperator(
                    Reason.IMAGE_IN_USE,
                    f"the template {name} was not imported by this Provider and is left alone; "
                    "rename it on the vCenter",
                )
            _check_disks(found)
            self._check_unlinked(found)
            if self._once(vm, "destroy", lambda managed: managed.Destroy_Task()):
                return ImportTask(name, poll_after=_SOON)
            self.census.drop(vm)
        return None

    def _check_unlinked(self, image: Found) -> None:
        """Refuse to destroy disks that a linked clone hangs on, whoever made it.

        VMs come and go meanwhile: if one cannot be read, all are asked for again before it is told.
        """
        for left in reversed(range(_LOOKS)):
            try:
                self._look_for_clones(image)
            except (vmodl.fault.ManagedObjectNotFound, Untold):
                if not left:
                    raise
            else:
                return

    def _look_for_clones(self, image: Found) -> None:
        directory = _directory(image.get("config.files.vmPathName") or "")
        stores_of = dict.fromkeys(image.refs("datastore"), vim.Datastore)
        if not directory or not stores_of:
            return
        vms = {
            vm: vim.VirtualMachine
            for store in read_all(self.session, stores_of, ("vm",))
            for vm in store.refs("vm")
            if vm != image.moid
        }
        keys = list(vms)
        for first in range(0, len(keys), _CHUNK):
            chunk = {key: vms[key] for key in keys[first : first + _CHUNK]}
            for found in read_all(self.session, chunk, ("name", "config.hardware.device")):
                if any(_directory(it) == directory for it in _parents(found)):
                    raise NeedsOperator(
                        Reason.IMAGE_IN_USE,
                        f"VM {found.get('name')} has disks of the image, as a linked clone does; "
                        "delete it, or give it disks of its own by a migration elsewhere",
                    )

    # One VM

    def _look(self, vm: str) -> Found | None:
        try:
            return read_one(self.session, vm, vim.VirtualMachine, _PATHS)
        except vmodl.fault.ManagedObjectNotFound:
            return None

    def _once(self, vm: str, what: str, call: Callable[[Any], Any]) -> bool:
        """Start a task on a VM unless one of ours runs on it; False when one has just ended well.

        Raises what the task failed with.
        """
        with self._lock:
            task = self._tasks.get((vm, what))
        if task is None:

            def start(login: Login) -> str:
                return moid(call(vim.VirtualMachine(vm, login.ops)))

            started = self.session.run(start)
            with self._lock:
                self._tasks[vm, what] = started
            return True
        told = read_task(self.session, task)
        if told is not None and told.state in RUNNING:
            return True
        with self._lock:
            self._tasks.pop((vm, what), None)
        if told is not None and told.error is not None:
            raise told.error
        return False

    # Where

    def _folder(self, places: Inventory, datacenter: Datacenter) -> str:
        wanted = self.settings.get(FOLDER_SETTING)
        return folder_of(places, datacenter, str(wanted) if wanted else None)

    def _datastore(self, places: Inventory, cluster: Cluster, hosts: tuple[Host, ...]) -> Datastore:
        """The datastore of images: the one set, else what the first class that works means."""
        wanted = self.settings.get(DATASTORE_SETTING)
        targets = [entry.target for entry in self.capabilities.storage_classes]
        if wanted:
            targets = [{stores.STORAGE_KEY: wanted}]
        problem = "the Provider offers no storage class"
        for target in targets:
            try:
                options = stores.candidates(places, cluster, target)
            except NotReachable as error:
                problem = str(error)
                continue
            chosen = stores.choose(options, hosts, 0, lambda _: 0)
            if chosen is not None:
                return chosen
        raise _nowhere(cluster, f"{problem}; set {DATASTORE_SETTING}")


def folder_of(places: Inventory, datacenter: Datacenter, wanted: str | None) -> str:
    """The id of a VM folder by path below the datacenter's own, or by id; that one by default.

    Raises:
        NeedsOperator: there is none.
    """
    path = below(wanted, datacenter.name, "vm") if wanted else ()
    if not path:
        return datacenter.vm_folder
    for key in places.folders:
        found = places.datacenter_of(key)
        if found is None or found.id != datacenter.id or key == datacenter.vm_folder:
            continue
        if wanted == key or places.path(key) == path:
            return key
    raise NeedsOperator(
        Reason.CAPABILITY_INVALID,
        f"settings.{FOLDER_SETTING}: datacenter {datacenter.name} has no VM folder {wanted!r}; "
        "make it, or correct the setting",
    )


def _cluster(places: Inventory, where: FailureDomain) -> Cluster:
    found = zone(places, where.id)
    if found is None:
        raise Transient(
            Reason.IMAGE_IMPORT_FAILED, f"failure domain {'-'.join(where.path)} is gone"
        )
    return found


def _nowhere(cluster: Cluster, problem: str) -> NeedsOperator:
    return NeedsOperator(
        Reason.IMAGE_IMPORT_FAILED,
        f"images cannot be imported into cluster {cluster.name}: {problem}",
    )


def _is_ours(found: Found, name: str) -> bool:
    """Whether it is the image or its part: no copy of it, and no VM that somebody made of it."""
    option = found.get(extra_config(IMAGE_KEY))
    marked, _, uuid = str(getattr(option, "value", None) or "").partition(" ")
    if found.get("config.template"):
        return marked == name and uuid == found.get(UUID)
    return marked == name and found.get("name") == name + _PART and uuid in {"", found.get(UUID)}


def _check_disks(image: Found) -> None:
    """Refuse to destroy disks that somebody attached to an image: they go with it."""
    attached = image.get("config.hardware.device") or ()
    path, name = image.get("config.files.vmPathName") or "", image.get("name") or ""
    own = devices.own_disks(attached, path, name)
    foreign = [devices.disk_id(it) for it in devices.virtual_disks(attached) if it not in own]
    if foreign:
        raise NeedsOperator(
            Reason.IMAGE_IN_USE,
            f"the template {name} has disks that were not imported with it "
            f"({', '.join(foreign)}); detach them",
        )


def _parents(found: Found) -> Iterator[str]:
    """The files that the disks of a VM are, and hang on."""
    for device in found.get("config.hardware.device") or ():
        backing = getattr(device, "backing", None)
        while backing is not None:
            yield str(getattr(backing, "fileName", "") or "")
            backing = getattr(backing, "parent", None)


def _directory(path: str) -> str:
    """`[store] vm` of `[store] vm/vm.vmdk`."""
    return path.rpartition("/")[0]
