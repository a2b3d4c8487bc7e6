import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from banlieue.sdk import kube
from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Controller, Request, Result
from banlieue.sdk.runtime import passes
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.queue import WorkQueue
from banlieue.sdk.runtime.workers import Workers
from test.kit.stepped_clock import SteppedClock, settle

A, B = Key("ns", "a"), Key("ns", "b")
Body = Callable[[Key], Awaitable[Result]]


class Rig:
    """Workers over a reconciler that the test supplies, with a log of passes."""

    def __init__(self, body: Body, workers: int = 2) -> None:
        self.clock = SteppedClock()
        self.metrics = Metrics()
        self.body = body
        self.passes: list[Key] = []
        self.running: set[Key] = set()
        self.queue = WorkQueue(self.clock, random.Random(1))
        controller = Controller("things", self, (), workers=workers)
        self.workers = Workers(
            controller, self.queue, clock=self.clock, rng=random.Random(2), metrics=self.metrics
        )
        self.task = asyncio.ensure_future(self.workers.run())

    async def reconcile(self, key: Key) -> Result:
        assert key not in self.running
        self.running.add(key)
        self.passes.append(key)
        try:
            return await self.body(key)
        finally:
            self.running.discard(key)

    def add(self, key: Key, delay: float = 0.0) -> None:
        self.queue.add(Request(key, delay))

    def count(self, result: str) -> float:
        labels = {"controller": "things", "result": result}
        return (
            self.metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels)
            or 0.0
        )

    async def end(self, grace: float = 1.0) -> bool:
        drained = await self.workers.drain(grace)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        return drained


async def succeed(_: Key) -> Result:
    return Result()


async def test_runs_a_pass_per_request_and_counts_it() -> None:
    rig = Rig(succeed)
    rig.add(A)
    rig.add(B)
    await settle()
    assert sorted(rig.passes) == [A, B]
    assert rig.count("success") == 2
    assert await rig.end()


async def test_never_runs_more_passes_than_workers_nor_two_for_a_key() -> None:
    gate = asyncio.Event()

    async def wait(_: Key) -> Result:
        await gate.wait()
        return Result()

    rig = Rig(wait, workers=3)
    for number in range(10):
        rig.add(Key("ns", str(number % 5)))
    await settle()
    assert len(rig.running) == 3
    rig.add(next(iter(rig.running)))
    gate.set()
    await settle()
    assert len(rig.passes) == 6, "five keys, and one that was asked for again meanwhile"
    await rig.end()


async def test_requeue_after_brings_the_key_back_in_time() -> None:
    async def again(_: Key) -> Result:
        return Result(requeue_after=30.0)

    rig = Rig(again)
    rig.add(A)
    await rig.clock.advance(29.0)
    assert len(rig.passes) == 1
    await rig.clock.advance(1.5)
    assert len(rig.passes) == 2
    await rig.end()


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (kube.Conflict(409, "Conflict", "changed"), "conflict"),
        (kube.Unavailable(503, "down"), "unavailable"),
        (kube.Forbidden(403, "Forbidden", "no"), "error"),
        (ValueError("bug"), "error"),
    ],
)
async def test_a_failed_pass_comes_back_and_success_forgets_failures(
    error: Exception, result: str
) -> None:
    outcomes: list[Exception] = [error, error, error]

    async def fail_thrice(_: Key) -> Result:
        if outcomes:
            raise outcomes.pop()
        return Result()

    rig = Rig(fail_thrice)
    rig.add(A)
    await rig.clock.advance(60.0)
    assert len(rig.passes) == 4
    assert rig.count(result) == 3
    assert rig.count("success") == 1
    assert rig.queue.failures(A) == 0
    await rig.end()


async def test_a_failing_key_does_not_hold_up_others() -> None:
    async def fail_a(key: Key) -> Result:
        if key == A:
            raise ValueError("bug")
        return Result()

    rig = Rig(fail_a, workers=1)
    rig.add(A)
    rig.add(B)
    await settle()
    assert B in rig.passes
    await rig.end()


async def test_retry_after_is_honoured() -> None:
    async def busy(_: Key) -> Result:
        raise kube.Unavailable(429, "too many requests", retry_after=20.0)

    rig = Rig(busy)
    rig.add(A)
    await rig.clock.advance(19.0)
    assert len(rig.passes) == 1
    await rig.clock.advance(10.0)
    assert len(rig.passes) == 2
    await rig.end()


async def test_while_the_api_server_is_away_keys_do_not_all_hammer_it() -> None:
    async def away(_: Key) -> Result:
        raise kube.Unavailable(0, "connection refused")

    rig = Rig(away, workers=8)
    for number in range(1000):
        rig.add(Key("ns", str(number)))
    await rig.clock.advance(60.0)
    assert len(rig.passes) < 100
    rig.body = succeed
    done = len(rig.passes)
    await rig.clock.advance(15.0)
    for _ in range(20):
        await settle()
    assert len(rig.passes) - done >= 1000, "all come back soon after it returned"
    await rig.end()


async def test_a_pass_is_known_to_what_it_calls_and_to_nobody_else() -> None:
    found: list[passes.Pass | None] = []

    async def look(_: Key) -> Result:
        await asyncio.sleep(0)  # sleep-ok: lets other tasks run
        found.append(passes.current())
        return Result()

    rig = Rig(look)
    rig.add(A)
    rig.add(B)
    await settle()
    assert {(it.controller, it.key) for it in found if it} == {("things", A), ("things", B)}
    assert len({it.id for it in found if it}) == 2
    assert passes.current() is None
    await rig.end()


async def test_drain_waits_for_running_passes_and_starts_no_more() -> None:
    gate = asyncio.Event()

    async def wait(_: Key) -> Result:
        await gate.wait()
        return Result()

    rig = Rig(wait, workers=1)
    rig.add(A)
    rig.add(B)
    await settle()
    draining = asyncio.ensure_future(rig.workers.drain(30.0))
    await settle()
    assert not draining.done()
    gate.set()
    assert await draining
    assert rig.passes == [A]
    await rig.end()


async def test_drain_cuts_short_what_takes_too_long() -> None:
    cut = asyncio.Event()

    async def stuck(_: Key) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()
        return Result()

    rig = Rig(stuck)
    rig.add(A)
    await settle()
    assert not await rig.end(grace=0.01)
    assert cut.is_set()
