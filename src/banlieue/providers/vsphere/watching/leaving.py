"""VMs that left the vCenter: those that are destroyed together are told of together.

Few calls then prove of all of them that they are gone.
"""

import math
import threading
from collections.abc import Callable, Mapping

from banlieue.sdk.powers import Changes

_HOLD = 3.0
"""Longest that VMs which left wait for others that are being destroyed, to be told of together."""


class Leaving:
    """Holds back what is to be told of VMs that left.

    `expect` and `forget` are called from any thread, everything else from the feed's.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._expected: dict[str, float] = {}
        self._left: dict[str, Changes] = {}
        self._until = -math.inf

    def expect(self, vm: str) -> None:
        """A VM is about to be destroyed."""
        with self._lock:
            self._expected[vm] = self._monotonic()

    def forget(self, vm: str) -> None:
        """A VM is gone, or not expected to leave any more."""
        with self._lock:
            self._expected.pop(vm, None)

    def left(self, vm: str, words: frozenset[str], ended: str | None) -> None:
        """Have the leave of a VM told: soon if we destroyed it, else at once.

        Args:
            vm: Its managed object id.
            words: What its leave is told by.
            ended: The task that destroyed it, "" for one nobody follows; None when it was not us.
        """
        now = self._monotonic()
        self.forget(vm)
        if ended is None:
            self._until = now
        elif not self._left:
            self._until = now + _HOLD
        self._left[vm] = Changes(words, frozenset({ended} if ended else ()))

    @property
    def seconds(self) -> float | None:
        """Until what is held back is told at the latest; None when nothing is."""
        return self._until - self._monotonic() if self._left else None

    def take(self) -> Mapping[str, Changes]:
        """What is to be told now, by VM; nothing while others may follow soon."""
        if not self._left or (self._more_leave() and self._monotonic() < self._until):
            return {}
        left, self._left = self._left, {}
        return left

    def _more_leave(self) -> bool:
        """Whether other VMs are about to leave: a step towards it was taken lately."""
        now = self._monotonic()
        with self._lock:
            self._expected = {vm: at for vm, at in self._expected.items() if now - at < _HOLD}
            return bool(self._expected)
