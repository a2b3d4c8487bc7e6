"""Secrets of the first boot leave the backend once no guest needs them; the rest of the seed stays.

A guest reads its user data anew at each boot until its first boot went well, so nothing is cleared
before it says that it has. One that never says so has had its data when it ran for a day.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import MoveRole
from banlieue.api.infrastructure.machine_status import SeedStatus
from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.sdk.conditions import Finding, false, true
from banlieue.sdk.driver import Driver, MachineState, Seed, Task
from banlieue.sdk.errors import DriverError, NeedsOperator
from banlieue.sdk.machine import drift, permission
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.powers import SeedRedactor

DAY = 86400.0
"""Seconds since its last boot for which a guest that tells nothing may still need its data."""

_TRIES = 3
_KINDS = (ConditionType.GUEST_BOOTSTRAPPED, ConditionType.SEED_REDACTED)
_PENDING = "waiting for the guest to tell that its first boot is over"


async def redact(scope: Scope) -> Outcome:
    """Are secrets of the first boot off the backend, as soon as that costs no guest its data?

    Never keeps the machine from anything else: what it waits for is told by a condition.
    """
    seen = scope.seen
    seed = seen.seed if seen is not None else None
    if seen is None or seed is None or not seed.secret or _is_settled(scope, seed):
        return CONTINUE
    try:
        await _advance(scope, seen, seed)
    except DriverError as error:
        scope.seed_waits = Wait(error.reason, error.message)
        _pause(scope)
    return CONTINUE


def _is_settled(scope: Scope, seed: Seed) -> bool:
    return not seed.kept and scope.machine.status.seed is not None


async def _advance(scope: Scope, seen: MachineState, seed: Seed) -> None:
    memory = scope.memory
    if memory.redacting is not None:
        begun, memory.redacting = memory.redacting, None
        running = await scope.open.call(lambda driver: driver.poll(begun))
        if running is not None:
            _follow(scope, running)
            return
    scope.seed_waits = _too_early(scope, seen, seed) or _resting(scope)
    if scope.seed_waits is None:
        may = await run_phases((permission.permitted, permission.may_change), scope)
        scope.seed_waits = may if isinstance(may, Wait) else None
    if scope.seed_waits is not None:
        scope.seed_after = scope.seed_waits.after
        return
    await scope.confirm_live()
    ref = scope.ref()

    def clear(driver: Driver[Any]) -> Task | None:
        if not isinstance(driver, SeedRedactor):
            raise NeedsOperator(
                Reason.UNSUPPORTED_BY_PROVIDER,
                "the Provider cannot clear user data, which can still be read on the backend",
            )
        return driver.redact_seed(ref)

    task = await scope.open.call(clear)
    if task is None:
        scope.seed_proven = True
        memory.seed_tries = 0
        return
    memory.seed_tries += 1
    _follow(scope, task)
    if memory.seed_tries >= _TRIES:
        _pause(scope)


def _follow(scope: Scope, task: Task) -> None:
    scope.memory.redacting = task
    scope.seed_waits = Wait(Reason.UPDATING, "the user data is being cleared")
    scope.seed_after = task.poll_after


def _pause(scope: Scope) -> None:
    """Try again, ever later."""
    memory = scope.memory
    memory.seed_failures += 1
    pause = min(permission.SLOW, 2.0 ** min(memory.seed_failures, 9))
    memory.seed_rests_until = scope.ctx.clock.monotonic() + pause
    scope.seed_after = pause


def _resting(scope: Scope) -> Wait | None:
    left = scope.memory.seed_rests_until - scope.ctx.clock.monotonic()
    if left <= 0:
        return None
    return Wait(Reason.UPDATE_FAILED, "the user data could not be cleared; tried again", left)


def _too_early(scope: Scope, seen: MachineState, seed: Seed) -> Wait | None:
    """Why nothing is to be cleared now, None when no guest needs it any more."""
    off_limits = _off_limits(scope, seen)
    if off_limits is not None or seed.done or not seed.kept:
        return off_limits
    left = _left_of_day(scope, seen)
    if left is None:
        return Wait(Reason.GUEST_BOOTSTRAP_PENDING, _PENDING)
    return Wait(Reason.GUEST_BOOTSTRAP_PENDING, _PENDING, left) if left > 0 else None


def _off_limits(scope: Scope, seen: MachineState) -> Wait | None:
    """Why nothing of the VM is to be changed now, whatever its guest has told."""
    if scope.machine.spec.role is MoveRole.PREVIOUS:
        return Wait(Reason.PREVIOUS_RETAINED, "what a move left behind stays as it is")
    if seen.held:
        return Wait(Reason.HELD_BY_BACKEND, "an admin holds the VM on the backend")
    if seen.foreign_task:
        return Wait(Reason.PROVIDER_BUSY, "somebody else works on the VM", drift.SETTLE_SECONDS)
    if seen.power is PowerState.SUSPENDED:
        return Wait(Reason.RESTART_REQUIRED, "the VM is suspended; it is done when that is woken")
    return None


def _left_of_day(scope: Scope, seen: MachineState) -> float | None:
    """Seconds until a guest that runs has had its data whatever it tells; None: nobody knows."""
    running = seen.power is PowerState.POWERED_ON and seen.guest.agent_connected
    if not running or seen.last_boot is None:
        return None
    booted = datetime.fromisoformat(seen.last_boot)
    return DAY - (scope.ctx.clock.now() - booted).total_seconds()


# What is told of it


def status(scope: Scope) -> SeedStatus | None:
    """When it was proved that the secrets are gone; None while they are not."""
    before = scope.machine.status.seed
    if scope.seen is None:
        return before
    seed = scope.seen.seed
    if seed is None or seed.kept or not seed.secret:
        return None
    return before or (SeedStatus(redacted_at=scope.ctx.clock.now()) if scope.seed_proven else None)


def findings(scope: Scope) -> tuple[Finding, ...]:
    """Conditions about the first boot, for a VM that was given something to read at it."""
    seen = scope.seen
    if seen is None:
        return tuple(_before(scope))
    seed = seen.seed
    if seed is None:
        return ()
    found = [_bootstrapped(scope, seed)]
    if seed.secret:
        found.append(_redacted(scope))
    return tuple(found)


def _before(scope: Scope) -> Iterator[Finding]:
    """What was said of it, when this pass did not see the VM."""
    kinds = {kind.value: kind for kind in _KINDS}
    for item in scope.machine.status.conditions:
        if item.type in kinds:
            yield Finding(kinds[item.type], item.status, item.reason, item.message)


def _bootstrapped(scope: Scope, seed: Seed) -> Finding:
    """The guest's word; one it has given once holds, as backends forget it."""
    kind = ConditionType.GUEST_BOOTSTRAPPED
    if seed.done:
        return true(kind, Reason.GUEST_BOOTSTRAPPED)
    held = [it for it in _before(scope) if it.type is kind and it.reason != _WAITING]
    if seed.done is None and held:
        return held[0]
    if seed.done is None:
        return false(kind, Reason.GUEST_BOOTSTRAP_PENDING, _PENDING)
    return false(
        kind,
        Reason.GUEST_BOOTSTRAP_FAILED,
        "the guest says that its first-boot data failed; `cloud-init status --long` in it tells "
        "why, and a reboot tries again what failed",
    )


_WAITING = Reason.GUEST_BOOTSTRAP_PENDING.value


def _redacted(scope: Scope) -> Finding:
    kind = ConditionType.SEED_REDACTED
    if status(scope) is not None:
        return true(kind, Reason.SEED_REDACTED)
    waits = scope.seed_waits
    if waits is None:
        return false(kind, Reason.GUEST_BOOTSTRAP_PENDING, _PENDING)
    return false(kind, waits.reason, waits.message)
