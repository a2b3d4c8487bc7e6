"""Corners of moves: machines that sleep, addresses edited on the way, names taken, silence."""

from typing import Any

import pytest

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller.infra import blueprint
from banlieue.controller.scheduling.placement import Place
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.faults import Code, WorldFault
from banlieue.sdk.simulated.records import ON, SUSPENDED
from banlieue.sdk.simulated.world import Json, Params
from test.kit.controllerworld import NAMESPACE, SYSTEM, THAT, THIS, ControllerWorld
from test.kit.movingworld import MovingWorld, WatchedBackend

STATIC = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "static", "address": "10.0.0.7"}]}]
DHCP = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "dhcp"}]}]


def pin(name: str) -> dict[str, str]:
    return {"name": name, "namespace": SYSTEM}


def refuse_to_plug_sleepers(backend: WatchedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vSphere: devices of a suspended VM stay as they are."""
    call = backend.call

    def strict(method: str, params: Params, **more: Any) -> Json:  # noqa: ANN401 - session and such
        vm = backend.state.vms.get(str(params.get("vm", "")))
        if method == "reconfigure" and vm is not None and vm.power == SUSPENDED:
            raise WorldFault(Code.INVALID_POWER_STATE, "the VM is suspended")
        return call(method, params, **more)

    monkeypatch.setattr(backend, "call", strict)


async def test_a_machine_that_is_to_sleep_is_plugged_in_before_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await MovingWorld.with_vm(STATIC)
    world.was_ready = False
    world.edit_vm(desiredPowerState="Suspended")
    await world.settle(seconds=60)
    refuse_to_plug_sleepers(world.serving["two"].backend, monkeypatch)
    world.move_to("two")
    await world.play(
        until=lambda: (
            "incomingRef" not in world.status()
            and world.status()["scheduled"]["providerName"] == "two"
        )
    )
    await world.settle(seconds=60)
    (vm,) = world.vms_at("two")
    assert vm.power == SUSPENDED
    assert all(nic.connected for nic in vm.nics)


async def test_addresses_taken_off_the_spec_in_a_move_count_in_its_rollback() -> None:
    """Both guests were made with them; `check` looks whenever a backend is called."""
    world = await MovingWorld.with_vm(STATIC)
    world.move_to("two")
    await world.play(until=lambda: "switchedAt" in (world.status().get("move") or {}))
    world.edit_vm(networkInterfaces=DHCP)
    await world.play(until=lambda: world.is_at("two"))
    assert world.status()["previous"]["fixedAddresses"] is True
    world.move_to("one")
    await world.play(until=lambda: world.is_at("one"))
    assert [vm.power for vm in world.vms_at("one")] == [ON]
    assert ON not in {vm.power for vm in world.vms_at("two")}


async def running(**providers: Any) -> ControllerWorld:  # noqa: ANN401 - Providers as written
    world = ControllerWorld.ready(one={}, two={"backend": "that"}, **providers)
    world.add_vm(providerRef=pin("one"))
    await world.settle()
    return world


def moved_natively(world: ControllerWorld) -> None:
    """The VM is found on the other Provider."""
    world.providers[1].vms.append(world.providers[0].vms[0])
    world.providers[1].publish()


def silence(world: ControllerWorld, name: str) -> None:
    def change(obj: dict[str, Any]) -> None:
        for condition in obj["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition.update(status="False", reason="ProviderUnreachable")

    world.api.edit(PROVIDERS, Key(SYSTEM, name), change)


async def test_silence_of_the_old_provider_does_not_prove_that_the_machine_moved() -> None:
    world = await running()
    moved_natively(world)
    silence(world, "one")
    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    held = world.condition("PlacementValid")
    assert held["reason"] == "OwnershipConflict"
    assert "delete the Provider" in held["message"]
    assert world.status()["scheduled"]["providerName"] == "one"
    assert world.machine(kind=THIS) is not None
    assert world.machine(kind=THAT) is None


async def test_an_admin_who_lets_a_silent_provider_go_lets_its_machine_be_taken_up() -> None:
    world = await running()
    moved_natively(world)
    silence(world, "one")
    world.api.edit(
        PROVIDERS, Key(SYSTEM, "one"), lambda obj: obj["metadata"].update(finalizers=["held"])
    )
    world.api.drop(PROVIDERS, Key(SYSTEM, "one"))
    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    world.api.drop(PROVIDERS, Key(SYSTEM, "one"), force=True)  # its last machine went
    world.providers.pop(0)
    await world.settle()
    assert world.machine(kind=THAT) is not None
    assert world.condition("Ready")["status"] == "True"


async def test_a_machine_that_is_taken_up_elsewhere_gets_a_name_that_is_free() -> None:
    world = await running()
    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    world.annotate(release_previous="true")
    await world.settle()
    world.add_vm("db-1-m1", providerRef=pin("one"))
    await world.settle()
    (vm,) = world.providers[1].vms
    world.providers[1].vms.clear()
    world.providers[0].vms.append(vm)
    await world.providers[1].step(Key(NAMESPACE, "db-1-m1"))
    world.edit_vm(providerRef=pin("one"))
    await world.settle()
    assert world.status()["infrastructureRef"]["name"] == "db-1-m01"
    assert world.condition("Ready")["status"] == "True", world.status()
    assert world.condition("Ready", "db-1-m1")["status"] == "True"
    assert world.status()["providerID"] == f"fake://{vm.uuid}"


async def moved_with_its_later_name_taken() -> tuple[ControllerWorld, Obj, Obj]:
    """A moved VM, its objects of before the move, and a VM that has its later object's name."""
    world = await running()
    vm, machine = world.vm(), world.machine()
    assert vm is not None
    assert machine is not None
    world.edit_vm(providerRef=pin("two"))
    await world.settle()
    world.annotate(release_previous="true")
    await world.settle()
    for kind in (THIS, THAT):
        for made in world.api.peek_all(kind):
            world.api.drop(kind, Key.of(made), force=True)
    world.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, "db-1"), force=True)
    await world.settle()
    world.add_vm("db-1-m1", providerRef=pin("two"))
    await world.settle()
    assert world.condition("Ready", "db-1-m1")["status"] == "True"
    return world, vm, machine


@pytest.mark.parametrize("objects", ["both", "without status", "without the machine"])
async def test_a_machine_that_a_restore_finds_elsewhere_gets_a_name_that_is_free(
    objects: str,
) -> None:
    world, vm, machine = await moved_with_its_later_name_taken()
    taken = world.status("db-1-m1")["providerID"]
    (moved,) = [it for it in world.providers[1].vms if f"fake://{it.uuid}" != taken]
    for obj in (vm, machine):
        obj["metadata"].pop("resourceVersion", None)
    if objects != "both":
        vm.pop("status", None)
    world.api.put(VIRTUAL_MACHINES, vm)
    if objects == "both":
        kind = THIS if machine["kind"] == THIS.kind else THAT
        world.api.put(kind, machine)
    await world.settle()
    assert world.status()["infrastructureRef"]["name"] == "db-1-m01", world.status()
    assert world.status()["providerID"] == f"fake://{moved.uuid}"
    assert world.condition("Ready")["status"] == "True", world.status()
    assert world.status("db-1-m1")["providerID"] == taken
    assert world.condition("Ready", "db-1-m1")["status"] == "True"
    assert len(world.providers[1].vms) == 2


@pytest.mark.parametrize(("name", "adopts"), [("db-1", True), ("db-1-m2", False)])
def test_an_adopted_machine_that_was_moved_back_is_made_again_as_the_adopted_one(
    name: str, *, adopts: bool
) -> None:
    """Its mark tells the later epoch, and its object's name that no move made it."""
    vm = VirtualMachine.from_api(
        {
            "metadata": {"namespace": NAMESPACE, "name": "db-1", "uid": "u"},
            "spec": {"adopt": {"id": "that-one", "accepted": True}},
        }
    )
    plan = blueprint.Plan(vm=vm, place=Place(Key(SYSTEM, "one"), "a"), snapshot=None, epoch=2)
    spec = blueprint.machine_object(plan, THIS, name=name)["spec"]
    assert ("adopt" in spec) is adopts
    assert spec["move"]["epoch"] == 2
