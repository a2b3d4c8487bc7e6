"""The NetworkPolicy of one Provider's pod: its endpoint, the API server, names. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from banlieue.api.v1alpha1.connection import Connection
from banlieue.api.v1alpha1.providerclass import NetworkAccess
from banlieue.operator.deployment import PORT

_DNS = 53
_NOWHERE = 9
"""The discard port."""

_API_SERVER = (443, 6443)
_SCHEME_PORTS = {"https": 443, "http": 80, "qemu+tls": 16514, "qemu+ssh": 22, "ssh": 22}

Rule = dict[str, Any]


def policy(
    access: NetworkAccess, connection: Connection, selected: Mapping[str, str]
) -> dict[str, Any]:
    """The spec of the NetworkPolicy.

    Args:
        access: what the class allows.
        connection: whose endpoints the pod has to reach.
        selected: labels only this pod has.
    """
    urls = [it for it in (connection.endpoint, *connection.endpoints) if it]
    return {
        "podSelector": {"matchLabels": dict(selected)},
        "policyTypes": ["Ingress", "Egress"],
        # Probes and metrics.
        "ingress": [{"ports": [_tcp(PORT)]}],
        "egress": [
            {"ports": [{"protocol": "UDP", "port": _DNS}, _tcp(_DNS)]},
            _rule(access.api_server_addresses, access.api_server_ports or _API_SERVER),
            *_backend(access, urls),
        ],
    }


def _backend(access: NetworkAccess, urls: Sequence[str]) -> Iterable[Rule]:
    found: dict[tuple[str, ...], list[int | None]] = {}
    for url in urls:
        host, port = _endpoint(url)
        to = tuple(access.backend_addresses) or _as_network(host)
        found.setdefault(to, []).append(port)
    if not found and access.backend_ports:
        found[tuple(access.backend_addresses)] = []
    for to, ports in found.items():
        every = [*ports, *access.backend_ports]
        # A scheme without a usual port: whatever port its library takes.
        known = [] if None in every else sorted({it for it in every if it is not None})
        yield _rule(to, known)


def _endpoint(url: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or _SCHEME_PORTS.get(parts.scheme)
    except ValueError:
        # The provider says what is wrong with it; the pod may reach nothing by it.
        return "", _NOWHERE


def _as_network(host: str) -> tuple[str, ...]:
    """The host as a network of one address; empty, which is every address, for a name."""
    try:
        return (str(ipaddress.ip_network(host)),)
    except ValueError:
        return ()


def _rule(networks: Iterable[str], ports: Iterable[int]) -> Rule:
    rule: Rule = {}
    to = [{"ipBlock": {"cidr": it}} for it in networks]
    if to:
        rule["to"] = to
    listed = [_tcp(it) for it in ports]
    if listed:
        rule["ports"] = listed
    return rule


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}
