"""The optional power of a driver to keep up what stands beside a VM: its tags and its group."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import MachinePlan, MachineState

TAGS = "tags"
GROUP = "antiAffinityGroup"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What is not in force, by the name of its field, and why."""

    field: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How far it is.

    Attributes:
        poll_after: Seconds until it is to be asked again; None when nothing is left to do.
        shortfalls: What is not in force, and why.
        pending: Fields that are under way as long as `poll_after` is given.
    """

    poll_after: float | None = None
    shortfalls: tuple[Shortfall, ...] = ()
    pending: frozenset[str] = frozenset({TAGS, GROUP})

    @property
    def settled(self) -> bool:
        """Whether everything is in force."""
        return self.poll_after is None and not self.shortfalls


Wanted = tuple[str | None, tuple[tuple[str, str], ...], str | None]
"""Which VM, with which tags, in which group."""


@dataclass(slots=True)
class Kept:
    """What a process remembers of a machine's upkeep; losing it costs one look.

    `able` is False where the driver has no such power; `due` is when to try again.
    """

    wanted: Wanted | None = None
    last: Upkeep = Upkeep()
    able: bool = True
    failures: int = 0
    due: float = 0.0


@runtime_checkable
class Upkeeper(Protocol):
    """Optional power: put the plan's tags on a VM, and keep the VMs of one group apart."""

    def keep_up(self, plan: MachinePlan[Any], seen: MachineState) -> Upkeep:
        """Take one step towards the plan's tags and group; never waits for a task.

        Costs no call for a VM that has them. What cannot be done is told as a shortfall and keeps
        nothing else from being done; only what makes every call fail is raised. Tags that somebody
        else put on the VM stay on it.
        """
