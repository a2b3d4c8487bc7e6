"""Conformance: restarts, and what may need one."""
# ruff: noqa: S101 - a test kit asserts

from dataclasses import replace

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import RESTART, Task
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, Benched


class RestartConformance(Benched):
    """A restart is asked for once, happens once, and changes nothing else."""

    @pytest.mark.parametrize("mode", list(PowerOffMode))
    def test_a_restart_takes_the_guest_down_and_up_again(
        self, bench: Bench, mode: PowerOffMode
    ) -> None:
        plan = replace(bench.plan(), power_off_mode=mode, power_off_timeout=10.0)
        before = bench.ensure(plan)
        bench.until("the guest runs", lambda: bench.state(plan).guest.agent_connected)
        state = bench.state(plan)
        task = bench.driver.update(replace(plan, restart=True, cpus=2), state)
        assert isinstance(task, Task), "a restart gave no task"
        assert task.operation == RESTART
        bench.finish(task)
        bench.until("the guest runs again", lambda: bench.state(plan).guest.agent_connected)
        after = bench.state(plan)
        assert after.power == PowerState.POWERED_ON
        assert (after.uuid, after.mark, after.cpus) == (before.uuid, before.mark, before.cpus)
        assert (after.last_boot or "") >= (before.last_boot or ""), "it booted before it booted"
        assert bench.driver.update(plan, after) is None, "a restart leaves something to do"

    def test_a_restart_is_told_even_by_another_session(self, bench: Bench) -> None:
        plan = replace(bench.plan(), power_off_timeout=10.0)
        bench.ensure(plan)
        bench.until("the guest runs", lambda: bench.state(plan).guest.agent_connected)
        task = bench.driver.update(replace(plan, restart=True), bench.state(plan))
        assert task is not None
        with bench.connect() as other:
            bench.until("the restart ends", lambda: other.poll(task) is None)
        bench.finish(task)


class ResizeConformance(Benched):
    """Another size is there at once, or is said to wait for a restart and is there after it."""

    def test_a_vm_gets_another_size_at_once_or_with_a_restart(self, bench: Bench) -> None:
        plan = replace(bench.plan(), power_off_mode=PowerOffMode.HARD)
        bench.ensure(plan)
        bench.until("the guest runs", lambda: bench.state(plan).guest.agent_connected)
        for cpus, memory_mib in ((2, 1024), (1, 512)):
            wanted = replace(plan, cpus=cpus, memory_mib=memory_mib)
            if not _follows(bench, wanted):
                assert bench.state(plan).power == PowerState.POWERED_ON, "nobody asked for that"
                assert _follows(bench, replace(wanted, power=PowerState.POWERED_OFF))
                assert _follows(bench, wanted)
            after = bench.state(plan)
            assert (after.cpus, after.memory_mib) == (cpus, memory_mib)
            assert after.power == PowerState.POWERED_ON


def _follows(bench: Bench, wanted: AnyPlan) -> bool:
    """Whether a VM became as planned, without a word that something waits for a restart."""

    def step() -> Task | None:
        return bench.driver.update(wanted, bench.state(wanted))

    try:
        bench.run(wanted, step)
    except NeedsOperator as refusal:
        if refusal.reason is not Reason.RESTART_REQUIRED:
            raise
        return False
    return True
