"""Which datastore a disk goes to, and how it is made."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from banlieue.providers.vsphere.models import CloneMode
from banlieue.providers.vsphere.places import stores
from banlieue.providers.vsphere.places.inventory import Datastore, Inventory, Pod, Policy
from banlieue.providers.vsphere.places.placement import Plan, Target, locate
from banlieue.providers.vsphere.places.stores import Bus, NotReachable, Provisioning
from banlieue.providers.vsphere.vms.clone import build
from banlieue.sdk.driver import DiskPlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator, Refused
from test.kit.vsphere_places import Native, by_id, host, inventory, plan, template

A, B, C = (
    Datastore("datastore-1", "a", "group-p1", usable=True, free_gib=100),
    Datastore("datastore-2", "b", "group-p1", usable=True, free_gib=300),
    Datastore("datastore-3", "c", "group-s1", usable=True, free_gib=900),
)
ALL = frozenset({A.id, B.id, C.id})


def no_load(_: str) -> int:
    return 0


def places(*found: Datastore, policy: frozenset[str] = ALL, **changes: Native) -> Inventory:
    found = found or (A, B, C)
    hosts = (host(1, datastores=ALL), host(2, datastores=ALL))
    made = inventory(*hosts, datastores=by_id(found), **changes)
    pod = Pod("group-p1", "fast", "group-s1")
    gold = Policy("p-1", "gold policy", policy)
    folders = {**made.folders, pod.id: pod}
    return replace(made, pods={pod.id: pod}, policies={gold.name: gold}, folders=folders)


def disks(*targets: Mapping[str, str | int], size: int = 10) -> Plan:
    root, *more = (
        DiskPlan("root" if not number else f"d{number}", size, target)
        for number, target in enumerate(targets)
    )
    return replace(plan(), disks=(root, *more))


def chosen(
    made: Plan,
    where: Inventory | None = None,
    promises: Mapping[str, int] = {},
) -> list[str]:
    target = locate(
        where or places(), made, template(), no_load, promised=lambda key: promises.get(key[-1], 0)
    )
    return [store.name for store in target.datastores]


def spec(**fields: Native) -> Plan:
    return plan(**fields)


# Datastore clusters


def test_a_datastore_cluster_means_its_datastore_with_most_space() -> None:
    """Failure: a datastore cluster is "not found", as only datastores are looked up."""
    assert chosen(disks({"datastoreCluster": "fast"})) == ["b"]
    assert chosen(spec(datastore="fast")) == ["b"]
    assert chosen(spec(datastore="/dc-1/datastore/fast")) == ["b"]


def test_what_is_on_its_way_counts() -> None:
    where = disks({"datastoreCluster": "fast"})
    assert chosen(where, promises={"2": 250}) == ["a"]


def test_one_with_room_goes_before_one_without() -> None:
    only_a_is_seen_by_all = places(replace(A, free_gib=5), B, C)
    assert chosen(disks({"datastoreCluster": "fast"}, size=20), only_a_is_seen_by_all) == ["b"]


def test_a_datastore_in_maintenance_is_never_chosen() -> None:
    where = places(A, replace(B, usable=False), C)
    assert chosen(disks({"datastoreCluster": "fast"}), where) == ["a"]
    with pytest.raises(NeedsOperator) as refusal:
        chosen(disks({"datastore": "b"}), where)
    assert "maintenance" in refusal.value.message


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (disks({"datastoreCluster": "slow"}), "no datastore cluster 'slow'"),
        (disks({"datastore": "fast"}), "name it by datastoreCluster"),
        (disks({"storagePolicy": "silver"}), "no storage policy 'silver'"),
        (disks({"provisioning": "fat", "datastore": "a"}), "'fat' of its target is not one of"),
        (disks({"controller": "usb", "datastore": "a"}), "'usb' of its target is not one of"),
        (disks({"provisioning": "thin"}), ""),
        (spec(datastore="nowhere"), "correct datastore of the machine"),
        (spec(storage_policy="silver"), "correct storagePolicy of the machine"),
    ],
)
def test_what_is_not_there_is_named_with_its_field(made: Plan, words: str) -> None:
    if not words:
        assert chosen(made) == ["a"], "no class of its own, so beside the template"
        return
    with pytest.raises(NeedsOperator) as refusal:
        chosen(made)
    assert words in refusal.value.message


# Storage policies


def test_a_policy_chooses_among_the_datastores_that_fulfil_it() -> None:
    """Failure: a random compatible datastore, which may be a cluster or in maintenance."""
    where = places(policy=frozenset({A.id, C.id}))
    made = disks({"storagePolicy": "gold policy"})
    assert [chosen(made, where) for _ in range(5)] == [["c"]] * 5
    both = disks({"storagePolicy": "gold policy", "datastoreCluster": "fast"})
    assert chosen(both, where) == ["a"]


def test_a_machines_own_policy_holds_for_all_its_disks() -> None:
    where = places(policy=frozenset({A.id}))
    many = replace(disks({"datastore": "a"}, {}), spec=spec(storage_policy="gold policy").spec)
    assert chosen(many, where) == ["a", "a"]
    elsewhere = replace(disks({"datastore": "b"}), spec=many.spec)
    with pytest.raises(NeedsOperator) as refusal:
        chosen(elsewhere, where)
    assert "fulfils storage policy" in refusal.value.message


def test_a_datastore_of_the_machines_own_keeps_the_policy_of_the_class() -> None:
    where = places(policy=frozenset({A.id}))
    classed = disks({"storagePolicy": "gold policy", "datastoreCluster": "fast"})
    assert chosen(replace(classed, spec=spec(datastore="a").spec), where) == ["a"]
    with pytest.raises(NeedsOperator):
        chosen(replace(classed, spec=spec(datastore="c").spec), where)


def test_how_disks_are_made_comes_from_their_class() -> None:
    classes = {"datastore": "a", "provisioning": "eager", "controller": "nvme"}
    policy = {"storagePolicy": "gold policy"}
    target = locate(places(), disks(classes, policy), template(), no_load)
    assert (target.wish(0).provisioning, target.wish(0).bus) == (Provisioning.EAGER, Bus.NVME)
    assert (target.wish(1).policy, target.wish(1).provisioning) == ("p-1", None)


@pytest.mark.parametrize("provisioning", ["thick", "eager"])
def test_a_thick_boot_disk_hangs_on_no_template(provisioning: str) -> None:
    thick = disks({"datastore": "a", "provisioning": provisioning})
    target = locate(places(), thick, template(), no_load)
    sent = build(thick, target, template())
    assert sent.snapshot is None
    assert [moved.provisioning for moved in sent.moved] == [Provisioning(provisioning)]
    linked = replace(thick, spec=spec(clone_mode=CloneMode.LINKED).spec)
    with pytest.raises(InvalidSpec) as refusal:
        locate(places(), linked, template(), no_load)
    assert "use cloneMode Full" in refusal.value.message


# Hosts and datastores together


def test_disks_end_where_one_host_sees_them_all() -> None:
    """Failure: each disk's datastore is chosen alone, and no host sees all of them."""
    made = places()
    one = host(1, datastores=frozenset({A.id}))
    two = host(2, datastores=frozenset({B.id, C.id}))
    where = replace(made, hosts=by_id([one, two]))
    assert chosen(disks({"datastoreCluster": "fast"}, {"datastore": "c"}), where) == ["b", "c"]
    with pytest.raises(Refused):
        chosen(disks({"datastore": "a"}, {"datastore": "c"}), where)


def test_a_disk_without_a_class_lies_beside_the_boot_disk() -> None:
    assert chosen(disks({"datastore": "c"}, {})) == ["c", "c"]


def test_a_linked_clone_needs_a_host_that_sees_its_template() -> None:
    made = places()
    far = [host(number, datastores=frozenset({B.id, C.id})) for number in (1, 2)]
    where = replace(made, hosts=by_id(far))
    target: Target = locate(where, disks({"datastore": "b"}), template(), no_load)
    assert not target.linkable
    near = replace(made, hosts=by_id([far[0], host(2, datastores=ALL)]))
    unmanaged = {key: replace(it, places_vms=False) for key, it in made.clusters.items()}
    target = locate(
        replace(near, clusters=unmanaged), disks({"datastore": "b"}), template(), no_load
    )
    assert target.linkable
    assert target.host is not None
    assert target.host.id == "host-2", "the other one does not see the template's disks"


def test_choosing_is_the_same_every_time() -> None:
    twins = [replace(A, id=f"datastore-{number}") for number in (9, 3, 5)]
    seen = [host(1, datastores=frozenset(store.id for store in twins))]
    picks = {
        stores.choose(order, seen, 1, lambda _: 0)
        for order in (twins, twins[::-1], [twins[1], *twins])
    }
    assert {pick.id for pick in picks if pick} == {"datastore-3"}
    assert stores.choose(twins, [host(1)], 1, lambda _: 0) is None


def test_not_reachable_is_told_for_a_class_without_a_place() -> None:
    cluster = next(iter(places().clusters.values()))
    with pytest.raises(NotReachable):
        stores.candidates(places(), cluster, {"provisioning": "thin"})
