"""What the guest's agent reports, cut down to what is the machine's own. Pure."""

import ipaddress
from collections.abc import Collection, Iterable
from typing import Any

from banlieue.sdk.driver import Address

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def addresses(nics: Iterable[Any], cards: Collection[int]) -> tuple[Address, ...]:
    """The addresses of the VM's own cards, by card, IPv4 first.

    Container bridges and tunnels inside the guest are reported too, but belong to no card; link
    local and other addresses nobody can be reached at are left out.

    Args:
        nics: entries of `guest.net`.
        cards: device keys of the VM's network cards.
    """
    found: dict[str, Address] = {}
    for nic in sorted(nics, key=lambda nic: nic.deviceConfigId):
        if nic.deviceConfigId not in cards:
            continue
        usable = [ip for ip in map(_parse, nic.ipAddress or ()) if ip is not None]
        for ip in sorted(usable, key=lambda ip: ip.version):
            found.setdefault(str(ip), Address("InternalIP", str(ip)))
    return tuple(found.values())


def families(found: Iterable[Address]) -> frozenset[str]:
    """Which of `IPv4` and `IPv6` are among the addresses."""
    return frozenset(
        "IPv6" if ":" in item.address else "IPv4" for item in found if item.type == "InternalIP"
    )


def _parse(text: str) -> _Ip | None:
    try:
        ip = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    useless = ip.is_link_local or ip.is_loopback or ip.is_multicast or ip.is_unspecified
    return None if useless else ip
