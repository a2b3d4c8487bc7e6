"""The optional power of a driver to bring images to its backend, and the values that cross it."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from banlieue.sdk.driver import FailureDomain


@dataclass(frozen=True, slots=True)
class ImageImport:
    """An image to import.

    `name` is what it is published under, made from the digest and from whose image it is: equal
    for every process and after every restore, and nobody else's. `checksum` is `sha256:…` or
    `sha512:…` of what `url` gives. A URL may hold a login, so no message quotes it. `firmware` is
    what the image boots with, where its file may not tell.
    """

    name: str
    url: str
    checksum: str
    firmware: str | None = None


@dataclass(frozen=True, slots=True)
class ImportTask:
    """An import under way.

    `done` and `total` are bytes; `total` is None while it is not known. `poll_after` is how many
    seconds to wait before asking again.
    """

    name: str
    done: int = 0
    total: int | None = None
    poll_after: float = 2.0


@runtime_checkable
class ImageImporter(Protocol):
    """Optional power: import images, and delete what was imported. Never waits."""

    def import_image(self, wanted: ImageImport, where: FailureDomain) -> ImportTask | None:
        """Start the import, or tell how far the one under way is; None when it is published.

        An image is published only when its digest was found right, and in one step: it was copied
        under another name, and two processes that import it at once end with one image. After an
        import failed, the error is raised once and the next call begins anew.

        Raises:
            Transient: with reason ImageImportFailed; may be tried again.
            InvalidSpec: with reason ImageChecksumMismatch: what came is not what was asked for.
        """

    def delete_image(self, name: str, where: FailureDomain) -> ImportTask | None:
        """Delete what was imported under that name, and stop an import of it; None when it is gone.

        Raises:
            NeedsOperator: what has the name was not imported, and is left alone.
        """
