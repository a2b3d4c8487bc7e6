"""Blocking calls that may be interrupted anywhere, one at a time and in a known order.

A call runs in a thread, but only while the loop waits for it: whenever it reaches the backend it
hands control back, and goes on when it is resumed. So two calls interleave as they would in real
threads, and a process may die between two requests of one call.
"""

import threading
from collections.abc import Callable


class Abandoned(BaseException):
    """The process that made the call is gone."""


class Fiber:
    """One blocking call, run in pieces."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._resume = threading.Semaphore(0)
        self._yielded = threading.Semaphore(0)
        self._abandoned = False
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = False

    def resume(self) -> None:
        """Let it go on until it yields or ends."""
        if not self._started:
            self._started = True
            self._thread.start()
        else:
            self._resume.release()
        self._yielded.acquire()

    def abandon(self) -> None:
        """End it where it stands."""
        if self._started and not self.done:
            self._abandoned = True
            self.resume()
            self._thread.join()

    def pause(self) -> None:
        """Called from inside: give control back."""
        self._yielded.release()
        self._resume.acquire()
        if self._abandoned:
            raise Abandoned

    def _run(self) -> None:
        _CURRENT.fiber = self
        try:
            self.result = self._call()
        # Not handled here: it is raised where the call is awaited.
        except BaseException as error:  # noqa: BLE001 - carried to the caller
            self.error = error
        self.done = True
        self._yielded.release()


class _Current(threading.local):
    fiber: Fiber | None = None


_CURRENT = _Current()


def pause() -> None:
    """Give control back when this runs inside a fiber."""
    if _CURRENT.fiber is not None:
        _CURRENT.fiber.pause()
