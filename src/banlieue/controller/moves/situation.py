"""What the next step of a move is decided from, and the steps there are. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from banlieue.api.infrastructure.machine import Machine
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine import MoveStatus, ReadinessGate

SWITCH_SECONDS = 600
"""How long a new machine may take to be Ready once the old one is off, beyond its shutdown."""


class Step(Enum):
    """What is to be done next."""

    AWAIT = auto()
    """Nothing; a provider has to act or tell first."""
    POST = auto()
    """Make the machine object that the status refers to."""
    REPLACE = auto()
    """Choose another place; the backend refused this one and nothing was made."""
    TAKE_BACK = auto()
    """Give an earlier machine the next epoch, as Incoming."""
    CLOSE = auto()
    """Keep the new machine off the network."""
    SWITCH = auto()
    """Write down that the old machine is told to stop from now on."""
    OPEN = auto()
    """Let the new machine onto the network: the old one is off."""
    COMMIT = auto()
    """Make the new machine Current: no way back."""
    LEAVE = auto()
    """Make the old machine Previous, to be powered off."""
    FINISH = auto()
    """Let the status say that the new machine is the machine now."""
    FAIL = auto()
    """Write down that the move failed, so that it is undone."""
    GIVE_UP = auto()
    """Write down that the move is not asked for any more: it is undone to its end."""
    FENCE = auto()
    """Shut the new machine off, whatever it may do."""
    TURN_ON = auto()
    """Let the old machine run again."""
    OVERTAKE = auto()
    """Give the current machine a later epoch than the one that was to come back."""
    STEP_BACK = auto()
    """Make the machine that was to come back Previous again."""
    RETAIN = auto()
    """Let the status say that the machine that was to come back stays left behind."""
    REMOVE = auto()
    """Destroy the new machine, which nobody used."""
    LET_GO = auto()
    """Release a machine object that somebody deleted; what it stands for is found again."""
    FORGET = auto()
    """Drop the reference to a machine object that is gone."""


@dataclass(frozen=True, slots=True)
class Next:
    """The next step; `waits_for` says what an `AWAIT` waits for, `until` when it was too long."""

    step: Step
    waits_for: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """A move that goes on.

    Attributes:
        record: what the status says of it.
        fresh: whether the incoming machine is a new one, and not an earlier one taken back.
        wanted: whether the spec still asks for it.
        fixed: whether the machine has addresses that must not be live twice.
        power: the power state the user wants.
        shutdown_seconds: how long the guest may take to shut down.
        target_gone: whether the Provider it goes to does not exist any more.
    """

    record: MoveStatus
    current: Machine | None
    incoming: Machine | None
    now: datetime
    fresh: bool = True
    wanted: bool = True
    fixed: bool = False
    power: PowerState = PowerState.POWERED_ON
    gates: Collection[ReadinessGate] = ()
    guest_bootstrapped: bool = False
    shutdown_seconds: int = 300
    target_gone: bool = False

    @property
    def undone(self) -> bool:
        """Whether it is to be undone: it failed, or is not asked for any more."""
        return self.settled or not self.wanted

    @property
    def settled(self) -> bool:
        """Whether it is written down that it is to be undone; then it is, whatever is asked for.

        In the middle of that the machines stand as a move never leaves them.
        """
        return self.record.failure is not None or bool(self.record.given_up)

    @property
    def switched(self) -> bool:
        """Whether the old machine was told to stop for it."""
        return self.record.switched_at is not None

    @property
    def deadline(self) -> datetime | None:
        """When a switch that began is undone."""
        if self.record.switched_at is None:
            return None
        return self.record.switched_at + timedelta(seconds=self.shutdown_seconds + SWITCH_SECONDS)
