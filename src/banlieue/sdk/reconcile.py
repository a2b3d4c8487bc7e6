"""What a controller is made of: a reconciler, the kinds it watches, and how changes reach it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from random import Random
from typing import Protocol

from banlieue.api.events import EventReason
from banlieue.api.meta import Resource
from banlieue.sdk.kube import ApiClient, Key, Obj, ObjectReader


class Priority(IntEnum):
    """Order of work in a queue; smaller goes first."""

    DELETE = 0
    USER = 1
    CHANGE = 2
    RESYNC = 3


@dataclass(frozen=True, slots=True)
class Request:
    """Ask for a pass over `key` after `delay` seconds.

    Requests for one key merge: the earliest time and the most urgent priority win.
    """

    key: Key
    delay: float = 0.0
    priority: Priority = Priority.CHANGE


@dataclass(frozen=True, slots=True)
class Change:
    """A watched object moved from `old` to `new`; None stands for "not there".

    Both are what the cache holds. `replayed` marks an object seen again by a re-list.
    """

    resource: Resource
    key: Key
    old: Obj | None
    new: Obj | None
    replayed: bool = False


Mapper = Callable[[Change], Iterable[Request]]
"""Pure and total: from a change to the passes it asks for."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A kind a controller listens to. Selectors are evaluated by the API server.

    Two watches of one kind in one process share a stream when their selectors are equal.
    `many` says that there may be tens of thousands of objects; watches of one kind must agree.
    """

    resource: Resource
    map: Mapper
    field_selector: str = ""
    label_selector: str = ""
    namespace: str = ""
    optional: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """How a pass ended when it did not fail; failures are raised and retried with backoff.

    `requeue_after` seconds asks for another pass, None waits for the next change.
    """

    requeue_after: float | None = None


class Reconciler(Protocol):
    """Level-triggered: looks at what is, compares with what should be, takes a step."""

    async def reconcile(self, key: Key) -> Result:
        """One pass over one object. Never waits for outside work."""


class Witness(Protocol):
    """Tells people that passes over an object fail by a fault nobody foresaw."""

    async def failed(self, key: Key, error: Exception) -> None:
        """A pass raised; it is tried again. Total."""

    async def passed(self, key: Key) -> None:
        """A pass went through. Total."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A named reconciler with its watches; `workers` passes run at once, never two for one key.

    Without a `witness` only the log tells of passes that fail.
    """

    name: str
    reconciler: Reconciler
    watches: tuple[Watch, ...]
    workers: int = 8
    witness: Witness | None = None


class Clock(Protocol):
    """Time, injected. `now` dates what people read; deadlines and delays use `monotonic`."""

    def now(self) -> datetime:
        """Current time in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""


class Recorder(Protocol):
    """Writes Kubernetes events, one per object, reason and message until that changes."""

    def event(self, obj: Obj, reason: EventReason, message: str, *, warning: bool = False) -> None:
        """Queue an event in the past tense; never raises, never blocks."""


class Enqueue(Protocol):
    """Puts a key into the queue of a running controller from outside its watches."""

    def __call__(self, controller: str, request: Request) -> None:
        """Thread-safe and total; unknown controllers are ignored while shutting down."""


class AddWatch(Protocol):
    """Adds a watch to a running controller, for kinds that are known only at run time."""

    def __call__(self, controller: str, watch: Watch) -> None:
        """Idempotent for an equal resource and selectors."""


class RunInThread(Protocol):
    """Runs a blocking call in a bounded pool of its own."""

    def __call__(self, call: Callable[[], object], *, timeout: float) -> Awaitable[object]:
        """Await the call's result; raises TimeoutError when it takes longer than `timeout`."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a reconciler may touch; all of it injected."""

    api: ApiClient
    cache: ObjectReader
    clock: Clock
    rng: Random
    recorder: Recorder
    enqueue: Enqueue
    add_watch: AddWatch
    settings: Mapping[str, str] = field(default_factory=dict)
