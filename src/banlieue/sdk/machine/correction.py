"""Drift that was put right by us is told once, when that has been seen."""

from banlieue.api.conditions import ConditionType
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import MoveRole
from banlieue.api.reasons import Reason
from banlieue.sdk.machine import drift
from banlieue.sdk.machine.scope import Scope, told_of
from banlieue.sdk.outcome import CONTINUE, Outcome


def note_correction(scope: Scope) -> None:
    """Remember what is about to be put right, as far as the machine's status calls it drift.

    A change that the user asked for, now or with a restart, is no correction.
    """
    if scope.edited:
        scope.memory.correcting = frozenset()
        return
    told = {
        condition.type
        for condition in scope.machine.status.conditions
        if condition.reason == Reason.DRIFT_DETECTED
    }
    named = {
        name
        for name in scope.differing
        if (ConditionType.POWER_STATE_SYNCED if name == drift.POWER else ConditionType.UP_TO_DATE)
        in told
    }
    scope.memory.correcting |= named


async def tell_corrected(scope: Scope) -> Outcome:
    """Is what was being put right as it should be?"""
    corrected = scope.memory.correcting
    if not corrected or scope.seen is None or corrected & {*scope.differing}:
        return CONTINUE
    scope.memory.correcting = frozenset()
    if scope.edited:
        # What was asked for changed meanwhile, so nobody knows which of the two put it right.
        return CONTINUE
    # The VirtualMachine is not what an earlier move left behind.
    current = scope.machine.spec.role is MoveRole.CURRENT
    scope.ctx.recorder.event(
        told_of(scope) if current else scope.raw,
        EventReason.DRIFT_CORRECTED,
        f"What was changed on the backend was put right: {', '.join(sorted(corrected))}",
    )
    return CONTINUE
