"""A vSphere watch on a scripted server: the vendor library's calls are answered and counted."""

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Content, Login, Session, Timings
from banlieue.providers.vsphere.watching.records import MARK, Records
from banlieue.providers.vsphere.watching.watcher import Watcher
from banlieue.sdk.powers import Changes

Native = Any
"""An object of the vendor's library, which has no types for them."""

PC = vmodl.query.PropertyCollector
CONTENT = Content("id", "8", "8", "root", "pc", "sm", "si", "vm", "tm", "am", "dm", "fm")
TIMINGS = Timings(coalesce=0.03, gather=1.0, longest_poll=25.0)
UUID = "u-1"


class Server:
    """A stub at the level of the vendor library's calls: counts them, answers from a script."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.edits: list[tuple[list[str], list[str]]] = []
        self.updates: list[Native] = []
        self.unresolved: list[str] = []
        self.details: dict[str, Native] = {}
        self.uuids: dict[str, str] = {}
        self.waits: list[int] = []

    def InvokeMethod(self, mo: Native, info: Native, args: Native) -> Native:  # noqa: N802 - the seam
        self.calls[info.wsdlName] += 1
        answer: Callable[..., Native] | None = getattr(self, f"on_{info.wsdlName}", None)
        return answer(mo, *args) if answer else None

    def InvokeAccessor(self, *_: Native) -> Native:  # noqa: N802 - the seam
        raise AssertionError("an attribute was read")

    def on_CreateListView(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        return vim.view.ListView("view-1", self)

    def on_CreatePropertyCollector(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        return PC("collector-1", self)

    def on_ModifyListView(self, _: Native, add: Native, remove: Native) -> Native:  # noqa: N802 - a method's name
        self.edits.append(([item._moId for item in add], [item._moId for item in remove]))
        return [item for item in add if item._moId in self.unresolved]

    def on_WaitForUpdatesEx(self, _: Native, version: str, options: Native) -> Native:  # noqa: N802 - a method's name
        del version
        self.waits.append(options.maxWaitSeconds)
        update = self.updates.pop(0) if self.updates else None
        if isinstance(update, Exception):
            raise update
        return update

    def on_RetrievePropertiesEx(self, _: Native, specs: Native, options: Native) -> Native:  # noqa: N802 - a method's name
        del options
        asked = [item.obj._moId for item in specs[0].objectSet]
        contents = [
            PC.ObjectContent(obj=vim.VirtualMachine(key, self), propSet=self._properties(key))
            for key in asked
        ]
        return PC.RetrieveResult(objects=contents)

    def _properties(self, key: str) -> list[Native]:
        found = {"guest.net": self.details.get(key, []), "config.instanceUuid": self.uuids.get(key)}
        return [
            vmodl.DynamicProperty(name=name, val=value)
            for name, value in found.items()
            if value is not None
        ]


class FakeSession:
    """A session whose renewals are counted."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.login = self._make(1)

    def _make(self, number: int) -> Login:
        stub = cast("Any", self._server)
        return Login(number, f"key-{number}", CONTENT, stub, stub)

    def run(self, call: Callable[[Login], Native], *, reads: bool = False) -> Native:
        del reads
        return call(self.login)

    def renew(self, ended: Login) -> Login:
        self.login = self._make(ended.number + 1)
        return self.login


class Bench:
    """A watcher with its fakes; time and background work move by hand."""

    def __init__(self) -> None:
        self.server = Server()
        self.session = FakeSession(self.server)
        self.records = Records()
        self.now = 1000.0
        self.planned: list[tuple[float, Callable[[], None]]] = []
        self.pauses: list[float] = []
        self.on_pause: Callable[[], object] = lambda: None
        self.watcher = Watcher(
            cast("Session", self.session),
            self.records,
            TIMINGS,
            lambda: self.now,
            pause=self.rest,
            later=lambda seconds, call: self.planned.append((seconds, call)),
        )

    def rest(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()

    def do_planned(self) -> None:
        planned, self.planned = self.planned, []
        for _, call in planned:
            call()

    def told(self, *updates: Native, timeout: float = 25.0) -> Changes:
        self.server.updates += updates
        return self.watcher.changes(timeout)

    def started(self, *vms: str) -> "Bench":
        self.watcher.add(*vms)
        assert self.told().everything
        return self


def update(*objects: Native) -> Native:
    return PC.UpdateSet(version="1", filterSet=[PC.FilterUpdate(objectSet=list(objects))])


def about_vm(key: str, kind: str = "enter", **values: Native) -> Native:
    names = {"mark": MARK, "uuid": "config.instanceUuid", "ip": "guest.ipAddress"}
    names |= {"tools": "guest.toolsRunningStatus", "power": "runtime.powerState"}
    names |= {"version": "config.changeVersion", "memory": "config.hardware.memoryMB"}
    changes = [
        PC.Change(name=names.get(name, name), op="assign", val=value)
        for name, value in values.items()
    ]
    return PC.ObjectUpdate(kind=kind, obj=vim.VirtualMachine(key, None), changeSet=changes)


def about_task(key: str, state: str, result: Native = None) -> Native:
    changes = [PC.Change(name="info.state", op="assign", val=state)]
    if result is not None:
        changes.append(PC.Change(name="info.result", op="assign", val=result))
    return PC.ObjectUpdate(kind="modify", obj=vim.Task(key, None), changeSet=changes)
