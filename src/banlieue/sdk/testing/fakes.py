"""Small fakes of the seams in `banlieue.sdk.reconcile`."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from banlieue.api.events import EventReason
from banlieue.sdk.calls import PoolClosedError
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Context, Request, Watch
from banlieue.sdk.testing.memory_api import MemoryApi

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until `advance`; `sleep` advances it by itself."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._passed = 0.0

    def now(self) -> datetime:
        """Current time in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += seconds

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and others run."""
        self.advance(seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Event:
    """An event as a reconciler asked for it."""

    key: Key
    reason: EventReason
    message: str
    warning: bool


@dataclass(slots=True)
class MemoryRecorder:
    """Keeps events in a list, all of them: repeated ones show."""

    events: list[Event] = field(default_factory=list)

    def event(self, obj: Obj, reason: EventReason, message: str, *, warning: bool = False) -> None:
        """Keep the event."""
        self.events.append(Event(Key.of(obj), reason, message, warning))

    def reasons(self) -> list[EventReason]:
        """Reasons of all events, in order."""
        return [event.reason for event in self.events]


@dataclass(slots=True)
class MemoryQueue:
    """Keeps what was enqueued and which watches were added."""

    requests: list[tuple[str, Request]] = field(default_factory=list)
    watches: list[tuple[str, Watch]] = field(default_factory=list)

    def enqueue(self, controller: str, request: Request) -> None:
        """Keep the request."""
        self.requests.append((controller, request))

    def add_watch(self, controller: str, watch: Watch) -> None:
        """Keep the watch."""
        self.watches.append((controller, watch))

    @property
    def asked(self) -> set[Key]:
        """Keys that were asked for."""
        return {request.key for _, request in self.requests}


class InlinePool:
    """Vendor calls run at once on the event loop; `closed` tells that the pool was given up.

    Put a verb's answer off with `stuck`: while true, every call counts as taking too long.
    """

    def __init__(self) -> None:
        self.stuck = False
        self.closed = False

    async def __call__(self, call: Callable[[], object], *, timeout: float) -> object:
        """Run the call, or give it up; the clock of the test does not move by that."""
        await asyncio.sleep(0)
        if self.closed:
            raise PoolClosedError("the pool is closed")
        if self.stuck:
            raise TimeoutError(f"no answer within {timeout} s")
        return call()

    def close(self) -> None:
        """Take no more calls."""
        self.closed = True


class FakeLease:
    """A candidate that holds its Lease as the test says."""

    def __init__(self, on_change: Callable[[], Awaitable[None]]) -> None:
        self.identity = "me"
        self.holder = "me"
        self.held = True
        self._on_change = on_change

    async def give(self, holder: str) -> None:
        """Let somebody hold the Lease from now on; "me" is this process."""
        self.holder, self.held = holder, holder == self.identity
        await self._on_change()

    async def run(self) -> None:
        """Compete for ever."""
        await asyncio.get_running_loop().create_future()

    async def release(self) -> None:
        """Let go."""
        self.held = False


@dataclass(slots=True)
class FakeLeases:
    """Makes candidates, all of which hold their Lease at once, and keeps them by Lease key."""

    made: dict[Key, FakeLease] = field(default_factory=dict)

    def __call__(self, lease: Key, on_change: Callable[[], Awaitable[None]]) -> FakeLease:
        """A candidate for the Lease."""
        self.made[lease] = FakeLease(on_change)
        return self.made[lease]


def context_for(
    api: MemoryApi,
    *,
    clock: FakeClock | None = None,
    recorder: MemoryRecorder | None = None,
    queue: MemoryQueue | None = None,
    settings: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Context:
    """A context whose every seam is a fake; pass those the test looks at."""
    queue = queue or MemoryQueue()
    return Context(
        api=api,
        cache=api.cache,
        clock=clock or FakeClock(),
        rng=random.Random(seed),  # noqa: S311 - schedules of tests, not cryptography
        recorder=recorder or MemoryRecorder(),
        enqueue=queue.enqueue,
        add_watch=queue.add_watch,
        settings=settings or {},
    )
