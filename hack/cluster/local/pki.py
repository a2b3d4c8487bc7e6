"""The certificates of a cluster, and the kubeconfigs of those who may enter it.

The authority and the key that signs ServiceAccount tokens are made once and kept with the state, so
that pods and copied kubeconfigs of a resumed cluster go on working, until the authority runs out.
All others are made anew at every start: they name its addresses, and cost milliseconds.
"""

import base64
import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from hack.certificates import Authority, KeyPair, signing_key, write_private
from hack.cluster.local.paths import Place, inside
from hack.cluster.local.ranges import Range

NODE_NAME: Final = "node0"
# As the daemons are known to the roles that Kubernetes brings along, and the files they get.
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
PROXY: Final = "kube-proxy"
KUBELET: Final = "kubelet"

_YEAR: Final = timedelta(days=365)
_API_NAMES: Final = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    "127.0.0.1",
)


def write_all(place: Place, addresses: Range) -> None:
    """Write certificates, keys and kubeconfigs; what has to stay the same stays."""
    place.pki.mkdir(mode=0o700, exist_ok=True)
    authority = _authority(place.pki)
    _token_key(place.pki)
    api_names = [*_API_NAMES, str(addresses.api_service), str(addresses.node)]
    _issue(authority, "kube-apiserver", hosts=api_names).write(place.pki, "apiserver")
    admin = _issue(authority, "kubernetes-admin", groups=["system:masters"])
    # The API server uses it to reach the kubelet: logs, exec, port-forward.
    admin.write(place.pki, "admin")
    node = _issue(
        authority,
        f"system:node:{NODE_NAME}",
        groups=["system:nodes"],
        hosts=[NODE_NAME, str(addresses.node)],
    )
    node.write(place.pki, "node")
    identities = {
        CONTROLLER_MANAGER: _issue(authority, f"system:{CONTROLLER_MANAGER}"),
        SCHEDULER: _issue(authority, f"system:{SCHEDULER}"),
        PROXY: _issue(authority, f"system:{PROXY}"),
        KUBELET: node,
    }
    for name, identity in identities.items():
        path = place.pki / kubeconfig_file(name)
        _write_kubeconfig(path, place.name, addresses, authority, identity)
    _write_kubeconfig(place.kubeconfig, place.name, addresses, authority, admin)


def kubeconfig_file(daemon: str) -> str:
    """File name of a daemon's kubeconfig."""
    return f"{daemon}.kubeconfig"


def pki_inside(file: str) -> str:
    """Path of one of these files as the node sees it."""
    return inside("pki", file)


def _authority(directory: Path) -> Authority:
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
        kept = Authority(
            pair=KeyPair((directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes())
        )
        begin, end = kept.validity
        now = datetime.now(UTC)
        # As long as what it signs now.
        if begin <= now and now + _YEAR <= end:
            return kept
    # The first start, one that was killed while it wrote them, or one years ago.
    made = Authority("banlieue local cluster")
    made.pair.write(directory, "ca")
    return made


def _token_key(directory: Path) -> None:
    public_file = directory / "service-account.pub"
    if public_file.exists():
        return
    private, public = signing_key()
    write_private(directory / "service-account.key", private)
    # Written last, so that its being there tells that both are.
    new = public_file.with_suffix(".new")
    new.write_bytes(public)
    new.replace(public_file)


def _issue(
    authority: Authority,
    user: str,
    groups: Sequence[str] = (),
    hosts: Sequence[str] = (),
) -> KeyPair:
    return authority.issue(user, organizations=groups, hosts=hosts, valid_until=_YEAR)


def _write_kubeconfig(
    path: Path, name: str, addresses: Range, authority: Authority, identity: KeyPair
) -> None:
    context = f"banlieue-{name}"
    cluster = {
        "server": addresses.api_url,
        "certificate-authority-data": _encode(authority.certificate),
    }
    user = {
        "client-certificate-data": _encode(identity.certificate),
        "client-key-data": _encode(identity.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    # JSON is YAML, and spares quoting rules.
    write_private(path, json.dumps(document, indent=1).encode())


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
