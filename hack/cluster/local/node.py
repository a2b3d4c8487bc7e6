"""The first process of a node: prepares its file systems, starts its daemons, keeps them running.

It runs in namespaces of its own. When it ends, however it does, the kernel ends all processes of
the node, and drops its mounts, links and rules: that is how a node is stopped.

Usage: python -m hack.cluster.local.node STATE CHANNEL, where CHANNEL is the descriptor of a socket
to whoever starts it. Until it is told that the node is up, it ends when the other side goes away.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.cluster.interface import ClusterError
from hack.cluster.local import node_mounts, paths

_RESTART_SECONDS: Final = 1.0
_RECEIVE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node is made of.

    Attributes:
        hostname: Name of the node.
        tools: Programs by name, where they are on the host.
        arguments: Command line of every daemon, without the program.
        environment: Environment of the daemons.
    """

    hostname: str
    tools: Mapping[str, str]
    arguments: Mapping[str, list[str]]
    environment: Mapping[str, str]


class Channel:
    """Messages between the node and whoever starts it. One message is one packet."""

    def __init__(self, end: socket.socket) -> None:
        self.end: Final = end

    def send(self, **message: Any) -> None:  # noqa: ANN401 - any JSON
        """Send a message; whether anybody reads it is told by the next `receive`."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.end.send(json.dumps(message).encode())

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next message, or None when the other side is gone; TimeoutError if none comes."""
        self.end.settimeout(timeout)
        with contextlib.suppress(ConnectionResetError):
            packet = self.end.recv(_RECEIVE)
            if packet:
                message: dict[str, Any] = json.loads(packet)
                return message
        return None


class Node:
    """Starts daemons on demand and starts them again when they end."""

    def __init__(self, plan: Plan, channel: Channel) -> None:
        self._plan = plan
        self._channel: Channel | None = channel
        self._up = False
        self._running: dict[int, str] = {}
        self._due: dict[str, float] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel.end, selectors.EVENT_READ)
        self._wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        os.set_blocking(self._wake, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until the other side goes away before the node is up; for ever after that."""
        while self._channel is not None or self._up:
            for key, _ in self._selector.select(self._pause()):
                if key.fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, _RECEIVE)
                else:
                    self._obey()
            self._reap()
            self._start_due()

    def _obey(self) -> None:
        if self._channel is None:
            return
        message = self._channel.receive()
        if message is None:
            self._selector.unregister(self._channel.end)
            self._channel = None
        elif message["do"] == "start":
            self._start_first(message["daemon"])
        elif message["do"] == "stay":
            self._up = True
            self._channel.send(stays=True)

    def _start_first(self, daemon: str) -> None:
        try:
            self._start(daemon)
        except OSError as error:
            if self._channel is not None:
                self._channel.send(failed=f"cannot start {daemon}: {error}")

    def _start(self, daemon: str) -> None:
        log = Path(paths.inside("logs", f"{daemon}.log"))
        with log.open("ab") as output:
            # Not waited for by this object: as the first process we reap everybody's children.
            child = os.posix_spawn(
                f"{node_mounts.TOOLS}/{daemon}",
                [daemon, *self._plan.arguments[daemon]],
                self._plan.environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGCHLD, signal.SIGPIPE],
            )
        self._running[child] = daemon

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            daemon = self._running.pop(pid, None)
            if daemon is not None:
                self._ended(daemon, os.waitstatus_to_exitcode(status))

    def _ended(self, daemon: str, code: int) -> None:
        _log(f"{daemon} ended with code {code}")
        if self._channel is not None and not self._up:
            self._channel.send(ended=daemon, code=code)
            return
        self._due[daemon] = time.monotonic() + _RESTART_SECONDS

    def _start_due(self) -> None:
        now = time.monotonic()
        for daemon in [name for name, when in self._due.items() if when <= now]:
            del self._due[daemon]
            try:
                self._start(daemon)
            except OSError as error:
                # A host that is short of something for a while must not end the whole node.
                _log(f"cannot start {daemon}: {error}")
                self._due[daemon] = now + _RESTART_SECONDS

    def _pause(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - time.monotonic())


def _log(line: str) -> None:
    # The end of this process is that of the node: a full disk is no reason.
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%FT%TZ', time.gmtime())} {line}", flush=True)


def main(arguments: list[str]) -> int:
    """Run the first process."""
    state, descriptor = arguments
    channel = Channel(socket.socket(fileno=int(descriptor)))
    # The daemons have no part in it.
    channel.end.set_inheritable(False)
    # The host's /proc is still mounted, and knows this process by its number on the host.
    channel.send(pid=int(Path("/proc/self").readlink().name))
    message = channel.receive()
    if message is None:
        return 1
    plan = Plan(**message["plan"])
    try:
        node_mounts.prepare(Path(state), plan.tools)
        socket.sethostname(plan.hostname)
    except (OSError, ClusterError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        channel.send(failed=f"cannot prepare its file systems: {str(said).strip()}")
        return 1
    channel.send(prepared=True)
    Node(plan, channel).run()
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file
    sys.exit(main(sys.argv[1:]))
