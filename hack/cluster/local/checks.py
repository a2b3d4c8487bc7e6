"""Whether this host can carry a cluster, and what is missing if not."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError
from hack.cluster.local import render
from hack.cluster.local.mountinfo import mounts
from hack.cluster.local.paths import VARIABLE
from hack.cluster.local.programs import PACKAGES, find_program
from hack.tools.catalog import ToolError, find_tool

BUILD: Final = "python3 hack/tools/build.py --group cluster"

_PLUGINS: Final = ("ptp", "host-local", "loopback")
_PLUGINS_PACKAGE: Final = "containernetworking-plugins"
_PLUGIN_FOLDERS: Final = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
# Containers' layers are mounted on top of it, which these cannot carry.
_UNFIT_FILE_SYSTEMS: Final = ("overlay", "aufs", "tmpfs", "ramfs", "ecryptfs", "nfs", "fuse", "9p")
# The kubelet reports a full disk, and runs nothing, below one per cent.
_FREE_SHARE: Final = 0.015
_FREE_BYTES: Final = 3 << 30
_ELSE: Final = f"name a folder on ext4 or xfs in {VARIABLE}"


@dataclass(frozen=True, slots=True)
class Programs:
    """What a node is made of, where it is on the host.

    Attributes:
        tools: Daemons and their helpers by name.
        runc: What starts containers.
        cni: Folder of the plugins that connect pods.
    """

    tools: Mapping[str, Path]
    runc: Path
    cni: Path


def require_root() -> None:
    """Raise ClusterError unless we are root."""
    if os.geteuid() != 0:
        raise ClusterError(
            "a local cluster needs root, for namespaces and mounts; run it as root "
            '(`sudo -E env "PATH=$PATH" ...`), or set E2E_CLUSTER=kind to use Docker or Podman'
        )


def find_programs() -> Programs:
    """Find everything that a node is made of.

    Raises:
        ClusterError: Something is missing; the message names all that is, and the commands.
    """
    packages = {package for name, package in PACKAGES.items() if find_program(name) is None}
    cni = _plugin_folder()
    if cni is None:
        packages.add(_PLUGINS_PACKAGE)
    tools: dict[str, Path] = {}
    unbuilt = []
    for name in (*render.DAEMONS, *render.HELPERS):
        try:
            tools[name] = find_tool(name)
        except ToolError as error:
            unbuilt.append(f"{name}: {error}")
    problems = []
    if packages:
        problems.append(
            "packages are missing: "
            f"apt-get install --no-install-recommends {' '.join(sorted(packages))}"
        )
    if unbuilt:
        problems.append("\n  ".join([f"tools are not built; run `{BUILD}`:", *unbuilt]))
    runc = find_program("runc")
    if problems or runc is None or cni is None:
        raise ClusterError("\n".join(problems))
    return Programs(tools, runc, cni)


def require_fit_file_system(folder: Path) -> None:
    """Raise ClusterError unless the file system that holds the folder can carry containers.

    Args:
        folder: May be missing yet.
    """
    kind = file_system_type(folder.resolve())
    if kind.startswith(_UNFIT_FILE_SYSTEMS):
        raise ClusterError(
            f"{folder} is on a file system of type {kind}, which cannot carry containers; {_ELSE}"
        )


def require_room(folder: Path) -> None:
    """Raise ClusterError unless the file system of the folder has room for a cluster."""
    usage = shutil.disk_usage(folder)
    needed = max(_FREE_BYTES, int(usage.total * _FREE_SHARE))
    if usage.free < needed:
        raise ClusterError(
            f"{folder} has {usage.free >> 20} MiB free, a cluster needs {needed >> 20}; "
            f"make room, or {_ELSE}"
        )


def file_system_type(folder: Path, mountinfo: str | None = None) -> str:
    """Type of the file system that holds a folder; `mountinfo` as `mounts` takes it."""
    found, longest = "", -1
    for mount in mounts(mountinfo):
        # Of two on one mount point the later one hides the other.
        if folder.is_relative_to(mount.point) and len(mount.point.parts) >= longest:
            found, longest = mount.type, len(mount.point.parts)
    return found


def mounts_below(folder: Path, mountinfo: str | None = None) -> list[Path]:
    """Mount points in a folder, as the host sees them."""
    points = [mount.point for mount in mounts(mountinfo)]
    return [point for point in points if point.is_relative_to(folder)]


def _plugin_folder() -> Path | None:
    for folder in map(Path, _PLUGIN_FOLDERS):
        if all(os.access(folder / plugin, os.X_OK) for plugin in _PLUGINS):
            return folder
    return None
