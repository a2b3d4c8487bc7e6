"""Images of a node."""

import os
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError
from hack.cluster.local import node_control
from hack.cluster.local.record import NodeProcess
from hack.cluster.local.render import PAUSE_IMAGE
from hack.images.catalog import archive_of
from hack.images.store import ImageError

# The namespace in which the kubelet looks.
_CTR: Final = ("ctr", "--namespace", "k8s.io")


def pause_archive() -> Path:
    """The image that holds a pod's namespaces, as a docker-archive; built when it is missing."""
    try:
        return archive_of(PAUSE_IMAGE)
    except ImageError as error:
        raise ClusterError(str(error)) from error


def answers(node: NodeProcess) -> bool:
    """Whether containerd serves."""
    return node_control.run_inside(node, [*_CTR, "version"]).returncode == 0


def load(node: NodeProcess, archive: Path) -> None:
    """Import a docker-archive; raises ClusterError when that fails."""
    try:
        descriptor = os.open(archive, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ClusterError(f"cannot read the image {archive}: {error.strerror}") from error
    try:
        # Through a pipe, because the node does not see all of the host's files.
        result = node_control.run_inside(node, [*_CTR, "images", "import", "-"], descriptor)
    finally:
        os.close(descriptor)
    if result.returncode != 0:
        raise ClusterError(
            f"cannot load {archive}; is it a docker-archive? containerd says: "
            f"{result.stderr.strip() or result.stdout.strip()}"
        )
