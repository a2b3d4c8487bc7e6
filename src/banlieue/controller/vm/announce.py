"""Events about what a pass changed for the user: the difference of two statuses. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from banlieue.api.conditions import ConditionType
from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine_status import VirtualMachineStatus

_POWER = {
    PowerState.POWERED_ON: (EventReason.POWERED_ON, "The machine was started"),
    PowerState.POWERED_OFF: (EventReason.POWERED_OFF, "The machine was stopped"),
    PowerState.SUSPENDED: (EventReason.SUSPENDED, "The machine was suspended"),
}
_TROUBLE = {
    Reason.OWNERSHIP_CONFLICT: EventReason.OWNERSHIP_CONFLICT,
    Reason.VM_MISSING: EventReason.VM_MISSING,
    Reason.PROVIDER_UNREACHABLE: EventReason.PROVIDER_UNREACHABLE,
    Reason.PROVISIONING_FAILED: EventReason.PROVISIONING_FAILED,
    Reason.SHUTDOWN_TIMED_OUT: EventReason.SHUTDOWN_TIMED_OUT,
}


@dataclass(frozen=True, slots=True)
class Note:
    """One event to record."""

    reason: EventReason
    message: str
    warning: bool = False


def notes(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    """What happened between two statuses, in the past tense; at most one note of a kind."""
    if _provisioned(after) and not _provisioned(before):
        place = after.scheduled.provider_name if after.scheduled else "its Provider"
        yield Note(EventReason.PROVISIONED, f"The machine was seen on Provider {place}")
    yield from _power(before, after)
    yield from _moves(before, after)
    yield from _grown(before, after)
    yield from _hardware(before, after)
    yield from _drift(before, after)
    yield from _place(before, after)
    yield from _addresses(before, after)
    yield from _trouble(before, after)


def _grown(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    old, new = _sizes(before), _sizes(after)
    grown = [name for name in sorted(new) if name in old and new[name] > old[name]]
    if grown:
        told = ", ".join(f"{name} to {new[name]} GiB" for name in grown)
        yield Note(EventReason.DISK_GROWN, f"Disks were grown: {told}")


def _sizes(status: VirtualMachineStatus) -> dict[str, int]:
    disks = status.resources.disks if status.resources else ()
    return {disk.name: disk.size_gib for disk in disks if disk.size_gib is not None}


def _hardware(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    """A machine that took the place of another is no resize."""
    old, new = before.resources, after.resources
    if old and new and before.infrastructure_ref == after.infrastructure_ref:
        size = (new.cpus, new.memory_mib)
        if None not in {old.cpus, old.memory_mib, *size} and (old.cpus, old.memory_mib) != size:
            told = f"The machine was resized to {new.cpus} CPUs and {new.memory_mib} MiB"
            yield Note(EventReason.RESIZED, told)
    if _begun(before, after, ConditionType.UP_TO_DATE, Reason.RESTART_REQUIRED):
        fields = ", ".join(after.pending_changes)
        yield Note(EventReason.RESTART_REQUIRED, f"A change was put off to a restart: {fields}")


def _drift(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    power, rest = (
        _begun(before, after, kind, Reason.DRIFT_DETECTED)
        for kind in (ConditionType.POWER_STATE_SYNCED, ConditionType.UP_TO_DATE)
    )
    fields = [*(("powerState",) if power else ()), *(after.pending_changes if rest else ())]
    if fields:
        told = f"The machine was changed on its backend: {', '.join(fields)}"
        yield Note(EventReason.DRIFT_DETECTED, told, warning=True)


def _begun(
    before: VirtualMachineStatus, after: VirtualMachineStatus, kind: ConditionType, reason: Reason
) -> bool:
    """Whether a condition has this reason since now."""
    return _condition(after, kind)[0] == reason != _condition(before, kind)[0]


def _moves(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    record = after.move or before.move
    target = record.provider_name if record else "another Provider"
    begun = after.incoming_ref is not None and before.incoming_ref is None
    if begun or (_rebinds(after) and not _rebinds(before)):
        yield Note(EventReason.MIGRATION_STARTED, f"A move to Provider {target} was begun")
    came = before.incoming_ref is not None and after.infrastructure_ref == before.incoming_ref
    if came or (_rebinds(before) and not _rebinds(after)):
        yield Note(EventReason.MIGRATION_COMPLETED, f"The machine was moved to Provider {target}")
    old, new = (
        _condition(before, ConditionType.MIGRATING),
        _condition(after, ConditionType.MIGRATING),
    )
    if new[0] == Reason.MIGRATION_FAILED and old[0] != new[0]:
        yield Note(EventReason.MIGRATION_FAILED, new[1], warning=True)


def _place(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    """A machine that took the place of another was moved by us, not by its backend."""
    old, new = before.observed_failure_domain, after.observed_failure_domain
    if new is None or before.infrastructure_ref != after.infrastructure_ref:
        return
    # One that was elsewhere than it was placed when it was seen first has no place before.
    elsewhere = _begun(before, after, ConditionType.PLACEMENT_VALID, Reason.MOVED_BY_BACKEND)
    if (old is not None and old != new) or (old is None and elsewhere):
        told = f"The machine was moved to failure domain {new} on its backend"
        yield Note(EventReason.MOVED_BY_BACKEND, told)


def _addresses(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    """Only from none to some, and back: what guests add and drop in between is no news."""
    if after.addresses and not before.addresses:
        found = after.addresses[0].address
        yield Note(EventReason.ADDRESS_ASSIGNED, f"Address {found} became known")
    if before.addresses and not after.addresses and _should_have_addresses(before, after):
        lost = before.addresses[0].address
        yield Note(EventReason.ADDRESS_LOST, f"Address {lost} went away", warning=True)


def _should_have_addresses(before: VirtualMachineStatus, after: VirtualMachineStatus) -> bool:
    """Whether the same machine ran on; one that was stopped, restarted or replaced says so."""
    running = {before.observed_power_state, after.observed_power_state} == {PowerState.POWERED_ON}
    restarting = Reason.RESTARTING in {_infrastructure(before)[0], _infrastructure(after)[0]}
    restarted = before.last_restart_time != after.last_restart_time
    same = before.infrastructure_ref == after.infrastructure_ref
    return running and same and not restarting and not restarted


def _rebinds(status: VirtualMachineStatus) -> bool:
    return status.incoming_ref is None and bool(status.move and status.move.rebind)


def _power(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    """A machine that appears running needs no second event beside Provisioned."""
    old, new = before.observed_power_state, after.observed_power_state
    if old is not None and new is not None and old is not new:
        yield Note(*_POWER[new])


def _trouble(before: VirtualMachineStatus, after: VirtualMachineStatus) -> Iterator[Note]:
    old, _ = _infrastructure(before)
    new, message = _infrastructure(after)
    if old == new:
        return
    if old == Reason.PROVIDER_UNREACHABLE:
        yield Note(EventReason.PROVIDER_RECOVERED, "The Provider answers again")
    for reason, event in _TROUBLE.items():
        if new == reason:
            yield Note(event, message, warning=True)


def _provisioned(status: VirtualMachineStatus) -> bool:
    return bool(status.initialization and status.initialization.provisioned)


def _infrastructure(status: VirtualMachineStatus) -> tuple[str, str]:
    return _condition(status, ConditionType.INFRASTRUCTURE_READY)


def _condition(status: VirtualMachineStatus, kind: ConditionType) -> tuple[str, str]:
    for condition in status.conditions:
        if condition.type == kind:
            return condition.reason, condition.message
    return "", ""
