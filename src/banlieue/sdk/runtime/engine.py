"""Controllers, their queues and workers, and the streams that feed them.

Needs an API client and an event source, not kopf: a simulator can run it as well.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from banlieue.sdk.reconcile import Controller, Request, Watch
from banlieue.sdk.runtime.metrics import QueueMetrics
from banlieue.sdk.runtime.queue import WorkQueue
from banlieue.sdk.runtime.sources import Stream
from banlieue.sdk.runtime.streams import StreamKeeper, StreamState, StreamTools
from banlieue.sdk.runtime.workers import Workers

log = logging.getLogger(__name__)


class Spawn(Protocol):
    """Starts a task that runs as long as the process; its failure ends the process."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> object:
        """Start it."""


@dataclass(slots=True)
class _Running:
    controller: Controller
    queue: WorkQueue
    workers: Workers
    streams: list[Stream] = field(default_factory=list)
    started: bool = False


class Engine:
    """Runs controllers. A controller starts when all its streams are read for the first time."""

    def __init__(self, tools: StreamTools, spawn: Spawn) -> None:
        self._tools = tools
        self._spawn = spawn
        self._controllers: dict[str, _Running] = {}
        self._keepers: dict[Stream, StreamKeeper] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on = False

    @property
    def on(self) -> bool:
        """Whether streams and workers run."""
        return self._on

    def add_controller(self, controller: Controller) -> None:
        """Run a controller, from `start` on or at once."""
        if controller.name in self._controllers:
            raise ValueError(f"a controller named {controller.name} is there already")
        tools = self._tools
        queue = WorkQueue(
            tools.clock, tools.rng, hooks=QueueMetrics(tools.metrics, controller.name)
        )
        workers = Workers(
            controller, queue, clock=tools.clock, rng=tools.rng, metrics=tools.metrics
        )
        running = _Running(controller, queue, workers)
        self._controllers[controller.name] = running
        tools.metrics.longest_pass.labels(controller.name, controller.name).set_function(
            lambda: max(map(tools.clock.monotonic().__sub__, queue.active().values()), default=0.0)
        )
        for watch in controller.watches:
            self._attach(running, watch)
        self._start_controllers()

    def add_watch(self, controller: str, watch: Watch) -> None:
        """Add a watch to a controller; implements `reconcile.AddWatch`."""
        running = self._controllers[controller]
        if Stream.of(watch) not in running.streams:
            self._attach(running, watch)

    def enqueue(self, controller: str, request: Request) -> None:
        """Put a request into a controller's queue; implements `reconcile.Enqueue`."""
        running = self._controllers.get(controller)
        if running is None:
            return
        loop = self._loop
        if loop is None or _is_running(loop):
            running.queue.add(request)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(running.queue.add, request)

    def bind(self) -> None:
        """Make `enqueue` safe from other threads than that of the running loop."""
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Open all streams, and start controllers as their streams are read."""
        self._on = True
        for stream, keeper in self._keepers.items():
            self._spawn(keeper.run(), f"stream {stream}")
        self._start_controllers()

    async def drain(self, grace: float) -> bool:
        """Hand out no more keys and wait for running passes; see `Workers.drain`."""
        self._on = False
        running = self._controllers.values()
        return all(await asyncio.gather(*(it.workers.drain(grace) for it in running)))

    def cut_short(self) -> None:
        """Cancel all running passes."""
        for running in self._controllers.values():
            running.workers.cut_short()

    def check_kinds(self) -> str:
        """What kinds are missing; implements `health.Check`."""
        missing = [
            str(stream)
            for stream, keeper in self._keepers.items()
            if not keeper.optional and keeper.state in (StreamState.LOOKING, StreamState.ABSENT)
        ]
        return f"not served: {', '.join(missing)}" if missing and self._on else ""

    def check_synced(self) -> str:
        """Which streams are not read yet, or in trouble; implements `health.Check`."""
        waiting = [
            f"{stream} ({keeper.last_trouble})" if keeper.last_trouble else str(stream)
            for stream, keeper in self._keepers.items()
            if not keeper.unreadable and (not keeper.synced or keeper.last_trouble)
        ]
        return f"waiting for: {', '.join(waiting)}" if waiting and self._on else ""

    def _attach(self, running: _Running, watch: Watch) -> None:
        stream, name = Stream.of(watch), running.controller.name
        running.streams.append(stream)
        self._tools.hub.subscribe(stream, name, watch.map, running.queue.add)
        keeper = self._keepers.get(stream)
        if keeper is not None:
            if keeper.stream.many is not stream.many:
                # The first decided on the watch engine; it serves both, at another price.
                log.error("watches disagree on how many there are", extra={"stream": str(stream)})
            keeper.optional = keeper.optional and watch.optional
            self._tools.hub.replay(stream, watch.map, running.queue.add)
            return
        keeper = StreamKeeper(stream, self._tools, optional=watch.optional)
        keeper.on_settled(self._start_controllers)
        self._keepers[stream] = keeper
        if self._on:
            self._spawn(keeper.run(), f"stream {stream}")

    def _start_controllers(self) -> None:
        for running in self._controllers.values():
            if running.started or not self._on:
                continue
            if all(self._is_settled(stream) for stream in running.streams):
                running.started = True
                name = running.controller.name
                self._spawn(running.workers.run(), f"controller {name}")
                log.info("controller started", extra={"controller": name})

    def _is_settled(self, stream: Stream) -> bool:
        keeper = self._keepers[stream]
        return keeper.synced or keeper.unreadable


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
