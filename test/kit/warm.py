"""Processes of ours that start without importing anything; `test.kit.warm_server` forks them."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

_ROOT: Final = Path(__file__).resolve().parents[2]


class WarmServerError(Exception):
    """The process that forks the others is gone."""


class WarmServer:
    """One process that has imported our modules; its children end with it, and it with us."""

    def __init__(self, launcher: Sequence[str]) -> None:
        """Start it.

        Args:
            launcher: What to put before its command line, so that it ends with this program; the
                last part is the program to run.
        """
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*launcher, sys.executable, "-m", "test.kit.warm_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            start_new_session=True,
        )

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None,
        cwd: Path | None,
    ) -> "WarmChild":
        """Run a module with arguments, as `python -m` would, in a session of its own."""
        request = {
            "module": module,
            "arguments": list(arguments),
            "log": str(log),
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
        }
        return WarmChild(self, self.ask(request))

    def ask(self, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as JSON is
        """Send a request and wait for its answer.

        Raises:
            WarmServerError: It is gone.
        """
        with self._lock:
            sent, answers = _pipes(self._process)
            sent.write(json.dumps(request).encode() + b"\n")
            sent.flush()
            line = answers.readline()
        if not line:
            raise WarmServerError("the process that starts our roles has ended")
        return json.loads(line)

    def close(self) -> None:
        """End it; children of it that still run end too."""
        for pipe in _pipes(self._process):
            pipe.close()
        self._process.wait()


def _pipes(process: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise WarmServerError("the process that starts our roles was started without pipes")
    return process.stdin, process.stdout


class WarmChild:
    """One child of the server."""

    def __init__(self, server: WarmServer, pid: int) -> None:
        self._server = server
        self.pid: Final = pid
        self.returncode: int | None = None

    def ended(self) -> bool:
        """Whether it has ended; its pid stays its own until it is reaped."""
        return bool(self._server.ask({"ended": self.pid}))

    def reap(self) -> None:
        """Wait for its end and take its exit code."""
        self.returncode = int(self._server.ask({"reap": self.pid}))
