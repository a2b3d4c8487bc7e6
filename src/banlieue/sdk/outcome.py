"""What a phase answers."""

from dataclasses import dataclass

from banlieue.api.reasons import Reason


@dataclass(frozen=True, slots=True)
class Continue:
    """Nothing to do here; the next phase may look."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not further in this pass; come back after `after` seconds, or at the next change if None."""

    reason: Reason
    message: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Not further until the spec or something it refers to changes."""

    reason: Reason
    message: str


Outcome = Continue | Wait | Stop
CONTINUE = Continue()
