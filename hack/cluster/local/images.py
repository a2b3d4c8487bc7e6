"""Images of a node."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError
from hack.cluster.local import node_control
from hack.cluster.local.record import NodeProcess
from hack.cluster.local.render import PAUSE_IMAGE
from hack.cluster.oserrors import told
from hack.images.catalog import archive_of
from hack.images.store import ImageError

# The namespace in which the kubelet looks.
_CTR: Final = ("ctr", "--namespace", "k8s.io")
_ANSWER_SECONDS: Final = 10.0
_LOAD_SECONDS: Final = 900.0


def pause_archive() -> Path:
    """The image that holds a pod's namespaces, as a docker-archive; built when it is missing."""
    try:
        return archive_of(PAUSE_IMAGE)
    except ImageError as error:
        raise ClusterError(str(error)) from error


def answers(node: NodeProcess) -> bool:
    """Whether containerd serves."""
    try:
        return node_control.run_inside(node, [*_CTR, "version"], _ANSWER_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def load(node: NodeProcess, archive: Path) -> None:
    """Import a docker-archive; raises ClusterError when that fails."""
    try:
        # Of a pipe without a writer the end would never come.
        descriptor = os.open(archive, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ClusterError(f"cannot read the image {told(error)}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ClusterError(f"{archive} is no file; name a docker-archive (`docker save`)")
        # Through a pipe, because the node does not see all of the host's files.
        importing = [*_CTR, "images", "import", "-"]
        result = node_control.run_inside(node, importing, _LOAD_SECONDS, descriptor)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"containerd has not taken {archive} in {_LOAD_SECONDS:.0f} s; see containerd.log "
            "of `.venv/bin/python -m hack.cluster logs`, then end the cluster and start it again"
        ) from error
    finally:
        os.close(descriptor)
    if result.returncode != 0:
        raise ClusterError(
            f"cannot load {archive}; is it a whole docker-archive (`docker save`)? "
            f"containerd says: {said(result.stderr) or 'nothing, so the node may be down'}"
        )


def said(output: str) -> str:
    """What ctr complains of, without the log lines of its libraries."""
    lines = [line.strip() for line in output.splitlines()]
    return "\n".join([line for line in lines if line.startswith("ctr: ")] or lines)
