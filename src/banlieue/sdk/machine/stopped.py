"""VMs that their backend stopped with a question, and guests that were asked to stop.

A question is told with its text and never answered: any answer may cost data.
"""

from datetime import datetime, timedelta

from banlieue.api.infrastructure.machine import TaskStatus
from banlieue.api.reasons import Reason
from banlieue.sdk.driver import RESTART, Task
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait

_LONGEST_QUESTION = 400
_LOOK_AGAIN = 60.0
"""Seconds until a VM that waits for an answer is looked at again where no feed tells of it."""


async def unanswered(scope: Scope) -> Outcome:
    """Does the backend wait for an admin's answer before the VM goes on?"""
    if scope.seen is None or scope.seen.question is None:
        return CONTINUE
    return waiting_for_answer(scope.seen.question, _LOOK_AGAIN)


def waiting_for_answer(question: str, after: float) -> Wait:
    """The outcome of a pass over a VM that was stopped with a question."""
    return Wait(
        Reason.VM_PAUSED,
        f"the backend stopped the VM and asks: {question_text(question)} "
        "(answer it on the backend)",
        after,
    )


def question_text(text: str) -> str:
    """A question in one line of bounded length, without control characters."""
    line = " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())
    return line if len(line) <= _LONGEST_QUESTION else f"{line[: _LONGEST_QUESTION - 1]}…"


def seconds_to_stop(scope: Scope) -> float:
    """How long a guest may take to stop: what an earlier process left of that, else all of it."""
    whole = float(scope.machine.spec.wanted_power_off_timeout_seconds)
    task = scope.machine.status.task
    if task is None or task.deadline is None or task.operation == RESTART:
        return whole
    left = (task.deadline - scope.ctx.clock.now()).total_seconds()
    return min(whole, max(0.0, left))


def task_status(before: TaskStatus | None, task: Task | None, now: datetime) -> TaskStatus | None:
    """What a status tells of a running task; since when and until when stand as first written."""
    if task is None:
        return None
    known = before if before is not None and before.id == task.handle else None
    deadline = known.deadline if known else None
    if deadline is None and task.seconds_left is not None:
        deadline = (now + timedelta(seconds=task.seconds_left)).replace(microsecond=0)
    return TaskStatus(
        id=task.handle,
        operation=task.operation,
        started_at=known.started_at if known else now,
        deadline=deadline,
    )
