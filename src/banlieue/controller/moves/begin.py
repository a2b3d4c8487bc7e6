"""Begins moves: chooses the place, refers to the machine to come. Or says what holds a move."""

from collections.abc import Sequence
from dataclasses import replace

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Machine, Move, MoveRole, TeardownMode
from banlieue.api.meta import KindRef
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.virtualmachine import MoveStatus, Previous
from banlieue.controller import writes
from banlieue.controller.infra import blueprint, naming, skew, teardown
from banlieue.controller.infra.kinds import Found, reference_to
from banlieue.controller.moves import wishes
from banlieue.controller.moves.previous import consume
from banlieue.controller.moves.steps import demand_of
from banlieue.controller.moves.wishes import Hit, Hold, Wish
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.placement import Claim, Demand, Place, Placed, Site
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.features import MOVE
from banlieue.sdk.kube import Conflict, Key, NotFound

Claims = Sequence[tuple[Key, Claim]]
"""VMs of the machine's owner that no machine object claims, by Provider."""


async def begin(scope: Scope, wish: Wish | None) -> None:
    """Refer to a machine to come, if there is to be one; afterwards the status names it."""
    machine = scope.machine
    if machine is None or scope.standing is None:
        return
    claims = _heard(scope, machine, facts.owner_digest(scope.standing.id, scope.key))
    if await _brought_up_to_date(scope, machine, wishes.superseding(machine, claims)):
        return
    _settle_record(scope, wish)
    if wish is None:
        return
    hold = _held(scope, machine, wish)
    if hold is None:
        hold = await _start(scope, machine, wish, claims)
    if hold is not None:
        _say(scope, wish, hold)


def _heard(scope: Scope, machine: Machine, digest: str) -> Claims:
    """What Providers tell that the machine is on, or that its namespace may use.

    Who runs a namespace may have a Provider in it, and any marks he likes on its backend: by those
    no machine of others is moved, nor stopped.
    """
    told, reference = scope.services.claims(digest), machine.spec.provider_ref
    own = Key(reference.namespace, reference.name) if reference else None
    heard = [it for it in told if it[0] == own or _is_offered(scope, it[0])]
    strangers = wishes.superseding(machine, [it for it in told if it not in heard])
    if strangers:
        named = ", ".join(sorted({str(hit.provider) for hit in strangers}))
        message = (
            f"Provider {named} tells of a later machine of this owner, and is not offered to this "
            "namespace, so nothing is done about it; have its admin offer it, or take that away"
        )
        scope.ctx.recorder.event(scope.raw, EventReason.OWNERSHIP_CONFLICT, message, warning=True)
    return heard


def _is_offered(scope: Scope, provider: Key) -> bool:
    site = scope.services.site(provider, scope.image, scope.key.namespace)
    return site is not None and site.allowed


def _settle_record(scope: Scope, wish: Wish | None) -> None:
    """What is recorded of a move that ended is forgotten, a failure when it is not asked for."""
    record = scope.course.move
    if record is not None and (record.failure is None or not wishes.still_wanted(wish, record)):
        scope.course.move = None


def _say(scope: Scope, wish: Wish, hold: Hold) -> None:
    """A move that waits is told where the placement is; one that failed on its own, too."""
    scope.wait_for_others()
    if hold.reason is Reason.MIGRATION_FAILED:
        scope.settle(false(ConditionType.MIGRATING, hold.reason, hold.message))
    before = scope.found.get(ConditionType.PLACEMENT_VALID)
    if wish.provider is None and before is not None:
        message = f"{before.message}; it is not built anew elsewhere: {hold.message}"
        scope.settle(replace(before, message=message))
        return
    scope.settle(false(ConditionType.PLACEMENT_VALID, hold.reason, hold.message))


async def _brought_up_to_date(scope: Scope, machine: Machine, later: list[Hit]) -> bool:
    """Did the machine go through later moves than its object knows of, as after a restore?

    Then the object gets the epoch its VM has, or the VM that came after it is taken up.
    """
    told = machine.status.move
    if told is not None and told.role is MoveRole.CURRENT and told.epoch > machine.spec.epoch:
        await _write_epoch(scope, told.epoch)
        return True
    if await _left_behind_is_later(scope, machine, later):
        return True
    if not later:
        return False
    if len(later) > 1:
        named = ", ".join(str(hit.provider) for hit in later)
        message = (
            f"the machine was moved to several Providers at once ({named}); remove all but one "
            "there, nothing is made or changed until then"
        )
        scope.settle(false(ConditionType.INFRASTRUCTURE_READY, Reason.OWNERSHIP_CONFLICT, message))
        return True
    (hit,) = later
    reference = machine.spec.provider_ref
    at_home = reference is not None and hit.provider == Key(reference.namespace, reference.name)
    if at_home and machine.spec.instance is None:
        await _write_epoch(scope, hit.epoch)
        return True
    await _refer(scope, Place(hit.provider, _any_domain(scope, hit)), hit.epoch, rebind=True)
    return True


async def _left_behind_is_later(scope: Scope, machine: Machine, later: list[Hit]) -> bool:
    """Was the move rolled back since the objects were saved? Then what they call left is it."""
    previous = scope.course.previous
    if previous is None:
        return False
    reference = previous.infrastructure_ref
    kind = scope.services.kinds.of_reference(reference)
    try:
        obj = await scope.ctx.api.get(kind, Key(reference.namespace, reference.name))
    except NotFound:
        return False
    left = Machine.from_api(obj)
    told, home, placement = left.status.move, left.spec.provider_ref, left.spec.placement
    if told is None or home is None or told.role is not MoveRole.CURRENT:
        return False
    if told.epoch <= max([machine.spec.epoch, *(hit.epoch for hit in later)]):
        return False
    scope.course.previous = None
    place = Place(Key(home.namespace, home.name), placement.failure_domain if placement else "")
    await _refer(scope, place, told.epoch, reference=reference, rebind=True)
    return True


async def _write_epoch(scope: Scope, epoch: int) -> None:
    kind, raw = scope.kind, scope.machine_raw
    if kind is None or raw is None:
        return
    value = Move(epoch=epoch, role=MoveRole.CURRENT).to_api()
    ops: writes.Ops = [{"op": "add", "path": "/spec/move", "value": value}]
    scope.take_machine(kind, await writes.patch(scope.ctx.api, kind, raw, ops))


def _any_domain(scope: Scope, hit: Hit) -> str:
    """A failure domain of the Provider that holds the VM; where it really is, that one tells."""
    site = scope.services.site(hit.provider, scope.image, scope.key.namespace)
    return min((domain.name for domain in site.domains), default="") if site else ""


def _held(scope: Scope, machine: Machine, wish: Wish) -> Hold | None:
    """What keeps the move from beginning, of all that is known without asking for a place."""
    vm = scope.vm
    held = wishes.held_by_failure(vm, wish, scope.course.move) or wishes.held_by_spec(vm, wish)
    if held is not None:
        return held
    if machine.spec.provider_id is None:
        return Hold(
            Reason.NOT_PROVISIONED,
            "the machine is still being made where it was placed, and moves when it is there; set "
            "providerRef back, or delete this object and make it anew",
        )
    return None


async def _start(scope: Scope, machine: Machine, wish: Wish, claims: Claims) -> Hold | None:
    site = _site(scope, wish)
    if site is not None:
        found = [claim for provider, claim in claims if provider == site.key]
        if any(it.epoch == machine.spec.epoch and not it.incoming for it in found):
            return await _rebind(scope, machine, site)
        if site.ready and not site.complete:
            return Hold(
                Reason.PROVIDER_NOT_READY,
                f"Provider {site.key} has not told yet which machines it holds, and this one may "
                "be there; wait for it, or set providerRef back",
            )
    if scope.course.previous is not None:
        return await _take_back(scope, machine, wish, scope.course.previous, claims)
    held = wishes.held_by_data(scope.vm, machine.spec.class_)
    if held is not None:
        return held
    return await _build(scope, machine, claims)


def _site(scope: Scope, wish: Wish) -> Site | None:
    """The Provider the user names, if it may be used."""
    if wish.provider is None:
        return None
    site = scope.services.site(wish.provider, scope.image, scope.key.namespace)
    return site if site is not None and site.allowed else None


async def _rebind(scope: Scope, machine: Machine, site: Site) -> Hold | None:
    """The very machine is there: it was moved by the backend's own means, or by an admin.

    Its object at the old Provider is released, which touches no VM, and another one made that
    finds it. The two are told apart from a copy by the old Provider, which must not have it.
    """
    if machine.status.missing is None and _still_held(scope, site):
        return Hold(
            Reason.OWNERSHIP_CONFLICT,
            f"the machine was found on Provider {site.key}, and where it was it is not proved to "
            "be gone; remove one of the two there, delete the Provider it was on if that does not "
            "answer any more for good, or set providerRef back",
        )
    kind = scope.services.kind_at(site.key)
    if kind is None or scope.kind is None or scope.machine_raw is None:
        return Hold(
            Reason.PROVIDER_CLASS_NOT_FOUND,
            f"the class of Provider {site.key} does not exist; create that ProviderClass",
        )
    old, epoch = Found(scope.kind, scope.machine_raw), machine.spec.epoch
    where = Place(site.key, _any_domain(scope, Hit(site.key, epoch)))
    name = await naming.free_name(scope, kind, epoch)
    scope.course.move = _record(scope, where, epoch, rebind=True)
    scope.record(where, machine.spec.class_)
    scope.reference = reference_to(kind, Key(scope.key.namespace, name))
    scope.drop_machine()
    await scope.write_status()
    await consume(scope, names.ANNOTATION_MIGRATE)
    released = await teardown.write_intent(scope.ctx.api, old, TeardownMode.RELEASE, unhold=True)
    await teardown.delete(scope.ctx.api, released)
    return None


def _still_held(scope: Scope, there: Site) -> bool:
    """Whether the machine may be on the old Provider, too, as long as that does not prove it gone.

    A backend that does not answer proves nothing: what was found may be a copy, and the original
    run. Not so if it is the same backend under another name, or its admin lets it go for good.
    """
    where = scope.place
    home = scope.services.provider(where.provider) if where else None
    other = scope.services.provider(there.key)
    if home is None or other is None or where is None:
        return False
    site = scope.services.site(where.provider, scope.image, scope.key.namespace)
    if home.status.backend_identity and (
        home.status.backend_identity == other.status.backend_identity
    ):
        return False
    leaving = home.metadata.deletion_timestamp is not None
    return site is not None and (site.ready or not leaving)


async def _take_back(
    scope: Scope, machine: Machine, wish: Wish, previous: Previous, claims: Claims
) -> Hold | None:
    """A pin that names the Provider of the machine that was left rolls the move back."""
    reference = previous.infrastructure_ref
    kind = scope.services.kinds.of_reference(reference)
    try:
        obj = await scope.ctx.api.get(kind, Key(reference.namespace, reference.name))
    except NotFound:
        return wishes.held_by_previous(previous)
    left = Machine.from_api(obj)
    home, placement = left.spec.provider_ref, left.spec.placement
    back = home is not None and wish.provider == Key(home.namespace, home.name)
    if not back or home is None or left.metadata.deletion_timestamp is not None:
        return wishes.held_by_previous(previous)
    scope.course.previous = None
    epoch = wishes.next_epoch([machine, left], claims)
    place = Place(Key(home.namespace, home.name), placement.failure_domain if placement else "")
    await _refer(scope, place, epoch, reference=reference, fixed=previous.fixed_addresses)
    return None


async def _build(scope: Scope, machine: Machine, claims: Claims) -> Hold | None:
    demand = demand_of(scope)
    if demand is None:
        return Hold(
            Reason.IMAGE_NOT_FOUND if scope.image is None else Reason.CLASS_NOT_FOUND,
            "a move builds the machine anew, and its VMClass or VMImage does not exist any more; "
            "create it again, or set providerRef back",
        )
    place = await _choose(scope, demand)
    if isinstance(place, Hold):
        return place
    if place == scope.place:
        return Hold(Reason.NO_FAILURE_DOMAIN_MATCHED, "no other place is better")
    if not _moves_there(scope, place):
        scope.services.ledger.withdraw(scope.key)
        return Hold(
            Reason.UNSUPPORTED_BY_PROVIDER,
            f"the provider process of Provider {place.provider} cannot take part in moves yet; "
            "upgrade it, or set providerRef back",
        )
    kind = scope.services.kind_at(place.provider)
    if kind is None:
        scope.services.ledger.withdraw(scope.key)
        return Hold(
            Reason.PROVIDER_CLASS_NOT_FOUND,
            f"the class of Provider {place.provider} does not exist; create that ProviderClass",
        )
    epoch = wishes.next_epoch([machine], claims)
    while not await naming.is_free(scope, kind, blueprint.machine_name(scope.vm, epoch)):
        epoch += 1
    await _refer(scope, place, epoch)
    return None


async def _choose(scope: Scope, demand: Demand) -> Place | Hold:
    """A place that counts from now on, beside the one the machine has."""
    ledger = scope.services.ledger
    sites = scope.services.sites(scope.image, scope.key.namespace)
    if scope.standing is not None:
        scope.services.everybody(scope.standing.id)
    async with ledger.turn:
        decision = schedule(demand, sites, ledger.residents(), refused=ledger.refusals(demand))
        if isinstance(decision, Placed):
            ledger.promise(facts.promised(demand, decision.place))
            return decision.place
        ledger.miss(demand, decision)
    return Hold(
        decision.reason,
        f"no place for the move, the machine stays where it is: {decision.message}",
    )


def _moves_there(scope: Scope, place: Place) -> bool:
    """Whether its provider process understands `spec.move` and all first-boot data."""
    found = scope.services.provider(place.provider)
    if found is None or MOVE not in found.status.spec_features:
        return False
    kept = scope.machine.spec.class_ if scope.machine else None
    plan = blueprint.Plan(vm=scope.vm, place=place, snapshot=kept, image=scope.image)
    return not skew.missing_at_birth(blueprint.machine_spec(plan), found)


def _record(scope: Scope, place: Place, epoch: int, *, rebind: bool = False) -> MoveStatus:
    return MoveStatus(
        provider_name=place.provider.name,
        provider_namespace=place.provider.namespace,
        failure_domain=place.domain or None,
        epoch=epoch,
        started_at=scope.ctx.clock.now(),
        rebind=True if rebind else None,
    )


async def _refer(
    scope: Scope,
    place: Place,
    epoch: int,
    *,
    reference: KindRef | None = None,
    rebind: bool = False,
    fixed: bool | None = None,
) -> None:
    """The status names the machine to come before it is made or changed.

    What the user had to say for it is used up then.
    """
    kind = scope.services.kind_at(place.provider)
    if reference is None and kind is not None:
        name = await naming.free_name(scope, kind, epoch)
        reference = reference_to(kind, Key(scope.key.namespace, name))
    if reference is None:
        return
    scope.course.incoming_ref = reference
    record = _record(scope, place, epoch, rebind=rebind)
    scope.course.move = record.model_copy(update={"fixed_addresses": fixed})
    try:
        await scope.write_status()
    except Conflict:
        scope.services.ledger.withdraw(scope.key)
        raise
    await consume(scope, names.ANNOTATION_MIGRATE, names.ANNOTATION_ACCEPT_DATA_LOSS)
