"""The phases of a machine whose object is being deleted.

Nothing is destroyed without an intent that names this very object. Release never needs the
backend and is the way out when absence cannot be proved.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from banlieue.api import names
from banlieue.api.infrastructure.machine import MoveRole, TeardownMode
from banlieue.api.reasons import Reason
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.types import DeletionPolicy, PowerOffMode, PowerState
from banlieue.api.v1alpha1.provider import ProviderMode
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.sdk.driver import DiskState, Driver, MachineRef, Task
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator, Unreachable
from banlieue.sdk.kube import Key, NotFound
from banlieue.sdk.machine import adoption, disks, life, permission, plan, writes
from banlieue.sdk.machine.ownership import check_ours
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.powers import DiskDetacher, MarkRemover

_SOON = 0.2
_DECIDED = 2.0
"""Seconds in which an object is deleted once it was decided what becomes of its VM."""


def about_to_end(scope: Scope) -> float | None:
    """How long to leave alone a machine that its controller is about to delete; None when not.

    The controller writes down what becomes of the VM, then deletes the object. A pass in between
    would write a status that the deletion overtakes, and look at the backend twice.
    """
    machine, memory, now = scope.machine, scope.memory, scope.ctx.clock.monotonic()
    intent = machine.spec.teardown
    decided = intent is not None and intent.uid == machine.metadata.uid
    if not decided or machine.spec.virtual_machine_ref is None or _is_leaving(scope):
        memory.ends_by = None
        return None
    memory.ends_by = now + _DECIDED if memory.ends_by is None else memory.ends_by
    return memory.ends_by - now if now < memory.ends_by else None


def _is_leaving(scope: Scope) -> bool:
    return scope.machine.metadata.deletion_timestamp is not None


async def check_paused(scope: Scope) -> Outcome:
    """Does the Provider ask for hands off? Then not even a finalizer changes.

    Nor does one in a drill: what is restored beside the original is looked at and nothing else.
    """
    spec = scope.open.provider.spec
    if spec.paused:
        return Wait(Reason.PROVIDER_PAUSED, "the Provider is paused", permission.SLOW)
    if spec.mode is ProviderMode.READ_ONLY:
        return Wait(
            Reason.PROVIDER_PAUSED,
            "the Provider is read-only, so nothing is destroyed or released; set its mode to "
            "ReadWrite to have it done",
            permission.SLOW,
        )
    return CONTINUE


async def check_made(scope: Scope) -> Outcome:
    """Could there be a VM at all? Without an identity none was ever made."""
    if scope.machine.spec.instance is not None:
        return CONTINUE
    await writes.drop_finalizer(scope)
    return Wait(Reason.DELETING, "nothing was ever made for it")


async def check_intent(scope: Scope) -> Outcome:
    """Did the controller decide what becomes of the VM, for this very object?"""
    intent = scope.machine.spec.teardown
    if intent is None or intent.uid != scope.machine.metadata.uid:
        return Wait(
            Reason.TEARDOWN_UNDECIDED,
            "the VM is left alone until the controller decides what becomes of it",
        )
    if intent.mode is TeardownMode.RELEASE:
        task = await _remove_mark_of_orphan(scope)
        if task is not None:
            return life.awaiting(scope, task)
        await writes.drop_finalizer(scope)
        return Wait(Reason.DELETING, "the VM was released")
    if scope.machine.spec.deletion_protection:
        return Wait(
            Reason.TEARDOWN_UNDECIDED, "deletionProtection is set; set it to false to destroy it"
        )
    return CONTINUE


async def _remove_mark_of_orphan(scope: Scope) -> Task | None:
    """A VM left to its user loses our mark; one whose owner lives on keeps it, to be found by.

    Release goes through when the backend does not answer, or will not have it done. What answers
    that something else goes on, such as a backup, is waited for: a mark that stays would have the
    next VirtualMachine of that name take up the user's VM.
    """
    made_by = scope.machine.spec.virtual_machine_ref
    if made_by is None or await permission.may_change(scope) is not CONTINUE:
        return None
    try:
        found = await scope.ctx.api.get(VIRTUAL_MACHINES, Key(scope.key.namespace, made_by.name))
    except NotFound:
        return None
    if not _orphans(scope, VirtualMachine.from_api(found)):
        return None
    ref = scope.ref()

    def remove(driver: Driver[Any]) -> Task | None:
        if not isinstance(driver, MarkRemover):
            return None
        seen = driver.observe(ref)
        if seen is None:
            return None
        check_ours(ref, seen)
        return driver.remove_mark(ref)

    try:
        return await scope.open.call(remove)
    except (Unreachable, NeedsOperator, InvalidSpec):
        return None


def _orphans(scope: Scope, owner: VirtualMachine) -> bool:
    """The owner goes, or lets go of what a move left behind, and wants the VM left to its user."""
    leaving = owner.metadata.deletion_timestamp is not None
    behind = scope.machine.spec.role is MoveRole.PREVIOUS and _lets_go(scope, owner)
    return (leaving or behind) and owner.spec.wanted_deletion_policy is DeletionPolicy.ORPHAN


async def ensure_gone(scope: Scope) -> Outcome:
    """Is the VM provably gone? If not, take one step."""
    ref = scope.ref()
    seen = await life.observe(scope, ref)
    if seen is None:
        await writes.drop_finalizer(scope)
        return Wait(Reason.DELETING, "the VM is gone")
    check_ours(ref, seen)
    scope.seen = seen
    foreign = _foreign(seen.disks)
    await scope.confirm_live()
    task = await _detach(scope, ref, foreign) if foreign else await _keep(scope)
    if task is None and not foreign:
        task = await scope.open.call(lambda driver: driver.delete(ref))
    scope.memory.task = task
    if task is None:
        return Wait(Reason.DELETING, "the VM is being destroyed", _SOON)
    return life.awaiting(scope, task)


def _foreign(attached: tuple[DiskState, ...]) -> tuple[DiskState, ...]:
    """Disks that somebody else attached: volumes, what a backup added."""
    return tuple(disk for disk in attached if disk.name is None)


async def _keep(scope: Scope) -> Task | None:
    """One step towards keeping the disks that are to be retained; None when all are."""
    kept = disks.retained(scope)
    if not kept:
        return None
    attached = tuple(disk for disk in (scope.seen.disks if scope.seen else ()) if disk.name in kept)
    stopping = await _stop(scope) if attached else None
    if stopping is not None:
        return stopping
    named = ", ".join(disk.name or disk.id for disk in attached) or ", ".join(kept)
    disks.tell_kept(scope, {disk.name: kept[disk.name] for disk in attached if disk.name})
    return await _or_hold(scope, named, lambda driver: disks.keep(driver, scope, kept))


async def _stop(scope: Scope) -> Task | None:
    """Have the guest write out what it holds before its disks are kept; None when it is off.

    It is asked as the user wants it, but for one that never stops: that one is switched off.
    """
    seen = scope.seen
    if seen is None or seen.power is PowerState.POWERED_OFF:
        return None
    asked = plan.power_plan(scope, seen)
    soft = asked.power_off_mode is PowerOffMode.SOFT
    mode = PowerOffMode.TRY_SOFT if soft else asked.power_off_mode
    wanted = replace(asked, power=PowerState.POWERED_OFF, power_off_mode=mode)
    return await scope.open.call(lambda driver: driver.update(wanted, seen))


async def _detach(scope: Scope, ref: MachineRef, foreign: tuple[DiskState, ...]) -> Task | None:
    named = ", ".join(disk.id for disk in foreign)

    def detach(driver: Driver[Any]) -> Task | None:
        if isinstance(driver, DiskDetacher):
            return driver.detach_disks(ref, foreign)
        raise NeedsOperator(
            Reason.FOREIGN_DISK_ATTACHED, "this backend cannot take disks off a VM by itself"
        )

    return await _or_hold(scope, named, detach)


async def _or_hold(
    scope: Scope, named: str, step: Callable[[Driver[Any]], Task | None]
) -> Task | None:
    """Take disks off a VM that is to be destroyed; it is not, while that cannot be done."""
    try:
        return await scope.open.call(step)
    except Unreachable:
        raise
    except DriverError as error:
        raise NeedsOperator(
            Reason.FOREIGN_DISK_ATTACHED,
            f"the VM is not destroyed while disks that must live on are attached ({named}); "
            f"detach them on the backend: {error.message}",
            native=error.native,
        ) from error


PHASES = (
    check_paused,
    check_made,
    adoption.settle,
    check_intent,
    life.check_backend,
    permission.may_change,
    life.finish_task,
    adoption.leave,
    ensure_gone,
)


def _lets_go(scope: Scope, owner: VirtualMachine) -> bool:
    """Whether the user's word, or a time once given, ends what a move left; no restore does."""
    if owner.metadata.annotations.get(names.ANNOTATION_RELEASE_PREVIOUS) == "true":
        return True
    until = owner.status.previous.until if owner.status.previous else None
    return until is not None and until <= scope.ctx.clock.now()
