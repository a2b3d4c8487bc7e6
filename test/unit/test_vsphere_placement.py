from dataclasses import replace

import pytest

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.places.inventory import Inventory
from banlieue.providers.vsphere.places.placement import Plan, Target, locate
from banlieue.sdk.driver import DiskPlan, NicPlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator, Refused
from test.kit.vsphere_places import Native, host, inventory, plan, template


def no_load(_: str) -> int:
    return 0


def place(made: Plan | None = None, places: Inventory | None = None, **spec: Native) -> Target:
    return locate(places or inventory(), made or plan(**spec), template(), no_load)


def test_a_plain_plan_goes_where_its_failure_domain_is() -> None:
    found = place()
    assert (found.folder, found.pool) == ("group-v1", "resgroup-1")
    assert [store.id for store in found.datastores] == ["datastore-1"]
    assert [network.id for network in found.networks] == ["dvportgroup-1"]
    assert found.host is None, "the cluster picks the host"


@pytest.mark.parametrize(
    ("wanted", "folder"),
    [
        ("team", "group-v2"),
        ("team/web", "group-v3"),
        ("/dc-1/vm/team/web", "group-v3"),
        ("/dc-1/vm", "group-v1"),
        ("web", "group-v4"),
        ("group-v3", "group-v3"),
    ],
)
def test_folders_are_found_by_name_path_and_id(wanted: str, folder: str) -> None:
    assert place(folder=wanted).folder == folder


@pytest.mark.parametrize(
    ("wanted", "pool"),
    [
        ("prod", "resgroup-2"),
        ("/dc-1/host/blue/Resources/prod", "resgroup-2"),
        ("/dc-1/host/blue/Resources", "resgroup-1"),
        ("resgroup-2", "resgroup-2"),
    ],
)
def test_pools_are_found_by_name_path_and_id(wanted: str, pool: str) -> None:
    assert place(resource_pool=wanted).pool == pool


@pytest.mark.parametrize(
    "spec",
    [
        {"folder": "nowhere"},
        {"folder": "/dc-2/vm/team"},
        {"resource_pool": "nowhere"},
        {"cluster": "green"},
        {"datacenter": "dc-2"},
    ],
)
def test_places_that_are_not_there_are_the_specs_fault(spec: dict[str, Native]) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        place(**spec)
    assert next(iter(spec.values())) in refusal.value.message


def test_a_name_in_two_branches_needs_a_path() -> None:
    places = inventory()
    web, twin = places.folders["group-v3"], places.folders["group-v4"]
    nested = {**places.folders, "group-v4": replace(twin, parent="group-v3", name=web.name)}
    with pytest.raises(InvalidSpec) as refusal:
        place(places=replace(places, folders=nested), folder="web")
    assert "there are 2" in refusal.value.message


def test_the_machines_own_datastore_beats_its_class() -> None:
    assert place(datastore="fast/a").datastores[0].id == "datastore-1"
    with pytest.raises(NeedsOperator) as refusal:
        place(datastore="slow")
    assert refusal.value.reason is Reason.STORAGE_CLASS_NOT_AVAILABLE


def test_data_disks_have_datastores_of_their_own() -> None:
    slow = DiskPlan("data", 1, {"datastore": "slow"})
    with pytest.raises(NeedsOperator) as refusal:
        place(replace(plan(), disks=(*plan().disks, slow)))
    assert "disk data" in refusal.value.message


def test_a_network_that_is_not_there_is_named() -> None:
    with pytest.raises(NeedsOperator) as refusal:
        place(replace(plan(), nics=(NicPlan("eth0", {"portGroup": "dmz"}),)))
    assert refusal.value.reason is Reason.NETWORK_NOT_AVAILABLE
    assert "dmz" in refusal.value.message


def without_drs(places: Inventory) -> Inventory:
    (cluster,) = places.clusters.values()
    return replace(places, clusters={cluster.id: replace(cluster, places_vms=False)})


def test_without_drs_the_emptiest_host_that_sees_everything_is_taken() -> None:
    blind = host(1, networks=frozenset({"network-1"}))
    places = without_drs(inventory(blind, host(2), host(3)))
    found = place(places=places).host
    assert found is not None
    assert found.id == "host-2"


def test_what_is_being_made_counts_against_a_host() -> None:
    places = without_drs(inventory(host(1), host(2)))
    found = locate(places, plan(), template(), {"host-1": 500, "host-2": 0}.__getitem__).host
    assert found is not None
    assert found.id == "host-2"


def test_without_a_host_that_sees_everything_the_place_is_refused() -> None:
    apart = (host(1, datastores=frozenset()), host(2, networks=frozenset()))
    with pytest.raises(Refused):
        place(places=inventory(*apart))


def test_a_cluster_that_is_gone_is_told() -> None:
    with pytest.raises(NeedsOperator) as refusal:
        place(places=replace(inventory(), clusters={}))
    assert refusal.value.reason is Reason.FAILURE_DOMAIN_NOT_FOUND
