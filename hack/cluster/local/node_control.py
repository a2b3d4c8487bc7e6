"""Starting a node and speaking with its first process until the node is up."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

from hack.cluster.interface import ClusterError
from hack.cluster.local import processes, render
from hack.cluster.local.node import Channel, Plan
from hack.cluster.local.paths import INSIDE_TOOLS, Place
from hack.cluster.local.pki import NODE_NAME
from hack.cluster.local.programs import program
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import NodeProcess

_MODULE: Final = "hack.cluster.local.node"
_TOP: Final = Path(__file__).resolve().parents[3]
_ANSWER_SECONDS: Final = 60.0
_LOG: Final = "node.log"


def words(place: Place) -> tuple[str, ...]:
    """What the first process of that cluster's node has among its arguments, in this order."""
    return (_MODULE, str(place.state))


class NodeStart:
    """A node on its way up. It ends with this object, unless it was told to stay.

    Attributes:
        process: Its first process.
    """

    def __init__(self, place: Place) -> None:
        """Start the first process; it waits then.

        Raises:
            ClusterError: This host does not allow it.
        """
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._place = place
        self._channel = Channel(mine)
        with its, (place.logs / _LOG).open("ab") as log:
            # What holds the namespaces has to outlive us, so it is no child of ours.
            subprocess.run(
                [
                    *(
                        program("setsid"),
                        "--fork",
                        program("unshare"),
                        "--net",
                        "--mount",
                        "--pid",
                        "--uts",
                        "--ipc",
                    ),
                    *("--fork", "--kill-child", "--propagation", "private"),
                    *(sys.executable, "-m", _MODULE, str(place.state), str(its.fileno())),
                ],
                cwd=_TOP,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[its.fileno()],
                check=False,
            )
        try:
            hello = self._channel.receive(_ANSWER_SECONDS) or {"pid": 0}
            self.process: Final = processes.identify(hello["pid"])
        except (ProcessLookupError, TimeoutError) as error:
            self.close()
            raise ClusterError(
                "this host does not let us make namespaces; that needs root with CAP_SYS_ADMIN "
                f"(in a container: a privileged one):\n{tail(place.logs / _LOG)}"
            ) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it: a node that was not told to stay ends now."""
        self._channel.end.close()

    def prepare(self, tools: Mapping[str, Path], addresses: Range) -> None:
        """Let it mount its file systems; raises ClusterError when it cannot."""
        plan = Plan(
            hostname=NODE_NAME,
            tools={name: str(path.resolve()) for name, path in tools.items()},
            arguments=render.arguments(addresses),
            environment=render.environment(),
        )
        self._channel.send(plan=asdict(plan))
        self._expect("prepared")

    def start(self, *daemons: str) -> None:
        """Start some of its daemons."""
        for daemon in daemons:
            self._channel.send(do="start", daemon=daemon)

    def check(self) -> None:
        """Raise ClusterError if a daemon has ended, or the node itself."""
        try:
            # Not zero, which would mean never to wait, with an error of its own.
            message = self._channel.receive(0.001)
        except TimeoutError:
            return
        self._raise(message)

    def stay(self) -> None:
        """Let it live on without us."""
        self._channel.send(do="stay")
        self._expect("stays")

    def _expect(self, answer: str) -> None:
        try:
            message = self._channel.receive(_ANSWER_SECONDS)
        except TimeoutError as error:
            raise ClusterError(f"the node does not answer:\n{self.tails()}") from error
        if not message or answer not in message:
            self._raise(message)

    def _raise(self, message: Mapping[str, object] | None) -> None:
        if message is None:
            raise ClusterError("the node ended while it was starting")
        if "failed" in message:
            raise ClusterError(f"the node failed: {message['failed']}")
        ended, code = message.get("ended"), message.get("code")
        said = tail(self._place.logs / f"{ended}.log")
        raise ClusterError(f"{ended} ended with code {code}; it said last:\n{said}")

    def tails(self) -> str:
        """The last lines of every daemon's log."""
        return tails(self._place.logs)


def run_inside(
    node: NodeProcess, command: Iterable[str], timeout: float, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    """Run one of the node's tools in the node; its output is text.

    Args:
        node: The first process of the node.
        command: Name of the tool and its arguments.
        timeout: How many seconds it may take.
        stdin: Descriptor that it reads from.

    Raises:
        TimeoutExpired: It took longer, and is killed.
    """
    name, *arguments = command
    enter = ("--net", "--mount", "--pid", "--uts", "--ipc")
    process = subprocess.Popen(
        [
            *(program("nsenter"), f"--target={node.pid}", *enter),
            *(str(INSIDE_TOOLS / name), *arguments),
        ],
        env={**render.environment()},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # nsenter has the tool as its child: they are killed together, as a group.
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def tails(logs: Path, lines: int = 12, since: float = 0.0) -> str:
    """The last lines of all logs of that folder, the latest last.

    Args:
        logs: The folder; it may be missing.
        lines: How many of each.
        since: Logs that nobody has written to since then (in seconds of `time.time`) are left out.
    """
    found = [(path.stat().st_mtime, path) for path in logs.glob("*.log")]
    ends = [(path.name, tail(path, lines)) for when, path in sorted(found) if when >= since]
    return "\n".join(f"--- {name}\n{end}" for name, end in ends if end)


def tail(path: Path, lines: int = 12) -> str:
    """The last lines of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - lines * 1000))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
