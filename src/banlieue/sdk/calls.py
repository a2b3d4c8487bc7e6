"""Blocking calls in threads of their own: bounded, each with a timeout, never in the way of exit.

The standard executor waits for its threads when the interpreter ends, and a thread that hangs in
a vendor's library is lost to it for good. Here threads are daemons, and a call that was given up
gets its thread replaced, within bounds.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

SIZE = 8


class PoolClosedError(RuntimeError):
    """The pool takes no more calls."""


class _State(Enum):
    WAITING = auto()
    RUNNING = auto()
    GIVEN_UP = auto()
    DONE = auto()


class _Job:
    __slots__ = ("call", "future", "loop", "replaced", "state")

    def __init__(self, call: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.loop = loop
        self.future: asyncio.Future[object] = loop.create_future()
        self.state = _State.WAITING
        self.replaced = False


class CallPool:
    """Threads for one endpoint; implements `banlieue.sdk.reconcile.RunInThread`.

    At most `size` calls run at once, plus at most `spare` that were given up and still hang.
    """

    def __init__(self, name: str, *, size: int = SIZE, spare: int | None = None) -> None:
        self._name = name
        self._size = size
        self._spare = size if spare is None else spare
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._threads = 0
        self._idle = 0
        self._lost = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Calls that wait for a free thread."""
        with self._changed:
            return sum(job.state is _State.WAITING for job in self._jobs)

    @property
    def hanging(self) -> int:
        """Calls that were given up and have not returned yet."""
        with self._changed:
            return self._lost

    async def __call__(self, call: Callable[[], object], *, timeout: float) -> object:
        """Run `call` in a thread and give its result.

        Args:
            call: blocks as long as it likes; what it raises is raised here.
            timeout: seconds to wait, the wait for a free thread included.

        Raises:
            TimeoutError: no result in time. A call that had begun goes on, and its result is
                dropped; one that had not is never made.
            PoolClosedError: the pool was closed before the call began.
        """
        job = _Job(call, asyncio.get_running_loop())
        self._submit(job)
        try:
            async with asyncio.timeout(timeout):
                return await job.future
        finally:
            if not job.future.done() or job.future.cancelled():
                self._give_up(job)

    def close(self) -> None:
        """Take no more calls; those under way end by themselves, those that wait are refused."""
        with self._changed:
            self._closed = True
            refused = [job for job in self._jobs if job.state is _State.WAITING]
            self._jobs.clear()
            self._changed.notify_all()
        for job in refused:
            _settle(job, None, PoolClosedError(f"the pool {self._name} was closed"))

    def _submit(self, job: _Job) -> None:
        with self._changed:
            if self._closed:
                raise PoolClosedError(f"the pool {self._name} is closed")
            self._jobs.append(job)
            if self._idle < len(self._jobs) and self._threads - self._lost < self._size:
                self._start_thread()
            self._changed.notify()

    def _give_up(self, job: _Job) -> None:
        with self._changed:
            running = job.state is _State.RUNNING
            job.state = _State.GIVEN_UP
            if not running or self._lost >= self._spare:
                return
            self._lost += 1
            job.replaced = True
            if self._jobs and not self._closed:
                self._start_thread()

    def _start_thread(self) -> None:
        self._threads += 1
        name = f"{self._name} call {self._threads}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            result, error = _run(job.call)
            with self._changed:
                wanted = job.state is _State.RUNNING
                job.state = _State.DONE
                if job.replaced:
                    self._lost -= 1
                    self._threads -= 1
            if wanted:
                _settle(job, result, error)
            if job.replaced:
                return

    def _next(self) -> _Job | None:
        with self._changed:
            while True:
                while self._jobs:
                    job = self._jobs.popleft()
                    if job.state is _State.WAITING:
                        job.state = _State.RUNNING
                        return job
                if self._closed:
                    self._threads -= 1
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1


def _run(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except StopIteration as e:
        # A future cannot carry it.
        error = RuntimeError("a call raised StopIteration")
        error.__cause__ = e
        return None, error
    # Not handled here: it is raised where the call is awaited.
    except BaseException as e:  # noqa: BLE001 - carried to the caller
        return None, e


def _settle(job: _Job, result: object, error: BaseException | None) -> None:
    def settle() -> None:
        if job.future.done():
            return
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(result)

    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The loop is gone, and with it whoever waited.
        return
