"""Our driver alone: the same VMs on a vCenter of its own, with no API server and no roles.

What stands between this and an installation is Kubernetes: objects, their writes, and the processes
that share the processors. It asks the driver for what a provider's reconciler asks, with as many
calls at once, and goes on when the driver's feed tells it to.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.vms.making import SLOT
from banlieue.sdk.driver import Connection, MachineState, Task
from banlieue.sdk.powers import ChangeFeed
from banlieue.sdk.testing.conformance_target import AnyDriver, AnyPlan, Bench, unminted
from test.bench.figures import per_vm, share, times
from test.bench.installation import called, calls_at, switched_on
from test.bench.processes import cpu
from test.bench.subject import Column
from test.kit.feed import Feed
from test.kit.vcsim_values import Machine
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

_CALLS: Final = 8
"""Calls a session makes at once, as the SDK has it."""
_POLL: Final = 10.0
"""Seconds of one long poll, as the SDK has it."""
_PAUSE: Final = 0.05
"""Seconds between looks at what the feed told."""


class Direct(VSphereTarget):
    """The driver reaches the vCenter itself: the proxy would take its share of the processor."""

    def connection(self) -> Connection:
        return replace(super().connection(), endpoints=(self.vcenter.url,))


def measure_driver(vms: int, like: Machine, directory: Path, patience: float) -> Column:
    """VMs that resemble another one, made together by the driver in this process.

    Args:
        vms: How many.
        like: A VM of an installation.
        directory: Where files go.
        patience: Seconds to wait for a step.
    """
    with vsphere_target(directory) as found:
        target = Direct(found.vcenter, found.proxy)
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(BACKEND.connect(target.connection()))
            if not isinstance(opened, ChangeFeed):
                raise TypeError("the driver has no feed")
            feed = stack.enter_context(Feed(opened, _POLL).running())
            bench = Bench(target, opened)
            plans = [_planned(bench, f"vm-{number:03}", like) for number in range(vms)]
            driving = Driving(opened, feed, patience)
            # The first VM of a process opens what all others use.
            driving.make(_planned(bench, "warm-up", like))
            return _made(driving, plans, target)


def _planned(bench: Bench, name: str, like: Machine) -> AnyPlan:
    return replace(bench.plan(name), cpus=like.cpus, memory_mib=like.memory_mib)


def _made(driving: "Driving", plans: Sequence[AnyPlan], target: VSphereTarget) -> Column:
    vcenter, vms = target.vcenter, len(plans)
    before, used = calls_at(vcenter), cpu(vcenter.process.pid)
    began, own = time.time(), time.process_time()
    with ThreadPoolExecutor(vms) as pool:
        ready = list(pool.map(driving.make, plans))
    spent = {"its own": time.process_time() - own, "vcsim": cpu(vcenter.process.pid) - used}
    calls = calls_at(vcenter) - before
    figures = {
        **times("powered on", (at - began for at in switched_on(vcenter) if at >= began)),
        **times("Ready", (at - began for at in ready)),
        **called("create", calls, vms),
        **{f"CPU s, create, {name}": seconds for name, seconds in spent.items()},
        "share of vcsim, create": share("vcsim", spent),
    }
    return {"figures": figures, "create": {"calls_per_vm": per_vm(calls, vms)}}


@dataclass(frozen=True, slots=True)
class Driving:
    """Takes the steps of one machine after the other's, each moved by the feed. Thread-safe."""

    driver: AnyDriver
    feed: Feed
    patience: float
    calls: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_CALLS)
    )

    def make(self, plan: AnyPlan) -> float:
        """Make a VM and wait until it has its addresses; when that was, in epoch seconds."""
        with self.calls:
            if self.driver.observe(unminted(plan)) is not None:
                raise RuntimeError(f"{plan.ref.name} is there before it was made")
        task = self._created(plan)
        if task is not None:
            handle = task.handle
            self._wait(lambda: self.feed.told(handle), f"the end of the create of {plan.ref.name}")
            with self.calls:
                if self.driver.poll(task) is not None:
                    raise RuntimeError(f"the create of {plan.ref.name} goes on after its end")
        self._wait(lambda: self._is_ready(plan), f"{plan.ref.name} to be ready")
        return time.time()

    def _created(self, plan: AnyPlan) -> Task | None:
        while True:
            with self.calls:
                self.driver.observe(plan.ref)
                task = self.driver.create(plan)
            if task is None or not task.handle.startswith(SLOT):
                return task
            self._wait(partial(self._is_through, task), f"the turn of {plan.ref.name}")

    def _is_through(self, task: Task) -> bool:
        return self.driver.poll(task) is None

    def _is_ready(self, plan: AnyPlan) -> bool:
        if not self.feed.told(plan.ref.uuid or ""):
            return False
        with self.calls:
            state: MachineState | None = self.driver.observe(plan.ref)
        return state is not None and bool(state.addresses) and state.guest.agent_connected

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        wait_until(until, self.patience, what, apart=_PAUSE)
