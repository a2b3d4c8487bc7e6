"""Machines of Cluster API that are paused, moved to another cluster, restored, or deleted."""

from collections.abc import Callable

import pytest

from banlieue.api import names
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES, PROVIDERS, SECRETS
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_CLUSTERS, SIMULATED_MACHINES
from test.kit.capimover import move_away, move_back
from test.kit.capiworld import CLUSTER, CapiWorld
from test.kit.controllerworld import NAMESPACE, SYSTEM, restored

NODE = Key(NAMESPACE, "node-1")
FINALIZER = names.machine_finalizer(SIMULATED_MACHINES.kind)


async def made(*, domain: str = "") -> CapiWorld:
    """A world with one machine that is Ready."""
    world = CapiWorld.with_cluster()
    world.add_machine(domain=domain)
    await world.settle()
    assert world.told() == ("True", "Ready")
    return world


# Deletion.


async def test_a_deleted_machine_takes_its_vm_along() -> None:
    world = await made()
    await world.delete_machine()
    assert world.node() == {}
    assert world.owner() == {}
    assert world.every_vm() == []


async def test_10_deletion_needs_neither_secret_nor_cluster_nor_machine() -> None:
    world = await made()
    world.api.drop(SECRETS, Key(NAMESPACE, "boot"))
    world.api.drop(SIMULATED_CLUSTERS, Key(NAMESPACE, CLUSTER))
    world.api.drop(CAPI_CLUSTERS, Key(NAMESPACE, CLUSTER))
    world.edit_owner("node-1", lambda it: it["metadata"].update(finalizers=[]))
    world.api.drop(CAPI_MACHINES, NODE)
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.node() == {}
    assert world.every_vm() == []


async def test_a_machine_without_an_intent_is_held_until_its_machine_goes() -> None:
    world = await made()
    world.edit("node-1", lambda it: it["spec"].pop("teardown"))
    world.pause()
    world.api.drop(SIMULATED_MACHINES, NODE)  # before the controller could renew it
    world.pause(paused=False)
    await world.settle()
    assert world.told() == ("False", "TeardownUndecided")
    before = world.every_vm()
    assert len(before) == 1
    world.api.drop(CAPI_MACHINES, NODE)
    await world.settle()
    assert world.node() == {}
    assert world.every_vm() == []


async def test_a_held_machine_is_not_let_go_for_a_machine_that_refers_elsewhere() -> None:
    world = await made()
    world.edit_owner("node-1", lambda it: it["spec"]["infrastructureRef"].update(name="another"))
    world.edit("node-1", lambda it: it["spec"].pop("teardown"))
    world.api.drop(SIMULATED_MACHINES, NODE)
    world.api.drop(CAPI_MACHINES, NODE)
    await world.settle()
    assert world.told() == ("False", "TeardownUndecided")
    assert len(world.every_vm()) == 1


async def test_the_end_is_decided_when_the_reference_to_the_owner_was_lost() -> None:
    world = await made()
    world.stop_serving()

    def strip(obj: Obj) -> None:
        del obj["metadata"]["ownerReferences"]
        del obj["spec"]["teardown"]

    world.edit("node-1", strip)
    world.api.drop(SIMULATED_MACHINES, NODE)
    world.api.drop(CAPI_MACHINES, NODE)
    await world.settle()
    assert world.node()["spec"]["teardown"]["mode"] == "Destroy"


async def test_a_released_machine_of_a_provider_that_is_gone_is_let_go() -> None:
    world = await made()
    (uuid,) = world.every_vm()
    uid = world.node()["metadata"]["uid"]
    name = world.place()[0]
    world.stop_serving()
    lose_provider(world, name)
    world.edit("node-1", lambda it: it["spec"].update(teardown={"mode": "Release", "uid": uid}))
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.node() == {}
    assert world.every_vm() == [uuid]


async def test_a_machine_of_a_provider_that_is_gone_is_kept_without_that_word() -> None:
    world = await made()
    world.stop_serving()
    lose_provider(world, world.place()[0])
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.node()["metadata"]["finalizers"] == [FINALIZER]


def lose_provider(world: CapiWorld, name: str) -> None:
    """Its object is gone, by force."""
    world.edit_provider(name, lambda it: it["metadata"].update(finalizers=[]))
    world.api.drop(PROVIDERS, Key(SYSTEM, name))
    assert world.api.peek(PROVIDERS, Key(SYSTEM, name)) is None


# Pause.


def by_annotation(world: CapiWorld) -> None:
    """`false` pauses too: presence counts."""
    note = {names.CAPI_ANNOTATION_PAUSED: "false"}
    world.edit("node-1", lambda it: it["metadata"].update(annotations=note))


def by_field(world: CapiWorld) -> None:
    world.edit("node-1", lambda it: it["spec"].update(paused=True))


def by_cluster(world: CapiWorld) -> None:
    world.pause()


def by_lost_label(world: CapiWorld) -> None:
    world.edit("node-1", lambda it: it["metadata"].update(labels={}))


def resume(world: CapiWorld) -> None:
    world.pause(paused=False)

    def change(obj: Obj) -> None:
        obj["metadata"].pop("annotations", None)
        obj["metadata"]["labels"] = {names.CAPI_LABEL_CLUSTER_NAME: CLUSTER}
        obj["spec"].pop("paused", None)

    world.edit("node-1", change)


PAUSES = [by_annotation, by_field, by_cluster, by_lost_label]


@pytest.mark.parametrize("pause", PAUSES)
async def test_6_a_paused_machine_is_not_stamped_and_says_so(
    pause: Callable[[CapiWorld], None],
) -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    pause(world)
    await world.settle()
    assert world.told(kind="Paused") == ("True", "Paused")
    assert world.says(kind="Paused")["observedGeneration"] == world.node()["metadata"]["generation"]
    assert world.told() == ("", "")
    assert "providerRef" not in world.node()["spec"]
    assert "finalizers" not in world.node()["metadata"]
    resume(world)
    await world.settle()
    assert world.told() == ("True", "Ready")
    assert world.told(kind="Paused") == ("False", "NotPaused")


@pytest.mark.parametrize("pause", PAUSES)
async def test_1_a_paused_machine_that_is_deleted_keeps_its_vm_until_it_is_resumed(
    pause: Callable[[CapiWorld], None],
) -> None:
    world = await made()
    pause(world)
    world.api.drop(CAPI_MACHINES, NODE)
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.told(kind="Paused") == ("True", "Paused")
    assert world.node()["metadata"]["finalizers"] == [FINALIZER]
    assert len(world.every_vm()) == 1
    resume(world)
    await world.settle()
    assert world.node() == {}
    assert world.every_vm() == []


async def test_the_annotation_on_the_machine_pauses_nothing() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    note = {names.CAPI_ANNOTATION_PAUSED: ""}
    world.edit_owner("node-1", lambda it: it["metadata"].update(annotations=note))
    await world.settle()
    assert world.told() == ("True", "Ready")


async def test_a_pause_that_the_cache_does_not_know_yet_holds_the_stamp() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.api.cache.hold()
    world.pause()
    await world.settle()
    assert "providerRef" not in world.node()["spec"]
    assert world.told(kind="Paused") == ("True", "Paused")


async def test_machines_of_an_externally_managed_cluster_are_made() -> None:
    world = CapiWorld.with_cluster()
    note = {names.CAPI_ANNOTATION_MANAGED_BY: "somebody"}
    world.api.edit(
        SIMULATED_CLUSTERS,
        Key(NAMESPACE, CLUSTER),
        lambda it: it["metadata"].update(annotations=note),
    )
    world.add_machine(domain="one-a")
    await world.settle()
    assert world.told() == ("True", "Ready")


# clusterctl move, as its mover does it.


@pytest.mark.identity("6.4")
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarts"])
@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
async def test_1_9_a_move_ends_in_the_same_vm_without_a_call_that_changes_anything(
    *, watched: bool, restarts: bool
) -> None:
    world = await made(domain="two-a")
    before, calls = world.every_vm(), world.backend_changes()
    identity = world.node()["spec"]["providerID"]
    copied = await move_away(world, watched=watched, restarts=restarts)
    assert world.node() == {}
    assert world.every_vm() == before
    await move_back(world, copied)
    after = world.node()
    assert world.every_vm() == before
    assert world.backend_changes() == calls
    assert after["spec"]["providerID"] == identity
    assert after["spec"]["teardown"] == {"mode": "Destroy", "uid": "new-node"}
    assert after["status"]["initialization"] == {"provisioned": True}
    assert world.told() == ("True", "Ready")
    await world.delete_machine()
    assert world.every_vm() == []


async def test_a_machine_that_moved_before_it_had_its_provider_is_made_once() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(data="")
    await world.settle()
    copied = await move_away(world, watched=True, restarts=False)
    copied.owner["spec"]["bootstrap"] = {"dataSecretName": "boot"}
    world.add_data()
    await move_back(world, copied)
    assert world.told() == ("True", "Ready")
    assert len(world.every_vm()) == 1


@pytest.mark.identity("6.4")
async def test_a_copy_that_is_deleted_before_it_was_renewed_keeps_its_vm() -> None:
    world = await made()
    before = world.every_vm()
    copied = await move_away(world, watched=True, restarts=False)
    fresh = world.api.put(CAPI_MACHINES, restored(copied.owner, uid="new-owner", status=False))
    obj = restored(copied.node, uid="new-node", status=False)
    obj["metadata"]["ownerReferences"][0]["uid"] = fresh["metadata"]["uid"]
    world.api.put(SIMULATED_MACHINES, obj)
    world.api.drop(SIMULATED_MACHINES, NODE)
    world.pause(paused=False)
    await world.settle()
    assert world.told() == ("False", "TeardownUndecided")
    assert world.every_vm() == before


async def test_a_copy_whose_machine_did_not_come_along_is_not_renewed() -> None:
    world = await made()
    before = world.every_vm()
    copied = await move_away(world, watched=True, restarts=False)
    world.api.put(SIMULATED_MACHINES, restored(copied.node, uid="new-node", status=False))
    world.pause(paused=False)
    await world.settle()
    assert world.node()["spec"]["teardown"]["uid"] != "new-node"
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.told() == ("False", "TeardownUndecided")
    assert world.every_vm() == before


async def test_a_word_to_release_stays_one_after_a_move() -> None:
    world = await made()
    uid = world.node()["metadata"]["uid"]
    world.edit("node-1", lambda it: it["spec"].update(teardown={"mode": "Release", "uid": uid}))
    copied = await move_away(world, watched=True, restarts=False)
    await move_back(world, copied)
    assert world.node()["spec"]["teardown"] == {"mode": "Release", "uid": "new-node"}


async def test_5_9_a_vm_that_vanished_is_not_made_again_and_nothing_is_taken_back() -> None:
    world = await made()
    for process in world.serving.values():
        process.backend.state.vms.clear()
    world.restart()
    await world.settle(seconds=600)
    node = world.node()
    assert world.told() == ("False", "VMMissing")
    assert node["status"]["initialization"] == {"provisioned": True}
    assert node["spec"]["providerID"]
    assert world.every_vm() == []
    await world.delete_machine()
    assert world.node() == {}


# Bootstrap data.


async def test_a_secret_that_is_not_the_machines_own_is_not_read() -> None:
    world = CapiWorld.with_cluster()
    world.pause()
    world.add_machine(
        providerRef={"name": "one", "namespace": SYSTEM},
        placement={"failureDomain": "one-a"},
        userData={"secretRef": {"name": "somebody-elses"}},
    )
    world.add_data("somebody-elses")
    world.pause(paused=False)
    await world.settle()
    assert world.told() == ("False", "UserDataNotGranted")
    assert "somebody-elses" in world.says()["message"]
    assert world.every_vm() == []


@pytest.mark.parametrize("form", ["", "cloud-config"])
async def test_data_of_a_format_the_image_reads_boots(form: str) -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.add_data("boot", **({"format": form} if form else {}))
    await world.settle()
    assert world.told() == ("True", "Ready")


@pytest.mark.parametrize("form", ["ignition", "talos"])
async def test_data_of_another_format_is_told_and_nothing_boots(form: str) -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.add_data("boot", format=form)
    await world.settle()
    assert world.told() == ("False", "UserDataInvalid")
    assert world.every_vm() == []


async def test_a_secret_that_comes_late_is_waited_for() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.api.drop(SECRETS, Key(NAMESPACE, "boot"))
    await world.settle()
    assert world.told() == ("False", "UserDataNotFound")
    world.add_data()
    await world.settle(seconds=600)
    assert world.told() == ("True", "Ready")


# Others beside it.


async def test_a_virtual_machine_of_the_same_name_is_another_machine() -> None:
    world = CapiWorld.with_cluster()
    world.add_class(network={"interfaces": [{"name": "eth0", "networkClass": "prod"}]})
    world.add_vm("twin")
    await world.settle()
    world.add_machine("node-1")
    await world.settle()
    assert world.condition("Ready", "twin")["status"] == "True"
    assert world.told() == ("True", "Ready")
    assert len(world.every_vm()) == 2
    await world.delete_machine()
    assert world.condition("Ready", "twin")["status"] == "True"
    assert len(world.every_vm()) == 1
    world.delete_vm("twin")
    await world.settle()
    assert world.every_vm() == []


async def test_a_users_own_object_is_left_alone_even_when_it_goes() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine(owned=False)
    world.edit("node-1", lambda it: it["metadata"].update(labels={}))
    before = world.node()
    await world.settle()
    assert world.node() == before
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.node() == {}


# Processes that die.


@pytest.mark.parametrize("lost", [False, True], ids=["before", "reply"])
async def test_everybody_killed_at_every_write_makes_one_vm_and_ends_it(*, lost: bool) -> None:
    world = CapiWorld.with_cluster()
    world.kill_at_each(before_reply=lost)
    world.add_machine(domain="one-a")
    await world.settle(seconds=300)
    assert world.told() == ("True", "Ready")
    assert len(world.every_vm()) == 1
    assert world.deaths > 3
    await world.delete_machine()
    await world.settle(seconds=300)
    assert world.node() == {}
    assert world.every_vm() == []


async def test_two_leaders_place_a_machine_once() -> None:
    world = CapiWorld.with_cluster()
    world.add_machine()
    world.api.cache.hold()
    await world.settle()
    first = world.place()
    world.restart()  # knows only what the cache held
    await world.settle()
    world.api.cache.follow()
    await world.settle()
    assert world.place() == first
    assert len(world.every_vm()) == 1
