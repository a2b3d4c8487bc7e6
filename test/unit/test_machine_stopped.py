"""VMs that their backend stopped with a question, and the time a guest has to stop."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from banlieue.api.infrastructure.machine import TaskStatus
from banlieue.api.reasons import Reason
from banlieue.sdk.driver import RESTART, Address, MachineRef, MachineState, Task
from banlieue.sdk.machine import stopped
from banlieue.sdk.machine.scope import Scope
from test.kit.machinebench import MACHINE, MachineBench

NOW = datetime(2026, 10, 1, 8, 0, 0, tzinfo=UTC)


@pytest.fixture
async def bench() -> MachineBench:
    bench = MachineBench()
    bench.make_machine()
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    return bench


def ask(bench: MachineBench, monkeypatch: pytest.MonkeyPatch, question: str | None) -> None:
    """Have the backend ask about every VM."""
    observe: Callable[[MachineRef], MachineState | None] = bench.served.driver.observe

    def asked(ref: MachineRef) -> MachineState | None:
        state = observe(ref)
        return replace(state, question=question) if state else None

    monkeypatch.setattr(bench.served.driver, "observe", asked)


def message(bench: MachineBench, kind: str) -> str:
    (text,) = [c["message"] for c in bench.machine()["status"]["conditions"] if c["type"] == kind]
    return str(text)


async def test_a_question_is_told_and_nothing_is_changed_until_it_is_answered(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        ask(bench, patch, "No space left on device.\n\nRetry?\x07")
        bench.edit(powerState="PoweredOff")
        await bench.run(passes=3)
        for kind in ("Ready", "PowerStateSynced"):
            assert bench.condition(kind) == ("False", Reason.VM_PAUSED)
            assert "No space left on device. Retry?" in message(bench, kind)
        assert bench.vms()[0].power == "PoweredOn"
    await bench.run()
    assert bench.vms()[0].power == "PoweredOff"
    assert bench.condition("Ready") == ("True", "Ready")


async def test_a_task_that_waits_for_an_answer_says_so(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poll(task: Task) -> Task:
        return replace(task, question="The VM was moved or copied")

    bench.control("set_latencies", power=50.0)
    bench.edit(powerState="PoweredOff", powerOffMode="Hard")
    await bench.reconciler.reconcile(MACHINE)
    monkeypatch.setattr(bench.served.driver, "poll", poll)
    await bench.reconciler.reconcile(MACHINE)
    assert bench.condition("Ready") == ("False", Reason.VM_PAUSED)
    assert "moved or copied" in message(bench, "Ready")


def test_the_text_of_a_question_is_one_line_of_bounded_length() -> None:
    assert stopped.question_text(" a\n\tb \x00 c ") == "a b c"
    long = stopped.question_text("x " * 5000)
    assert len(long) <= 400
    assert long.endswith("…")


def scope_with(task: TaskStatus | None) -> Scope:
    spec = SimpleNamespace(wanted_power_off_timeout_seconds=120)
    machine = SimpleNamespace(spec=spec, status=SimpleNamespace(task=task))
    ctx = SimpleNamespace(clock=SimpleNamespace(now=lambda: NOW))
    return cast("Scope", SimpleNamespace(machine=machine, ctx=ctx))


@pytest.mark.parametrize(
    ("deadline", "operation", "left"),
    [
        (None, "power-off", 120.0),
        (timedelta(seconds=30), "power-off", 30.0),
        (timedelta(seconds=-5), "power-off", 0.0),
        (timedelta(days=300), "power-off", 120.0),
        (timedelta(seconds=30), RESTART, 120.0),
    ],
)
def test_a_new_process_keeps_the_deadline_of_a_guest(
    deadline: timedelta | None, operation: str, left: float
) -> None:
    until = NOW + deadline if deadline is not None else None
    recorded = TaskStatus(id="shutdown-1", operation=operation, deadline=until)
    assert stopped.seconds_to_stop(scope_with(recorded)) == left
    assert stopped.seconds_to_stop(scope_with(None)) == 120.0


def test_the_deadline_of_a_task_stands_as_first_written() -> None:
    task = Task("shutdown-1", "power-off", seconds_left=90.4)
    first = stopped.task_status(None, task, NOW)
    assert first is not None
    assert (first.started_at, first.deadline) == (NOW, NOW + timedelta(seconds=90))
    later = stopped.task_status(first, replace(task, seconds_left=60), NOW + timedelta(seconds=31))
    assert later == first
    other = stopped.task_status(first, replace(task, handle="task-2", seconds_left=None), NOW)
    assert other is not None
    assert other.deadline is None
    assert stopped.task_status(first, None, NOW) is None


async def test_a_guest_that_is_asked_to_stop_has_its_deadline_in_the_status(
    bench: MachineBench,
) -> None:
    bench.control("set_latencies", shutdown=1000.0)
    bench.edit(powerState="PoweredOff", powerOffMode="TrySoft", powerOffTimeoutSeconds=100)
    await bench.reconciler.reconcile(MACHINE)
    before = bench.machine()["status"]["task"]
    assert before["deadline"]
    bench.clock.advance(40)
    bench.restart()
    await bench.reconciler.reconcile(MACHINE)
    assert bench.machine()["status"]["task"]["deadline"] == before["deadline"]
    await bench.run()
    assert bench.vms()[0].power == "PoweredOff"


async def test_the_name_of_a_guest_alone_is_no_address(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe: Callable[[MachineRef], MachineState | None] = bench.served.driver.observe

    def named(ref: MachineRef) -> MachineState | None:
        state = observe(ref)
        return replace(state, addresses=(Address("Hostname", "db-1"),)) if state else None

    monkeypatch.setattr(bench.served.driver, "observe", named)
    await bench.run()
    assert bench.condition("AddressesAvailable") == ("False", Reason.ADDRESS_PENDING)
    assert bench.condition("Ready") == ("True", "Ready")
