"""Hints in a machine's status: the next process goes on from them, and no value of them harms."""

from collections.abc import Callable
from typing import Any

import pytest

from banlieue.api.infrastructure.machine import Machine
from banlieue.api.infrastructure.machine_status import Failures
from banlieue.sdk.kube import Obj
from banlieue.sdk.machine import hints
from banlieue.sdk.machine.scope import Memory
from banlieue.sdk.powers import Changes
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench

REFUSED = {"effect": "refuse", "method": "create", "code": "TaskInProgress", "count": None}
NOBODYS_TASK = {"id": "task-of-nobody", "operation": "create"}


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


async def refused_for_a_while(bench: MachineBench) -> Obj:
    """A machine whose VM the backend refused to make a few times; its status."""
    bench.make_machine()
    bench.control("inject", rule=REFUSED)
    for _ in range(4):
        result = await bench.reconciler.reconcile(MACHINE)
        bench.clock.advance(result.requeue_after or 0.0)
    # Another reason is worth a write, and with it go the hints.
    bench.control("heal")
    bench.control("inject", rule=REFUSED | {"code": "GeneralFault"})
    await bench.reconciler.reconcile(MACHINE)
    bench.control("heal")
    status: Obj = bench.machine()["status"]
    return status


def calls(bench: MachineBench, method: str = "") -> int:
    made: Any = bench.control("calls")
    return int(made[method] if method else sum(made.values()))


def scribble(bench: MachineBench, **status: object) -> None:
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj["status"].update(status))


@pytest.mark.identity("9.1")
async def test_a_process_that_begins_anew_waits_as_long_as_the_one_before_would(
    bench: MachineBench,
) -> None:
    status = await refused_for_a_while(bench)
    assert status["failures"]["count"] > 1
    bench.restart()
    before = calls(bench)
    left = (await bench.reconciler.reconcile(MACHINE)).requeue_after
    assert left is not None
    assert 0 < left <= hints.LONGEST_PAUSE
    assert calls(bench) == before
    assert bench.reconciler.memories[MACHINE].failures == status["failures"]["count"]
    bench.clock.advance(left)
    await bench.run()
    assert len(bench.vms()) == 1
    assert "nextAttempt" not in bench.machine()["status"]


@pytest.mark.identity("9.1")
async def test_an_edit_while_nobody_ran_is_due_at_once(bench: MachineBench) -> None:
    await refused_for_a_while(bench)
    before = calls(bench, "create")

    def edited(obj: Obj) -> None:
        obj["spec"]["powerOffTimeoutSeconds"] = 77

    bench.api.edit(SIMULATED_MACHINES, MACHINE, edited)
    bench.restart()
    await bench.reconciler.reconcile(MACHINE)
    assert calls(bench, "create") > before


@pytest.mark.identity("9.1")
async def test_a_finalizer_taken_off_while_nobody_ran_is_put_back_at_once(
    bench: MachineBench,
) -> None:
    await refused_for_a_while(bench)
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj["metadata"].pop("finalizers"))
    bench.restart()
    await bench.reconciler.reconcile(MACHINE)
    assert bench.machine()["metadata"]["finalizers"]


@pytest.mark.identity("9.1")
async def test_news_of_the_whole_backend_end_a_rest_but_for_the_first(bench: MachineBench) -> None:
    await refused_for_a_while(bench)
    bench.restart()
    before = calls(bench, "create")
    everything = Changes(frozenset(), frozenset(), everything=True)
    bench.reconciler.changed(PROVIDER, everything)
    assert (await bench.reconciler.reconcile(MACHINE)).requeue_after
    assert calls(bench, "create") == before
    bench.reconciler.changed(PROVIDER, everything)
    await bench.reconciler.reconcile(MACHINE)
    assert calls(bench, "create") > before


@pytest.mark.identity("9.1")
async def test_what_somebody_has_to_mend_is_tried_by_a_new_process_at_once(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    bench.control("inject", rule=REFUSED | {"code": "NoPermission"})
    await bench.run()
    assert bench.condition("Ready")[1] == "ProviderPermissionDenied"
    assert "nextAttempt" not in bench.machine()["status"]
    bench.control("heal")
    bench.restart()
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")


@pytest.mark.identity("9.1")
async def test_processes_that_come_and_go_do_not_put_an_attempt_off_for_ever(
    bench: MachineBench,
) -> None:
    await refused_for_a_while(bench)
    scribble(bench, nextAttempt="9999-12-31T23:59:59Z")
    before = calls(bench, "create")
    for _ in range(3):
        bench.restart()
        await bench.reconciler.reconcile(MACHINE)
        bench.clock.advance(hints.LONGEST_PAUSE / 2)
    assert calls(bench, "create") > before


@pytest.mark.identity("9.1")
@pytest.mark.parametrize(
    "move",
    [
        lambda bench: bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda it: it["spec"].update()),
        lambda bench: bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda it: it.pop("status")),
        lambda bench: bench.reconciler.changed(PROVIDER, Changes(_words(bench), frozenset())),
        lambda bench: bench.reconciler.wake(MACHINE),
    ],
    ids=["somebody wrote", "hints lost", "news of the VM", "its Provider or Cluster changed"],
)
async def test_what_moves_is_not_kept_waiting(
    bench: MachineBench, move: Callable[[MachineBench], object]
) -> None:
    await refused_for_a_while(bench)
    bench.restart()
    assert (await bench.reconciler.reconcile(MACHINE)).requeue_after
    move(bench)
    await bench.reconciler.reconcile(MACHINE)
    assert calls(bench, "create") > 5


def _words(bench: MachineBench) -> frozenset[str]:
    return frozenset({bench.machine()["spec"]["instance"]["uuid"]})


@pytest.mark.identity("9.1")
@pytest.mark.parametrize(
    "status",
    [
        {"nextAttempt": "9999-12-31T23:59:59Z"},
        {"nextAttempt": "1970-01-01T00:00:00Z"},
        {"failures": {"count": 1_000_000_000}},
        {"task": NOBODYS_TASK},
        {"task": {"operation": "create"}, "nextAttempt": "9999-12-31T23:59:59Z"},
        {"failures": {"count": 2**53}, "nextAttempt": "9999-12-31T23:59:59Z"},
    ],
    ids=["never", "long ago", "always failed", "no such task", "no task at all", "never again"],
)
@pytest.mark.parametrize("made", [False, True], ids=["before the VM", "with the VM"])
async def test_whatever_stands_in_the_hints_costs_time_and_nothing_else(
    bench: MachineBench, status: Obj, *, made: bool
) -> None:
    await refused_for_a_while(bench)
    if made:
        await bench.run()
    uuid = bench.machine()["spec"]["instance"]["uuid"]
    scribble(bench, **status)
    bench.restart()
    began = bench.clock.monotonic()
    left = (await bench.reconciler.reconcile(MACHINE)).requeue_after
    assert (left or 0.0) <= hints.LONGEST_PAUSE
    bench.clock.advance(left or 0.0)
    await bench.run()
    assert [vm.uuid for vm in bench.vms()] == [uuid]
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.clock.monotonic() - began <= hints.LONGEST_PAUSE + 60


@pytest.mark.identity("9.1")
async def test_that_an_attempt_failed_once_more_is_not_written(bench: MachineBench) -> None:
    await refused_for_a_while(bench)
    bench.control("inject", rule=REFUSED | {"code": "GeneralFault"})
    version = bench.machine()["metadata"]["resourceVersion"]
    for _ in range(3):
        bench.clock.advance(hints.LONGEST_PAUSE)
        await bench.reconciler.reconcile(MACHINE)
    assert bench.reconciler.memories[MACHINE].failures > 6
    assert bench.machine()["metadata"]["resourceVersion"] == version


@pytest.mark.identity("9.1")
async def test_no_attempt_is_announced_while_nobody_answers(bench: MachineBench) -> None:
    bench.make_machine()
    bench.control("inject", rule={"effect": "cut", "method": "*", "count": None})
    await bench.run()
    assert bench.condition("Ready")[1] == "ProviderUnreachable"
    assert "nextAttempt" not in bench.machine()["status"]


def test_fewer_failures_than_none_are_none(bench: MachineBench) -> None:
    machine = Machine.from_api({"metadata": {"name": "db-1"}, "spec": {}})
    machine.status.failures = Failures.model_construct(count=-1)
    memory = Memory()
    hints.take_up(memory, machine, bench.clock)
    assert memory.failures == 0
