"""The phases of a VirtualMachine that is being deleted: intent, machines gone, then the object."""

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Machine, MoveRole, TeardownMode
from banlieue.api.meta import ConditionStatus
from banlieue.api.reasons import Reason
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.types import DeletionPolicy
from banlieue.controller import writes
from banlieue.controller.infra import teardown
from banlieue.controller.infra.kinds import Found, Unreadable
from banlieue.controller.infra.refer import restore_course
from banlieue.controller.vm.phases import confirm_installation
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import Finding
from banlieue.sdk.kube import Key
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait

_SOON = 0.1
_NO_RIGHTS_SECONDS = 30.0


async def check_held(scope: Scope) -> Outcome:
    """Do we hold the object at all?"""
    if scope.finalizer_held:
        return CONTINUE
    scope.gone = True
    return Wait(Reason.DELETING, "not held by this controller")


async def check_protected(scope: Scope) -> Outcome:
    """May the machine be destroyed? Without the admission policy a delete of it comes through."""
    spec = scope.vm.spec
    if not spec.deletion_protection or spec.wanted_deletion_policy is DeletionPolicy.ORPHAN:
        return CONTINUE
    message = (
        "deletionProtection is set, so the machine is not destroyed; set it to false to go on, or "
        "deletionPolicy to Orphan to leave the machine on its backend"
    )
    scope.settle(
        Finding(ConditionType.DELETING, ConditionStatus.TRUE, Reason.DELETION_PROTECTED, message)
    )
    return Wait(Reason.DELETION_PROTECTED, message)


async def remove_machines(scope: Scope) -> Outcome:
    """Are all machine objects of this VirtualMachine gone? Each goes with a decided intent."""
    try:
        ours = await _ours(scope)
    except Unreadable as refused:
        told = Finding(
            ConditionType.DELETING,
            ConditionStatus.TRUE,
            Reason.MACHINE_KIND_FORBIDDEN,
            refused.message,
        )
        scope.settle(told)
        return Wait(Reason.MACHINE_KIND_FORBIDDEN, refused.message, _NO_RIGHTS_SECONDS)
    if not ours:
        return CONTINUE
    waits = [await _remove(scope, found) for found in ours]
    open_ones = sorted({wait for wait in waits if wait is not None})
    if not open_ones:
        return CONTINUE
    message = "; ".join(text for _, text in open_ones)
    scope.settle(Finding(ConditionType.DELETING, ConditionStatus.TRUE, open_ones[0][0], message))
    return Wait(Reason.DELETING, message)


async def _ours(scope: Scope) -> list[Found]:
    """The machines this VirtualMachine may take along, read live.

    One that was made for an earlier object of this name is not: it is released by whoever deletes
    it. Only where nothing else is known does a single one count, as it would be taken up again, and
    what its moves left with it.
    """
    listed = await scope.services.kinds.machines_of(scope.key)
    ours = [found for found in listed if teardown.refers(scope.vm, found)]
    if ours or scope.vm.status.infrastructure_ref is not None:
        return ours
    current = [it for it in listed if Machine.from_api(it.obj).spec.role is MoveRole.CURRENT]
    if len(current) > 1 or not listed:
        return []
    if current:
        scope.refer_to(current[0])
    restore_course(scope, current[0] if current else None, listed)
    await scope.write_status()
    return [found for found in listed if teardown.refers_by_status(scope.vm, found)]


async def _remove(scope: Scope, found: Found) -> tuple[str, str] | None:
    """Take the machine one step towards its end.

    Returns:
        Reason and message of what it waits for, None when it is gone.
    """
    api = scope.ctx.api
    mode = await teardown.decide(api, found)
    if mode is None:
        return Reason.PAUSED, "the VirtualMachine is paused"
    deleted = bool(found.obj["metadata"].get("deletionTimestamp"))
    if not deleted:
        what = "destroy" if mode is TeardownMode.DESTROY else "release"
        scope.ctx.recorder.event(
            scope.raw, EventReason.DELETING, f"The provider was told to {what} the machine"
        )
    found = await teardown.write_intent(api, found, mode, unhold=True)
    if not deleted:
        await teardown.delete(api, found)
        if not found.obj["metadata"].get("finalizers"):
            return None  # no provider ever took it up, and this very version is deleted
        if _without_provider(scope, found):
            scope.come_back(_SOON)  # nobody else takes the next step
    elif await teardown.release_from_gone_provider(api, found):
        return None
    return _without_provider(scope, found) or _reported(found)


def _without_provider(scope: Scope, found: Found) -> tuple[str, str] | None:
    """Nobody is there who could carry it out; the way out is the user's."""
    reference = Machine.from_api(found.obj).spec.provider_ref
    if reference is None:
        return None
    key = Key(reference.namespace, reference.name)
    if scope.services.provider(key) is not None:
        return None
    return (
        Reason.PROVIDER_NOT_FOUND,
        (
            f"Provider {key} does not exist any more; create it again, or set deletionPolicy to "
            "Orphan to leave the machine on its backend"
        ),
    )


def _reported(found: Found) -> tuple[str, str]:
    """What the provider says it waits for, in its words."""
    for condition in Machine.from_api(found.obj).status.conditions:
        if condition.type == ConditionType.DELETING and condition.message:
            return condition.reason, condition.message
    return Reason.DELETING, "waiting for the machine to go"


async def drop_finalizer(scope: Scope) -> Outcome:
    """Nothing is left: let the object go."""
    if scope.vm.status.infrastructure_ref is not None:
        reason, message = _end_of_machine(scope)
        scope.ctx.recorder.event(scope.raw, reason, message)
    await writes.drop_finalizer(
        scope.ctx.api, VIRTUAL_MACHINES, scope.raw, names.FINALIZER_VIRTUAL_MACHINE
    )
    scope.services.traces.forget(scope.key)
    scope.gone = True
    return CONTINUE


def _end_of_machine(scope: Scope) -> tuple[EventReason, str]:
    if scope.vm.spec.wanted_deletion_policy is DeletionPolicy.ORPHAN:
        return (
            EventReason.ORPHANED,
            "The machine was left on its backend, as deletionPolicy Orphan asks",
        )
    # Waiting for a machine object is always recorded; without that there was none to destroy.
    waited = any(it.type == ConditionType.DELETING for it in scope.vm.status.conditions)
    begun = scope.vm.status.initialization
    if not waited and begun is not None and begun.provisioned:
        text = (
            "The machine object was gone before; if its VM still exists it was left on the "
            "backend, and its Provider lists it in status.unclaimed"
        )
        return EventReason.ORPHANED, text
    return EventReason.DELETED, "The machine was destroyed"


DELETE_PHASES = (
    check_held,
    confirm_installation,
    check_protected,
    remove_machines,
    drop_finalizer,
)
