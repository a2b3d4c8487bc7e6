"""The API of workload clusters without machines, as a process: `hack/tools/workload-api`.

The endpoint of a control plane is the address of this host that pods of the management cluster
reach (`Cluster.host_address`) and a port that is free on it, both given by whoever writes the
Cluster. Nothing listens there before a guest says that it is the first control plane.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process
from test.kit.tools import tool

_START_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 30.0

Part = Literal["api-servers", "etcd-members"]


class WorkloadApiError(Exception):
    """The control interface refused something; the message has its words."""


class WorkloadApi:
    """Serves any number of workload clusters.

    Attributes:
        host: Where clients reach them.
        process: The process; kill it for control planes that are gone all at once.
    """

    def __init__(self, directory: Path, host: str = LOOPBACK) -> None:
        """Describe it; the `with` block starts and ends it.

        Args:
            directory: Where its log goes.
            host: Address at which everybody reaches the clusters.

        Raises:
            ToolError: The program is not built.
        """
        self.host = host
        self._control = f"{LOOPBACK}:{free_port()}"
        self.process = Process(
            "workload-api",
            [tool("workload-api"), "-host", host, "-control", self._control],
            log_file=directory / "workload-api.log",
            grace=1.0,
        )

    def __enter__(self) -> Self:
        self.process.start(self._alive, _START_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.stop()

    def clusters(self) -> Mapping[str, str]:
        """Address of each cluster by its name."""
        found: Mapping[str, str] = self._call("GET", "/clusters")
        return found

    def parts(self, cluster: str) -> tuple[list[str], list[str]]:
        """Pods of the API servers and of the etcd members that serve a cluster."""
        found = self._call("GET", _path(cluster))
        return found["APIServers"], found["EtcdMembers"]

    def add(self, cluster: str, port: int) -> None:
        """Make a cluster that serves nothing yet; one that is there stays as it is."""
        self._call("PUT", _path(cluster), {"port": port})

    def remove(self, cluster: str) -> None:
        """Take a cluster away with all it holds."""
        self._call("DELETE", _path(cluster))

    def serve(self, cluster: str, part: Part, pod: str, authority: tuple[str, str]) -> None:
        """Have a pod serve; the authority is certificate and key of its CA, in PEM."""
        certificate, key = authority
        self._call("PUT", _path(cluster, part, pod), {"certificate": certificate, "key": key})

    def silence(self, cluster: str, part: Part, pod: str) -> None:
        """Have a pod serve no more; with the last API server the port is closed."""
        self._call("DELETE", _path(cluster, part, pod))

    def _alive(self) -> bool:
        self._call("GET", "/healthz")
        return True

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self._control}{path}", data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - same
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")
            raise WorkloadApiError(f"{method} {path}: {reason}") from None


def _path(*parts: str) -> str:
    return "/clusters/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)
