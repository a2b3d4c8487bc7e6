import asyncio
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Priority, Request
from banlieue.sdk.runtime.queue import QueueClosedError, WorkQueue
from banlieue.sdk.testing.fakes import FakeClock
from test.kit.stepped_clock import SteppedClock, settle

KEYS = [Key("ns", name) for name in "abcd"]
A, B = KEYS[:2]


@dataclass
class Wanted:
    due: float
    priority: Priority


class QueueMachine(RuleBasedStateMachine):
    """Drives a queue and a plain model of its promises side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.queue = WorkQueue(self.clock, random.Random(1))
        self.wanted: dict[Key, Wanted] = {}
        self.active: set[Key] = set()

    def want(self, key: Key, delay: float, priority: Priority) -> None:
        due = self.clock.monotonic() + delay
        known = self.wanted.get(key)
        if known is None:
            self.wanted[key] = Wanted(due, priority)
        else:
            known.due = min(known.due, due)
            known.priority = min(known.priority, priority)

    def due(self) -> dict[Key, Wanted]:
        now = self.clock.monotonic()
        return {
            key: it for key, it in self.wanted.items() if it.due <= now and key not in self.active
        }

    @rule(
        key=st.sampled_from(KEYS),
        delay=st.sampled_from([0.0, 0.5, 3.0, 600.0]),
        priority=st.sampled_from(list(Priority)),
    )
    def add(self, key: Key, delay: float, priority: Priority) -> None:
        self.queue.add(Request(key, delay, priority))
        self.want(key, delay, priority)

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 1000.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def pop(self) -> None:
        item, due = self.queue.pop(), self.due()
        if item is None:
            assert not due, "a request was lost"
            return
        assert item.key not in self.active, "two workers on one key"
        assert item.key in due, "handed out before its time"
        assert item.priority == due[item.key].priority
        assert item.priority == min(it.priority for it in due.values())
        del self.wanted[item.key]
        self.active.add(item.key)

    @precondition(lambda self: self.active)
    @rule(data=st.data(), retry=st.booleans())
    def finish(self, data: st.DataObject, *, retry: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.active)))
        if retry:
            self.want(key, self.queue.retry(key), Priority.CHANGE)
        self.queue.done(key)
        self.active.discard(key)

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.pending() == len(self.wanted)
        assert set(self.queue.active()) == self.active
        assert self.queue.ready() == len(self.due())

    @invariant()
    def tells_when_the_next_is_due(self) -> None:
        free = [it.due for key, it in self.wanted.items() if key not in self.active]
        until = self.queue.until_due()
        if not free:
            assert until is None
        else:
            assert until == pytest.approx(max(0.0, min(free) - self.clock.monotonic()))

    def teardown(self) -> None:
        """Whatever happened, every request is handed out in the end."""
        for key in self.active:
            self.queue.done(key)
        self.active.clear()
        self.clock.advance(10_000.0)
        handed_out = set()
        while (item := self.queue.pop()) is not None:
            handed_out.add(item.key)
        assert handed_out == set(self.wanted)


QueueMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestQueue = QueueMachine.TestCase


@given(failures=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_backoff_stays_below_its_ceiling_and_doubles(failures: int, seed: int) -> None:
    queue = WorkQueue(FakeClock(), random.Random(seed))
    for _ in range(failures):
        queue.retry(A)
    assert 0.0 <= queue.retry(A) <= min(300.0, 0.05 * 2**failures)


def test_backoff_uses_the_whole_range() -> None:
    queue = WorkQueue(FakeClock(), random.Random(7))
    delays = []
    for number in range(300):
        key = Key("ns", str(number))
        for _ in range(10):
            queue.retry(key)
        delays.append(queue.retry(key))
    ceiling = 0.05 * 2**10
    assert min(delays) < ceiling * 0.1
    assert max(delays) > ceiling * 0.9


def test_backoff_honours_bounds_of_the_caller() -> None:
    queue = WorkQueue(FakeClock(), random.Random(7))
    for _ in range(40):
        assert 2.0 <= queue.retry(A, at_least=2.0, at_most=5.0) <= 7.0


def test_forgetting_starts_over() -> None:
    queue = WorkQueue(FakeClock(), random.Random(7))
    for _ in range(20):
        queue.retry(A)
    assert queue.failures(A) == 20
    queue.forget(A)
    assert queue.failures(A) == 0
    assert queue.retry(A) <= 0.05


def test_a_key_that_changes_often_leaves_no_heap_behind() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock, random.Random(7))
    for _ in range(5000):
        queue.add(Request(A))
        assert queue.pop() is not None
        queue.add(Request(A, 600.0, Priority.RESYNC))
        queue.done(A)
    assert len(queue._delayed) < 100


async def test_get_waits_for_a_delayed_request() -> None:
    clock = SteppedClock()
    queue = WorkQueue(clock, random.Random(7))
    queue.add(Request(A, 5.0))
    getting = asyncio.ensure_future(queue.get())
    await clock.advance(4.9)
    assert not getting.done()
    await clock.advance(0.2)
    assert (await getting).key == A
    assert clock.sleeping == 0


async def test_get_is_woken_by_an_earlier_request() -> None:
    clock = SteppedClock()
    queue = WorkQueue(clock, random.Random(7))
    queue.add(Request(A, 500.0))
    getting = asyncio.ensure_future(queue.get())
    await settle()
    queue.add(Request(B))
    assert (await getting).key == B


async def test_closing_ends_waiting_and_leaves_pending_keys() -> None:
    queue = WorkQueue(SteppedClock(), random.Random(7))
    getting = asyncio.ensure_future(queue.get())
    await settle()
    queue.close()
    with pytest.raises(QueueClosedError):
        await getting
    queue.add(Request(A))
    with pytest.raises(QueueClosedError):
        await queue.get()
