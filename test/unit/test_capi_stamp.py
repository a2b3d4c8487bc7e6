"""A machine of Cluster API until it has its Provider, by the contract's rules."""

import copy

import pytest

from banlieue.api import names
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES, PROVIDER_CLASSES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_CLUSTERS, SIMULATED_MACHINES
from test.kit.capiworld import CLUSTER, CapiWorld
from test.kit.controllerworld import NAMESPACE, SYSTEM

STAMPED = {"providerRef", "placement", "userData", "teardown"}


def writes_to_machines(world: CapiWorld) -> list[tuple[str, str, str]]:
    return [
        (call.verb, call.subresource, call.manager)
        for call in world.api.writes()
        if call.resource == SIMULATED_MACHINES
    ]


async def test_m1_m2_a_machine_gets_provider_id_and_is_provisioned() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    await world.settle()
    node = world.node()
    (uuid,) = world.every_vm()
    assert node["spec"]["providerID"].endswith(uuid)
    assert node["status"]["initialization"] == {"provisioned": True}
    assert world.told() == ("True", "Ready")
    assert world.faults == []


async def test_m3_m4_addresses_and_the_domain_it_is_in_are_told() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(domain="two-b")
    await world.settle()
    status = world.node()["status"]
    kinds = {it["type"] for it in status["addresses"]}
    assert kinds <= {"Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"}
    assert status["failureDomain"] == "two-b"
    assert world.place() == ("two", "two-b")


async def test_m5_m8_m9_nothing_stands_there_that_core_would_stumble_over() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    await world.settle()
    node = world.node()
    assert "failureDomain" not in node["spec"]
    assert not {"ready", "failureReason", "failureMessage", "v1beta2"} & node["status"].keys()
    assert None not in list(_leaves(node))


def _leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


async def test_until_a_machine_owns_it_the_object_stays_as_it_is_to_the_byte() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(owned=False)
    before = world.node()
    await world.settle()
    world.restart()
    await world.settle()
    assert world.node() == before
    world.claim()
    await world.settle()
    assert world.told() == ("True", "Ready")


async def test_an_object_with_another_owner_is_left_alone() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(owned=False)
    reference = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineSet",
        "name": "set",
        "uid": "set-uid",
    }
    world.edit("node-1", lambda it: it["metadata"].update(ownerReferences=[reference]))
    before = world.node()
    await world.settle()
    assert world.node() == before


async def test_a_machine_that_owns_without_controlling_is_no_owner_yet() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.edit("node-1", lambda it: it["metadata"]["ownerReferences"][0].update(controller=False))
    before = world.node()
    await world.settle()
    assert world.node() == before


async def test_the_stamp_is_one_write_of_exactly_four_fields() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(domain="one-b")
    before = copy.deepcopy(world.node()["spec"])
    world.stop_serving()
    await world.settle()
    node = world.node()
    assert node["spec"] == {
        **before,
        "providerRef": {"name": "one", "namespace": SYSTEM},
        "placement": {"failureDomain": "one-b"},
        "userData": {"secretRef": {"name": "boot"}},
        "teardown": {"mode": "Destroy", "uid": node["metadata"]["uid"]},
    }
    assert writes_to_machines(world) == [("apply", "", names.MANAGER_STAMP)]
    assert "status" not in node


async def test_what_it_waits_for_is_told_in_order_and_nothing_but_status_is_written() -> None:
    world = CapiWorld.with_cluster(provisioned=False)
    world.add_machine(data="", domain="one-a")
    spec = copy.deepcopy(world.node()["spec"])
    await world.settle()
    assert world.told() == ("False", "WaitingForClusterInfrastructureReady")
    assert world.told(kind="Provisioned") == ("False", "WaitingForClusterInfrastructureReady")
    assert world.told(kind="Paused") == ("False", "NotPaused")

    initialized(world, infrastructureProvisioned=True)
    await world.settle()
    assert world.told() == ("False", "WaitingForControlPlaneInitialized")

    initialized(world, infrastructureProvisioned=True, controlPlaneInitialized=True)
    await world.settle()
    assert world.told() == ("False", "WaitingForBootstrapData")
    assert world.node()["spec"] == spec
    assert "finalizers" not in world.node()["metadata"]
    assert {it[1] for it in writes_to_machines(world)} == {"status"}

    world.add_data()
    world.edit_owner("node-1", lambda it: it["spec"].update(bootstrap={"dataSecretName": "boot"}))
    await world.settle()
    assert world.told() == ("True", "Ready")
    assert world.faults == []


def initialized(world: CapiWorld, **done: bool) -> None:
    world.api.edit(
        CAPI_CLUSTERS,
        Key(NAMESPACE, CLUSTER),
        lambda it: it.setdefault("status", {}).update(initialization=done),
    )


async def test_the_first_control_plane_machine_waits_for_its_data_alone() -> None:
    world = CapiWorld.with_cluster(provisioned=False)
    initialized(world, infrastructureProvisioned=True)
    world.add_machine(data="", plane=True)
    await world.settle()
    assert world.told() == ("False", "WaitingForBootstrapData")


async def test_m4_an_unknown_domain_is_told_and_the_machine_is_made_nowhere_else() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(domain="moon")
    await world.settle()
    assert world.told() == ("False", "FailureDomainNotFound")
    assert "one-a" in world.says()["message"]
    assert world.every_vm() == []
    assert not STAMPED & world.node()["spec"].keys()


async def test_a_domain_of_a_provider_that_the_cluster_may_not_use_is_unknown() -> None:
    world = CapiWorld.with_cluster(providerRefs=[{"name": "one", "namespace": SYSTEM}])
    world.add_machine(domain="two-a")
    await world.settle()
    assert world.told() == ("False", "FailureDomainNotFound")
    reference = {"name": "two", "namespace": SYSTEM}
    world.api.edit(
        SIMULATED_CLUSTERS,
        Key(NAMESPACE, CLUSTER),
        lambda it: it["spec"].update(providerRefs=[reference]),
    )
    await world.settle()
    assert world.place() == ("two", "two-a")


async def test_a_domain_that_comes_later_is_noticed() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(domain="one-b")
    domains: list[Obj] = []

    def take(provider: Obj) -> None:
        domains[:] = provider["status"]["failureDomains"]
        provider["status"]["failureDomains"] = domains[:1]

    world.edit_provider("one", take)
    await world.settle()
    assert world.told() == ("False", "FailureDomainNotFound")
    world.edit_provider("one", lambda it: it["status"].update(failureDomains=domains))
    await world.settle()
    assert world.place() == ("one", "one-b")


async def test_machines_without_a_domain_are_spread_by_the_scheduler() -> None:
    world = CapiWorld.with_cluster()
    for number in range(4):
        world.add_machine(f"node-{number}", data=f"boot-{number}", antiAffinityGroup="workers")
    await world.settle()
    places = {world.place(f"node-{number}") for number in range(4)}
    assert len(places) == 4
    assert len(world.every_vm()) == 4


async def test_machines_of_a_control_plane_go_where_the_cluster_has_them() -> None:
    selector = {"matchLabels": {"plane": "yes"}}
    world = CapiWorld.with_cluster(controlPlaneFailureDomainSelector=selector)

    def label(provider: Obj) -> None:
        provider["status"]["failureDomains"][1]["labels"] = {"plane": "yes"}

    world.edit_provider("two", label)
    world.add_machine("plane", plane=True)
    await world.settle()
    assert world.place("plane") == ("two", "two-b")


async def test_a_cluster_uses_the_providers_its_selector_matches() -> None:
    world = CapiWorld.with_cluster(providerSelector={"matchLabels": {"site": "north"}})
    world.edit_provider("two", lambda it: it["metadata"].update(labels={"site": "north"}))
    world.add_machine()
    await world.settle()
    assert world.place()[0] == "two"


async def test_a_provider_that_takes_no_machines_is_waited_for_where_the_machine_names_it() -> None:
    world = CapiWorld.with_cluster()
    world.edit_provider("one", lambda it: it["spec"].update(cordoned=True))
    world.add_machine(domain="one-a")
    await world.settle()
    assert world.told() == ("False", "ProviderCordoned")
    assert "classRef" not in world.says()["message"]
    world.edit_provider("one", lambda it: it["spec"].update(cordoned=False))
    await world.settle()
    assert world.place() == ("one", "one-a")


async def test_an_image_that_comes_later_is_noticed() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(imageRef={"name": "flatcar"})
    await world.settle()
    assert world.told() == ("False", "ImageNotFound")
    world.add_image(
        "flatcar",
        sources=[{"providerClass": "simulated", "kind": "Template", "ref": "ubuntu-24.04"}],
    )
    await world.settle()
    assert world.told() == ("False", "ImageNotReady")
    world.image_ready_at(Key(SYSTEM, "two"), "flatcar")
    await world.settle()
    assert world.place()[0] == "two"


async def test_a_machine_that_refers_to_another_object_gets_nothing() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.edit_owner("node-1", lambda it: it["spec"]["infrastructureRef"].update(name="another"))
    await world.settle()
    assert world.told() == ("False", "NotReferenced")
    assert world.every_vm() == []


async def test_a_machine_of_another_uid_is_not_the_owner() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.edit("node-1", lambda it: it["metadata"]["ownerReferences"][0].update(uid="old"))
    await world.settle()
    assert world.told() == ("False", "NotReferenced")
    assert not STAMPED & world.node()["spec"].keys()


async def test_a_machine_that_goes_before_it_has_its_provider_leaves_nothing() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(domain="moon")
    await world.settle()
    await world.delete_machine()
    assert world.node() == {}
    assert world.owner() == {}
    assert world.every_vm() == []


async def test_a_cluster_without_an_infra_cluster_of_ours_may_use_every_provider() -> None:
    world = CapiWorld.with_cluster()
    foreign = {"apiGroup": "infrastructure.other.example", "kind": "OtherCluster", "name": "x"}
    world.api.edit(
        CAPI_CLUSTERS,
        Key(NAMESPACE, CLUSTER),
        lambda it: it["spec"].update(infrastructureRef=foreign),
    )
    world.add_machine(domain="two-a")
    await world.settle()
    assert world.place() == ("two", "two-a")


@pytest.mark.parametrize("name", ["one", "two"])
async def test_a_machine_goes_back_to_the_vm_it_has(name: str) -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.edit_provider(_other(name), lambda it: it["spec"].update(cordoned=True))
    await world.settle()
    (uuid,) = world.every_vm()
    stamped = world.node()
    world.edit_provider(_other(name), lambda it: it["spec"].update(cordoned=False))
    # An older backup of the cluster's objects, made before the stamp: the VM is there.
    forgotten = copy.deepcopy(stamped)
    for field in (*STAMPED, "instance", "providerID"):
        del forgotten["spec"][field]
    forgotten["metadata"]["finalizers"] = []
    world.edit("node-1", lambda it: it["metadata"].update(finalizers=[]))
    world.api.drop(SIMULATED_MACHINES, Key(NAMESPACE, "node-1"))
    await world.settle()
    world.restore(forgotten, uid="restored")
    await world.settle()
    assert world.place()[0] == name
    assert world.every_vm() == [uuid]
    assert world.told() == ("True", "Ready")


def _other(name: str) -> str:
    return "two" if name == "one" else "one"


async def test_a_vm_of_the_machine_elsewhere_is_a_conflict_and_not_doubled() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(domain="one-a")
    await world.settle()
    before = world.every_vm()
    world.edit("node-1", lambda it: it["metadata"].update(finalizers=[]))
    world.api.drop(SIMULATED_MACHINES, Key(NAMESPACE, "node-1"))
    world.api.edit(
        CAPI_MACHINES,
        Key(NAMESPACE, "node-1"),
        lambda it: it["metadata"].update(finalizers=[]),
    )
    world.api.drop(CAPI_MACHINES, Key(NAMESPACE, "node-1"))
    await world.settle()
    world.add_machine(domain="two-a")
    await world.settle()
    assert world.told() == ("False", "OwnershipConflict")
    assert world.every_vm() == before


def fill(world: CapiWorld, name: str, letter: str) -> None:
    """Leave no memory on the hosts of a failure domain, without the Provider telling."""
    backend = world.serving[name].backend
    there = next(it for it in backend.state.domains if it.id == f"domain-{letter}")
    hosts = [it.model_copy(update={"memory_mib": 1}) for it in there.hosts]
    made = there.model_copy(update={"hosts": hosts})
    backend.control("set_domain", {"domain": made.model_dump(mode="json")})


async def test_a_machine_that_is_refused_goes_to_another_domain_of_its_provider() -> None:
    world = CapiWorld.with_cluster(providerRefs=[{"name": "one", "namespace": SYSTEM}])
    fill(world, "one", "a")
    world.add_machine()
    await world.settle()
    assert world.place() == ("one", "one-b")
    assert world.told() == ("True", "Ready")
    assert len(world.every_vm()) == 1


async def test_a_machine_that_is_refused_everywhere_never_changes_its_provider() -> None:
    world = CapiWorld.with_cluster()
    fill(world, "one", "a")
    fill(world, "one", "b")
    world.edit_provider("two", lambda it: it["spec"].update(cordoned=True))
    world.add_machine()
    await world.settle()
    world.edit_provider("two", lambda it: it["spec"].update(cordoned=False))
    await world.settle(seconds=1200)
    assert world.place()[0] == "one"
    assert world.told() == ("False", "InsufficientCapacity")
    assert world.every_vm() == []


async def test_a_machine_that_names_its_domain_waits_for_room_there() -> None:
    world = CapiWorld.with_cluster()
    fill(world, "one", "a")
    world.add_machine(domain="one-a")
    await world.settle(seconds=1200)
    assert world.place() == ("one", "one-a")
    assert world.told() == ("False", "InsufficientCapacity")


async def test_an_infra_cluster_whose_class_is_gone_restricts_its_machines_all_the_same() -> None:
    refs = [{"name": "two", "namespace": SYSTEM}]
    world = CapiWorld.with_cluster(providerRefs=refs)
    world.api.edit(PROVIDER_CLASSES, Key("", "simulated"), lambda it: it["spec"].pop("cluster"))
    world.restart()
    world.add_machine()
    await world.settle()
    assert world.place() in {("two", "two-a"), ("two", "two-b"), ("", "")}


async def test_an_address_that_stands_in_a_template_beside_its_pool_makes_no_machine() -> None:
    """All machines of the template would have it."""
    world = CapiWorld.with_cluster()
    wish = {"family": "IPv4", "source": "pool", "address": "10.0.0.10"}
    nic = {"name": "eth0", "networkClass": "prod", "ipam": [wish]}
    world.add_machine(networkInterfaces=[nic])
    await world.settle()
    assert world.told() == ("False", "InvalidConfiguration")
    assert "networkInterfaces[eth0]: 10.0.0.10 is given with source pool" in world.says()["message"]
    assert world.place() == ("", "")
    assert world.faults == []


@pytest.mark.parametrize(
    ("lost", "remedy"),
    [
        ("machine", "delete this object"),
        ("reference", "delete this object, or correct the reference"),
        ("cluster", "make it, or delete Machine node-1"),
    ],
)
async def test_what_is_missing_beside_the_machine_is_told_with_what_to_do(
    lost: str, remedy: str
) -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    if lost == "machine":
        world.edit_owner("node-1", lambda it: it["metadata"].update(uid="another"))
    elif lost == "reference":
        world.edit_owner("node-1", lambda it: it["spec"]["infrastructureRef"].update(name="x"))
    else:
        world.api.drop(CAPI_CLUSTERS, Key(NAMESPACE, CLUSTER))
    await world.settle()
    assert world.says()["message"].endswith(remedy)
    assert world.every_vm() == []
