"""Keeps one stream alive: waits for its kind, watches, sweeps, and says how it stands."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol

from banlieue.api.meta import Resource
from banlieue.sdk import kube
from banlieue.sdk.kube import Obj
from banlieue.sdk.reconcile import Clock
from banlieue.sdk.runtime.cache import EventType
from banlieue.sdk.runtime.clock import happens
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.metrics import Metrics, kind_label
from banlieue.sdk.runtime.sources import EventSource, KindGoneError, Stream
from banlieue.sdk.runtime.sweep import SweepClient, Sweeper, Swept

log = logging.getLogger(__name__)

_ABSENCES = 3
_QUIET = 0.1
_FIRST_SWEEP_DELAY = 0.25
_MAX_SWEEP_DELAY = 5.0
_RECHECK = 35.0
_AFTER_REPLAY = 1.0
_GRACE_WITHOUT_WATCH = 60.0
_REFUSALS = 3
_REFUSED_SECONDS = 10.0
"""An API server that just started refuses everybody until it has read its roles."""


class StreamClient(SweepClient, Protocol):
    """What keeping a stream asks of the API client."""

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server serves the kind at this version."""


class StreamState(StrEnum):
    """How a stream stands."""

    LOOKING = "looking"
    ABSENT = "absent"
    OPENING = "opening"
    WATCHING = "watching"


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between discovery polls of absent kinds, and between sweeps."""

    discovery: float = 20.0
    sweep: float = 900.0


@dataclass(frozen=True, slots=True)
class StreamTools:
    """What all streams of a process share."""

    source: EventSource
    client: StreamClient
    hub: Hub
    clock: Clock
    rng: Random
    metrics: Metrics
    intervals: Intervals


class StreamKeeper:
    """Runs one stream; implements `banlieue.sdk.runtime.sources.Sink` for it."""

    def __init__(
        self,
        stream: Stream,
        tools: StreamTools,
        *,
        optional: bool,
    ) -> None:
        self.stream = stream
        self.optional = optional
        self.state = StreamState.LOOKING
        self.last_trouble = ""
        self._source = tools.source
        self._client = tools.client
        self._hub = tools.hub
        self._clock = tools.clock
        self._rng = tools.rng
        self._metrics = tools.metrics
        self._intervals = tools.intervals
        self._store = self._hub.cache.open(stream)
        self._sweeper = Sweeper(self._store, self._hub, self._client, self._clock)
        self._open = asyncio.Event()
        self._sweep_now = asyncio.Event()
        self._last_event = 0.0
        self._refusals = 0
        self._refused_since = 0.0
        self._without_rights = False
        self._settled: list[Callable[[], None]] = []

    @property
    def synced(self) -> bool:
        """Whether the cache holds everything, which is nothing for an absent optional kind."""
        return self._hub.cache.stream_synced(self.stream)

    @property
    def unreadable(self) -> bool:
        """Whether it is an optional kind that is there and that we have no rights on.

        Its cache is empty, and not because nothing is there: nobody waits for it, and `synced` it
        is only when the rights have come.
        """
        return self.optional and self._without_rights

    def on_settled(self, callback: Callable[[], None]) -> None:
        """Call back whenever `synced` or `unreadable` becomes true."""
        self._settled.append(callback)

    async def run(self) -> None:
        """Keep the stream until cancelled; raises what the source cannot live through."""
        absences = 0
        while True:
            served = await self._served()
            if served is None:
                continue
            if served:
                absences = 0
                await self._watch_until_gone()
                continue
            absences += 1
            if absences >= _ABSENCES or not len(self._store):
                self._note_absent()
            await self._clock.sleep(self._jittered(self._intervals.discovery))

    def event(self, kind: EventType, obj: Obj) -> None:
        """An object came (None: by a list), changed or went."""
        self._last_event = self._clock.monotonic()
        if kind is None:
            self.listed()
        self._hub.event(self.stream, kind, obj)

    def listed(self) -> None:
        """Everything was read anew, as after a restore: what is gone is not told, so look."""
        if self.synced:
            self._sweep_now.set()

    def watching(self) -> None:
        """A list is through and a watch is open."""
        if self.last_trouble:
            log.info("watch regained", extra={"stream": str(self.stream)})
        self.last_trouble = ""
        self._refusals, self._without_rights = 0, False
        self.state = StreamState.WATCHING
        self._open.set()

    def trouble(self, what: str) -> None:
        """The API server refuses or does not answer; the source goes on trying."""
        if not self.last_trouble:
            log.warning("watch in trouble", extra={"stream": str(self.stream), "error": what})
        self.last_trouble = what

    def refused(self) -> None:
        """The API server says that we have no rights on the kind."""
        now = self._clock.monotonic()
        if not self._refusals:
            self._refused_since = now
        self._refusals += 1
        steady = self._refusals >= _REFUSALS and now - self._refused_since >= _REFUSED_SECONDS
        if not steady or self._without_rights:
            return
        self._without_rights = True
        if self.optional:
            log.warning("no rights on a kind: going on without", extra={"stream": str(self.stream)})
            self._tell_settled()

    async def _served(self) -> bool | None:
        try:
            return await self._client.serves(self.stream.resource)
        except kube.ApiError as e:
            self.trouble(str(e))
            await self._clock.sleep(self._jittered(2.0))
            return None

    async def _watch_until_gone(self) -> None:
        if self.state is StreamState.ABSENT:
            self._set_synced(False)
        self.state = StreamState.OPENING
        self._open.clear()
        sweeping = asyncio.create_task(self._sweep_forever(), name=f"sweep {self.stream}")
        watching = asyncio.create_task(
            self._source.watch(self.stream, self), name=f"watch {self.stream}"
        )
        try:
            await asyncio.wait((sweeping, watching), return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, sweeping):
                if task.done():
                    task.result()
        except KindGoneError:
            log.warning("kind is not served any more", extra={"stream": str(self.stream)})
            self.state = StreamState.LOOKING
            await self._clock.sleep(self._jittered(1.0))
        finally:
            for task in (sweeping, watching):
                task.cancel()
            await asyncio.gather(sweeping, watching, return_exceptions=True)

    def _note_absent(self) -> None:
        if self.state is not StreamState.ABSENT and not self.optional:
            log.warning("kind is not served yet", extra={"stream": str(self.stream)})
        self.state = StreamState.ABSENT
        for key, known in self._store.snapshot().items():
            change = self._store.remove(key, known.uid)
            if change is not None:
                self._hub.deliver(self.stream, change)
        self._set_synced(self.optional)

    def _set_synced(self, synced: bool) -> None:  # noqa: FBT001 - a plain setter
        before = self.synced
        self._hub.cache.set_synced(self.stream, synced)
        if synced and not before:
            self._tell_settled()

    def _tell_settled(self) -> None:
        for callback in self._settled:
            callback()

    async def _sweep_forever(self) -> None:
        held = len(self._store)
        await self._wait_for_watch()
        swept: Swept | None = Swept()
        if self.stream.many and not held:
            # Everything listed was delivered before the watch, and there was nothing to correct.
            self._set_synced(True)
        else:
            swept = await self._sweep_until_synced()
        while True:
            pause = self._intervals.sweep
            if swept is None or swept.unseen or swept.differing:
                pause = min(pause, _RECHECK)
            self._sweep_now.clear()
            if await happens(self._sweep_now, self._clock, within=self._jittered(pause)):
                await self._settle(_AFTER_REPLAY)
            swept = await self._sweep_once()

    async def _wait_for_watch(self) -> None:
        """Raises KindGoneError when no watch opens: the engine may have missed the kind."""
        while not await happens(self._open, self._clock, within=_GRACE_WITHOUT_WATCH):
            if not self.last_trouble:
                raise KindGoneError(str(self.stream))

    async def _sweep_until_synced(self) -> Swept:
        delay = _FIRST_SWEEP_DELAY
        while True:
            await self._settle(_QUIET)
            swept = await self._sweep_once()
            if swept is not None and not swept.unseen:
                self._set_synced(True)
                return swept
            await self._clock.sleep(self._jittered(delay))
            delay = min(_MAX_SWEEP_DELAY, delay * 2)

    async def _settle(self, quiet: float) -> None:
        """Wait until no event came for that long, but not for ever."""
        for _ in range(100):
            idle = self._clock.monotonic() - self._last_event
            if idle >= quiet:
                return
            await self._clock.sleep(quiet - idle + 0.01)

    async def _sweep_once(self) -> Swept | None:
        label = kind_label(self.stream.resource)
        try:
            swept = await self._sweeper.sweep()
        except kube.ApiError as e:
            self._metrics.sweeps.labels(label, "error").inc()
            log.debug("sweep failed", extra={"stream": str(self.stream), "error": str(e)})
            return None
        self._metrics.sweeps.labels(label, "ok").inc()
        for repair, count in (("removed", swept.removed), ("replaced", swept.repaired)):
            if count:
                self._metrics.sweep_repairs.labels(label, repair).inc(count)
                log.info(
                    "sweep corrected the cache",
                    extra={"stream": str(self.stream), "repair": repair, "count": count},
                )
        return swept

    def _jittered(self, seconds: float) -> float:
        return seconds * self._rng.uniform(0.8, 1.2)
