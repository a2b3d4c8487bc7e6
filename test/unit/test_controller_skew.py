"""Controller and provider of different versions: nothing is read past, lost or destroyed."""

from typing import Any

import pytest

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.api.v1alpha1.provider import Provider
from banlieue.controller.infra import skew
from banlieue.controller.infra.blueprint import FIRST_BOOT, LIVING
from banlieue.sdk.features import HONOURED, NESTED
from banlieue.sdk.kube import Key
from test.kit.controllerworld import ControllerWorld
from test.kit.fakeprovider import SYSTEM, THIS

ONE = Key(SYSTEM, "one")
RESTART = "2026-10-01T08:00:00Z"
SSH = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJvb2s= somebody"]


def serve(world: ControllerWorld, *lacking: str, provider: Key = ONE) -> None:
    """The Provider's process is of a version that does not know these fields."""
    known = [it for it in (*HONOURED, *NESTED) if it not in lacking]
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


# Within fields


async def test_no_vm_is_made_without_something_within_its_devices() -> None:
    """A disk to be attached again would be an empty one, and an address another."""
    world = ControllerWorld.ready()
    serve(world, "disks.storageClass")
    data = {"name": "data", "sizeGiB": 5}
    world.add_vm("db", disks=[{**data, "storageClass": "gold"}])
    world.add_vm("web", disks=[data])
    await world.settle()
    told = world.condition("Scheduled", "db")
    assert (told["status"], told["reason"]) == ("False", "UnsupportedByProvider")
    assert "disks.storageClass" in told["message"]
    assert world.condition("Ready", "web")["status"] == "True", "it asks for none"
    assert world.machine("db") is None
    serve(world)
    await world.settle()
    assert world.condition("Ready", "db")["status"] == "True"


async def test_a_class_with_something_unknown_in_it_makes_no_vm() -> None:
    world = ControllerWorld.ready()
    serve(world, "class.hardware.disks")
    world.add_vm("db")
    await world.settle()
    assert world.machine("db") is None
    assert "class.hardware.disks" in world.condition("Scheduled", "db")["message"]
    serve(world)
    await world.settle()
    assert world.condition("Ready", "db")["status"] == "True"


async def test_a_new_disk_that_cannot_be_told_whole_is_not_told_at_all() -> None:
    world = ControllerWorld.ready()
    plain = {"name": "plain", "sizeGiB": 5}
    world.add_vm("db", disks=[plain])
    await world.settle()
    serve(world, "disks.storageClass")
    gold = {"name": "gold", "sizeGiB": 5, "storageClass": "gold"}
    world.edit_vm("db", disks=[{**plain, "sizeGiB": 6}, gold])
    await world.settle()
    disks = machine_of(world)["spec"]["disks"]
    assert [(it["name"], it["sizeGiB"]) for it in disks] == [("plain", 6)]
    told = world.condition("UpToDate", "db")
    assert (told["status"], told["reason"]) == ("False", "UnsupportedByProvider")
    assert "disks.storageClass" in told["message"]
    serve(world)
    await world.settle()
    assert [it["name"] for it in machine_of(world)["spec"]["disks"]] == ["plain", "gold"]
    assert world.condition("UpToDate", "db")["reason"] != "UnsupportedByProvider"


async def test_what_can_follow_later_follows_later() -> None:
    world = ControllerWorld.ready()
    serve(world, "driftPolicy.hardware")
    world.add_vm("db", driftPolicy={"power": "Report", "hardware": "Report"})
    await world.settle()
    assert machine_of(world)["spec"]["driftPolicy"] == {"power": "Report"}
    assert "driftPolicy.hardware" in world.condition("UpToDate", "db")["message"]
    serve(world)
    await world.settle()
    policy = machine_of(world)["spec"]["driftPolicy"]
    assert policy == {"power": "Report", "hardware": "Report"}


def provider_that_knows(*known: str) -> Provider:
    return Provider.from_api(
        {
            "metadata": {"namespace": SYSTEM, "name": "one"},
            "spec": {
                "providerClassRef": {"name": "simulated"},
                "connection": {"endpoint": "https://x", "credentialsRef": {"name": "x"}},
            },
            "status": {"specFeatures": list(known)},
        }
    )


def test_within_what_is_there_unknown_parts_stay_as_they_are() -> None:
    lacking = {"networkInterfaces.ipam.gateway", "networkInterfaces.connected"}
    one = provider_that_knows(*HONOURED, *(it for it in NESTED if it not in lacking))
    assigned = {"family": "IPv4", "source": "static", "address": "10.0.0.7", "gateway": "10.0.0.1"}
    present = {"networkInterfaces": [{"name": "eth0", "ipam": [assigned], "connected": False}]}
    six = {"family": "IPv6", "source": "static", "address": "fd00::7", "gateway": "fd00::1"}
    changed = {**assigned, "address": "10.0.0.8", "gateway": "10.0.0.2"}
    wanted = {"networkInterfaces": [{"name": "eth0", "ipam": [changed, six]}]}
    waiting = skew.held_back(wanted, present, one, seen=True)
    assert set(waiting) == lacking
    (nic,) = wanted["networkInterfaces"]
    assert nic == {
        "name": "eth0",
        "connected": False,
        "ipam": [{**assigned, "address": "10.0.0.8"}],
    }
    assert skew.held_back(wanted, wanted, one, seen=True) == (), "nothing to wait for, nothing said"


def test_a_class_is_followed_whole_or_not_at_all() -> None:
    one = provider_that_knows(*HONOURED, *(it for it in NESTED if it != "class.features"))
    small = {"name": "small", "hardware": {"cpus": 1, "memoryMiB": 512}}
    large = {"name": "large", "hardware": {"cpus": 8, "memoryMiB": 4096}, "features": ["tpm"]}
    wanted = {"class": large}
    assert skew.held_back(wanted, {"class": small}, one, seen=True) == ("class.features",)
    assert wanted == {"class": small}


def test_user_data_that_was_read_is_nothing_to_wait_for() -> None:
    one = provider_that_knows(*HONOURED, *(it for it in NESTED if it != "userData.format"))
    present = {"userData": {"secretRef": {"name": "a"}}}
    for seen in (True, False):
        wanted = {"userData": {"secretRef": {"name": "a"}, "format": "ignition"}}
        waiting = skew.held_back(wanted, present, one, seen=seen)
        assert waiting == (() if seen else ("userData.format",))
        assert wanted == present


def test_a_process_that_tells_of_no_paths_knows_those_there_are() -> None:
    one = provider_that_knows(*HONOURED)
    assert skew.unknown_fields({"disks": [{"name": "a", "existing": "x"}]}, one) == ()


def test_what_is_published_fits_into_kinds_of_the_first_version() -> None:
    assert len(HONOURED) + len(NESTED) + 1 <= 64
    assert all(len(it) <= 63 for it in NESTED)
    assert "networkInterfaces.ipam.gateway" in NESTED
    assert not [it for it in NESTED if it.startswith(("instance.", "move.", "teardown."))]
