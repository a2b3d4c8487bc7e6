"""Placing a machine anew after its backend refused it, only while nothing exists."""

from banlieue.api.conditions import ConditionType
from banlieue.controller import writes
from banlieue.controller.infra import blueprint, teardown
from banlieue.controller.infra.kinds import Found, reference_to
from banlieue.controller.infra.refer import remove_refused
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.assume import REFUSAL_SECONDS
from banlieue.controller.scheduling.placement import Decision, Demand, Place, Placed
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.kube import Conflict, Key
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait


async def redo_refused(scope: Scope) -> Outcome:
    """Did the backend refuse the machine at its place, with nothing made? Then place it anew."""
    machine, raw, kind, where = scope.machine, scope.machine_raw, scope.kind, scope.place
    if machine is None or raw is None or kind is None or where is None:
        return CONTINUE
    if not teardown.redoable(machine) or scope.view().provisioned:
        return CONTINUE
    wanted = _demand(scope)
    if wanted is None:
        return CONTINUE
    refused = machine.status.create_refused
    decision = await _decide(scope, wanted, where, refused.reason if refused else "")
    if not isinstance(decision, Placed):
        scope.settle(false(ConditionType.INFRASTRUCTURE_READY, decision.reason, decision.message))
        scope.wait_for_others()
        return Wait(decision.reason, decision.message, REFUSAL_SECONDS)
    found = Found(kind, raw)
    if decision.place.provider == where.provider:
        return await _elsewhere_here(scope, found, decision.place)
    return await _at_another(scope, found, decision.place)


def _demand(scope: Scope) -> Demand | None:
    standing, vm_class, image = scope.standing, scope.vm_class, scope.image
    if standing is None or vm_class is None or image is None:
        return None
    return facts.demand(scope.vm, vm_class, image, installation_id=standing.id)


async def _decide(scope: Scope, wanted: Demand, where: Place, why: str) -> Decision:
    ledger = scope.services.ledger
    async with ledger.turn:
        ledger.refuse(wanted, where, why)
        decision = schedule(
            wanted,
            scope.services.sites(scope.image, scope.key.namespace),
            ledger.residents(),
            refused=ledger.refusals(wanted),
        )
        if isinstance(decision, Placed):
            ledger.promise(facts.promised(wanted, decision.place))
    return decision


async def _elsewhere_here(scope: Scope, found: Found, where: Place) -> Outcome:
    """Another failure domain of the same Provider: the same object, moved before it is made."""
    value = {"failureDomain": where.domain}
    ops: writes.Ops = [{"op": "add", "path": "/spec/placement", "value": value}]
    try:
        patched = await writes.patch(scope.ctx.api, found.kind, found.obj, ops)
    except Conflict:
        scope.services.ledger.withdraw(scope.key)
        raise
    scope.take_machine(found.kind, patched)
    scope.follow_machine()
    return CONTINUE


async def _at_another(scope: Scope, found: Found, where: Place) -> Outcome:
    """Another Provider: the status says so, then the old object goes, then a new one comes."""
    kind = scope.services.kind_at(where.provider)
    if kind is None:
        scope.services.ledger.withdraw(scope.key)
        return CONTINUE
    snapshot = scope.machine.spec.class_ if scope.machine else None
    scope.record(where, snapshot)
    name = blueprint.machine_name(scope.vm, 0)
    scope.reference = reference_to(kind, Key(scope.key.namespace, name))
    scope.drop_machine()
    try:
        await scope.write_status()
    except Conflict:
        scope.services.ledger.withdraw(scope.key)
        raise
    return await remove_refused(scope, found)
