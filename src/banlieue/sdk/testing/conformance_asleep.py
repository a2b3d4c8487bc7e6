"""Conformance: suspended VMs, and VMs that an admin holds."""
# ruff: noqa: S101 - a test kit asserts

from collections.abc import Callable
from dataclasses import replace

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import MachineState, Task
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.powers import ChangeFeed
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, Benched, seen


class SuspendConformance(Benched):
    """A VM sleeps and wakes as the plan says, and keeps what its guest had in memory."""

    def test_a_vm_is_suspended_and_woken(self, bench: Bench) -> None:
        plan = bench.plan()
        before = _running(bench, plan)
        asleep = _switch(bench, plan, PowerState.SUSPENDED)
        assert (asleep.uuid, asleep.mark) == (before.uuid, before.mark)
        assert not asleep.guest.agent_connected, "a guest that sleeps says nothing"
        assert asleep.addresses == (), "a guest that sleeps has no address"
        larger = replace(plan, power=PowerState.SUSPENDED, cpus=2)
        with pytest.raises(NeedsOperator) as refusal:
            bench.driver.update(larger, asleep)
        assert refusal.value.reason is Reason.RESTART_REQUIRED
        awake = _switch(bench, plan, PowerState.POWERED_ON)
        bench.until("the guest runs again", lambda: bench.state(plan).guest.agent_connected)
        assert (awake.cpus, awake.memory_mib) == (before.cpus, before.memory_mib)

    def test_a_guest_that_sleeps_is_woken_to_be_shut_down(self, bench: Bench) -> None:
        plan = replace(
            bench.plan(), power_off_mode=PowerOffMode.SOFT, power_off_timeout=bench.target.patience
        )
        _running(bench, plan)
        asleep = _switch(bench, plan, PowerState.SUSPENDED)
        bench.finish(bench.driver.update(replace(plan, power=PowerState.POWERED_OFF), asleep))
        assert bench.state(plan).power == PowerState.POWERED_ON, "its memory was thrown away"
        bench.until("the guest runs again", lambda: bench.state(plan).guest.agent_connected)
        _switch(bench, plan, PowerState.POWERED_OFF)

    def test_a_vm_sleeps_after_it_was_off_and_is_off_and_deleted_after_it_slept(
        self, bench: Bench
    ) -> None:
        off = PowerState.POWERED_OFF
        plan = replace(bench.plan(), power=off, power_off_mode=PowerOffMode.HARD)
        ref = seen(plan, bench.ensure(plan))
        asleep = _switch(bench, plan, PowerState.SUSPENDED)
        bench.finish(bench.driver.update(plan, asleep))
        assert bench.state(plan).power == off, "the plug of a VM that sleeps was not pulled"
        _switch(bench, plan, PowerState.SUSPENDED)
        bench.delete(ref, plan)
        assert bench.named(plan) == []
        assert bench.look(ref) is None


class HoldConformance(Benched):
    """An admin's hold is told, as news and to every session, and so is its end."""

    def test_a_hold_is_told_until_it_is_lifted(self, bench: Bench) -> None:
        plan = bench.plan()
        before = _running(bench, plan)
        assert not before.held
        told = _news_of(bench, plan)
        bench.target.hold(before.backend_id or "", held=True)
        bench.until("the feed tells of the hold", told)
        bench.until("the hold is told", lambda: bench.state(plan).held)
        with bench.connect() as other:
            again = bench.look(plan.ref, other)
            assert again is not None
            assert again.held, "another session does not know of the hold"
        held = bench.state(plan)
        assert (held.uuid, held.mark, held.power) == (before.uuid, before.mark, before.power)
        bench.target.hold(before.backend_id or "", held=False)
        bench.until("the end of the hold is told", lambda: not bench.state(plan).held)


def _news_of(bench: Bench, plan: AnyPlan) -> Callable[[], bool]:
    """Asks for news of a VM that are yet to come; always true where there is no feed."""
    feed = bench.driver
    if not isinstance(feed, ChangeFeed):
        return lambda: True

    def told() -> bool:
        changes = feed.changes(0.2)
        return changes.everything or plan.ref.uuid in changes.uuids

    bench.until("the feed is quiet", lambda: not told())
    return told


def _running(bench: Bench, plan: AnyPlan) -> MachineState:
    bench.ensure(plan)
    bench.until("the guest runs", lambda: bench.state(plan).guest.agent_connected)
    return bench.state(plan)


def _switch(bench: Bench, plan: AnyPlan, power: PowerState) -> MachineState:
    wanted = replace(plan, power=power)

    def step() -> Task | None:
        return bench.driver.update(wanted, bench.state(wanted))

    bench.run(wanted, step)
    state = bench.state(plan)
    assert state.power == power
    return state
