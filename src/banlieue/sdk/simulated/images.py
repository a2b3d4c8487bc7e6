"""Images of a simulated world: the driver's part of finding, importing and deleting them."""

import contextlib
from typing import Any

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import FailureDomain, Image
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.image.ports import ImageImport, ImportTask
from banlieue.sdk.image.transfers import Report, Transfers
from banlieue.sdk.simulated.faultmap import uniform_errors
from banlieue.sdk.simulated.faults import ConnectionLost, WorldFault
from banlieue.sdk.simulated.session import Session

_GROW_BYTES = 16 * 1024 * 1024
"""How much is read from the URL between two calls that tell the world of it."""


class WorldImages:
    """The images of one session's world; what is imported is really read from its URL."""

    def __init__(self, session: Session, transfers: Transfers) -> None:
        self._session = session
        self._transfers = transfers

    def find(self, ref: str, where: FailureDomain) -> Image | None:
        """The image of that name, if the failure domain has it."""
        found = self._found(ref, where)
        if found is None:
            return None
        return Image(found["ref"], found["disk_gib"], found["firmware"], found["size"])

    def bring(self, wanted: ImageImport, where: FailureDomain) -> ImportTask | None:
        """See `ImageImporter.import_image`."""
        if self._found(wanted.name, where):
            return None
        sink = _WorldSink(self._session, wanted.name, where.id)
        return self._transfers.advance(wanted, where.id, sink.opened)

    def delete(self, name: str, where: FailureDomain) -> ImportTask | None:
        """See `ImageImporter.delete_image`."""
        if not self._transfers.cancel(name, where.id):
            return ImportTask(name, poll_after=1.0)
        found = self._found(name, where)
        if found and not found["imported"]:
            raise NeedsOperator(
                Reason.IMAGE_IN_USE,
                f"the image {name} was not imported by this Provider and is left alone; rename it "
                "on the backend",
            )
        with uniform_errors(Reason.DELETION_FAILED):
            self._session.call("image_delete", name=name, domain=where.id)
        return None

    def _found(self, ref: str, where: FailureDomain) -> dict[str, Any] | None:
        with uniform_errors():
            domains = self._session.call("domains")
            found: dict[str, Any] | None = self._session.call("image", ref=ref)
        there = any(domain["id"] == where.id and ref in domain["images"] for domain in domains)
        return found if there else None


class _WorldSink:
    """A part in the world; the world keeps its size and nothing else."""

    def __init__(self, session: Session, name: str, domain: str) -> None:
        self._session = session
        self._name = name
        self._domain = domain
        self._part = ""
        self._untold = 0

    def opened(self, total: int | None, report: Report) -> "_WorldSink":
        del total, report
        with uniform_errors(Reason.IMAGE_IMPORT_FAILED):
            part = self._session.call("import_begin", name=self._name, domain=self._domain)
        self._part = part["id"]
        return self

    def write(self, piece: bytes) -> None:
        self._untold += len(piece)
        if self._untold >= _GROW_BYTES:
            self._tell()

    def publish(self, size: int) -> None:
        del size
        self._tell()
        with uniform_errors(Reason.IMAGE_IMPORT_FAILED):
            self._session.call("import_publish", part=self._part)

    def drop(self) -> None:
        with contextlib.suppress(WorldFault, ConnectionLost):
            self._session.call("import_drop", part=self._part)

    def _tell(self) -> None:
        with uniform_errors(Reason.IMAGE_IMPORT_FAILED):
            self._session.call("import_grow", part=self._part, bytes=self._untold)
        self._untold = 0
