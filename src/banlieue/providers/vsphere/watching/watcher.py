"""Watches our VMs and our running tasks: one collector, one list, one filter, no polling.

The list holds exactly what is ours; foreign objects, which a vCenter has many of and some of which
cannot be decoded, are never asked about. After any disturbance the collector is destroyed and built
anew, since only that makes every server tell everything again.

The more is going on, the longer questions and edits are gathered: many VMs made together, or one
after the other, cost few calls, and a single one is told at once. VMs that were just made are read
whole as soon as their tasks tell of them; the list covers them from the next edit on.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Session, Timings
from banlieue.providers.vsphere.client.soap import missing, moid
from banlieue.providers.vsphere.client.transport import operation
from banlieue.providers.vsphere.watching import watchlist
from banlieue.providers.vsphere.watching.detailing import Detailer
from banlieue.providers.vsphere.watching.ends import Ends
from banlieue.providers.vsphere.watching.leaving import Leaving
from banlieue.providers.vsphere.watching.records import Records
from banlieue.providers.vsphere.watching.rhythm import Rhythm
from banlieue.providers.vsphere.watching.watchlist import RUNNING, TaskRecord, WatchList, is_task
from banlieue.sdk.powers import Changes

Later = Callable[[float, Callable[[], None]], None]
"""Runs something after so many seconds, elsewhere."""

_REST = 2.0
"""Seconds after the end of a poll for which what it told still counts as current."""

_REBUILD: tuple[type[Exception], ...] = (
    vmodl.query.InvalidCollectorVersion,
    vmodl.fault.ManagedObjectNotFound,
    vmodl.fault.RequestCanceled,
)


def in_background(seconds: float, call: Callable[[], None]) -> None:
    """The `Later` of a real process: a short-lived thread."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


class Watcher:
    """Feeds the records. `changes` is called from one thread, everything else from any."""

    def __init__(
        self,
        session: Session,
        records: Records,
        timings: Timings,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        pause: Callable[[float], object] | None = None,
        later: Later = in_background,
    ) -> None:
        self._session = session
        self._records = records
        self._details = Detailer(session, records, monotonic)
        self._timings = timings
        self._monotonic = monotonic
        self._rhythm = Rhythm(monotonic, timings, self._open)
        self._pause = pause or self._rhythm.enough.wait
        self._later = later
        self.on_leave: Callable[[Collection[str]], None] = lambda _: None
        """Told of VMs that left, in the feed's thread, before anybody else is."""
        self.on_stopped: Callable[[Collection[str]], None] = lambda _: None
        """The same of VMs that were stopped to be destroyed."""
        self.builds = 0
        """How often the watch was built: what went and came back in between was told by nobody."""
        self.ends = Ends(monotonic)
        self._leaving = Leaving(monotonic)
        self._stopped: set[str] = set()
        self._lock = threading.RLock()
        self._editing = threading.Lock()
        self._list: WatchList | None = None
        self._wanted: set[str] = set()
        self._tasks: dict[str, TaskRecord] = {}
        self._awaited: dict[str, str] = {}
        self._young: set[str] = set()
        self._adding: set[str] = set()
        self._unmet: set[str] = set()
        self._lost: set[str] = set()
        self._edit_planned = False
        self._resting = False
        self._broken = False
        self._building = False
        self._current_until = -math.inf

    # What others ask

    @property
    def healthy(self) -> bool:
        """Whether the records are current: a poll is under way, or ended just now."""
        with self._lock:
            watched, until = self._list, self._current_until
            if watched is None or self._broken or not watched.told:
                return False
        return self._monotonic() < until and watched.login.number == self._session.login.number

    @property
    def building(self) -> bool:
        """Whether the watch is being built at this moment; it ends with everything being told."""
        return self._building

    @contextlib.contextmanager
    def preparing(self) -> Iterator[None]:
        """Say that the feed's thread is about to build the watch, if there is none."""
        self._building = self._list is None
        try:
            yield
        finally:
            self._building = False

    def task(self, task: str) -> TaskRecord | None:
        """What the watch told of a task; None when it tells nothing."""
        with self._lock:
            found = self._tasks.get(task)
            if found is None or not self.healthy:
                return None
            return found if found.ended or task not in self.ends.late else None

    def watches(self, vm: str) -> bool:
        """Whether a VM is among those whose changes are told, or was read and is soon to be."""
        with self._lock:
            return self._list is not None and (vm in self._list.members or vm in self._young)

    def add(self, *moids: str) -> None:
        """Watch VMs or tasks, from soon on.

        Edits that come together travel together, behind the caller's back: nothing is lost by a
        late one, as all is told of an object when it is added.
        """
        with self._lock:
            self._wanted.update(moids)
            for key in moids:
                self.ends.forget(key)
                if is_task(key) and key not in self._tasks:
                    self._tasks[key] = TaskRecord(key)
                    self._rhythm.task_began()
        self._plan_edit()

    def follow_end(self, task: str, vm: str) -> None:
        """Follow a task whose end `ends` expects to show on its VM; otherwise it is watched."""
        with self._lock:
            watched = self._list
            covered = watched is not None and vm in watched.members - self._unmet
            shown = self.ends.name(vm, task) if covered and self.healthy else None
            if shown is not None:
                self._tasks[task] = TaskRecord(task)
                if shown:
                    self._show(task)
                return
        self.ends.cancel(vm)
        self.add(task)

    def _show(self, task: str) -> None:
        """The end of a task showed on its VM; the caller holds the lock."""
        record = self._tasks.get(task)
        if record is not None:
            record.state, record.ended, record.shown = "success", True, True

    def settle(self, task: str) -> None:
        """Stop watching a task whose end was taken notice of; it leaves with the next edit."""
        with self._lock:
            self.ends.forget(task)
            self._wanted.discard(task)
            self._tasks.pop(task, None)

    def drop(self, vm: str) -> None:
        """Stop watching a VM that is proven gone; it leaves with the next edit."""
        with self._lock:
            self._wanted.discard(vm)
            self._young.discard(vm)
            self._tasks.pop(self.ends.cancel(vm), None)
        self._leaving.forget(vm)
        self._records.forget(vm)

    # The feed

    def changes(self, timeout: float) -> Changes:
        """Wait for changes for at most `timeout` seconds; the first answer asks for everything.

        Raises what the vendor library raises; the next call then builds the watch anew.
        """
        with operation("watch"):
            try:
                return self._changes(timeout)
            # Whatever ended the poll, the watch is rebuilt next time; raised again.
            except BaseException:
                with self._lock:
                    self._broken = True
                raise
            finally:
                self._building = False

    def _changes(self, timeout: float) -> Changes:
        watched = self._list
        login = self._session.login
        if watched is None or self._broken or watched.login.number != login.number:
            return self._rebuild()
        try:
            if self._rhythm.rest() > timeout:
                self._stays_current(timeout + _REST)
                self._pause(timeout)
                return Changes()
            told = self._poll(watched, self._wait_seconds(timeout))
            left = self._take_left()
            stopped, self._stopped = self._stopped, set()
            if stopped:
                self.on_stopped(stopped)
            made, tasks = self._read_made()
            words = made | left.uuids | self._take_lost()
            return Changes(told.uuids | words, told.tasks | left.tasks | tasks)
        except vim.fault.NotAuthenticated:
            self._session.renew(watched.login)
        except _REBUILD:
            self._break(watched)
        except faults.LOST:
            # Another thread renewed the login, which ends the calls of the old one.
            if watched.login.number == self._session.login.number:
                raise
        return self._rebuild()

    def _wait_seconds(self, timeout: float) -> int:
        """How long the server may wait: until details are due at the latest, but not in a hurry."""
        due = self._details.seconds_until_due()
        until_due = math.inf if due is None else max(1, math.ceil(due))
        left = self._leaving.seconds
        if left is not None:
            until_due = min(until_due, max(1, math.ceil(left)))
        return int(max(0.0, min(timeout, self._timings.longest_poll, until_due)))

    def _take_left(self) -> Changes:
        """What is to be told of VMs that left."""
        left = self._leaving.take()
        if not left:
            return Changes()
        self.on_leave(left)
        words = frozenset().union(*(told.uuids for told in left.values()))
        return Changes(words, frozenset().union(*(told.tasks for told in left.values())))

    def _poll(self, watched: WatchList, seconds: int) -> Changes:
        rest = self._rhythm.rest()
        if rest > 0 or self._rhythm.enough.is_set():
            self._stays_current(rest + _REST)
            self._gather(rest)
        self._stays_current(seconds + _REST)
        words: set[str] = set()
        tasks: set[str] = set()
        with self._lock:
            added = set(self._unmet)
        update = watched.wait(seconds)
        while update is not None:
            self._apply(update, words, tasks)
            update = watched.wait(0) if update.truncated else None
        self._doubt_unmet(added, words, tasks)
        self._stays_current(_REST)
        if words or tasks or self._awaited or self._leaving.seconds is not None:
            self._rhythm.told()
        self._plan_edit()
        return Changes(frozenset(words), frozenset(tasks))

    def _gather(self, seconds: float) -> None:
        """Let changes and what is to be watched come together; then the next poll tells of all."""
        with self._lock:
            self._resting = True
        self._pause(seconds)
        with self._lock:
            self._resting = False
            self._rhythm.enough.clear()
        self._edit()

    def _stays_current(self, seconds: float) -> None:
        with self._lock:
            self._current_until = self._monotonic() + seconds

    def expect_more(self) -> None:
        """Count a VM that is about to be made, so that gathering begins with the first."""
        self._rhythm.expect_more()

    def expect_end(self, vm: str) -> None:
        """Count a VM that is about to be destroyed; its details are of no interest any more."""
        self._leaving.expect(vm)
        with self._records.lock:
            record = self._records.ensure(vm)
            known, record.leaving, record.details_due = record.leaving, True, None
        if not known:
            self._rhythm.expect_end()

    @property
    def busy(self) -> bool:
        """Whether more is going on than a few things at a time."""
        return self._rhythm.busy

    @property
    def making(self) -> bool:
        """Whether several VMs were begun, or ended, lately, and more may follow."""
        return self._rhythm.making

    def _open(self) -> int:
        """How many tasks of ours run that somebody waits for, or VMs that boot."""
        with self._lock:
            late = self.ends.late
            running = sum(not it.ended and it.moid not in late for it in self._tasks.values())
        return max(running, self._details.expecting)

    # Taking over what is told

    def _apply(self, update: Any, words: set[str], tasks: set[str]) -> None:  # noqa: ANN401 - an UpdateSet
        for filter_update in update.filterSet:
            for told in filter_update.objectSet:
                missing(told.missingSet)
                key = moid(told.obj)
                if is_task(key):
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
            if record.state in RUNNING or record.ended:
                return
            record.ended = True
            made = record.result
            if isinstance(made, vim.VirtualMachine) and not self._is_known(moid(made)):
                # The task is told to be over once its VM is known, so that nobody has to ask.
                self._awaited[moid(made)] = key
                self._wanted.add(moid(made))
            else:
                tasks.add(key)

    def _read_made(self) -> tuple[frozenset[str], frozenset[str]]:
        """Read VMs whose tasks just ended, and details that are due, in one call: words and tasks.

        What cannot be read is told when the list covers it.
        """
        with self._lock:
            made = [vm for vm in self._awaited if vm not in self._young]
        words, changed = self._details.read(made)
        tasks = set()
        with self._lock:
            for vm in words:
                self._young.add(vm)
                if vm in self._awaited:
                    tasks.add(self._awaited.pop(vm))
        return changed.union(*words.values()), frozenset(tasks)

    def _is_known(self, vm: str) -> bool:
        record = self._records.get(vm)
        return record is not None and record.uuid is not None and not record.gone

    def _apply_vm(self, key: str, told: Any, words: set[str], tasks: set[str]) -> None:  # noqa: ANN401 - an ObjectUpdate
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
                self._details.told(record, before)
            words |= record.words()
            ended = self.ends.show(key, power=record.power, gone=record.gone)
        if told.kind == "leave":
            words -= self._keep_left(key, ended)
        elif ended is not None:
            self._stopped.add(key)
            tasks |= {ended} - {""}
        with self._lock:
            if ended:
                self._show(ended)
            self._adding.discard(key)
            self._unmet.discard(key)
            if key in self._awaited:
                tasks.add(self._awaited.pop(key))

    def _keep_left(self, vm: str, ended: str | None) -> frozenset[str]:
        """Have the leave of a VM told, soon if we destroyed it, else at once; its words."""
        record = self._records.get(vm)
        words = record.words() if record is not None else frozenset()
        self._leaving.left(vm, words, ended)
        return words

    def _doubt_unmet(self, added: set[str], words: set[str], tasks: set[str]) -> None:
        """Doubt VMs that were on the list before a poll and that it did not tell.

        A VM that goes between the edit and the next poll is told neither as one that came nor as
        one that went.
        """
        with self._lock:
            unmet = added & self._unmet
            self._unmet -= unmet
            tasks |= {self._awaited.pop(vm) for vm in unmet if vm in self._awaited}
        self._records.doubt(unmet)
        for vm in unmet:
            record = self._records.get(vm)
            words |= record.words() if record is not None else frozenset()

    # Editing what is watched

    def _plan_edit(self) -> None:
        """Have the list on the server brought in line soon, if it is not."""
        with self._lock:
            watched = self._list
            if watched is None or self._broken or self._wanted <= watched.members:
                return
            if self._resting and len(self._wanted - watched.members) >= self._rhythm.plenty:
                self._rhythm.enough.set()
            if self._resting or self._edit_planned:
                return
            self._edit_planned = True
        self._later(max(self._timings.coalesce, self._rhythm.rest()), self._edit_if_awake)

    def _edit_if_awake(self) -> None:
        """Edit, unless the feed rests: then it edits when it wakes, just before it asks."""
        with self._lock:
            self._edit_planned = False
            if self._resting:
                return
        self._edit()

    def _edit(self) -> None:
        """Bring the list in line. Failing is nobody's failure: the watch is built anew then."""
        with self._editing:
            with self._lock:
                watched = self._list
                if watched is None or self._broken:
                    return
                add = self._wanted - watched.members
                remove = watched.members - self._wanted
                self._adding = {key for key in add if not is_task(key)}
            if not add:
                return
            try:
                with operation("watch"):
                    unresolved = watched.modify(add, remove)
            except faults.NATIVE:
                self._break(watched)
                return
            with self._lock:
                watched.members = (watched.members | add) - remove
                self._young -= add
                self._unmet |= self._adding - set(unresolved)
            self._lose(unresolved)

    def _lose(self, unresolved: Collection[str]) -> None:
        """Take note that objects are not to be seen, which proves nothing yet."""
        with self._lock:
            for key in unresolved:
                self._tasks.pop(key, None)
                self._awaited.pop(key, None)
                self._young.discard(key)
                self._tasks.pop(self.ends.cancel(key), None)
            self._wanted -= {key for key in unresolved if is_task(key)}
        lost: set[str] = set()
        with self._records.lock:
            for key in unresolved:
                record = self._records.get(key)
                if record is not None:
                    record.gone = True
                    lost |= record.words()
        with self._lock:
            self._lost |= lost

    def _take_lost(self) -> frozenset[str]:
        """Words of VMs that went before they were watched, which the server tells nobody."""
        with self._lock:
            lost, self._lost = frozenset(self._lost), set()
        return lost

    def _break(self, watched: WatchList) -> None:
        with self._lock:
            if self._list is watched:
                self._broken = True

    def _rebuild(self) -> Changes:
        """Build the watch for the login in use and take over everything anew.

        What is not told again, for want of rights, is not known from before either.
        """
        self._building = True
        with self._editing:
            with self._lock:
                old, self._list = self._list, None
                self._young.clear()
                self._unmet.clear()
            if old is not None and old.login.number == self._session.login.number:
                old.destroy()
            watched = self._session.run(watchlist.build)
            with self._lock:
                self._wanted |= self.ends.take_all()
                wanted = set(self._wanted)
            self._records.doubt(wanted)
            unresolved = watched.modify(wanted, ()) if wanted else ()
            watched.members = wanted
            with self._lock:
                self._list, self._broken = watched, False
                self.builds += 1
        self._lose(unresolved)
        self._poll(watched, 0)
        watched.told = True
        self._details.read_due()
        return Changes(everything=True)
