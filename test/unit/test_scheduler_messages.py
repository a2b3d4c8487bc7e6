"""Why nobody can take a machine: the closest misses first, short, and quiet while figures move."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling.filters import DOMAIN_FILTERS, SITE_FILTERS
from banlieue.controller.scheduling.placement import Capacity, Demand, Resident, Site, Unplaced
from banlieue.controller.scheduling.quantities import gib
from banlieue.controller.scheduling.rejections import remedy
from banlieue.controller.scheduling.scheduler import schedule, survey
from banlieue.sdk.kube import Key
from test.kit.scheduling import demand, domain, labelled, refusal, scenes, site

FULL = Capacity(65536, 1024)


def test_the_closest_misses_come_first_and_the_message_stays_short() -> None:
    far = [
        site(f"far-{number:03}", domain(f"far-{number:03}-a", schedulable=False))
        for number in range(200)
    ]
    near = site("near", domain("near-a", capacity=FULL))
    answer = refusal(schedule(demand(), [*far, near], []))
    assert answer.reason is Reason.INSUFFICIENT_CAPACITY
    assert answer.message == (
        "none of 201 failure domains can take 2 vCPU/4 GiB "
        "(near-a: less than 4 GiB of memory is free; "
        "far-000-a, far-001-a, far-002-a and 197 more: takes no new machines); "
        "choose a smaller class in classRef or ask the platform team for capacity"
    )
    assert len(answer.rejections) == 201


def test_what_does_not_fit_in_is_counted() -> None:
    every = [
        site(f"p{number:03}", domain("a" * 50 + str(number), storage_classes=frozenset()))
        for number in range(3)
    ] + [site(f"q{number:03}", ready=False, not_ready=f"Reason{number}") for number in range(200)]
    answer = refusal(schedule(demand(), every, []))
    assert len(answer.message.encode()) <= 1024
    assert "; and 1" in answer.message
    shown = answer.message.count("not ready")
    assert f"; and {200 - shown} more)" in answer.message


def test_one_very_long_reason_is_cut() -> None:
    endless = site(
        images={"ubuntu": replace(site().images["ubuntu"], ready=False, message="ä" * 4000)}
    )
    answer = refusal(schedule(demand(), [endless], []))
    assert 900 < len(answer.message.encode()) <= 1024
    assert answer.message.endswith("to offer it there")


def test_a_closed_provider_that_was_asked_for_is_closer_than_one_that_was_not() -> None:
    down = site("down", ready=False, not_ready="ProviderUnreachable", labels={"env": "prod"})
    other = site("other", labels={"env": "lab"})
    for wanted in (
        demand(provider_ref=down.key),
        demand(provider_selector=labelled(env="prod")),
    ):
        answer = refusal(schedule(wanted, [other, down], []))
        assert answer.reason is Reason.PROVIDER_NOT_READY
        assert "(Provider system/down: not ready: ProviderUnreachable; " in answer.message


def test_a_closed_provider_is_closer_than_domains_the_user_excluded() -> None:
    down = site("down", domain("down-x", labels={"zone": "x"}), ready=False)
    other = site("other", domain("other-y", labels={"zone": "y"}))
    answer = refusal(schedule(demand(domain_selector=labelled(zone="x")), [other, down], []))
    assert answer.reason is Reason.PROVIDER_NOT_READY
    nowhere = refusal(schedule(demand(domain_selector=labelled(zone="z")), [other, down], []))
    assert nowhere.reason is Reason.NO_FAILURE_DOMAIN_MATCHED


def test_a_machine_larger_than_all_there_is_says_so() -> None:
    small = site("one", domain("a", capacity=Capacity(2048, 2048)), overcommit_memory=1.5)
    answer = refusal(schedule(demand(), [small], []))
    assert "a: has only 3 GiB of memory in all" in answer.message


def test_the_figures_stand_beside_the_words() -> None:
    near = site("near", domain("near-a", capacity=FULL))
    (rejection,) = refusal(schedule(demand(), [near], [])).rejections
    assert rejection.filter == "memory"
    assert rejection.figures == "memory 3 GiB short: 1 GiB of 64 GiB can be promised"


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (4096, "4 GiB"),
        (1536, "1.5 GiB"),
        (512, "0.5 GiB"),
        (64, "0.06 GiB"),
        (1, "0.01 GiB"),
        (0, "0 GiB"),
        (-1024, "-1 GiB"),
        (102400, "100 GiB"),
    ],
)
def test_memory_is_always_told_in_gib(mib: int, text: str) -> None:
    assert gib(mib) == text


def test_every_reason_of_a_filter_has_a_remedy_of_its_own() -> None:
    default = remedy(Reason.READY)
    told = {
        Reason.PROVIDER_NOT_READY,
        Reason.PROVIDER_PAUSED,
        Reason.PROVIDER_READ_ONLY,
        Reason.PROVIDER_CORDONED,
        Reason.PROVIDER_DELETING,
        Reason.NO_PROVIDER_MATCHED,
        Reason.NO_FAILURE_DOMAIN_MATCHED,
        Reason.FAILURE_DOMAIN_CORDONED,
        Reason.IMAGE_NOT_READY,
        Reason.ARCHITECTURE_UNSUPPORTED,
        Reason.FIRMWARE_UNSUPPORTED,
        Reason.IMAGE_TOO_LARGE,
        Reason.STORAGE_CLASS_NOT_AVAILABLE,
        Reason.NETWORK_NOT_AVAILABLE,
        Reason.FEATURE_UNSUPPORTED,
        Reason.INSUFFICIENT_CAPACITY,
        Reason.ANTI_AFFINITY_UNSATISFIED,
    }
    assert all(remedy(reason) != default for reason in told)


@settings(max_examples=30, deadline=None)
@given(scenes(), st.data())
def test_a_message_changes_only_when_an_outcome_does(
    scene: tuple[Demand, list[Site], list[Resident]], data: st.DataObject
) -> None:
    wanted, sites, crowd = scene

    def wobble(capacity: Capacity | None) -> Capacity | None:
        if capacity is None:
            return None
        return replace(capacity, free_memory_mib=data.draw(st.integers(0, 65536)))

    later = [
        replace(
            it,
            domains=tuple(replace(one, capacity=wobble(one.capacity)) for one in it.domains),
        )
        for it in sites
    ]
    before, after = survey(wanted, sites, crowd), survey(wanted, later, crowd)
    outcome = [[(it.where, it.filter) for it in one.rejections] for one in (before, after)]
    if outcome[0] == outcome[1] and not before.fits and not after.fits:
        first, second = schedule(wanted, sites, crowd), schedule(wanted, later, crowd)
        assert refusal(first).message == refusal(second).message


@settings(max_examples=30, deadline=None)
@given(scenes(), st.integers(1, 253))
def test_no_message_is_too_long_or_empty(
    scene: tuple[Demand, list[Site], list[Resident]], length: int
) -> None:
    wanted, sites, crowd = scene
    renamed = [replace(it, key=Key("s" * 63, f"{it.key.name}{'x' * length}")) for it in sites]
    decision = schedule(wanted, renamed, crowd)
    if isinstance(decision, Unplaced):
        assert decision.message
        assert len(decision.message.encode()) <= 1024


def test_every_filter_is_named_once() -> None:
    names = [name for name, _ in (*SITE_FILTERS, *DOMAIN_FILTERS)]
    assert len(set(names)) == len(names)


def test_the_documentation_lists_the_filters_in_their_order() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "scheduling.md"
    listed = re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [name for name, _ in (*SITE_FILTERS, *DOMAIN_FILTERS)]
