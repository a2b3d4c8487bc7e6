import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from banlieue.api.events import EventReason
from banlieue.api.resources import EVENTS
from banlieue.sdk import kube
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.recorder import EventRecorder
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from test.kit.stepped_clock import SteppedClock, settle

FIRST, SECOND = random.Random(1).sample(sorted(EventReason), 2)
THING = {
    "apiVersion": "test.banlieue.io/v1",
    "kind": "Thing",
    "metadata": {"namespace": "ns", "name": "a", "uid": "u1", "resourceVersion": "5"},
}


class Rig:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = SteppedClock()
        self.metrics = Metrics()
        self.start()

    def start(self) -> None:
        """As a fresh process would."""
        self.recorder = EventRecorder(
            self.api,
            controller="banlieue.io/test",
            instance="pod-1",
            clock=self.clock,
            metrics=self.metrics,
        )
        self.task = asyncio.ensure_future(self.recorder.run())

    async def say(self, message: str, reason: EventReason = FIRST, obj: Obj | None = None) -> None:
        self.recorder.event(obj or THING, reason, message)
        await settle()

    async def events(self) -> list[Obj]:
        return await self.api.list(EVENTS)

    def dropped(self, why: str) -> float | None:
        registry = self.metrics.registry
        return registry.get_sample_value("banlieue_events_dropped_total", {"why": why})

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.end()


async def test_an_event_says_who_what_and_about_which_object(rig: Rig) -> None:
    rig.recorder.event(THING, FIRST, "The machine was cloned.", warning=True)
    await settle()
    (event,) = await rig.events()
    assert event["reason"] == FIRST.value
    assert event["note"] == "The machine was cloned."
    assert event["type"] == "Warning"
    assert event["reportingController"] == "banlieue.io/test"
    assert event["reportingInstance"] == "pod-1"
    assert event["metadata"]["namespace"] == "ns"
    assert event["regarding"]["uid"] == "u1"
    assert event["regarding"]["kind"] == "Thing"


async def test_the_same_thing_is_said_once(rig: Rig) -> None:
    for _ in range(50):
        await rig.say("It waits.")
    assert len(await rig.events()) == 1
    assert [it.verb for it in rig.api.calls if it.verb != "list"] == ["create"]


async def test_another_message_or_reason_is_another_event(rig: Rig) -> None:
    await rig.say("It waits.")
    await rig.say("It runs.")
    await rig.say("It runs.", SECOND)
    assert len(await rig.events()) == 3


async def test_what_goes_on_is_counted_every_few_minutes(rig: Rig) -> None:
    for _ in range(13):
        await rig.say("It waits.")
        await rig.clock.advance(60.0)
    (event,) = await rig.events()
    assert event["series"]["count"] == 3
    assert event["series"]["lastObservedTime"] > event["eventTime"]


async def test_what_returns_is_counted_on_the_event_that_is_there(rig: Rig) -> None:
    await rig.say("It waits.")
    await rig.say("It runs.")
    await rig.say("It waits.")
    events = await rig.events()
    assert sorted(it["note"] for it in events) == ["It runs.", "It waits."]
    (waits,) = [it for it in events if it["note"] == "It waits."]
    assert waits["series"]["count"] == 2


async def test_a_restarted_process_does_not_say_it_anew(rig: Rig) -> None:
    await rig.say("It waits.")
    await rig.end()
    rig.start()
    await rig.say("It waits.")
    assert len(await rig.events()) == 1


async def test_an_expired_event_is_written_again(rig: Rig) -> None:
    await rig.say("It waits.")
    (event,) = await rig.events()
    rig.api.drop(EVENTS, Key.of(event))
    await rig.clock.advance(3600.0)
    await rig.say("It waits.")
    assert len(await rig.events()) == 1


async def test_secrets_have_no_events(rig: Rig) -> None:
    await rig.say("It was read.", obj={**THING, "apiVersion": "v1", "kind": "Secret"})
    assert await rig.events() == []
    assert rig.dropped("secret") == 1


async def test_what_could_not_be_said_is_said_when_it_still_holds(rig: Rig) -> None:
    down = True

    def refuse(_: Call, moment: Moment) -> None:
        if down and moment is Moment.BEFORE:
            raise kube.Unavailable(503, "down")

    rig.api.intercept(refuse)
    await rig.say("It waits.")
    down = False
    assert rig.dropped("error") == 1
    await rig.say("It waits.")
    assert [it["note"] for it in await rig.events()] == ["It waits."]


async def test_a_full_queue_drops_without_blocking(rig: Rig) -> None:
    for number in range(1500):
        rig.recorder.event(THING, FIRST, f"Number {number}.")
    assert rig.dropped("queue full") == 500


async def test_cluster_scoped_objects_and_long_texts_fit(rig: Rig) -> None:
    meta = {"name": "n" * 253, "uid": "u2"}
    await rig.say("x" * 5000, obj={"apiVersion": "v1", "kind": "Node", "metadata": meta})
    (event,) = await rig.events()
    assert event["metadata"]["namespace"] == "default"
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["note"]) == 1024


async def test_flush_waits_for_what_is_queued(rig: Rig) -> None:
    rig.recorder.event(THING, FIRST, "It stopped.")
    await rig.recorder.flush(5.0)
    assert len(await rig.events()) == 1
