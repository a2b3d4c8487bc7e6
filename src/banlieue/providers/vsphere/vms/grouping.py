"""Keeps VMs apart, or on the hosts of their failure domain, by groups and rules of their cluster.

One writer per cluster: what is asked for while an edit runs goes into the next one, made from what
is read then. Nothing counts as done before it was read back, since an admin may edit at the same
moment, and the later edit of a list wins.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid, read, read_one
from banlieue.providers.vsphere.places import groups
from banlieue.providers.vsphere.places.groups import Group, Groups
from banlieue.providers.vsphere.watching.watchlist import RUNNING, read_task

log = logging.getLogger(__name__)

_SOON = 0.5
_GATHER = 0.3
"""Seconds that the first of several machines waits so that the others join its edit."""

Names = frozenset[Group]


@dataclass(slots=True)
class _Cluster:
    """What is asked for in a cluster, and the edit that runs."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    wanted: dict[str, Names] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    since: float | None = None
    task: str | None = None
    next_look: float = 0.0
    known: Groups | None = None


@dataclass(slots=True, kw_only=True)
class Grouping:
    """The groups of all clusters of a vCenter. Thread-safe."""

    session: Session
    provider: str
    monotonic: Callable[[], float]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _clusters: dict[str, _Cluster] = field(init=False, default_factory=dict)
    _settled: dict[str, tuple[str, Names]] = field(init=False, default_factory=dict)
    _installations: set[str] = field(init=False, default_factory=set)

    def step(self, vm: str, cluster: str, wanted: Collection[Group]) -> float | None:
        """One step towards a VM's groups; gives the seconds until the next, None when all is so.

        Raises what the vendor library raises; the other VMs of the cluster are asked about again.
        """
        names = frozenset(wanted)
        with self._lock:
            if self._settled.get(vm, ("", frozenset())) == (cluster, names):
                return None
            state = self._clusters.setdefault(cluster, _Cluster())
        if not names and not self._is_member(cluster, state, vm):
            return None
        with self._lock:
            state.wanted[vm] = names
            state.gone.discard(vm)
            if state.since is None:
                state.since = self.monotonic()
        self._advance(cluster, state)
        with self._lock:
            return None if self._settled.get(vm) == (cluster, names) else _SOON

    def _is_member(self, cluster: str, state: _Cluster, vm: str) -> bool:
        """Whether a VM that asks for no group is in one of ours; read once for all VMs."""
        with self._lock:
            if vm in self._settled:
                return bool(self._settled[vm][1])
        with state.lock:
            if state.known is None:
                state.known = self._read(cluster)
            return bool(state.known.of(vm))

    def belongs(self, installation: str) -> None:
        """Take note of an installation whose groups this Provider keeps."""
        with self._lock:
            self._installations.add(installation)

    def left(self, vm: str) -> bool:
        """A VM is being destroyed; whether it is in a group, whose rest `tidy` takes away."""
        with self._lock:
            cluster, names = self._settled.pop(vm, ("", frozenset()))
            if names:
                self._clusters[cluster].gone.add(vm)
            for state in self._clusters.values():
                state.wanted.pop(vm, None)
        return bool(names)

    def tidy(self) -> float | None:
        """Take away what VMs that are gone left; seconds until the next step, None for no more.

        What fails is tried again with the next VM that goes.
        """
        with self._lock:
            due = [(key, state) for key, state in self._clusters.items() if state.gone]
        for key, state in due:
            try:
                self._advance(key, state)
            except vim.fault.NotAuthenticated:
                raise
            except faults.NATIVE as error:
                with self._lock:
                    state.gone.clear()
                log.info("a group could not be cleaned", extra={"fault": type(error).__name__})
        return _SOON if any(state.gone for _, state in due) else None

    def clean(self, clusters: Iterable[str]) -> None:
        """Look once for what an earlier process left empty in clusters; one read."""
        keys = dict.fromkeys(clusters, vim.ClusterComputeResource)
        ends = self._ends()
        if not keys or not ends:
            return
        for found in read(self.session, keys, groups.PATHS):
            there = Groups.parse(found)
            if groups.changes(there, {}, (), ends):
                with self._lock:
                    state = self._clusters.setdefault(found.moid, _Cluster())
                self._advance(found.moid, state)

    def _ends(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(groups.whose(it, self.provider) for it in sorted(self._installations))

    # The writer

    def _advance(self, cluster: str, state: _Cluster) -> None:
        """Take the writer's next step, unless another thread is at it."""
        if not state.lock.acquire(blocking=False):
            return
        try:
            if state.task is not None:
                self._look_at(state)
            if state.task is None and not self._gathers(state):
                self._write(cluster, state)
        finally:
            state.lock.release()

    def _gathers(self, state: _Cluster) -> bool:
        since = state.since
        return since is not None and self.monotonic() - since < _GATHER

    def _look_at(self, state: _Cluster) -> None:
        """Whether the edit has ended; raises what it failed with."""
        now = self.monotonic()
        if now < state.next_look:
            return
        state.next_look = now + _GATHER
        told = read_task(self.session, state.task or "")
        if told is not None and told.state in RUNNING:
            return
        state.task = None
        if told is not None and isinstance(told.error, vmodl.MethodFault):
            self._start_over(state)
            raise told.error

    def _start_over(self, state: _Cluster) -> None:
        """Forget who asked, after an edit that failed: whoever is there asks again.

        A VM that went meanwhile does not, and would have every edit fail.
        """
        with self._lock:
            state.wanted.clear()

    def _read(self, cluster: str) -> Groups:
        found = read_one(self.session, cluster, vim.ClusterComputeResource, groups.PATHS)
        return Groups.parse(found)

    def _write(self, cluster: str, state: _Cluster) -> None:
        """Read what is there, settle what is so, and start an edit of what is not."""
        with self._lock:
            wanted, gone = dict(state.wanted), frozenset(state.gone)
        there = self._read(cluster)
        due = groups.changes(there, wanted, gone, self._ends())
        names = {change.name for change in due}
        with self._lock:
            state.known, state.since = there, None
            for vm, asked in wanted.items():
                if state.wanted.get(vm) != asked or _concerned(there, vm, asked) & names:
                    continue
                del state.wanted[vm]
                self._settled[vm] = (cluster, asked)
            state.gone = {vm for vm in state.gone if vm not in gone or there.of(vm) & names}
        if not due:
            return

        def start(login: Login) -> str:
            managed = vim.ClusterComputeResource(cluster, login.ops)
            spec = groups.edit(due, login.ops)
            return moid(managed.ReconfigureComputeResource_Task(spec=spec, modify=True))

        try:
            state.task = self.session.run(start)
        except vim.fault.NotAuthenticated:
            raise
        except vmodl.MethodFault:
            self._start_over(state)
            raise


def _concerned(there: Groups, vm: str, asked: Names) -> frozenset[str]:
    """Names of the groups that say whether a VM is where it should be."""
    return there.of(vm) | {group.name for group in asked}
