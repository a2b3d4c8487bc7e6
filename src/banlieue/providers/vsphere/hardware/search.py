"""A search of datastores for what is kept, in steps: the vCenter searches in tasks of its own.

Nobody waits for those tasks: each step looks which of them ended, takes in what they found, and
starts those that follow.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid, read
from banlieue.providers.vsphere.places.inventory import Datastore
from banlieue.providers.vsphere.watching.watchlist import RUNNING, read_task

_LONGEST = 300.0
"""Seconds a search of one datastore may take."""

_AT_ONCE = 8
"""Searches that a vCenter is given at once."""

File = tuple[Datastore, str, Any]
"""A datastore, a directory on it, and what the vCenter tells of a file there."""


@dataclass(slots=True, kw_only=True)
class Search:
    """One search; not thread-safe.

    Attributes:
        session: where to search.
        folder: the top of what is searched, below each datastore.
        left: datastores that are still to be searched.
        found: files found so far.
        changes: what the caller's count of changes was when the search began.
        begun: how often the caller began it.
    """

    session: Session
    folder: str
    left: list[Datastore]
    changes: int
    begun: int
    now: Callable[[], float]
    found: list[File] = field(default_factory=list)
    _running: dict[str, tuple[Datastore, float]] = field(init=False, default_factory=dict)
    _browsers: dict[str, str | None] | None = field(init=False, default=None)

    def step(self) -> bool:
        """Go on as far as it goes without waiting; True when all datastores were searched.

        Raises what the vendor library raises, after which the search is of no use.
        """
        for task in tuple(self._running):
            self._take(task)
        while self.left and len(self._running) < _AT_ONCE:
            store = self.left.pop(0)
            begun = self._start(store)
            if begun is not None:
                self._running[begun] = store, self.now()
        return not (self._running or self.left)

    def _take(self, task: str) -> None:
        store, since = self._running[task]
        told = read_task(self.session, task)
        if told is not None and told.state in RUNNING:
            if self.now() - since > _LONGEST:
                raise vmodl.fault.SystemError(reason="the search of a datastore did not end")
            return
        del self._running[task]
        if told is None:
            raise vmodl.fault.SystemError(reason="the search of a datastore was forgotten")
        if isinstance(told.error, vim.fault.FileNotFound | vim.fault.NoPermission):
            return  # there is no folder of ours, and where we have no rights we made none
        if told.error is not None:
            raise told.error
        self.found += _files(store, told.result or ())

    def _start(self, store: Datastore) -> str | None:
        """Start the search of a datastore; None where the account may not look."""
        browser = self._browser(store)
        if browser is None:
            return None
        query = vim.host.DatastoreBrowser.VmDiskQuery(
            details=vim.host.DatastoreBrowser.VmDiskQuery.Details(
                diskType=False, capacityKb=True, hardwareVersion=False
            )
        )
        spec = vim.host.DatastoreBrowser.SearchSpec(query=[query], matchPattern=["*.vmdk"])

        def start(login: Login) -> str:
            found = vim.host.DatastoreBrowser(browser, login.ops)
            return moid(found.SearchDatastoreSubFolders_Task(f"[{store.name}] {self.folder}", spec))

        try:
            return self.session.run(start)
        except vim.fault.NotAuthenticated:
            raise
        except vim.fault.NoPermission:
            return None

    def _browser(self, store: Datastore) -> str | None:
        if self._browsers is None:
            wanted = dict.fromkeys((store.id, *(it.id for it in self.left)), vim.Datastore)
            told = read(self.session, wanted, ("browser",))
            self._browsers = {found.moid: found.ref("browser") for found in told}
        return self._browsers.get(store.id)


def _files(store: Datastore, results: Any) -> Iterator[File]:  # noqa: ANN401 - SearchResults
    for result in results:
        for found in result.file or ():
            if not found.path.endswith("-flat.vmdk"):
                yield store, result.folderPath, found
