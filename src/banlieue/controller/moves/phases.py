"""Moves, as phases of a VirtualMachine: begin one, go on with it, tend what one left behind."""

from datetime import datetime

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import ConditionStatus, KindRef
from banlieue.api.reasons import Reason
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine import MoveStatus
from banlieue.api.wording import ReasonClass
from banlieue.controller.infra import naming
from banlieue.controller.infra.adoption import untaken
from banlieue.controller.infra.kinds import Found
from banlieue.controller.moves import course, steps, wishes
from banlieue.controller.moves.begin import begin
from banlieue.controller.moves.previous import tend_previous
from banlieue.controller.moves.situation import Next, Step
from banlieue.controller.moves.trip import Trip
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import Finding, false, true
from banlieue.sdk.kube import Conflict, Key, NotFound
from banlieue.sdk.outcome import CONTINUE, Outcome

_MOST_STEPS = 12
_SOON = 1.0

_REASONS = {reason.value: reason for reason in Reason}


async def gather(scope: Scope) -> Outcome:
    """Must a machine object that is made again not be started, as another has its addresses?"""
    record = scope.course.move
    if scope.course.incoming_ref is not None and record is not None:
        rebinds = record.rebind and wishes.has_fixed_addresses(scope.vm)
        if record.switched_at is not None or rebinds:
            scope.power = PowerState.POWERED_OFF
    return CONTINUE


async def move(scope: Scope) -> Outcome:
    """Does the machine have to move, and if so, what is the next step?"""
    machine, where = scope.machine, scope.place
    if machine is None or where is None or machine.metadata.deletion_timestamp is not None:
        return CONTINUE
    if untaken(machine):
        return CONTINUE  # there is nothing to move yet
    await tend_previous(scope)
    if scope.course.incoming_ref is not None:
        await _go_on(scope)
        if scope.course.incoming_ref is not None:
            return CONTINUE
    await begin(scope, _wish(scope))
    if scope.course.incoming_ref is not None:
        await _go_on(scope)
    return CONTINUE


def _wish(scope: Scope) -> wishes.Wish | None:
    where, found = scope.place, scope.found.get(ConditionType.PLACEMENT_VALID)
    if where is None:
        return None
    misplaced = found is not None and found.status is ConditionStatus.FALSE
    return wishes.wish_of(scope.vm, where.provider, misplaced=misplaced)


async def _go_on(scope: Scope) -> None:
    await _confirm_live(scope)
    incoming = await _look_up(scope, scope.course.incoming_ref)
    record = scope.course.move or _recorded(incoming)
    if record is None or (incoming is not None and not naming.is_own(scope.vm, incoming.obj)):
        scope.course.incoming_ref = scope.course.move = None
        return
    scope.course.move = record
    trip = Trip(scope, record, wishes.still_wanted(_wish(scope), record), incoming)
    step = await _walk(trip)
    if scope.course.incoming_ref is None:
        scope.power = None
        return
    scope.power = course.current_power(trip.situation())
    _tell(trip, step)


async def _walk(trip: Trip) -> Next:
    """Take steps until somebody else has to act."""
    step = Next(Step.AWAIT)
    for _ in range(_MOST_STEPS):
        await steps.follow(trip)
        step = course.next_step(trip.situation())
        trip.stuck = ""
        await steps.take(step.step, trip)
        done = trip.scope.course.incoming_ref is None
        if step.step is Step.AWAIT or trip.stuck or done:
            return step
    trip.scope.come_back(_SOON)
    return step


async def _confirm_live(scope: Scope) -> None:
    """Go on only from what is there now: each of the objects may have been decided upon since.

    Raises:
        Conflict: the VirtualMachine changed.
    """
    live = await scope.ctx.api.get(VIRTUAL_MACHINES, scope.key)
    if live["metadata"]["resourceVersion"] != scope.raw["metadata"]["resourceVersion"]:
        raise Conflict(409, "Conflict", "the VirtualMachine changed while it was looked at")
    current = await _look_up(scope, scope.reference)
    if current is None or not naming.is_own(scope.vm, current.obj):
        raise Conflict(409, "Conflict", "the machine object changed while it was looked at")
    scope.take_machine(current.kind, current.obj)


async def _look_up(scope: Scope, reference: KindRef | None) -> Found | None:
    """A machine object, read live."""
    if reference is None:
        return None
    kind = scope.services.kinds.of_reference(reference)
    try:
        obj = await scope.ctx.api.get(kind, Key(reference.namespace, reference.name))
    except NotFound:
        return None
    return Found(kind, obj)


def _recorded(incoming: Found | None) -> MoveStatus | None:
    """The record of a move whose status was lost, from its machine object."""
    machine = Machine.from_api(incoming.obj) if incoming else None
    if machine is None or machine.spec.provider_ref is None:
        return None
    reference, placement = machine.spec.provider_ref, machine.spec.placement
    return MoveStatus(
        provider_name=reference.name,
        provider_namespace=reference.namespace,
        failure_domain=placement.failure_domain if placement else None,
        epoch=machine.spec.epoch,
    )


def _tell(trip: Trip, step: Next) -> None:
    """Say where the move stands, and when to look again if nobody tells before."""
    scope, now = trip.scope, trip.scope.ctx.clock.now()
    target = wishes.target_of(trip.record)
    waits_for = trip.stuck or step.waits_for
    _come_back(scope, step.until, now)
    scope.settle(_migrating(trip, step, waits_for, late=_is_late(step, now)))
    scope.settle(
        false(
            ConditionType.PLACEMENT_VALID,
            Reason.PROVIDER_CHANGED,
            f"the machine is being moved to Provider {target}"
            if not trip.situation().undone
            else f"the machine stays where it is; what was begun on Provider {target} is undone",
        )
    )
    if scope.power is PowerState.POWERED_OFF and trip.power is not PowerState.POWERED_OFF:
        message = f"the machine is stopped for its move to Provider {target}: {waits_for}"
        scope.settle(false(ConditionType.INFRASTRUCTURE_READY, Reason.MIGRATING, message))


def _come_back(scope: Scope, until: datetime | None, now: datetime) -> None:
    if until is not None and until > now:
        scope.come_back((until - now).total_seconds() + _SOON)


def _is_late(step: Next, now: datetime) -> bool:
    return step.until is not None and now >= step.until


def _migrating(trip: Trip, step: Next, waits_for: str, *, late: bool) -> Finding:
    target = wishes.target_of(trip.record)
    kind = ConditionType.MIGRATING
    if trip.record.failure is not None:
        message = f"the move to Provider {target} failed and is being undone: {trip.record.failure}"
        return false(kind, Reason.MIGRATION_FAILED, message)
    if trip.situation().undone:
        return true(kind, Reason.MIGRATING, f"the move to Provider {target} is being given up")
    said, human = _said_of(trip.machine)
    told = f"{waits_for}{f' ({said})' if said else ''}"
    switching = trip.record.switched_at is not None
    if (late or human) and not switching and step.step is Step.AWAIT:
        message = (
            f"the new machine on Provider {target} does not become Ready, and the old one goes on: "
            f"{told}; correct that, or set providerRef back to give up the move"
        )
        return false(kind, Reason.MIGRATION_FAILED, message)
    return true(kind, Reason.MIGRATING, f"moving to Provider {target}: {told or 'it goes on'}")


def _said_of(incoming: Machine | None) -> tuple[str, bool]:
    """What its provider says of the machine to come, and whether a person has to act."""
    for condition in incoming.status.conditions if incoming else ():
        if condition.type == ConditionType.READY and condition.status is not ConditionStatus.TRUE:
            reason = _REASONS.get(condition.reason)
            human = reason is not None and reason.kind in {ReasonClass.SPEC, ReasonClass.CONFLICT}
            return f"{condition.reason}: {condition.message}", human
    return "", False
