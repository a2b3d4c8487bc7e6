"""Ends of tasks that show on their VM itself, so that the watch need not cover the tasks.

A VM that is being destroyed is watched anyway: that it is off, or that it left, tells that the task
for it is over, and costs no call. What does not show in time has to be asked about.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

_SECONDS = 6.0
"""Seconds in which an end usually shows; a task that fails shows nothing."""


class Sign(Enum):
    """What the watch tells of a VM when the task for it is over."""

    OFF = "poweredOff"
    GONE = "leave"


@dataclass(slots=True)
class _End:
    """What is waited for; `task` is empty until the answer of the call names it."""

    sign: Sign
    task: str = ""
    shown: bool = False
    until: float = math.inf


class Ends:
    """What is waited for, one thing for each VM. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._by_vm: dict[str, _End] = {}
        self._seen: set[Sign] = set()
        self._silent: set[Sign] = set()

    def expect(self, vm: str, sign: Sign) -> None:
        """A call is about to be sent; what was told before is of no interest.

        Nothing is waited for where the vCenter proved to be silent about it.
        """
        with self._lock:
            self._by_vm.pop(vm, None)
            if sign not in self._silent:
                self._by_vm[vm] = _End(sign)

    def cancel(self, vm: str) -> str:
        """Wait no longer for anything of a VM; gives the task, "" when there is none."""
        with self._lock:
            end = self._by_vm.pop(vm, None)
        return end.task if end is not None else ""

    def name(self, vm: str, task: str) -> bool | None:
        """The call was answered with that task; whether its end showed before.

        None when nothing is waited for any more, so that the task has to be watched itself.
        """
        with self._lock:
            end = self._by_vm.get(vm)
            if end is None:
                return None
            if end.shown:
                del self._by_vm[vm]
                return True
            end.task, end.until = task, self._monotonic() + _SECONDS
            return False

    def show(self, vm: str, *, power: str | None, gone: bool) -> str | None:
        """The watch told of a VM: the task that is over thereby, "" when it has no name yet.

        None when it is not what is waited for.
        """
        with self._lock:
            end = self._by_vm.get(vm)
            if end is None or not (gone or (end.sign is Sign.OFF and power == Sign.OFF.value)):
                return None
            if end.task:
                del self._by_vm[vm]
            end.shown = True
            self._seen.add(end.sign)
            return end.task

    def overlooked(self, task: str) -> None:
        """A task ended well; where its end was late, and none like it ever showed, none will."""
        now = self._monotonic()
        with self._lock:
            ends = self._by_vm.values()
            late = {it.sign for it in ends if it.task == task and it.until <= now}
            self._silent |= late - self._seen

    def forget(self, task: str) -> None:
        """Wait no longer for the end of a task, as it is watched itself, or known to be over."""
        with self._lock:
            self._by_vm = {vm: end for vm, end in self._by_vm.items() if end.task != task}

    def take_all(self) -> frozenset[str]:
        """Wait for nothing any more; gives the tasks, which have to be watched themselves."""
        with self._lock:
            ends, self._by_vm = self._by_vm, {}
        return frozenset(end.task for end in ends.values() if end.task)

    def seconds_left(self, task: str) -> float | None:
        """In how many seconds the end of a task is late; None when it is not waited for here."""
        with self._lock:
            untils = [end.until for end in self._by_vm.values() if end.task == task]
        return max(0.0, untils[0] - self._monotonic()) if untils else None

    @property
    def late(self) -> frozenset[str]:
        """Tasks whose end should have shown by now."""
        now = self._monotonic()
        with self._lock:
            return frozenset(end.task for end in self._by_vm.values() if end.until <= now)
