"""The control groups of a cluster's pods: one by one name in every hierarchy of the host."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.mountinfo import mounts

_V1: Final = "cgroup"
_V2: Final = "cgroup2"
_CPUSET_FILES: Final = ("cpuset.cpus", "cpuset.mems")
_V2_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids", "io")
_REMOVE_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted tree of control groups.

    Attributes:
        root: Where it is mounted.
        type: `cgroup` (version 1) or `cgroup2`.
    """

    root: Path
    type: str


def hierarchies(mountinfo: str | None = None) -> list[Hierarchy]:
    """The hierarchies of this host; `mountinfo` as in /proc/self/mountinfo, which is the default.

    Raises:
        ClusterError: There are none.
    """
    found = [
        Hierarchy(mount.point, mount.type)
        for mount in mounts(mountinfo)
        if mount.type in {_V1, _V2}
    ]
    if not found:
        raise ClusterError(
            "no control groups are mounted; mount them with the package cgroupfs-mount "
            "(`apt-get install cgroupfs-mount`), or `mount -t cgroup2 none /sys/fs/cgroup`"
        )
    return found


def create(name: str, trees: Iterable[Hierarchy]) -> None:
    """Make the group in every hierarchy; raises ClusterError where that is not allowed."""
    trees = list(trees)
    only_v2 = all(tree.type == _V2 for tree in trees)
    for tree in trees:
        try:
            if tree.type == _V2 and only_v2:
                _create_v2(tree.root, name)
            elif tree.type == _V1:
                _create_v1(tree.root, name)
        except OSError as error:
            raise ClusterError(
                f"cannot make a control group below {tree.root}: {error.strerror}; this needs "
                "root with a writable /sys/fs/cgroup (in a container: a privileged one)"
            ) from error


def remove(name: str, trees: Iterable[Hierarchy], timeout: float = _REMOVE_SECONDS) -> None:
    """Remove the group and those in it; absent is fine.

    Raises:
        ClusterError: Processes are in it after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    for tree in trees:
        top = tree.root / name
        while top.exists():
            with contextlib.suppress(FileNotFoundError):
                # The last processes leave a moment after they have ended.
                _remove_tree(top)
            if not top.exists():
                break
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{top} is still in use by processes {_processes(top)}; "
                    "end them, then run the same again"
                )
            time.sleep(_PAUSE_SECONDS)


def groups(trees: Iterable[Hierarchy]) -> Iterator[Path]:
    """All groups of all hierarchies, without their roots."""
    for tree in trees:
        for folder, _, _ in os.walk(tree.root):
            if Path(folder) != tree.root:
                yield Path(folder)


def _create_v1(root: Path, name: str) -> None:
    group = root / name
    group.mkdir(exist_ok=True)
    for file in _CPUSET_FILES:
        # A new group of this hierarchy may use nothing, and takes no process before it may.
        if (root / file).exists():
            (group / file).write_text((root / file).read_text(encoding="ascii"), encoding="ascii")


def _create_v2(root: Path, name: str) -> None:
    # Untried: written after the kernel's documentation of version 2.
    available = (root / "cgroup.controllers").read_text(encoding="ascii").split()
    wanted = " ".join(f"+{one}" for one in _V2_CONTROLLERS if one in available)
    (root / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
    (root / name).mkdir(exist_ok=True)


def _remove_tree(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def _processes(top: Path) -> list[int]:
    found: list[int] = []
    for folder, _, _ in os.walk(top):
        with contextlib.suppress(OSError):
            text = (Path(folder) / "cgroup.procs").read_text(encoding="ascii")
            found += [int(line) for line in text.split()]
    return sorted(found)
