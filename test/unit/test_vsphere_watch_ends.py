"""The end of a task is read off the VM that is watched, without a call."""

from collections.abc import Collection

import pytest
from pyVmomi import vmodl

from banlieue.providers.vsphere.watching.ends import Sign
from banlieue.sdk.powers import Changes
from test.kit.watchbench import (
    Bench,
    about_task,
    about_vm,
    update,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def ending(bench: Bench, vm: str, sign: Sign, task: str = "") -> None:
    bench.watcher.expect_end(vm)
    bench.watcher.ends.expect(vm, sign)
    bench.watcher.follow_end(task or f"task-{vm}", vm)


def covered(bench: Bench, *vms: str) -> None:
    bench.started(*vms)
    bench.told(update(*(about_vm(vm, uuid=f"u-{vm}", power="poweredOn") for vm in vms)))


def state_of(bench: Bench, task: str) -> str:
    told = bench.watcher.task(task)
    return told.state if told is not None else "nobody knows"


def test_a_vm_that_is_off_tells_the_end_of_its_task_without_a_call(bench: Bench) -> None:
    covered(bench, "vm-1")
    ending(bench, "vm-1", Sign.OFF)
    edits = len(bench.server.edits)
    assert bench.told(update(about_vm("vm-1", "modify", tools="guestToolsNotRunning"))).tasks == (
        frozenset()
    )
    assert state_of(bench, "task-vm-1") == "queued"
    assert bench.told(update(about_vm("vm-1", "modify", power="poweredOff"))).tasks == {"task-vm-1"}
    assert state_of(bench, "task-vm-1") == "success"
    bench.do_planned()
    assert len(bench.server.edits) == edits


def test_a_task_that_fails_shows_nothing_and_is_asked_about(bench: Bench) -> None:
    covered(bench, "vm-1")
    ending(bench, "vm-1", Sign.OFF)
    bench.now += 7.0
    bench.told()
    assert state_of(bench, "task-vm-1") == "nobody knows"
    bench.watcher.add("task-vm-1")
    bench.do_planned()
    assert bench.told(update(about_task("task-vm-1", "error"))).tasks == {"task-vm-1"}


def test_an_end_that_showed_before_its_task_had_a_name_is_known(bench: Bench) -> None:
    covered(bench, "vm-1")
    bench.watcher.ends.expect("vm-1", Sign.OFF)
    assert "u-vm-1" in bench.told(update(about_vm("vm-1", "modify", power="poweredOff"))).uuids
    bench.watcher.follow_end("task-1", "vm-1")
    assert state_of(bench, "task-1") == "success"


def test_the_task_of_a_vm_that_nobody_covers_is_watched_itself(bench: Bench) -> None:
    covered(bench, "vm-1")
    ending(bench, "vm-7", Sign.GONE)
    bench.do_planned()
    assert bench.server.edits[-1][0] == ["task-vm-7"]


def test_a_watch_that_is_built_anew_covers_what_was_to_show(bench: Bench) -> None:
    covered(bench, "vm-1")
    ending(bench, "vm-1", Sign.GONE)
    bench.watcher.ends.expect("vm-1x", Sign.GONE)
    assert bench.told(vmodl.query.InvalidCollectorVersion()).everything
    assert bench.server.edits[-1][0] == ["task-vm-1", "vm-1"]
    bench.watcher.follow_end("task-1x", "vm-1x")
    bench.do_planned()
    assert bench.server.edits[-1][0] == ["task-1x"], "the answer came after it"


def test_a_vcenter_that_never_tells_an_end_is_not_waited_for_again(bench: Bench) -> None:
    covered(bench, "vm-1", "vm-2")
    ending(bench, "vm-1", Sign.GONE)
    bench.watcher.ends.overlooked("task-vm-1")
    bench.now += 7.0
    bench.told()
    bench.watcher.ends.overlooked("task-vm-1")
    bench.watcher.settle("task-vm-1")
    ending(bench, "vm-2", Sign.GONE)
    bench.do_planned()
    assert bench.server.edits[-1][0] == ["task-vm-2"]


def test_one_end_that_was_late_makes_no_rule(bench: Bench) -> None:
    covered(bench, "vm-1", "vm-2", "vm-3")
    ending(bench, "vm-1", Sign.OFF)
    bench.told(update(about_vm("vm-1", "modify", power="poweredOff")))
    ending(bench, "vm-2", Sign.OFF)
    bench.now += 7.0
    bench.told()
    bench.watcher.ends.overlooked("task-vm-2")
    edits = len(bench.server.edits)
    ending(bench, "vm-3", Sign.OFF)
    bench.do_planned()
    assert len(bench.server.edits) == edits


def test_vms_that_are_destroyed_together_are_told_of_together(bench: Bench) -> None:
    covered(bench, "vm-1", "vm-2")
    left: list[Collection[str]] = []
    bench.watcher.on_leave = lambda vms: left.append(sorted(vms))
    for vm in ("vm-1", "vm-2"):
        ending(bench, vm, Sign.GONE)
    assert bench.told(update(about_vm("vm-1", "leave"))) == Changes()
    assert bench.told(update(about_vm("vm-2", "leave"))) == Changes(
        frozenset({"u-vm-1", "u-vm-2"}), frozenset({"task-vm-1", "task-vm-2"})
    )
    assert bench.server.waits[-1] <= 3, "nobody waits longer than for the others"
    assert left == [["vm-1", "vm-2"]]


def test_a_vm_that_left_does_not_wait_long_for_others(bench: Bench) -> None:
    covered(bench, "vm-1", "vm-2")
    for vm in ("vm-1", "vm-2"):
        ending(bench, vm, Sign.GONE)
    assert bench.told(update(about_vm("vm-1", "leave"))) == Changes()
    bench.now += 3.0
    assert bench.told().tasks == {"task-vm-1"}


def test_a_vm_that_somebody_else_takes_away_is_told_at_once(bench: Bench) -> None:
    covered(bench, "vm-1", "vm-2")
    ending(bench, "vm-1", Sign.GONE)
    assert "u-vm-2" in bench.told(update(about_vm("vm-2", "leave"))).uuids


def test_vms_that_were_stopped_to_be_destroyed_are_looked_at_together(bench: Bench) -> None:
    covered(bench, "vm-1", "vm-2", "vm-3")
    stopped: list[Collection[str]] = []
    bench.watcher.on_stopped = lambda vms: stopped.append(sorted(vms))
    for vm in ("vm-1", "vm-2"):
        ending(bench, vm, Sign.OFF)
    offs = [about_vm(f"vm-{number}", "modify", power="poweredOff") for number in (1, 2, 3)]
    bench.told(update(*offs))
    assert stopped == [["vm-1", "vm-2"]]


def test_what_is_late_makes_nobody_wait_for_company(bench: Bench) -> None:
    vms = [f"vm-{number}" for number in range(5)]
    covered(bench, *vms)
    for vm in vms:
        ending(bench, vm, Sign.OFF)
    assert bench.watcher.busy
    bench.now += 60.0
    assert not bench.watcher.busy
