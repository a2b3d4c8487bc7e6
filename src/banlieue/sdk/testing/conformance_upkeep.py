"""What a driver that keeps up tags and groups promises: they come, and hold nothing up."""
# ruff: noqa: S101 - a test kit asserts

from dataclasses import replace

import pytest

from banlieue.api.types import PowerState
from banlieue.sdk.driver import MachineState
from banlieue.sdk.errors import Foreign
from banlieue.sdk.testing.conformance_target import AnyDriver, AnyPlan, Bench, Benched
from banlieue.sdk.upkeep import Upkeep, Upkeeper

_CATEGORY = "conformance"


class UpkeepConformance(Benched):
    """Only drivers that keep something up have anything to show here."""

    def test_tags_follow_the_plan(self, bench: Bench) -> None:
        keeper = _keeper(bench.driver)
        plan = replace(bench.plan(), tags={_CATEGORY: "blue"})
        state = bench.ensure(plan)
        assert _told(bench, keeper, plan, state).settled
        assert bench.target.tags(state.backend_id)[_CATEGORY] == "blue"
        changed = replace(plan, tags={_CATEGORY: "red"})
        assert _told(bench, keeper, changed, state).settled
        assert bench.target.tags(state.backend_id)[_CATEGORY] == "red"
        assert _told(bench, keeper, replace(plan, tags={}), state).settled
        assert _CATEGORY not in bench.target.tags(state.backend_id)

    def test_what_is_so_is_found_so_by_another_session(self, bench: Bench) -> None:
        plan = replace(bench.plan(), tags={_CATEGORY: "blue"})
        state = bench.ensure(plan)
        assert _told(bench, _keeper(bench.driver), plan, state).settled
        with bench.connect() as other:
            assert _told(bench, _keeper(other), plan, state).settled
        assert bench.target.tags(state.backend_id)[_CATEGORY] == "blue"

    def test_a_group_keeps_no_machine_from_running(self, bench: Bench) -> None:
        keeper, plan = _keeper(bench.driver), bench.plan()
        grouped = plan.spec.model_copy(update={"anti_affinity_group": "conformance"})
        plan = replace(plan, spec=grouped)
        bench.ensure(plan)
        bench.run(plan, lambda: bench.driver.update(plan, bench.state(plan)))
        state = bench.state(plan)
        assert state.power is PowerState.POWERED_ON
        assert _told(bench, keeper, plan, state).settled

    def test_a_vm_of_another_identity_is_left_alone(self, bench: Bench) -> None:
        keeper = _keeper(bench.driver)
        state = bench.ensure(bench.plan())
        other = replace(bench.plan("other"), tags={_CATEGORY: "blue"})
        with pytest.raises(Foreign):
            keeper.keep_up(other, state)


def _keeper(driver: AnyDriver) -> Upkeeper:
    if not isinstance(driver, Upkeeper):
        pytest.skip("the driver keeps no tags or groups: it lacks those of sdk.upkeep.Upkeeper")
    return driver


def _told(bench: Bench, keeper: Upkeeper, plan: AnyPlan, state: MachineState) -> Upkeep:
    """What is told once there is nothing left to wait for."""
    told: list[Upkeep] = []

    def over() -> bool:
        told.append(keeper.keep_up(plan, state))
        return told[-1].poll_after is None

    bench.until("tags and groups", over)
    return told[-1]
