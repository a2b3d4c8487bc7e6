"""One restart for each value of `restartAt`: whether it is due, and how it is never done twice.

Before the restarting call the intent is written into the machine's status. Whoever finds it there
and nothing running knows that the restart was sent, and records it: a restart whose outcome was
lost is not repeated. A status that was lost restarts nothing either, since a value that is past
when a machine is first observed counts as done.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.sdk.driver import RESTART, MachinePlan, MachineState
from banlieue.sdk.machine import drift, life, permission, plan, writes
from banlieue.sdk.machine.scope import Scope, told_of
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.phases import run_phases


async def note_restarted(scope: Scope) -> Outcome:
    """Has a restart ended that this process, or one before it, sent?"""
    recorded, memory = scope.machine.status.task, scope.memory
    if recorded is None or recorded.operation != RESTART or memory.task is not None:
        return CONTINUE
    if recorded.id is not None and memory.restarted != recorded.started_at:
        # Only here it is known: a status tells as well of restarts that were not needed.
        scope.ctx.recorder.event(told_of(scope), EventReason.RESTARTED, "The machine was restarted")
    memory.restarted = recorded.started_at
    return CONTINUE


async def restart(scope: Scope) -> Outcome:
    """Is a restart due that was not done yet?"""
    wanted, seen = scope.machine.spec.restart_at, scope.seen
    if wanted is None or seen is None or _was_done(scope, wanted):
        return CONTINUE
    left = (wanted - scope.ctx.clock.now()).total_seconds()
    if left > 0:
        scope.restart_after = left
        return CONTINUE
    if _passed_over(scope, seen, wanted):
        scope.restart_met = True
        return CONTINUE
    if seen.foreign_task:
        scope.restart_after = drift.SETTLE_SECONDS
        return CONTINUE
    outcome = await run_phases((permission.permitted, permission.may_change), scope)
    return await _send(scope, seen) if outcome is CONTINUE else outcome


def done_at(scope: Scope) -> datetime | None:
    """The value that is done now and not recorded as such yet."""
    wanted, before = scope.machine.spec.restart_at, scope.machine.status.last_restart_time
    if wanted is None or (before is not None and before >= wanted):
        return None
    return wanted if scope.restart_met or _was_done(scope, wanted) else None


def _was_done(scope: Scope, wanted: datetime) -> bool:
    """Whether a restart at that moment or later was recorded, or sent and ended."""
    ends = (scope.machine.status.last_restart_time, scope.memory.restarted)
    return any(end is not None and end >= wanted for end in ends)


def _passed_over(scope: Scope, seen: MachineState, wanted: datetime) -> bool:
    """Whether a moment that is past asks for nothing.

    It lies before the machine was first observed, or the VM does not run, or has booted since.
    """
    machine = scope.machine
    made = machine.metadata.creation_timestamp
    unknown = scope.status_lost or machine.status.observed_generation is None
    off = PowerState.POWERED_ON not in {seen.power} & {scope.desired.power}
    booted = datetime.fromisoformat(seen.last_boot) if seen.last_boot else None
    return (
        unknown
        or off
        or (made is not None and made >= wanted)
        or (booted is not None and booted >= wanted)
    )


async def _send(scope: Scope, seen: MachineState) -> Outcome:
    place = scope.open.domain(scope.domain_name)
    if place is None:
        return life.no_place(scope)
    asked: MachinePlan[Any] = replace(plan.make_plan(scope, place), restart=True)
    await writes.announce_restart(scope)
    task = await scope.open.call(lambda driver: driver.update(asked, seen))
    scope.memory.task = task
    if task is None:
        scope.memory.restarted = scope.ctx.clock.now()
        return Wait(Reason.RESTARTING, "the VM is being restarted", life.SOON)
    return life.awaiting(scope, task)
