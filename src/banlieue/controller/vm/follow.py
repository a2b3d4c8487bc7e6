"""The machine objects follow the VirtualMachine, its labels and its class."""

from typing import Any

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import ClassSnapshot, Machine
from banlieue.api.reasons import Reason
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.v1alpha1.provider import Provider
from banlieue.controller import writes
from banlieue.controller.infra import blueprint, devices, skew
from banlieue.controller.scheduling.placement import Place
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.outcome import CONTINUE, Outcome

_LEFT_BEHIND = ("paused", "deletionProtection", "powerOffMode", "powerOffTimeoutSeconds")
"""What of its spec still follows the VirtualMachine once a machine was left behind."""


async def follow_spec(scope: Scope) -> Outcome:
    """Does the machine object say what the VirtualMachine, its labels and its class say?"""
    machine, raw, kind, where = scope.machine, scope.machine_raw, scope.kind, scope.place
    if machine is None or raw is None or kind is None or where is None:
        return CONTINUE
    kept = _class_to_use(scope, machine)
    if kept is None and machine.spec.adopt is None:
        return CONTINUE
    plan = _plan(scope, machine, kept, where)
    wanted = blueprint.machine_spec(plan)
    lacking = _hold_back(wanted, machine, raw, plan.provider)
    ops = _differences(wanted, machine, raw, kept) + reference_changes(scope, machine, raw)
    ops += _label_changes(scope, raw, where.provider)
    scope.followed = True
    if lacking and plan.provider is not None:
        text = skew.told(lacking, plan.provider)
        _not_up_to_date(scope, Reason.UNSUPPORTED_BY_PROVIDER, text)
    if ops:
        scope.take_machine(kind, await writes.patch(scope.ctx.api, kind, raw, ops))
        scope.follow_machine()
    return CONTINUE


def incoming_changes(scope: Scope, machine: Machine, raw: Obj) -> writes.Ops:
    """What a machine to come has to follow; its interfaces and its power are the move's affair."""
    reference, placement = machine.spec.provider_ref, machine.spec.placement
    kept = _class_to_use(scope, machine)
    if reference is None or placement is None or kept is None:
        return []
    where = Place(Key(reference.namespace, reference.name), placement.failure_domain)
    plan = _plan(scope, machine, kept, where)
    wanted = blueprint.machine_spec(plan)
    _hold_back(wanted, machine, raw, plan.provider)
    for name in ("networkInterfaces", "powerState"):
        wanted.pop(name, None)
        if name in raw["spec"]:
            wanted[name] = raw["spec"][name]
    ops = _differences(wanted, machine, raw, kept) + reference_changes(scope, machine, raw)
    return ops + _label_changes(scope, raw, where.provider)


def left_changes(scope: Scope, machine: Machine, raw: Obj) -> writes.Ops:
    """What a machine that was left behind has to follow."""
    spec = scope.vm.spec
    wanted: dict[str, Any] = {
        "paused": spec.paused or None,
        "deletionProtection": spec.deletion_protection or None,
        "powerOffMode": spec.power_off_mode.value,
        "powerOffTimeoutSeconds": spec.power_off_timeout_seconds,
    }
    ops: writes.Ops = []
    for name in _LEFT_BEHIND:
        value, present = wanted[name], raw["spec"].get(name)
        if value is None and present is not None:
            ops.append({"op": "remove", "path": f"/spec/{name}"})
        elif value is not None and value != present:
            ops.append({"op": "add", "path": f"/spec/{name}", "value": value})
    return ops + reference_changes(scope, machine, raw)


def wanted_interfaces(scope: Scope, machine: Machine, *, plugged: bool) -> list[dict[str, Any]]:
    """The interfaces of a machine in a move, all of them plugged in or all of them not.

    Those of its class are named only where they are to be unplugged.
    """
    own = devices.machine_interfaces(
        scope.vm.spec.network_interfaces, machine.spec.network_interfaces
    )
    snapshot = machine.spec.class_
    return [nic.to_api() for nic in devices.plugged(own, snapshot, plugged=plugged)]


def _plan(
    scope: Scope, machine: Machine, kept: ClassSnapshot | None, where: Place
) -> blueprint.Plan:
    return blueprint.Plan(
        vm=scope.vm,
        place=where,
        snapshot=kept,
        image=scope.image,
        provider=scope.services.provider(where.provider),
        current=machine,
        power=scope.power,
    )


def _hold_back(
    wanted: dict[str, Any], machine: Machine, raw: Obj, provider: Provider | None
) -> tuple[str, ...]:
    seen = machine.spec.provider_id is not None
    return skew.held_back(wanted, raw["spec"], provider, seen=seen)


def _differences(
    wanted: dict[str, Any], machine: Machine, raw: Obj, kept: ClassSnapshot | None
) -> writes.Ops:
    if kept is not None and kept is machine.spec.class_:
        wanted["class"] = raw["spec"]["class"]
    seen = machine.spec.provider_id is not None
    return blueprint.changes(wanted, raw["spec"], seen=seen)


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


def reference_changes(scope: Scope, machine: Machine, raw: Obj) -> writes.Ops:
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


def _label_changes(scope: Scope, raw: Obj, provider: Key) -> writes.Ops:
    """Copy labels over; one taken off the VirtualMachine stays, as it may be somebody else's."""
    present = raw["metadata"].get("labels") or {}
    merged = present | blueprint.labels(scope.vm, provider)
    if merged == present:
        return []
    return [{"op": "add", "path": "/metadata/labels", "value": merged}]
