"""Real time, and the seeded randomness that goes with it."""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

from banlieue.sdk.reconcile import Clock

T = TypeVar("T")


class SystemClock:
    """The machine's own time; implements `banlieue.sdk.reconcile.Clock`."""

    def now(self) -> datetime:
        """Current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""
        await asyncio.sleep(seconds)


async def happens(event: asyncio.Event, clock: Clock, *, within: float) -> bool:
    """Wait until an event is set or so many seconds of a clock have passed; tells which."""
    waiting = asyncio.ensure_future(event.wait())
    timer = asyncio.ensure_future(clock.sleep(within))
    try:
        await asyncio.wait((waiting, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        timer.cancel()
    return event.is_set()


async def finish(work: Coroutine[Any, Any, T], clock: Clock, *, within: float) -> T:
    """Await something, but not for longer than so many seconds of a clock.

    Raises:
        TimeoutError: it took longer, and was cancelled.
    """
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(within))
    try:
        await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        timer.cancel()
        task.cancel()


def make_rng(seed: int | None = None) -> Random:
    """Give a generator for jitter and ids; without a seed it differs in each process."""
    return Random(seed)  # noqa: S311 - jitter and log ids, nothing that must be hard to guess
