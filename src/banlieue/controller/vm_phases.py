"""The phases of a VirtualMachine that should exist, in the order of identity.

The status names the machine object before it is POSTed, so a restart POSTs what stands there, and
only an object that a VirtualMachine refers to ever becomes a VM.
"""

from typing import Any

from banlieue.api import names
from banlieue.api.infrastructure.machine import ClassSnapshot, Machine
from banlieue.api.reasons import ConditionType, Reason
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.controller import blueprint, devices, facts, placement_check, teardown, writes
from banlieue.controller.kinds import Found
from banlieue.controller.placement import Place
from banlieue.controller.recreate import recreate_missing
from banlieue.controller.redo import redo_refused
from banlieue.controller.refer import find_machine, make_machine
from banlieue.controller.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait

_SOON = 0.1


async def confirm_installation(scope: Scope) -> Outcome:
    """Is this the installation the machines were made by? Else nothing is touched."""
    scope.standing = await scope.services.keeper.standing()
    problem = scope.standing.problem
    if problem is None:
        return CONTINUE
    kind = ConditionType.INFRASTRUCTURE_READY if scope.scheduled else ConditionType.SCHEDULED
    scope.settle(false(kind, Reason.INSTALLATION_UNCONFIRMED, problem))
    return Wait(Reason.INSTALLATION_UNCONFIRMED, problem)


async def ensure_finalizer(scope: Scope) -> Outcome:
    """Will the object stay until its machine is gone?"""
    held = await writes.add_finalizer(
        scope.ctx.api, VIRTUAL_MACHINES, scope.raw, names.FINALIZER_VIRTUAL_MACHINE
    )
    if held is not scope.raw:
        scope.replace(held)
    return CONTINUE


async def await_release(scope: Scope) -> Outcome:
    """Is the machine object on its way out although the VirtualMachine lives?

    Somebody deleted it, or the garbage collector did because it was restored with the uid of an
    earlier owner. Its provider lets the VM go untouched; the object is then made again.
    """
    machine, raw, kind = scope.machine, scope.machine_raw, scope.kind
    if machine is None or raw is None or kind is None:
        return CONTINUE
    if machine.metadata.deletion_timestamp is None:
        return CONTINUE
    gone = await teardown.let_go(scope.ctx.api, Found(kind, raw))
    outcome = Wait(
        Reason.WAITING_FOR_INFRASTRUCTURE,
        "its machine object is being deleted; the machine itself is left alone and taken up again",
        _SOON if gone else None,
    )
    scope.settle(false(ConditionType.INFRASTRUCTURE_READY, outcome.reason, outcome.message))
    return outcome


async def follow_spec(scope: Scope) -> Outcome:
    """Does the machine object say what the VirtualMachine, its labels and its class say?"""
    machine, raw, kind, where = scope.machine, scope.machine_raw, scope.kind, scope.place
    if machine is None or raw is None or kind is None or where is None:
        return CONTINUE
    kept = _class_to_use(scope, machine)
    if kept is None:
        return CONTINUE
    wanted = blueprint.machine_spec(
        blueprint.Plan(
            vm=scope.vm,
            place=where,
            snapshot=kept,
            image=scope.image,
            provider=scope.services.provider(where.provider),
            current=machine,
        )
    )
    if kept is machine.spec.class_:
        wanted["class"] = raw["spec"]["class"]
    seen = machine.spec.provider_id is not None
    ops = blueprint.changes(wanted, raw["spec"], seen=seen)
    ops += _owner_changes(scope, machine, raw) + _label_changes(scope, raw, where)
    if ops:
        scope.take_machine(kind, await writes.patch(scope.ctx.api, kind, raw, ops))
        scope.follow_machine()
    return CONTINUE


def _class_to_use(scope: Scope, machine: Machine) -> ClassSnapshot | None:
    """The snapshot on the machine until classRef names another class; then that one."""
    kept, reference, vm_class = machine.spec.class_, scope.vm.spec.class_ref, scope.vm_class
    if reference is None or (kept is not None and kept.name == reference.name):
        return kept
    if vm_class is None:
        _not_up_to_date(
            scope,
            Reason.CLASS_NOT_FOUND,
            f"VMClass {reference.name} does not exist; create it or correct spec.classRef",
        )
        return kept
    problem = devices.problem(vm_class.spec, scope.vm.spec)
    if problem is not None:
        _not_up_to_date(scope, Reason.INVALID_CONFIGURATION, problem)
        return kept
    return blueprint.snapshot(vm_class)


def _not_up_to_date(scope: Scope, reason: Reason, message: str) -> None:
    scope.wait_for_others()
    scope.settle(false(ConditionType.UP_TO_DATE, reason, message))


def _owner_changes(scope: Scope, machine: Machine, raw: Obj) -> writes.Ops:
    """Tie a machine that was restored with the uid of an earlier owner to the one there is now."""
    uid, made_by = scope.vm.metadata.uid, machine.spec.virtual_machine_ref
    wanted = blueprint.owner_reference(scope.vm)
    present = raw["metadata"].get("ownerReferences") or []
    ops: writes.Ops = []
    if wanted not in present:
        others = [it for it in present if not _is_virtual_machine(it)]
        ops.append({"op": "add", "path": "/metadata/ownerReferences", "value": [*others, wanted]})
    if made_by is None or made_by.uid != uid:
        value = {"name": scope.vm.metadata.name, "uid": uid}
        ops.append({"op": "add", "path": "/spec/virtualMachineRef", "value": value})
    return ops


def _is_virtual_machine(reference: dict[str, Any]) -> bool:
    group = str(reference.get("apiVersion", "")).partition("/")[0]
    return group == VIRTUAL_MACHINES.group and reference.get("kind") == VIRTUAL_MACHINES.kind


def _label_changes(scope: Scope, raw: Obj, where: Place) -> writes.Ops:
    """Copy labels over; one taken off the VirtualMachine stays, as it may be somebody else's."""
    present = raw["metadata"].get("labels") or {}
    merged = present | blueprint.labels(scope.vm, where.provider)
    if merged == present:
        return []
    return [{"op": "add", "path": "/metadata/labels", "value": merged}]


async def check_placement(scope: Scope) -> Outcome:
    """Does the place still meet the spec? Whatever the answer, nothing moves for it."""
    placed, where = scope.scheduled, scope.place
    if placed is None or where is None:
        return CONTINUE
    site = scope.services.site(where.provider, scope.image, scope.key.namespace)
    observed = _observed(scope)
    neighbour = _too_near(scope, Place(where.provider, observed or where.domain))
    scope.settle(placement_check.placement(scope.vm, placed, observed, site, neighbour))
    if not scope.view().provisioned:
        _check_image(scope, where)
    return CONTINUE


def _too_near(scope: Scope, there: Place) -> Key | None:
    if scope.standing is None:
        return None
    services = scope.services
    return placement_check.too_near(
        scope.vm,
        there,
        services.everybody(scope.standing.id),
        lambda: services.sites(None, scope.key.namespace),
    )


def _observed(scope: Scope) -> str | None:
    seen = scope.machine.status.failure_domain if scope.machine else None
    return seen or scope.vm.status.observed_failure_domain


def _check_image(scope: Scope, where: Place) -> None:
    row = facts.image_row(scope.image, where.provider)
    if scope.image is not None and (row is None or not row.ready):
        scope.wait_for_others()
        message = (row.message if row else None) or "the Provider has not made it usable yet"
        scope.settle(
            false(
                ConditionType.IMAGE_READY,
                Reason.IMAGE_NOT_READY,
                f"image {scope.image.metadata.name}: {message}",
            )
        )


PHASES = (
    confirm_installation,
    ensure_finalizer,
    find_machine,
    make_machine,
    check_placement,
    await_release,
    recreate_missing,
    redo_refused,
    follow_spec,
)
