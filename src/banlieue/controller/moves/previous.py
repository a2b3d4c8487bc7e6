"""What a move left behind: powered off, until it is released, taken back, or its time is up."""

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Machine, Move, MoveRole, TeardownMode
from banlieue.api.meta import KindRef
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.types import DeletionPolicy, PowerState
from banlieue.api.v1alpha1.virtualmachine import Previous
from banlieue.controller import writes
from banlieue.controller.infra import naming, teardown
from banlieue.controller.infra.kinds import Found
from banlieue.controller.moves import wishes
from banlieue.controller.vm.follow import left_changes
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.kube import Key, NotFound


async def tend_previous(scope: Scope) -> None:
    """Keep it off, and let it go when that is asked for.

    A word to release that was given while nothing was left behind is taken back: it must not
    destroy what some later move leaves.
    """
    previous = scope.course.previous
    if previous is None:
        await consume(scope, names.ANNOTATION_RELEASE_PREVIOUS)
        return
    found = await _read(scope, previous.infrastructure_ref)
    if found is None:
        await _gone(scope)
        return
    machine = Machine.from_api(found.obj)
    previous = previous.model_copy(update={"until": wishes.kept_until(scope.vm, previous)})
    scope.course.previous = previous
    if _released(scope, previous, machine):
        await _destroy(scope, found)
    elif machine.metadata.deletion_timestamp is not None:
        await _let_go(scope, found)
    else:
        await _keep(scope, found, machine)


async def pause_others(scope: Scope) -> None:
    """Hands off reaches the providers of the other machines of a move, too."""
    course = scope.course
    previous = course.previous.infrastructure_ref if course.previous else None
    for reference in (course.incoming_ref, previous):
        found = await _read(scope, reference) if reference is not None else None
        if found is not None and not found.obj["spec"].get("paused"):
            ops: writes.Ops = [{"op": "add", "path": "/spec/paused", "value": True}]
            await writes.patch(scope.ctx.api, found.kind, found.obj, ops)


async def consume(scope: Scope, *annotations: str) -> None:
    """Take annotations off the VirtualMachine whose word was heard."""
    present = [name for name in annotations if name in scope.vm.metadata.annotations]
    if not present:
        return
    ops: writes.Ops = [
        {"op": "remove", "path": f"/metadata/annotations/{name.replace('/', '~1')}"}
        for name in present
    ]
    scope.replace(await writes.patch(scope.ctx.api, VIRTUAL_MACHINES, scope.raw, ops))


async def _read(scope: Scope, reference: KindRef) -> Found | None:
    """A machine object of ours, read live: something may be destroyed."""
    kind = scope.services.kinds.of_reference(reference)
    try:
        obj = await scope.ctx.api.get(kind, Key(reference.namespace, reference.name))
    except NotFound:
        return None
    return Found(kind, obj) if naming.is_own(scope.vm, obj) else None


def _released(scope: Scope, previous: Previous, machine: Machine) -> bool:
    """Whether its user, or the time its user gave, lets it go; not while it is asked back."""
    if wishes.is_set(scope.vm, names.ANNOTATION_RELEASE_PREVIOUS):
        return True
    if previous.until is None:
        return False
    pin, reference = scope.vm.spec.provider_ref, machine.spec.provider_ref
    if pin is not None and reference is not None:
        asked = Key(pin.namespace or scope.key.namespace, pin.name)
        current = scope.place
        back = asked == Key(reference.namespace, reference.name)
        if back and current is not None and asked != current.provider:
            return False
    now = scope.ctx.clock.now()
    if now < previous.until:
        scope.come_back((previous.until - now).total_seconds())
    return now >= previous.until


async def _destroy(scope: Scope, found: Found) -> None:
    """Have it destroyed. Where its Provider is gone for good, nobody can, and it is let go.

    So is one whose user wants his VMs left where they are, as of every VM that was adopted.
    """
    machine = Machine.from_api(found.obj)
    if machine.spec.role is not MoveRole.PREVIOUS:
        await _keep(scope, found, machine)
        return
    reference = machine.spec.provider_ref
    served = reference is None or scope.services.provider(Key(reference.namespace, reference.name))
    orphan = scope.vm.spec.wanted_deletion_policy is DeletionPolicy.ORPHAN
    if orphan or not served:
        await _let_go(scope, found)
        return
    api = scope.ctx.api
    found = await teardown.write_intent(api, found, TeardownMode.DESTROY, unhold=True)
    if not found.obj["metadata"].get("deletionTimestamp"):
        await teardown.delete(api, found)
        if not found.obj["metadata"].get("finalizers"):
            await _gone(scope)


async def _let_go(scope: Scope, found: Found) -> None:
    """Its object goes without a word about the machine: that one is left alone."""
    api = scope.ctx.api
    found = await teardown.write_intent(api, found, TeardownMode.RELEASE, unhold=True)
    if not found.obj["metadata"].get("deletionTimestamp"):
        await teardown.delete(api, found)
        found = Found(found.kind, await api.get(found.kind, found.key))
    if await teardown.release_from_gone_provider(api, found):
        await _gone(scope)


async def _gone(scope: Scope) -> None:
    """Nothing is left; the word that released it is used up with it."""
    scope.course.previous = None
    await scope.write_status()
    scope.ctx.recorder.event(
        scope.raw, EventReason.PREVIOUS_RELEASED, "The machine a move left behind is gone"
    )
    await consume(scope, names.ANNOTATION_RELEASE_PREVIOUS)


async def _keep(scope: Scope, found: Found, machine: Machine) -> None:
    ops = left_changes(scope, machine, found.obj)
    if machine.spec.role is not MoveRole.PREVIOUS:
        value = Move(epoch=machine.spec.epoch, role=MoveRole.PREVIOUS).to_api()
        ops.append({"op": "add", "path": "/spec/move", "value": value})
    if machine.spec.power_state is not PowerState.POWERED_OFF:
        off = PowerState.POWERED_OFF.value
        ops.append({"op": "add", "path": "/spec/powerState", "value": off})
    if ops:
        await writes.patch(scope.ctx.api, found.kind, found.obj, ops)
