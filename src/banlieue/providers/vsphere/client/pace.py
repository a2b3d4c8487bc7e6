"""Rests between calls that many VMs can share, so that those made one after the other cost little.

A call that nobody made lately is made at once: a single VM never waits. While VMs are made, each
further call of the same kind waits longer than the one before it, up to a limit, and serves all
that came meanwhile.
"""

import threading
from collections import deque
from collections.abc import Callable

_LATELY = 15.0
"""Seconds for which a call, or a VM that began, counts."""

_MANY = 64


class Lately:
    """Counts what happened in the last seconds. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._at: deque[float] = deque(maxlen=_MANY)

    def note(self) -> None:
        """Count one now."""
        with self._lock:
            self._at.append(self._monotonic())

    @property
    def count(self) -> int:
        """How many there were."""
        now = self._monotonic()
        with self._lock:
            return sum(now - at < _LATELY for at in self._at)

    @property
    def since(self) -> float:
        """Seconds since the last one; very many when there was none."""
        with self._lock:
            return self._monotonic() - self._at[-1] if self._at else _LATELY


class Pace:
    """Says how long to put a call off. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float], step: float, longest: float) -> None:
        """Rest `step` seconds for each call made lately, `longest` seconds at most."""
        self._calls = Lately(monotonic)
        self._step = step
        self._longest = longest

    def note(self) -> None:
        """The call was made."""
        self._calls.note()

    def rest(self) -> float:
        """Seconds from now until it may be made again."""
        whole = min(self._longest, self._step * self._calls.count)
        return max(0.0, whole - self._calls.since)
