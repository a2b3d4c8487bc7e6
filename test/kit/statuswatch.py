"""Watches everything banlieue reports while a test runs, and tells what should never be seen.

    with StatusWatch(control_plane) as watch:
        ...
    assert not watch.findings

Kinds have to be installed before. The API server may be stopped and started meanwhile.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from banlieue.api.names import GROUP, LABEL_MACHINE_KIND
from test.kit.kube import Kube, KubeError, Object, WatchEvent
from test.kit.statusrules import difference, faults_between, faults_of, is_ours
from test.kit.waiting import WaitTimeoutError, wait_until

T = TypeVar("T")

_WATCH_SECONDS: Final = 600.0
_PAUSE: Final = 0.2
_CATCH_UP_SECONDS: Final = 10.0
_EXPIRED: Final = 410
_UNKNOWN: Final = 404


@dataclass(frozen=True, slots=True)
class Version:
    """An object as it was at one moment; `time` is seconds of the monotonic clock."""

    time: float
    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a version broke, with what changed by it."""

    where: str
    fault: str
    change: str

    def __str__(self) -> str:
        return f"{self.where}: {self.fault}\n{self.change}"


class Reached(Protocol):
    """An API server somebody has a kubeconfig for."""

    @property
    def kubeconfig(self) -> Path:
        """That of an administrator."""


class StatusWatch:
    """Watches VirtualMachines, Providers and every machine kind that is installed.

    Attributes:
        findings: What should not have been, in the order it was seen.
    """

    def __init__(self, server: Reached, more: Sequence[str] = ()) -> None:
        """Describe it; the `with` block begins and ends it.

        Args:
            server: Where.
            more: Kinds besides, such as `vsphereclusters`.
        """
        self._kube = Kube(server.kubeconfig, user_agent="banlieue-status-watch")
        self.findings: list[Finding] = []
        self._more = tuple(more)
        self._kinds: list[str] = []
        self._threads: list[threading.Thread] = []
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._versions: list[Version] = []
        self._last: dict[str, Object] = {}
        self._gaps: set[str] = set()
        self._crash: Exception | None = None

    def __enter__(self) -> Self:
        crds = self._kube.list(
            "customresourcedefinitions", label_selector=f"{LABEL_MACHINE_KIND}=true"
        )
        machines = [crd["metadata"]["name"] for crd in crds]
        for kind in (f"virtualmachines.{GROUP}", f"providers.{GROUP}", *machines, *self._more):
            self.follow(kind)
        return self

    def follow(self, kind: str, *, lasting: bool = True) -> None:
        """Watch one more kind; nothing happens when it is watched already.

        Args:
            kind: Such as `vsphereclusters`.
            lasting: Whether it is there for good; then every version from now on is seen. Else the
                watch begins a little later, and ends with the kind.
        """
        with self._lock:
            if kind in self._kinds:
                return
            self._kinds.append(kind)
        version = self._begin(kind) if lasting else None
        how = {"lasting": lasting, "version": version}
        thread = threading.Thread(target=self._follow, args=(kind,), kwargs=how, daemon=True)
        thread.start()
        self._threads.append(thread)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """See what there is to be seen still, then end."""
        if self._stopped.is_set():
            return
        try:
            wait_until(self.caught_up, _CATCH_UP_SECONDS, "the watch", retry_on=(KubeError,))
        except WaitTimeoutError as late:
            self.findings.append(Finding("the watch", "it did not keep up", str(late)))
        self._stopped.set()
        while any(thread.is_alive() for thread in self._threads):
            self._kube.close()
            self._threads[0].join(_PAUSE)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._kube.close()
        if self._crash is not None:
            raise self._crash

    def caught_up(self) -> bool:
        """Whether the newest version of every object there is was seen."""
        if self._crash is not None:
            return True
        with self._lock:
            kinds = tuple(self._kinds)
        objects = [obj["metadata"] for kind in kinds for obj in self._kube.list(kind)]
        with self._lock:
            seen = {uid: obj["metadata"]["resourceVersion"] for uid, obj in self._last.items()}
        return all(seen.get(it["uid"]) == it["resourceVersion"] for it in objects)

    # What was seen

    def everything(self, since: int = 0) -> list[Version]:
        """All versions of all objects but the first `since` ones, in the order they came."""
        with self._lock:
            return self._versions[since:]

    def versions(self, kind: str, name: str) -> list[Version]:
        """All versions of the objects of a kind and name (`VirtualMachine`), in their order."""
        with self._lock:
            return [
                it
                for it in self._versions
                if (it.object["kind"], it.object["metadata"]["name"]) == (kind, name)
            ]

    def values(self, kind: str, name: str, of: Callable[[Object], T]) -> list[T]:
        """What a part of an object was, one after the other; what stayed the same once."""
        found: list[T] = []
        for version in self.versions(kind, name):
            value = of(version.object)
            if not found or found[-1] != value:
                found.append(value)
        return found

    def report(self) -> str:
        """All findings, to be read; empty when there are none."""
        return "\n\n".join(map(str, self.findings))

    # Threads

    def _begin(self, kind: str) -> str:
        objects, version = self._kube.snapshot(kind)
        for obj in objects:
            self._take(WatchEvent("ADDED", obj))
        return version

    def _follow(self, kind: str, *, lasting: bool, version: str | None) -> None:
        while not self._stopped.is_set():
            try:
                for event in self._events(kind, version):
                    self._take(event)
                    version = event.object["metadata"]["resourceVersion"]
            except KubeError as error:
                if error.status == _UNKNOWN and not lasting:
                    with self._lock:
                        self._kinds.remove(kind)
                    return
                if error.status == _EXPIRED:
                    version = None
                    self._note_gap()
                self._stopped.wait(_PAUSE)
            # Not handled here: it is raised when the watch is stopped.
            except Exception as error:  # noqa: BLE001 - carried to the test
                self._crash = error
                return

    def _events(self, kind: str, version: str | None) -> Iterator[WatchEvent]:
        return self._kube.watch(kind, timeout=_WATCH_SECONDS, resource_version=version)

    def _note_gap(self) -> None:
        with self._lock:
            self._gaps |= self._last.keys()

    def _take(self, event: WatchEvent) -> None:
        obj, uid = event.object, event.object["metadata"]["uid"]
        with self._lock:
            old = self._last.get(uid)
            if old and old["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]:
                return  # shown again after a break
            self._last[uid] = obj
            self._versions.append(Version(time.monotonic(), event.type, obj))
            self._judge(event.type, None if uid in self._gaps else old, obj)
            self._gaps.discard(uid)

    def _judge(self, kind: str, old: Object | None, new: Object) -> None:
        faults = list(faults_of(new, old))
        if old is not None and kind == "MODIFIED" and is_ours(old, new):
            faults += faults_between(old, new)
        if not faults or (old is not None and not is_ours(old, new)):
            return
        meta: dict[str, Any] = new["metadata"]
        where = f"{new['kind']} {meta.get('namespace', '')}/{meta['name']}"
        change = difference(old, new)
        self.findings += [Finding(where, fault, change) for fault in faults]
