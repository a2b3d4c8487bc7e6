import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import LEASES, PODS
from banlieue.sdk import kube
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.runtime.elector import LONGEST, Callbacks, Elector, LeaseTimes
from banlieue.sdk.runtime.holders import default_identity
from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.stepped_clock import SteppedClock, settle

KEY = Key("banlieue-system", "lease")
TIMES = LeaseTimes(duration=60.0, deadline=40.0, retry=10.0)


class Link(MemoryApi):
    """One candidate's way to the API server, which the test can cut or slow down."""

    def __init__(self, api: MemoryApi, clock: SteppedClock) -> None:
        self.api = api
        self.clock = clock
        self.cut = False
        self.forbidden: Resource | None = None
        self.hang = False
        self.slow = 0.0

    async def _pass(self) -> None:
        if self.slow:
            await self.clock.sleep(self.slow)
        if self.hang:
            await asyncio.Event().wait()
        if self.cut:
            raise kube.Unavailable(0, "connection refused")

    async def get(self, resource: Resource, key: Key) -> Obj:
        await self._pass()
        if resource == self.forbidden:
            raise kube.Forbidden(403, "Forbidden", "no")
        return await self.api.get(resource, key)

    async def create(self, resource: Resource, obj: Obj, *, manager: str) -> Obj:
        await self._pass()
        return await self.api.create(resource, obj, manager=manager)

    async def json_patch(
        self,
        resource: Resource,
        key: Key,
        ops: Sequence[Mapping[str, Any]],
        *,
        manager: str,
        subresource: str = "",
    ) -> Obj:
        await self._pass()
        return await self.api.json_patch(
            resource, key, ops, manager=manager, subresource=subresource
        )


class Candidate:
    def __init__(self, api: MemoryApi, clock: SteppedClock, name: str) -> None:
        self.link = Link(api, clock)
        self.history: list[str] = []
        self.elector = Elector(
            self.link,
            KEY,
            identity=name,
            clock=clock,
            rng=random.Random(name),
            times=TIMES,
            callbacks=Callbacks(self._won, self._lost),
        )
        self.task = asyncio.ensure_future(self.elector.run())

    async def _won(self) -> None:
        self.history.append("won")

    async def _lost(self) -> None:
        self.history.append("lost")

    async def die(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Rig:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = SteppedClock()
        self.candidates: list[Candidate] = []

    def candidate(self, name: str) -> Candidate:
        made = Candidate(self.api, self.clock, name)
        self.candidates.append(made)
        return made

    async def advance(self, seconds: float) -> None:
        """Move on in small steps; at no moment may two hold the Lease."""
        for _ in range(round(seconds)):
            await self.clock.advance(1.0)
            holders = [it for it in self.candidates if it.elector.held]
            assert len(holders) <= 1, "split brain"

    async def lease(self) -> Obj:
        return await self.api.get(LEASES, KEY)

    async def end(self) -> None:
        for it in self.candidates:
            await it.die()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.end()


async def test_one_stands_by_only_behind_somebody_who_is_seen_to_renew(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    second = rig.candidate("two")
    await settle()
    assert not second.elector.stands_by
    await rig.advance(25)
    assert second.elector.stands_by
    assert not first.elector.stands_by
    await first.die()
    third = rig.candidate("three")
    await rig.advance(50)
    assert not third.elector.stands_by, "who died before it came is nobody it stands behind"
    await rig.advance(100)
    assert {it.elector.held for it in (second, third)} == {True, False}
    await rig.advance(25)
    assert second.elector.held or second.elector.stands_by
    assert third.elector.held or third.elector.stands_by


async def test_the_first_candidate_wins_and_keeps_renewing(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    assert first.elector.held
    before = (await rig.lease())["metadata"]["resourceVersion"]
    await rig.advance(300)
    assert first.elector.held
    assert first.history == ["won"]
    assert (await rig.lease())["metadata"]["resourceVersion"] != before


async def test_the_second_stands_by_and_knows_the_holder(rig: Rig) -> None:
    rig.candidate("one")
    await settle()
    second = rig.candidate("two")
    await rig.advance(300)
    assert not second.elector.held
    assert second.elector.holder == "one"
    assert second.history == []


async def test_a_dead_holder_is_replaced_after_the_duration_and_not_before(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    second = rig.candidate("two")
    await rig.advance(5)
    await first.die()
    rig.candidates.remove(first)
    await rig.advance(45)
    assert not second.elector.held
    await rig.advance(45)
    assert second.elector.held
    assert (await rig.lease())["spec"]["leaseTransitions"] == 1


async def test_a_holder_that_took_it_for_years_is_waited_for_five_minutes(rig: Rig) -> None:
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 2**31 - 1}
    metadata = {"namespace": KEY.namespace, "name": KEY.name}
    await rig.api.create(LEASES, {"metadata": metadata, "spec": spec}, manager="somebody")
    mine = rig.candidate("me")
    await rig.advance(LONGEST - 20)
    assert not mine.elector.held
    await rig.advance(40)
    assert mine.elector.held


async def test_a_holder_of_another_version_has_the_time_it_says(rig: Rig) -> None:
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 180}
    metadata = {"namespace": KEY.namespace, "name": KEY.name}
    await rig.api.create(LEASES, {"metadata": metadata, "spec": spec}, manager="somebody")
    mine = rig.candidate("me")
    await rig.advance(160)
    assert not mine.elector.held
    await rig.advance(40)
    assert mine.elector.held


async def test_a_released_lease_is_taken_at_the_next_attempt(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    second = rig.candidate("two")
    await first.die()
    await first.elector.release()
    assert not first.elector.held
    await rig.advance(13)
    assert second.elector.held


@pytest.mark.parametrize("trouble", ["cut", "hang"])
async def test_a_holder_without_answers_gives_up_before_anybody_takes_over(
    rig: Rig, trouble: str
) -> None:
    first = rig.candidate("one")
    await settle()
    second = rig.candidate("two")
    await rig.advance(25)
    setattr(first.link, trouble, True)
    await rig.advance(41)
    assert not first.elector.held
    assert first.history == ["won", "lost"]
    assert not second.elector.held
    await rig.advance(60)
    assert second.elector.held
    setattr(first.link, trouble, False)
    await rig.advance(120)
    assert second.elector.held


async def test_a_short_interruption_costs_nothing(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    first.link.cut = True
    await rig.advance(25)
    first.link.cut = False
    await rig.advance(60)
    assert first.history == ["won"]


async def test_an_outage_that_ends_before_the_deadline_costs_nothing(rig: Rig) -> None:
    """The renewal must not miss the few seconds that are left."""
    one = rig.candidate("one")
    one.link.slow = 0.5
    for phase in range(12):
        await rig.advance(30 + phase)
        one.link.cut = True
        await rig.advance(25)
        one.link.cut = False
    await rig.advance(30)
    assert one.history == ["won"]


async def test_clocks_that_disagree_do_not_matter(rig: Rig) -> None:
    """The record may carry any time: only whether it changes counts."""
    first = rig.candidate("one")
    await settle()
    op = {"op": "replace", "path": "/spec/renewTime", "value": "2001-01-01T00:00:00.000000Z"}
    await rig.api.json_patch(LEASES, KEY, [op], manager="a clock that is wrong")
    second = rig.candidate("two")
    await rig.advance(30)
    assert first.history == ["won"]
    assert second.history == []


async def held_by_the_dead(rig: Rig, holder: str) -> None:
    """Let a process win and end without a word."""
    first = rig.candidate(holder)
    await settle()
    await first.die()
    rig.candidates.remove(first)


async def test_a_restarted_holder_of_the_same_identity_goes_on_at_once(rig: Rig) -> None:
    await held_by_the_dead(rig, "pod_uid")
    again = rig.candidate("pod_uid")
    await settle()
    assert again.elector.held


async def pod(rig: Rig) -> str:
    """Make a pod `old` and give its uid."""
    metadata = {"name": "old", "namespace": KEY.namespace}
    made = await rig.api.create(PODS, {"metadata": metadata}, manager="kubelet")
    return str(made["metadata"]["uid"])


async def test_a_holder_whose_pod_is_gone_is_not_waited_for(rig: Rig) -> None:
    """clusterctl takes an old version's rights before it can hand its Lease back."""
    await held_by_the_dead(rig, f"{KEY.namespace}/old_1")
    second = rig.candidate(f"{KEY.namespace}/new_2")
    await settle()
    assert second.elector.held


async def test_a_holder_whose_pod_is_there_is_waited_for(rig: Rig) -> None:
    await held_by_the_dead(rig, f"{KEY.namespace}/old_{await pod(rig)}")
    second = rig.candidate(f"{KEY.namespace}/new_2")
    await rig.advance(50)
    assert not second.elector.held
    await rig.advance(30)
    assert second.elector.held


async def test_another_pod_of_that_name_is_not_the_holder(rig: Rig) -> None:
    await held_by_the_dead(rig, f"{KEY.namespace}/old_before")
    await pod(rig)
    second = rig.candidate(f"{KEY.namespace}/new_2")
    await settle()
    assert second.elector.held


@pytest.mark.parametrize("holder", ["old_1", "host_1_ab", "another/old_1/x_2", "/old_1"])
async def test_a_holder_that_is_no_pod_we_can_find_is_waited_for(rig: Rig, holder: str) -> None:
    await held_by_the_dead(rig, holder)
    second = rig.candidate(f"{KEY.namespace}/new_2")
    await rig.advance(50)
    assert not second.elector.held
    await rig.advance(30)
    assert second.elector.held


async def test_a_pod_that_cannot_be_asked_for_is_not_gone(rig: Rig) -> None:
    await held_by_the_dead(rig, f"{KEY.namespace}/old_1")
    second = rig.candidate(f"{KEY.namespace}/new_2")
    second.link.forbidden = PODS
    await rig.advance(50)
    assert not second.elector.held


async def test_somebody_who_took_the_record_over_is_respected_at_once(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    ops = [{"op": "replace", "path": "/spec/holderIdentity", "value": "kubectl"}]
    await rig.api.json_patch(LEASES, KEY, ops, manager="kubectl")
    await rig.advance(13)
    assert not first.elector.held
    assert first.history == ["won", "lost"]


async def test_renewals_are_not_in_step(rig: Rig) -> None:
    rig.candidate("one")
    await settle()
    times = set()
    for _ in range(200):
        await rig.clock.advance(0.5)
        times.add((await rig.lease())["spec"]["renewTime"])
    seconds = sorted(float(it[17:-1]) + 60 * int(it[14:16]) for it in times)
    gaps = {round(b - a, 2) for a, b in itertools.pairwise(seconds)}
    assert len(gaps) > 3


def test_times_that_allow_two_holders_are_refused() -> None:
    with pytest.raises(ValueError, match="duration > deadline > retry"):
        LeaseTimes(duration=10.0, deadline=10.0, retry=1.0)
    with pytest.raises(ValueError, match=r"300\.0 >= duration"):
        # Others would take over while the holder still believes in it.
        LeaseTimes(duration=600.0, deadline=500.0, retry=10.0)


def test_identity_is_the_pods_when_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "pod-1")
    monkeypatch.setenv("POD_UID", "123")
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert default_identity(random.Random(1)) == "pod-1_123"
    monkeypatch.setenv("POD_NAMESPACE", "banlieue-system")
    assert default_identity(random.Random(1)) == "banlieue-system/pod-1_123"
    monkeypatch.delenv("POD_NAME")
    assert default_identity(random.Random(1)) != default_identity(random.Random(2))


async def test_renewing_costs_one_request(rig: Rig) -> None:
    rig.candidate("one")
    await settle()
    rig.api.calls.clear()
    await rig.advance(100)
    assert {it.verb for it in rig.api.calls} == {"json_patch"}
    assert len(rig.api.calls) <= 13


async def test_a_deleted_lease_is_made_again(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    rig.api.drop(LEASES, KEY)
    await rig.advance(13)
    assert first.history == ["won"]
    assert (await rig.lease())["spec"]["holderIdentity"] == "one"


async def test_releasing_does_not_wait_for_ever(rig: Rig) -> None:
    first = rig.candidate("one")
    await settle()
    first.link.hang = True
    releasing = asyncio.ensure_future(first.elector.release())
    await rig.clock.advance(6.0)
    assert releasing.done()
    assert not first.elector.held
