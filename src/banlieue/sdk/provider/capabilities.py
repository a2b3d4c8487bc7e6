"""What abstract storage and network class names mean on one Provider, at one failure domain.

The admin declares targets in `spec.capabilities`; the driver verifies per failure domain which of
them are really reachable. Everything here is pure.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import (
    Capabilities,
    NetworkClassCapability,
    ProviderSpec,
    StorageClassCapability,
    Subnet,
)
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import FailureDomain, Target
from banlieue.sdk.errors import InvalidSpec, NeedsOperator

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_Class = TypeVar("_Class", StorageClassCapability, NetworkClassCapability)


@dataclass(frozen=True, slots=True)
class Network:
    """A network class resolved: the backend's target and what its subnets give to guests."""

    name: str
    target: Target
    subnets: tuple[Subnet, ...] = ()
    mtu: int | None = None

    @property
    def nameservers(self) -> tuple[str, ...]:
        """Name servers of all subnets, in order, each once."""
        return _once(server for subnet in self.subnets for server in subnet.nameservers)

    @property
    def search_domains(self) -> tuple[str, ...]:
        """Search domains of all subnets, in order, each once."""
        return _once(domain for subnet in self.subnets for domain in subnet.search_domains)


@dataclass(frozen=True, slots=True)
class StaticAddress:
    """A static address with what the guest needs to use it."""

    address: str
    prefix: int
    gateway: str | None
    nameservers: tuple[str, ...] = field(default=())
    search_domains: tuple[str, ...] = field(default=())


def storage_target(capabilities: Capabilities, name: str, where: FailureDomain) -> Target:
    """What storage class `name` is on the backend, as it is reachable from `where`.

    Raises:
        NeedsOperator: the Provider does not declare the class, or it is not reachable there.
    """
    found = _declared(
        capabilities.storage_classes,
        name,
        reachable=name in where.storage_classes,
        reason=Reason.STORAGE_CLASS_NOT_AVAILABLE,
        kind="storage class",
    )
    return dict(found.target)


def network(capabilities: Capabilities, name: str, where: FailureDomain) -> Network:
    """What network class `name` is on the backend, as it is reachable from `where`.

    Raises:
        NeedsOperator: the Provider does not declare the class, or it is not reachable there.
    """
    found = _declared(
        capabilities.network_classes,
        name,
        reachable=name in where.network_classes,
        reason=Reason.NETWORK_NOT_AVAILABLE,
        kind="network class",
    )
    return Network(found.name, dict(found.target), tuple(found.subnets), found.mtu)


def static_address(net: Network, address: str) -> StaticAddress:
    """Prefix, gateway and name servers of a static address on a network.

    Raises:
        InvalidSpec: it is no address, or lies in no range users may take addresses from.
    """
    wanted = _address(address)
    for subnet in net.subnets:
        cidr = _network(subnet.cidr)
        if cidr is None or wanted is None or wanted not in cidr:
            continue
        if not any(r is not None and wanted in r for r in map(_network, subnet.allow_static)):
            break
        return StaticAddress(
            str(wanted),
            cidr.prefixlen,
            subnet.gateway,
            tuple(subnet.nameservers),
            tuple(subnet.search_domains),
        )
    ranges = ", ".join(_once(text for s in net.subnets for text in s.allow_static)) or "none"
    raise InvalidSpec(
        Reason.INVALID_CONFIGURATION,
        f"address {address} is outside the static ranges of network class {net.name!r} "
        f"({ranges}); choose one inside, or another source",
    )


def gateway_of(net: Network, address: str) -> str | None:
    """The default gateway of the subnet an address lies in, None when it has none."""
    wanted = _address(address)
    for subnet in net.subnets:
        cidr = _network(subnet.cidr)
        if cidr is not None and wanted is not None and wanted in cidr:
            return subnet.gateway
    return None


def flaws(spec: ProviderSpec, backend: Backend[Any]) -> tuple[str, ...]:
    """Mistakes in the declaration, one sentence each with field and remedy; none is ignored.

    They are what `CapabilityInvalid` reports: keys of settings and targets the backend does not
    know, and subnets whose ranges or gateway lie outside them.
    """
    capabilities = spec.capabilities
    found = _unknown_keys("settings", spec.settings, backend.settings_keys)
    for storage in capabilities.storage_classes:
        field_name = f"capabilities.storageClasses[{storage.name}]"
        found += _unknown_keys(f"{field_name}.target", storage.target, backend.storage_target_keys)
    for net in capabilities.network_classes:
        field_name = f"capabilities.networkClasses[{net.name}]"
        found += _unknown_keys(f"{field_name}.target", net.target, backend.network_target_keys)
        for subnet in net.subnets:
            found += _subnet_flaws(f"{field_name}.subnets[{subnet.cidr}]", subnet)
    return tuple(found)


def without_flaws(capabilities: Capabilities, backend: Backend[Any]) -> Capabilities:
    """The declaration without the classes that `flaws` speaks of; drivers get only this one."""
    return Capabilities(
        storage_classes=[
            entry
            for entry in capabilities.storage_classes
            if backend.storage_target_keys.issuperset(entry.target)
        ],
        network_classes=[
            entry
            for entry in capabilities.network_classes
            if backend.network_target_keys.issuperset(entry.target)
            and not any(_subnet_flaws("", subnet) for subnet in entry.subnets)
        ],
        features=capabilities.features,
    )


def known_settings(settings: Target, backend: Backend[Any]) -> Target:
    """The settings without the keys that `flaws` speaks of."""
    return {key: value for key, value in settings.items() if key in backend.settings_keys}


def _unknown_keys(field_name: str, target: Target, known: frozenset[str]) -> list[str]:
    offered = ", ".join(sorted(known)) or "none"
    return [
        f"{field_name}: key {key!r} is not known; remove it or use one of: {offered}"
        for key in sorted(target)
        if key not in known
    ]


def _subnet_flaws(field_name: str, subnet: Subnet) -> list[str]:
    cidr = _network(subnet.cidr)
    if cidr is None:
        return [f"{field_name}: not an IP subnet; write it like 10.0.0.0/24"]
    found: list[str] = []
    for text in subnet.allow_static:
        inner = _network(text)
        if inner is None or not _within(inner, cidr):
            found.append(f"{field_name}.allowStatic: {text} is not inside the subnet; correct it")
    if subnet.gateway is not None:
        gateway = _address(subnet.gateway)
        # An IPv6 router is usually reached by its link-local address.
        if gateway is None or not (gateway in cidr or gateway.is_link_local):
            found.append(
                f"{field_name}.gateway: {subnet.gateway} is not inside the subnet; correct it"
            )
    return found


def _within(inner: IPNetwork, outer: IPNetwork) -> bool:
    if isinstance(inner, ipaddress.IPv4Network) and isinstance(outer, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, ipaddress.IPv6Network) and isinstance(outer, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def _network(text: str) -> IPNetwork | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _address(text: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _declared(
    classes: Iterable[_Class], name: str, *, reachable: bool, reason: Reason, kind: str
) -> _Class:
    found = next((entry for entry in classes if entry.name == name), None)
    if found is None:
        raise NeedsOperator(
            reason, f"the Provider offers no {kind} {name!r}; use one it offers, or declare it"
        )
    if not reachable:
        raise NeedsOperator(
            reason,
            f"{kind} {name!r} is not reachable from this failure domain; "
            "use another class, or another failure domain",
        )
    return found


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
