"""The create calls this process has sent and what became of them, beyond any one session.

A create is known by the UUID it makes. It blocks a second one of the same plan, keeps absence from
being claimed while it may still have an effect, and counts against the limits of the vCenter.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

CALL_TIMEOUT = 30.0
"""Longest silence of a call, in seconds."""

PER_VCENTER = 32
PER_TEMPLATE = 16

_LONGEST_CLONE = 1800.0
"""Seconds after which a task nobody asked about counts as over for the limits."""

_KEPT = 3600.0
"""Seconds a create that is over is remembered."""

_TURNS = 256


class Stage(Enum):
    """Where a create is."""

    SENDING = "sending"
    RUNNING = "running"
    LOST = "lost"
    MADE = "made"
    FAILED = "failed"


@dataclass(slots=True)
class Create:
    """One create call.

    Attributes:
        name: name of the VM it makes.
        uuid: its instance UUID.
        template: what it clones.
        host: where, unless the cluster picks.
        memory_mib: what it takes there.
        since: when it was sent, in seconds of the monotonic clock.
        sizes: GiB that its disks take at most, by datastore.
        stage: where it is; `LOST` means that the reply never came.
        task: the vCenter's task, once known.
        vm: the VM, once known.
    """

    name: str
    uuid: str
    template: str
    host: str | None
    memory_mib: int
    since: float
    sizes: Mapping[str, int] = field(default_factory=dict)
    stage: Stage = Stage.SENDING
    task: str | None = None
    vm: str | None = None
    ended: float | None = None


class Creates:
    """All creates sent to one vCenter. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float], patience: float) -> None:
        """Start with nothing sent; `patience` is how long a lost call may take to arrive."""
        self._monotonic = monotonic
        self._patience = patience
        self._lock = threading.Lock()
        self._turns = tuple(threading.Lock() for _ in range(_TURNS))
        self._by_uuid: dict[str, Create] = {}
        self._waiting: dict[str, str] = {}

    @contextmanager
    def turn(self, uuid: str) -> Iterator[Create | None]:
        """Be the only one to create that UUID; gives what is known of an earlier attempt."""
        with self._turns[hash(uuid.lower()) % _TURNS]:
            yield self.get(uuid)

    def get(self, uuid: str) -> Create | None:
        """What is known of the create of a UUID."""
        with self._lock:
            return self._by_uuid.get(uuid.lower())

    def of_task(self, task: str) -> Create | None:
        """The create that a task carries out."""
        with self._lock:
            return next((c for c in self._by_uuid.values() if c.task == task), None)

    def pending(self, name: str) -> Create | None:
        """A create of that name that may still make a VM."""
        with self._lock:
            creates = [create for create in self._by_uuid.values() if create.name == name]
        for create in creates:
            if create.stage in {Stage.SENDING, Stage.RUNNING} or self.is_unresolved(create):
                return create
        return None

    def is_unresolved(self, create: Create) -> bool:
        """Whether its reply was lost and it was sent so lately that it may still arrive."""
        age = self._monotonic() - create.since
        return create.stage is Stage.LOST and age < self._patience

    def lost(self) -> list[Create]:
        """Creates whose reply never came and whose VM was not seen yet."""
        with self._lock:
            return [c for c in self._by_uuid.values() if c.stage is Stage.LOST]

    def tasks(self) -> frozenset[str]:
        """Tasks of creates that are known to be ours."""
        with self._lock:
            return frozenset(c.task for c in self._by_uuid.values() if c.task)

    def load(self, host: str) -> int:
        """MiB that creates under way will take on a host."""
        now = self._monotonic()
        with self._lock:
            return sum(c.memory_mib for c in self._under_way(now) if c.host == host)

    def promised(self, datastore: str, since: float) -> int:
        """GiB on their way to a datastore: of creates under way, and of those sent since then."""
        now = self._monotonic()
        with self._lock:
            under_way = {id(create) for create in self._under_way(now)}
            return sum(
                create.sizes.get(datastore, 0)
                for create in self._by_uuid.values()
                if id(create) in under_way
                or (create.since >= since and create.stage is not Stage.FAILED)
            )

    def begin(self, create: Create) -> bool:
        """Take note that a create is about to be sent.

        False when so many are under way that the vCenter would only queue it: then it has to wait.
        """
        now = self._monotonic()
        with self._lock:
            self._forget(now)
            if not self._has_room(create.template, now):
                self._waiting[create.uuid.lower()] = create.template
                return False
            self._waiting.pop(create.uuid.lower(), None)
            self._by_uuid[create.uuid.lower()] = create
            return True

    def must_wait(self, uuid: str) -> bool:
        """Whether a create that had to wait still has to."""
        with self._lock:
            template = self._waiting.get(uuid.lower())
            if template is None:
                return False
            if self._has_room(template, self._monotonic()):
                del self._waiting[uuid.lower()]
                return False
            return True

    def _has_room(self, template: str, now: float) -> bool:
        under_way = [create.template for create in self._under_way(now)]
        return len(under_way) < PER_VCENTER and under_way.count(template) < PER_TEMPLATE

    def running(self, create: Create, task: str) -> None:
        """The call was answered with a task."""
        with self._lock:
            create.stage, create.task = Stage.RUNNING, task

    def end(self, create: Create, stage: Stage, vm: str | None = None) -> None:
        """The create is over, or its fate is unknown."""
        with self._lock:
            create.stage, create.ended = stage, self._monotonic()
            create.vm = vm or create.vm

    def _under_way(self, now: float) -> Iterator[Create]:
        for create in self._by_uuid.values():
            running = create.stage in {Stage.SENDING, Stage.RUNNING}
            if self.is_unresolved(create) or (running and now - create.since < _LONGEST_CLONE):
                yield create

    def _forget(self, now: float) -> None:
        old = [
            uuid
            for uuid, create in self._by_uuid.items()
            if create.ended is not None
            and create.stage is not Stage.LOST
            and now - create.ended > _KEPT
        ]
        for uuid in old:
            del self._by_uuid[uuid]
