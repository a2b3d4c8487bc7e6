"""Pods of a cluster on this host, as the host sees them."""

import contextlib
import os
import signal
from pathlib import Path


def processes_of(pod_uid: str) -> list[int]:
    """Process ids, on this host, of the containers of a pod that are told its uid.

    A container is one where the downward API gives `POD_UID`, as all of ours have it.
    """
    wanted = f"POD_UID={pod_uid}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def kill9(pod_uid: str) -> None:
    """End what a pod runs as a crash does: no word to anybody."""
    pids = processes_of(pod_uid)
    assert pids, f"no process of pod {pod_uid} is seen on this host"
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
