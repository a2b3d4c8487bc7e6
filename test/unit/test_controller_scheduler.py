"""The scheduler: deterministic, true to its filters, sticky, and plain about every refusal."""

import pytest

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling.filters import DOMAIN_FILTERS, SITE_FILTERS
from banlieue.controller.scheduling.placement import (
    TOPOLOGY_FAILURE_DOMAIN,
    TOPOLOGY_HOST,
    TOPOLOGY_PROVIDER,
    Apart,
    Capacity,
    Claim,
    ImageState,
    Place,
    Placed,
    PoolWish,
    StaticAddress,
)
from banlieue.controller.scheduling.placing import place
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.sdk.kube import Key
from test.kit.scheduling import (
    EVERYBODY,
    chosen,
    demand,
    domain,
    labelled,
    refusal,
    resident,
    site,
)


def test_the_filters_stand_in_the_order_that_is_documented() -> None:
    assert [name for name, _ in (*SITE_FILTERS, *DOMAIN_FILTERS)] == [
        "open",
        "providerRef",
        "providerSelector",
        "failureDomainSelector",
        "schedulable",
        "image",
        "architecture",
        "firmware",
        "minimumDisk",
        "bootstrap",
        "agent",
        "storageClasses",
        "existingDisks",
        "networkClasses",
        "features",
        "memory",
        "refused",
        "antiAffinity",
    ]


@pytest.mark.parametrize(
    ("changed", "reason", "words"),
    [
        ({"ready": False, "not_ready": "Boom"}, Reason.PROVIDER_NOT_READY, "not ready: Boom"),
        ({"paused": True}, Reason.PROVIDER_PAUSED, ": paused"),
        ({"read_only": True}, Reason.PROVIDER_READ_ONLY, "read-only"),
        ({"cordoned": True}, Reason.PROVIDER_CORDONED, "cordoned"),
        ({"deleting": True}, Reason.PROVIDER_DELETING, "being deleted"),
        ({"images": {}}, Reason.IMAGE_NOT_READY, "has not reported"),
        (
            {"images": {"ubuntu": ImageState(ready=False, message="no template x")}},
            Reason.IMAGE_NOT_READY,
            "no template x",
        ),
        (
            {"images": {"ubuntu": ImageState(ready=False, reason="Importing", message="40%")}},
            Reason.IMAGE_NOT_READY,
            "being imported",
        ),
        ({"domains": ()}, Reason.NO_FAILURE_DOMAIN_MATCHED, "publishes no failure domain"),
    ],
)
def test_a_provider_that_cannot_take_it_says_why(
    changed: dict[str, object], reason: Reason, words: str
) -> None:
    answer = refusal(schedule(demand(), [site(**changed)], []))  # type: ignore[arg-type] # fields
    assert answer.reason is reason
    assert words in answer.message
    assert answer.reason.kind.value == "W"


@pytest.mark.parametrize(
    ("changed", "wanted", "reason"),
    [
        ({"schedulable": False}, {}, Reason.FAILURE_DOMAIN_CORDONED),
        ({}, {"domain_selector": labelled(zone="x")}, Reason.NO_FAILURE_DOMAIN_MATCHED),
        ({"storage_classes": frozenset()}, {}, Reason.STORAGE_CLASS_NOT_AVAILABLE),
        ({}, {"existing_disks": ("db-data-1",)}, Reason.DISK_NOT_FOUND),
        ({"network_classes": frozenset()}, {}, Reason.NETWORK_NOT_AVAILABLE),
        ({}, {"features": ("TPM",)}, Reason.FEATURE_UNSUPPORTED),
        ({}, {"firmware": "efi-secure"}, Reason.FEATURE_UNSUPPORTED),
        ({}, {"firmware": "efi", "image_firmware": ("bios",)}, Reason.FIRMWARE_UNSUPPORTED),
        ({}, {"root_disk_gib": 5, "min_disk_gib": 10}, Reason.IMAGE_TOO_LARGE),
        (
            {"architectures": frozenset({"arm64"})},
            {},
            Reason.ARCHITECTURE_UNSUPPORTED,
        ),
        ({"capacity": Capacity(8192, 2048)}, {}, Reason.INSUFFICIENT_CAPACITY),
        (
            {},
            {"static_addresses": (StaticAddress("prod", "10.0.0.7"),)},
            Reason.NETWORK_NOT_AVAILABLE,
        ),
        ({}, {"pool_wishes": (PoolWish("prod", "IPv4"),)}, Reason.NETWORK_NOT_AVAILABLE),
    ],
)
def test_a_failure_domain_that_cannot_take_it_says_why(
    changed: dict[str, object], wanted: dict[str, object], reason: Reason
) -> None:
    answer = refusal(schedule(demand(**wanted), [site("one", domain("a", **changed))], []))
    assert answer.reason is reason
    assert "(a: " in answer.message


def test_a_static_address_needs_a_range_that_allows_it() -> None:
    wanted = demand(static_addresses=(StaticAddress("prod", "10.0.0.7"),))
    assert chosen(schedule(wanted, [site(allow_static={"prod": ("10.0.0.0/28",)})], [])) == "one-a"
    other = schedule(wanted, [site(allow_static={"prod": ("10.0.1.0/28",)})], [])
    assert refusal(other).reason is Reason.NETWORK_NOT_AVAILABLE


def test_an_address_from_a_pool_needs_a_pool_of_its_family() -> None:
    wanted = demand(pool_wishes=(PoolWish("prod", "IPv6"),))
    assert chosen(schedule(wanted, [site(pools={"prod": frozenset({"IPv6"})})], [])) == "one-a"
    other = refusal(schedule(wanted, [site(pools={"prod": frozenset({"IPv4"})})], []))
    assert other.reason is Reason.NETWORK_NOT_AVAILABLE
    assert "IPv6" in other.message


def test_contradictions_of_class_and_image_are_lasting_and_full_hosts_are_not() -> None:
    small = demand(root_disk_gib=5, min_disk_gib=10)
    assert refusal(schedule(small, [site()], [])).lasting
    full = site("one", domain("a", capacity=Capacity(8192, 0)))
    assert not refusal(schedule(demand(), [full], [])).lasting


def test_a_forbidden_and_a_missing_provider_give_the_same_answer() -> None:
    pinned = demand(provider_ref=Key("system", "secret"))
    hidden = schedule(pinned, [site("secret", allowed=False), site("one")], [])
    missing = schedule(pinned, [site("one")], [])
    assert hidden == missing
    assert refusal(hidden).reason is Reason.PROVIDER_NOT_ALLOWED


def test_a_forbidden_provider_is_never_mentioned() -> None:
    full = site("one", schedulable_nowhere := domain("a", schedulable=False))
    with_secret = schedule(demand(), [full, site("secret", allowed=False)], [])
    assert with_secret == schedule(demand(), [full], [])
    assert schedulable_nowhere.name in refusal(with_secret).message
    nothing = schedule(demand(), [site("secret", allowed=False)], [])
    assert nothing == schedule(demand(), [], [])


def test_required_anti_affinity_looks_at_where_neighbours_are() -> None:
    here, there = domain("a", labels={"rack": "1"}), domain("b", labels={"rack": "2"})
    sites = [site("one", here, there)]
    apart = (Apart("rack", labelled(app="db"), required=True),)
    neighbour = resident("db-2", Place(sites[0].key, "a"))
    assert chosen(schedule(demand(apart=apart), sites, [neighbour])) == "b"
    both = [neighbour, resident("db-3", Place(sites[0].key, "b"))]
    answer = refusal(schedule(demand(apart=apart), sites, both))
    assert answer.reason is Reason.ANTI_AFFINITY_UNSATISFIED
    assert "db-2" in answer.message


def test_a_neighbour_that_wants_to_be_alone_is_left_alone() -> None:
    sites = [site("one", domain("a"), domain("b"))]
    shy = Apart(TOPOLOGY_FAILURE_DOMAIN, labelled(app="db"), required=True)
    neighbour = resident("db-2", Place(sites[0].key, "a"), labels={}, apart=(shy,))
    assert chosen(schedule(demand(), sites, [neighbour])) == "b"


def test_neighbours_of_other_namespaces_and_the_machine_itself_do_not_count() -> None:
    sites = [site("one", domain("a"))]
    apart = (Apart(TOPOLOGY_PROVIDER, EVERYBODY, required=True),)
    where = Place(sites[0].key, "a")
    others = [resident("x", where, key=Key("team-b", "x")), resident("db-1", where)]
    assert chosen(schedule(demand(apart=apart), sites, others)) == "a"


def test_hosts_are_the_backends_choice_so_they_only_rank_failure_domains() -> None:
    sites = [site("one", domain("a"), domain("b"))]
    apart = (Apart(TOPOLOGY_HOST, EVERYBODY, required=True),)
    at_a = resident("db-2", Place(sites[0].key, "a"))
    at_b = resident("db-3", Place(sites[0].key, "b"))
    assert chosen(schedule(demand(apart=apart), sites, [at_a])) == "b"
    assert isinstance(schedule(demand(apart=apart), sites, [at_a, at_b]), Placed)


def test_preferred_anti_affinity_beats_room_and_room_beats_names() -> None:
    roomy = domain("b", capacity=Capacity(65536, 60000))
    tight = domain("a", capacity=Capacity(65536, 10000))
    sites = [site("one", tight, roomy)]
    assert chosen(schedule(demand(), sites, [])) == "b"
    apart = (Apart(TOPOLOGY_FAILURE_DOMAIN, EVERYBODY),)
    neighbour = resident("db-2", Place(sites[0].key, "b"))
    assert chosen(schedule(demand(apart=apart), sites, [neighbour])) == "a"


def test_memory_may_be_promised_several_times_over() -> None:
    full = domain("a", capacity=Capacity(8192, 0))
    refused = refusal(schedule(demand(), [site("one", full)], []))
    assert refused.reason is Reason.INSUFFICIENT_CAPACITY
    generous = site("one", full, overcommit_memory=1.5)
    assert isinstance(schedule(demand(), [generous], []), Placed)


def test_where_the_backend_admits_machines_memory_only_ranks() -> None:
    full = domain("a", capacity=Capacity(8192, 0))
    trusting = site("one", full, admission_by_backend=True)
    assert isinstance(schedule(demand(), [trusting], []), Placed)


def test_a_refused_place_is_avoided() -> None:
    sites = [site("one", domain("a"), domain("b"))]
    refused = {Place(sites[0].key, "a"): "InsufficientCapacity"}
    assert chosen(schedule(demand(), sites, [], refused=refused)) == "b"


def test_a_placed_machine_does_not_go_elsewhere_when_its_provider_is_gone() -> None:
    before = Place(Key("system", "gone"), "a")
    answer = refusal(place(demand(), [site()], [], before=before))
    assert answer.reason is Reason.PROVIDER_NOT_FOUND


def test_a_machine_held_by_two_providers_is_a_conflict() -> None:
    held = (Claim("d" * 64),)
    sites = [site("one", claims=held), site("two", claims=held), site("three")]
    assert refusal(place(demand(), sites, [])).reason is Reason.OWNERSHIP_CONFLICT
    before = Place(Key("system", "three"), "three-a")
    one = [site("one", claims=held), site("three")]
    assert refusal(place(demand(), one, [], before=before)).reason is Reason.OWNERSHIP_CONFLICT


def test_an_incoming_machine_of_an_unfinished_move_is_no_past() -> None:
    sites = [site("one", claims=(Claim("d" * 64, 1, incoming=True),)), site("two")]
    assert isinstance(place(demand(), sites, []), Placed)


def test_recovery_waits_only_for_providers_the_namespace_may_use() -> None:
    sites = [site("one"), site("two", complete=False, allowed=False)]
    assert isinstance(place(demand(), sites, [], recovery=True), Placed)
    sites = [site("one"), site("two", complete=False)]
    answer = refusal(place(demand(), sites, [], recovery=True))
    assert answer.reason is Reason.RECOVERY_PENDING
    assert "two" in answer.message
    unread = [site("one"), site("two", complete=False, told=False)]
    assert isinstance(place(demand(), unread, []), Placed)
