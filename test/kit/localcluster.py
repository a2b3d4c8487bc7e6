"""A local cluster of a test, driven as people do: by its command line."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from hack.cluster.local import record
from hack.cluster.local.paths import Place
from hack.images.archive import StaticImage, write_archive
from test.kit.hoststate import HostState
from test.kit.tools import tool
from test.kit.waiting import wait_until

_TOP: Final = Path(__file__).resolve().parents[2]
_IMAGE: Final = "localhost/life-kubectl:1"
_PROXY_PORT: Final = 8001
_UP_SECONDS: Final = 400.0
# Long, because whatever else is begun on the host meanwhile has to be over too.
_GONE_SECONDS: Final = 180.0


def write_image(path: Path) -> Path:
    """kubectl as an image: it can serve, say something, and be run again beside itself."""
    write_archive(StaticImage(_IMAGE, tool("kubectl"), "/kubectl"), path)
    return path


class Life:
    """One cluster of a test, driven as people do: by its command line."""

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment or {})
        self.place = Place.of(name, {**os.environ, **self.environment})

    def command(self, *arguments: str) -> list[str]:
        name = ("--name", self.place.name)
        return [sys.executable, "-m", "hack.cluster", arguments[0], *name, *arguments[1:]]

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        result = subprocess.run(
            self.command(*arguments),
            cwd=_TOP,
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=_UP_SECONDS,
            check=False,
        )
        assert result.returncode == code, f"{arguments}: {result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=_TOP,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kubectl(self, *arguments: str) -> str:
        result = subprocess.run(
            [tool("kubectl"), f"--kubeconfig={self.place.kubeconfig}", *arguments],
            capture_output=True,
            text=True,
            timeout=_UP_SECONDS,
            check=False,
        )
        assert result.returncode == 0, f"{arguments}: {result.stderr}"
        return result.stdout

    def run_pod(self) -> None:
        """A pod that serves the API of its cluster on its own loopback address."""
        arguments = ("--restart=Always", "--", "proxy", f"--port={_PROXY_PORT}")
        self.kubectl("run", "pod", f"--image={_IMAGE}", "--image-pull-policy=Never", *arguments)
        self.await_pod()

    def await_pod(self) -> None:
        self.kubectl("wait", "--for=condition=Ready", "pod/pod", "--timeout=120s")

    def node(self) -> int:
        known = record.read(self.place.state)
        assert known is not None
        assert known.node is not None
        return known.node.pid

    def daemon(self, name: str) -> int | None:
        """Process id of a daemon on the host, if it runs."""
        mine = Path(f"/proc/{self.node()}/ns/pid").readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")
                if command[0] == name.encode() and (folder / "ns/pid").readlink() == mine:
                    return int(folder.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return None

    def leaves(self, before: HostState) -> dict[str, list[str]]:
        return HostState.seen(self.place).new_since(before)

    def await_left(self, before: HostState, **expected: list[str]) -> None:
        """Nothing but what is expected. The kernel takes a moment to end what was killed."""
        wait_until(
            lambda: self.leaves(before) == expected,
            _GONE_SECONDS,
            f"nothing new on the host but {expected}",
        )

    def kill(self, daemon: str) -> int:
        """End a daemon by SIGKILL; returns its process id."""
        pid = self.daemon(daemon)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return pid

    def await_another(self, daemon: str, than: int) -> None:
        wait_until(lambda: self.daemon(daemon) not in {None, than}, 30, f"another {daemon}")

    def forwarded(self) -> str:
        """What the pod's server answers through `kubectl port-forward`."""
        kubeconfig = f"--kubeconfig={self.place.kubeconfig}"
        forward = subprocess.Popen(
            [tool("kubectl"), kubeconfig, "port-forward", "pod/pod", f":{_PROXY_PORT}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert forward.stdout is not None
            first = forward.stdout.readline()
            port = re.search(r"127\.0\.0\.1:(\d+)", first)
            assert port, first
            with closing(HTTPConnection("127.0.0.1", int(port[1]), timeout=60)) as connection:
                connection.request("GET", "/version")
                return connection.getresponse().read().decode()
        finally:
            forward.kill()
            forward.communicate()


def kill_at(up: subprocess.Popen[str], stage: str) -> None:
    """End an `up` by SIGKILL when it has said that."""
    await_line(up, stage)
    up.kill()
    up.communicate()


def await_line(process: subprocess.Popen[str], part: str) -> None:
    """Read what it says until a line has that part; whoever waits for ever is killed."""
    assert process.stdout is not None
    watch = threading.Timer(_UP_SECONDS, process.kill)
    watch.start()
    try:
        seen = []
        for line in process.stdout:
            seen.append(line)
            if part in line:
                return
    finally:
        watch.cancel()
    pytest.fail(f"{part!r} was never said: {''.join(seen)}")
