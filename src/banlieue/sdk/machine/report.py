"""The machine's status as one value, computed from what a pass found. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from banlieue.api.conditions import ConditionType
from banlieue.api.devices import (
    Guest,
    MachineAddress,
    ObservedDisk,
    ObservedInterface,
    ObservedResources,
)
from banlieue.api.infrastructure.machine import (
    BackendError,
    CreateRefused,
    Failures,
    Initialization,
    Machine,
    MachineStatus,
    Missing,
    Move,
)
from banlieue.api.infrastructure.machine_status import SeedStatus
from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.sdk.conditions import Finding, false, merge, true, unknown
from banlieue.sdk.driver import MachineState, NicState, Task
from banlieue.sdk.errors import DriverError, Refused
from banlieue.sdk.machine import wording
from banlieue.sdk.machine.disk_drift import DiskProblem
from banlieue.sdk.machine.drift import DISKS, NICS, POWER, Desired
from banlieue.sdk.machine.stopped import task_status
from banlieue.sdk.machine.strays import is_stray
from banlieue.sdk.outcome import Outcome, Stop, Wait
from banlieue.sdk.upkeep import Shortfall

_NOBODY_KNOWS = frozenset({Reason.PROVIDER_UNREACHABLE, Reason.ABSENCE_UNPROVEN})


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a status is made of.

    `missing` tells that this pass proved that a VM that was there is gone. `move` is where the VM
    stands in moves by its mark. `domain` is the
    published name of the observed place, `interfaces` are the names of network interfaces that are
    to be added or removed, `retained` the ids disks are kept under.
    """

    machine: Machine
    outcome: Outcome
    now: datetime
    seen: MachineState | None = None
    missing: bool = False
    move: Move | None = None
    domain: str | None = None
    differing: tuple[str, ...] = ()
    waits_for_restart: bool = False
    disks: DiskProblem | None = None
    retained: Mapping[str, str] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    wanted: Desired | None = None
    restarted: datetime | None = None
    interfaces: tuple[str, ...] = ()
    task: Task | None = None
    failures: int = 0
    next_attempt: datetime | None = None
    error: DriverError | None = None
    paused: str | None = None
    seed: SeedStatus | None = None
    first_boot: tuple[Finding, ...] = ()


def status_of(report: Report) -> MachineStatus:
    """The complete status; what this pass did not look at stays as it was."""
    machine, before = report.machine, report.machine.status
    status = before.model_copy(deep=True)
    provisioned = machine.spec.provider_id is not None
    if provisioned:
        status.initialization = Initialization(provisioned=True)
    if report.seen is not None:
        _observed(status, report.seen, report.domain or before.failure_domain)
        for disk in status.resources.disks if status.resources else ():
            disk.retain_id = report.retained.get(disk.name)
        status.pending_changes = _pending(report)
        status.create_refused = None
    status.missing = (before.missing or Missing(since=report.now)) if report.missing else None
    status.move = report.move
    status.seed = report.seed
    status.last_restart_time = report.restarted or before.last_restart_time
    status.task = task_status(before.task, report.task, report.now)
    status.failures = Failures(count=report.failures) if report.failures else None
    status.next_attempt = report.next_attempt
    status.last_backend_error = _backend_error(before.last_backend_error, report)
    if isinstance(report.error, Refused) and not provisioned and machine.spec.placement:
        status.create_refused = CreateRefused(
            failure_domain=machine.spec.placement.failure_domain, reason=report.error.reason
        )
    if not isinstance(report.outcome, Wait):
        status.observed_generation = machine.metadata.generation
    status.conditions = merge(
        before.conditions,
        _conditions(report, status),
        generation=machine.metadata.generation,
        now=report.now,
    )
    hints = {"failures": before.failures, "next_attempt": before.next_attempt}
    if status.model_copy(update=hints) == before:
        return before  # that it failed once more is not worth a write
    return status


def paused_status(machine: Machine, why: str, now: datetime) -> MachineStatus:
    """The status of a paused machine: as it was, but for the Paused condition.

    One that nobody made says so in Ready too, where people look first.
    """
    status = machine.status.model_copy(deep=True)
    told = [true(ConditionType.PAUSED, Reason.PAUSED, why)]
    if is_stray(machine):
        told.append(false(ConditionType.READY, Reason.NOT_REFERENCED, why))
    about = {finding.type.value for finding in told}
    others = [item for item in status.conditions if item.type not in about]
    merged = merge(status.conditions, told, generation=machine.metadata.generation, now=now)
    status.conditions = sorted([*others, *merged], key=lambda item: item.type)
    return status


def _observed(status: MachineStatus, seen: MachineState, domain: str | None) -> None:
    status.backend_id = seen.backend_id
    status.power_state = seen.power
    status.failure_domain = domain
    status.host = seen.host
    status.facts = {name: fact for name, fact in seen.facts.items() if name.isalnum()}
    status.addresses = [
        MachineAddress.from_api({"type": item.type, "address": item.address})
        for item in seen.addresses
    ]
    status.resources = ObservedResources(
        cpus=seen.cpus,
        memory_mib=seen.memory_mib,
        disks=[
            ObservedDisk(name=disk.name, size_gib=disk.size_gib, guest_path=disk.guest_path)
            for disk in seen.disks
            if disk.name is not None
        ],
    )
    status.interfaces = _interfaces(seen.nics)
    guest = seen.guest
    status.guest = Guest(
        hostname=guest.hostname, os_name=guest.os_name, agent_connected=guest.agent_connected
    )


def _interfaces(nics: tuple[NicState, ...] | None) -> list[ObservedInterface] | None:
    """Our interfaces as they are; None where the driver cannot tell which these are."""
    if nics is None:
        return None
    named = {
        nic.name: ObservedInterface(
            name=nic.name, connected=nic.connected, mac_address=nic.mac_address
        )
        for nic in nics
        if nic.name is not None
    }
    return list(named.values())


def _backend_error(before: BackendError | None, report: Report) -> BackendError | None:
    if report.error is None:
        return before if isinstance(report.outcome, Wait) else None
    native = report.error.native
    if native is None:
        return before
    if before is not None and (before.code, before.message) == (native.code, native.message):
        return before
    return BackendError(code=native.code, message=native.message, time=report.now)


def _conditions(report: Report, status: MachineStatus) -> list[Finding]:
    findings = [
        _ready(report),
        _provisioned(report, status),
        _power(report),
        _up_to_date(report),
        _addresses(report, status),
        false(ConditionType.PAUSED, Reason.NOT_PAUSED),
    ]
    findings.extend(report.first_boot)
    if report.machine.metadata.deletion_timestamp is not None:
        reason, message = _why(report.outcome)
        findings.append(true(ConditionType.DELETING, reason, message))
    if report.seen is not None and report.seen.held:
        findings.append(
            true(ConditionType.HELD, Reason.HELD_BY_BACKEND, "an admin holds the VM on the backend")
        )
    return findings


def _why(outcome: Outcome) -> tuple[Reason, str]:
    if isinstance(outcome, Wait | Stop):
        return outcome.reason, outcome.message
    return Reason.READY, ""


def _ready(report: Report) -> Finding:
    reason, message = _why(report.outcome)
    if isinstance(report.outcome, Wait) and reason in _NOBODY_KNOWS:
        return unknown(ConditionType.READY, reason, message)
    if isinstance(report.outcome, Wait | Stop):
        return false(ConditionType.READY, reason, message)
    if POWER in report.differing:
        return false(
            ConditionType.READY,
            Reason.DRIFT_DETECTED,
            "the power state was changed on the backend; set the desired power state anew",
        )
    return true(ConditionType.READY, Reason.READY)


def _provisioned(report: Report, status: MachineStatus) -> Finding:
    if status.initialization is not None and status.initialization.provisioned:
        return true(ConditionType.PROVISIONED, Reason.PROVISIONED)
    reason, message = _why(report.outcome)
    return false(ConditionType.PROVISIONED, reason, message)


def _pending(report: Report) -> list[str]:
    disks = (DISKS,) if report.disks else ()
    # Before a VM is adopted its power is no drift yet, but something that would be changed.
    told_apart = set() if _why(report.outcome)[0] is Reason.ADOPTION_PENDING else {POWER}
    lacking = {shortfall.field for shortfall in report.shortfalls}
    return sorted({*report.differing, *report.unsupported, *disks, *lacking} - told_apart)


def _as_before(report: Report, kind: ConditionType) -> Finding:
    """A condition this pass did not look at: what it said, Unknown if it never said anything."""
    for item in report.machine.status.conditions:
        if item.type == kind:
            return Finding(kind, item.status, item.reason, item.message)
    return unknown(kind, Reason.NOT_OBSERVED)


def _power(report: Report) -> Finding:
    if isinstance(report.outcome, Wait) and report.outcome.reason is Reason.VM_PAUSED:
        return false(ConditionType.POWER_STATE_SYNCED, *_why(report.outcome))
    if report.seen is None:
        return _unseen_power(report)
    if POWER not in report.differing:
        return true(ConditionType.POWER_STATE_SYNCED, Reason.POWER_STATE_SYNCED)
    reason, message = _why(report.outcome)
    if isinstance(report.outcome, Wait):
        return false(ConditionType.POWER_STATE_SYNCED, reason, message)
    return false(ConditionType.POWER_STATE_SYNCED, Reason.DRIFT_DETECTED, "changed on the backend")


def _unseen_power(report: Report) -> Finding:
    """What is known of the power state without a look: a guest that did not stop in time is on."""
    reason, message = _why(report.outcome)
    machine = report.machine
    if (
        reason is Reason.SHUTDOWN_TIMED_OUT
        and machine.status.power_state is not machine.spec.wanted_power_state
    ):
        return false(ConditionType.POWER_STATE_SYNCED, reason, message)
    return _as_before(report, ConditionType.POWER_STATE_SYNCED)


def _up_to_date(report: Report) -> Finding:
    if report.seen is None:
        return _as_before(report, ConditionType.UP_TO_DATE)
    pending = _pending(report)
    return (
        _not_yet(report, pending) if pending else true(ConditionType.UP_TO_DATE, Reason.UP_TO_DATE)
    )


def _not_yet(report: Report, pending: list[str]) -> Finding:
    """Why fields of the spec are not in force."""
    if report.disks and pending == [DISKS] and not isinstance(report.outcome, Wait):
        return false(ConditionType.UP_TO_DATE, report.disks.reason, report.disks.message)
    lacking = {shortfall.field: shortfall for shortfall in report.shortfalls}
    if lacking and set(pending) <= set(lacking) and not isinstance(report.outcome, Wait):
        told = "; ".join(f"{name}: {lacking[name].message}" for name in pending)
        return false(ConditionType.UP_TO_DATE, lacking[pending[0]].reason, told)
    named = ", ".join(_named(report, field) for field in pending)
    if report.unsupported:
        named = ", ".join(_seen_instead(report, field) for field in pending)
        reason, message = Reason.UNSUPPORTED_BY_PROVIDER, "the Provider cannot do this yet; undo it"
    elif report.waits_for_restart:
        reason, message = Reason.RESTART_REQUIRED, "takes effect when it is stopped and started"
    elif isinstance(report.outcome, Wait):
        return false(ConditionType.UP_TO_DATE, *_why(report.outcome))
    elif pending == report.machine.status.pending_changes:
        return _as_before(report, ConditionType.UP_TO_DATE)
    else:
        reason, message = Reason.DRIFT_DETECTED, "changed on the backend"
    return false(ConditionType.UP_TO_DATE, reason, f"{named}: {message}")


def _seen_instead(report: Report, field: str) -> str:
    """A field with what is asked for and what is there, for whoever has to undo it."""
    if report.wanted is None or report.seen is None:
        return _named(report, field)
    return wording.told(field, report.wanted, report.seen, report.interfaces)


def _named(report: Report, field: str) -> str:
    """A field as people are told of it: interfaces by their names."""
    if field == NICS and report.interfaces:
        return f"{field} ({', '.join(report.interfaces)})"
    return field


def _addresses(report: Report, status: MachineStatus) -> Finding:
    if report.seen is None:
        return _as_before(report, ConditionType.ADDRESSES_AVAILABLE)
    # A name is no address yet: nobody may be able to resolve it.
    if any(item.type.endswith("IP") for item in status.addresses or ()):
        return true(ConditionType.ADDRESSES_AVAILABLE, Reason.ADDRESSES_AVAILABLE)
    if report.seen.power is not PowerState.POWERED_ON:
        return false(
            ConditionType.ADDRESSES_AVAILABLE,
            Reason.ADDRESSES_NOT_EXPECTED,
            "the VM is not running",
        )
    if not report.seen.guest.agent_connected:
        return false(
            ConditionType.ADDRESSES_AVAILABLE,
            Reason.ADDRESS_PENDING,
            "waiting for the guest agent to report an address",
        )
    return false(
        ConditionType.ADDRESSES_AVAILABLE, Reason.ADDRESS_PENDING, "waiting for an address"
    )
