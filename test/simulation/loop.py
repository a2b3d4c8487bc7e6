"""An event loop whose time is virtual and whose order comes from a seed.

Nothing ever waits: when no callback is ready, time jumps to the next timer. Callbacks carry the
process they belong to in their context; those of a process that died are never run again, which is
how a crash at any await is played.
"""

import asyncio
import gc
import heapq
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Protocol, TypeVar, cast

from banlieue.sdk.testing.fakes import START

T = TypeVar("T")

_MAX_STEPS = 40_000
_START = START.astimezone(UTC)


class Mortal(Protocol):
    """Something whose callbacks stop for ever when it dies."""

    dead: bool
    steps: int
    doom: int

    def fall(self) -> None:
        """Die now: the step `doom` names was reached."""


OWNER: ContextVar[Mortal | None] = ContextVar("simulated_process", default=None)
"""The process a callback belongs to."""


def die_before_the_answer() -> None:
    """The process that makes a call dies when the call took effect, and never hears of it."""
    owner = OWNER.get()
    if owner is not None and not owner.dead:
        owner.doom = owner.steps + 1


class Handle:
    """A callback to run; also the handle that cancels it."""

    __slots__ = ("_cancelled", "args", "callback", "context", "due")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
        due: float = 0.0,
    ) -> None:
        self.callback = callback
        self.args = args
        # An empty context is falsy, and is one: of no process, so that it outlives them.
        self.context = copy_context() if context is None else context
        self.due = due
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self.due


class Stuck(Exception):
    """The simulation does not come to an end."""


class VirtualLoop:
    """Runs callbacks in an order drawn from a generator, or in the order they came.

    It has what tasks, futures, locks and time-outs of asyncio ask of a loop, and nothing else.
    """

    def __init__(self, rng: Random, *, shuffle: bool) -> None:
        self.steps = 0
        self.errors: list[str] = []
        self._rng = rng
        self._shuffle = shuffle
        self._now = 0.0
        self._ready: list[Handle] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._serial = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._closed = False
        self._halted = False
        self._running = False
        self._itself = cast("asyncio.AbstractEventLoop", self)

    # What asyncio asks.

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Handle:
        call = Handle(callback, args, context)
        if not self._closed:
            self._ready.append(call)
        return call

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        return self.call_at(self._now + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        call = Handle(callback, args, context, when)
        if not self._closed:
            self._serial += 1
            heapq.heappush(self._timers, (when, self._serial, call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._itself)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self._itself, name=name, context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")

    # What the simulator does.

    def forget(self) -> None:
        """Let go of tasks that are done, and count steps anew."""
        self._tasks = [task for task in self._tasks if not task.done()]
        self.steps = 0

    def halt(self) -> None:
        """Run nothing more."""
        self._halted = True

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run until `main` ends or somebody halts the loop.

        Raises:
            Stuck: it needs too many steps, or waits for something that never comes.
        """
        asyncio.events._set_running_loop(self._itself)
        self._running = True
        try:
            task = self.create_task(main, name="main")
            while not self._halted and not task.done():
                self._step()
            if task.done():
                task.result()
        finally:
            self._running = False
            asyncio.events._set_running_loop(None)

    def close(self) -> None:
        """Take down whatever still waits, quietly."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        asyncio.events._set_running_loop(self._itself)
        hook, sys.unraisablehook = sys.unraisablehook, _nothing
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own
                    _end(task)
            self._tasks.clear()
            gc.collect()
        finally:
            sys.unraisablehook = hook
            asyncio.events._set_running_loop(None)

    def _step(self) -> None:
        ready = self._ready
        if not ready:
            self._jump()
            return
        position = 0
        if self._shuffle and len(ready) > 1:
            position = int(self._rng.random() * len(ready))
        call = ready.pop(position)
        if call._cancelled:
            return
        context = call.context
        owner = context.get(OWNER)
        if owner is not None:
            if owner.dead:
                return
            owner.steps += 1
            if owner.steps == owner.doom:
                owner.fall()
                return
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise Stuck(f"no end after {_MAX_STEPS} steps")
        context.run(call.callback, *call.args)

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck("everybody waits for ever")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            call = heapq.heappop(timers)[2]
            if not call._cancelled:
                self._ready.append(call)


def _nothing(_unraisable: object) -> None:
    """What a coroutine awaits while it is taken down interests nobody."""


def _end(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    try:
        if coroutine is not None:
            coroutine.close()
    except RuntimeError:
        return  # it awaits while it is taken down; nobody is there to wait for


class VirtualClock:
    """The loop's time; implements `banlieue.sdk.reconcile.Clock`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return _START + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop._now

    async def sleep(self, seconds: float) -> None:
        await self._loop_sleep(seconds)

    async def _loop_sleep(self, seconds: float) -> None:
        future = self._loop.create_future()
        call = self._loop.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            call.cancel()


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
