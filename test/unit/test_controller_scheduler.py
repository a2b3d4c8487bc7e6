"""The scheduler: deterministic, true to its filters, sticky, and plain about every refusal."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banlieue.api.meta import LabelSelector
from banlieue.api.reasons import Reason
from banlieue.controller.placement import (
    TOPOLOGY_FAILURE_DOMAIN,
    TOPOLOGY_HOST,
    TOPOLOGY_PROVIDER,
    Apart,
    Capacity,
    Claim,
    Demand,
    Domain,
    ImageState,
    Place,
    Placed,
    Resident,
    Site,
    StaticAddress,
    Unplaced,
)
from banlieue.controller.placing import place
from banlieue.controller.scheduler import schedule
from banlieue.sdk.kube import Key

VM = Key("team-a", "db-1")
EVERYBODY = LabelSelector()


def labelled(**labels: str) -> LabelSelector:
    return LabelSelector(match_labels=labels)


def demand(**changes: object) -> Demand:
    base = Demand(
        key=VM,
        cpus=2,
        memory_mib=4096,
        image="ubuntu",
        labels={"app": "db"},
        digest="d" * 64,
        storage_classes=("gold",),
        network_classes=("prod",),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def domain(name: str = "a", **changes: object) -> Domain:
    base = Domain(
        name=name,
        storage_classes=frozenset({"gold"}),
        network_classes=frozenset({"prod"}),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def site(name: str = "one", *domains: Domain, **changes: object) -> Site:
    base = Site(
        key=Key("system", name),
        domains=domains or (domain(f"{name}-a"),),
        images={"ubuntu": ImageState(ready=True)},
        complete=True,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def resident(name: str, where: Place, **changes: object) -> Resident:
    base = Resident(key=Key("team-a", name), places=(where,), labels={"app": "db"})
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def chosen(decision: object) -> str:
    assert isinstance(decision, Placed), decision
    return decision.place.domain


def refusal(decision: object) -> Unplaced:
    assert isinstance(decision, Unplaced), decision
    return decision


@pytest.mark.parametrize(
    ("changed", "reason", "words"),
    [
        ({"ready": False, "not_ready": "Boom"}, Reason.PROVIDER_NOT_READY, "not ready: Boom"),
        ({"paused": True}, Reason.PROVIDER_PAUSED, "is paused"),
        ({"read_only": True}, Reason.PROVIDER_READ_ONLY, "read-only"),
        ({"cordoned": True}, Reason.PROVIDER_CORDONED, "cordoned"),
        ({"deleting": True}, Reason.PROVIDER_DELETING, "being deleted"),
        ({"images": {}}, Reason.IMAGE_NOT_READY, "has not reported"),
        ({"domains": ()}, Reason.NO_FAILURE_DOMAIN_MATCHED, "publishes no failure domain"),
    ],
)
def test_a_provider_that_cannot_take_it_says_why(
    changed: dict[str, object], reason: Reason, words: str
) -> None:
    answer = refusal(schedule(demand(), [site(**changed)], []))  # type: ignore[arg-type] # fields
    assert answer.reason is reason
    assert words in answer.message


@pytest.mark.parametrize(
    ("changed", "wanted", "reason"),
    [
        ({"schedulable": False}, {}, Reason.FAILURE_DOMAIN_CORDONED),
        ({}, {"domain_selector": labelled(zone="x")}, Reason.NO_FAILURE_DOMAIN_MATCHED),
        ({"storage_classes": frozenset()}, {}, Reason.STORAGE_CLASS_NOT_AVAILABLE),
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


def test_the_closest_misses_come_first_and_the_message_stays_short() -> None:
    far = [
        site(f"far-{number:03}", domain(f"far-{number:03}-a", schedulable=False))
        for number in range(200)
    ]
    near = site("near", domain("near-a", capacity=Capacity(8192, 1024)))
    answer = refusal(schedule(demand(), [*far, near], []))
    assert answer.reason is Reason.INSUFFICIENT_CAPACITY
    assert answer.message.index("near-a: memory 3 GiB short") < answer.message.index("far-")
    assert "and " in answer.message
    assert len(answer.message.encode()) <= 1024
    assert len(answer.rejections) == 201
    assert answer.message.endswith("ask the platform team for capacity")


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


def test_promises_that_a_capacity_does_not_count_yet_are_taken_off() -> None:
    sites = [site("one", domain("a", capacity=Capacity(8192, 8192, included=frozenset({"e" * 8}))))]
    where = Place(sites[0].key, "a")
    counted = resident("x", where, digest="e" * 64, memory_mib=4096)
    promised = resident("y", where, digest="f" * 64, memory_mib=4096)
    late = resident("z", where, digest="0" * 64, memory_mib=4096)
    assert isinstance(schedule(demand(), sites, [counted, promised]), Placed)
    full = refusal(schedule(demand(), sites, [promised, late]))
    assert full.reason is Reason.INSUFFICIENT_CAPACITY


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


# Properties.

NAMES = st.sampled_from(["a", "b", "c"])
CLASSES = st.sets(st.sampled_from(["gold", "silver"])).map(frozenset)


@st.composite
def domains(draw: st.DrawFn, name: str) -> Domain:
    return Domain(
        name=name,
        labels=draw(st.dictionaries(st.sampled_from(["zone", "rack"]), NAMES, max_size=2)),
        schedulable=draw(st.booleans()),
        storage_classes=draw(CLASSES),
        network_classes=frozenset({"prod"}),
        capacity=draw(
            st.none()
            | st.builds(
                Capacity,
                memory_mib=st.integers(1024, 65536),
                free_memory_mib=st.integers(0, 65536),
                cpus=st.none() | st.integers(1, 64),
            )
        ),
    )


@st.composite
def site_lists(draw: st.DrawFn, prefix: str = "p") -> list[Site]:
    made = []
    for number in range(draw(st.integers(0, 4))):
        name = f"{prefix}{number}"
        count = draw(st.integers(0, 3))
        made.append(
            Site(
                key=Key("system", name),
                domains=tuple(draw(domains(f"{name}-{index}")) for index in range(count)),
                labels=draw(st.dictionaries(st.just("env"), NAMES, max_size=1)),
                allowed=draw(st.booleans()),
                ready=draw(st.booleans()),
                cordoned=draw(st.booleans()),
                images={"ubuntu": ImageState(draw(st.booleans()))},
                complete=draw(st.booleans()),
            )
        )
    return made


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    return demand(
        memory_mib=draw(st.integers(64, 32768)),
        storage_classes=tuple(sorted(draw(CLASSES))),
        provider_selector=draw(st.none() | st.builds(labelled, env=NAMES)),
        domain_selector=draw(st.none() | st.builds(labelled, zone=NAMES)),
        apart=tuple(
            draw(
                st.lists(
                    st.builds(
                        Apart,
                        topology_key=st.sampled_from(["rack", TOPOLOGY_FAILURE_DOMAIN]),
                        selector=st.just(EVERYBODY),
                        required=st.booleans(),
                    ),
                    max_size=2,
                )
            )
        ),
    )


@st.composite
def crowds(draw: st.DrawFn, sites: list[Site]) -> list[Resident]:
    places = [Place(it.key, one.name) for it in sites for one in it.domains]
    if not places:
        return []
    return [
        resident(f"n{number}", draw(st.sampled_from(places)), memory_mib=1024)
        for number in range(draw(st.integers(0, 4)))
    ]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_order_of_the_input_does_not_matter(data: st.DataObject) -> None:
    wanted, sites = data.draw(demands()), data.draw(site_lists())
    crowd = data.draw(crowds(sites))
    shuffler = random.Random(data.draw(st.integers(0, 9)))
    other_sites = [replace(it, domains=it.domains[::-1]) for it in sites]
    shuffler.shuffle(other_sites)
    assert schedule(wanted, sites, crowd) == schedule(wanted, other_sites, crowd[::-1])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_filter_is_ever_violated(data: st.DataObject) -> None:
    wanted, sites = data.draw(demands()), data.draw(site_lists())
    crowd = data.draw(crowds(sites))
    answer = schedule(wanted, sites, crowd)
    if isinstance(answer, Unplaced):
        assert answer.message
        assert len(answer.message.encode()) <= 1024
        assert all(it.detail for it in answer.rejections)
        return
    where = next(it for it in sites if it.key == answer.place.provider)
    found = where.domain(answer.place.domain)
    assert found is not None
    assert where.allowed
    assert where.ready
    assert not where.cordoned
    assert where.images["ubuntu"].ready
    assert found.schedulable
    assert found.storage_classes >= set(wanted.storage_classes)
    assert wanted.provider_selector is None or wanted.provider_selector.matches(where.labels)
    assert wanted.domain_selector is None or wanted.domain_selector.matches(found.labels)
    for term in wanted.apart:
        if term.required and term.topology_key == TOPOLOGY_FAILURE_DOMAIN:
            assert all(answer.place not in it.places for it in crowd)
    if found.capacity is not None:
        there = [it for it in crowd if answer.place in it.places]
        taken = sum(it.memory_mib for it in there)
        assert found.capacity.free_memory_mib - taken >= wanted.memory_mib


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_candidate_is_accounted_for(data: st.DataObject) -> None:
    wanted, sites = data.draw(demands()), data.draw(site_lists())
    answer = schedule(wanted, sites, [])
    if isinstance(answer, Unplaced) and any(it.allowed for it in sites):
        open_sites = [it for it in sites if it.allowed]
        named = {rejection.where for rejection in answer.rejections}
        for it in open_sites:
            whole = f"Provider {it.key}" in named
            assert whole or {one.name for one in it.domains} <= named


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_an_unrelated_provider_never_moves_what_was_placed(data: st.DataObject) -> None:
    wanted, sites = data.draw(demands()), data.draw(site_lists())
    unrelated = data.draw(site_lists("a-better-"))
    first = schedule(wanted, sites, [])
    if isinstance(first, Placed):
        again = place(wanted, [*unrelated, *sites], [], before=first.place)
        assert again == first


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_a_provider_holds_goes_there_and_nowhere_else(data: st.DataObject) -> None:
    wanted, sites = data.draw(demands()), data.draw(site_lists())
    holder = site("holder", domain("holder-a"), ready=False, claims=(Claim("d" * 8, 3),))
    answer = place(wanted, [*sites, holder], [], recovery=data.draw(st.booleans()))
    assert isinstance(answer, Placed)
    assert answer.place.provider == holder.key
    assert answer.epoch == 3


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
    assert isinstance(place(demand(), sites, []), Placed)
