"""Addresses from pools with the real controller and real providers, killed at every write."""

import copy
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.resources import IP_ADDRESS_CLAIMS, PROVIDERS
from banlieue.sdk.kube import Key, Obj
from test.kit.addresspool import AddressPool
from test.kit.capimover import move_away, move_back
from test.kit.capiworld import CapiWorld
from test.kit.controllerworld import SYSTEM, restored
from test.kit.movingworld import MovingWorld

POOLED = [{"name": "eth0", "networkClass": "prod", "ipam": [{"family": "IPv4", "source": "pool"}]}]


def pooled(world: MovingWorld, *providers: str) -> AddressPool:
    """A pool that the networks of these Providers have."""
    pool = AddressPool(world.api)
    world.others.append(pool.step)
    for name in providers:

        def change(obj: Obj) -> None:
            obj["spec"]["capabilities"]["networkClasses"][0]["subnets"] = [pool.subnet()]

        world.api.edit(PROVIDERS, Key(SYSTEM, name), change)
        world.serving[name].restart()
    return pool


async def with_pool() -> tuple[MovingWorld, AddressPool]:
    world = await MovingWorld.with_vm([{"name": "eth0"}])
    world.was_ready = False
    pool = pooled(world, "one", "two")
    world.delete_vm()
    await world.play(until=lambda: world.vm() is None)
    world.add_vm(
        providerRef={"name": "one", "namespace": SYSTEM},
        disks=[{"name": "data", "sizeGiB": 1, "storageClass": "gold"}],
        networkInterfaces=POOLED,
    )
    world.annotate(accept_data_disk_loss="true")
    await world.play(until=lambda: world.is_at("one"))
    (old,) = world.vms_at("one")
    next(disk for disk in old.disks if disk.name == "data").content = "written by the guest"
    world.was_ready = world.fixed = True
    return world, pool


@pytest.mark.parametrize("lost", [False, True], ids=["before", "reply"])
async def test_a_move_within_one_pool_killed_at_every_write_has_one_address(*, lost: bool) -> None:
    world, pool = await with_pool()
    world.kill_at_each(before_reply=lost)
    world.move_to("two")
    await world.play(until=lambda: world.is_at("two"))
    assert world.deaths > 3
    assert (pool.history, list(pool.given.values())) == (["10.0.0.10"], ["10.0.0.10"])
    world.was_ready = False
    world.annotate(release_previous="true")
    await world.play(until=lambda: not world.vms_at("one"))
    await world.settle(seconds=120)
    assert (pool.history, list(pool.given.values())) == (["10.0.0.10"], ["10.0.0.10"])
    world.delete_vm()
    await world.play(until=lambda: world.vm() is None)
    assert (pool.given, world.api.peek_all(IP_ADDRESS_CLAIMS)) == ({}, [])


@pytest.mark.parametrize("lost", [False, True], ids=["before", "reply"])
async def test_a_machine_of_cluster_api_killed_at_every_write_has_one_address(
    *, lost: bool
) -> None:
    world = CapiWorld.with_cluster()
    pool = pooled(world, "one", "two")
    world.kill_at_each(before_reply=lost)
    world.add_machine(networkInterfaces=copy.deepcopy(POOLED))
    await world.settle(seconds=300)
    assert world.told() == ("True", "Ready")
    assert pool.history == ["10.0.0.10"]
    await world.delete_machine()
    await world.settle(seconds=300)
    assert (world.node(), world.every_vm()) == ({}, [])
    assert (pool.given, world.api.peek_all(IP_ADDRESS_CLAIMS)) == ({}, [])


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
async def test_an_address_goes_along_with_clusterctl_move(*, watched: bool) -> None:
    world = CapiWorld.with_cluster()
    pool = pooled(world, "one", "two")
    world.add_machine(networkInterfaces=copy.deepcopy(POOLED))
    await world.settle()
    assert world.told() == ("True", "Ready")
    [claim] = world.api.peek_all(IP_ADDRESS_CLAIMS)
    before = world.every_vm()
    address = world.node()["spec"]["networkInterfaces"][0]["ipam"][0]["address"]
    given, uids = dict(pool.given), dict(pool.uids)
    step = world.others.pop()  # another IPAM provider serves the target
    world.pause()
    # Claims go before the machines they belong to.
    take_away(world, claim)
    if watched:
        await world.settle()
    copied = await move_away(world, watched=watched, restarts=False)
    fresh: dict[str, Any] = restored(claim, uid="new-claim", status=True)
    fresh["metadata"]["ownerReferences"][0]["uid"] = "new-node"
    world.api.put(IP_ADDRESS_CLAIMS, fresh)
    pool.given, pool.uids = given, dict.fromkeys(uids, "new-claim")
    world.others.append(step)
    await move_back(world, copied)
    await world.settle(seconds=120)
    assert world.told() == ("True", "Ready")
    assert world.every_vm() == before
    node = world.node()
    assert node["spec"]["networkInterfaces"][0]["ipam"][0]["address"] == address
    assert pool.history == [address]
    [after] = world.api.peek_all(IP_ADDRESS_CLAIMS)
    assert [it["uid"] for it in after["metadata"]["ownerReferences"]] == [node["metadata"]["uid"]]
    await world.delete_machine()
    await world.settle(seconds=120)
    assert (world.node(), pool.given, world.api.peek_all(IP_ADDRESS_CLAIMS)) == ({}, {}, [])


def take_away(world: CapiWorld, claim: Obj) -> None:
    """As the mover takes an object away at its source."""
    key, note = Key.of(claim), {names.CAPI_ANNOTATION_DELETE_FOR_MOVE: ""}
    world.api.edit(IP_ADDRESS_CLAIMS, key, lambda it: it["metadata"].update(annotations=note))
    world.api.drop(IP_ADDRESS_CLAIMS, key)
    if world.api.peek(IP_ADDRESS_CLAIMS, key):
        world.api.edit(IP_ADDRESS_CLAIMS, key, lambda it: it["metadata"].update(finalizers=[]))
