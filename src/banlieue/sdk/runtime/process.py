"""One role as a process: what starts when, what stops when, and with which exit code."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Clock, Context, Controller, Request, Watch
from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.client import KubeClient
from banlieue.sdk.runtime.clock import SystemClock, make_rng
from banlieue.sdk.runtime.connection import Connection, NoConnectionError
from banlieue.sdk.runtime.elector import Callback, Callbacks, Elector, LeaseTimes, default_identity
from banlieue.sdk.runtime.health import Health, LoopLag
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.kopf_source import KopfSource
from banlieue.sdk.runtime.metrics import Metrics, QueueMetrics
from banlieue.sdk.runtime.queue import WorkQueue
from banlieue.sdk.runtime.recorder import EventRecorder
from banlieue.sdk.runtime.sources import EventSource, Stream
from banlieue.sdk.runtime.streams import Intervals, StreamKeeper, StreamState, StreamTools
from banlieue.sdk.runtime.workers import Workers

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

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


@dataclass(slots=True)
class _Running:
    """A controller with its queue and workers."""

    controller: Controller
    queue: WorkQueue
    workers: Workers
    watches: list[Watch]
    started: bool = False


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
        self.source: EventSource = source or KopfSource(
            self.connection,
            user_agent=self.client.user_agent,
            metrics=self.metrics,
            rng=self.rng,
        )
        self.recorder = EventRecorder(
            self.client,
            controller=f"banlieue.io/{options.role}",
            instance=self.identity,
            clock=self.clock,
            metrics=self.metrics,
        )
        self.health = Health(self.metrics)
        self.context = Context(
            api=self.client,
            cache=self.cache,
            clock=self.clock,
            rng=self.rng,
            recorder=self.recorder,
            enqueue=self.enqueue,
            add_watch=self.add_watch,
            settings=options.settings,
        )
        self._stream_tools = StreamTools(
            source=self.source,
            client=self.client,
            hub=self.hub,
            clock=self.clock,
            rng=self.rng,
            metrics=self.metrics,
            intervals=options.intervals,
        )
        self._lag = LoopLag(self.clock, self.metrics)
        self._controllers: dict[str, _Running] = {}
        self._keepers: dict[Stream, StreamKeeper] = {}
        self._electors: list[Elector] = []
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Future[str] | None = None
        self._leading = False
        self._stopping = False
        self.health.add_live("event-loop", self._lag.check)
        self.health.add_ready("running", self._check_running)
        self.health.add_ready("kinds", self._check_kinds)
        self.health.add_ready("synced", self._check_synced)

    def add_controller(self, controller: Controller) -> None:
        """Run a controller, from `run` on or at once."""
        if controller.name in self._controllers:
            raise ValueError(f"a controller named {controller.name} is there already")
        queue = WorkQueue(self.clock, self.rng, hooks=QueueMetrics(self.metrics, controller.name))
        workers = Workers(controller, queue, clock=self.clock, rng=self.rng, metrics=self.metrics)
        self._controllers[controller.name] = _Running(controller, queue, workers, [])
        for watch in controller.watches:
            self.add_watch(controller.name, watch)
        if self._leading:
            self._start_controllers()

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
        running = self._controllers.get(controller)
        if running is None:
            return
        loop = self._loop
        if loop is None or _on(loop):
            running.queue.add(request)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(running.queue.add, request)

    def add_watch(self, controller: str, watch: Watch) -> None:
        """Add a watch to a controller; implements `reconcile.AddWatch`."""
        running = self._controllers[controller]
        stream = Stream.of(watch)
        if any(Stream.of(it) == stream for it in running.watches):
            return
        running.watches.append(watch)
        self.hub.subscribe(stream, controller, watch.map, running.queue.add)
        keeper = self._keepers.get(stream)
        if keeper is not None:
            keeper.optional = keeper.optional and watch.optional
            self.hub.replay(stream, controller)
            return
        keeper = StreamKeeper(stream, self._stream_tools, optional=watch.optional)
        keeper.on_settled(self._start_controllers)
        self._keepers[stream] = keeper
        if self._leading:
            self.spawn(keeper.run(), f"stream {stream}")

    def stop(self) -> None:
        """End `run` in order. Safe from signal handlers on the loop, not from threads."""
        self._end("")

    async def run(self) -> int:
        """Run until `stop`, or until something fails; returns the exit code."""
        self._loop = asyncio.get_running_loop()
        self._ending = self._loop.create_future()
        failure = "start interrupted"
        try:
            failure = await self._start()
            failure = failure or await self._ending
        except NoConnectionError as e:
            log.error("no connection", extra={"error": str(e)})  # noqa: TRY400 - says it all
            return EXIT_USAGE
        finally:
            await self._shut_down(failure)
        return EXIT_FAILED if failure else EXIT_OK

    def main(self) -> int:
        """Run in a loop of its own, stopping on SIGTERM and SIGINT; returns the exit code."""
        return asyncio.run(run_all(self))

    async def _start(self) -> str:
        if self.options.http_port is not None:
            await self.health.serve(self.options.http_host, self.options.http_port)
        self.spawn(self._lag.run(), "loop lag")
        await self.connection.load()
        await self.client.open()
        self.spawn(self.recorder.run(), "events")
        for hook in self._on_start:
            # The top of the start: a hook is somebody else's code, and its failure is an exit code.
            try:
                await hook()
            except Exception:
                log.exception("start failed")
                return "a start hook failed"
        if self.options.lease is None:
            await self._lead()
        else:
            self.elect(self.options.lease, on_held=self._lead, on_lost=self._lose)
        return ""

    async def _lead(self) -> None:
        self._leading = True
        for stream, keeper in self._keepers.items():
            self.spawn(keeper.run(), f"stream {stream}")
        self._start_controllers()

    async def _lose(self) -> None:
        self._end("the lease was lost")

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

    def _start_controllers(self) -> None:
        for running in self._controllers.values():
            if running.started or not self._leading or self._stopping:
                continue
            if all(self._keepers[Stream.of(watch)].synced for watch in running.watches):
                running.started = True
                self.spawn(running.workers.run(), f"controller {running.controller.name}")
                log.info("controller started", extra={"name_of": running.controller.name})

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        name = self._tasks.pop(task, "")
        if task.cancelled() or self._stopping:
            return
        error = task.exception()
        if error is not None:
            log.error("task failed", extra={"task": name}, exc_info=error)
            self._end(f"{name} failed")

    def _end(self, failure: str) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(failure)

    async def _shut_down(self, failure: str) -> None:
        self._stopping = True
        if failure:
            log.error("stopping after a failure", extra={"failure": failure})
        else:
            log.info("stopping")
        grace = 0.0 if failure == "the lease was lost" else self.options.grace
        await asyncio.gather(*(it.workers.drain(grace) for it in self._controllers.values()))
        for hook in self._on_stop:
            # One hook that fails must not keep the leases from being released.
            try:
                await hook()
            except Exception:
                log.exception("stop hook failed")
        await self.recorder.flush(2.0)
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

    def _check_running(self) -> str:
        if self._stopping:
            return "stopping"
        if self._loop is None:
            return "starting"
        return ""

    def _check_kinds(self) -> str:
        if self._standing_by():
            return ""
        absent = [
            str(keeper.stream)
            for keeper in self._keepers.values()
            if not keeper.optional and keeper.state in (StreamState.LOOKING, StreamState.ABSENT)
        ]
        return f"not served: {', '.join(absent)}" if absent else ""

    def _check_synced(self) -> str:
        if self._standing_by():
            return ""
        waiting = [
            f"{keeper.stream} ({keeper.last_trouble})" if keeper.last_trouble else str(stream)
            for stream, keeper in self._keepers.items()
            if not keeper.synced or keeper.last_trouble
        ]
        return f"waiting for: {', '.join(waiting)}" if waiting else ""

    def _standing_by(self) -> bool:
        return self.options.lease is not None and not self._leading


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


def _on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
