"""What a VirtualMachine that adopts does beside what every other one does."""

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import Machine
from banlieue.controller import writes
from banlieue.controller.infra import blueprint
from banlieue.controller.infra.adoption import choose_anew, demand, untaken
from banlieue.controller.infra.kinds import Found, reference_to
from banlieue.controller.infra.refer import remove_refused
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.placement import Unplaced
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.kube import Key
from banlieue.sdk.outcome import CONTINUE, Outcome

_SOON = 0.1
"""Seconds until a machine object that nothing holds is gone."""


async def follow_pin(scope: Scope) -> Outcome:
    """Does the pin name another Provider, and was nothing taken over at this one? Then go there."""
    machine, raw, kind, where = scope.machine, scope.machine_raw, scope.kind, scope.place
    pin = scope.vm.spec.provider_ref
    if machine is None or raw is None or kind is None or where is None or pin is None:
        return CONTINUE
    asked = Key(pin.namespace or scope.key.namespace, pin.name)
    if asked == where.provider or not untaken(machine) or scope.standing is None:
        return CONTINUE
    if _was_taken(scope, scope.standing.id):
        return CONTINUE
    decision = choose_anew(scope, demand(scope))
    target = scope.services.kind_at(asked)
    if isinstance(decision, Unplaced) or target is None:
        if isinstance(decision, Unplaced):
            scope.wait_for_others()
            kind_of = ConditionType.INFRASTRUCTURE_READY
            scope.settle(false(kind_of, decision.reason, decision.message))
        return CONTINUE
    scope.record(decision.place, machine.spec.class_)
    name = blueprint.machine_name(scope.vm, 0)
    scope.reference = reference_to(target, Key(scope.key.namespace, name))
    scope.drop_machine()
    await scope.write_status()
    scope.come_back(_SOON)
    return await remove_refused(scope, Found(kind, raw))


def _was_taken(scope: Scope, installation_id: str) -> bool:
    """Whether the VM was taken over by a machine object that was lost: then this one finds it."""
    claims = scope.services.claims(facts.owner_digest(installation_id, scope.key))
    initialization = scope.vm.status.initialization
    return bool(claims or (initialization and initialization.provisioned))


async def locate(scope: Scope) -> Outcome:
    """Does the machine object say where its VM was found? Classes are resolved there."""
    machine, raw, kind = scope.machine, scope.machine_raw, scope.kind
    if machine is None or raw is None or kind is None or not _to_locate(machine):
        return CONTINUE
    value = {"failureDomain": machine.status.failure_domain}
    ops: writes.Ops = [{"op": "add", "path": "/spec/placement", "value": value}]
    scope.take_machine(kind, await writes.patch(scope.ctx.api, kind, raw, ops))
    scope.follow_machine()
    return CONTINUE


def _to_locate(machine: Machine) -> bool:
    """Until its VM is taken over the backend may move it, and the object follows; then it is fixed.

    A VM that is moved later is `MovedByBackend`, as any other.
    """
    spec, seen = machine.spec, machine.status.failure_domain
    if spec.adopt is None or seen is None or machine.metadata.deletion_timestamp is not None:
        return False
    placed = spec.placement.failure_domain if spec.placement else None
    return placed is None or (placed != seen and untaken(machine))
