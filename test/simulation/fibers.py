"""Blocking calls that may be interrupted anywhere, one at a time and in a known order.

A call runs in a thread, but only while the loop waits for it: whenever it reaches the backend it
hands control back, and goes on when it is resumed. So two calls interleave as they would in real
threads, and a process may die between two requests of one call.
"""

import os
import threading
from _thread import allocate_lock
from collections.abc import Callable
from contextvars import copy_context


class Abandoned(BaseException):
    """The process that made the call is gone."""


class Fiber:
    """One blocking call, run in pieces."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._context = copy_context()
        self._thread: _Thread | None = None
        self._abandoned = False
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None

    def resume(self) -> None:
        """Let it go on until it yields or ends."""
        thread = self._thread
        if thread is None:
            thread = self._thread = _IDLE.pop() if _IDLE else _Thread()
            thread.fiber = self
        thread.go_on()
        if self.done:
            _IDLE.append(thread)

    def abandon(self) -> None:
        """End it where it stands."""
        if self._thread is not None and not self.done:
            self._abandoned = True
            self.resume()

    def pause(self) -> None:
        """Called from inside: give control back."""
        assert self._thread is not None
        self._thread.give_back()
        if self._abandoned:
            raise Abandoned

    def run(self) -> None:
        """Make the call, in the thread that was chosen for it."""
        try:
            self.result = self._context.run(self._call)
        # Not handled here: it is raised where the call is awaited.
        except BaseException as error:  # noqa: BLE001 - carried to the caller
            self.error = error
        self.done = True


class _Thread:
    """A thread that runs one call after the other; starting one is dear, and so is a semaphore."""

    def __init__(self) -> None:
        self.fiber: Fiber | None = None
        self._mine, self._theirs = allocate_lock(), allocate_lock()
        self._mine.acquire()
        self._theirs.acquire()
        threading.Thread(target=self._run, daemon=True).start()

    def go_on(self) -> None:
        """Let it run until it gives control back."""
        self._mine.release()
        self._theirs.acquire()

    def give_back(self) -> None:
        """Called from inside: wait until it shall go on."""
        self._theirs.release()
        self._mine.acquire()

    def _run(self) -> None:
        self._mine.acquire()
        while self.fiber is not None:
            _CURRENT.fiber = self.fiber
            self.fiber.run()
            _CURRENT.fiber = self.fiber = None
            self.give_back()


_IDLE: list[_Thread] = []
os.register_at_fork(after_in_child=_IDLE.clear)  # a child has no thread but its own


class _Current(threading.local):
    fiber: Fiber | None = None


_CURRENT = _Current()


def pause() -> None:
    """Give control back when this runs inside a fiber."""
    if _CURRENT.fiber is not None:
        _CURRENT.fiber.pause()
