"""No address is given away while a VM answers to it, nor taken twice."""

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.resources import (
    CONFIG_MAPS,
    IP_ADDRESS_CLAIMS,
    PROVIDER_CLASSES,
    PROVIDERS,
)
from banlieue.api.types import IPFamily
from banlieue.api.v1alpha1.provider import PoolRef
from banlieue.controller.addresses import endings
from banlieue.controller.infra.kinds import Found
from banlieue.sdk import pools
from banlieue.sdk.kube import Conflict, Key, Obj
from test.kit.addresslab import POOLED, Lab
from test.kit.addresspool import AddressPool
from test.kit.controllerworld import CLUSTER_UID, NAMESPACE, SYSTEM, THAT, THIS

ONE = {"name": "one", "namespace": SYSTEM}
TWO = {"name": "two", "namespace": SYSTEM}


async def test_a_vm_of_the_same_name_does_not_get_the_address_of_one_that_was_left() -> None:
    lab = Lab()
    lab.add_provider("two", lab.pool)
    await lab.vm(deletionPolicy="Orphan", providerRef=ONE)
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    await lab.vm(providerRef=TWO)
    assert lab.guests() == ["10.0.0.10"]
    told = [it for it in lab.world.recorder.events if it.reason == EventReason.ADDRESS_NOT_ASSIGNED]
    assert "was left on its backend" in told[-1].message
    assert "another name" in told[-1].message
    # The user says that the VM is gone.
    [claim] = lab.claims
    lab.world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim))
    lab.world.providers[0].vms.clear()
    await lab.world.settle(seconds=600)
    assert lab.guests() == ["10.0.0.10"]
    assert lab.world.condition("Ready")["status"] == "True"


async def test_what_a_move_left_to_its_user_keeps_its_address() -> None:
    lab = Lab()
    other = AddressPool(lab.world.api, "other", ["10.1.0.10"], gateway="10.1.0.1")
    lab.world.others.append(other.step)
    lab.add_provider("two", other)
    await lab.vm(deletionPolicy="Orphan", providerRef=ONE)
    lab.world.edit_vm(providerRef=TWO)
    await lab.world.settle(seconds=3600)
    lab.world.annotate(release_previous="true")
    await lab.world.settle(seconds=3600)
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    lab.world.api.collect_garbage()
    await lab.world.settle(seconds=600)
    assert lab.guests() == ["10.0.0.10", "10.1.0.10"]
    assert (list(lab.pool.given.values()), list(other.given.values())) == (
        ["10.0.0.10"],
        ["10.1.0.10"],
    )


async def test_an_address_outlives_the_class_of_the_machine_that_has_it() -> None:
    lab = Lab()
    network = [{"name": "prod", "target": {}, "subnets": [lab.pool.subnet()]}]
    lab.world.add_provider("two", backend="that", capabilities={"networkClasses": network})
    await lab.vm(providerRef=ONE)
    lab.world.edit_vm(providerRef=TWO)
    await lab.world.settle(seconds=3600)
    lab.world.api.drop(PROVIDER_CLASSES, Key("", "that"))
    left = lab.world.machine(kind=THIS)
    assert left is not None
    uid = left["metadata"]["uid"]
    destroy = {"mode": "Destroy", "uid": uid}
    lab.world.api.edit(THIS, Key.of(left), lambda obj: obj["spec"].update(teardown=destroy))
    lab.world.api.drop(THIS, Key.of(left))
    await lab.world.settle(seconds=3600)
    assert lab.world.api.peek_all(THIS) == []
    assert len(lab.world.api.peek_all(THAT)) == 1
    assert lab.guests() == ["10.0.0.10"]
    assert list(lab.pool.given.values()) == ["10.0.0.10"]


async def test_a_vm_that_may_still_be_there_keeps_its_address() -> None:
    """Its object was lost and came back; nobody has taken the VM up again since."""
    lab = Lab()
    await lab.vm()
    lab.world.providers[0].down = True
    lab.world.api.drop(THIS, Key(NAMESPACE, "db-1"), force=True)
    await lab.world.settle(seconds=600)
    machine = lab.world.machine()
    assert machine is not None
    assert "instance" not in machine["spec"]
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    lab.world.api.collect_garbage()
    await lab.world.settle(seconds=600)
    assert lab.world.vm() is None
    assert lab.guests() == list(lab.pool.given.values()) == ["10.0.0.10"]


async def test_a_machine_that_was_never_made_keeps_no_address() -> None:
    lab = Lab()
    lab.world.providers[0].down = True
    await lab.vm()
    assert list(lab.pool.given.values()) == ["10.0.0.10"]
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    assert (lab.claims, lab.pool.given, lab.world.vm()) == ([], {}, None)


async def test_an_interface_counts_as_taken_off_only_where_it_was_seen_to_be() -> None:
    """The class has the interface, too; what is on the VM is not known after a restore."""
    lab = Lab()
    await lab.vm()
    lab.world.providers[0].down = True

    def lose(obj: Obj) -> None:
        obj["status"].pop("interfaces")

    lab.world.api.edit(THIS, Key(NAMESPACE, "db-1"), lose)
    lab.world.edit_vm(networkInterfaces=[])
    await lab.world.settle(seconds=600)
    assert lab.guests() == list(lab.pool.given.values()) == ["10.0.0.10"]


async def test_another_pool_of_a_network_is_for_new_machines_alone() -> None:
    lab = Lab()
    await lab.vm()
    other = AddressPool(lab.world.api, "other", ["10.0.0.200", "10.0.0.201"])
    lab.world.others.append(other.step)
    lab.declare(other.subnet())
    lab.world.edit_vm(powerOffTimeoutSeconds=17)
    await lab.world.settle(seconds=600)
    assert (lab.pool.history, other.history) == (["10.0.0.10"], [])
    assert EventReason.ADDRESS_NOT_ASSIGNED not in lab.world.recorder.reasons()
    await lab.vm("db-2")
    assert lab.guests() == ["10.0.0.10", "10.0.0.200"]
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    assert (lab.pool.given, list(other.given.values())) == ({}, ["10.0.0.200"])


async def test_an_address_without_any_claim_is_claimed_again() -> None:
    """As after a restore that brought back no claims: the pool must know that it is taken."""
    lab = Lab()
    await lab.vm()
    [claim] = lab.claims
    lab.world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim), force=True)
    await lab.world.settle(seconds=600)
    assert list(lab.pool.given.values()) == ["10.0.0.10"]


async def test_fields_of_an_interface_that_this_version_does_not_know_are_kept() -> None:
    lab = Lab()
    stored = lab.put_cluster_machine()

    def extend(obj: Obj) -> None:
        obj["spec"]["networkInterfaces"][0]["queues"] = 4
        obj["spec"]["networkInterfaces"][0]["ipam"][0]["vrf"] = "blue"

    lab.world.api.edit(THIS, Key.of(stored), extend)
    await lab.world.settle(seconds=600)
    assert lab.address_of("cp-0") == "10.0.0.10"
    found = lab.world.api.peek(THIS, Key.of(stored))
    assert found is not None
    [nic] = found["spec"]["networkInterfaces"]
    assert (nic["queues"], nic["ipam"][0]["vrf"]) == (4, "blue")


async def test_two_interfaces_in_trouble_are_each_told_of_once() -> None:
    lab = Lab(free=["2001:db8::a", "2001:db8::b"])
    second = {"name": "eth1", "networkClass": "prod", "ipam": POOLED[0]["ipam"]}
    lab.world.add_vm(networkInterfaces=[*POOLED, second])
    await lab.world.settle(seconds=1800)
    told = [it for it in lab.world.recorder.events if it.reason == EventReason.ADDRESS_NOT_ASSIGNED]
    assert sorted(it.message.partition(":")[0] for it in told) == [
        "networkInterfaces[eth0]",
        "networkInterfaces[eth1]",
    ]


def test_claims_of_a_vm_and_of_a_cluster_api_machine_of_one_name_differ() -> None:
    pool = PoolRef(api_group="ipam.example.com", kind="LabPool", name="lab")
    spec = {"virtualMachineRef": {"name": "web", "uid": "1"}}
    of_vm = Machine.from_api({"metadata": {"name": "web"}, "spec": spec})
    of_cluster = Machine.from_api({"metadata": {"name": "web"}, "spec": {}})
    names_ = {pools.claim_of(it, "eth0", IPFamily.IPV4, pool) for it in (of_vm, of_cluster)}
    assert len(names_) == 2


async def test_the_remedy_for_a_claim_of_somebody_else_gives_no_address_away_that_is_used() -> None:
    lab = Lab()
    await lab.vm()
    [claim] = lab.claims

    def hand_over(obj: Obj) -> None:
        obj["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "example.com/v1",
                "kind": "Router",
                "name": "edge",
                "uid": "x",
                "controller": True,
            }
        ]

    lab.world.api.edit(IP_ADDRESS_CLAIMS, Key.of(claim), hand_over)
    lab.world.restart()
    await lab.world.settle(seconds=600)
    told = [it for it in lab.world.recorder.events if it.reason == EventReason.ADDRESS_NOT_ASSIGNED]
    assert "belongs to Router edge; delete the claim when nothing uses" in told[-1].message


async def test_a_label_of_a_virtual_machine_makes_its_claim_none_of_a_cluster() -> None:
    lab = Lab()
    label = {names.CAPI_LABEL_CLUSTER_NAME: "prod"}
    lab.world.add_vm(labels=label, networkInterfaces=POOLED)
    await lab.world.settle(seconds=600)
    [claim] = lab.claims
    assert claim["spec"] == {"poolRef": lab.pool.reference}
    assert claim["metadata"]["labels"] == {}
    assert lab.guests() == ["10.0.0.10"]


async def test_a_stale_look_at_a_machine_takes_no_address_of_an_interface_that_is_back() -> None:
    lab = Lab()
    second = {"name": "eth1", "networkClass": "prod", "ipam": POOLED[0]["ipam"]}
    lab.world.add_vm(networkInterfaces=[*POOLED, second])
    await lab.world.settle(seconds=600)
    stale = lab.world.machine()
    assert stale is not None
    stale["spec"]["networkInterfaces"].pop()
    stale["status"]["interfaces"].pop()
    stale["metadata"]["resourceVersion"] = "1"
    services, machine = lab.world.role.services, Machine.from_api(stale)
    with pytest.raises(Conflict):
        await endings.release_unplugged(services, Found(THIS, stale), machine, [])
    assert lab.guests() == sorted(lab.pool.given.values()) == ["10.0.0.10", "10.0.0.11"]


async def test_what_was_restored_from_another_cluster_asks_no_pool_before_that_is_confirmed() -> (
    None
):
    lab = Lab()
    await lab.vm()
    lab.world.providers[0].down = True
    key = Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)

    def elsewhere(obj: Obj) -> None:
        obj["data"][names.INSTALLATION_CLUSTER_UID] = "of-the-original"

    lab.world.api.edit(CONFIG_MAPS, key, elsewhere)
    [claim] = lab.claims
    lab.world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim), force=True)
    lab.put_cluster_machine()
    lab.world.restart()
    await lab.world.settle(seconds=600)
    assert lab.claims == []

    def confirm(obj: Obj) -> None:
        obj["metadata"]["annotations"] = {names.ANNOTATION_CONFIRMED_CLUSTER: CLUSTER_UID}

    lab.world.api.edit(CONFIG_MAPS, key, confirm)
    await lab.world.settle(seconds=600)
    assert len(lab.claims) == 2


@pytest.mark.identity("12.6")
async def test_a_drill_beside_the_original_takes_no_address_out_of_its_pools() -> None:
    lab = Lab()
    await lab.vm()
    [claim] = lab.claims
    lab.world.api.edit(
        PROVIDERS, Key(SYSTEM, "one"), lambda obj: obj["spec"].update(mode="ReadOnly")
    )
    lab.world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim), force=True)
    lab.world.restart()
    await lab.world.settle(seconds=600)
    assert lab.claims == []
    assert lab.pool.history == ["10.0.0.10"]
