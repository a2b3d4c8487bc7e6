"""Copies of what the daemons and the pods of a cluster said."""

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.paths import Place
from hack.cluster.oserrors import told
from hack.tools.catalog import find_tool

_ANSWER_SECONDS: Final = 60.0


def save(place: Place, directory: Path) -> None:
    """Copy the logs into a directory, as far as they are there.

    Raises:
        ClusterError: There are none, or they cannot be written.
    """
    sources = {"node": place.logs, "pods": place.pod_logs}
    if not any(source.is_dir() for source in sources.values()):
        raise ClusterError(
            f"there are no logs of cluster {place.name}; they last until it is ended, "
            "or until it is purged after `down --keep`"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for target, source in sources.items():
            if source.is_dir():
                _copy(source, directory / target)
    except OSError as error:
        raise ClusterError(f"cannot write the logs: {told(error, directory)}") from error


def save_objects(place: Place, directory: Path) -> None:
    """Write down what the API server knows of nodes, pods and events, or why it does not tell."""
    command = ("get", "nodes,pods,events", "-A", "-o=wide", "--request-timeout=30s")
    try:
        done = subprocess.run(
            [find_tool("kubectl"), f"--kubeconfig={place.kubeconfig}", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWER_SECONDS,
        )
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        said = f"no answer in {_ANSWER_SECONDS:.0f} s\n"
    try:
        (directory / "objects.txt").write_text(said, encoding="utf-8")
    except OSError as error:
        raise ClusterError(f"cannot write the logs: {told(error, directory)}") from error


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copytree(
            source,
            target,
            dirs_exist_ok=True,
            ignore_dangling_symlinks=True,
            copy_function=_copy_file,
        )
    except shutil.Error as error:
        # Pods come and go while their logs are copied.
        left = [why for from_, _, why in error.args[0] if Path(from_).exists()]
        if left:
            raise ClusterError(f"cannot copy all logs to {target}: {left[0]}") from error


def _copy_file(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)
