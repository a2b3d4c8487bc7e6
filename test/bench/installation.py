"""What an installation spends while it is measured, and when what it makes becomes what."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from test.bench.figures import Figures, writers
from test.bench.processes import cpu
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube, KubeError, Object
from test.kit.process import Process
from test.kit.vcsim import VCSim

LONG_POLL: Final = "WaitForUpdatesEx"
_WATCH_SECONDS: Final = 600.0
_PAUSE: Final = 0.2


def calls_at(vcenter: VCSim) -> Counter[str]:
    """SOAP and REST calls it got since its counters were reset, by name."""
    counted = vcenter.counters()
    return Counter(counted.soap) + Counter(counted.rest)


def without_polls(calls: Mapping[str, int]) -> int:
    """How many calls there were besides the long poll, which a client makes with nothing to do."""
    return sum(count for name, count in calls.items() if name != LONG_POLL)


def called(what: str, calls: Mapping[str, int], vms: int) -> Figures:
    """Calls per VM of a phase, with the long poll and without."""
    return {
        f"calls per VM, {what}": sum(calls.values()) / vms,
        f"calls per VM, {what}, no long polls": without_polls(calls) / vms,
    }


def switched_on(vcenter: VCSim) -> list[float]:
    """When the VMs there were switched on, seconds since the epoch."""
    return [it.powered_on for it in vcenter.vms() if it.powered_on and not it.template]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a while cost.

    Attributes:
        seconds: How long it was.
        calls: Calls at vCenter by name.
        writes: Writes at the API server: who, what, how often; Leases left out.
        cpu: Seconds of processor time by process.
    """

    seconds: float
    calls: Counter[str]
    writes: Mapping[str, Counter[str]]
    cpu: Mapping[str, float]


class Spending:
    """Measures from the moment it is made; one is good for as long as its processes live."""

    def __init__(
        self, plane: ControlPlane, vcenter: VCSim, processes: Mapping[str, Process]
    ) -> None:
        self._plane, self._vcenter = plane, vcenter
        self._processes = {
            **processes,
            "API server": plane.apiserver,
            "etcd": plane.etcd,
            "vcsim": vcenter.process,
        }
        self._since = plane.audit_position()
        self._calls = calls_at(vcenter)
        self._cpu = self._used()
        self._began = time.monotonic()

    def stop(self) -> Spent:
        """What was spent so far."""
        seconds, used = time.monotonic() - self._began, self._used()
        return Spent(
            seconds=seconds,
            calls=calls_at(self._vcenter) - self._calls,
            writes=writers(self._plane.audit_writes(self._since)),
            cpu={name: used[name] - before for name, before in self._cpu.items()},
        )

    def _used(self) -> dict[str, float]:
        return {name: cpu(process.pid) for name, process in self._processes.items()}


class Watch:
    """When objects of a kind in a namespace were first ready and when they were gone.

    A watch, because lists of many objects would burden what is measured.

    Attributes:
        ready: Seconds since the epoch at which each was seen ready first.
        gone: The same for its end.
        breaks: How often the watch broke; what ended meanwhile is not in `gone`.
    """

    def __init__(
        self, plane: ControlPlane, namespace: str, kind: str, ready: Callable[[Object], bool]
    ) -> None:
        """Describe it; the `with` block follows.

        Args:
            plane: Whose API server is asked.
            namespace: Where the objects are.
            kind: Their kind.
            ready: Tells whether one of them is.
        """
        self._kube = Kube(plane.kubeconfig, user_agent="banlieue-bench")
        self._namespace, self._kind, self._is_ready = namespace, kind, ready
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.ready: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self.breaks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        while self._thread.is_alive():
            self._kube.close()
            self._thread.join(_PAUSE)

    def left(self, names: Sequence[str]) -> bool:
        """Whether any of these is there still."""
        if not self.breaks:
            return any(name not in self.gone for name in names)
        found = self._kube.list(self._kind, self._namespace)
        return not {obj["metadata"]["name"] for obj in found}.isdisjoint(names)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except KubeError:
                # Ended by us, or broken: what there is comes again as ADDED.
                self._stopped.wait(_PAUSE)
            self.breaks += 1

    def _read(self) -> None:
        watch = self._kube.watch(self._kind, self._namespace, timeout=_WATCH_SECONDS)
        for event in watch:
            name, now = event.object["metadata"]["name"], time.time()
            if event.type == "DELETED":
                self.gone.setdefault(name, now)
            elif self._is_ready(event.object):
                self.ready.setdefault(name, now)
