"""From watch events to requests in queues: cache, own writes, mapping."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Mapper, Priority, Request
from banlieue.sdk.runtime.cache import Cache, EventType, Observation, Store, Writer
from banlieue.sdk.runtime.metrics import Metrics, kind_label
from banlieue.sdk.runtime.sources import Stream

log = logging.getLogger(__name__)

Enqueue = Callable[[Request], None]


@dataclass(frozen=True, slots=True)
class _Subscription:
    controller: str
    map: Mapper
    enqueue: Enqueue


@dataclass(frozen=True, slots=True)
class _Held:
    store: Store
    kind: EventType
    obj: Obj


class Hub:
    """Takes events of all streams on the loop's thread and asks controllers for passes."""

    def __init__(self, cache: Cache, metrics: Metrics) -> None:
        self.cache = cache
        self._metrics = metrics
        self._subscriptions: dict[Stream, list[_Subscription]] = {}
        self._writing: dict[tuple[Resource, Key], int] = {}
        self._held: dict[tuple[Resource, Key], deque[_Held]] = {}

    def subscribe(self, stream: Stream, controller: str, mapper: Mapper, enqueue: Enqueue) -> None:
        """Send the changes of a stream through a controller's mapper."""
        self._subscriptions.setdefault(stream, []).append(
            _Subscription(controller, mapper, enqueue)
        )

    def replay(self, stream: Stream, mapper: Mapper, enqueue: Enqueue) -> None:
        """Show somebody who joined late what the stream's cache holds."""
        store = self.cache.open(stream)
        late = _Subscription("", mapper, enqueue)
        for key in list(store):
            self._ask(late, Change(stream.resource, key, None, store.get(key)), None)

    def event(self, stream: Stream, kind: EventType, obj: Obj) -> None:
        """Take in an event of a source. Total: a bad event is logged and dropped."""
        store = self.cache.open(stream)
        self._metrics.watch_events.labels(kind_label(stream.resource), kind or "LISTED").inc()
        target = (stream.resource, Key.of(obj))
        if target in self._writing:
            # The answer to our write comes first, so that its event is known as an echo.
            self._held.setdefault(target, deque()).append(_Held(store, kind, obj))
            return
        self._take(store, kind, obj)

    def begin_write(self, resource: Resource, key: Key) -> None:
        """Hold the events of an object while a write to it is under way."""
        target = (resource, key)
        self._writing[target] = self._writing.get(target, 0) + 1

    def end_write(
        self, resource: Resource, key: Key, answer: Obj | None, writer: Writer | None
    ) -> None:
        """Take in the answer to a write, then the events held meanwhile."""
        if answer is not None:
            self.cache.record(resource, answer, writer)
        target = (resource, key)
        left = self._writing.get(target, 1) - 1
        if left > 0:
            self._writing[target] = left
            return
        self._writing.pop(target, None)
        for held in self._held.pop(target, ()):
            self._take(held.store, held.kind, held.obj)

    def gone(self, resource: Resource, key: Key, uid: str) -> None:
        """Take in that a delete of ours removed the object at once."""
        self.cache.record_gone(resource, key, uid)

    def deliver(self, stream: Stream, change: Change) -> None:
        """Send a change that no event told through the mappers."""
        self._deliver(stream, Observation(change))

    def _take(self, store: Store, kind: EventType, obj: Obj) -> None:
        stale = store.stale
        observation = store.observe(kind, obj)
        label = kind_label(store.stream.resource)
        if store.stale > stale:
            self._metrics.stale_events.labels(label).inc()
        self._metrics.cached.labels(label).set(len(store))
        if observation is not None:
            self._deliver(store.stream, observation)

    def _deliver(self, stream: Stream, observation: Observation) -> None:
        for subscription in tuple(self._subscriptions.get(stream, ())):
            self._ask(subscription, observation.change, observation.echo_of)

    def _ask(self, to: _Subscription, change: Change, echo_of: Writer | None) -> None:
        try:
            requests = list(to.map(change))
        # A mapper is somebody else's code, and the stream must go on for all the others.
        except Exception:
            log.exception(
                "mapping failed",
                extra={"mapper_of": to.controller, "kind": change.resource.kind},
            )
            self._metrics.mapper_errors.labels(to.controller).inc()
            return
        for request in requests:
            if echo_of == (to.controller, request.key):
                self._metrics.echoes.labels(kind_label(change.resource)).inc()
                continue
            to.enqueue(_calmed(request, change))


def _calmed(request: Request, change: Change) -> Request:
    """Nothing changed: whatever the mapper thought, this is a resync."""
    if change.replayed and change.old == change.new:
        return replace(request, priority=Priority.RESYNC)
    return request
