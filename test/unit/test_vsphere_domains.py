import pytest

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.places.domains import failure_domains
from banlieue.providers.vsphere.places.inventory import Datastore, Inventory, Network, below
from banlieue.providers.vsphere.places.reading import parse
from banlieue.sdk.driver import FailureDomain
from test.kit.vsphere_places import by_id, host, inventory


def declared(store: str = "fast/a", network: str = "prod") -> Capabilities:
    return Capabilities.from_api(
        {
            "storageClasses": [{"name": "gold", "target": {"datastore": store}}],
            "networkClasses": [{"name": "lan", "target": {"portGroup": network}}],
        }
    )


def only(places: Inventory, classes: Capabilities) -> FailureDomain:
    (domain,) = failure_domains(places, classes)
    return domain


def test_a_cluster_is_a_failure_domain_with_what_is_reachable() -> None:
    domain = only(inventory(), declared())
    assert (domain.id, domain.path) == ("domain-c1", ("dc-1", "blue"))
    assert (domain.storage_classes, domain.network_classes) == (("gold",), ("lan",))
    assert domain.problems == ()
    assert domain.capacity is not None
    assert (domain.capacity.cpus, domain.capacity.memory_mib) == (16, 2000)
    assert (domain.capacity.free_memory_mib, domain.capacity.hosts) == (1700, 2)


def test_places_can_be_named_by_their_id() -> None:
    domain = only(inventory(), declared("datastore-1", "dvportgroup-1"))
    assert (domain.storage_classes, domain.network_classes) == (("gold",), ("lan",))


@pytest.mark.parametrize(
    ("store", "network", "words"),
    [
        ("slow", "prod", "no datastore 'slow'"),
        ("fast/a", "dmz", "no port group 'dmz'"),
        ("", "prod", "lacks the key 'datastore'"),
    ],
)
def test_a_class_that_is_not_there_is_a_problem(store: str, network: str, words: str) -> None:
    domain = only(inventory(), declared(store, network))
    assert len(domain.storage_classes) + len(domain.network_classes) == 1
    assert len(domain.problems) == 1
    assert words in domain.problems[0]


def test_reachable_means_from_a_connected_host() -> None:
    cut_off = host(1, usable=False)
    without = host(2, datastores=frozenset(), networks=frozenset())
    domain = only(inventory(cut_off, without), declared())
    assert (domain.storage_classes, domain.network_classes) == ((), ())
    assert all("not reachable from any connected host" in found for found in domain.problems)


def test_a_datastore_in_maintenance_is_not_offered() -> None:
    places = inventory(
        datastores=by_id([Datastore("datastore-1", "fast/a", "group-s1", usable=False)])
    )
    domain = only(places, declared())
    assert domain.storage_classes == ()
    assert "maintenance" in domain.problems[0]


def test_two_networks_of_one_name_are_ambiguous_and_can_be_told_apart_by_id() -> None:
    twins = [
        Network("network-1", "prod", "group-n1"),
        Network("dvportgroup-1", "prod", "group-n1", "dvportgroup-1", "50 2c"),
    ]
    domain = only(inventory(networks=by_id(twins)), declared())
    assert domain.network_classes == ()
    assert "dvportgroup-1, network-1" in domain.problems[0]
    assert only(inventory(networks=by_id(twins)), declared(network="network-1")).network_classes


def test_a_cluster_without_a_usable_host_takes_no_vms() -> None:
    domain = only(inventory(host(1, usable=False)), declared())
    assert not domain.schedulable
    assert domain.capacity is not None
    assert domain.capacity.hosts == 0


def test_paths_begin_at_the_root_or_at_the_place() -> None:
    assert below("team/web", "dc-1", "vm") == ("team", "web")
    assert below("/dc-1/vm/team/web", "dc-1", "vm") == ("team", "web")
    assert below("/sites/dc-1/vm/team", "dc-1", "vm") == ("team",)
    assert below("/dc-1/vm", "dc-1", "vm") == ()
    assert below("/dc-2/vm/team", "dc-1", "vm") is None


def test_names_are_read_as_people_write_them() -> None:
    places = parse(
        "group-d1", [Found("Folder", "group-v9", {"name": "a%2fb %25"}), Found("Network", "n", {})]
    )
    assert places.folders["group-v9"].name == "a/b %"
    assert places.networks == {}, "an object nobody may read is not there"
