"""Takes one step of a move. Which one, and whether any, is decided by `moves`.

Every write carries a version test of the object it changes, and what is decided upon was read live.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import ClassSnapshot, Machine, Move, MoveRole, TeardownMode
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.api.v1alpha1.virtualmachine import MoveStatus, Previous
from banlieue.controller.infra import blueprint, devices, naming, skew, teardown
from banlieue.controller.infra.kinds import Found
from banlieue.controller.moves import course, wishes
from banlieue.controller.moves.situation import Step
from banlieue.controller.moves.trip import Trip
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.assume import REFUSAL_SECONDS
from banlieue.controller.scheduling.placement import Placed
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.controller.vm.follow import incoming_changes, wanted_interfaces
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.kube import AlreadyExists, Invalid, Key, NotFound, Obj

_OFF = PowerState.POWERED_OFF


async def take(step: Step, trip: Trip) -> None:
    """Take a step.

    Raises:
        Conflict: something it was decided upon changed; decide again.
    """
    await _STEPS[step](trip)


async def follow(trip: Trip) -> None:
    """Let the machine to come follow what the user changes meanwhile."""
    machine, found = trip.machine, trip.incoming
    if machine is None or found is None or machine.metadata.deletion_timestamp is not None:
        return
    placement = machine.spec.placement
    if placement is not None and placement.failure_domain != trip.record.failure_domain:
        trip.note(failure_domain=placement.failure_domain)
    if machine.spec.role is MoveRole.PREVIOUS or trip.situation().undone:
        return
    ops = incoming_changes(trip.scope, machine, found.obj)
    power = course.incoming_power(trip.situation())
    if trip.fresh and machine.spec.wanted_power_state is not power:
        ops.append(_power(power))
    if ops:
        await trip.patch(*ops)


def _move(epoch: int, role: MoveRole) -> dict[str, Any]:
    value = Move(epoch=epoch, role=role).to_api()
    return {"op": "add", "path": "/spec/move", "value": value}


def _power(state: PowerState) -> dict[str, Any]:
    return {"op": "add", "path": "/spec/powerState", "value": state.value}


def _nics(trip: Trip, *, plugged: bool) -> list[dict[str, Any]]:
    machine = trip.machine
    if machine is None:
        return []
    value = wanted_interfaces(trip.scope, machine, plugged=plugged)
    if value:
        return [{"op": "add", "path": "/spec/networkInterfaces", "value": value}]
    present = bool(machine.spec.network_interfaces)
    return [{"op": "remove", "path": "/spec/networkInterfaces"}] if present else []


def _incoming(trip: Trip) -> Machine:
    machine = trip.machine
    if machine is None:
        raise LookupError("the step needs the machine to come")
    return machine


async def _post(trip: Trip) -> None:
    """Make the object; one that is there already is looked at, not hit."""
    scope, reference = trip.scope, trip.scope.course.incoming_ref
    snapshot = _snapshot(scope)
    if reference is None or snapshot is None:
        trip.stuck = "its VMClass does not exist; create it again"
        return
    if _refused_before(trip):
        await _forget(trip)
        return
    kind = scope.services.kinds.of_reference(reference)
    body = _body(trip, snapshot, reference.name)
    body |= {"apiVersion": kind.api_version, "kind": kind.kind}
    try:
        made = await scope.ctx.api.create(kind, body, manager=names.MANAGER_CONTROLLER)
    except AlreadyExists:
        made = await scope.ctx.api.get(kind, Key(reference.namespace, reference.name))
        if not naming.is_own(scope.vm, made):
            await _forget(trip)
            return
    except NotFound:
        trip.stuck = f"kind {kind.kind} is not installed; apply the backend's CRDs"
        return
    except Invalid as refused:
        trip.note(failure=f"its machine object was refused: {refused.message}")
        await _forget(trip)
        return
    trip.incoming = Found(kind, made)


def _snapshot(scope: Scope) -> ClassSnapshot | None:
    if scope.machine is not None and scope.machine.spec.class_ is not None:
        return scope.machine.spec.class_
    return blueprint.remembered_snapshot(scope.vm, scope.vm_class) if scope.vm_class else None


def _body(trip: Trip, snapshot: ClassSnapshot, name: str) -> Obj:
    """A machine object off the network wherever the old one may have its addresses."""
    scope, situation = trip.scope, trip.situation()
    closed = situation.undone or (situation.fixed and not trip.record.rebind)
    off = situation.undone or (closed and course.incoming_power(situation) is _OFF)
    plan = blueprint.Plan(
        vm=scope.vm,
        place=trip.place,
        snapshot=snapshot,
        image=scope.image,
        provider=scope.services.provider(trip.place.provider),
        epoch=trip.record.epoch,
        role=MoveRole.CURRENT if trip.record.rebind else MoveRole.INCOMING,
        power=_OFF if off else None,
    )
    kind = scope.services.kinds.of_reference(scope.course.incoming_ref or _no_reference())
    body = blueprint.machine_object(plan, kind, name=name)
    skew.withheld_at_birth(body["spec"], plan.provider)
    if closed:
        own = devices.machine_interfaces(scope.vm.spec.network_interfaces)
        nics = devices.plugged(own, snapshot, plugged=False)
        body["spec"]["networkInterfaces"] = [nic.to_api() for nic in nics]
    return body


def _no_reference() -> Any:  # noqa: ANN401 - never returns
    raise LookupError("a machine is POSTed only where the status refers to it")


def _refused_before(trip: Trip) -> bool:
    demand = demand_of(trip.scope)
    if demand is None or trip.wanted is False or trip.record.rebind:
        return False
    return trip.place in trip.scope.services.ledger.refusals(demand)


def demand_of(scope: Scope) -> Any:  # noqa: ANN401 - a Demand or None
    """What the machine needs of a place; None where its class or image is not there."""
    standing, vm_class, image = scope.standing, scope.vm_class, scope.image
    if standing is None or vm_class is None or image is None:
        return None
    return facts.demand(scope.vm, vm_class, image, installation_id=standing.id)


async def _replace(trip: Trip) -> None:
    """The backend refused it: another failure domain, or another Provider if any will do."""
    scope, demand, machine = trip.scope, demand_of(trip.scope), _incoming(trip)
    if demand is None:
        trip.stuck = "its VMClass or VMImage does not exist; create it again"
        return
    refused, ledger = machine.status.create_refused, scope.services.ledger
    async with ledger.turn:
        ledger.refuse(demand, trip.place, refused.reason if refused else "")
        decision = schedule(
            demand,
            scope.services.sites(scope.image, scope.key.namespace),
            ledger.residents(),
            refused=ledger.refusals(demand),
        )
    if not isinstance(decision, Placed):
        scope.wait_for_others()
        scope.come_back(REFUSAL_SECONDS)
        trip.stuck = decision.message
    elif decision.place.provider == trip.place.provider:
        value = {"failureDomain": decision.place.domain}
        await trip.patch({"op": "add", "path": "/spec/placement", "value": value})
        trip.note(failure_domain=decision.place.domain)
    else:
        await _remove(trip)


async def _take_back(trip: Trip) -> None:
    if trip.record.rebind:  # its VM is the current one already, and its object did not know
        await trip.patch(_move(trip.record.epoch, MoveRole.CURRENT), _power(trip.power))
        return
    closed = trip.situation().fixed
    await trip.patch(
        _move(trip.record.epoch, MoveRole.INCOMING), _power(_OFF if closed else trip.power)
    )


async def _close(trip: Trip) -> None:
    await trip.patch(*(_nics(trip, plugged=False) if trip.fresh else [_power(_OFF)]))


async def _switch(trip: Trip) -> None:
    # Kept from here on: the guests have these addresses, whatever becomes of the spec.
    trip.note(switched_at=trip.scope.ctx.clock.now(), fixed_addresses=True)
    await trip.scope.write_status()


async def _open(trip: Trip) -> None:
    ops = _nics(trip, plugged=True)
    await trip.patch(*(ops if trip.fresh else [*ops, _power(trip.power)]))


async def _commit(trip: Trip) -> None:
    await trip.patch(_move(_incoming(trip).spec.epoch, MoveRole.CURRENT))


async def _leave(trip: Trip) -> None:
    current = trip.scope.machine
    if current is not None:
        await trip.patch_current(_move(current.spec.epoch, MoveRole.PREVIOUS), _power(_OFF))


async def _finish(trip: Trip) -> None:
    """One status write: from here on it is the machine, and the other one is what is left."""
    scope, course, found = trip.scope, trip.scope.course, trip.incoming
    if found is None:
        raise LookupError("a move ends with the machine that came")
    old, reference = scope.machine, scope.reference
    if old is not None and reference is not None and old.spec.instance is not None:
        course.previous = _left_behind(trip, Previous(infrastructure_ref=reference))
    course.incoming_ref = None
    course.move = _hold_back(trip)
    scope.refer_to(found)
    for kind in (ConditionType.PLACEMENT_VALID, ConditionType.INFRASTRUCTURE_READY):
        scope.found.pop(kind, None)  # said of the other one
    await scope.write_status()


def _hold_back(trip: Trip) -> MoveStatus | None:
    """A pin from before a restore does not undo a move that was made after it was saved."""
    record = trip.record
    if not record.rebind:
        return None
    return wishes.held_back(trip.scope.vm, wishes.target_of(record), record.epoch)


def _left_behind(trip: Trip, previous: Previous) -> Previous:
    since = trip.scope.ctx.clock.now()
    fixed = True if trip.record.fixed_addresses else None
    fresh = previous.model_copy(update={"since": since, "fixed_addresses": fixed})
    until = wishes.kept_until(trip.scope.vm, fresh)
    return fresh.model_copy(update={"until": until})


async def _fail(trip: Trip) -> None:
    waited = course.next_step(trip.situation()).waits_for
    trip.note(failure=f"it was begun and took too long, as {waited}")
    await trip.scope.write_status()


async def _give_up(trip: Trip) -> None:
    trip.note(given_up=True)
    await trip.scope.write_status()


async def _fence(trip: Trip) -> None:
    """At once where the machine is to be destroyed; one that holds data is shut down as always."""
    at_once = {"op": "add", "path": "/spec/powerOffMode", "value": PowerOffMode.HARD.value}
    more = [*_nics(trip, plugged=False), at_once] if trip.fresh else []
    await trip.patch(*more, _power(_OFF))


async def _turn_on(trip: Trip) -> None:
    await trip.patch_current(_power(trip.power))


async def _overtake(trip: Trip) -> None:
    await trip.patch_current(_move(_incoming(trip).spec.epoch + 1, MoveRole.CURRENT))


async def _step_back(trip: Trip) -> None:
    await trip.patch(_move(_incoming(trip).spec.epoch, MoveRole.PREVIOUS), _power(_OFF))


async def _retain(trip: Trip) -> None:
    course = trip.scope.course
    if course.incoming_ref is not None:
        course.previous = _left_behind(trip, Previous(infrastructure_ref=course.incoming_ref))
    await _forget(trip)


async def _remove(trip: Trip) -> None:
    """Destroy a machine that nobody used. It never was the current one, by its object or mark."""
    machine, found = _incoming(trip), trip.incoming
    if found is None or machine.spec.role is not MoveRole.INCOMING or not trip.fresh:
        raise LookupError("only a machine that was made for a move is destroyed with it")
    api = trip.scope.ctx.api
    found = await teardown.write_intent(api, found, TeardownMode.DESTROY, unhold=True)
    if not found.obj["metadata"].get("deletionTimestamp"):
        await teardown.delete(api, found)
    await _read_again(trip, found)


async def _let_go(trip: Trip) -> None:
    """Somebody deleted the object: what it stands for is left alone, and found again."""
    found, api = trip.incoming, trip.scope.ctx.api
    if found is None:
        return
    found = await teardown.write_intent(api, found, TeardownMode.RELEASE, unhold=True)
    await teardown.release_from_gone_provider(api, found)
    await _read_again(trip, found)
    if trip.incoming is not None:
        trip.stuck = "its machine object is being deleted, and is made again"


async def _read_again(trip: Trip, found: Found) -> None:
    try:
        obj = await trip.scope.ctx.api.get(found.kind, found.key)
    except NotFound:
        trip.incoming = None
    else:
        trip.incoming = Found(found.kind, obj)


async def _forget(trip: Trip) -> None:
    """The status names no machine to come any more; a failure is remembered."""
    if not trip.fresh and trip.wanted and trip.record.failure is None and trip.incoming is None:
        trip.note(
            failure="the object of the machine that was to come back is gone; the machine itself "
            "was left on its backend"
        )
    course = trip.scope.course
    course.incoming_ref = None
    course.move = _over(trip.record) if trip.record.failure is not None else None
    await trip.scope.write_status()


def _over(record: MoveStatus) -> MoveStatus:
    over = {"switched_at": None, "rebind": None, "given_up": None, "fixed_addresses": None}
    return record.model_copy(update=over)


async def _await(trip: Trip) -> None:
    """Nothing to do but to let go of what no provider will ever see again."""
    machine = trip.machine
    leaving = machine is not None and machine.metadata.deletion_timestamp is not None
    if leaving and trip.scope.services.provider(trip.place.provider) is None:
        await _let_go(trip)


_STEPS: dict[Step, Callable[[Trip], Awaitable[None]]] = {
    Step.AWAIT: _await,
    Step.POST: _post,
    Step.REPLACE: _replace,
    Step.TAKE_BACK: _take_back,
    Step.CLOSE: _close,
    Step.SWITCH: _switch,
    Step.OPEN: _open,
    Step.COMMIT: _commit,
    Step.LEAVE: _leave,
    Step.FINISH: _finish,
    Step.FAIL: _fail,
    Step.GIVE_UP: _give_up,
    Step.FENCE: _fence,
    Step.TURN_ON: _turn_on,
    Step.OVERTAKE: _overtake,
    Step.STEP_BACK: _step_back,
    Step.RETAIN: _retain,
    Step.REMOVE: _remove,
    Step.LET_GO: _let_go,
    Step.FORGET: _forget,
}
