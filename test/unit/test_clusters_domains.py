"""Whatever Providers tell, a cluster's list is one Cluster API takes, and it stays put."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from banlieue.api.infrastructure.cluster import ClusterFailureDomain, ClusterSpec
from banlieue.api.meta import LabelSelector, NamespacedRef
from banlieue.controller.clusters.domains import (
    MAX_DOMAINS,
    Listing,
    Member,
    listing,
    members,
    provider_of,
)
from banlieue.controller.scheduling.placement import Domain, Site
from banlieue.sdk.kube import Key

KIND = "thisclusters.example.com"
NAMES = [f"d{number}" for number in range(130)]
LABELS = [
    {},
    {"l1": ""},
    {"provider": "x", "schedulable": ""},
    {f"l{number}": "x" for number in range(16)},
    {"schedulable": "x", **{f"l{number}": "" for number in range(4, 19)}},
]


def site(name: str, *domains: Domain | str, **changes: object) -> Site:
    there = tuple(it if isinstance(it, Domain) else Domain(it) for it in domains)
    known: dict[str, object] = {"class_name": "this", **changes}
    return Site(Key("infra", name), there, **known)  # type: ignore[arg-type]  # any field of it


def listed(
    sites: Sequence[Site],
    previous: Sequence[ClusterFailureDomain] = (),
    spec: ClusterSpec | None = None,
) -> Listing:
    spec = spec or ClusterSpec()
    found = members(spec, sites, KIND, {"this": KIND}).members
    return listing(spec, previous, found)


a_domain = st.builds(
    Domain,
    name=st.sampled_from(NAMES),
    labels=st.sampled_from(LABELS),
    schedulable=st.booleans(),
)
some_domains = st.lists(a_domain, max_size=60, unique_by=lambda it: it.name)
some_sites = st.lists(
    st.builds(
        lambda name, domains, cordoned, ready: site(name, *domains, cordoned=cordoned, ready=ready),
        st.sampled_from(["a", "b", "c", "d"]),
        some_domains,
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda it: it.key,
)


@given(some_sites)
def test_a_list_is_valid_complete_and_final(sites: list[Site]) -> None:
    found = listed(sites)
    told = [it.name for it in found.domains]
    assert told == sorted(set(told))
    assert len(told) <= MAX_DOMAINS
    offered = {domain.name for it in sites for domain in it.domains}
    assert offered == {*told, *found.left_out}
    for entry in found.domains:
        ClusterFailureDomain.from_api(entry.to_api())
        holder = next(it for it in sites if it.key == provider_of(entry))
        domain = holder.domain(entry.name)
        assert domain is not None
        assert entry.control_plane == (domain.schedulable and not holder.cordoned)
        assert ("schedulable" in entry.attributes) == (not entry.control_plane)
    assert listed(sites, found.domains) == found
    assert listed(sites[::-1], found.domains).domains == found.domains


@given(some_sites, some_sites)
def test_a_name_stays_with_its_provider_as_long_as_that_has_it(
    before: list[Site], after: list[Site]
) -> None:
    first = listed(before)
    second = {it.name: provider_of(it) for it in listed(after, first.domains).domains}
    offers = {(it.key, domain.name) for it in after for domain in it.domains}
    for entry in first.domains:
        if (provider_of(entry), entry.name) in offers:
            assert second[entry.name] == provider_of(entry)


def test_the_provider_named_first_wins_a_name_nobody_has_yet() -> None:
    refs = [NamespacedRef(name=it, namespace="infra") for it in ("b", "a")]
    found = listed([site("a", "x"), site("b", "x")], spec=ClusterSpec(provider_refs=refs))
    assert [provider_of(it) for it in found.domains] == [Key("infra", "b")]
    assert [(it.holder.name, it.refused.name) for it in found.taken] == [("b", "a")]


def test_providers_take_turns_where_there_is_not_room_for_all() -> None:
    large = site("a", *(f"a{number:03}" for number in range(150)))
    small = site("b", "b1", "b2")
    told = {it.name for it in listed([large, small]).domains}
    assert len(told) == MAX_DOMAINS
    assert {"b1", "b2"} <= told


def test_a_silent_provider_that_is_cordoned_keeps_its_list_without_control_plane() -> None:
    first = listed([site("a", "x")])
    silent = site("a", ready=False, cordoned=True)
    (entry,) = listed([silent], first.domains).domains
    assert (entry.name, entry.control_plane) == ("x", False)


def test_a_label_cannot_pass_for_what_we_tell() -> None:
    forged = {"provider": "other", "schedulable": "false", "zone": "1"}
    (entry,) = listed([site("a", Domain("x", labels=forged))]).domains
    assert entry.attributes == {"provider": "a", "providerNamespace": "infra", "zone": "1"}


def test_the_control_planes_selector_counts_closed_domains_as_matches() -> None:
    selector = LabelSelector(match_labels={"tier": "control"})
    spec = ClusterSpec(control_plane_failure_domain_selector=selector)
    closed = Domain("x", labels={"tier": "control"}, schedulable=False)
    found = listed([site("a", closed, "y")], spec=spec)
    assert found.eligible
    assert not any(it.control_plane for it in found.domains)
    assert not listed([site("a", "y")], spec=spec).eligible


def test_whoever_may_not_be_used_counts_for_nothing() -> None:
    hidden = site("a", "x", allowed=False)
    assert listed([hidden]).domains == ()
    assert Member(hidden, speaks=True).open
