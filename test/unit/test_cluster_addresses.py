from ipaddress import IPv4Network

import pytest

from hack.cluster.interface import ClusterError
from hack.cluster.local import network, ranges
from hack.cluster.local.ranges import Range


def networks(*texts: str) -> list[IPv4Network]:
    return [IPv4Network(text) for text in texts]


def test_the_parts_of_a_range_lie_in_it_and_apart() -> None:
    whole = Range.parse("10.88.0.0/16")
    link = IPv4Network((whole.host, whole.link_length), strict=False)
    parts = [whole.pods, whole.services, link]
    assert all(part.subnet_of(whole.network) for part in parts)
    assert not any(one.overlaps(two) for one in parts for two in parts if one is not two)
    assert whole.node in link
    assert whole.host != whole.node
    assert whole.api_service in whole.services
    assert whole.api_url == "https://10.88.254.2:6443"
    assert str(whole) == "10.88.0.0/16"


@pytest.mark.parametrize("text", ["10.88.0.0/24", "10.88.0.1/16", "fd00::/16", "", "ten"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ClusterError):
        Range.parse(text)
    with pytest.raises(ClusterError, match=f"^{ranges.VARIABLE}: .* like 10"):
        ranges.named(text)


def test_all_candidates_are_apart() -> None:
    found = [candidate.network for candidate in ranges.candidates()]
    assert len(found) > 40
    assert not any(one.overlaps(two) for number, one in enumerate(found) for two in found[:number])


def test_routes_and_other_clusters_are_avoided() -> None:
    first, second, third, *_ = ranges.candidates()
    assert ranges.choose([], [], None) == first
    assert ranges.choose(networks("10.88.3.0/24"), [], None) == second
    assert ranges.choose(networks("10.88.3.7/32"), [second], None) == third


def test_a_wide_route_moves_the_choice_to_other_blocks() -> None:
    chosen = ranges.choose(networks("10.0.0.0/8", "172.16.0.0/12"), [], None)
    assert chosen.network.subnet_of(IPv4Network("198.18.0.0/15"))


def test_the_last_range_is_taken_again_if_it_is_free() -> None:
    last = Range.parse("10.99.0.0/16")
    assert ranges.choose([], [], last) == last
    assert ranges.choose(networks("10.99.1.0/24"), [], last) != last


def test_a_host_without_a_free_range_is_told_what_to_set() -> None:
    with pytest.raises(ClusterError, match=f"{ranges.VARIABLE}=10"):
        ranges.choose(networks("0.0.0.0/1", "128.0.0.0/1"), [], None)


def test_a_named_range_may_lie_in_a_wider_route_only() -> None:
    wanted = Range.parse("10.99.0.0/16")
    ranges.check(wanted, networks("10.0.0.0/8", "192.0.2.0/24"), [Range.parse("10.98.0.0/16")])
    with pytest.raises(ClusterError, match=r"route to 10\.99\.0\.0/16"):
        ranges.check(wanted, networks("10.99.0.0/16"), [])
    with pytest.raises(ClusterError, match=r"route to 10\.99\.3\.0/24"):
        ranges.check(wanted, networks("10.99.3.0/24"), [])
    with pytest.raises(ClusterError, match="taken by another cluster"):
        ranges.check(wanted, [], [wanted])


def test_default_routes_belong_to_nobody() -> None:
    routes = [
        {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
        {"dst": "0.0.0.0/0", "table": "7"},
        {"dst": "192.0.2.0/24", "dev": "eth0"},
        {"type": "local", "dst": "192.0.2.2", "table": "local"},
        {"type": "broadcast", "dst": "192.0.2.255", "table": "local"},
        {"type": "unreachable", "dst": "10.1.0.0/16"},
    ]
    assert network.networks_of(routes) == networks("192.0.2.0/24", "192.0.2.2", "10.1.0.0/16")
