"""Waiting for conditions; the only place of the tests that sleeps."""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, overload

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_SHOWN_CHARACTERS: Final = 2000

PATIENCE: Final = float(os.environ.get("BANLIEUE_TEST_PATIENCE", "3"))
"""How many times slower than the machine the timeouts were found on another one may be.

Waiting ends with its condition, so patience costs nothing but where something is broken.
"""

_LONGEST_EXTRA: Final = 120.0


class WaitTimeoutError(TimeoutError):
    """A condition did not come true in time; the message says which and what was seen last."""


def patient(timeout: float) -> float:
    """A timeout for a machine that is slower; not so long that what is broken takes an hour."""
    return timeout + min(timeout * (PATIENCE - 1), _LONGEST_EXTRA)


def wait_until(
    predicate: Callable[[], T | None],
    timeout: float,
    what: str,
    *,
    retry_on: tuple[type[Exception], ...] = (),
    apart: float = _LONGEST_PAUSE,
    exact: bool = False,
) -> T:
    """Call `predicate` until it answers something true, and return that answer.

    Args:
        predicate: Asked again and again.
        timeout: Seconds until giving up, made `patient`; the predicate is asked at least once.
        what: What is awaited, to be read after "timed out after 5 s waiting for".
        retry_on: Errors that mean "not yet". All others end the wait.
        apart: Seconds between two looks, at most; more for what is dear to ask and takes long.
        exact: Give up after `timeout` on every machine: what comes then is no failure.

    Raises:
        WaitTimeoutError: Nothing true came in time.
    """
    watch = _Watch(timeout if exact else patient(timeout), what, apart)
    while True:
        try:
            seen = predicate()
        except retry_on as error:
            watch.note(error)
        else:
            if seen:
                return seen
            watch.note(seen)
        time.sleep(watch.next_pause())  # sleep-ok: the one pause of all synchronous waits


@overload
async def wait_until_async(
    predicate: Callable[[], Awaitable[T | None]],
    timeout: float,
    what: str,
    *,
    retry_on: tuple[type[Exception], ...] = (),
) -> T: ...


@overload
async def wait_until_async(
    predicate: Callable[[], T | None],
    timeout: float,
    what: str,
    *,
    retry_on: tuple[type[Exception], ...] = (),
) -> T: ...


async def wait_until_async(
    predicate: Callable[[], T | Awaitable[T | None] | None],
    timeout: float,
    what: str,
    *,
    retry_on: tuple[type[Exception], ...] = (),
) -> T:
    """The same for code on an event loop; the predicate may be a coroutine function.

    Raises:
        WaitTimeoutError: Nothing true came in time. An awaited predicate is not cut short.
    """
    watch = _Watch(patient(timeout), what)
    while True:
        try:
            answer = predicate()
            seen: T | None = await answer if inspect.isawaitable(answer) else answer
        except retry_on as error:
            watch.note(error)
        else:
            if seen:
                return seen
            watch.note(seen)
        await asyncio.sleep(watch.next_pause())  # sleep-ok: the one pause of all async waits


def stays_true(predicate: Callable[[], object], duration: float, what: str) -> None:
    """Check that `predicate` answers something true all the time.

    Args:
        predicate: Asked again and again, at most 100 ms apart.
        duration: Seconds to look for; it is also asked once at their end.
        what: What has to hold, to be read after "no longer true after 1.2 s:".

    Raises:
        AssertionError: It answered something false.
    """
    started = time.monotonic()
    while True:
        elapsed = time.monotonic() - started
        seen = predicate()
        if not seen:
            raise AssertionError(f"no longer true after {elapsed:.1f} s: {what}; saw {_show(seen)}")
        if elapsed >= duration:
            return
        pause = min(_LONGEST_PAUSE, duration - elapsed)
        time.sleep(pause)  # sleep-ok: looks at a condition over a time span


class _Watch:
    def __init__(self, timeout: float, what: str, apart: float = _LONGEST_PAUSE) -> None:
        self._timeout, self._apart = timeout, apart
        self._deadline = time.monotonic() + timeout
        self._what = what
        self._pause = _FIRST_PAUSE
        self._last: object = None

    def note(self, seen: object) -> None:
        self._last = seen

    def next_pause(self) -> float:
        """Seconds until the next look; raises once the deadline has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            error = WaitTimeoutError(
                f"timed out after {self._timeout:g} s waiting for {self._what}; "
                f"last seen: {_show(self._last)}"
            )
            raise error from (self._last if isinstance(self._last, Exception) else None)
        pause = min(self._pause, left)
        self._pause = min(self._pause * 1.5, self._apart)
        return pause


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
