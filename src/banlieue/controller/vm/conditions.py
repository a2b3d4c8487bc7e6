"""The conditions and the phase of a VirtualMachine, from what a pass found. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from banlieue.api.conditions import ConditionType, Phase
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import ConditionStatus
from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine import ReadinessGate, VirtualMachine
from banlieue.api.v1alpha1.virtualmachine_status import Scheduled
from banlieue.api.wording import ReasonClass
from banlieue.sdk.conditions import Finding, false, true, unknown
from banlieue.sdk.outcome import CONTINUE, Outcome, Stop, Wait

MAKING = "the machine is being made"
LOOKING = "the machine to adopt is being looked for"

_HUMAN = frozenset({Reason.PROVIDER_PERMISSION_DENIED, Reason.OWNERSHIP_CONFLICT})
_FAILED = frozenset({Reason.OWNERSHIP_CONFLICT, Reason.VM_MISSING, Reason.BACKEND_IDENTITY_CHANGED})
_RUNNING = {
    PowerState.POWERED_ON: Phase.RUNNING,
    PowerState.POWERED_OFF: Phase.STOPPED,
    PowerState.SUSPENDED: Phase.SUSPENDED,
}
_CHANGING = {
    PowerState.POWERED_ON: Reason.POWERING_ON,
    PowerState.POWERED_OFF: Reason.POWERING_OFF,
    PowerState.SUSPENDED: Reason.SUSPENDING,
}
_REASONS = {reason.value: reason for reason in Reason}
_GATES = {
    ReadinessGate.ADDRESSES_AVAILABLE: ConditionType.ADDRESSES_AVAILABLE,
    ReadinessGate.GUEST_BOOTSTRAPPED: ConditionType.GUEST_BOOTSTRAPPED,
}
_SUMMED_UP = (
    ConditionType.SCHEDULED,
    ConditionType.INFRASTRUCTURE_READY,
    ConditionType.PROVISIONED,
)

_PASSING = frozenset(
    {
        ConditionType.READY,
        ConditionType.DELETING,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.PAUSED,
    }
)
_LASTING = {kind.value: kind for kind in ConditionType if kind not in _PASSING}
"""What is said of a VirtualMachine until it is gone."""


@dataclass(frozen=True, slots=True)
class View:
    """What one pass found.

    `found` are conditions the phases settled themselves; everything else is derived from the
    machine object and from what was known before.
    """

    vm: VirtualMachine
    machine: Machine | None = None
    scheduled: Scheduled | None = None
    gates: tuple[ReadinessGate, ...] = ()
    outcome: Outcome = CONTINUE
    found: Mapping[ConditionType, Finding] = field(default_factory=dict)
    moving: bool = False

    @property
    def deleting(self) -> bool:
        """Whether the VirtualMachine is being deleted."""
        return self.vm.metadata.deletion_timestamp is not None

    @property
    def provisioned(self) -> bool:
        """Whether the machine was ever seen on the backend; never goes back."""
        before = self.vm.status.initialization
        now = self.machine.status.initialization if self.machine else None
        return bool((before and before.provisioned) or (now and now.provisioned))

    @property
    def adopting(self) -> bool:
        """Whether the machine is to take over a VM and was not seen to have it yet."""
        return self.vm.spec.adopt is not None and not self.provisioned

    @property
    def observed(self) -> bool:
        """Whether there is a VM of which the provider tells, taken over or still to be."""
        status = self.machine.status if self.machine else None
        seen = status is not None and status.power_state is not None
        return self.provisioned or (self.adopting and seen)

    @property
    def caught_up(self) -> bool:
        """Whether the provider has looked at the machine's latest spec."""
        machine = self.machine
        return machine is not None and (
            machine.status.observed_generation == machine.metadata.generation
        )

    @property
    def reported(self) -> bool:
        """Whether the provider has written any status of this machine object."""
        return self.machine is not None and bool(self.machine.status.conditions)


def findings(view: View) -> list[Finding]:
    """Every condition the VirtualMachine has now."""
    if view.deleting:
        return _leaving(view)
    found = _derived(view)
    found.update(view.found)
    ready = _ready(view, found)
    found[ConditionType.READY] = ready
    stalled = _stalled(view, ready)
    if stalled:
        found[ConditionType.STALLED] = Finding(
            ConditionType.STALLED, ConditionStatus.TRUE, ready.reason, ready.message
        )
    elif failing := _reported(view, ConditionType.RECONCILING):
        found[ConditionType.RECONCILING] = failing  # told of a machine only where passes fail
    elif _in_progress(view, found):
        found[ConditionType.RECONCILING] = Finding(
            ConditionType.RECONCILING, ConditionStatus.TRUE, *_progress(view, found)
        )
    return list(found.values())


def _leaving(view: View) -> list[Finding]:
    """What is said to the end: why it is not gone yet, and all the rest as it was."""
    found = {
        _LASTING[it.type]: Finding(_LASTING[it.type], it.status, it.reason, it.message)
        for it in view.vm.status.conditions
        if it.type in _LASTING
    }
    found.update(view.found)
    if failing := _reported(view, ConditionType.RECONCILING):
        found[ConditionType.RECONCILING] = failing
    leaving = view.found.get(ConditionType.DELETING)
    if leaving is None:
        reason, message = Reason.DELETING, "waiting for the machine to go"
        if isinstance(view.outcome, Wait | Stop):
            reason, message = view.outcome.reason, view.outcome.message
        leaving = true(ConditionType.DELETING, reason, message)
        found[ConditionType.DELETING] = leaving
    found[ConditionType.READY] = Finding(
        ConditionType.READY, ConditionStatus.FALSE, leaving.reason, leaving.message
    )
    return list(found.values())


def phase(view: View, all_findings: Iterable[Finding]) -> Phase:
    """One word for people."""
    if view.deleting:
        return Phase.DELETING
    by_type = {finding.type: finding for finding in all_findings}
    infrastructure = by_type[ConditionType.INFRASTRUCTURE_READY]
    scheduled = by_type[ConditionType.SCHEDULED].status is ConditionStatus.TRUE
    answers = (
        (ConditionType.STALLED in by_type or infrastructure.reason in _FAILED, Phase.FAILED),
        (not scheduled and not view.provisioned, Phase.PENDING),
        (view.adopting, Phase.PENDING),
        (not view.provisioned, Phase.PROVISIONING),
        (view.moving, Phase.MIGRATING),
        (infrastructure.status is ConditionStatus.UNKNOWN, Phase.UNKNOWN),
        (_is_updating(by_type.get(ConditionType.RECONCILING)), Phase.UPDATING),
    )
    return next((answer for holds, answer in answers if holds), None) or _running(view)


def _is_updating(reconciling: Finding | None) -> bool:
    return reconciling is not None and reconciling.reason != Reason.INTERNAL_ERROR


def _running(view: View) -> Phase:
    machine = view.machine
    power = (machine.status.power_state if machine else None) or view.vm.status.observed_power_state
    return _RUNNING[power] if power else Phase.UNKNOWN


def _derived(view: View) -> dict[ConditionType, Finding]:
    found = [
        _scheduled(view),
        _placement(view),
        _image(view),
        _infrastructure(view),
        _provisioned(view),
        _power(view),
        _up_to_date(view),
        _addresses(view),
    ]
    for kind in (ConditionType.GUEST_BOOTSTRAPPED, ConditionType.HELD):
        reported = _reported(view, kind)
        if reported is not None and not _is_idle(view, reported):
            found.append(reported)
    told = {finding.type: finding for finding in found}
    if ReadinessGate.GUEST_BOOTSTRAPPED in view.gates:
        told.setdefault(ConditionType.GUEST_BOOTSTRAPPED, _bootstrap_untold(view))
    return told


def _is_idle(view: View, reported: Finding) -> bool:
    """Whether nobody asks for what is not there yet, and may never be: a guest's word."""
    asked = ReadinessGate.GUEST_BOOTSTRAPPED in view.gates
    return reported.reason == Reason.GUEST_BOOTSTRAP_PENDING and not asked


def _bootstrap_untold(view: View) -> Finding:
    """What is said of a gate that nobody opens; once the VM is there, its provider never will."""
    kind = ConditionType.GUEST_BOOTSTRAPPED
    if not view.observed or not view.reported:
        return unknown(kind, Reason.NOT_OBSERVED)
    return false(
        kind,
        Reason.UNSUPPORTED_BY_PROVIDER,
        "the Provider cannot tell whether the guest ran its first-boot data; "
        "take GuestBootstrapped out of readinessGates",
    )


def _scheduled(view: View) -> Finding:
    placed = view.scheduled
    if placed is None:
        return unknown(ConditionType.SCHEDULED, Reason.NOT_OBSERVED, "no place was chosen yet")
    domain = f"in failure domain {placed.failure_domain} of" if placed.failure_domain else "on"
    return true(
        ConditionType.SCHEDULED,
        Reason.SCHEDULED,
        f"placed {domain} Provider {placed.provider_name}",
    )


def _placement(view: View) -> Finding:
    if view.scheduled is None:
        return unknown(ConditionType.PLACEMENT_VALID, Reason.NOT_OBSERVED, "not placed yet")
    return true(ConditionType.PLACEMENT_VALID, Reason.PLACEMENT_VALID)


def _image(view: View) -> Finding:
    if view.scheduled is None:
        return unknown(ConditionType.IMAGE_READY, Reason.NOT_OBSERVED, "not placed yet")
    return true(ConditionType.IMAGE_READY, Reason.IMAGE_READY)


def _infrastructure(view: View) -> Finding:
    kind = ConditionType.INFRASTRUCTURE_READY
    if view.scheduled is None:
        return unknown(kind, Reason.NOT_OBSERVED, "not placed yet")
    if view.machine is None or not view.reported:
        if view.provisioned:
            return unknown(
                kind,
                Reason.WAITING_FOR_INFRASTRUCTURE,
                "the machine's object was made again and its provider has not found it yet",
            )
        adopting = (Reason.ADOPTION_PENDING, LOOKING)
        return false(kind, *(adopting if view.adopting else (Reason.CREATING, MAKING)))
    ready = _reported(view, ConditionType.READY)
    if ready is None:
        return unknown(kind, Reason.NOT_OBSERVED)
    if not view.provisioned and _kind(ready.reason) is ReasonClass.FACT:
        return false(kind, Reason.CREATING, MAKING)
    return Finding(kind, ready.status, ready.reason, ready.message)


def _provisioned(view: View) -> Finding:
    kind = ConditionType.PROVISIONED
    if view.provisioned:
        return true(kind, Reason.PROVISIONED)
    if view.scheduled is None:
        return false(kind, Reason.NOT_PROVISIONED, "not placed yet")
    infrastructure = _infrastructure(view)
    return Finding(kind, ConditionStatus.FALSE, infrastructure.reason, infrastructure.message)


def _power(view: View) -> Finding:
    kind = ConditionType.POWER_STATE_SYNCED
    machine = view.machine
    if not view.observed or machine is None or not view.reported:
        return unknown(kind, Reason.NOT_OBSERVED)
    reported = _reported(view, kind)
    observed = machine.status.power_state
    wanted = view.vm.spec.wanted_power_state or observed
    if reported is None or (reported.status is ConditionStatus.TRUE and wanted is not observed):
        if observed is None or wanted is None:
            return unknown(kind, Reason.NOT_OBSERVED)
        if observed is wanted:
            return true(kind, Reason.POWER_STATE_SYNCED)
        return false(kind, _CHANGING[wanted], f"it is {observed} and becomes {wanted}")
    return reported


def _up_to_date(view: View) -> Finding:
    kind = ConditionType.UP_TO_DATE
    if not view.observed or not view.reported:
        return unknown(kind, Reason.NOT_OBSERVED)
    reported = _reported(view, kind)
    if reported is None:
        return unknown(kind, Reason.NOT_OBSERVED)
    if reported.status is ConditionStatus.TRUE and not view.caught_up:
        return false(kind, Reason.UPDATING, "the latest change of the spec is being made")
    return reported


def _addresses(view: View) -> Finding:
    kind = ConditionType.ADDRESSES_AVAILABLE
    if not view.observed or not view.reported:
        return unknown(kind, Reason.NOT_OBSERVED)
    return _reported(view, kind) or unknown(kind, Reason.NOT_OBSERVED)


def _reported(view: View, kind: ConditionType) -> Finding | None:
    """What the provider says about the machine, in the uniform words."""
    for condition in view.machine.status.conditions if view.machine else ():
        if condition.type == kind:
            return Finding(kind, condition.status, condition.reason, condition.message)
    return None


def _kind(reason: str) -> ReasonClass | None:
    """What a reason asks for; None for the word of a provider newer than this controller."""
    known = _REASONS.get(reason)
    return known.kind if known else None


def _ready(view: View, found: Mapping[ConditionType, Finding]) -> Finding:
    gates = tuple(_GATES[gate] for gate in view.gates)
    for kind in (*_SUMMED_UP, *gates):
        finding = found.get(kind) or unknown(kind, Reason.NOT_OBSERVED)
        if not _passes(finding):
            status = finding.status
            return Finding(ConditionType.READY, status, finding.reason, finding.message)
    return true(ConditionType.READY, Reason.READY)


def _passes(finding: Finding) -> bool:
    """Whether Ready may be true; nobody waits for the addresses of a machine that is off."""
    return finding.status is ConditionStatus.TRUE or finding.reason == Reason.ADDRESSES_NOT_EXPECTED


def _stalled(view: View, ready: Finding) -> bool:
    """Only where nothing but an edit or a right can help: others would make GitOps tools fail."""
    if ready.status is ConditionStatus.TRUE:
        return False
    return (
        isinstance(view.outcome, Stop)
        or _kind(ready.reason) is ReasonClass.SPEC
        or ready.reason in _HUMAN
    )


def _in_progress(view: View, found: Mapping[ConditionType, Finding]) -> bool:
    if view.scheduled is None:
        return False
    infrastructure = found[ConditionType.INFRASTRUCTURE_READY]
    if not view.provisioned:
        return _kind(infrastructure.reason) is ReasonClass.FACT
    power = found[ConditionType.POWER_STATE_SYNCED]
    return (
        _moves_on(found)
        or not view.reported
        or infrastructure.reason == Reason.RESTARTING
        or found[ConditionType.UP_TO_DATE].reason == Reason.UPDATING
        or (power.status is ConditionStatus.FALSE and _kind(power.reason) is ReasonClass.FACT)
    )


def _moves_on(found: Mapping[ConditionType, Finding]) -> bool:
    """Whether a move goes on by itself; one that failed waits for a person."""
    move = found.get(ConditionType.MIGRATING)
    return move is not None and move.status is ConditionStatus.TRUE


def _progress(view: View, found: Mapping[ConditionType, Finding]) -> tuple[str, str]:
    if not view.provisioned:
        return Reason.CREATING, MAKING
    if _moves_on(found):
        return Reason.MIGRATING, found[ConditionType.MIGRATING].message
    power = found[ConditionType.POWER_STATE_SYNCED]
    if power.status is ConditionStatus.FALSE and _kind(power.reason) is ReasonClass.FACT:
        return power.reason, power.message
    return Reason.UPDATING, "a change is being made"
