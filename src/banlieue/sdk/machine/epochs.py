"""Whether a machine's owner has another VM that went further in moves than the machine itself.

After a restore an object may know less than its backend: the VM it stands for was left behind by
a move, or its successor stands on the same Provider. Such an object makes and changes nothing
until the controller has brought it up to date.
"""

from collections.abc import Sequence
from typing import Any

from banlieue.api.infrastructure.machine import Move, MoveRole
from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.sdk.driver import Driver, MachineRef, MachineState
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import Owner, valid_mark
from banlieue.sdk.machine import drift
from banlieue.sdk.machine.ownership import overtakes, wanted_mark
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.powers import Inventory, OwnerIndex

_AGAIN = 30.0
"""Seconds until a machine that waits for its object is looked at again."""


async def not_overtaken(scope: Scope) -> Outcome:
    """Is there no VM of the same owner here that went through a later move, and to its end?"""
    if scope.machine.spec.role is not MoveRole.CURRENT:
        return CONTINUE
    ref = scope.ref()
    others = await scope.open.call(lambda driver: _others(driver, ref))
    later = [state.mark.epoch for state in others if state.mark and overtakes(state.mark, ref)]
    if not later:
        return CONTINUE
    return Wait(
        Reason.REBIND_PENDING,
        f"the Provider has a VM of the same owner and of a later move ({max(later)}) than this "
        f"object ({ref.epoch}); nothing is made or changed until the object was brought up to date",
        _AGAIN,
    )


async def stay_behind(scope: Scope) -> Outcome:
    """As `not_overtaken`, for a VM that is there: asked once per version, and before a change."""
    machine, seen = scope.machine, scope.seen
    if seen is None or seen.mark is None:
        return CONTINUE
    version = (machine.metadata.uid or "", machine.metadata.generation or 0)
    if scope.memory.epoch_checked == version and not drift.differences(scope.desired, seen):
        return CONTINUE
    outcome = await not_overtaken(scope)
    if outcome is CONTINUE:
        scope.memory.epoch_checked = version
    return outcome


def check_alone(driver: Driver[Any], ref: MachineRef) -> None:
    """Refuse to give a VM an epoch that another VM of the owner has, or has left behind.

    Raises:
        Foreign: there is such a VM; neither is touched.
    """
    epoch = wanted_mark(ref).epoch
    rivals = [
        state.name for state in _others(driver, ref) if state.mark and state.mark.epoch >= epoch
    ]
    if rivals:
        raise Foreign(
            f"VM {', '.join(sorted(rivals))} says that it is this machine, too; neither is "
            "touched, remove the wrong one"
        )


def _others(driver: Driver[Any], ref: MachineRef) -> list[MachineState]:
    """The owner's VMs with valid marks, but for the machine's own."""
    uuid = (ref.uuid or "").lower()
    return [state for state in made_for(driver, ref.owner) if state.uuid.lower() != uuid]


def made_for(driver: Driver[Any], owner: Owner) -> Sequence[MachineState]:
    """Every VM with a valid mark of an owner, as far as the driver can tell."""
    if isinstance(driver, OwnerIndex):
        return driver.made_for(owner)
    if not isinstance(driver, Inventory):
        return ()
    return [
        state
        for state in driver.marked()
        if state.mark and valid_mark(state.mark, state.uuid) and state.mark.owner == owner
    ]


def reported_move(scope: Scope) -> Move | None:
    """Where the machine stands by its VM's mark; what a pass did not look at stays as it was.

    A machine that is left behind counts as such once its mark is right and it was seen off.
    """
    told, before = scope.told_move, scope.machine.status.move
    if told is None:
        return before
    spec, seen = scope.machine.spec, scope.seen
    if spec.role is not MoveRole.PREVIOUS or told != Move(epoch=spec.epoch, role=MoveRole.CURRENT):
        return told
    behind = Move(epoch=spec.epoch, role=MoveRole.PREVIOUS)
    off = seen is not None and seen.power is PowerState.POWERED_OFF
    return behind if off or before == behind else told
