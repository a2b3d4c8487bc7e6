"""What the host has of a cluster's network while it is up: one end of a link, and one route."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.ranges import Range

NODE_LINK: Final = "eth0"
_ALIAS: Final = "banlieue cluster"
_LINKS: Final = Path("/sys/class/net")


def host_networks() -> list[IPv4Network]:
    """Networks that this host has routes to, but for default routes."""
    return networks_of(_ip_json("-4", "route", "show", "table", "all"))


def networks_of(routes: Iterable[Mapping[str, Any]]) -> list[IPv4Network]:
    """Where routes lead that belong to somebody; `routes` as `ip -json route` has them."""
    destinations = [
        IPv4Network(route["dst"], strict=False)
        for route in routes
        if route["dst"] != "default" and route.get("type") not in {"broadcast", "multicast"}
    ]
    return [network for network in destinations if network.prefixlen > 0]


def connect(link: str, name: str, pid: int, addresses: Range) -> None:
    """Lay the link between the host and the node, and route the range to it.

    Args:
        link: Name of the host's end.
        name: The cluster's name.
        pid: The first process of the node, which lives in its own network namespace already.
        addresses: The range.

    Raises:
        ClusterError: That is not possible; nothing is left then but the link.
    """
    length = addresses.link_length
    _ip("link", "add", link, "type", "veth", "peer", "name", NODE_LINK, "netns", str(pid))
    _ip("link", "set", link, "alias", f"{_ALIAS} {name}")
    _ip("address", "add", f"{addresses.host}/{length}", "dev", link)
    _ip("link", "set", link, "up")
    inside = ("nsenter", f"--target={pid}", "--net", "ip")
    _run(*inside, "link", "set", "lo", "up")
    _run(*inside, "address", "add", f"{addresses.node}/{length}", "dev", NODE_LINK)
    _run(*inside, "link", "set", NODE_LINK, "up")
    _run(*inside, "route", "add", "default", "via", str(addresses.host))
    # `add` refuses a network that the host has a route to already; `replace` would take it away.
    _ip("route", "add", str(addresses), "via", str(addresses.node), "dev", link, "onlink")


def disconnect(link: str, name: str) -> None:
    """Remove the link, and its route with it; absent is fine.

    Raises:
        ClusterError: There is a link of that name that is not the cluster's.
    """
    folder = _LINKS / link
    try:
        alias = (folder / "ifalias").read_text(encoding="utf-8").strip()
    except OSError:
        # The kernel removes it a moment after the node's namespace, perhaps just now.
        if not folder.exists():
            return
        alias = ""
    # An `up` that was killed between making the link and naming it leaves one without.
    if alias not in {"", f"{_ALIAS} {name}"}:
        raise ClusterError(f"the link {link} belongs to {alias!r}; it is left alone")
    result = _call("ip", "link", "delete", link)
    if result.returncode != 0 and folder.exists():
        raise ClusterError(f"cannot remove the link {link}: {result.stderr.strip()}")


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    parsed = json.loads(_run("ip", "-json", *arguments) or "[]")
    return parsed if isinstance(parsed, list) else []


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> str:
    result = _call(*command)
    if result.returncode != 0:
        said = result.stderr.strip()
        raise ClusterError(f"`{' '.join(command)}` failed: {said}{_remedy(said)}")
    return result.stdout


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _remedy(said: str) -> str:
    if "Unknown device type" in said:
        return "; the kernel needs the module veth (`modprobe veth`)"
    if "File exists" in said:
        return "; something else on this host has taken that address since it was chosen"
    if "Operation not permitted" in said:
        return "; this needs root with CAP_NET_ADMIN (in a container: a privileged one)"
    return ""
