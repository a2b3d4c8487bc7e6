"""A workload cluster's API as its guests reach it, and how kubeadm gets one in."""

import base64
import contextlib
import json
import ssl
import warnings
from datetime import UTC, datetime
from hashlib import sha256
from http.client import HTTPSConnection
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from test.kit.guestnode import SYSTEM, Object
from test.kit.kubeadmseed import Discovery

NODES: Final = "/api/v1/nodes"
PODS: Final = f"/api/v1/namespaces/{SYSTEM}/pods"
CONFIG_MAPS: Final = "/api/v1/namespaces/{}/configmaps"
SECRETS: Final = f"/api/v1/namespaces/{SYSTEM}/secrets"

_SECONDS: Final = 10.0
_WRONG: Final = 400
_ABSENT: Final = 404
_TAKEN: Final = 409


class NotYetError(Exception):
    """kubeadm would try again: the cluster cannot be reached, or does not know the guest yet."""


class WorkloadClient:
    """A workload cluster's API, as a guest reaches it."""

    def __init__(self, endpoint: str, authority: str, token: str = "") -> None:
        """Args:
        endpoint: `host:port`.
        authority: Certificate it has to be signed by; empty checks nothing.
        token: Bearer token; a control plane is known by its CA and needs none.
        """
        self._endpoint = endpoint
        self._tls = ssl.create_default_context(cadata=authority or None)
        if not authority:
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> Object | None:
        """An object, or None."""
        status, found = self._request("GET", path)
        return None if status == _ABSENT else found

    def create(self, path: str, obj: Object) -> None:
        """Create an object, unless it is there."""
        self._request("POST", path, obj, fine=(_TAKEN,))

    def replace(self, path: str, obj: Object) -> None:
        """Replace an object as it was read."""
        self._request("PUT", path, obj)

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        self._request("DELETE", path, fine=(_ABSENT,))

    def items(self, path: str) -> list[Object]:
        """All objects of a kind."""
        found: list[Object] = self._request("GET", path)[1].get("items") or []
        return found

    def members(self) -> list[Object]:
        """The pods of etcd."""
        return [
            it
            for it in self.items(PODS)
            if (it["metadata"].get("labels") or {}).get("component") == "etcd"
        ]

    def _request(
        self, method: str, path: str, body: Object | None = None, fine: tuple[int, ...] = ()
    ) -> tuple[int, Any]:
        host, _, port = self._endpoint.rpartition(":")
        connection = HTTPSConnection(host, int(port), timeout=_SECONDS, context=self._tls)
        with contextlib.closing(connection):
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, self._headers)
            answer = connection.getresponse()
            data = answer.read()
        if (
            answer.status >= 400
            and answer.status not in fine
            and (method, answer.status) != ("GET", 404)
        ):
            raise NotYetError(f"{method} {path}: {answer.status} {data[:200]!r}")
        return answer.status, json.loads(data) if data else {}


def cluster_info(endpoint: str, authority: str) -> str:
    """The kubeconfig in `cluster-info`, by which a guest that joins knows its cluster."""
    data = base64.b64encode(authority.encode()).decode()
    cluster = {"server": f"https://{endpoint}", "certificate-authority-data": data}
    return json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [{"cluster": cluster}]})


def join(discovery: Discovery) -> WorkloadClient:
    """What `kubeadm join` does to find and trust its cluster, and to be let in.

    Raises:
        NotYetError: The cluster has another CA than it was told, or does not know the token.
    """
    info = WorkloadClient(discovery.endpoint, "").get(
        f"{CONFIG_MAPS.format('kube-public')}/cluster-info"
    )
    if info is None:
        raise NotYetError("no cluster-info")
    (told,) = json.loads(info["data"]["kubeconfig"])["clusters"]
    authority = base64.b64decode(told["cluster"]["certificate-authority-data"]).decode()
    if discovery.ca_hashes and public_key_hash(authority) not in discovery.ca_hashes:
        raise NotYetError("the cluster has another CA than the join configuration says")
    client = WorkloadClient(discovery.endpoint, authority, discovery.token)
    name, _, secret = discovery.token.partition(".")
    found = client.get(f"{SECRETS}/bootstrap-token-{name}")
    data = {
        key: base64.b64decode(it).decode() for key, it in ((found or {}).get("data") or {}).items()
    }
    if data.get("token-secret") != secret or data.get("usage-bootstrap-authentication") != "true":
        raise NotYetError("the cluster does not know the bootstrap token")
    if datetime.fromisoformat(data["expiration"]) < datetime.now(UTC):
        raise NotYetError("the bootstrap token is expired")
    return client


def public_key_hash(certificate: str) -> str:
    """How kubeadm pins a CA."""
    with warnings.catch_warnings():
        # Cluster API gives its CAs the serial number 0, which the library does not like.
        warnings.simplefilter("ignore")
        key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    data = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{sha256(data).hexdigest()}"
