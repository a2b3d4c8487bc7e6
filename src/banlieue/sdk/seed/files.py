"""Files that configure a guest which reads no cloud-init data: network, identity. Pure.

Each interface is described twice, for systemd-networkd (Flatcar) and for NetworkManager (Fedora
CoreOS): a guest reads what its own service looks for. Both match by MAC address.

Sources: systemd.network(5), systemd.link(5), nm-settings-keyfile(5).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from banlieue.sdk.seed.network import IPV4, IPV6, Card, Gateway, gateways, with_prefix

NETWORKD = "/etc/systemd/network/10-banlieue-"
NETWORK_MANAGER = "/etc/NetworkManager/system-connections/banlieue-"

_Section = tuple[str, list[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class File:
    """A file to be in the guest before anything is started; `mode` as chmod has it."""

    path: str
    text: str
    mode: int = 0o644


def environment(values: Mapping[str, str]) -> str:
    """Values as systemd's EnvironmentFile= and a shell read them."""
    return "".join(f"{key}='{value}'\n" for key, value in values.items())


def network(cards: Sequence[Card]) -> tuple[File, ...]:
    """The files that configure all interfaces."""
    routes = gateways(cards)
    return tuple(file for card in cards for file in _of_card(card, routes[card.nic.name]))


def _of_card(card: Card, routes: Sequence[Gateway]) -> Iterator[File]:
    name = card.nic.name
    yield File(
        f"{NETWORKD}{name}.link",
        _ini([("Match", [("MACAddress", card.mac_address)]), ("Link", [("Name", name)])]),
    )
    yield File(f"{NETWORKD}{name}.network", _ini(_networkd(card, routes)))
    keyfile = _ini(_network_manager(card, routes))
    yield File(f"{NETWORK_MANAGER}{name}.nmconnection", keyfile, 0o600)


def _networkd(card: Card, routes: Sequence[Gateway]) -> list[_Section]:
    nic = card.nic
    four, six = card.asks(IPV4, "dhcp"), card.asks(IPV6, "dhcp")
    dhcp = {(True, True): "yes", (True, False): "ipv4", (False, True): "ipv6"}
    link = [] if nic.mtu is None else [("MTUBytes", str(nic.mtu))]
    if not card.expected:
        link.append(("RequiredForOnline", "no"))
    body = [
        ("DHCP", dhcp.get((four, six), "no")),
        ("IPv6AcceptRA", "yes" if card.asks(IPV6, "dhcp", "slaac") else "no"),
        *(("Address", with_prefix(plan)) for plan in card.fixed),
        *(("DNS", server) for server in nic.nameservers),
    ]
    if nic.search_domains:
        body.append(("Domains", " ".join(nic.search_domains)))
    sections = [("Match", [("MACAddress", card.mac_address)]), ("Link", link), ("Network", body)]
    for route in routes:
        lines = [("Gateway", route.address)]
        if route.metric:
            lines.append(("Metric", str(route.metric)))
        if route.on_link:
            lines.append(("GatewayOnLink", "yes"))
        sections.append(("Route", lines))
    return sections


def _network_manager(card: Card, routes: Sequence[Gateway]) -> list[_Section]:
    nic = card.nic
    ethernet = [("mac-address", card.mac_address.upper())]
    if nic.mtu is not None:
        ethernet.append(("mtu", str(nic.mtu)))
    ways = {
        IPV4: "auto" if card.asks(IPV4, "dhcp") else "disabled",
        IPV6: _way_6(card),
    }
    sections = [
        ("connection", [("id", nic.name), ("type", "ethernet")]),
        ("ethernet", ethernet),
    ]
    for family in (IPV4, IPV6):
        fixed = [plan for plan in card.fixed if plan.family == family]
        way = "manual" if fixed and ways[family] in {"disabled", "link-local"} else ways[family]
        lines = [("method", way)]
        lines += [(f"address{n}", with_prefix(plan)) for n, plan in enumerate(fixed, 1)]
        mine = [route for route in routes if route.family == family]
        lines += [(f"route{n}", _nm_route(route)) for n, route in enumerate(mine, 1)]
        lines += _nm_names(card, family) if way in {"auto", "dhcp", "manual"} else []
        sections.append((family.lower(), lines))
    return sections


def _way_6(card: Card) -> str:
    if card.asks(IPV6, "slaac"):
        return "auto"
    return "dhcp" if card.asks(IPV6, "dhcp") else "link-local"


def _nm_route(route: Gateway) -> str:
    metric = f",{route.metric}" if route.metric else ""
    return f"{route.destination},{route.address}{metric}"


def _nm_names(card: Card, family: str) -> list[tuple[str, str]]:
    servers = [it for it in card.nic.nameservers if (":" in it) == (family == IPV6)]
    lines = [("dns", "".join(f"{server};" for server in servers))] if servers else []
    if card.nic.search_domains:
        lines.append(("dns-search", "".join(f"{it};" for it in card.nic.search_domains)))
    return lines


def _ini(sections: Sequence[_Section]) -> str:
    """Sections without lines are left out."""
    texts = [
        "".join([f"[{name}]\n", *(f"{key}={value}\n" for key, value in lines)])
        for name, lines in sections
        if lines
    ]
    return "\n".join(texts)
