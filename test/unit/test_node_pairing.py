"""Which Node is which machine: by UUID, in both byte orders, and only when nothing else fits."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from banlieue.controller.nodes.pairing import Member, Pairing, pair, uuid_of
from banlieue.sdk.workload import Node

TOLD = "420bcf8f-a2f2-d154-0f25-1d3a59f0c6e1"
SWAPPED = "8fcf0b42-f2a2-54d1-0f25-1d3a59f0c6e1"
OTHER = "4211d3b8-0f0e-4a68-9a13-5d3ad7f20f11"


def node(name: str, system_uuid: str, provider_id: str = "") -> Node:
    return Node(name, f"uid-{name}", "7", system_uuid, provider_id)


def member(name: str, uuid: str, *, waits: bool = True) -> Member:
    return Member(name, f"vsphere://{uuid}", waits)


@pytest.mark.parametrize(
    "system_uuid", [TOLD, SWAPPED, TOLD.upper(), SWAPPED.upper(), f" {TOLD}\n"]
)
def test_a_node_is_known_by_its_uuid_in_either_byte_order(system_uuid: str) -> None:
    found = node("n", system_uuid)
    mine = member("m", TOLD)
    assert pair([mine], [node("x", OTHER), found]) == Pairing([(mine, found)], [], [], [])


def test_a_machine_without_a_node_of_its_uuid_waits() -> None:
    mine = member("m", TOLD)
    for system_uuid in ("", "unknown", OTHER, "00000000-0000-0000-0000-000000000000"):
        assert pair([mine], [node("n", system_uuid)]).unseen == [mine]


def test_a_provider_id_that_is_set_is_left_alone() -> None:
    mine, theirs = member("m", TOLD), node("n", TOLD, "k3s://n")
    found = pair([mine], [theirs])
    assert (found.settled, found.taken) == ([], [(mine, theirs)])


def test_nothing_is_left_to_do_for_a_machine_whose_node_has_its_id() -> None:
    mine = member("m", TOLD)
    done = node("n", TOLD, mine.provider_id)
    assert pair([mine], [done]) == Pairing([], [], [], [])
    # A second one, of another guest that tells the same UUID, gets none.
    assert pair([mine], [done, node("copy", TOLD)]) == Pairing([], [], [], [])


@pytest.mark.parametrize("second", [TOLD, SWAPPED])
def test_two_nodes_of_one_uuid_get_nothing(second: str) -> None:
    mine = member("m", TOLD)
    found = pair([mine], [node("a", TOLD), node("b", second)])
    assert (found.settled, found.ambiguous) == ([], [mine])


def test_two_machines_of_one_uuid_get_nothing_even_if_one_has_its_node() -> None:
    mine = member("m", TOLD)
    for other in (member("o", SWAPPED), member("o", SWAPPED, waits=False)):
        found = pair([mine, other], [node("n", TOLD)])
        assert found.settled == []
        assert mine in found.ambiguous


def test_a_machine_that_has_its_node_is_not_looked_at() -> None:
    assert pair([member("m", TOLD, waits=False)], [node("n", TOLD)]) == Pairing([], [], [], [])


@pytest.mark.parametrize(
    ("provider_id", "known"),
    [
        (f"vsphere://{TOLD}", True),
        (f"proxmox://{TOLD.upper()}", True),
        ("simulated://u", False),
        (f"vsphere:///{TOLD}", False),
        (TOLD, False),
        ("", False),
        (f"vsphere://{TOLD}-1", False),
    ],
)
def test_only_a_provider_id_that_is_a_uuid_counts(provider_id: str, *, known: bool) -> None:
    assert uuid_of(provider_id) == (UUID(TOLD) if known else None)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.randoms())
def test_every_node_is_given_the_id_of_its_own_machine(
    cases: list[tuple[bool, bool]], order: object
) -> None:
    uuids = [uuid4() for _ in cases]
    members = [
        member(str(it), str(it), waits=waits) for it, (_, waits) in zip(uuids, cases, strict=True)
    ]
    nodes = [
        node(str(it), str(UUID(bytes_le=it.bytes) if swap else it))
        for it, (swap, _) in zip(uuids, cases, strict=True)
    ]
    order.shuffle(nodes)  # type: ignore[attr-defined]  # hypothesis gives a Random
    found = pair(members, nodes)
    assert {(one.name, two.name) for one, two in found.settled} == {
        (it.name, it.name) for it in members if it.waits
    }
    assert not found.ambiguous
