"""Network configuration, version 2, as cloud-init and netplan read it. Pure.

Source: cloud-init's reference of "Networking Config Version 2".
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from banlieue.sdk.driver import AddressPlan, NicPlan

IPV4, IPV6 = "IPv4", "IPv6"
_AUTOMATIC = frozenset({"dhcp", "slaac"})
_WIDTH = {IPV4: 32, IPV6: 128}
_EVERYWHERE = {IPV4: "0.0.0.0/0", IPV6: "::/0"}
_METRIC = 100


@dataclass(frozen=True, slots=True)
class Card:
    """An interface and the MAC address it is known by before the first boot."""

    nic: NicPlan
    mac_address: str

    @property
    def plans(self) -> Sequence[AddressPlan]:
        """Address plans. Without any the network is asked for an IPv4 address."""
        return self.nic.addresses or (AddressPlan(IPV4, "dhcp"),)

    @property
    def fixed(self) -> tuple[AddressPlan, ...]:
        """Addresses that are given rather than asked for."""
        return tuple(it for it in self.plans if it.address and it.source not in _AUTOMATIC)

    @property
    def expected(self) -> bool:
        """Whether the guest may wait for this interface to come up while it boots."""
        return self.nic.connected and any(plan.source != "none" for plan in self.plans)

    def asks(self, family: str, *sources: str) -> bool:
        """Whether an address of the family is asked for in one of these ways."""
        return any(it.family == family and it.source in sources for it in self.plans)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A default route: the first of a family is preferred to those of later interfaces."""

    family: str
    address: str
    metric: int | None
    on_link: bool

    @property
    def destination(self) -> str:
        """Everything, as a network of the family."""
        return _EVERYWHERE[self.family]


def with_prefix(plan: AddressPlan) -> str:
    """A given address in the way `10.0.0.7/24`."""
    return f"{plan.address}/{plan.prefix or _WIDTH[plan.family]}"


def gateways(cards: Sequence[Card]) -> dict[str, tuple[Gateway, ...]]:
    """Default routes by the name of their interface."""
    before = {IPV4: 0, IPV6: 0}
    found: dict[str, tuple[Gateway, ...]] = {}
    for card in cards:
        mine = []
        for plan in card.fixed:
            if plan.gateway is None:
                continue
            metric = _METRIC * before[plan.family] or None
            before[plan.family] += 1
            mine.append(Gateway(plan.family, plan.gateway, metric, _is_outside(plan)))
        found[card.nic.name] = tuple(mine)
    return found


def _is_outside(plan: AddressPlan) -> bool:
    """Whether the gateway is not in the address's own network, so that nothing leads to it."""
    gateway = ipaddress.ip_address(plan.gateway or "")
    inside = gateway in ipaddress.ip_interface(with_prefix(plan)).network
    return not inside and not gateway.is_link_local


def version_2(cards: Sequence[Card]) -> dict[str, Any]:
    """The configuration: interfaces matched by MAC address, named as in the API."""
    routes = gateways(cards)
    ethernets = {card.nic.name: _ethernet(card, routes[card.nic.name]) for card in cards}
    return {"version": 2, "ethernets": ethernets}


def _ethernet(card: Card, routes: Sequence[Gateway]) -> dict[str, Any]:
    nic = card.nic
    body: dict[str, Any] = {
        "match": {"macaddress": card.mac_address},
        "set-name": nic.name,
        "dhcp4": card.asks(IPV4, "dhcp"),
        "dhcp6": card.asks(IPV6, "dhcp"),
        "accept-ra": card.asks(IPV6, *_AUTOMATIC),
    }
    plain = next((it for it in routes if it.family == IPV6 and not (it.metric or it.on_link)), None)
    names = {"addresses": list(nic.nameservers), "search": list(nic.search_domains)}
    optional: tuple[tuple[str, Any], ...] = (
        ("addresses", [with_prefix(plan) for plan in card.fixed]),
        # Older cloud-init, of Debian 12 and Photon 5 for two, takes `::/0` in routes for `::/64`.
        ("gateway6", plain.address if plain else None),
        ("routes", [_route(route) for route in routes if route is not plain]),
        ("nameservers", {key: value for key, value in names.items() if value}),
        ("mtu", nic.mtu),
        ("optional", not card.expected),
    )
    body.update({key: value for key, value in optional if value})
    return body


def _route(route: Gateway) -> dict[str, Any]:
    body: dict[str, Any] = {"to": route.destination, "via": route.address}
    if route.metric:
        body["metric"] = route.metric
    if route.on_link:
        body["on-link"] = True
    return body
