"""Which images the cluster of the tests runs, and how to get the archive of each.

All are named `localhost/...`, so that a forgotten import fails at once and asks no registry.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.images import archive
from hack.images.own import OwnImage
from hack.images.store import Image, ImageError, Say, Store, digest_of
from hack.tools.catalog import ToolError, find_tool
from hack.tools.clusterapis import cluster_api

_CLUSTER_API: Final = cluster_api().version

OWN: Final = "localhost/banlieue:dev"
PAUSE: Final = "localhost/pause:1"
CERT_MANAGER: Final = "localhost/cert-manager:v1.21.1"
CLUSTER_API_CORE: Final = f"localhost/cluster-api-core:{_CLUSTER_API}"
KUBEADM_BOOTSTRAP: Final = f"localhost/cluster-api-bootstrap-kubeadm:{_CLUSTER_API}"
KUBEADM_CONTROL_PLANE: Final = f"localhost/cluster-api-control-plane-kubeadm:{_CLUSTER_API}"


@dataclass(frozen=True, slots=True)
class ToolImage:
    """The image of one of the pinned Go tools.

    Attributes:
        name: Reference of the image, with its tag.
        tool: Name of the tool whose binary it is.
        entrypoint: Absolute path of the binary in the image.
    """

    name: str
    tool: str
    entrypoint: str

    def digest(self) -> str:
        """Hex SHA-256 over the binary and how it is put into the image; raises ImageError."""
        return digest_of(Path(archive.__file__), self.name, self.entrypoint, self._binary())

    def write(self, target: Path, say: Say) -> str:
        """Write the docker-archive; raises ImageError when the tool is not built."""
        say(f"{self.name}: writing")
        digest = self.digest()
        archive.write_archive(
            archive.StaticImage(self.name, self._binary(), self.entrypoint), target
        )
        return digest

    def _binary(self) -> Path:
        try:
            return find_tool(self.tool)
        except ToolError as error:
            raise ImageError(f"no image {self.name}: {error}") from error


IMAGES: Final[tuple[Image, ...]] = (
    OwnImage(OWN),
    ToolImage(PAUSE, "pause", "/pause"),
    ToolImage(CERT_MANAGER, "cert-manager", "/manager"),
    ToolImage(CLUSTER_API_CORE, "cluster-api-core", "/manager"),
    ToolImage(KUBEADM_BOOTSTRAP, "cluster-api-bootstrap-kubeadm", "/manager"),
    ToolImage(KUBEADM_CONTROL_PLANE, "cluster-api-control-plane-kubeadm", "/manager"),
)


def image_named(name: str) -> Image:
    """The image of that name; raises ImageError with the known names."""
    for image in IMAGES:
        if image.name == name:
            return image
    known = ", ".join(image.name for image in IMAGES)
    raise ImageError(f"no image is called {name!r}; there are {known}")


def archive_of(name: str, store: Store | None = None, say: Say | None = None) -> Path:
    """The docker-archive of an image, made now when it is missing or stale.

    Args:
        name: Reference of the image, one of `IMAGES`.
        store: Where archives are kept; by default the user's cache.
        say: Told what takes time; by default it is printed to standard error.

    Raises:
        ImageError: The image is unknown, or cannot be made (the message says what to do).
    """
    image = image_named(name)
    return (store or Store.from_environment()).archive(image, say or _print)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
