"""Controller and provider of different versions: nothing is read past, lost or destroyed."""

from typing import Any

import pytest

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.controller.infra import skew
from banlieue.controller.infra.blueprint import FIRST_BOOT, LIVING
from banlieue.sdk.features import HONOURED
from banlieue.sdk.kube import Key
from test.kit.controllerworld import ControllerWorld
from test.kit.fakeprovider import SYSTEM, THIS

ONE = Key(SYSTEM, "one")
RESTART = "2026-10-01T08:00:00Z"
SSH = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJvb2s= somebody"]


def serve(world: ControllerWorld, *lacking: str, provider: Key = ONE) -> None:
    """The Provider's process is of a version that does not know these fields."""
    known = [it for it in HONOURED if it not in lacking]
    world.api.edit(PROVIDERS, provider, lambda it: it["status"].update(specFeatures=known))


def machine_of(world: ControllerWorld) -> dict[str, Any]:
    found = world.machine("db")
    assert found is not None
    return found


async def test_a_field_the_provider_does_not_know_is_withheld_until_it_is_upgraded() -> None:
    world = ControllerWorld.ready()
    serve(world, "restartAt")
    world.add_vm("db", restartAt=RESTART)
    await world.settle()
    assert "restartAt" not in machine_of(world)["spec"]
    told = world.condition("UpToDate", "db")
    assert (told["status"], told["reason"]) == ("False", "UnsupportedByProvider")
    assert "restartAt" in told["message"]
    assert f"Provider {ONE}" in told["message"]
    assert world.condition("Ready", "db")["status"] == "True", "there is a VM, and it runs"
    serve(world)
    await world.settle()
    assert machine_of(world)["spec"]["restartAt"] == RESTART
    assert world.condition("UpToDate", "db")["reason"] != "UnsupportedByProvider"


async def test_an_edit_of_such_a_field_is_withheld_and_what_is_there_stays() -> None:
    """The provider was taken back to an older version; the machine has the field already."""
    world = ControllerWorld.ready()
    key = world.add_vm("db", restartAt=RESTART)
    await world.settle()
    before = machine_of(world)
    serve(world, "restartAt")
    await world.settle()
    assert world.condition("UpToDate", "db")["reason"] != "UnsupportedByProvider"
    world.edit_vm("db", restartAt="2026-11-01T08:00:00Z", powerOffMode="Hard")
    await world.settle()
    after = machine_of(world)
    assert after["spec"]["restartAt"] == RESTART
    assert after["spec"]["powerOffMode"] == "Hard", "what it knows goes on following"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert world.condition("UpToDate", "db")["reason"] == "UnsupportedByProvider"
    world.api.edit(VIRTUAL_MACHINES, key, lambda it: it["spec"].pop("restartAt"))
    await world.settle()
    assert machine_of(world)["spec"]["restartAt"] == RESTART, "neither is it taken away"


async def test_no_vm_is_made_without_first_boot_data_its_user_asked_for() -> None:
    world = ControllerWorld.ready()
    serve(world, "sshAuthorizedKeys")
    world.add_vm("db", sshAuthorizedKeys=SSH)
    await world.settle()
    assert world.machines() == []
    told = world.condition("Scheduled", "db")
    assert (told["status"], told["reason"]) == ("False", "UnsupportedByProvider")
    assert "sshAuthorizedKeys" in told["message"]
    world.add_vm("web")
    await world.settle()
    assert world.condition("Ready", "web")["status"] == "True", "it asks for none"
    serve(world)
    await world.settle()
    assert world.condition("Ready", "db")["status"] == "True"


async def test_a_vm_that_is_there_is_deleted_by_whichever_version_serves() -> None:
    world = ControllerWorld.ready()
    world.add_vm("db", sshAuthorizedKeys=SSH, restartAt=RESTART)
    await world.settle()
    serve(world, "restartAt", "sshAuthorizedKeys", "powerOffMode")
    world.delete_vm("db")
    await world.settle()
    assert world.machines() == []
    assert world.vm("db") is None
    assert world.vms() == []


async def test_a_move_to_where_first_boot_data_is_not_known_is_held() -> None:
    world = ControllerWorld.ready(one={}, two={})
    two = Key(SYSTEM, "two")
    world.add_vm("db", sshAuthorizedKeys=SSH, providerRef={"name": "one", "namespace": SYSTEM})
    await world.settle()
    before = machine_of(world)
    serve(world, "sshAuthorizedKeys", provider=two)
    world.edit_vm("db", providerRef={"name": "two", "namespace": SYSTEM})
    await world.settle()
    assert [it["metadata"]["uid"] for it in world.machines()] == [before["metadata"]["uid"]]
    assert world.condition("PlacementValid", "db")["reason"] == "UnsupportedByProvider"


async def test_a_machine_object_of_a_newer_controller_loses_nothing_to_an_older_one() -> None:
    """The other way round: what stands in the spec and is not known here is left alone."""
    world = ControllerWorld.ready()
    world.add_vm("db")
    await world.settle()
    machine = machine_of(world)
    world.api.edit(THIS, Key.of(machine), lambda it: it["spec"].update(future={"a": 1}))
    world.edit_vm("db", desiredPowerState="PoweredOff")
    await world.settle()
    spec = machine_of(world)["spec"]
    assert (spec["future"], spec["powerState"]) == ({"a": 1}, "PoweredOff")


@pytest.mark.parametrize("features", [[], None])
async def test_one_that_has_not_told_what_it_knows_is_asked_as_ever(features: object) -> None:
    world = ControllerWorld.ready()
    world.api.edit(PROVIDERS, ONE, lambda it: it["status"].update(specFeatures=features or []))
    world.add_vm("db", restartAt=RESTART)
    await world.settle()
    assert machine_of(world)["spec"]["restartAt"] == RESTART
    assert world.condition("Ready", "db")["status"] == "True"


def test_every_field_that_follows_can_be_lacked_or_is_known_to_every_version() -> None:
    assert {*LIVING, *FIRST_BOOT} <= skew._CAN_LACK | skew._EVERY_VERSION | skew._TOLD_OTHERWISE
    assert set(HONOURED) >= {*LIVING, *FIRST_BOOT}
    assert skew._CAN_LACK.isdisjoint({"providerRef", "teardown", "instance", "virtualMachineRef"})
