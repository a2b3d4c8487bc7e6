"""A vCenter in memory, as far as the life of VMs from the watch to their end goes; counts calls.

It answers at the seam of the vendor library, so that the real driver works with it in a unit test:

    vcenter = FakeVCenter()
    driver = vcenter.driver(timings)
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final, cast

from pyVmomi import vim, vmodl

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client.creates import Creates
from banlieue.providers.vsphere.client.session import Content, Login, Session, Timings
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.providers.vsphere.places.privileges import READ
from banlieue.providers.vsphere.watching.records import MARK, MARK_KEY, WATCHED
from banlieue.providers.vsphere.watching.watchlist import TASK_PATHS
from banlieue.sdk.driver import MachineRef
from banlieue.sdk.identity import Mark, Owner

Native = Any
"""An object of the vendor's library, which has no types for them."""

PC: Final[Any] = vmodl.query.PropertyCollector
_CONTENT: Final = Content(
    "id", "8", "8", "group-d1", "pc-0", "sm", "si", "vm", "tm", "am", "dm", "fm"
)


class FakeVCenter:
    """VMs, tasks, and one watch; every method may be called from any thread.

    Attributes:
        calls: how often each method was called.
        seconds: how long a task takes.
        lag: how much later than the VM the task tells of it.
        rights: what the account may do at the root.
        lost: what the next waits for updates end with.
        failing: what a task of that method ends with instead.
        tells_leaves: whether the watch tells of VMs that are destroyed.
    """

    def __init__(self, seconds: float = 0.02) -> None:
        self.calls: Counter[str] = Counter()
        self.seconds = seconds
        self.failing: dict[str, Exception] = {}
        self.tells_leaves = True
        self.lag = 0.0
        self.rights: Iterable[str] = READ
        self.lost: list[Exception] = []
        self._closing = False
        self._watch = ""
        self.login = Login(1, "key", _CONTENT, cast("Any", self), cast("Any", self))
        self._vms: dict[str, dict[str, Native]] = {}
        self._tasks: dict[str, dict[str, Native]] = {}
        self._members: set[str] = set()
        self._updates: list[Native] = []
        self._asked: list[str] = []
        self._changed = threading.Condition()
        self._number = self._collectors = 0

    def driver(self, timings: Timings) -> VSphereDriver:
        """The driver within a session to it."""
        self._closing = False
        creates = Creates(monotonic, 3.0)
        return VSphereDriver(
            cast("Session", self), Capabilities.from_api({}), creates, timings, monotonic
        )

    # An admin's hands

    def make(self, name: str, **more: Native) -> MachineRef:
        """A VM of ours that runs; what its machine knows of it."""
        owner = Owner("installation", "VirtualMachine", "team", name)
        with self._changed:
            self._number += 1
            vm, uuid = f"vm-{self._number}", f"00000000-0000-4000-8000-{self._number:012}"
            option = vim.option.OptionValue(key=MARK_KEY, value=Mark(owner, uuid).encode())
            self._vms[vm] = {
                "name": name,
                "config.instanceUuid": uuid,
                "config.changeVersion": "1",
                "runtime.powerState": "poweredOn",
                "runtime.connectionState": "connected",
                MARK: option,
                **more,
            }
        return MachineRef(owner, 0, name, uuid, seen=True, backend_id=vm)

    def change(self, vm: str, **properties: Native) -> None:
        """Change properties of a VM; a dot is written as two underscores."""
        with self._changed:
            self._set(vm, {key.replace("__", "."): value for key, value in properties.items()})

    @property
    def vms(self) -> frozenset[str]:
        """Names of the VMs there are."""
        with self._changed:
            return frozenset(vm["name"] for vm in self._vms.values())

    def power(self, vm: str) -> str:
        """The power state of a VM."""
        with self._changed:
            return str(self._vms[vm]["runtime.powerState"])

    def hang_up(self) -> None:
        """Let nobody wait for updates any more, until another driver comes."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    # What the driver sees

    def run(self, call: Callable[[Login], Native], *, reads: bool = False) -> Native:
        """As a session that never ends."""
        del reads
        return call(self.login)

    def InvokeMethod(self, mo: Native, info: Native, args: Native) -> Native:  # noqa: N802 - the seam
        """Count and answer a call."""
        answer: Callable[..., Native] | None = getattr(self, f"_{info.wsdlName}", None)
        with self._changed:
            self.calls[info.wsdlName] += 1
            return answer(mo, *args) if answer is not None else None

    def InvokeAccessor(self, *_: Native) -> Native:  # noqa: N802 - the seam
        """No attribute is ever read."""
        raise AssertionError("an attribute was read")

    def _CreateListView(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        return vim.view.ListView("view-1", None)

    def _CreatePropertyCollector(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        self._collectors += 1
        return PC(f"pc-{self._collectors}", self)

    def _CreateFilter(self, mo: Native, spec: Native, partial: Native) -> None:  # noqa: N802 - a method's name
        del partial
        asked = [item.obj for item in spec.objectSet]
        if any(isinstance(item, vim.view.ListView) for item in asked):
            self._watch = mo._moId
            self._members, self._updates = set(), []
        else:
            self._asked = [item._moId for item in asked]

    def _ModifyListView(self, _: Native, add: Native, remove: Native) -> Native:  # noqa: N802 - a method's name
        self._members -= {it._moId for it in remove}
        here = [it for it in add if it._moId in self._vms or it._moId in self._tasks]
        for item in here:
            self._members.add(item._moId)
            known = self._vms.get(item._moId) or self._tasks[item._moId]
            self._tell(item._moId, "enter", known)
        return [it for it in add if it not in here]

    def _WaitForUpdatesEx(self, mo: Native, version: str, options: Native) -> Native:  # noqa: N802 - a method's name
        if mo._moId != self._watch:
            gone = [_missing(key) for key in self._asked if key not in self._vms]
            return _updates(PC.FilterUpdate(filter=PC.Filter("filter-2", None), missingSet=gone))
        del version
        news = lambda: self._updates or self.lost or self._closing  # noqa: E731 - one line, one use
        self._changed.wait_for(news, options.maxWaitSeconds or 0)
        if self.lost:
            raise self.lost.pop()
        told, self._updates = self._updates, []
        return _updates(PC.FilterUpdate(objectSet=told)) if told else None

    def _RetrievePropertiesEx(self, _: Native, specs: Native, options: Native) -> Native:  # noqa: N802 - a method's name
        del options
        (spec,) = specs
        paths = {item.type: tuple(item.pathSet) for item in spec.propSet}
        asked = [item.obj._moId for item in spec.objectSet]
        if asked == [_CONTENT.root_folder]:
            asked = list(self._vms) if set(paths) == {vim.VirtualMachine} else []
        found: list[Native] = []
        for key in asked:
            known = self._vms.get(key) or self._tasks.get(key)
            if known is None:
                raise vmodl.fault.ManagedObjectNotFound(obj=_managed(key))
            found.append(_content(key, known, paths))
            if vim.Task in paths:
                ours = [it for it, task in self._tasks.items() if task["vm"] == key]
                found += [_content(it, self._tasks[it], paths) for it in ours]
        return PC.RetrieveResult(objects=found) if found else None

    def _FindAllByUuid(self, _: Native, datacenter: Native, uuid: str, *__: Native) -> Native:  # noqa: N802 - a method's name
        del datacenter
        hits = (vm for vm, it in self._vms.items() if it["config.instanceUuid"] == uuid)
        return [_managed(vm) for vm in hits]

    def _HasPrivilegeOnEntities(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        manager = vim.AuthorizationManager
        granted = [manager.PrivilegeAvailability(privId=it, isGranted=True) for it in self.rights]
        root = vim.Folder(_CONTENT.root_folder, None)
        return [manager.EntityPrivilege(entity=root, privAvailability=granted)]

    def _PowerOffVM_Task(self, mo: Native) -> Native:  # noqa: N802 - a method's name
        off = {"runtime.powerState": "poweredOff"}
        return self._begin(mo._moId, "PowerOffVM_Task", lambda: self._set(mo._moId, off))

    def _Destroy_Task(self, mo: Native) -> Native:  # noqa: N802 - a method's name
        return self._begin(mo._moId, "Destroy_Task", lambda: self._destroy(mo._moId))

    # Tasks

    def _begin(self, vm: str, method: str, work: Callable[[], None]) -> Native:
        self._number += 1
        task = f"task-{self._number}"
        self._tasks[task] = {"info.state": "running", "vm": vm}

        def act() -> None:
            with self._changed:
                if method not in self.failing:
                    work()
            if self.lag:
                _later(self.lag, end)
            else:
                end()

        def end() -> None:
            error = self.failing.get(method)
            told = {"info.state": "error" if error else "success", "info.error": error}
            with self._changed:
                self._tasks[task] |= told
                self._tell(task, "modify", told)

        _later(self.seconds, act)
        return _managed(task)

    def _set(self, vm: str, properties: dict[str, Native]) -> None:
        self._vms[vm] |= properties
        self._tell(vm, "modify", properties)

    def _destroy(self, vm: str) -> None:
        del self._vms[vm]
        if self.tells_leaves:
            self._tell(vm, "leave", {})
        self._members.discard(vm)

    def _tell(self, key: str, kind: str, properties: dict[str, Native]) -> None:
        if key not in self._members:
            return
        changes = [
            PC.Change(name=name, op="assign", val=value)
            for name, value in properties.items()
            if name in {*WATCHED, *TASK_PATHS}
        ]
        self._updates.append(PC.ObjectUpdate(kind=kind, obj=_managed(key), changeSet=changes))
        self._changed.notify_all()


def _later(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _managed(key: str) -> Native:
    return (vim.Task if key.startswith("task-") else vim.VirtualMachine)(key, None)


def _missing(key: str) -> Native:
    fault = vmodl.fault.ManagedObjectNotFound(obj=_managed(key))
    return PC.MissingObject(obj=_managed(key), fault=fault)


def _updates(told: Native) -> Native:
    return PC.UpdateSet(version="1", filterSet=[told])


def _content(key: str, known: dict[str, Native], paths: Mapping[Native, Iterable[str]]) -> Native:
    managed = _managed(key)
    asked = paths.get(type(managed), ())
    properties = [
        vmodl.DynamicProperty(name=name, val=known[name])
        for name in asked
        if known.get(name) is not None
    ]
    return PC.ObjectContent(obj=managed, propSet=properties)
