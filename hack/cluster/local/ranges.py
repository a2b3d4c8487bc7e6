"""The addresses of a cluster: one private /16, of which the host has no other use."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from hack.cluster.interface import ClusterError

VARIABLE: Final = "E2E_CLUSTER_RANGE"
# "This network", loopback, link-local, multicast, and reserved (RFC 6890).
_NO_HOSTS: Final = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")
_LENGTH: Final = 16
_PODS_LENGTH: Final = 17
_SERVICES_LENGTH: Final = 18
_SERVICES_AT: Final = 128 << 8
_HOST_AT: Final = (254 << 8) + 1


@dataclass(frozen=True, slots=True)
class Range:
    """A /16 and what lies where in it.

    Attributes:
        network: The whole; the host sends it all to the node.
    """

    network: IPv4Network

    @classmethod
    def parse(cls, text: str) -> "Range":
        """The range written as `10.88.0.0/16`; raises ClusterError when it is not one."""
        try:
            network = IPv4Network(text)
        except ValueError as error:
            raise ClusterError(f"{text!r} is no IPv4 network: {error}") from error
        if network.prefixlen != _LENGTH:
            raise ClusterError(f"a cluster takes a /{_LENGTH} network, not {network}")
        return cls(network)

    @property
    def host(self) -> IPv4Address:
        """The host, as node and pods see it."""
        return self.network[_HOST_AT]

    @property
    def node(self) -> IPv4Address:
        """The node and its API server."""
        return self.network[_HOST_AT + 1]

    @property
    def link_length(self) -> int:
        """Prefix length of the network between host and node."""
        return 30

    @property
    def pods(self) -> IPv4Network:
        """Addresses of pods."""
        return IPv4Network((self.network.network_address, _PODS_LENGTH))

    @property
    def services(self) -> IPv4Network:
        """Addresses of Services."""
        return IPv4Network((self.network[_SERVICES_AT], _SERVICES_LENGTH))

    @property
    def api_service(self) -> IPv4Address:
        """The Service `kubernetes`: always the first of them."""
        return self.services[1]

    @property
    def api_url(self) -> str:
        """Where the API server answers, for the host and the node."""
        return f"https://{self.node}:6443"

    def __str__(self) -> str:
        return str(self.network)


def candidates() -> Iterator[Range]:
    """Ranges in the order they are tried: of private use, then of benchmarks (RFC 1918, 2544)."""
    for second in range(88, 128):
        yield Range(IPv4Network(f"10.{second}.0.0/{_LENGTH}"))
    for second in range(24, 32):
        yield Range(IPv4Network(f"172.{second}.0.0/{_LENGTH}"))
    for second in (18, 19):
        yield Range(IPv4Network(f"198.{second}.0.0/{_LENGTH}"))


def choose(routes: Iterable[IPv4Network], taken: Iterable[Range], first: Range | None) -> Range:
    """The first range that nobody uses.

    Args:
        routes: Networks that the host has routes to or addresses in, without the default route.
        taken: Ranges of other clusters.
        first: A range to prefer, if it is free.

    Raises:
        ClusterError: All are in use.
    """
    used = [*routes, *(other.network for other in taken)]
    for candidate in [first] * (first is not None) + list(candidates()):
        if candidate is not None and not any(candidate.network.overlaps(one) for one in used):
            return candidate
    raise ClusterError(
        "this host has routes to all address ranges that a cluster could take; name a /16 that "
        f"it can do without in {VARIABLE}, such as {VARIABLE}=10.99.0.0/16"
    )


def named(text: str) -> Range:
    """The range that the environment names; raises ClusterError when it is not one."""
    try:
        return Range.parse(text)
    except ClusterError as error:
        raise ClusterError(f"{VARIABLE}: {error}; write it like 10.99.0.0/16") from error


def check(wanted: Range, routes: Iterable[IPv4Network], taken: Iterable[Range]) -> None:
    """Raise ClusterError unless the range can be used, which hides no route but wider ones.

    A wider route is no obstacle here: somebody named this range, and knows what lies there.
    """
    if any(wanted.network.overlaps(IPv4Network(network)) for network in _NO_HOSTS):
        raise ClusterError(
            f"{wanted} holds addresses that no host can have; name another /16 in {VARIABLE}, "
            "such as 10.99.0.0/16"
        )
    for route in routes:
        if route.subnet_of(wanted.network):
            raise ClusterError(
                f"{wanted} cannot be used: this host has a route to {route} already "
                f"(`ip route show table all`); name another /16 in {VARIABLE}"
            )
    for other in taken:
        if other.network.overlaps(wanted.network):
            raise ClusterError(
                f"{wanted} is taken by another cluster "
                f"(`.venv/bin/python -m hack.cluster status`); "
                f"end that one, or name another /16 in {VARIABLE}"
            )
