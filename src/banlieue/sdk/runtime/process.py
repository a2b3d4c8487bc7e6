"""One role as a process: what starts when, what stops when, and with which exit code."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from banlieue.sdk import kube
from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Clock, Context, Controller, Request, Watch
from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.client import KubeClient
from banlieue.sdk.runtime.clock import SystemClock, make_rng
from banlieue.sdk.runtime.connection import Connection, NoConnectionError
from banlieue.sdk.runtime.elector import Callback, Callbacks, Elector, LeaseTimes
from banlieue.sdk.runtime.engine import Engine
from banlieue.sdk.runtime.health import CannotListenError, Health, LoopLag
from banlieue.sdk.runtime.holders import default_identity
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.kopf_source import KopfSource
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.recorder import EventRecorder
from banlieue.sdk.runtime.reflector import Reflector
from banlieue.sdk.runtime.routing import RoutingSource
from banlieue.sdk.runtime.sources import EventSource
from banlieue.sdk.runtime.streams import Intervals, StreamTools

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

_START_PAUSE = (1.0, 3.0)
_FLUSH = 2.0

Hook = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Options:
    """How a process is run; all times are in seconds.

    `http_port` None serves no probes, 0 picks a free port. With `lease` the controllers run only
    while that Lease is held, and losing it ends the process. `grace` is what a stop may take.
    """

    role: str
    kubeconfig: str = ""
    context: str = ""
    http_host: str = "127.0.0.1"
    http_port: int | None = None
    lease: Key | None = None
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    identity: str = ""
    grace: float = 25.0
    intervals: Intervals = field(default_factory=Intervals)
    settings: Mapping[str, str] = field(default_factory=dict)


class Process:
    """Runs controllers against one API server.

    Several may live in one interpreter and even on one loop: nothing is module-global.
    """

    def __init__(
        self,
        options: Options,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
        connection: Connection | None = None,
        source: EventSource | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.clock = clock or SystemClock()
        self.rng = rng or make_rng()
        self.identity = options.identity or default_identity(self.rng)
        self.connection = connection or Connection(options.kubeconfig, options.context)
        self.cache = Cache()
        self.hub = Hub(self.cache, self.metrics)
        self.client = KubeClient(
            self.connection, role=options.role, metrics=self.metrics, writes=self.hub
        )
        self.source: EventSource = source or self._watch_engine()
        self.recorder = EventRecorder(
            self.client,
            controller=f"banlieue.io/{options.role}",
            instance=self.identity,
            clock=self.clock,
            metrics=self.metrics,
        )
        tools = StreamTools(
            source=self.source,
            client=self.client,
            hub=self.hub,
            clock=self.clock,
            rng=self.rng,
            metrics=self.metrics,
            intervals=options.intervals,
        )
        self._engine = Engine(tools, self.spawn)
        self.health = Health(self.metrics)
        self.context = Context(
            api=self.client,
            cache=self.cache,
            clock=self.clock,
            rng=self.rng,
            recorder=self.recorder,
            enqueue=self._engine.enqueue,
            add_watch=self._engine.add_watch,
            settings=options.settings,
        )
        self._lag = LoopLag(self.clock, self.metrics)
        self._electors: list[Elector] = []
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._ending = asyncio.Event()
        self._failure = ""
        self._grace = options.grace
        self._code = EXIT_OK
        self._started = False
        self._stopping = False
        self.health.add_live("event-loop", self._lag.check)
        self.health.add_ready("running", self._check_running)
        self.health.add_ready("kinds", self._engine.check_kinds)
        self.health.add_ready("synced", self._engine.check_synced)
        if options.lease is not None:
            self.health.add_ready("lease", self._check_lease)

    def add_controller(self, controller: Controller) -> None:
        """Run a controller, from `run` on or at once."""
        self._engine.add_controller(controller)

    def on_start(self, hook: Hook) -> None:
        """Call once the API client works, before leadership and watches; failing ends the run."""
        self._on_start.append(hook)

    def on_stop(self, hook: Hook) -> None:
        """Call when no pass runs any more, before leases are released and the client closes."""
        self._on_stop.append(hook)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a task for as long as the process runs; its failure ends the process."""
        task = asyncio.create_task(coroutine, name=name)
        self._tasks[task] = name
        task.add_done_callback(self._task_ended)
        return task

    def elect(
        self, key: Key, *, on_held: Callback | None = None, on_lost: Callback | None = None
    ) -> Elector:
        """Compete for a Lease from now on; it is released when the process stops."""
        elector = self._elector(key, on_held, on_lost)
        self._electors.append(elector)
        self.spawn(elector.run(), f"lease {key}")
        return elector

    def candidate(self, lease: Key, on_change: Callback) -> Elector:
        """Make an elector that somebody else runs and releases, at the latest in a stop hook.

        `on_change` is awaited whenever the Lease was won or lost.
        """
        return self._elector(lease, on_change, on_change)

    def enqueue(self, controller: str, request: Request) -> None:
        """Put a request into a controller's queue; implements `reconcile.Enqueue`."""
        self._engine.enqueue(controller, request)

    def add_watch(self, controller: str, watch: Watch) -> None:
        """Add a watch to a controller; implements `reconcile.AddWatch`."""
        self._engine.add_watch(controller, watch)

    def stop(self) -> None:
        """End `run` in order; a second call does not wait for running passes.

        Safe from signal handlers on the loop, not from other threads.
        """
        if self._stopping:
            self._engine.cut_short()
        self._ending.set()

    async def run(self) -> int:
        """Run until `stop`, or until something fails; returns the exit code. Only once."""
        self._engine.bind()
        try:
            self.spawn(self._start(), "start")
            await self._ending.wait()
        finally:
            await self._shut_down()
        return self._code

    def main(self) -> int:
        """Run in a loop of its own, stopping on SIGTERM and SIGINT; returns the exit code."""
        return asyncio.run(run_all(self))

    def _watch_engine(self) -> EventSource:
        user_agent, metrics = self.client.user_agent, self.metrics
        return RoutingSource(
            usual=KopfSource(self.connection, user_agent=user_agent, metrics=metrics, rng=self.rng),
            many=Reflector(self.connection, user_agent=user_agent, metrics=metrics, rng=self.rng),
        )

    async def _start(self) -> None:
        try:
            if self.options.http_port is not None:
                await self.health.serve(self.options.http_host, self.options.http_port)
            await self.connection.load()
        except (CannotListenError, NoConnectionError) as e:
            self._fail(str(e), EXIT_USAGE)
            return
        self.spawn(self._lag.run(), "loop lag")
        await self.client.open()
        self.spawn(self.recorder.run(), "events")
        for hook in self._on_start:
            await self._call(hook)
        self._started = True
        if self.options.lease is None:
            self._engine.start()
        else:
            self.elect(self.options.lease, on_held=self._lead, on_lost=self._lose)

    async def _call(self, hook: Hook) -> None:
        """Call a start hook, again and again while the API server is away."""
        while True:
            try:
                await hook()
                return
            except kube.Unavailable as e:
                log.warning("start waits for the API server", extra={"error": str(e)})
                await self.clock.sleep(e.retry_after or self.rng.uniform(*_START_PAUSE))

    async def _lead(self) -> None:
        self._engine.start()

    async def _lose(self) -> None:
        # Somebody else may act from now on: no pass may go on.
        self._grace = 0.0
        self._fail("the lease was lost")

    def _elector(self, key: Key, on_held: Callback | None, on_lost: Callback | None) -> Elector:
        return Elector(
            self.client,
            key,
            identity=self.identity,
            clock=self.clock,
            rng=self.rng,
            times=self.options.lease_times,
            callbacks=Callbacks(on_held, on_lost, self.metrics.leader.labels(str(key)).set),
        )

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        name = self._tasks.pop(task, "")
        if task.cancelled() or self._stopping:
            return
        error = task.exception()
        if error is not None:
            log.error("task failed", extra={"task": name}, exc_info=error)
            self._fail(f"{name} failed")

    def _fail(self, failure: str, code: int = EXIT_FAILED) -> None:
        if not self._failure:
            self._failure, self._code = failure, code
        self._ending.set()

    async def _shut_down(self) -> None:
        self._stopping = True
        if self._failure:
            log.error("stopping after a failure", extra={"failure": self._failure})
        else:
            log.info("stopping")
        await self._engine.drain(self._grace)
        for hook in self._on_stop:
            # One hook that fails must not keep the leases from being released.
            try:
                await hook()
            except Exception:
                log.exception("stop hook failed")
        await self.recorder.flush(_FLUSH)
        await self._cancel_tasks()
        for elector in self._electors:
            await elector.release()
        await self.client.close()
        await self.health.close()
        log.info("stopped")

    async def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_lease(self) -> str:
        """Ready is who serves, or who stands by while somebody is seen to serve."""
        electors = [it for it in self._electors if it.key == self.options.lease]
        if any(it.held or it.stands_by for it in electors):
            return ""
        return f"the lease {self.options.lease} is not held yet"

    def _check_running(self) -> str:
        if self._stopping:
            return "stopping"
        return "" if self._started else "starting"


async def run_all(*processes: Process) -> int:
    """Run processes side by side until SIGTERM, SIGINT, or until the first of them ends.

    Returns the worst exit code.
    """
    loop = asyncio.get_running_loop()

    def stop_all() -> None:
        for process in processes:
            process.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_all)
    runs = [asyncio.create_task(it.run(), name=it.options.role) for it in processes]
    await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
    stop_all()
    return max(await asyncio.gather(*runs))
