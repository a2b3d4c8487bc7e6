"""What the watch has on the server: a collector, a filter, and a list of the objects it covers."""

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid, property_spec, read_one
from banlieue.providers.vsphere.watching.records import WATCHED

TASK_PATHS = ("info.state", "info.error", "info.result")
"""Leaves of a task; others, such as its entity, may be of a type that cannot be decoded."""

RUNNING = frozenset({"queued", "running"})

_PAGE = 100
_COLLECTOR = vmodl.query.PropertyCollector


@dataclass(slots=True)
class TaskRecord:
    """One of our tasks; `state` as the vCenter says it, `error` and `result` when it ended.

    `shown` says that only the task's VM told of its end.
    """

    moid: str
    state: str = "queued"
    error: Any = None
    result: Any = None
    ended: bool = False
    shown: bool = False


@dataclass(slots=True)
class WatchList:
    """What stands on the server for one login.

    `members` are the objects that are covered; `told` says that all of them were told once.
    """

    login: Login
    collector: str
    view: str
    version: str = ""
    told: bool = False
    members: set[str] = field(default_factory=set)

    def wait(self, seconds: int) -> Any:  # noqa: ANN401 - an UpdateSet, None when nothing changed
        """Ask what changed, and let the server wait for that long; moves on in the feed."""
        collector = _COLLECTOR(self.collector, self.login.watch)
        options = _COLLECTOR.WaitOptions(maxWaitSeconds=seconds, maxObjectUpdates=_PAGE)
        update = collector.WaitForUpdatesEx(self.version, options)
        if update is not None:
            self.version = update.version
        return update

    def modify(self, add: Collection[str], remove: Collection[str]) -> tuple[str, ...]:
        """Cover other objects; gives those that are not there, or not to be seen."""
        view = vim.view.ListView(self.view, self.login.ops)
        unresolved = view.ModifyListView(
            add=[_managed(key, self.login) for key in sorted(add)],
            remove=[_managed(key, self.login) for key in sorted(remove)],
        )
        return tuple(moid(key) for key in unresolved or ())

    def destroy(self) -> None:
        """Take it down as far as possible: what a dead session left behind is gone with it."""
        with contextlib.suppress(*faults.NATIVE):
            _COLLECTOR(self.collector, self.login.ops).DestroyPropertyCollector()
        with contextlib.suppress(*faults.NATIVE):
            vim.view.ListView(self.view, self.login.ops).DestroyView()


def build(login: Login) -> WatchList:
    """Put an empty list with its filter on the server; three calls."""
    views = vim.view.ViewManager(login.content.view_manager, login.ops)
    view = views.CreateListView(obj=[])
    collector = _COLLECTOR(login.content.property_collector, login.ops).CreatePropertyCollector()
    members = _COLLECTOR.TraversalSpec(
        name="members", type=vim.view.ListView, path="view", skip=False
    )
    collector.CreateFilter(
        spec=_COLLECTOR.FilterSpec(
            objectSet=[_COLLECTOR.ObjectSpec(obj=view, skip=True, selectSet=[members])],
            propSet=[
                property_spec(vim.VirtualMachine, WATCHED),
                property_spec(vim.Task, TASK_PATHS),
            ],
        ),
        partialUpdates=True,
    )
    return WatchList(login, moid(collector), moid(view))


def is_task(key: str) -> bool:
    """Whether a managed object id is that of a task."""
    return key.startswith("task-")


def read_task(session: Session, task: str) -> TaskRecord | None:
    """A task as it is now, in one call; None when nobody knows it any more."""
    try:
        found = read_one(session, task, vim.Task, TASK_PATHS)
    except vmodl.fault.ManagedObjectNotFound:
        return None
    return TaskRecord(
        task,
        state=str(found.get("info.state", "queued")),
        error=found.get("info.error"),
        result=found.get("info.result"),
    )


def _managed(key: str, login: Login) -> Any:  # noqa: ANN401 - any managed object
    kind = vim.Task if is_task(key) else vim.VirtualMachine
    return kind(key, login.ops)
