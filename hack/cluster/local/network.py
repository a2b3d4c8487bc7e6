"""What the host has of a cluster's network while it is up: one end of a link, and one route."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.programs import program
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
    inside = (program("nsenter"), f"--target={pid}", "--net", program("ip"))
    if (_LINKS / link).exists():
        raise ClusterError(
            f"there is a link {link} on this host that this cluster has not made; remove it "
            f"(`ip link delete {link}`), or choose another name for the cluster"
        )
    # Made and named in the node, so that the host never has one that does not say whose it is.
    _run(*inside, "link", "add", NODE_LINK, "type", "veth", "peer", "name", link)
    _run(*inside, "link", "set", link, "alias", _alias(name))
    _run(*inside, "link", "set", link, "netns", str(os.getpid()))
    _ip("address", "add", f"{addresses.host}/{length}", "dev", link)
    _ip("link", "set", link, "up")
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
        return
    if alias != _alias(name):
        raise ClusterError(
            f"the link {link} is not of this cluster (its alias is {alias!r}), so it is left "
            f"alone; if nobody needs it, remove it by `ip link delete {link}`"
        )
    result = _call(program("ip"), "link", "delete", link)
    if result.returncode != 0 and folder.exists():
        raise ClusterError(f"cannot remove the link {link}: {result.stderr.strip()}")


def _alias(name: str) -> str:
    return f"{_ALIAS} {name}"


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    parsed = json.loads(_run(program("ip"), "-json", *arguments) or "[]")
    return parsed if isinstance(parsed, list) else []


def _ip(*arguments: str) -> None:
    _run(program("ip"), *arguments)


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
