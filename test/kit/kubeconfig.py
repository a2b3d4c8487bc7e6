"""Reading and writing kubeconfig files."""

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from test.kit.certificates import KeyPair, write_private


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server as somebody.

    Attributes:
        server: URL of the API server.
        authority: PEM certificate of the authority that signed its certificate.
        identity: Client certificate, if that is how the user proves who it is.
        token: Bearer token, if that is how.
        namespace: Namespace that tools use when none is named.
    """

    server: str
    authority: bytes
    identity: KeyPair | None = None
    token: str | None = field(default=None, repr=False)
    namespace: str = "default"

    def write(self, path: Path) -> Path:
        """Write a kubeconfig with everything inside, readable by the owner only."""
        user: dict[str, str] = {}
        if self.identity:
            user["client-certificate-data"] = _encode(self.identity.certificate)
            user["client-key-data"] = _encode(self.identity.key)
        if self.token:
            user["token"] = self.token
        cluster = {"server": self.server, "certificate-authority-data": _encode(self.authority)}
        context = {"cluster": "test", "user": "test", "namespace": self.namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        # JSON is YAML, and spares quoting rules.
        write_private(path, json.dumps(document, indent=1).encode())
        return path


def read_kubeconfig(path: Path) -> Access:
    """The access that a kubeconfig's current context describes.

    Args:
        path: A kubeconfig with certificates and token inside or in files, without exec plugins.

    Raises:
        ValueError: It names no usable context.
    """
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        context = _named(document["contexts"], document["current-context"])["context"]
        cluster = _named(document["clusters"], context["cluster"])["cluster"]
        user = _named(document["users"], context["user"])["user"]
        identity = None
        if certificate := _data(user, "client-certificate", path):
            identity = KeyPair(certificate, _data(user, "client-key", path))
        return Access(
            server=cluster["server"],
            authority=_data(cluster, "certificate-authority", path),
            identity=identity,
            token=user.get("token"),
            namespace=context.get("namespace", "default"),
        )
    except (KeyError, TypeError, StopIteration) as error:
        raise ValueError(f"{path} has no usable current context") from error


def _named(entries: list[dict[str, dict[str, str]]], name: str) -> dict[str, dict[str, str]]:
    return next(entry for entry in entries if str(entry["name"]) == name)


def _data(entry: dict[str, str], key: str, path: Path) -> bytes:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    if key in entry:
        return (path.parent / entry[key]).read_bytes()
    return b""


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
