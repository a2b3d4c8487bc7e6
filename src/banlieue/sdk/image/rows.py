"""What a Provider's row of VMImage status says, from what was found. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.vmimage import ImageSource, ProviderImageStatus, VMImage
from banlieue.sdk.driver import FailureDomain, Image
from banlieue.sdk.errors import DriverError, InvalidSpec
from banlieue.sdk.image.ports import ImageImport, ImportTask

STEP = 10
"""Percent between two progresses that are written."""

_SHOWN = 5
_UNSUCCESSFUL = frozenset({Reason.IMAGE_IMPORT_FAILED, Reason.IMAGE_CHECKSUM_MISMATCH})
_UNTOLD = frozenset({Reason.IMPORTING, *_UNSUCCESSFUL})


@dataclass(frozen=True, slots=True)
class Places:
    """Where a Provider's failure domains have an image; `names` are those they are published as.

    `imports` tells whether the backend's driver can bring the image to a place that lacks it,
    `copied` that one was brought before. `problems` say what is wrong with the image at places
    that have it and cannot use it.
    """

    found: Sequence[tuple[FailureDomain, Image | None]]
    names: Mapping[str, str]
    imports: bool
    copied: bool = False
    problems: tuple[str, ...] = ()

    @property
    def lacking(self) -> list[FailureDomain]:
        """Places without it, by name."""
        lacking = [where for where, image in self.found if image is None]
        return sorted(lacking, key=lambda where: self.names.get(where.id, where.id))

    @property
    def nameless(self) -> bool:
        """Whether a place has no name yet, so that nobody could be told of it."""
        return any(where.id not in self.names for where, _ in self.found)


def row_of(image: VMImage, provider: Provider) -> ProviderImageStatus | None:
    """The Provider's own row, None when there is none."""
    mine = (provider.metadata.namespace, provider.metadata.name)
    for row in image.status.per_provider:
        if (row.provider_namespace, row.provider_name) == mine:
            return row
    return None


def empty(provider: Provider, known: ProviderImageStatus | None) -> ProviderImageStatus:
    """A row that says nothing but whose it is, and what it brought here before."""
    return ProviderImageStatus(
        provider_namespace=provider.metadata.namespace or "",
        provider_name=provider.metadata.name,
        ready=False,
        copies=list(known.copies) if known else [],
    )


def of_places(
    provider: Provider,
    known: ProviderImageStatus | None,
    source: ImageSource,
    places: Places,
    copy: ImageImport | None,
) -> ProviderImageStatus:
    """The row of what was found, before anything is imported."""
    row = empty(provider, known)
    if copy is not None and places.copied:
        leaves_copy(row, copy)  # also after the row that told of it was lost
    there = [(where, image) for where, image in places.found if image is not None]
    if there:
        row.ready = True
        row.ready_failure_domains = sorted(places.names[where.id] for where, _ in there)
        row.resolved_ref = there[0][1].handle
        row.bytes = there[0][1].size_bytes
    if places.lacking:
        row.reason = Reason.IMAGE_NOT_AVAILABLE
        row.message = "; ".join(places.problems[:_SHOWN]) or _not_found(source, places, copy)
    elif not places.found:
        row.reason = Reason.NO_FAILURE_DOMAIN_MATCHED
        row.message = "the Provider has no failure domain to look in"
    return row


def _not_found(source: ImageSource, places: Places, copy: ImageImport | None) -> str:
    named = ", ".join(places.names[where.id] for where in places.lacking[:_SHOWN])
    if copy is None:
        return f"{source.kind.value} {source.ref!r} was not found in {named}"
    told = f"the image is not in {named}"
    if places.imports:
        return told
    return (
        f"{told}, and this Provider cannot import images; put it there and add a source that "
        "names it"
    )


def imports_into(row: ProviderImageStatus, copy: ImageImport) -> None:
    """Let the row say that an import goes on, and what it will leave behind."""
    row.reason, row.message = Reason.IMPORTING, "the image is being imported"
    leaves_copy(row, copy)


def leaves_copy(row: ProviderImageStatus, copy: ImageImport) -> None:
    """Let the row name what is to be deleted with the image."""
    if copy.name not in row.copies:
        row.copies = [*row.copies, copy.name]


def waits(row: ProviderImageStatus, reason: Reason, why: str) -> None:
    """Let the row say why what is lacking is not imported now."""
    row.reason, row.message = reason, f"the image is not imported: {why}"


def fails(row: ProviderImageStatus, error: DriverError) -> None:
    """Let the row say what is wrong."""
    row.reason, row.message = error.reason, error.message
    if isinstance(error, InvalidSpec) and error.reason not in _UNTOLD:
        row.ready = False


def percent(task: ImportTask, places: Places) -> int | None:
    """How far all of the Provider's places are, in whole steps; None while nobody knows."""
    if not task.total:
        return None
    present = len(places.found) - len(places.lacking)
    share = (present + min(1.0, task.done / task.total)) / len(places.found)
    return int(share * 100) // STEP * STEP


@dataclass(frozen=True, slots=True)
class Note:
    """One event about an import."""

    reason: EventReason
    message: str
    warning: bool = False


def note(before: ProviderImageStatus | None, after: ProviderImageStatus) -> Note | None:
    """What a row's change means to people, said once for each import however often it is tried."""
    was = before.reason if before else None
    where = f"Provider {after.provider_namespace}/{after.provider_name}"
    if after.reason == was:
        return None
    if after.reason == Reason.IMPORTING and was not in _UNTOLD:
        return Note(EventReason.IMAGE_IMPORT_STARTED, f"The import to {where} was started")
    if after.reason in _UNSUCCESSFUL:
        told = f"The import to {where} failed: {after.message}"
        return Note(EventReason.IMAGE_IMPORT_FAILED, told, warning=True)
    if was in _UNTOLD and after.ready and after.reason is None and after.copies:
        return Note(EventReason.IMAGE_IMPORT_COMPLETED, f"The import to {where} was completed")
    return None


def leftovers(image: Mapping[str, Any], wanted: ProviderImageStatus) -> list[dict[str, Any]]:
    """The patch that takes out of the stored row what the wanted one does not say."""
    told = wanted.to_api()
    mine = (wanted.provider_namespace, wanted.provider_name)
    stored = (image.get("status") or {}).get("perProvider") or ()
    return [
        {"op": "remove", "path": f"/status/perProvider/{position}/{name}"}
        for position, row in enumerate(stored)
        if (row.get("providerNamespace"), row.get("providerName")) == mine
        for name in sorted(row.keys() - told.keys())
    ]
