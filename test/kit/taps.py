"""How many calls a backend got, whichever it is; what tests and benchmarks count with."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

from banlieue.sdk.testing.conformance_target import ConformanceTarget
from banlieue.sdk.testing.simulated_target import SimulatedTarget


@dataclass(frozen=True, slots=True)
class Words:
    """What a backend calls the calls that tests look for."""

    login: str
    create: str
    long_poll: frozenset[str]


@singledispatch
def words_of(target: ConformanceTarget) -> Words:
    """The backend's words."""
    raise TypeError(f"calls of {type(target).__name__} cannot be counted")


@singledispatch
def calls_of(target: ConformanceTarget) -> Counter[str]:
    """Calls that accounts made since the backend was started, by their names."""
    raise TypeError(f"calls of {type(target).__name__} cannot be counted")


@words_of.register
def _(target: SimulatedTarget) -> Words:
    del target
    return Words(login="login", create="create", long_poll=frozenset({"changes"}))


@calls_of.register
def _(target: SimulatedTarget) -> Counter[str]:
    counted: Mapping[str, int] = target._control("calls")
    # Not an account's: whoever starts the world asks by it whether it is up.
    return Counter({name: count for name, count in counted.items() if name != "ping"})


class Meter:
    """Counts the calls from one moment to another."""

    def __init__(self, target: ConformanceTarget) -> None:
        self.words = words_of(target)
        self._target = target
        self._before = calls_of(target)

    def reset(self) -> None:
        """Count from zero again."""
        self._before = calls_of(self._target)

    def calls(self) -> Counter[str]:
        """Calls since the start, by name."""
        return calls_of(self._target) - self._before

    def work(self) -> Counter[str]:
        """The same without the long poll."""
        quiet = self.words.long_poll
        return Counter({name: n for name, n in self.calls().items() if name not in quiet})
