"""Conditions as values: what a pass found, merged with what the object says already.

A condition informs people; no code reads one to decide. Merging keeps the transition time as long
as the status stays, which is what keeps a status write from following every pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from banlieue.api.conditions import ConditionType
from banlieue.api.meta import Condition, ConditionStatus
from banlieue.api.reasons import Reason

MAX_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition as this pass sees it, without times."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""


def true(kind: ConditionType, reason: Reason, message: str = "") -> Finding:
    """A condition that holds."""
    return Finding(kind, ConditionStatus.TRUE, reason, message)


def false(kind: ConditionType, reason: Reason, message: str = "") -> Finding:
    """A condition that does not hold; the message says what to do."""
    return Finding(kind, ConditionStatus.FALSE, reason, message)


def unknown(kind: ConditionType, reason: Reason, message: str = "") -> Finding:
    """A condition nobody can tell at the moment."""
    return Finding(kind, ConditionStatus.UNKNOWN, reason, message)


def merge(
    previous: Iterable[Condition],
    found: Iterable[Finding],
    *,
    generation: int | None,
    now: datetime,
) -> list[Condition]:
    """The complete condition list for a status write, sorted by type.

    Types that are not found any more are dropped. `generation` is the object's own.
    """
    before = {condition.type: condition for condition in previous}
    merged = []
    for finding in sorted(found, key=lambda item: item.type):
        old = before.get(finding.type)
        since = old.last_transition_time if old and old.status == finding.status else now
        message = shorten(finding.message)
        if old and _says(old) == (finding.status, finding.reason, message, generation):
            merged.append(old)  # a value: nobody changes one, and making it anew is dear
            continue
        merged.append(
            Condition(
                type=finding.type,
                status=finding.status,
                reason=finding.reason,
                message=message,
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return merged


def _says(condition: Condition) -> tuple[ConditionStatus, str, str, int | None]:
    return condition.status, condition.reason, condition.message, condition.observed_generation


def shorten(message: str) -> str:
    """The message within the 1 KiB a condition's message may have."""
    encoded = message.encode()
    if len(encoded) <= MAX_MESSAGE:
        return message
    return encoded[: MAX_MESSAGE - 3].decode(errors="ignore") + "…"
