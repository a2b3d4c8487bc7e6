"""Runs a `Process` of the runtime on the test's own loop, with a reconciler that takes notes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Controller, Request, Result, Watch
from banlieue.sdk.runtime.process import Options, Process
from banlieue.sdk.runtime.sources import EventSource
from banlieue.sdk.runtime.streams import Intervals
from test.kit.waiting import wait_until_async

CONTROLLER: Final = "notes"
Body = Callable[["LiveProcess", Key, Obj | None], Awaitable[Result | None]]


class LiveProcess:
    """One controller over the watches of a test.

    Attributes:
        process: The process under test.
        passes: Keys of all passes in order.
        seen: What the latest pass over each key found in the cache, None when gone.
        code: Exit code once it has ended.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *watches: Watch,
        body: Body | None = None,
        source: EventSource | None = None,
        **options: Any,  # noqa: ANN401 - fields of Options
    ) -> None:
        options.setdefault("intervals", Intervals(discovery=0.3))
        settings = Options(role="live-test", kubeconfig=str(kubeconfig), **options)
        self.process = Process(settings, source=source)
        self.passes: list[Key] = []
        self.seen: dict[Key, Obj | None] = {}
        self.code: int | None = None
        self._watches = watches
        self._body = body
        self._task: asyncio.Task[int] | None = None
        self.process.add_controller(Controller(CONTROLLER, self, watches, workers=4))

    async def reconcile(self, key: Key) -> Result:
        """Note the pass and do what the test wants done."""
        obj = self.process.cache.get(self._watches[0].resource, key)
        self.passes.append(key)
        self.seen[key] = obj
        done = await self._body(self, key, obj) if self._body is not None else None
        return done or Result()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.process.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> int:
        """Stop it, if it has not ended by itself, and give the exit code."""
        self.process.stop()
        return await self.ended()

    async def ended(self, timeout: float = 60.0) -> int:
        """Wait for its end and give the exit code."""
        if self._task is None:
            raise RuntimeError("it was never started")
        async with asyncio.timeout(timeout):
            self.code = await self._task
        return self.code

    async def ready(self, timeout: float = 30.0) -> None:
        """Wait until its own readiness says so."""

        async def look() -> bool:
            missing = {name: why for name, why in self.process.health.ready().items() if why}
            if missing:
                raise _NotReadyError(missing)
            return True

        await wait_until_async(look, timeout, "readiness", retry_on=(_NotReadyError,))

    async def until(
        self, predicate: Callable[[], object], what: str, timeout: float = 30.0
    ) -> None:
        """Wait until something is true of it."""
        await wait_until_async(lambda: bool(predicate()), timeout, what)


class _NotReadyError(Exception):
    """Which checks fail."""


def by_key(change: Change) -> list[Request]:
    """A mapper: the object itself."""
    return [Request(change.key)]
