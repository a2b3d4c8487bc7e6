"""A VirtualMachine goes in order: intent, machine object, then itself; nothing goes unasked."""

from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key
from banlieue.sdk.testing.memory_api import Moment
from test.kit.controllerworld import NAMESPACE, THIS, ControllerWorld, restored

VM = Key(NAMESPACE, "db-1")


async def _running(**spec: Any) -> ControllerWorld:  # noqa: ANN401 - spec as users write it
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    world.add_vm(**spec)
    await world.settle()
    assert len(world.vms()) == 1
    world.api.calls.clear()
    return world


@pytest.mark.identity("6.2")
async def test_a_deleted_virtual_machine_takes_its_machine_along() -> None:
    world = await _running()
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert not world.vms()
    order = [
        (call.verb, call.resource.kind)
        for call in world.api.writes()
        if call.manager == names.MANAGER_CONTROLLER or call.verb == "delete"
    ]
    assert order == [
        ("json_patch", "ThisMachine"),
        ("delete", "ThisMachine"),
        ("json_patch", "VirtualMachine"),
        ("json_patch", "VirtualMachine"),
    ]
    assert EventReason.DELETED in world.recorder.reasons()


@pytest.mark.identity("6.1")
async def test_the_intent_stands_before_the_delete_and_names_the_object() -> None:
    world = await _running()
    seen = []

    def look(call: object, moment: Moment) -> None:
        if getattr(call, "verb", "") == "delete" and moment is Moment.BEFORE:
            seen.append(world.machine())

    world.api.intercept(look)
    world.delete_vm()
    await world.settle()
    (machine,) = seen
    assert machine is not None
    assert machine["spec"]["teardown"] == {"mode": "Destroy", "uid": machine["metadata"]["uid"]}


async def test_nobody_says_destroyed_of_a_vm_whose_machine_object_was_gone_before() -> None:
    world = await _running()
    machine = world.machine()
    assert machine is not None
    world.delete_vm()  # while the controller is away, so that it does not make the machine again
    world.api.drop(THIS, VM, force=True)
    await world.settle()
    assert world.vm() is None
    assert len(world.vms()) == 1
    assert EventReason.DELETED not in world.recorder.reasons()
    assert EventReason.ORPHANED in world.recorder.reasons()


async def test_orphan_leaves_the_vm_alone() -> None:
    world = await _running(deletionPolicy="Orphan")
    assert world.status()["deletionPolicy"] == "Orphan"
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert len(world.vms()) == 1
    assert EventReason.ORPHANED in world.recorder.reasons()


@pytest.mark.identity("6.2")
async def test_the_policy_is_read_when_it_matters() -> None:
    world = await _running()
    world.providers[0].down = True
    world.delete_vm()
    await world.settle()
    world.edit_vm(deletionPolicy="Orphan")
    await world.settle()
    world.providers[0].down = False
    await world.providers[0].step(VM)
    await world.settle()
    assert world.vm() is None
    assert len(world.vms()) == 1


@pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "never sent"])
@pytest.mark.parametrize("write", range(1, 6))
async def test_a_crash_at_any_write_ends_in_nothing(write: int, *, lost: bool) -> None:
    world = await _running()
    world.crash_at(write, before_reply=lost)
    world.delete_vm()
    await world.settle()
    assert world.crashed == (write <= 4)
    assert world.vm() is None
    assert not world.machines()
    assert not world.vms()


@pytest.mark.parametrize("write", range(1, 7))
async def test_deleted_while_it_is_made(write: int) -> None:
    world = ControllerWorld.ready()
    world.crash_at(write)
    world.add_vm()
    await world.settle(seconds=0)
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert not world.vms()


async def test_a_virtual_machine_that_was_never_placed_goes_at_once() -> None:
    world = ControllerWorld.ready()
    world.add_vm(classRef={"name": "nope"})
    await world.settle()
    world.delete_vm()
    await world.settle()
    assert world.vm() is None


async def test_pause_comes_before_deletion() -> None:
    world = await _running()
    world.edit_vm(paused=True)
    await world.settle()
    world.delete_vm()
    await world.settle()
    assert world.condition("Paused")["status"] == "True"
    assert len(world.vms()) == len(world.machines()) == 1
    world.edit_vm(paused=False)
    await world.settle()
    assert world.vm() is None
    assert not world.vms()


@pytest.mark.identity("6.8")
async def test_with_the_provider_gone_only_release_lets_it_go() -> None:
    world = await _running()
    world.api.drop(PROVIDERS, world.providers[0].key)
    world.providers[0].down = True
    await world.settle()
    assert world.condition("PlacementValid")["reason"] == "ProviderNotFound"
    world.delete_vm()
    await world.settle()
    assert world.condition("Deleting")["reason"] == "ProviderNotFound"
    assert "deletionPolicy" in world.condition("Deleting")["message"]
    assert len(world.vms()) == 1
    world.edit_vm(deletionPolicy="Orphan")
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert len(world.vms()) == 1


async def test_what_the_provider_waits_for_is_shown() -> None:
    world = await _running()
    world.providers[0].down = True
    world.delete_vm()
    await world.settle()

    def held(obj: dict[str, object]) -> None:
        status = obj["status"]
        assert isinstance(status, dict)
        status["conditions"].append(
            {
                "type": "Deleting",
                "status": "True",
                "reason": "ForeignDiskAttached",
                "message": "detach disk x",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        )

    world.api.edit(THIS, VM, held)
    await world.settle()
    assert world.condition("Deleting")["reason"] == "ForeignDiskAttached"
    assert world.condition("Deleting")["message"] == "detach disk x"
    assert world.status()["phase"] == "Deleting"
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ForeignDiskAttached")
    assert ready["message"] == "detach disk x"


async def test_what_is_known_is_said_to_the_end() -> None:
    world = await _running()
    kinds = ("InfrastructureReady", "AddressesAvailable", "PowerStateSynced", "UpToDate")
    before = {kind: world.condition(kind) for kind in kinds}
    world.providers[0].down = True
    world.delete_vm()
    await world.settle()
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Deleting")
    assert ready["message"] == world.condition("Deleting")["message"] != ""
    for kind in kinds:
        generation = {"observedGeneration": ready["observedGeneration"]}
        assert world.condition(kind) == before[kind] | generation


async def test_a_restored_object_that_is_deleted_at_once_still_takes_its_machine() -> None:
    world = await _running()
    vm = world.vm()
    assert vm is not None
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    world.restart()
    world.api.put(VIRTUAL_MACHINES, restored(vm, uid="new", status=False))
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert not world.vms()


@pytest.mark.identity("6.3")
async def test_a_machine_whose_owner_was_torn_out_is_released() -> None:
    world = await _running()
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    assert world.api.collect_garbage() == 1
    await world.settle()
    assert not world.machines()
    assert len(world.vms()) == 1


async def test_a_stale_machine_is_not_destroyed_with_a_new_object_of_its_name() -> None:
    world = await _running()
    machine = world.machines()[0]
    world.providers[0].down = True
    world.api.drop(THIS, VM, force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    world.clock.advance(3600)  # what vanished is no longer remembered
    world.add_vm(providerRef={"name": "two", "namespace": "banlieue-system"})
    world.providers[0].vms.clear()
    world.providers[0].publish()
    await world.settle()
    stale = restored(machine)
    world.api.put(THIS, stale)
    await world.settle()
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    left = world.machine()
    assert left is not None
    assert "teardown" not in left["spec"]


async def test_a_foreign_object_of_the_name_is_never_touched() -> None:
    world = ControllerWorld.ready()
    foreign = {"metadata": {"namespace": NAMESPACE, "name": "db-1"}, "spec": {"cpus": 1}}
    world.api.put(THIS, foreign)
    world.add_vm()
    await world.settle()
    assert world.condition("Ready")["reason"] == "OwnershipConflict"
    assert EventReason.OWNERSHIP_CONFLICT in world.recorder.reasons()
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert [it["spec"] for it in world.machines()] == [{"cpus": 1}]


async def test_a_protected_machine_is_not_destroyed_however_its_object_was_deleted() -> None:
    world = await _running(deletionProtection=True)
    world.delete_vm()
    await world.settle()
    assert len(world.vms()) == 1
    assert world.condition("Deleting")["reason"] == "DeletionProtected"

    world.api.drop(THIS, VM)
    await world.settle()
    assert len(world.vms()) == 1

    world.edit_vm(deletionProtection=False)
    await world.settle()
    assert world.vm() is None
    assert not world.vms()


async def test_protection_does_not_hold_what_is_left_on_its_backend() -> None:
    world = await _running(deletionProtection=True, deletionPolicy="Orphan")
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert len(world.vms()) == 1
