import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banlieue.api import names
from banlieue.api.v1alpha1 import provider as api
from banlieue.sdk.driver import Capacity, FailureDomain
from banlieue.sdk.provider import domains

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def declared(identity: str, name: str | None = None, **more: object) -> api.DeclaredFailureDomain:
    return api.DeclaredFailureDomain.model_validate({"id": identity, "name": name, **more})


@settings(max_examples=50)
@given(
    st.text(min_size=1, max_size=80),
    st.lists(st.text(max_size=80), max_size=4),
    st.text(min_size=1, max_size=20),
)
def test_every_name_fits_the_api(provider: str, path: list[str], identity: str) -> None:
    name = domains.slug(provider, FailureDomain(identity, tuple(path)))
    assert len(name) <= 63
    assert NAME.fullmatch(name)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=12), st.data())
def test_names_are_unique_and_lasting(paths: list[tuple[str, str]], data: st.DataObject) -> None:
    found = [FailureDomain(f"d{i}", path) for i, path in enumerate(paths)]
    first = domains.bind("p", found, {}, ())
    assert len(set(first.names.values())) == len(found)
    shuffled = data.draw(st.permutations(found))
    renamed = [FailureDomain(d.id, ("renamed", *d.path)) for d in shuffled]
    again = domains.bind("p", renamed, first.ids, ())
    assert dict(again.names) == dict(first.names)
    assert dict(again.ids) == dict(first.ids)


def test_a_readable_name() -> None:
    found = FailureDomain("domain-c8", ("DC 1", "Cluster_A"))
    assert domains.slug("prod", found) == "prod-dc-1-cluster-a"


def test_a_clash_and_a_cut_end_in_a_hash_of_the_id() -> None:
    twins = [FailureDomain("one", ("a", "b")), FailureDomain("two", ("a-b",))]
    bound = domains.bind("p", twins, {}, ())
    assert bound.names["one"] == "p-a-b"
    assert re.fullmatch(r"p-a-b-[0-9a-f]{8}", bound.names["two"])
    long = domains.slug("p", FailureDomain("one", ("x" * 90,)))
    assert re.fullmatch(r"p-x+-[0-9a-f]{8}", long)
    assert len(long) == 63


def test_a_binding_survives_what_is_not_there_at_the_moment() -> None:
    known = domains.bind("p", [FailureDomain("a", ("x",)), FailureDomain("b", ("y",))], {}, ())
    fewer = domains.bind("p", [FailureDomain("b", ("y",))], known.ids, ())
    assert dict(fewer.ids) == dict(known.ids)
    assert fewer.named("p-x") is None
    newcomer = domains.bind("p", [FailureDomain("c", ("x",))], fewer.ids, ())
    assert newcomer.names["c"] != "p-x"


def test_a_declared_name_is_published_and_the_old_one_still_found() -> None:
    found = [FailureDomain("a", ("x",))]
    first = domains.bind("p", found, {}, ())
    named = domains.bind("p", found, first.ids, [declared("a", "rack-1")])
    assert named.names["a"] == "rack-1"
    assert named.named("p-x") == named.named("rack-1") == found[0]


def test_a_name_is_not_taken_from_another_domain() -> None:
    found = [FailureDomain("a", ("x",)), FailureDomain("b", ("y",))]
    first = domains.bind("p", found, {}, ())
    stolen = domains.bind("p", found, first.ids, [declared("b", "p-x")])
    assert stolen.names == first.names
    assert "p-x" in stolen.problems[0]
    assert "choose another" in stolen.problems[0]


def test_bindings_round_trip_through_the_annotation() -> None:
    bound = domains.bind("p", [FailureDomain("a", ("x",))], {}, [declared("a", "rack-1")])
    text = domains.write_bindings(bound.ids)
    assert domains.read_bindings({names.ANNOTATION_FAILURE_DOMAINS: text}) == dict(bound.ids)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1}'])
def test_a_damaged_annotation_is_none(text: str) -> None:
    assert domains.read_bindings({names.ANNOTATION_FAILURE_DOMAINS: text}) == {}


def publish(
    found: FailureDomain, *said: api.DeclaredFailureDomain
) -> list[api.FailureDomainStatus]:
    bound = domains.bind("p", [found], {}, said)
    return domains.publish(bound, said, [], {}, NOW)


def test_labels_and_admission_of_the_admin_join_what_the_backend_says() -> None:
    found = FailureDomain("a", ("x",), labels={"zone": "1", "rack": "2"}, raw={"cluster": "c1"})
    [shown] = publish(found, declared("a", labels={"rack": "9"}, schedulable=False))
    assert shown.labels == {"zone": "1", "rack": "9"}
    assert shown.schedulable is False
    assert shown.attributes.raw == {"cluster": "c1"}
    [closed] = publish(FailureDomain("a", ("x",), schedulable=False), declared("a"))
    assert closed.schedulable is False


def capacity(free: int, *, after: int = 0, total: int = 1000, hosts: int = 1) -> api.Capacity:
    found = Capacity(cpus=hosts, memory_mib=total, free_memory_mib=free)
    shown = domains.capacity_status(found, (), NOW + timedelta(seconds=after))
    assert shown is not None
    return shown


def test_small_and_early_changes_of_capacity_stay_quiet() -> None:
    before = capacity(500)
    assert domains.quiet_capacity(before, capacity(540, after=59)) is before
    assert domains.quiet_capacity(before, moved := capacity(550, after=1)) is moved
    assert domains.quiet_capacity(before, later := capacity(501, after=60)) is later
    assert domains.quiet_capacity(before, capacity(500, after=600)) is before
    assert domains.quiet_capacity(before, grown := capacity(500, after=1, hosts=2)) is grown


def test_included_machines_are_bounded() -> None:
    found = Capacity(cpus=1, memory_mib=1, free_memory_mib=1)
    shown = domains.capacity_status(found, [f"{i:08x}" for i in range(500)], NOW)
    assert shown is not None
    assert shown.included_machines[0] == "00000000"
    assert len(shown.included_machines) == domains.MAX_INCLUDED


def test_what_is_published_fits_its_schema() -> None:
    crowded = FailureDomain(
        "a",
        ("x",),
        features=("HotAddCPU", "NoSuchFeature"),
        labels={
            "good": "1",
            "bad key": "1",
            "bad-value": "a b",
            **{f"l{i}": "" for i in range(40)},
        },
        raw={f"k{i}": "v" * 500 for i in range(20)},
        capacity=Capacity(8, 1024, 512),
    )
    [shown] = publish(crowded)
    assert api.FailureDomainStatus.from_api(shown.to_api()) == shown
    assert shown.labels["good"] == "1"
    assert len(shown.labels) == 16
    assert [feature.value for feature in shown.attributes.features] == ["HotAddCPU"]
