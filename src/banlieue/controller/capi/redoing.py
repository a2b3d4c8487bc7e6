"""Placing a Cluster API machine anew after its backend refused it, while nothing exists.

Only within its Provider, which it never changes, and only where its Machine names no failure
domain. Everywhere else its owner replaces it.
"""

from banlieue.api.infrastructure.machine import Machine
from banlieue.controller import writes
from banlieue.controller.capi import objects
from banlieue.controller.capi.scope import Scope
from banlieue.controller.capi.stamping import CHECKS, choice_for, demand_for
from banlieue.controller.infra import teardown
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.assume import REFUSAL_SECONDS
from banlieue.controller.scheduling.placement import Place, Placed
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.sdk.kube import Conflict, Invalid, Key, NotFound
from banlieue.sdk.outcome import CONTINUE
from banlieue.sdk.phases import run_phases


def is_refused(machine: Machine) -> bool:
    """Whether a machine may be placed anew: the backend refused it, and nothing was made."""
    return teardown.redoable(machine) and objects.is_stamped(machine)


async def redo(scope: Scope) -> float | None:
    """Give a refused machine another failure domain of its Provider.

    Args:
        scope: the machine, with Machine and Cluster read live.

    Returns:
        In how many seconds to try again, None when there is nothing to try.

    Raises:
        Conflict: the object changed since it was read; decide again.
        ApiError: nobody knows.
    """
    if objects.failure_domain(scope.owner or {}) or await scope.why_paused() is not None:
        return None
    if await run_phases(CHECKS, scope) is not CONTINUE:
        return None
    found = demand_for(scope)
    if found is None:
        return None
    wanted, cluster = found
    spec, ledger = scope.machine.spec, scope.services.cluster_machines
    if spec.provider_ref is None or spec.placement is None:
        return None
    provider = Key(spec.provider_ref.namespace, spec.provider_ref.name)
    refused = scope.machine.status.create_refused
    async with ledger.turn:
        here = Place(provider, spec.placement.failure_domain)
        ledger.refuse(wanted, here, refused.reason if refused else "")
        choice = choice_for(scope, wanted, *cluster)
        decision = schedule(
            wanted,
            [site for site in choice.offers if site.key == provider],
            ledger.residents(),
            refused=ledger.refusals(wanted),
        )
        if isinstance(decision, Placed):
            ledger.promise(facts.promised(wanted, decision.place))
    if not isinstance(decision, Placed):
        return REFUSAL_SECONDS
    value = {"failureDomain": decision.place.domain}
    ops: writes.Ops = [{"op": "add", "path": "/spec/placement", "value": value}]
    try:
        await writes.patch(scope.ctx.api, scope.kind, scope.raw, ops)
    except (Conflict, Invalid, NotFound):
        ledger.withdraw(wanted.key)
        raise
    return None
