"""In-flight capacity: what a published figure counts already, and what has to be taken off."""

from dataclasses import replace

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.placement import Apart, Capacity, Place, Placed, Resident
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.sdk.kube import Key
from banlieue.sdk.provider.domains import MAX_INCLUDED
from test.kit.scheduling import (
    EVERYBODY,
    VM,
    demand,
    domain,
    labelled,
    refusal,
    resident,
    site,
)

HERE = Place(Key("system", "one"), "a")


def digest(number: int) -> str:
    return f"{number:064x}"


def free(capacity: Capacity, *residents: Resident) -> int:
    one = domain("a", capacity=capacity)
    return Crowd(residents).free_memory(site("one", one), one, VM)


def test_promises_that_a_capacity_does_not_count_yet_are_taken_off() -> None:
    sites = [site("one", domain("a", capacity=Capacity(8192, 8192, included=frozenset({"e" * 8}))))]
    counted = resident("x", HERE, digest="e" * 64, memory_mib=4096)
    promised = resident("y", HERE, digest="f" * 64, memory_mib=4096)
    late = resident("z", HERE, digest="0" * 64, memory_mib=4096)
    assert isinstance(schedule(demand(), sites, [counted, promised]), Placed)
    full = refusal(schedule(demand(), sites, [promised, late]))
    assert full.reason is Reason.INSUFFICIENT_CAPACITY


def test_machines_older_than_a_list_that_was_cut_short_are_counted() -> None:
    """A Provider lists those placed last; hundreds before them are in its figure all the same."""
    listed = frozenset(digest(number) for number in range(100, 228))
    capacity = Capacity(10**6, 10**5, included=listed, cut_short=True)
    everybody = [
        resident(f"m{number}", HERE, digest=digest(number), memory_mib=1, since=float(number))
        for number in range(230)
    ]
    settled = [replace(it, settled=True) for it in everybody]
    assert free(capacity, *settled) == 10**5 - 2
    assert free(capacity, *everybody) == 10**5 - 102
    whole = replace(capacity, cut_short=False)
    assert free(whole, *settled) == 10**5 - 102


def test_a_list_of_strangers_that_was_cut_short_is_as_old_as_its_figure() -> None:
    strangers = frozenset(digest(number) for number in range(500, 628))
    capacity = Capacity(10**6, 1000, included=strangers, cut_short=True, read_at=50.0)
    before = resident("old", HERE, digest=digest(1), memory_mib=1, since=49.0, settled=True)
    after = resident("new", HERE, digest=digest(2), memory_mib=1, since=51.0, settled=True)
    assert free(capacity, before, after) == 999


def test_without_an_installation_id_what_was_seen_counts_as_included() -> None:
    capacity = Capacity(8192, 4096)
    seen = resident("a", HERE, memory_mib=1024, settled=True)
    promised = resident("b", HERE, memory_mib=1024)
    assert free(capacity, seen, promised) == 3072


def test_figures_follow_the_machines_that_come_and_go() -> None:
    capacity = Capacity(8192, 8192, included=frozenset({digest(1)}), cut_short=True)
    one = domain("a", capacity=capacity)
    crowd, where = Crowd(), site("one", one)
    assert crowd.free_memory(where, one, VM) == 8192
    crowd.put(resident("x", HERE, digest=digest(2), memory_mib=1000, since=5.0, settled=True))
    assert crowd.free_memory(where, one, VM) == 7192
    crowd.put(resident("y", HERE, digest=digest(1), memory_mib=1000, since=9.0))
    assert crowd.free_memory(where, one, VM) == 8192, "y is listed, so x before it is counted"
    crowd.drop(Key("team-a", "y"))
    assert crowd.free_memory(where, one, VM) == 7192
    crowd.drop(Key("team-a", "x"))
    assert crowd.free_memory(where, one, VM) == 8192
    assert not len(crowd)


def test_a_new_figure_counts_anew() -> None:
    crowd = Crowd([resident("x", HERE, digest=digest(1), memory_mib=1000)])
    before = domain("a", capacity=Capacity(8192, 8192))
    after = domain("a", capacity=Capacity(8192, 7192, included=frozenset({digest(1)})))
    assert crowd.free_memory(site("one", before), before, VM) == 7192
    assert crowd.free_memory(site("one", after), after, VM) == 7192


def test_a_machine_with_other_labels_is_another_neighbour() -> None:
    sites = [site("one", domain("a"))]
    apart = (Apart("banlieue.io/failure-domain", labelled(app="db"), required=True),)
    crowd = Crowd([resident("x", HERE)])
    assert not isinstance(schedule(demand(apart=apart), sites, crowd), Placed)
    crowd.put(resident("x", HERE, labels={"app": "web"}))
    assert isinstance(schedule(demand(apart=apart), sites, crowd), Placed)


def test_a_machine_that_comes_after_the_question_is_a_neighbour_too() -> None:
    sites = [site("one", domain("a"))]
    apart = (Apart("banlieue.io/failure-domain", labelled(app="db"), required=True),)
    crowd = Crowd([resident("w", HERE, labels={"app": "web"})])
    assert isinstance(schedule(demand(apart=apart), sites, crowd), Placed)
    crowd.put(resident("x", HERE))
    assert not isinstance(schedule(demand(apart=apart), sites, crowd), Placed)
    crowd.put(resident("y", HERE))
    crowd.drop(Key("team-a", "x"))
    assert not isinstance(schedule(demand(apart=apart), sites, crowd), Placed)


def test_many_different_terms_do_not_lose_one() -> None:
    sites = [site("one", domain("a"))]
    crowd = Crowd(resident(f"x{number}", HERE, labels={"n": str(number)}) for number in range(200))
    for _ in range(2):
        for number in range(200):
            term = Apart("banlieue.io/failure-domain", labelled(n=str(number)), required=True)
            answer = refusal(schedule(demand(apart=(term,)), sites, crowd))
            assert f"antiAffinity with x{number})" in answer.message


def test_a_machine_that_wants_to_be_alone_may_leave() -> None:
    sites = [site("one", domain("a"))]
    shy = Apart("banlieue.io/failure-domain", EVERYBODY, required=True)
    crowd = Crowd([resident("x", HERE, apart=(shy, shy)), resident("y", HERE)])
    assert not isinstance(schedule(demand(), sites, crowd), Placed)
    crowd.drop(Key("team-a", "x"))
    assert isinstance(schedule(demand(), sites, crowd), Placed)


@pytest.mark.parametrize(("count", "cut_short"), [(MAX_INCLUDED, True), (5, False)])
def test_a_published_list_that_is_full_may_be_cut_short(count: int, cut_short: bool) -> None:  # noqa: FBT001 - a case
    provider = Provider.from_api(
        {
            "metadata": {"namespace": "system", "name": "one"},
            "spec": {"providerClassRef": {"name": "c"}, "connection": {"endpoint": "https://x"}},
            "status": {
                "failureDomains": [
                    {
                        "name": "a",
                        "id": "a",
                        "attributes": {
                            "capacity": {
                                "observedAt": "1970-01-01T00:01:00Z",
                                "memoryMiB": {"total": 8192, "free": 1024},
                                "includedMachines": [digest(number) for number in range(count)],
                            }
                        },
                    }
                ]
            },
        }
    )
    capacity = facts.site_for_anybody(provider, None).domains[0].capacity
    assert capacity is not None
    assert capacity.cut_short is cut_short
    assert capacity.read_at == 60.0


def test_a_neighbour_knows_since_when_it_is_there() -> None:
    vm = VirtualMachine.from_api(
        {
            "metadata": {"namespace": "team-a", "name": "x"},
            "spec": {},
            "status": {
                "initialization": {"provisioned": True},
                "observedFailureDomain": "b",
                "scheduled": {
                    "providerName": "one",
                    "providerNamespace": "system",
                    "failureDomain": "a",
                    "scheduledAt": "1970-01-01T00:01:00Z",
                },
            },
        }
    )
    found = facts.resident(vm, None, installation_id="i")
    assert (found.since, found.settled) == (60.0, True)
    assert found.places == (Place(Key("system", "one"), "b"),)
