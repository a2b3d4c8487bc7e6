"""A VMImage stays while anything is made from it, says by whom, and goes after its copies."""

from typing import Any

import pytest

from banlieue.api.names import FINALIZER_IMAGE_COPIES, FINALIZER_IMAGE_IN_USE
from banlieue.api.resources import PROVIDERS, VM_IMAGES
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import NAMESPACE, SYSTEM, THIS, ControllerWorld

IMAGE = Key("", "ubuntu")
DIGEST = f"sha256:{'0' * 64}"


def _image(world: ControllerWorld) -> Obj | None:
    return world.api.peek(VM_IMAGES, IMAGE)


def _said(world: ControllerWorld, kind: str) -> tuple[str, str, str]:
    conditions = (_image(world) or {})["status"]["conditions"]
    (found,) = [it for it in conditions if it["type"] == kind]
    return found["status"], found["reason"], found["message"]


def _rows(world: ControllerWorld, *rows: dict[str, Any]) -> None:
    full = [{"providerNamespace": SYSTEM, "ready": True, **row} for row in rows]
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["status"].update(perProvider=full))


def _importable() -> ControllerWorld:
    world = ControllerWorld.ready(one={}, two={})
    source = {"providerClass": "this", "kind": "Url", "ref": "https://x/y", "checksum": DIGEST}
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["spec"].update(sources=[source]))
    return world


async def test_an_image_is_held_and_one_that_is_imported_twice() -> None:
    world = ControllerWorld.ready()
    await world.settle()
    assert (_image(world) or {})["metadata"]["finalizers"] == [FINALIZER_IMAGE_IN_USE]
    world = _importable()
    await world.settle()
    held = (_image(world) or {})["metadata"]["finalizers"]
    assert held == [FINALIZER_IMAGE_IN_USE, FINALIZER_IMAGE_COPIES]


async def test_an_unused_image_goes_at_once() -> None:
    world = ControllerWorld.ready()
    await world.settle()
    world.api.drop(VM_IMAGES, IMAGE)
    await world.settle(seconds=1)
    assert _image(world) is None


async def test_a_used_image_stays_and_says_by_whom() -> None:
    world = ControllerWorld.ready()
    world.add_vm("db-1")
    world.add_vm("db-2")
    await world.settle()
    world.api.drop(VM_IMAGES, IMAGE)
    await world.settle(seconds=60)
    for kind, status in (("Deleting", "True"), ("Ready", "False")):
        told = _said(world, kind)
        assert told[:2] == (status, "ImageInUse")
        assert f"VirtualMachine {NAMESPACE}/db-1, VirtualMachine {NAMESPACE}/db-2" in told[2]
    writes = len(world.api.writes())
    await world.settle(seconds=600)
    assert len(world.api.writes()) == writes

    world.delete_vm("db-1")
    await world.settle(seconds=10)
    assert "db-1" not in _said(world, "Deleting")[2]
    world.delete_vm("db-2")
    await world.settle(seconds=10)
    assert _image(world) is None


async def test_machines_of_a_cluster_count_as_users() -> None:
    world = ControllerWorld.ready()
    world.api.put(
        THIS,
        {
            "metadata": {"namespace": NAMESPACE, "name": "node-1"},
            "spec": {"imageRef": {"name": "ubuntu"}},
        },
    )
    await world.settle(seconds=60)
    world.api.drop(VM_IMAGES, IMAGE)
    await world.settle(seconds=60)
    assert f"ThisMachine {NAMESPACE}/node-1" in _said(world, "Deleting")[2]


async def test_the_list_of_users_is_bounded() -> None:
    world = ControllerWorld.ready()
    for number in range(9):
        world.add_vm(f"db-{number}")
    await world.settle()
    world.api.drop(VM_IMAGES, IMAGE)
    await world.settle(seconds=60)
    assert "and 4 more" in _said(world, "Deleting")[2]


async def test_the_image_waits_for_the_copies_of_living_providers() -> None:
    world = _importable()
    await world.settle()
    _rows(world, {"providerName": "one", "copies": ["c"]}, {"providerName": "two", "copies": ["c"]})
    world.api.drop(VM_IMAGES, IMAGE)
    await world.settle(seconds=60)
    assert (_image(world) or {})["metadata"]["finalizers"] == [FINALIZER_IMAGE_COPIES]
    assert _said(world, "Deleting")[1] == "Deleting"
    assert f"Provider {SYSTEM}/one, Provider {SYSTEM}/two" in _said(world, "Deleting")[2]

    _rows(world, {"providerName": "one"}, {"providerName": "two", "copies": ["c"]})
    world.api.drop(PROVIDERS, Key(SYSTEM, "two"))
    await world.settle(seconds=60)
    assert _image(world) is None


async def test_an_image_that_is_being_deleted_is_offered_to_nobody() -> None:
    world = ControllerWorld.ready()
    world.add_vm("keeps-it")
    await world.settle()
    world.api.drop(VM_IMAGES, IMAGE)
    await world.settle(seconds=60)
    world.add_vm("late")
    await world.settle(seconds=60)
    scheduled = world.condition("Scheduled", "late")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "ImageNotReady")
    assert "being deleted" in scheduled["message"]
    assert world.condition("Ready", "keeps-it")["status"] == "True"


async def test_a_machine_goes_only_where_its_image_is() -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b")})
    _rows_ready = {"providerName": "one", "readyFailureDomains": ["one-b"]}
    _rows(world, _rows_ready)
    world.add_vm()
    await world.settle()
    assert world.status()["scheduled"]["failureDomain"] == "one-b"

    _rows(world, {"providerName": "one", "readyFailureDomains": ["one-c"], "reason": "Importing"})
    world.add_vm("waits")
    await world.settle(seconds=60)
    scheduled = world.condition("Scheduled", "waits")
    assert scheduled["reason"] == "ImageNotReady"
    assert "being imported" in scheduled["message"]
    image = world.condition("ImageReady", "waits")
    assert (image["status"], image["reason"]) == ("False", "ImageNotReady")

    _rows(world, _rows_ready)
    await world.settle(seconds=60)
    assert world.status("waits")["scheduled"]["failureDomain"] == "one-b"
    assert world.condition("ImageReady", "waits")["status"] == "True"


@pytest.mark.parametrize(
    ("bootstrap", "given", "unread"),
    [
        ("none", {"userData": {"secretRef": {"name": "s"}}}, "userData"),
        ("none", {"sshAuthorizedKeys": [f"ssh-ed25519 {'A' * 64}"]}, "sshAuthorizedKeys"),
        ("ignition", {"networkData": {"secretRef": {"name": "s"}}}, "networkData"),
        ("ignition", {"userData": {"secretRef": {"name": "s"}}}, ""),
        ("ignition", {"sshAuthorizedKeys": ["ssh-ed25519 AAAA"]}, ""),
        ("cloud-init", {"networkData": {"secretRef": {"name": "s"}}}, ""),
        ("none", {}, ""),
    ],
)
async def test_a_guest_that_does_not_read_what_is_given_is_refused(
    bootstrap: str, given: dict[str, Any], unread: str
) -> None:
    world = ControllerWorld.ready()
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["spec"].update(bootstrap=bootstrap))
    world.add_vm(**given)
    await world.settle(seconds=60)
    scheduled = world.condition("Scheduled")
    assert (scheduled["reason"] == "UserDataInvalid") == bool(unread)
    assert unread in scheduled["message"]
    assert bool(world.condition("Stalled")) == bool(unread)


async def test_a_gate_that_nobody_in_the_guest_can_open_is_refused() -> None:
    world = ControllerWorld.ready()
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["spec"].update(agent="absent"))
    world.add_vm(readinessGates=["GuestBootstrapped"])
    world.add_vm("other", readinessGates=["AddressesAvailable"])
    await world.settle(seconds=60)
    assert world.condition("Scheduled")["reason"] == "ImageAgentMissing"
    assert world.condition("Scheduled", "other")["status"] == "True"
