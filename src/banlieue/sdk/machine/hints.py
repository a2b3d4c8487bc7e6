"""What a status tells the next process of attempts that failed: how many, and when one is due.

Hints and no more. A process that begins anew makes up its mind by what it sees; it only does not
ask a backend that refuses at once for all its machines. Whatever stands there, by whoever's hand,
costs no more than the longest pause there is between two attempts.
"""

from datetime import datetime, timedelta

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.reasons import Reason
from banlieue.sdk.errors import DriverError, Transient
from banlieue.sdk.machine.scope import Memory
from banlieue.sdk.outcome import Outcome, Wait
from banlieue.sdk.reconcile import Clock

LONGEST_PAUSE = 300.0
"""Seconds between two attempts at the most."""

MOST_FAILURES = 9
"""After so many in a row the pause grows no more."""

_NOT_THE_MACHINES = frozenset(
    {
        Reason.PROVIDER_UNREACHABLE,
        Reason.PROVIDER_AUTH_FAILED,
        Reason.PROVIDER_TLS_INVALID,
        Reason.WAITING_FOR_GRANT,
    }
)
"""Failures of the Provider as a whole, and of a grant, which comes within moments."""


def take_up(memory: Memory, machine: Machine, clock: Clock) -> None:
    """Go on from what an earlier process left in the status; once for each machine.

    Args:
        memory: what this process knows of the machine; it is changed.
        machine: the machine as this process sees it first.
        clock: the present, and seconds that never go back.
    """
    if memory.hints_taken:
        return
    memory.hints_taken = True
    status = machine.status
    if status.failures is not None:
        memory.failures = min(max(0, status.failures.count), MOST_FAILURES)
    busy = status.task is not None or machine.metadata.deletion_timestamp is not None
    if busy or status.next_attempt is None or not _answers(machine):
        return
    left = (status.next_attempt - clock.now()).total_seconds()
    # One further away was never ours: a process that took it at its word would rest, and so would
    # the next, and nobody would ever try.
    if 0 < left <= LONGEST_PAUSE + 1:
        memory.rests_until = clock.monotonic() + left
        memory.rests_as = machine.metadata.resource_version


def _answers(machine: Machine) -> bool:
    """Whether the status is of the spec that stands: an edit while nobody ran is due at once."""
    told = next((it for it in machine.status.conditions if it.type == ConditionType.READY), None)
    return told is not None and told.observed_generation == machine.metadata.generation


def rest(memory: Memory, machine: Machine, clock: Clock) -> float | None:
    """Seconds for which the machine is left alone yet; None when a pass is due.

    Anybody's write to the object ends that; news of its VM or its Provider end it elsewhere.
    """
    if memory.rests_until is None:
        return None
    left = memory.rests_until - clock.monotonic()
    if left <= 0 or memory.rests_as != machine.metadata.resource_version:
        memory.rests_until = None
        return None
    return left


def next_attempt(outcome: Outcome, error: DriverError | None, now: datetime) -> datetime | None:
    """When a failed attempt is made again; None where that is not for the next process to wait for.

    What somebody has to mend is tried by it at once: that it was restarted may mean they have. An
    endpoint that is silent is tried by its Provider, and all machines hear of it together.
    """
    passes = isinstance(error, Transient) and error.reason not in _NOT_THE_MACHINES
    if not passes or not isinstance(outcome, Wait) or outcome.after is None:
        return None
    return (now + timedelta(seconds=min(outcome.after, LONGEST_PAUSE) + 1)).replace(microsecond=0)
