"""The phases of a machine that takes part in a move: its role in spec, its mark on the backend.

The controller writes the role, the mark follows, and the status tells what the mark says: by that
the controller goes on. Each step is found again after a crash, since it is decided from the two.
"""

from typing import Any

from banlieue.api.infrastructure.machine import MoveRole
from banlieue.api.reasons import Reason
from banlieue.sdk.driver import Driver, Task
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.machine import epochs, life, permission
from banlieue.sdk.machine.ownership import wanted_mark
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.powers import MarkWriter


async def never_again(scope: Scope) -> Outcome:
    """A machine that is left behind is never made, neither for the first time nor anew."""
    spec = scope.machine.spec
    if spec.role is not MoveRole.PREVIOUS or scope.seen is not None:
        return CONTINUE
    return Wait(
        Reason.VM_MISSING,
        "the VM that a move left behind is gone and is not made again; release it to have done "
        "with this object",
        permission.SLOW,
    )


async def left_behind(scope: Scope) -> Outcome:
    """As `never_again`, before the mint."""
    if scope.machine.spec.instance is not None:
        return CONTINUE
    return await never_again(scope)


async def sync_mark(scope: Scope) -> Outcome:
    """Does the mark on the backend say where the machine stands in a move?"""
    seen = scope.seen
    if seen is None or seen.mark is None:
        return CONTINUE
    ref = scope.ref()
    wanted = wanted_mark(ref)
    if (seen.mark.epoch, seen.mark.incoming) == (wanted.epoch, wanted.incoming):
        return CONTINUE
    outcome = await run_phases((permission.permitted, permission.may_change), scope)
    if outcome is not CONTINUE:
        return outcome
    await scope.confirm_live()

    def write(driver: Driver[Any]) -> Task | None:
        if not isinstance(driver, MarkWriter):
            raise NeedsOperator(
                Reason.UNSUPPORTED_BY_PROVIDER,
                "this backend cannot tell on a VM where it stands in a move, so nothing is moved",
            )
        epochs.check_alone(driver, ref)
        return driver.write_mark(ref, wanted)

    scope.memory.task = task = await scope.open.call(write)
    if task is None:
        return Wait(Reason.UPDATING, "the mark is being written", life.SOON)
    return life.awaiting(scope, task)
