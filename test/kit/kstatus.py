"""kstatus, as its rules are published: what GitOps tools make of an object's status. Pure.

The rules, in their order (sigs.k8s.io/cli-utils, package status, "generic" part):

1. an object with a deletionTimestamp is Terminating;
2. `status.observedGeneration` other than `metadata.generation`: InProgress;
3. the first in the list of: `Reconciling` True: InProgress; `Stalled` True: Failed;
4. condition `Ready` False or Unknown: InProgress, True: Current;
5. everything else, also an object without any status, is Current.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from banlieue.api.reasons import Reason
from banlieue.api.wording import ReasonClass

Object = Mapping[str, Any]

_REASONS = {reason.value: reason for reason in Reason}
_PASSING = frozenset(
    {
        Reason.INSUFFICIENT_CAPACITY,
        Reason.INSUFFICIENT_STORAGE,
        Reason.QUOTA_EXCEEDED,
        Reason.ANTI_AFFINITY_UNSATISFIED,
        Reason.IMAGE_NOT_READY,
        Reason.PROVIDER_NOT_READY,
        Reason.PROVIDER_PAUSED,
        Reason.PROVIDER_CORDONED,
        Reason.RECOVERY_PENDING,
        Reason.ADDRESS_PENDING,
        Reason.ADDRESS_POOL_EXHAUSTED,
        Reason.GUEST_AGENT_NOT_READY,
        Reason.WAITING_FOR_GRANT,
        Reason.WAITING_FOR_INFRASTRUCTURE,
    }
)
"""What ends without an edit of the object, beside everything that is tried again."""


class Status(StrEnum):
    """What a tool shows, and waits for: `Current`."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"


def status_of(obj: Object) -> Status:
    """What kstatus makes of an object."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return Status.TERMINATING
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata.get("generation"):
        return Status.IN_PROGRESS
    said = {it["type"]: it["status"] for it in status.get("conditions") or ()}
    decided = {"Reconciling": Status.IN_PROGRESS, "Stalled": Status.FAILED}
    first = next((kind for kind in said if kind in decided and said[kind] == "True"), None)
    if first is not None:
        return decided[first]
    if said.get("Ready") in {"False", "Unknown"}:
        return Status.IN_PROGRESS
    return Status.CURRENT


def faults_of(obj: Object) -> Iterator[str]:
    """What would have a tool that follows kstatus go wrong over one version of a status."""
    status = obj.get("status") or {}
    conditions = {it["type"]: it for it in status.get("conditions") or ()}
    if not conditions:
        return
    for kind in ("Reconciling", "Stalled"):
        if kind in conditions and conditions[kind]["status"] != "True":
            yield f"condition {kind} is there although it is not true"
    if {"Reconciling", "Stalled"} <= conditions.keys():
        yield "both Reconciling and Stalled are there"
    if "Ready" in conditions:
        yield from _ready_faults(obj, conditions)
    stalled = conditions.get("Stalled")
    if stalled and not _only_a_person_helps(stalled["reason"]):
        yield f"Stalled for {stalled['reason']}, which passes by itself: tools would give up"


def _ready_faults(obj: Object, conditions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A tool must wait as long as Ready is not true, and no longer."""
    found = status_of(obj)
    ready = conditions["Ready"]["status"] == "True"
    if found is Status.CURRENT and not ready:
        yield "kstatus says Current, and Ready is not true"
    if found is Status.FAILED and ready:
        yield "kstatus says Failed, and Ready is true"
    if ready and "observedGeneration" not in (obj.get("status") or {}):
        yield "Ready is told without observedGeneration: an edit would not be waited for"


def _only_a_person_helps(reason: str) -> bool:
    known = _REASONS.get(reason)
    return known is None or (
        known.kind not in {ReasonClass.TRANSIENT, ReasonClass.FACT} and known not in _PASSING
    )
