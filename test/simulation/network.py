"""The way between a process and the API server: latency, errors, watches that lag and break."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from banlieue.api.meta import Resource
from banlieue.sdk.kube import ApiError, Key, NotFound, Obj, Unavailable
from banlieue.sdk.reconcile import Change
from banlieue.sdk.runtime import passes
from banlieue.sdk.runtime.cache import Identity
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.sources import Sink, Stream
from banlieue.sdk.testing import selectors
from banlieue.sdk.testing.memory_api import MemoryApi
from test.simulation.loop import Mortal, VirtualClock, VirtualLoop, die_before_the_answer

T = TypeVar("T")


@dataclass(slots=True)
class Weather:
    """How bad the API server and the way to it are; shares of calls, and seconds."""

    lost_requests: float = 0.0
    lost_replies: float = 0.0
    conflicts: float = 0.0
    slow: float = 0.0
    slowness: float = 5.0
    lag: float = 0.0
    repeated: float = 0.0
    echoed: float = 0.0

    def clear(self) -> None:
        """Fine weather from now on."""
        self.lost_requests = self.lost_replies = self.conflicts = self.slow = self.lag = 0.0
        self.repeated = self.echoed = 0.0


class _Turn:
    """What lets all others run once; as `asyncio.sleep(0)`, which takes three calls to do so."""

    def __await__(self) -> Generator[None]:
        yield


_TURN = _Turn()


@dataclass(slots=True)
class Network:
    """What all clients share."""

    api: MemoryApi
    loop: VirtualLoop
    clock: VirtualClock
    rng: Random
    weather: Weather = field(default_factory=Weather)
    deadly: str = ""
    log: Callable[[str], None] = lambda _line: None
    on_answer: Callable[[], None] = lambda: None

    async def travel(self) -> None:
        """One way through the network."""
        if self.weather.slow and self.rng.random() < self.weather.slow:
            await self.clock.sleep(self.rng.random() * self.weather.slowness)
        else:
            await _TURN

    def chance(self, share: float) -> bool:
        """Whether something that happens this often happens now."""
        return bool(share) and self.rng.random() < share


class SimClient:
    """The API client of one process; an `ApiClient` and what streams need beside it."""

    def __init__(self, network: Network, owner: str, hub: Hub) -> None:
        self._network = network
        self._api = network.api
        self._owner = owner
        self._hub = hub

    async def serves(self, resource: Resource) -> bool:
        """Every kind is installed."""
        del resource
        return True

    async def identities(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> dict[Key, Identity]:
        """Uid and version of all matching objects."""
        wanted = _Selection(Stream(resource, field_selector, label_selector, namespace))

        async def read() -> dict[Key, Identity]:
            found = self._api.look(resource)
            return {Key.of(obj): Identity.of(obj) for obj in found if wanted.shows(obj)}

        return await self._ask("list", resource, Key(namespace, ""), read)

    async def get(self, resource: Resource, key: Key) -> Obj:
        """Read one object live."""
        return await self._ask("get", resource, key, lambda: self._api.get(resource, key))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Obj]:
        """Read all matching objects live."""
        return await self._ask(
            "list",
            resource,
            Key(namespace, ""),
            lambda: self._api.list(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            ),
        )

    async def create(self, resource: Resource, obj: Obj, *, manager: str) -> Obj:
        """POST."""
        return await self._write(
            "create",
            resource,
            Key.of(obj),
            lambda: self._api.create(resource, obj, manager=manager),
        )

    async def apply(
        self, resource: Resource, obj: Obj, *, manager: str, subresource: str = ""
    ) -> Obj:
        """Server-side apply."""
        return await self._write(
            f"apply/{subresource}",
            resource,
            Key.of(obj),
            lambda: self._api.apply(resource, obj, manager=manager, subresource=subresource),
        )

    async def json_patch(
        self,
        resource: Resource,
        key: Key,
        ops: Sequence[Mapping[str, Any]],
        *,
        manager: str,
        subresource: str = "",
    ) -> Obj:
        """JSON patch."""
        return await self._write(
            f"patch/{subresource} {' '.join(str(op['path']) for op in ops[1:])}",
            resource,
            key,
            lambda: self._api.json_patch(
                resource, key, ops, manager=manager, subresource=subresource
            ),
        )

    async def delete(
        self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete with preconditions."""

        async def call() -> Obj:
            before = self._api.look_at(resource, key) or {}
            await self._api.delete(resource, key, uid=uid, resource_version=resource_version)
            left = self._api.peek(resource, key)
            return left if left is not None else {"gone": before["metadata"]["uid"]}

        await self._write("delete", resource, key, call)

    async def _write(
        self, verb: str, resource: Resource, key: Key, call: Callable[[], Awaitable[Obj]]
    ) -> Obj:
        run = passes.current()
        writer = (run.controller, run.key) if run is not None else None
        self._hub.begin_write(resource, key)
        shown: Obj | None = None
        try:
            answer = await self._ask(verb, resource, key, call, writing=True)
            if "gone" in answer:
                self._hub.gone(resource, key, answer["gone"])
            else:
                shown = answer
            return answer
        finally:
            self._hub.end_write(resource, key, shown, writer)

    async def _ask(
        self,
        verb: str,
        resource: Resource,
        key: Key,
        call: Callable[[], Awaitable[T]],
        *,
        writing: bool = False,
    ) -> T:
        network, weather = self._network, self._network.weather
        what = f"{self._owner} {verb} {resource.kind} {key}"
        await network.travel()
        if network.chance(weather.lost_requests):
            network.log(f"{what}: request lost")
            raise Unavailable(503, "no answer")
        if writing and network.chance(weather.conflicts):
            _touch(self._api, resource, key)
        try:
            answer = await call()
            if writing and network.chance(weather.repeated):
                answer = await self._repeat(what, call, answer)
        except Exception as error:
            if writing:
                network.log(f"{what}: {type(error).__name__}")
            raise
        finally:
            network.on_answer()
        if writing:
            network.log(what)
            if network.deadly and self._owner.startswith(network.deadly):
                network.deadly = ""
                die_before_the_answer()
        if network.chance(weather.lost_replies):
            network.log(f"{what}: reply lost")
            raise Unavailable(503, "no answer")
        await network.travel()
        return answer

    async def _repeat(self, what: str, call: Callable[[], Awaitable[T]], answer: T) -> T:
        """The library sends a write again whose answer it lost, or a copy arrives by itself.

        Raises whatever the API server says to the second of them.
        """
        network = self._network
        network.log(f"{what}: sent twice")
        if not network.chance(network.weather.echoed):
            return await call()
        copy = self._arrive(what, call, network.rng.choice((0.0, 0.1, 0.4)))
        network.loop.create_task(copy, context=Context())
        return answer

    async def _arrive(self, what: str, call: Callable[[], Awaitable[object]], after: float) -> None:
        """The second copy of a write that was answered already; nobody hears of it."""
        await self._network.clock.sleep(after)
        try:
            with suppress(ApiError):
                await call()
                self._network.log(f"{what}: done once more")
        finally:
            self._network.on_answer()


def _touch(api: MemoryApi, resource: Resource, key: Key) -> None:
    """Somebody else changes something that concerns nobody."""

    def change(obj: Obj) -> None:
        notes = obj["metadata"].setdefault("annotations", {})
        notes["example.com/touched"] = str(int(notes.get("example.com/touched", "0")) + 1)

    if api.peek(resource, key) is not None:
        api.edit(resource, key, change)


class _Selection:
    """What a stream's selectors let through."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def shows(self, obj: Obj | None) -> bool:
        """Whether the watch's selectors let the object through."""
        if obj is None:
            return False
        meta, stream = obj["metadata"], self.stream
        return (
            stream.namespace in {"", meta.get("namespace", "")}
            and (
                not stream.label_selector
                or selectors.matches_labels(meta.get("labels") or {}, stream.label_selector)
            )
            and (not stream.field_selector or selectors.matches_fields(obj, stream.field_selector))
        )


class _Feed(_Selection):
    """One open watch."""

    def __init__(self, stream: Stream, sink: Sink) -> None:
        super().__init__(stream)
        self.sink = sink
        self.broken = False
        self.waiting: deque[tuple[float, Any, Obj]] = deque()
        self.due = 0.0


class SimSource:
    """The watch engine of one process."""

    def __init__(self, network: Network, owner: Mortal) -> None:
        self._network = network
        self._owner = owner
        self._feeds: list[_Feed] = []
        self._by_kind: dict[Resource, list[_Feed]] = {}
        self._off = network.api.subscribe(self._changed)

    async def watch(self, stream: Stream, sink: Sink) -> None:
        """List, then tell every change until cancelled."""
        feed = _Feed(stream, sink)
        await self._network.travel()
        self._feeds.append(feed)
        of_kind = self._by_kind.setdefault(stream.resource, [])
        of_kind.append(feed)
        try:
            self._list(feed)
            await asyncio.get_running_loop().create_future()
        finally:
            self._feeds.remove(feed)
            of_kind.remove(feed)

    def close(self) -> None:
        """Listen no more."""
        self._off()

    def break_off(self) -> None:
        """From now on nothing is told, until `resume`."""
        for feed in self._feeds:
            feed.broken = True
            feed.waiting.clear()

    def resume(self) -> None:
        """List anew, as after an expired version; what was deleted meanwhile is not told."""
        for feed in self._feeds:
            if feed.broken:
                feed.broken = False
                self._list(feed)

    def _list(self, feed: _Feed) -> None:
        for obj in tuple(self._network.api.look(feed.stream.resource)):
            if feed.shows(obj):
                self._put(feed, None, obj)
        feed.sink.listed()
        self._put(feed, "", {})

    def _changed(self, change: Change) -> None:
        for feed in self._by_kind.get(change.resource, ()):
            if feed.broken:
                continue
            before, after = feed.shows(change.old), feed.shows(change.new)
            if after:
                self._put(feed, "MODIFIED" if before else "ADDED", change.new)
            elif before:
                # A watch shows the last state, under the version of the deletion.
                self._put(feed, "DELETED", change.old)

    def _put(self, feed: _Feed, kind: Any, obj: Obj | None) -> None:  # noqa: ANN401 - an event type
        network = self._network
        lag = network.weather.lag
        now = network.loop.time()
        due = max(feed.due, now + network.rng.random() * lag if lag else now)
        feed.due = due
        feed.waiting.append((due, kind, obj or {}))
        if due > now:
            network.loop.call_at(due, self._deliver, feed, context=Context())
        elif len(feed.waiting) == 1:
            network.loop.call_soon(self._deliver, feed, context=Context())

    def _deliver(self, feed: _Feed) -> None:
        now = self._network.loop.time()
        while feed.waiting and feed.waiting[0][0] <= now:
            _, kind, obj = feed.waiting.popleft()
            if self._owner.dead:
                continue
            if kind == "":
                feed.sink.watching()
            else:
                feed.sink.event(kind, obj)


__all__ = ["Network", "NotFound", "SimClient", "SimSource", "Weather"]
