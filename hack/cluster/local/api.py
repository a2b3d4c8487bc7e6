"""The few questions to the API server that tell whether a cluster is up."""

import http.client
import json
import ssl
import urllib.request
from datetime import UTC, datetime
from typing import Any, Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.paths import Place
from hack.cluster.local.pki import NODE_NAME
from hack.cluster.local.ranges import Range
from hack.cluster.oserrors import told

_ANSWER_SECONDS: Final = 5.0


class Api:
    """The API server of a cluster, as its administrator sees it. Never ready is an answer too."""

    def __init__(self, place: Place, addresses: Range) -> None:
        """Read the certificates; raises ClusterError when they are of no use."""
        self._url = addresses.api_url
        try:
            tls = ssl.create_default_context(cafile=str(place.pki / "ca.crt"))
            tls.load_cert_chain(place.pki / "admin.crt", place.pki / "admin.key")
        except OSError as error:
            raise ClusterError(
                f"the certificates in {place.pki} cannot be used ({told(error)}); "
                f"run: .venv/bin/python -m hack.cluster down --purge --name {place.name}"
            ) from error
        # A proxy of the host's environment has nothing to do with it.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    def ready(self) -> bool:
        """Whether it serves."""
        return self._ask("/readyz") is not None

    def node_ready(self, since: datetime) -> bool:
        """Whether the kubelet has said since then that the node is ready, and answers itself."""
        node = self._read(f"/api/v1/nodes/{NODE_NAME}")
        conditions = node.get("status", {}).get("conditions", []) if node else []
        ready = next((one for one in conditions if one["type"] == "Ready"), None)
        if ready is None or ready["status"] != "True":
            return False
        # The word of an earlier run of the node stands until the kubelet speaks again.
        if _is_before(ready["lastHeartbeatTime"], since):
            return False
        return self._ask(f"/api/v1/nodes/{NODE_NAME}/proxy/healthz") is not None

    def takes_pods(self) -> bool:
        """Whether a pod can be made in the namespace `default` now."""
        account = self._read("/api/v1/namespaces/default/serviceaccounts/default")
        root = self._read("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
        return account is not None and root is not None

    def pods_known(self, since: datetime) -> bool:
        """Whether the kubelet has said of every pod what became of it since then.

        Nothing has run on for longer than the node: what is said to is word of an earlier run.
        """
        pods = self._read("/api/v1/pods")
        if pods is None:
            return False
        begun = [
            status["state"]["running"]["startedAt"]
            for pod in pods["items"]
            for kind in ("containerStatuses", "initContainerStatuses")
            for status in pod.get("status", {}).get(kind, [])
            if "running" in status.get("state", {})
        ]
        return not any(_is_before(text, since) for text in begun)

    def _read(self, path: str) -> dict[str, Any] | None:
        answer = self._ask(path)
        if answer is None:
            return None
        document: dict[str, Any] = json.loads(answer)
        return document

    def _ask(self, path: str) -> bytes | None:
        try:
            # The URL is our own, and the handlers above know no other scheme that matters.
            with self._opener.open(f"{self._url}{path}", timeout=_ANSWER_SECONDS) as response:
                content: bytes = response.read()
                return content
        except (OSError, http.client.HTTPException):
            return None


def _is_before(said: str, since: datetime) -> bool:
    # Kubernetes counts whole seconds.
    return datetime.fromisoformat(said) < since.astimezone(UTC).replace(microsecond=0)
