"""Where an image that streams in goes: a VM under another name, published as a template by rename.

The name of the part is the lock: a folder holds it once, so no two processes import one image at
the same time. What is marked as a template was verified and is whole; whoever finds it under the
part's name finishes the rename.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid, read_one
from banlieue.providers.vsphere.client.transport import operation
from banlieue.providers.vsphere.images import formats, specs
from banlieue.providers.vsphere.images.lease import Lease, trust_of
from banlieue.providers.vsphere.images.specs import Import, Wish
from banlieue.providers.vsphere.images.upload import Upload
from banlieue.providers.vsphere.watching.watchlist import RUNNING, read_task
from banlieue.sdk.errors import DriverError, InvalidSpec, Transient, Unreachable
from banlieue.sdk.image.fetch import Fetch
from banlieue.sdk.image.transfers import Report

SNAPSHOT = "banlieue"
"""The snapshot that linked clones of an imported image hang on."""

UUID = "config.instanceUuid"

_TASK_SECONDS = 1800.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the part is made: ids of the folder and host."""

    folder: str
    host: str


Published = Callable[[str], None]
"""Told the id of the VM that has the final name now."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where files that belong to the image are fetched from: beside its URL."""

    url: str
    fetch: Fetch
    report: Report


class ImageSink:
    """One import; used by the import's own thread, which may wait. Raises `DriverError`."""

    def __init__(  # noqa: PLR0917 - the parts of one import
        self,
        session: Session,
        wish: Wish,
        place: Place,
        total: int | None,
        published: Published,
        source: Source,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._wish = wish
        self._place = place
        self._total = total
        self._published = published
        self._source = source
        self._sleep = sleep
        self._unpacking = formats.Unpacking()
        self._import: Import | None = None
        self._lease: Lease | None = None
        self._upload: Upload | None = None
        self._left: set[str] = set()
        self._done = 0
        self._vm: str | None = None

    def write(self, piece: bytes) -> None:
        """Take the file apart and send what belongs to the VM."""
        with self._named():
            self._done += len(piece)
            for event in self._unpacking.feed(piece):
                self._handle(event)
            if self._lease is not None and self._total:
                self._lease.progress(self._done * 100 // self._total)

    def publish(self, size: int) -> None:
        """Let the VM be the image: complete it, make it a template, give it its name."""
        del size
        with self._named():
            for event in self._unpacking.end():
                self._handle(event)
            if self._lease is None or self._left:
                lacking = ", ".join(sorted(self._left)) or "a disk"
                raise formats.damaged(f"it lacks {lacking}")
            self._lease.complete()
            vm, self._lease = self._lease.vm, None
            self._run(vm, self._marked(vm))
            self._run(vm, self._snapshot)
            self._call(vm, lambda managed: managed.MarkAsTemplate())
            self._rename(vm)
            self._published(vm)

    def drop(self) -> None:
        """Take the part away, unless it was published after all; what cannot be reached stays."""
        if self._upload is not None:
            self._upload.abort()
        with contextlib.suppress(DriverError), self._named():
            if self._lease is not None:
                self._lease.abort()
            if self._vm is not None:
                self._destroy(self._vm)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Raise uniform errors; a step of an import that fails is no outage of the vCenter."""
        try:
            with (
                faults.translated(Reason.IMAGE_IMPORT_FAILED),
                operation(f"import-{self._wish.name}"),
            ):
                yield
        except Unreachable as error:
            raise Transient(
                Reason.IMAGE_IMPORT_FAILED,
                f"the import broke off: {error.message}",
                native=error.native,
            ) from error

    # What streams in

    def _handle(self, event: formats.Event) -> None:
        match event:
            case formats.Descriptor(text):
                self._begin(specs.from_descriptor(self._session, text, self._wish))
            case formats.Manifest(digests):
                self._fetch_all(digests)
            case formats.BareDisk(capacity):
                self._begin(specs.from_disk(capacity, self._wish))
            case formats.FileBegins(name, size):
                self._open(name, self._total if size is None else size)
            case formats.FilePiece(content):
                if self._upload is not None:
                    self._upload.write(content)
            case formats.FileEnds():
                upload, self._upload = self._upload, None
                if upload is not None:
                    upload.end()

    def _begin(self, made: Import) -> None:
        if self._import is not None:
            raise formats.damaged("it holds several OVF descriptors")
        self._import, self._left = made, set(made.files)

        def start(login: Login) -> str:
            pool = vim.ResourcePool(self._wish.pool, login.ops)
            return moid(
                pool.ImportVApp(
                    spec=made.spec,
                    folder=vim.Folder(self._place.folder, login.ops),
                    host=vim.HostSystem(self._place.host, login.ops),
                )
            )

        try:
            key = self._session.run(start)
            self._lease = Lease(self._session, key, self._sleep)
        except vim.fault.DuplicateName as error:
            raise specs.taken() from error
        self._vm = self._lease.vm

    def _open(self, name: str, size: int | None) -> None:
        wanted = self._import.files.get(name) if self._import is not None else None
        if wanted is None or self._lease is None:
            return
        key, is_disk = wanted
        targets = self._lease.targets
        # A VM that was made up for a bare disk has one target, whatever its key.
        target = targets.get(key) or (next(iter(targets.values()), None) if not key else None)
        if target is None:
            raise Transient(
                Reason.IMAGE_IMPORT_FAILED,
                f"the vCenter names no place for the image's file {name}; it is tried again",
            )
        self._left.discard(name)
        self._upload = Upload(
            target.url,
            self._session.login.ops.endpoint.host,
            trust_of(target, self._session.trust),
            size,
            disk=is_disk,
        )

    # Files beside the URL

    def _fetch_all(self, digests: Mapping[str, tuple[str, str]]) -> None:
        """Fetch the descriptor and disks of a manifest; each has to match its digest."""
        named = [name for name in digests if name.lower().endswith(".ovf")]
        if len(named) != 1:
            raise formats.damaged("its manifest names no OVF descriptor, or several")
        text = b"".join(piece for piece, _ in self._fetched(named[0], digests, formats.MOST_TEXT))
        self._begin(
            specs.from_descriptor(self._session, text.decode("utf-8", "replace"), self._wish)
        )
        for name in tuple(self._import.files) if self._import else ():
            if name not in digests:
                raise formats.damaged(f"its manifest has no digest of {name}")
            for piece, total in self._fetched(name, digests):
                if self._upload is None:
                    self._open(name, total)
                self._handle(formats.FilePiece(piece))
            self._handle(formats.FileEnds())

    def _fetched(
        self, name: str, digests: Mapping[str, tuple[str, str]], most: int | None = None
    ) -> Iterator[tuple[bytes, int | None]]:
        """The pieces of a file, and its size; raises when it does not match its digest."""
        algorithm, expected = digests[name]
        digest, done = hashlib.new(algorithm), 0
        with self._source.fetch(urljoin(self._source.url, quote(name))) as download:
            for piece in download.pieces():
                digest.update(piece)
                done += len(piece)
                if most is not None and done > most:
                    raise formats.damaged(f"its file {name} is too large")
                self._source.report(done, download.total)
                yield piece, download.total
        if digest.hexdigest() != expected:
            raise InvalidSpec(
                Reason.IMAGE_CHECKSUM_MISMATCH,
                f"the image's file {name} is not what its manifest says; nothing of it is used",
            )

    # Tasks, which the import's thread waits for

    def _marked(self, vm: str) -> Callable[[Any], Any]:
        """Writing on the VM that it is the image, and no copy of it will be."""
        uuid = read_one(self._session, vm, vim.VirtualMachine, (UUID,)).get(UUID)
        option = vim.option.OptionValue(key=specs.IMAGE_KEY, value=f"{self._wish.name} {uuid}")
        spec = vim.vm.ConfigSpec(extraConfig=[option])
        return lambda managed: managed.ReconfigVM_Task(spec=spec)

    def _snapshot(self, vm: Any) -> Any:  # noqa: ANN401 - a VirtualMachine and a Task
        return vm.CreateSnapshot_Task(
            name=SNAPSHOT, description="linked clones hang on it", memory=False, quiesce=False
        )

    def _call(self, vm: str, call: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - any result
        return self._session.run(lambda login: call(vim.VirtualMachine(vm, login.ops)))

    def _run(self, vm: str, call: Callable[[Any], Any]) -> None:
        task = self._session.run(lambda login: moid(call(vim.VirtualMachine(vm, login.ops))))
        until, pause = time.monotonic() + _TASK_SECONDS, _FIRST_PAUSE
        while True:
            told = read_task(self._session, task)
            if told is None or told.state not in RUNNING:
                break
            if time.monotonic() >= until:
                raise Transient(
                    Reason.IMAGE_IMPORT_FAILED, "a step on the imported template does not end"
                )
            self._sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
        if told is not None and told.error is not None:
            raise told.error

    def _rename(self, vm: str) -> None:
        """Give the template its name, unless whoever finished it for us has done so."""
        try:
            self._run(vm, lambda managed: managed.Rename_Task(newName=self._wish.name))
        except vim.fault.DuplicateName as error:
            found = read_one(self._session, vm, vim.VirtualMachine, ("name",))
            if found.get("name") != self._wish.name:
                raise specs.taken() from error

    def _destroy(self, vm: str) -> None:
        """Destroy the part, as long as it is one: a template is whole, and may be published now."""
        try:
            found = read_one(self._session, vm, vim.VirtualMachine, ("name", "config.template"))
            if found.get("name") == self._wish.part and found.get("config.template") is False:
                self._run(vm, lambda managed: managed.Destroy_Task())
        except vmodl.fault.ManagedObjectNotFound:
            return
