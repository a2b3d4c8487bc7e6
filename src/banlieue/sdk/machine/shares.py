"""How many passes a Provider's machines may be in at once, where one process serves several.

A pass waits for its backend. Without a limit the machines of a backend that says nothing would take
every worker, and those of all others would wait with them.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from banlieue.sdk.kube import Key

WORKERS = 16
"""Passes over machines at once in a process of one Provider."""

WORKERS_OF_MANY = 48
"""The same in a process of several; a pass that waits costs little."""

LATER = (0.1, 0.4)
"""Seconds, from and to, after which a machine that found no room is looked at again."""

_LEAST = 4


@dataclass(slots=True)
class Shares:
    """Counts passes by Provider; used from one event loop."""

    workers: int = WORKERS
    _running: Counter[Key] = field(default_factory=Counter)

    def has_room(self, provider: Key, providers: int) -> bool:
        """Whether one more pass may begin, where so many Providers share the workers."""
        if providers <= 1:
            return True
        return self._running[provider] < max(_LEAST, self.workers // (providers + 1))

    @contextmanager
    def taken(self, provider: Key) -> Iterator[None]:
        """Count a pass while the block lasts."""
        self._running[provider] += 1
        try:
            yield
        finally:
            self._running[provider] -= 1
