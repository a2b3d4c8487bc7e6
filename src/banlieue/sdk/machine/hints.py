"""What a status tells the next process of attempts that failed: how many, and when one is due.

Hints and no more. A process that begins anew makes up its mind by what it sees; it only does not
ask a backend that refuses at once for all its machines. Whatever stands there, by whoever's hand,
costs no more than the longest pause there is between two attempts.
"""

from datetime import datetime, timedelta

from banlieue.api.infrastructure.machine import Machine
from banlieue.sdk.errors import DriverError, Unreachable
from banlieue.sdk.machine.scope import Memory
from banlieue.sdk.outcome import Outcome, Wait
from banlieue.sdk.reconcile import Clock

LONGEST_PAUSE = 300.0
"""Seconds between two attempts at the most."""

MOST_FAILURES = 9
"""After so many in a row the pause grows no more."""


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
    if busy or status.next_attempt is None:
        return
    left = (status.next_attempt - clock.now()).total_seconds()
    if left > 0:
        memory.rests_until = clock.monotonic() + min(left, LONGEST_PAUSE)
        memory.rests_as = machine.metadata.resource_version


def rest(memory: Memory, machine: Machine, clock: Clock) -> float | None:
    """Seconds for which the machine is left alone yet; None when a pass is due.

    Anybody's write to the object ends that, and so does news of its VM.
    """
    if memory.rests_until is None:
        return None
    left = memory.rests_until - clock.monotonic()
    if left <= 0 or memory.rests_as != machine.metadata.resource_version:
        memory.rests_until = None
        return None
    return left


def next_attempt(outcome: Outcome, error: DriverError | None, now: datetime) -> datetime | None:
    """When a failed attempt is made again; None where none failed, or nobody answered at all.

    An endpoint that is silent is tried by its Provider, and all machines hear of it at once.
    """
    if error is None or isinstance(error, Unreachable) or not isinstance(outcome, Wait):
        return None
    if outcome.after is None:
        return None
    return (now + timedelta(seconds=min(outcome.after, LONGEST_PAUSE) + 1)).replace(microsecond=0)
