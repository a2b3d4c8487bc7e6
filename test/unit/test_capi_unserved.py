"""Machines of Cluster API whose Provider is gone: nobody but the controller is left to tell."""

from typing import Any

from banlieue.api import names
from banlieue.api.resources import CAPI_MACHINES, PROVIDERS
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from test.kit.capimover import Copied, move_away, put_back
from test.kit.capiworld import CapiWorld
from test.kit.controllerworld import NAMESPACE, SYSTEM

NODE = Key(NAMESPACE, "node-1")


async def lost() -> tuple[CapiWorld, Obj]:
    """A world in which the Provider of a machine that is Ready was torn out."""
    world = CapiWorld.with_cluster()
    world.add_machine()
    await world.settle()
    world.stop_serving()
    key = Key(SYSTEM, world.place()[0])
    provider: dict[str, Any] = world.api.peek(PROVIDERS, key) or {}
    world.edit_provider(key.name, lambda it: it["metadata"].update(finalizers=[]))
    world.api.drop(PROVIDERS, key)
    await world.settle()
    return world, provider


async def test_a_machine_whose_provider_is_gone_says_so_and_what_to_do() -> None:
    world, _ = await lost()
    assert world.told() == ("False", "ProviderNotFound")
    said = world.says()["message"]
    assert "make it with its Secret of the same name" in said
    assert "clusterctl move takes neither along" in said
    assert world.node()["status"]["initialization"] == {"provisioned": True}
    before = world.node()
    world.restart()
    await world.settle(seconds=600)
    assert world.node() == before
    assert world.faults == []


async def test_one_that_is_deleted_names_the_way_out_which_is_one() -> None:
    world, _ = await lost()
    vms, uid = world.every_vm(), world.node()["metadata"]["uid"]
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert f"spec.teardown {{mode: Release, uid: {uid}}}" in world.says()["message"]
    world.edit("node-1", lambda it: it["spec"].update(teardown={"mode": "Release", "uid": uid}))
    await world.settle()
    assert world.node() == {}
    assert world.every_vm() == vms


async def moved() -> tuple[CapiWorld, Copied]:
    """A world to which a machine that is Ready is moved, without its Provider; still paused."""
    world = CapiWorld.with_cluster()
    world.add_machine()
    await world.settle()
    copied = await move_away(world, watched=True, restarts=False)
    world.stop_serving()
    key = Key(SYSTEM, copied.node["spec"]["providerRef"]["name"])
    world.edit_provider(key.name, lambda it: it["metadata"].update(finalizers=[]))
    world.api.drop(PROVIDERS, key)
    return world, copied


async def test_one_that_was_moved_to_where_its_provider_is_not_says_so() -> None:
    """Its intent is renewed first, and of its own write the controller hears nothing."""
    world, copied = await moved()
    put_back(world, copied)
    world.pause(paused=False)
    await world.settle()
    assert world.node()["spec"]["teardown"]["uid"] == "new-node"
    assert world.told() == ("False", "ProviderNotFound")
    assert "make it with its Secret of the same name" in world.says()["message"]


async def test_one_whose_machine_ends_after_such_a_move_names_the_way_out() -> None:
    world, copied = await moved()
    put_back(world, copied)
    world.api.drop(CAPI_MACHINES, NODE)
    world.api.drop(SIMULATED_MACHINES, NODE)
    world.pause(paused=False)
    await world.settle()
    assert world.node()["spec"]["teardown"] == {"mode": "Destroy", "uid": "new-node"}
    assert "spec.teardown {mode: Release, uid: new-node}" in world.says()["message"]


async def test_nothing_is_said_of_a_paused_one() -> None:
    world, _ = await lost()
    note = {names.CAPI_ANNOTATION_PAUSED: ""}
    world.edit("node-1", lambda it: it["metadata"].update(annotations=note))
    before = world.node()
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.node()["status"] == before["status"]
