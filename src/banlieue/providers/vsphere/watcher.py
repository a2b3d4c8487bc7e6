"""Watches our VMs and our running tasks: one collector, one list, one filter, no polling.

The list holds exactly what is ours; foreign objects, which a vCenter has many of and some of which
cannot be decoded, are never asked about. After any disturbance the collector is destroyed and built
anew, since only that makes every server tell everything again.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere import faults
from banlieue.providers.vsphere.records import DETAILS, WATCHED, Records, VmRecord, read_details
from banlieue.providers.vsphere.session import Login, Session, Timings
from banlieue.providers.vsphere.soap import Found, missing, moid, property_spec, read
from banlieue.providers.vsphere.transport import operation
from banlieue.sdk.driver import Changes

TASK_PATHS = ("info.state", "info.error", "info.result")
RUNNING = frozenset({"queued", "running"})

_PAGE = 100
_REST = 2.0
"""Seconds after the end of a poll for which what it told still counts as current."""

_CALM = 10.0
"""Least seconds between two reads of a guest whose addresses are all known."""

_CHUNK = 100
"""VMs whose details are read in one call."""

_RETRIES = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Pauses between reads of a guest that runs and tells no address."""

_COLLECTOR = vmodl.query.PropertyCollector
_REBUILD: tuple[type[Exception], ...] = (
    vmodl.query.InvalidCollectorVersion,
    vmodl.fault.ManagedObjectNotFound,
    vmodl.fault.RequestCanceled,
)


@dataclass(slots=True)
class TaskRecord:
    """One of our tasks; `state` as the vCenter says it, `error` and `result` when it ended."""

    moid: str
    state: str = "queued"
    error: Any = None
    result: Any = None
    ended_at: float | None = None


@dataclass(slots=True)
class _Built:
    """What stands on the server for one login."""

    login: Login
    collector: str
    view: str
    version: str = ""
    members: set[str] = field(default_factory=set)


class Watcher:
    """Feeds the records. `changes` is called from one thread, everything else from any."""

    def __init__(
        self,
        session: Session,
        records: Records,
        timings: Timings,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._records = records
        self._timings = timings
        self._monotonic = monotonic
        self._pause = pause
        self._lock = threading.RLock()
        self._editing = threading.Lock()
        self._built: _Built | None = None
        self._wanted: set[str] = set()
        self._tasks: dict[str, TaskRecord] = {}
        self._awaited: dict[str, str] = {}
        self._broken = False
        self._current_until: float | None = None

    # What others ask

    @property
    def healthy(self) -> bool:
        """Whether the records are current: a poll is under way, or ended just now."""
        with self._lock:
            built, until = self._built, self._current_until
            if built is None or self._broken or until is None:
                return False
        return self._monotonic() < until and built.login.number == self._session.login.number

    def task(self, task: str) -> TaskRecord | None:
        """What the watch told of a task; None when it tells nothing."""
        with self._lock:
            found = self._tasks.get(task)
            return found if found is not None and self.healthy else None

    def watches(self, vm: str) -> bool:
        """Whether a VM is among those whose changes are told."""
        with self._lock:
            return self._built is not None and vm in self._built.members

    def add(self, *moids: str) -> None:
        """Watch VMs or tasks; edits that come together travel together."""
        with self._lock:
            self._wanted.update(moids)
            for key in moids:
                if _is_task(key):
                    self._tasks.setdefault(key, TaskRecord(key))
        self._edit(moids)

    def settle(self, task: str) -> None:
        """Stop watching a task whose end was taken notice of; it leaves with the next edit."""
        with self._lock:
            self._wanted.discard(task)
            self._tasks.pop(task, None)

    def drop(self, vm: str) -> None:
        """Stop watching a VM that is proven gone; it leaves with the next edit."""
        with self._lock:
            self._wanted.discard(vm)
        self._records.forget(vm)

    # The feed

    def changes(self, timeout: float) -> Changes:
        """Wait for changes for at most `timeout` seconds; the first answer asks for everything.

        Raises what the vendor library raises; the next call then builds the watch anew.
        """
        with operation("watch"):
            try:
                return self._changes(timeout)
            except BaseException:
                with self._lock:
                    self._broken = True
                raise

    def _changes(self, timeout: float) -> Changes:
        built = self._built
        if built is None or self._broken or built.login.number != self._session.login.number:
            self._rebuild()
            return Changes(everything=True)
        try:
            told = self._poll(built, self._wait_seconds(timeout))
            return Changes(told.uuids | self._read_details(), told.tasks)
        except vim.fault.NotAuthenticated:
            self._session.renew(built.login)
        except _REBUILD:
            self._break(built)
        except faults.LOST:
            # Another thread renewed the login and ended the calls of the old one.
            if built.login.number == self._session.login.number:
                raise
        self._rebuild()
        return Changes(everything=True)

    def _break(self, built: _Built) -> None:
        with self._lock:
            if self._built is built:
                self._broken = True

    def _wait_seconds(self, timeout: float) -> int:
        """How long the server may wait: until details are due at the latest, but not in a hurry."""
        now = self._monotonic()
        with self._records.lock:
            dues = [r.details_due - now for r in self._records.all() if r.details_due is not None]
        until_due = max(1, math.ceil(min(dues, default=math.inf))) if dues else math.inf
        return int(max(0, min(timeout, self._timings.longest_poll, until_due)))

    def _poll(self, built: _Built, seconds: int) -> Changes:
        collector = _COLLECTOR(built.collector, built.login.watch)
        options = _COLLECTOR.WaitOptions(maxWaitSeconds=seconds, maxObjectUpdates=_PAGE)
        self._stays_current(seconds + _REST)
        words: set[str] = set()
        tasks: set[str] = set()
        update = collector.WaitForUpdatesEx(built.version, options)
        while update is not None:
            built.version = update.version
            self._apply(update, words, tasks)
            if not update.truncated:
                break
            update = collector.WaitForUpdatesEx(built.version, options)
        self._stays_current(_REST)
        self._follow_up()
        return Changes(frozenset(words), frozenset(tasks))

    def _stays_current(self, seconds: float) -> None:
        with self._lock:
            self._current_until = self._monotonic() + seconds

    # Taking over what is told

    def _apply(self, update: Any, words: set[str], tasks: set[str]) -> None:  # noqa: ANN401 - an UpdateSet
        for filter_update in update.filterSet:
            for told in filter_update.objectSet:
                missing(told.missingSet)
                key = moid(told.obj)
                if _is_task(key):
                    self._apply_task(key, told, tasks)
                else:
                    self._apply_vm(key, told, words, tasks)

    def _apply_task(self, key: str, told: Any, tasks: set[str]) -> None:  # noqa: ANN401 - an ObjectUpdate
        with self._lock:
            record = self._tasks.get(key)
            if record is None or told.kind == "leave":
                return
            for change in told.changeSet:
                setattr(record, change.name.removeprefix("info."), change.val)
            if record.state in RUNNING or record.ended_at is not None:
                return
            record.ended_at = self._monotonic()
            made = record.result
            if isinstance(made, vim.VirtualMachine) and not self._is_known(moid(made)):
                # The task is told to be over once its VM is known, so that nobody has to ask.
                self._awaited[moid(made)] = key
                self._wanted.add(moid(made))
            else:
                tasks.add(key)

    def _is_known(self, vm: str) -> bool:
        record = self._records.get(vm)
        return record is not None and record.uuid is not None and not record.gone

    def _apply_vm(self, key: str, told: Any, words: set[str], tasks: set[str]) -> None:  # noqa: ANN401 - an ObjectUpdate
        now = self._monotonic()
        with self._records.lock:
            record = self._records.ensure(key)
            words |= record.words()
            if told.kind == "leave":
                record.gone = True
            else:
                before = (record.ip, record.tools, record.power)
                if told.kind == "enter":
                    record.clear()
                for change in told.changeSet:
                    record.set(change.name, change.val if change.op != "remove" else None)
                record.gone = record.dirty = False
                self._schedule(record, before, now)
            words |= record.words()
        with self._lock:
            if key in self._awaited:
                tasks.add(self._awaited.pop(key))

    def _schedule(
        self, record: VmRecord, before: tuple[object, object, object], now: float
    ) -> None:
        """Have the details read when what was told makes the known ones doubtful."""
        details = record.details
        if (
            details is None
            or details.change_version != record.change_version
            or before[1:] != (record.tools, record.power)
        ):
            record.details_due, record.tries = now, 0
        elif before[0] != record.ip:
            calm = details.read_at + _CALM if self._records.is_told(record) else now
            record.details_due, record.tries = max(now, calm), 0

    def _follow_up(self) -> None:
        """Send the edits that an answer asks for."""
        with self._lock:
            built = self._built
            due = built is not None and bool(self._wanted - built.members)
        if due:
            self._edit(())

    def _read_details(self) -> frozenset[str]:
        """Read the details of all VMs that need it; what cannot be read now is read later."""
        now = self._monotonic()
        with self._records.lock:
            due = [
                record.moid
                for record in self._records.all()
                if record.details_due is not None and record.details_due <= now and not record.gone
            ]
        words: set[str] = set()
        for chunk in _chunks(due, _CHUNK):
            try:
                found = read(self._session, dict.fromkeys(chunk, vim.VirtualMachine), DETAILS)
            except faults.NATIVE:
                self._put_off(chunk, now)
                continue
            words |= self._take_details(found, now)
        return frozenset(words)

    def _put_off(self, moids: Collection[str], now: float) -> None:
        with self._records.lock:
            for key in moids:
                self._records.ensure(key).details_due = now + _RETRIES[0]

    def _take_details(self, found: Collection[Found], now: float) -> set[str]:
        words: set[str] = set()
        with self._records.lock:
            for item in found:
                record = self._records.ensure(item.moid)
                before = record.details
                record.details = read_details(record, item, now)
                self._plan_next_read(record, now)
                if before is None or before.content != record.details.content:
                    words |= record.words()
        return words

    def _plan_next_read(self, record: VmRecord, now: float) -> None:
        waiting = record.running and not self._records.is_told(record)
        if waiting and record.tries < len(_RETRIES):
            record.details_due = now + _RETRIES[record.tries]
            record.tries += 1
        else:
            record.details_due = None

    # Editing what is watched

    def _edit(self, moids: Collection[str]) -> None:
        """Bring the list on the server in line; edits of several threads go as one.

        Failing is no failure of the caller's: the watch is built anew then.
        """
        with self._editing:
            with self._lock:
                built = self._built
                if built is None or self._broken:
                    return
                if moids and built.members.issuperset(moids):
                    return
            self._pause(self._timings.coalesce)
            with self._lock:
                add = self._wanted - built.members
                remove = built.members - self._wanted
            if not add:
                return
            try:
                with operation("watch"):
                    unresolved = _modify(built, add, remove)
            except faults.NATIVE:
                self._break(built)
                return
            with self._lock:
                built.members = (built.members | add) - remove
            self._lose(unresolved)

    def _lose(self, unresolved: Collection[str]) -> None:
        """Take note that objects are not to be seen, which proves nothing yet."""
        with self._lock:
            for key in unresolved:
                self._tasks.pop(key, None)
                self._awaited.pop(key, None)
            self._wanted -= {key for key in unresolved if _is_task(key)}
        with self._records.lock:
            for key in unresolved:
                record = self._records.get(key)
                if record is not None:
                    record.gone = True

    def _rebuild(self) -> None:
        """Build the watch for the login in use and take over everything anew."""
        with self._editing:
            with self._lock:
                old, self._built = self._built, None
                wanted = set(self._wanted)
            if old is not None:
                _destroy(old)
            built = self._session.run(_build)
            unresolved = _modify(built, wanted, ()) if wanted else ()
            with self._lock:
                built.members = wanted
                self._built, self._broken = built, False
        self._lose(unresolved)
        self._poll(built, 0)
        self._read_details()


def _is_task(key: str) -> bool:
    return key.startswith("task-")


def _managed(key: str, login: Login) -> Any:  # noqa: ANN401 - any managed object
    kind = vim.Task if _is_task(key) else vim.VirtualMachine
    return kind(key, login.ops)


def _modify(built: _Built, add: Collection[str], remove: Collection[str]) -> tuple[str, ...]:
    view = vim.view.ListView(built.view, built.login.ops)
    unresolved = view.ModifyListView(
        add=[_managed(key, built.login) for key in sorted(add)],
        remove=[_managed(key, built.login) for key in sorted(remove)],
    )
    return tuple(moid(key) for key in unresolved or ())


def _build(login: Login) -> _Built:
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
    return _Built(login, moid(collector), moid(view))


def _destroy(built: _Built) -> None:
    """Best effort: what a dead session left behind is gone with it."""
    login = built.login
    with contextlib.suppress(*faults.NATIVE):
        _COLLECTOR(built.collector, login.ops).DestroyPropertyCollector()
    with contextlib.suppress(*faults.NATIVE):
        vim.view.ListView(built.view, login.ops).DestroyView()


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def read_task(session: Session, task: str) -> TaskRecord | None:
    """A task as it is now, in one call; None when nobody knows it any more."""
    try:
        found = read(session, {task: vim.Task}, TASK_PATHS)[0]
    except vmodl.fault.ManagedObjectNotFound:
        return None
    return TaskRecord(
        task,
        state=str(found.get("info.state", "queued")),
        error=found.get("info.error"),
        result=found.get("info.result"),
    )
