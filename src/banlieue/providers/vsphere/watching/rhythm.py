"""How long the watch gathers before it asks or edits: the longer, the more is going on.

Many VMs made together, or one after the other, then cost few calls, and a single thing is told at
once.
"""

import threading
from collections.abc import Callable

from banlieue.providers.vsphere.client.pace import Lately, Pace
from banlieue.providers.vsphere.client.session import Timings

_SHARE = 0.05
"""Seconds of gathering for each thing that is going on."""

_FEW = 2

_STEP = 1.0
_PLENTY = 8
"""While VMs are made: how fast the rests of the watch grow, and for how many it rests no longer."""


class Rhythm:
    """Counts what goes on and says how long to rest. Thread-safe."""

    def __init__(
        self, monotonic: Callable[[], float], timings: Timings, open_: Callable[[], int]
    ) -> None:
        """Start with nothing going on.

        Args:
            monotonic: The clock.
            timings: Their `gather` and `stream` are the longest rests.
            open_: How many things are known to go on: tasks that run, VMs that boot.
        """
        self._timings = timings
        self._open = open_
        self._begun = Lately(monotonic)
        self._coming = Lately(monotonic)
        self._ending = Lately(monotonic)
        self._told = Lately(monotonic)
        self._rounds = Pace(monotonic, _STEP, timings.stream)
        self.enough = threading.Event()
        """Set when so much came together that nobody has to rest for more."""

    def task_began(self) -> None:
        """Count a task of ours."""
        self._begun.note()

    def expect_more(self) -> None:
        """Count a VM that is about to be made, so that gathering begins with the first."""
        self._begun.note()
        self._coming.note()

    def expect_end(self) -> None:
        """Count a VM that is about to be destroyed."""
        self.expect_more()
        self._ending.note()

    def told(self) -> None:
        """Count an answer of the watch that had something to tell."""
        self._told.note()
        self._rounds.note()

    @property
    def plenty(self) -> int:
        """How many things that came together are enough.

        What ends is nobody's hurry, and goes together the better the longer it rests.
        """
        return _PLENTY + self._ending.count

    @property
    def busy(self) -> bool:
        """Whether more is going on than a few things at a time."""
        return self._going_on() > _FEW

    @property
    def making(self) -> bool:
        """Whether several VMs were begun, or ended, lately, and more may follow."""
        return self._coming.count > 1

    def rest(self) -> float:
        """How long to gather from now on, in seconds; never for a single thing."""
        if self.making:
            return 0.0 if self.enough.is_set() else self._rounds.rest()
        if not self.busy:
            return 0.0
        whole = min(self._timings.gather, _SHARE * self._going_on())
        return max(0.0, whole - self._told.since)

    def _going_on(self) -> int:
        return max(self._begun.count, self._open())
