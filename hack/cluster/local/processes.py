"""Knowing a process again, and ending it without ever hitting another one."""

import contextlib
import os
import select
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.record import NodeProcess

_PROC: Final = Path("/proc")
_PARENT_FIELD: Final = 4
_START_TIME_FIELD: Final = 22
_KILL_SECONDS: Final = 60.0


def boot() -> str:
    """Names this run of the host's kernel."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> NodeProcess:
    """What tells this process from later ones of the same number; ProcessLookupError if gone."""
    return NodeProcess(pid, _start_time(pid), boot())


def is_ours(process: NodeProcess, words: Iterable[str]) -> bool:
    """Whether the process still runs, and has all those words among its arguments.

    A zombie does not run: the kernel has ended everything of it.
    """
    try:
        return (
            process.boot == boot()
            and _start_time(process.pid) == process.started
            and set(words) <= set(_arguments(process.pid))
        )
    except ProcessLookupError:
        return False


def find(words: Sequence[str]) -> list[NodeProcess]:
    """Processes that have those words among their arguments, one after the other.

    Only those that were started in our PID namespace: a container on this host may have a state
    directory of the same path, and what it runs is not ours.
    """
    found = []
    ours = _pid_namespace("self")
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        # Processes end while we look; those of others may not tell.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, PermissionError):
            arguments = _arguments(pid)
            runs = [arguments[at : at + len(words)] for at in range(len(arguments))]
            if list(words) in runs and _pid_namespace(_parent(pid)) == ours:
                found.append(identify(pid))
    return found


def kill(process: NodeProcess, words: Iterable[str], timeout: float = _KILL_SECONDS) -> bool:
    """End a process by SIGKILL and wait until it is gone; False if it was not there any more.

    Raises:
        ClusterError: It is not gone after `timeout` seconds.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # From here on the number may change hands, but the descriptor does not.
        if not is_ours(process, words):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        # Of the first process of a PID namespace this tells only when all others have ended.
        ended, _, _ = select.select([descriptor], [], [], timeout)
        if not ended:
            raise ClusterError(
                f"process {process.pid} does not end; see `ps -o stat,wchan,cmd -p {process.pid}`, "
                "then run the same again"
            )
        return True
    finally:
        os.close(descriptor)


def _start_time(pid: int) -> int:
    return int(_stat(pid)[_START_TIME_FIELD - 3])


def _parent(pid: int) -> str:
    return _stat(pid)[_PARENT_FIELD - 3]


def _pid_namespace(pid: str) -> Path:
    return (_PROC / pid / "ns/pid").readlink()


def _stat(pid: int) -> list[str]:
    """Its fields from the third on; ProcessLookupError if it is gone or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(pid) from error
    # The second field is the name in parentheses, which may hold anything.
    fields = text.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        raise ProcessLookupError(pid)
    return fields


def _arguments(pid: int) -> list[str]:
    try:
        content = (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(pid) from error
    return [os.fsdecode(argument) for argument in content.split(b"\0")]
