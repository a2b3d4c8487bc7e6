"""A process of banlieue in the simulator: the real engine, queues, caches and roles."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from random import Random
from typing import Any, cast

from banlieue.api.events import EventReason
from banlieue.controller.app import ControllerRole
from banlieue.sdk.kube import Key, Obj, Unavailable
from banlieue.sdk.provider.feed import FeedLoop
from banlieue.sdk.provider.leases import Candidate, OnChange
from banlieue.sdk.reconcile import Context, Controller, Request, Watch
from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.engine import Engine
from banlieue.sdk.runtime.health import Health
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.serve import ProviderRole, Scope
from banlieue.sdk.runtime.streams import Intervals, StreamTools
from banlieue.sdk.simulated.connect import Connector, Worlds
from test.simulation import kinds
from test.simulation.backend import SimWorld
from test.simulation.loop import OWNER
from test.simulation.network import Network, SimClient, SimSource
from test.simulation.pool import Pools


class _Quiet:
    """Metrics, labels and health checks that nobody reads."""

    def __getattr__(self, name: str) -> "_Quiet":
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, self)  # found at once the next time
        return self

    def __call__(self, *_arguments: object, **_options: object) -> "_Quiet":
        return self


QUIET = _Quiet()
_INTERVALS = Intervals()


class Leases:
    """Who holds which Lease: the first to ask, and everybody while the brain is split."""

    def __init__(self) -> None:
        self.split = False
        self._waiting: dict[Key, list[_Candidate]] = {}

    def join(self, candidate: "_Candidate") -> None:
        """Stand in line."""
        self._waiting.setdefault(candidate.lease, []).append(candidate)

    def holds(self, candidate: "_Candidate") -> bool:
        """Whether the candidate may act."""
        return self.split or self.first(candidate.lease) is candidate

    def first(self, lease: Key) -> "_Candidate | None":
        """The first in line that lives."""
        line = [it for it in self._waiting.get(lease, ()) if not it.process.dead and it.running]
        self._waiting[lease] = line
        return line[0] if line else None

    async def tell(self) -> None:
        """Tell all candidates that holders may have changed."""
        for line in list(self._waiting.values()):
            for candidate in list(line):
                if not candidate.process.dead:
                    await candidate.on_change()


class _Candidate:
    def __init__(self, process: "SimProcess", lease: Key, on_change: OnChange) -> None:
        self.process = process
        self.lease = lease
        self.identity = process.name
        self.on_change = on_change
        self.running = False

    @property
    def held(self) -> bool:
        return self.running and self.process.leases.holds(self)

    @property
    def holder(self) -> str:
        first = self.process.leases.first(self.lease)
        return self.identity if self.held or first is None else first.identity

    async def run(self) -> None:
        self.running = True
        self.process.leases.join(self)
        await self.on_change()
        await asyncio.get_running_loop().create_future()

    async def release(self) -> None:
        self.running = False


class _Recorder:
    def __init__(self, process: "SimProcess") -> None:
        self._process = process

    def event(self, obj: Obj, reason: EventReason, message: str, *, warning: bool = False) -> None:
        del warning
        self._process.network.log(f"{self._process.name} event {Key.of(obj)} {reason}: {message}")


class SimProcess:
    """One process. What it holds in memory dies with it."""

    def __init__(self, name: str, network: Network, leases: Leases) -> None:
        self.name = name
        self.dead = False
        self.steps = 0
        self.doom = -1
        self.on_fall: Callable[[SimProcess], None] = lambda _: None
        self.failure = ""
        self.network = network
        self.leases = leases
        self.rng = Random(network.rng.getrandbits(64))
        self.clock = network.clock
        self.cache = Cache()
        metrics = cast("Metrics", QUIET)
        self.hub = Hub(self.cache, metrics)
        self.client = SimClient(network, name, self.hub)
        self.source = SimSource(network, self)
        self.health = cast("Health", QUIET)
        self.pools = Pools(network, self)
        tools = StreamTools(
            self.source, self.client, self.hub, self.clock, self.rng, metrics, _INTERVALS
        )
        self._engine = Engine(tools, self.spawn)
        self._on_start: list[Callable[[], Awaitable[None]]] = []
        self.context = Context(
            api=self.client,
            cache=self.cache,
            clock=self.clock,
            rng=self.rng,
            recorder=_Recorder(self),
            enqueue=self.enqueue,
            add_watch=self.add_watch,
        )

    # What roles ask of their process.

    def add_controller(self, controller: Controller) -> None:
        """Run a controller."""
        self._engine.add_controller(controller)

    def on_start(self, hook: Callable[[], Awaitable[None]]) -> None:
        """Call before anything is watched."""
        self._on_start.append(hook)

    def on_stop(self, hook: Callable[[], Awaitable[None]]) -> None:
        """Simulated processes only crash."""

    def candidate(self, lease: Key, on_change: OnChange) -> Candidate:
        """Stand in line for a Lease."""
        return cast("Candidate", _Candidate(self, lease, on_change))

    def enqueue(self, controller: str, request: Request) -> None:
        """Ask for a pass."""
        if not self.dead:
            self._engine.enqueue(controller, request)

    def add_watch(self, controller: str, watch: Watch) -> None:
        """Watch one more kind."""
        self._engine.add_watch(controller, watch)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> object:
        """Run a task that must not fail."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self.name} {name}")
        task.add_done_callback(self._ended)
        return task

    # What the simulator does.

    def start(self, build: Callable[["SimProcess"], None]) -> None:
        """Come to life."""
        context = copy_context()
        context.run(OWNER.set, self)
        context.run(self._begin, build)

    def fall(self) -> None:
        """Die at the step that was chosen for it."""
        self.network.log(f"{self.name} falls after {self.steps} steps")
        self.kill()
        self.on_fall(self)

    def kill(self) -> None:
        """Die, wherever it stands."""
        if self.dead:
            return
        self.dead = True
        self.source.close()
        self.pools.abandon()

    def _begin(self, build: Callable[["SimProcess"], None]) -> None:
        build(self)
        self._engine.bind()
        self.spawn(self._run(), "start")

    async def _run(self) -> None:
        for hook in self._on_start:
            await self._until_answered(hook)
        self._engine.start()

    async def _until_answered(self, hook: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await hook()
                return
            except Unavailable:
                await self.clock.sleep(self.rng.uniform(1.0, 3.0))

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = f"{task.get_name()} failed: {error!r}"


def controller(process: SimProcess) -> None:
    """Build the controller role into a process, as `banlieue controller` does."""
    role = ControllerRole.of(process.context)
    for it in role.controllers():
        process.add_controller(it)
    process.on_start(role.watch_known_kinds)


def provider(
    world: SimWorld, worlds: Worlds, key: Key, of_class: str
) -> Callable[[SimProcess], None]:
    """Build the provider role for one Provider, as `banlieue provider` does."""

    def build(process: SimProcess) -> None:
        connector = Connector(worlds, monotonic=process.clock.monotonic)

        def start(feed: FeedLoop, *, name: str) -> None:
            process.spawn(_listen(process, world, feed), name)

        ProviderRole(
            process,
            kinds.backend(of_class, connector),
            Scope(only=key),
            make_pool=lambda _key: process.pools.make(),
            start=start,
        )

    return build


async def _listen(process: SimProcess, world: SimWorld, feed: FeedLoop) -> None:
    """What the feed's thread does, one question at a time."""
    while (pause := feed.step()) is not None:
        if pause:
            await process.clock.sleep(pause)
        else:
            await world.moves()
            await process.network.travel()
