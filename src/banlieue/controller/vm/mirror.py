"""The status of a VirtualMachine as one value, from a pass and its machine. Pure."""

from datetime import datetime

from banlieue.api.conditions import ConditionType
from banlieue.api.meta import KindRef
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.virtualmachine import (
    ReadinessGate,
    VirtualMachine,
)
from banlieue.api.v1alpha1.virtualmachine_status import (
    VirtualMachineInitialization,
    VirtualMachineStatus,
)
from banlieue.api.v1alpha1.vmimage import AgentPresence, VMImage
from banlieue.controller.vm import conditions
from banlieue.controller.vm.conditions import View
from banlieue.sdk.conditions import merge, true


def status_of(view: View, reference: KindRef | None, now: datetime) -> VirtualMachineStatus:
    """The complete status.

    What the machine's provider has not said yet stays as it was, so an outage or an object that
    had to be made again takes nothing away.
    """
    vm, generation = view.vm, view.vm.metadata.generation
    status = vm.status.model_copy(deep=True)
    status.deletion_policy = vm.spec.wanted_deletion_policy
    status.readiness_gates = list(view.gates)
    # Nobody gave an adopted machine its name but whoever installed it.
    status.hostname = vm.spec.hostname or (None if vm.spec.adopt else vm.metadata.name)
    status.scheduled = view.scheduled
    status.infrastructure_ref = reference
    if view.provisioned:
        status.initialization = VirtualMachineInitialization(provisioned=True)
    _mirror(view, status)
    found = conditions.findings(view)
    status.phase = conditions.phase(view, found)
    status.observed_generation = generation
    status.conditions = merge(vm.status.conditions, found, generation=generation, now=now)
    return status


def paused_status(vm: VirtualMachine, now: datetime) -> VirtualMachineStatus:
    """The status of a paused VirtualMachine: as it was, but for the Paused condition."""
    status, generation = vm.status.model_copy(deep=True), vm.metadata.generation
    paused = true(ConditionType.PAUSED, Reason.PAUSED, "spec.paused is set; nothing is changed")
    merged = merge(status.conditions, [paused], generation=generation, now=now)
    others = [item for item in status.conditions if item.type != ConditionType.PAUSED]
    status.conditions = sorted([*others, *merged], key=lambda item: item.type)
    status.observed_generation = generation
    return status


def readiness_gates(vm: VirtualMachine, image: VMImage | None) -> tuple[ReadinessGate, ...]:
    """The gates in force; once computed they stay while the image cannot be read."""
    if vm.spec.readiness_gates is not None:
        return tuple(vm.spec.readiness_gates)
    if image is None:
        return tuple(vm.status.readiness_gates or ())
    if image.spec.agent is AgentPresence.ABSENT:
        return ()
    return (ReadinessGate.ADDRESSES_AVAILABLE,)


def _mirror(view: View, status: VirtualMachineStatus) -> None:
    machine = view.machine
    known = machine.status.initialization if machine else None
    there = known is not None and known.provisioned
    if machine is None or not (there or (view.adopting and view.observed)):
        return
    seen = machine.status
    if view.vm.spec.adopt is not None:
        status.interfaces = seen.interfaces
    status.provider_id = machine.spec.provider_id or status.provider_id
    status.observed_power_state = seen.power_state
    status.observed_failure_domain = seen.failure_domain
    status.resources = seen.resources
    status.pending_changes = list(seen.pending_changes)
    status.addresses = list(seen.addresses or ())
    status.guest = seen.guest
    status.host = seen.host
    status.last_restart_time = seen.last_restart_time or status.last_restart_time
