"""A clock that tests move by hand; sleepers wake in order of their time."""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta
from typing import Final

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ROUNDS: Final = 60


class SteppedClock:
    """Implements `banlieue.sdk.reconcile.Clock` without real time.

    Attributes:
        sleeping: How many tasks sleep now.
    """

    def __init__(self) -> None:
        self._passed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)

    def now(self) -> datetime:
        """Current time in UTC."""
        return _START + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._passed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved that far."""
        future = asyncio.get_running_loop().create_future()
        due = self._passed + max(0.0, seconds)
        heapq.heappush(self._sleepers, (due, next(self._numbers), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move on, waking sleepers one after the other and letting them run in between."""
        target = self._passed + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            self._passed = max(self._passed, due)
            if not future.done():
                future.set_result(None)
                await settle()
        self._passed = target
        await settle()


async def settle() -> None:
    """Let all tasks run until they wait for something that only time or the test brings."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)  # sleep-ok: lets other tasks run
