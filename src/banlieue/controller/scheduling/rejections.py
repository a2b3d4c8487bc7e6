"""Why a machine has no place, as a condition's reason and message.

The closest misses come first and equal ones are told once. The message stays the same while only
figures move, so that nobody has to write it again for that.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling.placement import Demand, Rejection, Unplaced
from banlieue.controller.scheduling.quantities import gib

MAX_MESSAGE = 1000
"""Bytes of a message; a condition may have 1024."""

_SHOWN_NAMES = 3
_ROOM_FOR_REST = len("; and 99999 more")

_PLATFORM = "ask the platform team"

_REMEDIES = {
    Reason.PROVIDER_NOT_READY: f"it is placed when a Provider is Ready; else {_PLATFORM}",
    Reason.PROVIDER_PAUSED: f"it is placed when the Provider is resumed; else {_PLATFORM}",
    Reason.PROVIDER_READ_ONLY: f"it is placed when mode is ReadWrite again; else {_PLATFORM}",
    Reason.PROVIDER_CORDONED: f"it is placed when the Provider is uncordoned; else {_PLATFORM}",
    Reason.PROVIDER_DELETING: "choose another Provider in providerRef or "
    "placement.providerSelector",
    Reason.NO_PROVIDER_MATCHED: "relax providerRef or placement.providerSelector, or "
    f"{_PLATFORM} for a Provider",
    Reason.NO_FAILURE_DOMAIN_MATCHED: f"relax placement.failureDomainSelector or {_PLATFORM} to "
    "open a failure domain",
    Reason.FAILURE_DOMAIN_CORDONED: f"it is placed when a failure domain opens; else {_PLATFORM}",
    Reason.IMAGE_NOT_READY: f"wait for the image of imageRef, or {_PLATFORM} to offer it there",
    Reason.ARCHITECTURE_UNSUPPORTED: "use an image of an architecture that is there in imageRef",
    Reason.FIRMWARE_UNSUPPORTED: "use a class and an image whose firmware agree",
    Reason.IMAGE_TOO_LARGE: "give disk root more sizeGiB in spec.disks or in the class",
    Reason.USER_DATA_INVALID: "leave those fields out, or use an image that reads them",
    Reason.IMAGE_AGENT_MISSING: "leave the gate out of readinessGates, or use an image with an "
    "agent",
    Reason.STORAGE_CLASS_NOT_AVAILABLE: "use a storageClass that is offered there, in spec.disks "
    "or by another class",
    Reason.DISK_NOT_FOUND: "correct `existing` in spec.disks; the id was told when the disk was "
    "retained, and its Provider lists it in status.retainedDisks",
    Reason.NETWORK_NOT_AVAILABLE: "use a network class and addresses that are offered there, in "
    "spec.networkInterfaces or by another class",
    Reason.FEATURE_UNSUPPORTED: "use a class without it in classRef, or a Provider that has it",
    Reason.INSUFFICIENT_CAPACITY: "choose a smaller class in classRef or ask the platform team "
    "for capacity",
    Reason.ANTI_AFFINITY_UNSATISFIED: "relax placement.antiAffinity or add failure domains",
}
_CONTRADICTIONS = frozenset(
    {
        Reason.FIRMWARE_UNSUPPORTED,
        Reason.IMAGE_TOO_LARGE,
        Reason.USER_DATA_INVALID,
        Reason.IMAGE_AGENT_MISSING,
    }
)
_DEFAULT_REMEDY = "it is placed as soon as a Provider can take it"


def remedy(reason: Reason) -> str:
    """What to do about it, naming the field where there is one."""
    return _REMEDIES.get(reason, _DEFAULT_REMEDY)


def closest_first(rejections: Iterable[Rejection]) -> tuple[Rejection, ...]:
    """Those that passed most filters first; equal ones by name."""
    return tuple(sorted(rejections, key=lambda it: (-it.rank, it.provider, it.domain)))


def unplaced(demand: Demand, ordered: Sequence[Rejection]) -> Unplaced:
    """The answer when nobody can take the machine.

    Args:
        demand: what it needs.
        ordered: every candidate, the closest miss first.
    """
    if not ordered:
        return Unplaced(
            Reason.NO_PROVIDER_MATCHED,
            f"no Provider allows namespace {demand.key.namespace}; {_PLATFORM} for one",
        )
    reason = ordered[0].reason
    return Unplaced(reason, _message(demand, ordered, reason), tuple(ordered), _is_lasting(ordered))


def no_such_provider(demand: Demand) -> Unplaced:
    """One answer for a Provider that is not there and one that is not the tenant's business."""
    return Unplaced(
        Reason.PROVIDER_NOT_ALLOWED,
        f"Provider {demand.provider_ref} does not exist or does not allow namespace "
        f"{demand.key.namespace}; correct spec.providerRef or {_PLATFORM}",
    )


def _is_lasting(rejections: Iterable[Rejection]) -> bool:
    """Whether spec, class and image contradict each other everywhere: waiting cannot help."""
    return all(rejection.reason in _CONTRADICTIONS for rejection in rejections)


def _message(demand: Demand, ordered: Sequence[Rejection], reason: Reason) -> str:
    """Head, as many groups of candidates as fit, and what to do."""
    domains = sum(bool(rejection.domain) for rejection in ordered)
    what = f"{demand.cpus} vCPU/{gib(demand.memory_mib)}"
    counted = _count(domains, "failure domain") if domains else _count(len(ordered), "Provider")
    head, tail = f"none of {counted} can take {what}", f"; {remedy(reason)}"
    room = MAX_MESSAGE - _size(head) - _size(tail) - len(" ()") - _ROOM_FOR_REST
    shown: list[str] = []
    told = 0
    for group in _groups(ordered):
        text = _told(group)
        if shown and _size(text) + len("; ") > room:
            break
        shown.append(_cut(text, room))
        room -= _size(text) + len("; ")
        told += len(group)
    rest = len(ordered) - told
    more = f"; and {rest} more" if rest else ""
    return f"{head} ({'; '.join(shown)}{more}){tail}"


def _groups(ordered: Sequence[Rejection]) -> list[list[Rejection]]:
    """Candidates that failed at the same filter in the same way, together."""

    def same(rejection: Rejection) -> tuple[int, str, bool]:
        return -rejection.rank, rejection.detail, not rejection.domain

    return [list(group) for _, group in groupby(sorted(ordered, key=same), key=same)]


def _told(group: Sequence[Rejection]) -> str:
    names = [it.domain or str(it.provider) for it in group[:_SHOWN_NAMES]]
    named = ", ".join(names)
    if len(group) > len(names):
        named += f" and {len(group) - len(names)} more"
    if not group[0].domain:
        named = f"Provider{'s' if len(group) > 1 else ''} {named}"
    return f"{named}: {group[0].detail}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _size(text: str) -> int:
    return len(text.encode())


def _cut(text: str, room: int) -> str:
    encoded = text.encode()
    if len(encoded) <= room:
        return text
    return encoded[: max(0, room - len("…".encode()))].decode(errors="ignore") + "…"
