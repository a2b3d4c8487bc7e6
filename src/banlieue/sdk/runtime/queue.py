"""The work queue of one controller: which key gets a pass next, and when.

The core is synchronous and free of any event loop, so a simulator can step it: `add`, `pop`,
`done`, `retry`. `get` waits on top of it for the one dispatcher of a controller.

Guarantees: a key that is being worked on is never handed out again before `done`; a request is
never lost, whatever arrives while its key is being worked on; requests for one key merge into the
earliest time and the most urgent priority.
"""

import asyncio
import heapq
from dataclasses import dataclass
from random import Random
from typing import Protocol

from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Clock, Priority, Request
from banlieue.sdk.runtime.clock import happens

BASE_DELAY = 0.05
MAX_DELAY = 300.0
_MAX_DOUBLINGS = 32
_HEAP_SLACK = 64


class QueueClosedError(Exception):
    """The queue hands out no more keys."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key handed out for one pass; `waited` is in seconds since it was due."""

    key: Key
    priority: Priority
    waited: float


class QueueHooks(Protocol):
    """Where a queue reports what happens, for metrics. All times are in seconds."""

    def added(self) -> None:
        """A request was accepted."""

    def started(self, waited: float) -> None:
        """A key was handed out."""

    def finished(self, worked: float) -> None:
        """A pass ended."""

    def retried(self) -> None:
        """A pass failed and its key comes back after a backoff."""

    def depth(self, ready: int) -> None:
        """So many keys are due and not handed out."""


class NoHooks:
    """Reports nothing."""

    def added(self) -> None:
        """Ignore."""

    def started(self, waited: float) -> None:
        """Ignore."""

    def finished(self, worked: float) -> None:
        """Ignore."""

    def retried(self) -> None:
        """Ignore."""

    def depth(self, ready: int) -> None:
        """Ignore."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    key: Key
    due: float
    priority: Priority


_Heap = list[tuple[float, int, _Pending]]


class WorkQueue:
    """Keys with pending requests, keys being worked on, and failures counted per key."""

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        *,
        base_delay: float = BASE_DELAY,
        max_delay: float = MAX_DELAY,
        hooks: QueueHooks | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._hooks: QueueHooks = hooks or NoHooks()
        self._pending: dict[Key, _Pending] = {}
        self._active: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._delayed: _Heap = []
        self._ready: _Heap = []
        self._sequence = 0
        self._closed = False
        self._wake = asyncio.Event()

    def add(self, request: Request) -> None:
        """Ask for a pass; merges with what is pending for the key. Ignored once closed."""
        if self._closed:
            return
        self._hooks.added()
        due = self._clock.monotonic() + max(0.0, request.delay)
        known = self._pending.get(request.key)
        if known is None:
            self._put(_Pending(request.key, due, request.priority))
            return
        merged = _Pending(request.key, min(known.due, due), min(known.priority, request.priority))
        if merged.due < known.due or merged.priority < known.priority:
            self._put(merged)

    def pop(self) -> Item | None:
        """Hand out the most urgent key that is due, None when there is none."""
        self._promote()
        while self._ready:
            _, _, pending = heapq.heappop(self._ready)
            if not self._is_current(pending):
                continue
            del self._pending[pending.key]
            now = self._clock.monotonic()
            self._active[pending.key] = now
            waited = max(0.0, now - pending.due)
            self._hooks.started(waited)
            self._hooks.depth(len(self._ready))
            return Item(pending.key, pending.priority, waited)
        return None

    def done(self, key: Key) -> None:
        """End the pass over `key`; requests that arrived meanwhile become available."""
        started = self._active.pop(key, None)
        if started is None:
            return
        self._hooks.finished(self._clock.monotonic() - started)
        pending = self._pending.get(key)
        if pending is not None:
            self._push(pending)

    def retry(
        self,
        key: Key,
        *,
        priority: Priority = Priority.CHANGE,
        at_least: float = 0.0,
        at_most: float = MAX_DELAY,
    ) -> float:
        """Ask for another pass after a failure; returns the delay in seconds.

        The ceiling of the delay doubles with each failure in a row, up to `at_most`; the delay is
        `at_least` and what is drawn evenly below the ceiling (full jitter).
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        highest = min(self._max_delay, at_most)
        ceiling = min(highest, self._base_delay * 2 ** min(failures, _MAX_DOUBLINGS))
        delay = at_least + self._rng.uniform(0.0, ceiling)
        self._hooks.retried()
        self.add(Request(key, delay, priority))
        return delay

    def forget(self, key: Key) -> None:
        """Start over with the shortest backoff for `key`."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """How many passes over `key` failed in a row."""
        return self._failures.get(key, 0)

    def until_due(self) -> float | None:
        """Seconds until a key is due: 0.0 when one is now, None when nothing is pending."""
        self._promote()
        self._drop_stale(self._ready)
        if self._ready:
            return 0.0
        self._drop_stale(self._delayed)
        if self._delayed:
            return max(0.0, self._delayed[0][0] - self._clock.monotonic())
        return None

    def pending(self) -> int:
        """How many keys have a request that was not handed out yet."""
        return len(self._pending)

    def active(self) -> dict[Key, float]:
        """Keys being worked on, with the time their pass began (`Clock.monotonic`)."""
        return dict(self._active)

    def ready(self) -> int:
        """How many keys are due and not handed out."""
        now = self._clock.monotonic()
        return sum(
            1 for key, it in self._pending.items() if it.due <= now and key not in self._active
        )

    async def get(self) -> Item:
        """Wait for the next key. One waiter at a time.

        Raises:
            QueueClosedError: the queue was closed; pending keys are left.
        """
        while not self._closed:
            self._wake.clear()
            item = self.pop()
            if item is not None:
                return item
            await self._wait(self.until_due())
        raise QueueClosedError

    def close(self) -> None:
        """Hand out nothing more and accept nothing more."""
        self._closed = True
        self._wake.set()

    async def _wait(self, seconds: float | None) -> None:
        if seconds is None:
            await self._wake.wait()
        else:
            await happens(self._wake, self._clock, within=seconds)

    def _put(self, pending: _Pending) -> None:
        self._pending[pending.key] = pending
        if pending.key not in self._active:
            self._push(pending)

    def _push(self, pending: _Pending) -> None:
        self._sequence += 1
        if pending.due <= self._clock.monotonic():
            heapq.heappush(self._ready, (float(pending.priority), self._sequence, pending))
            self._hooks.depth(len(self._ready))
        else:
            heapq.heappush(self._delayed, (pending.due, self._sequence, pending))
            self._compact()
        self._wake.set()

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            _, _, pending = heapq.heappop(self._delayed)
            if self._is_current(pending):
                self._sequence += 1
                heapq.heappush(self._ready, (float(pending.priority), self._sequence, pending))

    def _is_current(self, pending: _Pending) -> bool:
        return self._pending.get(pending.key) is pending and pending.key not in self._active

    def _drop_stale(self, heap: _Heap) -> None:
        while heap and not self._is_current(heap[0][2]):
            heapq.heappop(heap)

    def _compact(self) -> None:
        # A key that changes often leaves one stale resync entry per pass.
        if len(self._delayed) > 2 * len(self._pending) + _HEAP_SLACK:
            self._delayed = [it for it in self._delayed if self._is_current(it[2])]
            heapq.heapify(self._delayed)
