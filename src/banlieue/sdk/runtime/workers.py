"""The workers of one controller: passes over keys, a bounded number at once."""

import asyncio
import logging
from random import Random

from banlieue.sdk import kube
from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Clock, Controller, Priority, Request, Result
from banlieue.sdk.runtime import passes
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.queue import Item, QueueClosedError, WorkQueue

log = logging.getLogger(__name__)

_RESYNC_FROM = 60.0
_UNAVAILABLE_DELAY = 5.0
_FIRST_PAUSE = 0.1
_MAX_PAUSE = 3.0


class Workers:
    """Takes keys from a queue and runs the controller's reconciler on them."""

    def __init__(
        self,
        controller: Controller,
        queue: WorkQueue,
        *,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._silences = 0
        self._slots = asyncio.Semaphore(controller.workers)
        self._running: set[asyncio.Task[None]] = set()
        metrics.max_workers.labels(controller.name).set(controller.workers)

    async def run(self) -> None:
        """Hand out keys until the queue is closed."""
        while True:
            await self._slots.acquire()
            await self._slow_down()
            try:
                item = await self._queue.get()
            except QueueClosedError:
                return
            task = asyncio.create_task(self._work(item), name=f"{self._controller.name} {item.key}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def drain(self, grace: float) -> bool:
        """Close the queue and let running passes end; cancels those that need longer.

        Returns whether all ended by themselves within `grace` seconds.
        """
        self._queue.close()
        if not self._running:
            return True
        _, late = await asyncio.wait(tuple(self._running), timeout=grace)
        self.cut_short()
        await asyncio.gather(*late, return_exceptions=True)
        return not late

    def cut_short(self) -> None:
        """Cancel all running passes."""
        for task in self._running:
            log.warning("pass cut short", extra={"pass": task.get_name()})
            task.cancel()

    async def _work(self, item: Item) -> None:
        name = self._controller.name
        started = self._clock.monotonic()
        pass_id = f"{self._rng.getrandbits(48):012x}"
        passes.CURRENT.set(passes.Pass(name, item.key, pass_id))
        self._metrics.active_workers.labels(name).inc()
        try:
            result = await self._attempt(item)
            self._metrics.passes.labels(name, result).inc()
        finally:
            self._metrics.active_workers.labels(name).dec()
            self._metrics.pass_time.labels(name).observe(self._clock.monotonic() - started)
            self._queue.done(item.key)
            self._slots.release()

    async def _attempt(self, item: Item) -> str:
        try:
            result = await self._controller.reconciler.reconcile(item.key)
        except kube.Conflict as e:
            # Somebody else wrote first; the next pass sees what.
            delay = self._queue.retry(item.key, priority=item.priority)
            log.debug("conflict, again in %.2f s", delay, extra={"answer": e.message})
            return "conflict"
        except kube.Unavailable as e:
            self._silences += 1
            delay = self._queue.retry(
                item.key,
                priority=item.priority,
                at_least=e.retry_after or 0.0,
                at_most=_UNAVAILABLE_DELAY,
            )
            return self._failed("unavailable", "API server unavailable", delay, e)
        except kube.ApiError as e:
            delay = self._queue.retry(item.key, priority=item.priority)
            await self._tell(item.key, e)
            return self._failed("error", "API server refused", delay, e)
        # The top of the loop: whatever a pass raises, the key comes back and others go on.
        except Exception as e:
            delay = self._queue.retry(item.key, priority=item.priority)
            self._metrics.pass_errors.labels(self._controller.name).inc()
            log.exception("pass failed, again in %.2f s", delay)
            await self._tell(item.key, e)
            return "error"
        if self._controller.witness is not None:
            await self._controller.witness.passed(item.key)
        return self._finish(item.key, result)

    async def _tell(self, key: Key, error: Exception) -> None:
        if self._controller.witness is not None:
            await self._controller.witness.failed(key, error)

    def _failed(self, result: str, what: str, delay: float, error: kube.ApiError) -> str:
        self._metrics.pass_errors.labels(self._controller.name).inc()
        log.warning("%s, again in %.2f s", what, delay, extra={"error": str(error)})
        return result

    async def _slow_down(self) -> None:
        """While the API server is away, do not let every key find out for itself."""
        if self._silences:
            ceiling = min(_MAX_PAUSE, _FIRST_PAUSE * 2 ** min(self._silences, 10))
            await self._clock.sleep(self._rng.uniform(ceiling / 2, ceiling))

    def _finish(self, key: Key, result: Result) -> str:
        self._queue.forget(key)
        self._silences = 0
        after = result.requeue_after
        if after is None:
            return "success"
        priority = Priority.RESYNC if after >= _RESYNC_FROM else Priority.CHANGE
        self._queue.add(Request(key, after, priority))
        return "requeue_after"
