"""The file systems of a node. All of it happens in the node's own mount namespace."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hack.cluster.local import paths
from hack.cluster.local.mountinfo import mounts
from hack.cluster.local.programs import program

TOOLS: Final = paths.INSIDE_TOOLS
# Folders of the state directory that take the place of the host's.
_OWN: Final = {"var": "/var", "tmp": "/tmp"}  # noqa: S108 - the node's own
_VAR_FOLDERS: Final = ("lib", "log", "cache", "tmp")
# The kubelet sets these for the whole host. It finds them set here, and the host keeps its own.
_TUNABLES: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def prepare(state: Path, tools: Mapping[str, str]) -> None:
    """Mount everything.

    Args:
        state: State directory on the host.
        tools: Programs by name, where they are on the host.

    Raises:
        CalledProcessError: A mount was refused.
        OSError: A file could not be made.
    """
    _mount("-t", "proc", "proc", "/proc")
    # Built up beside the state and moved into place, because state and tools may be anywhere,
    # also where the new file systems will hide them.
    run = state / "run"
    run.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(run))
    home = run / paths.INSIDE.relative_to("/run")
    _bind_tools(home / "tools", tools)
    inner_state = home / "state"
    inner_state.mkdir()
    _mount("--bind", str(state), str(inner_state))
    tunables = _write_tunables(home / "tunables")
    _mount("--move", str(run), "/run")
    _forget_hidden()
    _own_folders()
    for name in tunables:
        target = Path("/proc/sys") / name
        if target.exists():
            _mount("--bind", str(paths.INSIDE / "tunables" / name), str(target))
    # Whatever a daemon may want to write outside of its folders, the host is not changed.
    _mount("-o", "remount,bind,ro", "/")
    kubelet = str(paths.INSIDE_STATE / "kubelet")
    Path(kubelet).mkdir(exist_ok=True)
    # Volumes that a pod mounts must show up in other pods.
    _mount("--bind", kubelet, kubelet)
    _mount("--make-shared", kubelet)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    os.chdir("/")


def _bind_tools(folder: Path, tools: Mapping[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, path in tools.items():
        (folder / name).touch(mode=0o755)
        _mount("--bind", path, str(folder / name))


def _write_tunables(folder: Path) -> list[str]:
    for name, value in _TUNABLES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{value}\n", encoding="ascii")
    return list(_TUNABLES)


def _forget_hidden() -> None:
    """Drop the host's mounts that are about to be hidden, in this mount namespace only.

    The kubelet takes the first place where a device is mounted for the one to measure it at, and
    ends when it cannot go there: that of the state directory may be mounted below one of these.
    """
    hidden = [Path(target) for target in _OWN.values()]
    # Those in others first.
    for mount in reversed(mounts()):
        if any(folder in mount.point.parents for folder in hidden):
            command = [program("umount"), "-n", "--lazy", str(mount.point)]
            subprocess.run(command, check=False, capture_output=True)


def _own_folders() -> None:
    for name, target in _OWN.items():
        folder = Path(str(paths.INSIDE_STATE / name))
        folder.mkdir(exist_ok=True)
        _mount("--bind", str(folder), target)
    Path("/tmp").chmod(0o1777)  # noqa: S108 - the node's own
    for name in _VAR_FOLDERS:
        Path("/var", name).mkdir(exist_ok=True)
    run = Path("/var/run")
    if not run.is_symlink():
        run.symlink_to("/run")


def _mount(*arguments: str) -> None:
    subprocess.run([program("mount"), "-n", *arguments], check=True, capture_output=True, text=True)
