"""Addresses from pools: claimed for machines, written into their specs, and kept as long as a VM
answers to them.
"""

import itertools
from collections.abc import Callable

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.resources import IP_ADDRESS_CLAIMS, IP_ADDRESSES, VIRTUAL_MACHINES
from banlieue.api.types import IPFamily
from banlieue.api.v1alpha1.provider import PoolRef
from banlieue.sdk import pools
from banlieue.sdk.kube import Key, Obj
from test.kit.addresslab import POOLED, Lab
from test.kit.addresspool import GROUP, KIND, AddressPool
from test.kit.controllerworld import NAMESPACE, SYSTEM, THIS


async def test_an_address_from_a_pool_reaches_the_machine() -> None:
    lab = Lab()
    await lab.vm()
    machine = lab.world.machine()
    assert machine is not None
    assert machine["spec"]["networkInterfaces"][0]["ipam"][0] == {
        "family": "IPv4",
        "source": "pool",
        "address": "10.0.0.10",
        "prefix": 24,
        "gateway": "10.0.0.1",
    }
    assert lab.guests() == ["10.0.0.10"]
    assert lab.world.condition("Ready")["status"] == "True"
    assert names.FINALIZER_ADDRESSES in machine["metadata"]["finalizers"]


async def test_a_claim_is_made_as_the_contract_of_ipam_asks() -> None:
    lab = Lab()
    await lab.vm()
    [claim] = lab.claims
    vm, machine = lab.world.vm(), lab.world.machine()
    assert vm is not None
    assert machine is not None
    pool = PoolRef(api_group=GROUP, kind=KIND, name="lab")
    assert claim["metadata"]["name"] == pools.claim_name("db-1", "eth0", IPFamily.IPV4, pool)
    assert claim["spec"] == {"poolRef": lab.pool.reference}
    assert claim["metadata"]["finalizers"] == [names.FINALIZER_ADDRESSES]
    owners = {it["uid"]: it["controller"] for it in claim["metadata"]["ownerReferences"]}
    assert owners == {vm["metadata"]["uid"]: True, machine["metadata"]["uid"]: False}


async def test_a_second_family_has_a_claim_of_its_own() -> None:
    lab = Lab()
    six = AddressPool(lab.world.api, "lab6", ["2001:db8::a"], 64, "2001:db8::1")
    lab.world.others.append(six.step)
    lab.declare(lab.pool.subnet(), six.subnet("2001:db8::/64"))
    both = [{"family": "IPv4", "source": "pool"}, {"family": "IPv6", "source": "pool"}]
    lab.world.add_vm(networkInterfaces=[{"name": "eth0", "ipam": both}])
    await lab.world.settle(seconds=600)
    assert lab.guests() == ["10.0.0.10", "2001:db8::a"]
    assert len(lab.claims) == 2


async def test_the_address_is_given_back_when_the_vm_is_gone_and_not_before() -> None:
    lab = Lab()
    await lab.vm()
    lab.world.providers[0].down = True
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    assert lab.pool.given
    assert not any(it["metadata"].get("deletionTimestamp") for it in lab.claims)
    lab.world.providers[0].down = False
    lab.world.api.edit(THIS, Key(NAMESPACE, "db-1"), lambda obj: obj["metadata"].update(labels={}))
    await lab.world.settle(seconds=600)
    assert lab.world.vms() == []
    assert (lab.claims, lab.pool.given, lab.world.vm()) == ([], {}, None)


async def test_a_vm_left_on_its_backend_keeps_its_address() -> None:
    lab = Lab()
    await lab.vm(deletionPolicy="Orphan")
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    assert lab.world.vm() is None
    assert lab.world.machine() is None
    lab.world.api.collect_garbage()
    await lab.world.settle(seconds=600)
    [claim] = lab.claims
    assert claim["metadata"].get("ownerReferences", []) == []
    assert list(lab.pool.given.values()) == ["10.0.0.10"]


async def test_a_machine_object_made_anew_finds_the_address_again() -> None:
    lab = Lab()
    await lab.vm()
    await lab.vm("other")
    lab.world.api.drop(THIS, Key(NAMESPACE, "db-1"))
    await lab.world.settle(seconds=600)
    assert lab.address_of() == "10.0.0.10"
    assert lab.guests() == ["10.0.0.10", "10.0.0.11"]
    assert lab.pool.history == ["10.0.0.10", "10.0.0.11"]


async def test_a_vm_made_again_after_it_vanished_has_its_address_again() -> None:
    lab = Lab()
    await lab.vm(onMissing="Recreate")
    lab.world.providers[0].vms.clear()
    lab.world.api.edit(THIS, Key(NAMESPACE, "db-1"), lambda obj: obj["metadata"].update(labels={}))
    await lab.world.settle(seconds=7200)
    assert lab.guests() == ["10.0.0.10"]
    assert lab.pool.history == ["10.0.0.10"]


async def test_an_empty_pool_is_told_and_a_free_address_taken() -> None:
    lab = Lab(free=["10.0.0.10"])
    await lab.vm("first")
    await lab.vm()
    told = lab.world.condition("AddressesAvailable")
    assert (told["status"], told["reason"]) == ("False", "AddressPoolExhausted")
    assert "LabPool lab gives no IPv4 address" in told["message"]
    assert len(lab.world.vms()) == 1
    lab.world.delete_vm("first")
    await lab.world.settle(seconds=600)
    assert lab.guests() == ["10.0.0.10"]
    assert lab.world.condition("Ready")["status"] == "True"


async def test_a_claim_somebody_else_made_is_left_alone() -> None:
    lab = Lab()
    pool = PoolRef(api_group=GROUP, kind=KIND, name="lab")
    name = pools.claim_name("db-1", "eth0", IPFamily.IPV4, pool)
    theirs = {
        "metadata": {
            "namespace": NAMESPACE,
            "name": name,
            "ownerReferences": [
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Thing",
                    "name": "x",
                    "uid": "x",
                    "controller": True,
                }
            ],
        },
        "spec": {"poolRef": lab.pool.reference},
    }
    before = lab.world.api.put(IP_ADDRESS_CLAIMS, theirs)
    await lab.vm()
    found = lab.world.api.peek(IP_ADDRESS_CLAIMS, Key(NAMESPACE, name))
    assert found is not None
    assert found["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    assert lab.world.vms() == []
    assert EventReason.ADDRESS_NOT_ASSIGNED in lab.world.recorder.reasons()


async def test_a_deleted_claim_of_a_living_vm_changes_no_address_of_it() -> None:
    lab = Lab(free=["10.0.0.20", "10.0.0.21"])
    await lab.vm()
    [claim] = lab.claims
    lab.pool.free.insert(0, "10.0.0.10")  # what the next claim gets
    lab.world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim))
    await lab.world.settle(seconds=600)
    assert lab.address_of() == "10.0.0.20"
    messages = " ".join(it.message for it in lab.world.recorder.events)
    assert "was deleted while eth0 has 10.0.0.20" in messages
    assert "the VM keeps what it has" in messages


async def test_an_answer_to_a_claim_that_was_ended_since_is_not_taken() -> None:
    """The cache is behind: by now the pool may have given the address to somebody else."""
    lab = Lab()
    lab.put_cluster_machine()
    machine = Key(NAMESPACE, "cp-0")
    await lab.world.settle(seconds=600)
    [claim] = lab.claims

    def empty(obj: Obj) -> None:
        wish = obj["spec"]["networkInterfaces"][0]["ipam"][0]
        for name in ("address", "prefix", "gateway"):
            wish.pop(name)

    lab.world.others.clear()  # the pool answers nothing any more
    lab.world.api.edit(THIS, machine, empty)
    lab.world.api.cache.hold()
    lab.world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim), force=True)
    await lab.world.settle(seconds=60)
    assert lab.address_of("cp-0") is None


async def test_a_claim_restored_with_an_earlier_owner_is_taken_up_before_it_is_collected() -> None:
    lab = Lab()
    await lab.vm()
    [claim] = lab.claims

    def outdate(obj: Obj) -> None:
        for it in obj["metadata"]["ownerReferences"]:
            it["uid"] = "of-another-life"

    lab.world.api.edit(IP_ADDRESS_CLAIMS, Key.of(claim), outdate)
    await lab.world.settle(seconds=600)
    lab.world.api.collect_garbage()
    assert not any(it["metadata"].get("deletionTimestamp") for it in lab.claims)
    assert lab.pool.history == ["10.0.0.10"]


async def test_a_wrong_answer_of_a_pool_is_not_used() -> None:
    lab = Lab(free=["2001:db8::a"])
    await lab.vm()
    assert lab.address_of() is None
    assert lab.world.vms() == []
    assert any("is not usable" in it.message for it in lab.world.recorder.events)


async def test_an_interface_that_is_taken_off_gives_its_address_back() -> None:
    lab = Lab()
    second = {"name": "eth1", "networkClass": "prod", "ipam": POOLED[0]["ipam"]}
    lab.world.add_vm(networkInterfaces=[*POOLED, second])
    await lab.world.settle(seconds=600)
    assert lab.guests() == ["10.0.0.10", "10.0.0.11"]
    lab.world.edit_vm(networkInterfaces=POOLED)
    await lab.world.settle(seconds=600)
    assert lab.guests() == list(lab.pool.given.values())
    assert len(lab.claims) == 1


async def test_a_pool_that_is_declared_later_is_used() -> None:
    lab = Lab()
    lab.declare({"cidr": "10.0.0.0/24"})
    lab.put_cluster_machine()
    await lab.world.settle(seconds=600)
    assert lab.claims == []
    lab.declare(lab.pool.subnet())
    await lab.world.settle(seconds=600)
    assert lab.address_of("cp-0") == "10.0.0.10"


async def test_a_machine_of_cluster_api_owns_its_claims_itself() -> None:
    lab = Lab()
    key, stored = Key(NAMESPACE, "cp-0"), lab.put_cluster_machine()
    await lab.world.settle(seconds=600)
    [claim] = lab.claims
    assert claim["spec"]["clusterName"] == "prod"
    assert claim["metadata"]["labels"] == {names.CAPI_LABEL_CLUSTER_NAME: "prod"}
    [owner] = claim["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (stored["metadata"]["uid"], True)
    found = lab.world.api.peek(THIS, key)
    assert found is not None
    assert found["spec"]["networkInterfaces"][0]["ipam"][0]["address"] == "10.0.0.10"
    lab.world.api.drop(THIS, key)
    await lab.world.settle(seconds=600)
    assert (lab.claims, lab.world.api.peek(THIS, key)) == ([], None)


@pytest.mark.parametrize("annotation", [names.CAPI_ANNOTATION_PAUSED])
async def test_nothing_is_claimed_or_released_for_a_paused_machine(annotation: str) -> None:
    lab = Lab()
    await lab.vm()
    key = Key(NAMESPACE, "db-1")
    lab.world.api.edit(
        THIS, key, lambda obj: obj["metadata"].update(annotations={annotation: "false"})
    )
    before = lab.claims
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    assert lab.claims == before
    assert lab.world.machine() is not None


def _create(lab: Lab) -> None:
    lab.world.add_vm(networkInterfaces=POOLED)


def _delete(lab: Lab) -> None:
    lab.world.delete_vm()


@pytest.mark.parametrize("before_reply", [True, False])
@pytest.mark.parametrize("act", [_create, _delete])
async def test_a_crash_at_any_write_leaks_and_doubles_no_address(
    act: Callable[[Lab], None], *, before_reply: bool
) -> None:
    for write in itertools.count(1):
        lab = Lab()
        if act is _delete:
            await lab.vm()
        lab.world.crash_at(write, before_reply=before_reply)
        act(lab)
        await lab.world.settle(seconds=7200)
        if act is _create:
            assert lab.guests() == ["10.0.0.10"], write
            assert list(lab.pool.given.values()) == ["10.0.0.10"], write
        else:
            assert (lab.claims, lab.pool.given, lab.world.machines()) == ([], {}, []), write
            assert lab.world.vm() is None
        if not lab.world.crashed:
            break


async def test_a_move_within_one_pool_takes_the_address_along() -> None:
    lab = Lab()
    lab.add_provider("two", lab.pool)
    await lab.vm(providerRef={"name": "one", "namespace": SYSTEM})
    lab.world.edit_vm(providerRef={"name": "two", "namespace": SYSTEM})
    await lab.world.settle(seconds=3600)
    assert [vm.addresses for vm in lab.world.vms() if vm.live] == [{"eth0/IPv4": "10.0.0.10"}]
    assert lab.pool.history == ["10.0.0.10"]
    lab.world.annotate(release_previous="true")
    await lab.world.settle(seconds=3600)
    assert lab.guests() == ["10.0.0.10"]
    assert list(lab.pool.given.values()) == ["10.0.0.10"]


async def test_a_move_to_another_pool_gives_the_address_back_with_what_was_left_behind() -> None:
    lab = Lab()
    other = AddressPool(lab.world.api, "other", ["10.1.0.10"], gateway="10.1.0.1")
    lab.world.others.append(other.step)
    lab.add_provider("two", other)
    await lab.vm(providerRef={"name": "one", "namespace": SYSTEM})
    lab.world.edit_vm(providerRef={"name": "two", "namespace": SYSTEM})
    await lab.world.settle(seconds=3600)
    assert [vm.addresses for vm in lab.world.vms() if vm.live] == [{"eth0/IPv4": "10.1.0.10"}]
    assert list(lab.pool.given.values()) == ["10.0.0.10"]
    lab.world.annotate(release_previous="true")
    await lab.world.settle(seconds=3600)
    assert lab.guests() == ["10.1.0.10"]
    assert (lab.pool.given, list(other.given.values())) == ({}, ["10.1.0.10"])


async def test_a_claim_nobody_uses_does_not_outlast_its_virtual_machine() -> None:
    """A machine object that was torn out cannot settle its claims."""
    lab = Lab()
    await lab.vm()
    lab.world.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, "db-1"), force=True)
    lab.world.api.drop(THIS, Key(NAMESPACE, "db-1"), force=True)
    lab.world.api.collect_garbage()
    await lab.world.settle(seconds=600)
    assert lab.claims == []


async def test_nothing_is_claimed_for_a_vm_without_pools() -> None:
    lab = Lab()
    lab.world.add_vm()
    await lab.world.settle(seconds=600)
    machine = lab.world.machine()
    assert machine is not None
    assert lab.claims == []
    assert lab.world.api.peek_all(IP_ADDRESSES) == []
    assert names.FINALIZER_ADDRESSES not in machine["metadata"]["finalizers"]


def test_names_of_claims_stay_valid_whatever_they_are_made_of() -> None:
    pool = PoolRef(api_group=GROUP, kind=KIND, name="lab")
    name = pools.claim_name("a" * 253, "Eth_0.100", IPFamily.IPV6, pool)
    assert len(name) <= 253
    assert "-eth-0-100-ipv6-" in name
    other = pool.model_copy(update={"name": "other"})
    assert pools.claim_name("web", "eth0", IPFamily.IPV4, pool) != pools.claim_name(
        "web", "eth0", IPFamily.IPV4, other
    )
