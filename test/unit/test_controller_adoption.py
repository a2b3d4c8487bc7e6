"""A VirtualMachine that adopts: which Provider it goes to, what it tells, and how it ends."""

import uuid
from typing import Any

import pytest

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller.scheduling import facts
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from banlieue.sdk.kube import Key, Obj
from test.kit.adopting import POLICY, adopting_world, legacy
from test.kit.controllerworld import NAMESPACE, SYSTEM, THAT, THIS, ControllerWorld, Vm


def adopt(
    world: ControllerWorld,
    vm_id: str,
    name: str = "db-1",
    *,
    accepted: bool = False,
    **spec: Any,  # noqa: ANN401 - JSON
) -> None:
    """Make the VirtualMachine as a user does: with neither class nor image."""
    key = world.add_vm(name, adopt={"id": vm_id, "accepted": accepted}, **spec)

    def bare(obj: Obj) -> None:
        for field in {"classRef", "imageRef"} - spec.keys():
            obj["spec"].pop(field)

    world.api.edit(VIRTUAL_MACHINES, key, bare)


def pin(name: str) -> dict[str, str]:
    return {"name": name, "namespace": SYSTEM}


def edit_policy(world: ControllerWorld, provider: str, policy: object) -> None:
    world.api.edit(PROVIDERS, Key(SYSTEM, provider), lambda obj: obj["spec"].update(policy=policy))


def said(world: ControllerWorld, kind: str) -> tuple[str, str]:
    found = world.condition(kind)
    return found.get("status", ""), found.get("reason", "")


async def test_it_is_told_what_is_there_and_nothing_is_taken_over_before_it_is_accepted() -> None:
    world = adopting_world(one={})
    vm = legacy(world, power="PoweredOff")
    adopt(world, vm.uuid)
    await world.settle()

    status = world.status()
    assert said(world, "Ready") == ("False", "AdoptionPending")
    assert said(world, "Scheduled") == ("True", "Scheduled")
    assert status["phase"] == "Pending"
    assert status["observedPowerState"] == "PoweredOff"
    assert status["observedFailureDomain"] == "one-a"
    assert status["resources"] == {"cpus": 2, "memoryMiB": 4096}
    assert status["interfaces"][0]["name"] == "eth0"
    assert status["addresses"]
    assert status["deletionPolicy"] == "Orphan"
    assert "initialization" not in status
    assert not vm.marked
    machine = world.machine()
    assert machine is not None
    assert not {"instance", "class", "powerState", "imageRef"} & set(machine["spec"])
    assert machine["spec"]["placement"] == {"failureDomain": "one-a"}
    kinds = {it["type"] for it in status["conditions"]}
    assert not {"Stalled", "Reconciling"} & kinds


async def test_accepting_makes_it_a_machine_like_any_other() -> None:
    world = adopting_world(one={})
    vm = legacy(world, power="PoweredOff")
    adopt(world, vm.uuid)
    await world.settle()
    world.edit_vm(adopt={"id": vm.uuid, "accepted": True})
    await world.settle()

    assert said(world, "Ready") == ("True", "Ready")
    assert world.status()["phase"] == "Stopped", "nobody asked to start it"
    assert world.status()["scheduled"]["failureDomain"] == "one-a"
    machine = world.machine()
    assert machine is not None
    assert machine["spec"]["placement"] == {"failureDomain": "one-a"}

    world.edit_vm(desiredPowerState="PoweredOn", classRef={"name": "small"})
    await world.settle()
    machine = world.machine()
    assert machine is not None
    assert machine["spec"]["powerState"] == "PoweredOn"
    assert machine["spec"]["class"]["name"] == "small"
    assert world.status()["phase"] == "Running"


async def test_a_word_once_given_is_not_taken_back_from_the_machine() -> None:
    world = adopting_world(one={})
    vm = legacy(world)
    adopt(world, vm.uuid, accepted=True)
    await world.settle()
    world.edit_vm(adopt={"id": vm.uuid, "accepted": False}, powerOffMode="Hard")
    await world.settle()
    machine = world.machine()
    assert machine is not None
    assert machine["spec"]["adopt"] == {"id": vm.uuid, "accepted": True}
    assert machine["spec"]["powerOffMode"] == "Hard"


async def test_of_several_providers_the_user_has_to_name_the_one() -> None:
    world = adopting_world(one={}, two={"backend": "that"})
    vm = legacy(world, 1)
    adopt(world, vm.uuid, accepted=True)
    await world.settle()
    assert said(world, "Scheduled") == ("False", "AdoptionAmbiguous")
    message = world.condition("Scheduled")["message"]
    assert "spec.providerRef" in message
    assert f"{SYSTEM}/one" in message
    assert world.machines() == []

    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    assert said(world, "Ready") == ("True", "Ready")
    assert world.machine(kind=THAT) is not None


async def test_providers_that_do_not_let_the_namespace_adopt_do_not_count() -> None:
    world = adopting_world(one={}, two={"policy": {}})
    vm = legacy(world)
    adopt(world, vm.uuid, accepted=True)
    await world.settle()
    assert said(world, "Ready") == ("True", "Ready")
    assert world.status()["scheduled"]["providerName"] == "one"


@pytest.mark.parametrize("pinned", [True, False])
async def test_without_leave_it_is_told_whom_to_ask_and_done_once_there_is(*, pinned: bool) -> None:
    world = adopting_world(one={"policy": {}})
    vm = legacy(world)
    pinning: dict[str, Any] = {"providerRef": pin("one")} if pinned else {}
    adopt(world, vm.uuid, accepted=True, **pinning)
    await world.settle()
    assert said(world, "Scheduled") == ("False", "AdoptionNotAllowed")
    assert "policy.adoption.allowedNamespaces" in world.condition("Scheduled")["message"]
    assert world.machines() == []

    edit_policy(world, "one", POLICY)
    await world.settle()
    assert said(world, "Ready") == ("True", "Ready")


async def test_a_provider_that_is_not_the_tenants_business_is_no_provider() -> None:
    told = []
    for name in ("hidden", "nowhere"):
        world = adopting_world(one={}, hidden={"allowedNamespaces": {"from": "Same"}})
        adopt(world, "some-id", providerRef=pin(name))
        await world.settle()
        scheduled = world.condition("Scheduled")
        told.append((scheduled["reason"], scheduled["message"].replace(name, "X")))
    assert told[0] == told[1]


async def test_until_it_is_taken_over_its_place_is_wherever_the_backend_has_it() -> None:
    world = adopting_world(one={"domains": ("a", "b")})
    vm = legacy(world)
    adopt(world, vm.uuid)
    await world.settle()
    vm.domain = "one-b"
    world.edit_vm(powerOffMode="Hard")
    await world.settle()
    assert world.status()["scheduled"]["failureDomain"] == "one-b"
    world.edit_vm(adopt={"id": vm.uuid, "accepted": True})
    await world.settle()
    vm.domain = "one-a"
    world.edit_vm(powerOffMode="Soft")
    await world.settle()
    assert world.status()["scheduled"]["failureDomain"] == "one-b"
    assert world.status()["observedFailureDomain"] == "one-a"
    assert world.condition("PlacementValid")["reason"] == "MovedByBackend"


async def test_a_wrong_pin_is_corrected_as_long_as_nothing_was_taken_over() -> None:
    world = adopting_world(one={}, two={"backend": "that"})
    vm = legacy(world, 1)
    adopt(world, vm.uuid, accepted=True, providerRef=pin("one"))
    await world.settle()
    assert said(world, "Ready") == ("False", "AdoptionNotFound")

    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    assert said(world, "Ready") == ("True", "Ready")
    assert world.machine(kind=THIS) is None
    assert world.status()["scheduled"]["providerName"] == "two"


async def test_a_past_that_is_gone_binds_it_to_no_provider_any_more() -> None:
    """An earlier object of its name had a VM elsewhere; somebody removes that."""
    world = adopting_world(one={}, two={})
    await world.settle()
    one, two = world.providers
    assert world.installation is not None
    owner = Owner(world.installation["data"]["id"], OWNER_VIRTUAL_MACHINE, NAMESPACE, "db-1")
    two.vms.append(Vm(owner, 0, str(uuid.uuid4())))
    two.publish()
    vm = legacy(world)
    adopt(world, vm.uuid, providerRef=pin("one"), accepted=True)
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"

    two.vms.clear()
    two.publish()
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "one"
    assert said(world, "Ready") == ("True", "Ready")
    assert one.vms == [vm]


async def test_a_pin_edited_afterwards_moves_nothing_by_surprise() -> None:
    world = adopting_world(one={}, two={"backend": "that"})
    vm = legacy(world)
    adopt(world, vm.uuid, accepted=True, providerRef=pin("one"))
    await world.settle()
    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    assert world.machine(kind=THIS) is not None
    assert world.machine(kind=THAT) is None
    assert vm in world.vms()


async def test_deleting_before_it_is_accepted_leaves_the_vm_and_needs_no_provider() -> None:
    world = adopting_world(one={})
    vm = legacy(world)
    adopt(world, vm.uuid)
    await world.settle()
    world.providers[0].down = True
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert world.machines() == []
    assert not vm.marked


async def test_an_adopted_machine_is_left_on_its_backend_unless_the_user_says_otherwise() -> None:
    for policy, left in ((None, True), ("Orphan", True), ("Delete", False)):
        world = adopting_world(one={})
        vm = legacy(world)
        given: dict[str, Any] = {"deletionPolicy": policy} if policy else {}
        adopt(world, vm.uuid, accepted=True, **given)
        await world.settle()
        world.delete_vm()
        await world.settle()
        assert world.vm() is None
        assert (vm in world.vms()) is left
        assert not (left and vm.marked)


async def test_a_provider_of_an_older_version_is_given_nothing_to_adopt() -> None:
    world = adopting_world(one={})
    one = Key(SYSTEM, "one")
    vm = legacy(world)
    world.api.edit(PROVIDERS, one, lambda obj: obj["status"].update(specFeatures=["disks"]))
    adopt(world, vm.uuid, accepted=True)
    await world.settle()
    assert said(world, "Scheduled") == ("False", "UnsupportedByProvider")
    assert world.machines() == []

    world.api.edit(PROVIDERS, one, lambda obj: obj["status"].update(specFeatures=["adopt"]))
    await world.settle()
    assert said(world, "Ready") == ("True", "Ready")


async def test_a_vm_that_waits_to_be_adopted_takes_no_room_from_others() -> None:
    world = adopting_world(one={})
    vm = legacy(world)
    adopt(world, vm.uuid)
    await world.settle()
    made = VirtualMachine.from_api(world.vm() or {})
    neighbour = facts.resident(made, None, installation_id="x")
    assert made.status.resources is not None
    assert (neighbour.cpus, neighbour.memory_mib) == (0, 0)
    assert [place.domain for place in neighbour.places] == ["one-a"]


async def test_a_class_that_does_not_exist_is_told_before_anything_is_looked_for() -> None:
    world = adopting_world(one={})
    vm = legacy(world)
    adopt(world, vm.uuid, classRef={"name": "nowhere"})
    await world.settle()
    assert said(world, "Scheduled") == ("False", "ClassNotFound")


@pytest.mark.parametrize("before_reply", [True, False])
@pytest.mark.parametrize("write", range(1, 8))
async def test_a_controller_killed_at_any_write_ends_in_the_same_state(
    write: int, *, before_reply: bool
) -> None:
    world = adopting_world(one={})
    vm = legacy(world)
    adopt(world, vm.uuid)
    world.crash_at(write, before_reply=before_reply)
    await world.settle()
    world.edit_vm(adopt={"id": vm.uuid, "accepted": True})
    await world.settle()
    assert said(world, "Ready") == ("True", "Ready")
    assert len(world.machines()) == 1
    assert world.vms() == [vm]


async def test_a_lost_machine_object_is_made_again_and_finds_its_vm() -> None:
    world = adopting_world(one={})
    vm = legacy(world)
    adopt(world, vm.uuid, accepted=True)
    await world.settle()
    world.api.edit(THIS, Key(NAMESPACE, "db-1"), lambda obj: obj["metadata"].update(finalizers=[]))
    world.api.drop(THIS, Key(NAMESPACE, "db-1"))
    await world.settle()
    machine = world.machine()
    assert machine is not None
    assert machine["spec"]["instance"]["uuid"] == vm.uuid
    assert machine["spec"]["placement"] == {"failureDomain": "one-a"}
    assert said(world, "Ready") == ("True", "Ready")


@pytest.mark.parametrize("made_of", [{}, {"classRef": {"name": "small"}}], ids=["bare", "class"])
async def test_a_lost_status_and_a_lost_object_are_made_again_and_find_the_vm(
    made_of: dict[str, Any],
) -> None:
    world = adopting_world(one={}, two={"backend": "that"})
    vm = legacy(world)
    adopt(world, vm.uuid, accepted=True, providerRef=pin("one"), **made_of)
    await world.settle()
    world.api.drop(THIS, Key(NAMESPACE, "db-1"), force=True)
    world.api.edit(VIRTUAL_MACHINES, Key(NAMESPACE, "db-1"), lambda obj: obj.pop("status"))
    world.restart()
    await world.settle()
    machine = world.machine()
    assert machine is not None
    assert machine["spec"]["adopt"] == {"id": vm.uuid, "accepted": True}
    assert machine["spec"]["instance"]["uuid"] == vm.uuid
    assert said(world, "Ready") == ("True", "Ready")


async def test_a_pin_edited_after_its_object_was_lost_leaves_no_vm_behind() -> None:
    """The object made again has no identity yet, and its VM was taken over all the same."""
    world = adopting_world(one={}, two={"backend": "that"})
    vm = legacy(world)
    adopt(world, vm.uuid, accepted=True, providerRef=pin("one"))
    await world.settle()
    world.api.drop(THIS, Key(NAMESPACE, "db-1"), force=True)
    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    machine = world.machine()
    assert machine is not None
    assert machine["spec"]["instance"]["uuid"] == vm.uuid
    assert world.machine(kind=THAT) is None
    assert world.status()["scheduled"]["providerName"] == "one"


async def test_a_lost_status_says_again_where_the_vm_is_looked_for() -> None:
    world = adopting_world(one={})
    adopt(world, "nobody's", providerRef=pin("one"))
    await world.settle()
    assert said(world, "Ready") == ("False", "AdoptionNotFound")
    world.api.edit(VIRTUAL_MACHINES, Key(NAMESPACE, "db-1"), lambda obj: obj.pop("status"))
    world.restart()
    await world.settle()
    assert said(world, "Scheduled") == ("True", "Scheduled")
    assert said(world, "Ready") == ("False", "AdoptionNotFound")


async def test_an_adopted_vm_that_a_move_left_behind_is_released_and_not_destroyed() -> None:
    world = adopting_world(one={}, two={"backend": "that"})
    vm = legacy(world)
    made_of: dict[str, Any] = {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}}
    adopt(world, vm.uuid, accepted=True, providerRef=pin("one"), **made_of)
    await world.settle()
    world.edit_vm(providerRef=pin("two"), desiredPowerState="PoweredOn")
    await world.settle()
    moved = world.machine("db-1-m1", THAT)
    assert moved is not None
    assert "adopt" not in moved["spec"], "the new machine is built, not adopted"
    assert said(world, "Ready") == ("True", "Ready")
    assert vm.power == "PoweredOff"

    world.annotate(release_previous="true")
    await world.settle()
    assert "previous" not in world.status()
    assert world.machine() is None
    assert vm in world.vms()
