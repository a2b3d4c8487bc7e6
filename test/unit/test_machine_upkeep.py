"""Tags and groups of machines: asked for once, told when they lack, and never waited for."""

from collections import deque
from itertools import pairwise
from typing import Any, cast

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS
from banlieue.sdk.driver import Driver, MachinePlan, MachineState
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.kube import Obj
from banlieue.sdk.upkeep import GROUP, TAGS, Shortfall, Upkeep, Upkeeper
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench

DENIED = Shortfall(TAGS, Reason.PROVIDER_PERMISSION_DENIED, "the account lacks a right")


class _Keeper:
    """A driver with the power; answers as told, and with success when it was told nothing."""

    def __init__(self, driver: Driver[Any]) -> None:
        self._driver = driver
        self.answers: deque[Upkeep | NeedsOperator] = deque()
        self.asked: list[tuple[dict[str, str], str | None]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the driver has
        return getattr(self._driver, name)

    def keep_up(self, plan: MachinePlan[Any], seen: MachineState) -> Upkeep:
        assert seen.uuid == plan.ref.uuid
        self.asked.append((dict(plan.tags), plan.spec.anti_affinity_group))
        answer = self.answers.popleft() if self.answers else Upkeep()
        if isinstance(answer, NeedsOperator):
            raise answer
        return answer


@pytest.fixture
def bench() -> MachineBench:
    bench = MachineBench()
    bench.api.edit(PROVIDERS, PROVIDER, _map_team)
    return bench


def _keeper(bench: MachineBench) -> _Keeper:
    keeper = _Keeper(bench.served.driver)
    assert isinstance(keeper, Upkeeper)
    bench.served.driver = cast("Driver[Any]", keeper)
    return keeper


async def test_tags_and_groups_are_asked_for_once(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    bench.make_machine(tags={"team": "a"}, antiAffinityGroup="etcd")
    await bench.run()
    assert keeper.asked == [({"team": "a"}, "etcd")]
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    await bench.run()
    bench.edit(powerState="PoweredOff")
    await bench.run()
    assert len(keeper.asked) == 1, "an edit of something else asks for nothing"


async def test_a_machine_that_asks_for_none_costs_no_call(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    bench.make_machine()
    await bench.run()
    assert keeper.asked == []


async def test_a_change_is_made_and_so_is_its_undoing(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    bench.make_machine(tags={"team": "a"})
    await bench.run()
    bench.edit(tags={"team": "b"})
    await bench.run()
    bench.edit(tags={})
    await bench.run()
    assert [tags for tags, _ in keeper.asked] == [{"team": "a"}, {"team": "b"}, {}]


async def test_an_edit_that_nobody_served_is_made_by_the_next_process(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    bench.make_machine(tags={"team": "a"})
    await bench.run()
    bench.restart()
    again = _keeper(bench)
    await bench.run()
    assert again.asked == [({"team": "a"}, None)], "a new process looks once"
    bench.restart()
    last = _keeper(bench)
    bench.edit(tags={})
    await bench.run()
    assert last.asked == [({}, None)]
    assert keeper.asked == again.asked


async def test_what_lacks_is_told_until_another_attempt_has_ended(bench: MachineBench) -> None:
    """An attempt of several steps said for as long that nothing lacked."""
    keeper = _keeper(bench)
    denied = Upkeep(shortfalls=(DENIED,))
    keeper.answers += [denied, Upkeep(0.5), Upkeep(0.5), denied, Upkeep(0.5)]
    bench.make_machine(tags={"team": "a"})
    told: list[tuple[str, str]] = []
    while len(keeper.asked) < 6 or told[-1][0] != "True":
        assert bench.clock.monotonic() < 300
        await bench.reconciler.reconcile(MACHINE)
        if keeper.asked and (not told or told[-1] != bench.condition("UpToDate")):
            told.append(bench.condition("UpToDate"))
        bench.clock.advance(1.0)
    seen = [it for it in told if it[1] in {"UpToDate", "ProviderPermissionDenied"}]
    assert seen == [("False", "ProviderPermissionDenied"), ("True", "UpToDate")]


async def test_what_lacks_no_more_is_told_while_something_else_is_under_way(
    bench: MachineBench,
) -> None:
    keeper = _keeper(bench)
    moving = Upkeep(0.5, pending=frozenset({GROUP}))
    keeper.answers += [Upkeep(shortfalls=(DENIED,)), *[moving] * 200]
    bench.make_machine(tags={"team": "a"})
    while len(keeper.asked) < 3:
        assert bench.clock.monotonic() < 300
        await bench.reconciler.reconcile(MACHINE)
        bench.clock.advance(1.0)
    assert bench.condition("UpToDate")[1] != DENIED.reason


async def test_what_lacks_is_told_tried_again_and_keeps_nothing_waiting(
    bench: MachineBench,
) -> None:
    """CAPV #2346, #1669, #1640: anti-affinity that failed blocked the machine."""
    keeper = _keeper(bench)
    keeper.answers += [Upkeep(shortfalls=(DENIED,)), NeedsOperator(Reason.UPDATE_FAILED, "no")]
    bench.make_machine(tags={"team": "a"})
    told: list[tuple[tuple[str, str], float]] = []
    while not told or told[-1][0] != ("True", "UpToDate"):
        assert bench.clock.monotonic() < 300
        await bench.reconciler.reconcile(MACHINE)
        conditions = bench.machine().get("status", {}).get("conditions", ())
        if keeper.asked and any(item["type"] == "UpToDate" for item in conditions):
            now = bench.condition("UpToDate")
            if not told or told[-1][0] != now:
                told.append((now, bench.clock.monotonic()))
                assert bench.condition("Ready") == ("True", "Ready")
                pending = bench.machine()["status"].get("pendingChanges", [])
                assert pending == ([TAGS] if now[0] == "False" else [])
        bench.clock.advance(1.0)
    reasons = [reason for (_, reason), _ in told]
    assert reasons == ["ProviderPermissionDenied", "UpdateFailed", "UpToDate"]
    pauses = [after - before for (_, before), (_, after) in pairwise(told)]
    assert pauses[0] > 10
    assert pauses[1] > 1.5 * pauses[0], "ever later"


async def test_a_tenant_gets_no_tags_but_those_the_provider_maps(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    bench.make_machine(tags={"team": "a", "Backup": "none"})
    await bench.run(passes=3)
    assert keeper.asked[0] == ({"team": "a"}, None)
    assert bench.condition("UpToDate") == ("False", "ValueNotAllowed")


def _map_team(provider: Obj) -> None:
    provider["spec"]["tagMapping"] = [{"label": "example.org/team", "tag": "team"}]


async def test_steps_are_followed_until_all_is_so(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    keeper.answers += [Upkeep(poll_after=0.5), Upkeep(poll_after=0.5)]
    bench.make_machine(antiAffinityGroup="etcd")
    for _ in range(4):
        await bench.run(passes=5)
        bench.clock.advance(1.0)
    assert len(keeper.asked) == 3
    assert all(group == "etcd" for _, group in keeper.asked)
    assert GROUP == "antiAffinityGroup"
