"""What a benchmark measures: processes that make VMs out of objects, and the course each runs.

Every subject goes through the same phases: VMs made together, rest, a restart beside them, and
deletion together.
"""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from test.bench.figures import Figures, per_vm, share, times
from test.bench.installation import (
    LONG_POLL,
    Spending,
    Spent,
    Watch,
    called,
    calls_at,
    switched_on,
    without_polls,
)
from test.bench.processes import rss
from test.kit.controlplane import ControlPlane
from test.kit.kube import Object
from test.kit.process import Process
from test.kit.vcsim import VCSim
from test.kit.vcsim_values import Machine
from test.kit.waiting import stays_true, wait_until

Column = dict[str, Any]

_WRITERS: Final = 4
_LATE: Final = 2.0
_QUIET: Final = 3.0
_WARM_UP: Final = "warm-up"


class Subject(ABC):
    """Something that is ready to make VMs, on a control plane and a vCenter of its own.

    Attributes:
        kind: The kind of object that a VM is asked for by, as the API server names it.
        plane: Its control plane.
        vcenter: Its vCenter.
        processes: What of it runs, by name.
        namespace: Where its objects are.
        patience: Seconds to wait for a step.
    """

    kind: str

    def __init__(
        self,
        plane: ControlPlane,
        vcenter: VCSim,
        processes: Mapping[str, Process],
        namespace: str,
        patience: float,
    ) -> None:
        self.plane, self.vcenter, self.processes = plane, vcenter, processes
        self.namespace, self.patience = namespace, patience

    @abstractmethod
    def create(self, name: str) -> None:
        """Ask for a VM, as its users do."""

    @abstractmethod
    def is_ready(self, obj: Object) -> bool:
        """Whether an object of its kind tells that its VM is there and has an address."""

    @abstractmethod
    def restart(self) -> None:
        """Kill what calls the vCenter, start it again, and wait until it is back at work."""

    def delete(self, name: str) -> None:
        """Ask for the end of a VM."""
        self.plane.kube.delete(self.kind, name, self.namespace)

    def watch(self) -> Watch:
        """Learn when VMs of this subject become ready and when they are gone."""
        return Watch(self.plane, self.namespace, self.kind, self.is_ready)

    def warm_up(self) -> Machine:
        """Make a VM and delete it; what it was at vCenter."""
        self.create(_WARM_UP)
        self.plane.kube.wait_for(
            *(self.kind, _WARM_UP, self.namespace),
            until=self.is_ready,
            timeout=self.patience,
            what="ready",
        )
        (made,) = (it for it in self.vcenter.vms() if it.name.startswith(_WARM_UP))
        self.delete(_WARM_UP)
        self.plane.kube.wait_gone(self.kind, _WARM_UP, self.namespace, timeout=self.patience)
        wait_until(
            lambda: not any(it.name.startswith(_WARM_UP) for it in self.vcenter.vms()),
            self.patience,
            "the VM of the warm-up to be gone",
        )
        return made

    def spending(self) -> Spending:
        """Measure from now on."""
        return Spending(self.plane, self.vcenter, self.processes)

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which the processes have to go on."""
        running = self.processes.values()
        stays_true(lambda: all(it.running for it in running), seconds, "all processes run")

    def settle(self) -> None:
        """Wait until nothing is written and vCenter is left alone, but for the long poll.

        Events and the last writes of a status follow what they tell of.
        """

        def quiet() -> bool:
            spending = self.spending()
            self.pass_time(_QUIET)
            spent = spending.stop()
            return not spent.writes and not without_polls(spent.calls)

        wait_until(quiet, self.patience, "it to be at rest")

    def memory(self) -> Figures:
        """MiB that the processes and the vCenter hold."""
        found = {**self.processes, "vcsim": self.vcenter.process}
        held = {name: rss(process.pid) for name, process in found.items()}
        return {
            "memory of its own, MiB": sum(held[name] for name in self.processes),
            **{f"memory of {name}, MiB": mib for name, mib in held.items()},
        }


def measure(subject: Subject, vms: int, steady: float) -> tuple[Column, Machine]:
    """Make so many VMs, leave them alone, restart what made them, and delete them.

    Returns:
        Figures and details, and what a VM of this subject looks like at vCenter.
    """
    names = [f"vm-{number:03}" for number in range(vms)]
    with subject.watch() as watch:
        like = subject.warm_up()
        figures, create = _create(subject, watch, names)
        figures |= subject.memory()
        rest = subject.spending()
        subject.pass_time(steady)
        spent = rest.stop()
        restart = _restart(subject)
        figures |= {
            f"calls in {steady:.0f} s at rest": without_polls(spent.calls),
            f"long polls in {steady:.0f} s at rest": spent.calls[LONG_POLL],
            f"writes in {steady:.0f} s at rest": sum(it.total() for it in spent.writes.values()),
            **_cpu(subject, "at rest", spent),
            "calls of a restart": without_polls(restart),
        }
        # The first deletion of a process opens what all others use.
        subject.warm_up()
        deleted, delete = _delete(subject, watch, names)
        details = {
            "create": _details(create, vms),
            "rest": _details(spent, vms),
            "restart": {"calls": dict(restart)},
            "delete": _details(delete, vms),
        }
        return {"figures": figures | deleted, **details}, like


def _at_once(work: Callable[[str], object], names: Sequence[str]) -> None:
    """Do something for each name, a few at a time as clients do."""
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(work, names))


def _create(subject: Subject, watch: Watch, names: Sequence[str]) -> tuple[Figures, Spent]:
    spending, began = subject.spending(), time.time()
    _at_once(subject.create, names)
    wait_until(
        lambda: len(watch.ready.keys() & set(names)) == len(names),
        subject.patience,
        f"{len(names)} VMs to be ready",
    )
    spent = _spent(subject, spending)
    figures = {
        **times("powered on", (at - began for at in switched_on(subject.vcenter))),
        **times("Ready", (watch.ready[name] - began for name in names)),
        **called("create", spent.calls, len(names)),
        "writes per VM": sum(it.total() for it in spent.writes.values()) / len(names),
    }
    for who, written in spent.writes.items():
        figures[f"writes per VM, {who}"] = written.total() / len(names)
    return figures | _cpu(subject, "create", spent), spent


def _delete(subject: Subject, watch: Watch, names: Sequence[str]) -> tuple[Figures, Spent]:
    spending, began = subject.spending(), time.monotonic()
    _at_once(subject.delete, names)
    wait_until(lambda: not watch.left(names), subject.patience, "the VMs' objects to be gone")
    seconds = time.monotonic() - began
    spent = _spent(subject, spending)
    left = sum(not it.template for it in subject.vcenter.vms())
    return {
        "all deleted, s": seconds,
        **called("delete", spent.calls, len(names)),
        "VMs left behind": left,
    }, spent


def _spent(subject: Subject, spending: Spending) -> Spent:
    """What was spent until now; writes that follow what they tell of are counted, too."""
    subject.pass_time(_LATE)
    spent = spending.stop()
    subject.settle()
    return replace(spent, writes=spending.stop().writes)


def _restart(subject: Subject) -> Counter[str]:
    """The calls of a process that is killed and started again and finds all these VMs."""
    subject.settle()
    before = calls_at(subject.vcenter)
    subject.restart()
    subject.settle()
    return calls_at(subject.vcenter) - before


def _cpu(subject: Subject, what: str, spent: Spent) -> Figures:
    own = sum(spent.cpu[name] for name in subject.processes)
    found = {f"CPU s, {what}, {name}": seconds for name, seconds in spent.cpu.items()}
    return (
        {f"CPU s, {what}, its own": own}
        | found
        | {f"share of vcsim, {what}": share("vcsim", spent.cpu)}
    )


def _details(spent: Spent, vms: int) -> dict[str, Any]:
    return {
        "calls_per_vm": per_vm(spent.calls, vms),
        "writes_per_vm": {who: per_vm(written, vms) for who, written in spent.writes.items()},
    }
