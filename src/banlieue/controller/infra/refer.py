"""Exactly one machine object per VirtualMachine: refer to it first, then POST exactly that one."""

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import ClassSnapshot, Machine, MoveRole, TeardownMode
from banlieue.api.meta import Resource
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.virtualmachine import Previous
from banlieue.api.v1alpha1.vmclass import VMClass
from banlieue.api.v1alpha1.vmimage import VMImage
from banlieue.api.wording import ReasonClass
from banlieue.controller.infra import adoption, blueprint, devices, naming, skew, teardown
from banlieue.controller.infra.kinds import Found, Unreadable, reference_to
from banlieue.controller.moves import wishes
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.assume import REFUSAL_SECONDS
from banlieue.controller.scheduling.placement import Decision, Demand, Place, Placed, Unplaced
from banlieue.controller.scheduling.placing import place
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.kube import AlreadyExists, Conflict, Forbidden, Invalid, Key, NotFound
from banlieue.sdk.outcome import CONTINUE, Outcome, Stop, Wait

_SLOW = 300.0
_SOON = 0.1
_KIND_MISSING = 30.0
_ABOUT_IMAGES = frozenset({Reason.IMAGE_NOT_READY, Reason.IMAGE_NOT_FOUND})


async def find_machine(scope: Scope) -> Outcome:
    """Is there a machine object already, by the status or by what it says itself?"""
    try:
        return await _find_machine(scope)
    except Unreadable as refused:
        return no_rights(scope, refused)


async def _find_machine(scope: Scope) -> Outcome:
    found = await _look_up(scope)
    if found is not None and not naming.is_own(scope.vm, found.obj):
        return conflict(
            scope,
            f"{found.kind.kind} {found.key.name} exists and was not made for this object; "
            "delete it, or delete this object and choose another name",
        )
    if found is None:
        listed = await scope.services.kinds.machines_of(scope.key)
        current = _current(scope, listed)
        found = _the_one(current)
        if scope.reference is None and (found is not None or not current):
            restore_course(scope, found, listed)
        if found is None and current:
            named = ", ".join(sorted(f"{it.kind.kind} {it.key.name}" for it in current))
            return conflict(
                scope,
                f"several machine objects were made for this object ({named}) and none of them "
                "is the current one alone; delete all but one",
            )
    if found is None:
        return CONTINUE
    if _being_replaced(scope, found):
        return await remove_refused(scope, found)
    return await _take(scope, found)


async def referenced(scope: Scope) -> None:
    """Take the machine object the status names into the scope, if it is there and ours."""
    found = await _look_up(scope)
    if found is not None and naming.is_own(scope.vm, found.obj):
        scope.take_machine(found.kind, found.obj)


async def _look_up(scope: Scope) -> Found | None:
    reference = scope.reference
    if reference is None:
        return None
    kind = scope.services.kinds.of_reference(reference)
    key = Key(reference.namespace, reference.name)
    obj = scope.ctx.cache.get(kind, key)
    if obj is None:
        try:
            obj = await scope.ctx.api.get(kind, key)
        except NotFound:
            return None
        except Forbidden as refused:
            raise Unreadable(kind) from refused
    return Found(kind, obj)


def _current(scope: Scope, listed: list[Found]) -> list[Found]:
    """Those that are not the other side of a move."""
    previous = scope.course.previous.infrastructure_ref if scope.course.previous else None
    others = (scope.course.incoming_ref, previous)
    return [
        it
        for it in listed
        if Machine.from_api(it.obj).spec.role is MoveRole.CURRENT
        and reference_to(it.kind, it.key) not in others
    ]


def _the_one(current: list[Found]) -> Found | None:
    """The one of the latest epoch; two of one epoch claim to be one."""
    latest = max((_epoch_of(it) for it in current), default=0)
    found = [it for it in current if _epoch_of(it) == latest]
    return found[0] if len(found) == 1 else None


def _epoch_of(found: Found) -> int:
    return Machine.from_api(found.obj).spec.epoch


def restore_course(scope: Scope, current: Found | None, listed: list[Found]) -> None:
    """A status that was lost knows of no move; what its machines say of it is taken over.

    So it is where the current one is not among them: that one is made again, and finds its VM.
    """
    course = scope.course
    for other in listed:
        if current and (other.key, other.kind) == (current.key, current.kind):
            continue
        role, reference = Machine.from_api(other.obj).spec.role, reference_to(other.kind, other.key)
        if role is MoveRole.INCOMING and course.incoming_ref is None:
            course.incoming_ref = reference
        elif role is not MoveRole.INCOMING and course.previous is None:
            course.previous = Previous(infrastructure_ref=reference, since=scope.ctx.clock.now())


def _being_replaced(scope: Scope, found: Found) -> bool:
    """The status says another Provider already, and nothing was ever made at this one."""
    machine, placed = Machine.from_api(found.obj), scope.vm.status.scheduled
    reference = machine.spec.provider_ref
    move = scope.course.move
    if placed is None or reference is None:
        return False
    elsewhere = (placed.provider_namespace, placed.provider_name) != (
        reference.namespace,
        reference.name,
    )
    if elsewhere and move is not None and move.rebind and scope.course.incoming_ref is None:
        return True  # the machine itself was found there
    if machine.spec.provider_id is not None:
        return False
    leaving = machine.metadata.deletion_timestamp is not None
    return elsewhere and (leaving or teardown.redoable(machine) or adoption.untaken(machine))


async def remove_refused(scope: Scope, found: Found) -> Outcome:
    """Let go of a machine that was refused and never made; the next one is POSTed when it is gone.

    Raises:
        Conflict: the object changed, perhaps because it was made after all.
    """
    found = await teardown.write_intent(scope.ctx.api, found, TeardownMode.RELEASE, unhold=True)
    if not found.obj["metadata"].get("deletionTimestamp"):
        await teardown.delete(scope.ctx.api, found)
    elif await teardown.release_from_gone_provider(scope.ctx.api, found):
        scope.come_back(_SOON)
    if scope.course.move is not None:
        return Wait(Reason.MIGRATING, "the machine is taken up where it was moved to")
    return Wait(Reason.CREATING, "the backend refused it, it is being placed anew")


async def _take(scope: Scope, found: Found) -> Outcome:
    """Go on with this object; the status follows what the object says about its place."""
    before = scope.reference
    scope.refer_to(found)
    if scope.reference != before:
        await scope.write_status()
    return CONTINUE


async def make_machine(scope: Scope) -> Outcome:
    """There is no machine object: choose a place, refer to the object, POST it."""
    if scope.machine is not None:
        return CONTINUE
    problem = _unresolved(scope)
    if problem is not None:
        return problem
    if scope.vm.spec.adopt is not None:
        wanted = adoption.demand(scope)
        unplaced = await _decided(scope, adoption.choose(scope, wanted), wanted)
    elif scope.vm_class is not None and scope.image is not None:
        unplaced = await _choose(scope, scope.vm_class, scope.image)
    else:
        return CONTINUE
    return unplaced or await _refer_and_post(scope)


def _unresolved(scope: Scope) -> Outcome | None:
    """What of the spec names nothing, or nothing that a machine can be made from."""
    spec, vm_class = scope.vm.spec, scope.vm_class
    if spec.adopt is not None and spec.class_ref is None:
        return None
    if vm_class is None:
        name = spec.class_ref.name if spec.class_ref else ""
        return _unscheduled(
            scope,
            Reason.CLASS_NOT_FOUND,
            f"VMClass {name} does not exist; create it or correct spec.classRef",
        )
    if scope.image is None and spec.adopt is None:
        name = spec.image_ref.name if spec.image_ref else ""
        message = (
            f"VMImage {name} does not exist; create it, or delete this object and make it anew "
            "with another spec.imageRef"
        )
        scope.settle(false(ConditionType.IMAGE_READY, Reason.IMAGE_NOT_FOUND, message))
        return _unscheduled(scope, Reason.IMAGE_NOT_FOUND, message)
    problem = devices.problem(vm_class.spec, spec)
    if problem:
        return _unscheduled(scope, Reason.INVALID_CONFIGURATION, problem)
    return None


def _unscheduled(
    scope: Scope, reason: Reason, message: str, *, lasting: bool = False, after: float | None = None
) -> Outcome:
    """Not placed: said on Scheduled, remembered so that the change it waits for wakes it."""
    scope.wait_for_others()
    scope.settle(false(ConditionType.SCHEDULED, reason, message))
    if reason in _ABOUT_IMAGES:
        scope.settle(false(ConditionType.IMAGE_READY, reason, message))
    if lasting or reason.kind is ReasonClass.SPEC:
        return Stop(reason, message)
    return Wait(reason, message, after)


async def _choose(scope: Scope, vm_class: VMClass, image: VMImage) -> Outcome | None:
    """Decide the place, one VirtualMachine at a time; None when it is decided."""
    services, standing = scope.services, scope.standing
    if standing is None:
        raise LookupError("a place needs a known installation")
    wanted = facts.demand(scope.vm, vm_class, image, installation_id=standing.id)
    async with services.ledger.turn:
        decision = place(
            wanted,
            services.sites(image, scope.key.namespace),
            services.everybody(standing.id),
            before=scope.place,
            recovery=standing.recovery,
            refused=services.ledger.refusals(wanted),
            traces=services.traces.claims(scope.key, wanted.digest, services.tells),
        )
        decision = _if_understood(scope, decision)
        if isinstance(decision, Placed):
            services.ledger.promise(facts.promised(wanted, decision.place))
        else:
            services.ledger.miss(wanted, decision)
    return await _decided(scope, decision, wanted)


def _if_understood(scope: Scope, decision: Decision) -> Decision:
    """First-boot data counts once: no VM is made where the process would read past some of it."""
    begun = scope.vm.status.initialization
    if not isinstance(decision, Placed) or (begun is not None and begun.provisioned):
        return decision
    provider = scope.services.provider(decision.place.provider)
    plan = blueprint.Plan(
        vm=scope.vm,
        place=decision.place,
        snapshot=_snapshot(scope),
        image=scope.image,
        provider=provider,
    )
    lacking = skew.missing_at_birth(blueprint.machine_spec(plan), provider)
    if provider is None or not lacking:
        return decision
    return Unplaced(Reason.UNSUPPORTED_BY_PROVIDER, skew.told(lacking, provider))


async def _decided(scope: Scope, decision: Decision, wanted: Demand) -> Outcome | None:
    scope.services.refused.note(wanted, decision)
    if isinstance(decision, Unplaced):
        scope.ctx.recorder.event(
            scope.raw, EventReason.SCHEDULING_FAILED, decision.message, warning=True
        )
        after = REFUSAL_SECONDS if scope.services.ledger.refusals(wanted) else None
        return _unscheduled(
            scope, decision.reason, decision.message, lasting=decision.lasting, after=after
        )
    kind = scope.services.kind_at(decision.place.provider)
    if kind is None:
        scope.services.ledger.withdraw(scope.key)
        return _unscheduled(
            scope,
            Reason.PROVIDER_CLASS_NOT_FOUND,
            "the class of the Provider it belongs to does not exist; create that ProviderClass",
        )
    scope.epoch = decision.epoch
    if scope.reference is None or _is_of_another_kind(scope, decision.place, kind):
        name = await naming.name_at(scope, kind, decision)
        scope.reference = reference_to(kind, Key(scope.key.namespace, name))
    else:
        scope.epoch = max(scope.epoch, naming.named_epoch(scope.vm, scope.reference.name))
        kind = scope.services.kinds.of_reference(scope.reference)
    scope.kind = kind
    if scope.place != decision.place or scope.scheduled is None:
        _hold_back(scope, decision)
        scope.record(decision.place, _snapshot(scope))
    return None


def _hold_back(scope: Scope, decision: Placed) -> None:
    """A machine that is found where its status did not know it to be stays there."""
    before, course, there = scope.place, scope.course, decision.place.provider
    known = before is not None and before.provider == there
    if not known and course.move is None and scope.vm.spec.adopt is None:
        course.move = wishes.held_back(scope.vm, there, decision.epoch)


def _is_of_another_kind(scope: Scope, there: Place, kind: Resource) -> bool:
    """Whether the object the status names could not stand for the VM where it was found.

    So it is after a restore from before a move to another kind of backend. A Provider whose class
    was changed to another backend still serves the kind it did.
    """
    reference, before = scope.reference, scope.place
    if reference is None or (before is not None and before.provider == there.provider):
        return False
    return (reference.api_group, reference.kind) != (kind.group, kind.kind)


def _snapshot(scope: Scope) -> ClassSnapshot | None:
    """The class of a machine that is made; what is adopted may have none."""
    vm_class = scope.vm_class
    return blueprint.remembered_snapshot(scope.vm, vm_class) if vm_class else None


async def _refer_and_post(scope: Scope) -> Outcome:
    newly = scope.vm.status.infrastructure_ref is None
    try:
        await scope.write_status()
    except Conflict:
        scope.services.ledger.withdraw(scope.key)
        raise
    if newly and scope.scheduled is not None:
        domain, provider = scope.scheduled.failure_domain, scope.scheduled.provider_name
        placed = f"Placed in failure domain {domain} of Provider {provider}"
        looked_for = f"The machine to adopt is looked for on Provider {provider}"
        scope.ctx.recorder.event(scope.raw, EventReason.SCHEDULED, placed if domain else looked_for)
    return await _post(scope)


async def _post(scope: Scope) -> Outcome:
    """POST exactly the object the status names; one that is there already is looked at, not hit."""
    where, kind, reference = scope.place, scope.kind, scope.reference
    if where is None or kind is None or reference is None:
        raise LookupError("a machine is POSTed only where the status refers to it")
    plan = blueprint.Plan(
        vm=scope.vm,
        place=where,
        snapshot=_snapshot(scope),
        image=scope.image,
        provider=scope.services.provider(where.provider),
        epoch=scope.epoch,
        power=scope.power,
    )
    body = blueprint.machine_object(plan, kind, name=reference.name)
    skew.withheld_at_birth(body["spec"], plan.provider)
    try:
        made = await scope.ctx.api.create(kind, body, manager=names.MANAGER_CONTROLLER)
    except AlreadyExists:
        return await find_machine(scope)
    except NotFound:
        return _infrastructure(
            scope,
            Wait(
                Reason.KIND_NOT_INSTALLED,
                f"kind {kind.kind} is not installed; apply the backend's CRDs",
                _KIND_MISSING,
            ),
        )
    except Forbidden:  # by a quota or a policy, perhaps: then the next pass tries again
        if not await scope.services.kinds.is_refused(kind):
            raise
        return no_rights(scope, Unreadable(kind))
    except Invalid as refused:
        return _infrastructure(scope, Stop(Reason.INVALID_CONFIGURATION, refused.message))
    scope.take_machine(kind, made)
    return CONTINUE


def no_rights(scope: Scope, refused: Unreadable) -> Outcome:
    """Its machine may be of a kind we have no rights on: making another would be a second one."""
    reason, message = Reason.MACHINE_KIND_FORBIDDEN, refused.message
    if scope.scheduled is None:
        return _unscheduled(scope, reason, message, after=_KIND_MISSING)
    return _infrastructure(scope, Wait(reason, message, _KIND_MISSING))


def _infrastructure(scope: Scope, outcome: Wait | Stop) -> Outcome:
    scope.settle(false(ConditionType.INFRASTRUCTURE_READY, outcome.reason, outcome.message))
    return outcome


def conflict(scope: Scope, message: str) -> Outcome:
    """Two claim to be one, or one is somebody else's: touch nothing until a person decided."""
    scope.settle(false(ConditionType.INFRASTRUCTURE_READY, Reason.OWNERSHIP_CONFLICT, message))
    scope.ctx.recorder.event(scope.raw, EventReason.OWNERSHIP_CONFLICT, message, warning=True)
    return Wait(Reason.OWNERSHIP_CONFLICT, message, _SLOW)
