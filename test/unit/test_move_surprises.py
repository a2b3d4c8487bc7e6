"""Moves in the middle of which people, backups and backends do what nobody expects."""

from collections.abc import Callable
from typing import Any

import pytest

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Controller, Request, Result
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import ON, Vm
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import restored
from test.kit.fakeprovider import NAMESPACE
from test.kit.movingworld import VM, MovingWorld

pytestmark = pytest.mark.slow

STATIC = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "static", "address": "10.0.0.7"}]}]
DHCP = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "dhcp"}]}]
BOTH = pytest.mark.parametrize("nics", [[], STATIC], ids=["dhcp", "static"])
NEW = Key(NAMESPACE, "db-1-m1")


class Deaf:
    """A process that hangs."""

    async def reconcile(self, key: Key) -> Result:
        """Do nothing."""
        del key
        return Result()


def _on(world: MovingWorld, provider: str) -> list[Vm]:
    return [vm for vm in world.vms_at(provider) if vm.power == ON]


def _switched(world: MovingWorld) -> bool:
    return "switchedAt" in (world.status().get("move") or {})


async def _there(world: MovingWorld) -> None:
    world.move_to("two")
    await world.play(until=lambda: world.is_at("two"))


async def _back(world: MovingWorld) -> None:
    world.move_to("one")
    await world.play(until=lambda: world.is_at("one"))


@BOTH
async def test_fixed_addresses_taken_off_the_spec_in_a_move_are_still_in_the_guests(
    nics: list[Any],
) -> None:
    world = await MovingWorld.with_vm(nics)
    world.move_to("two")
    await world.play(until=lambda: bool(world.vms_at("two")))
    world.edit_vm(networkInterfaces=DHCP)
    await world.play(until=lambda: world.is_at("two"))
    assert len(_on(world, "two")) == 1


@BOTH
async def test_fixed_addresses_taken_off_the_spec_before_a_rollback(nics: list[Any]) -> None:
    world = await MovingWorld.with_vm(nics)
    await _there(world)
    world.edit_vm(networkInterfaces=DHCP)
    await _back(world)
    assert len(_on(world, "one")) == 1


def _once(world: MovingWorld, when: str, act: Callable[[], object]) -> None:
    """Act as soon as the API has it: the new machine was `posted`, or the old one told to stop."""
    done = False

    def look(call: Call, moment: Moment) -> None:
        nonlocal done
        del call
        if done or moment is not Moment.AFTER:
            return
        if _switched(world) if when == "switched" else world.api.peek(SIMULATED_MACHINES, NEW):
            done = True
            act()

    world.api.intercept(look)


@BOTH
@pytest.mark.parametrize("state", ["PoweredOff", "Suspended"])
@pytest.mark.parametrize("when", ["before", "posted", "switched"])
async def test_a_machine_is_stopped_during_its_move(nics: list[Any], state: str, when: str) -> None:
    world = await MovingWorld.with_vm(nics)
    world.was_ready = False
    if when == "before":
        world.edit_vm(desiredPowerState=state)
        await world.settle(seconds=60)
    elif nics or when == "posted":
        _once(world, when, lambda: world.edit_vm(desiredPowerState=state))
    world.move_to("two")
    await world.play(
        until=lambda: (
            "incomingRef" not in world.status()
            and world.status()["scheduled"]["providerName"] == "two"
        )
    )
    await world.settle(seconds=60)
    world.edit_vm(desiredPowerState=state)
    await world.settle(seconds=60)
    assert not _on(world, "two")
    assert not _on(world, "one")


@BOTH
@pytest.mark.parametrize("when", ["posted", "switched"])
async def test_a_machine_is_started_during_its_move(nics: list[Any], when: str) -> None:
    world = await MovingWorld.with_vm(nics)
    world.was_ready = False
    world.edit_vm(desiredPowerState="PoweredOff")
    await world.settle(seconds=60)
    if nics or when == "posted":
        _once(world, when, lambda: world.edit_vm(desiredPowerState="PoweredOn"))
    world.move_to("two")
    await world.settle(seconds=60)
    world.edit_vm(desiredPowerState="PoweredOn")
    await world.settle(seconds=60)
    await world.play(until=lambda: world.is_at("two"))
    assert len(_on(world, "two")) == 1
    assert not _on(world, "one")


@pytest.mark.parametrize("torn", [True, False])
@pytest.mark.parametrize("silent", [True, False])
async def test_the_new_object_is_deleted_in_a_switch_that_is_given_up(
    *, torn: bool, silent: bool
) -> None:
    world = await MovingWorld.with_vm(STATIC)
    world.move_to("two")
    await world.play(
        until=lambda: any(all(nic.connected for nic in vm.nics) for vm in _on(world, "two"))
    )
    process = world.serving["two"]
    if silent:
        world._engine.controllers[process.controller] = Controller(process.controller, Deaf(), ())
    world.api.drop(SIMULATED_MACHINES, NEW, force=torn)
    world.move_to("one")
    await world.settle(seconds=300)
    world.check()
    if silent:
        world._hire()
        for obj in world.machines():
            world.ask(process.controller, Request(Key.of(obj)))
    await world.play(until=lambda: world.is_at("one"))
    assert len(_on(world, "one")) == 1
    assert not _on(world, "two")


async def test_a_target_that_is_gone_for_good_keeps_nobody_off() -> None:
    world = await MovingWorld.with_vm(STATIC)
    world.move_to("two")
    await world.play(until=lambda: _switched(world))
    process = world.serving["two"]
    world._engine.controllers[process.controller] = Controller(process.controller, Deaf(), ())
    world.was_ready = False
    process.backend.state.vms.clear()
    world.providers.remove(process)  # type: ignore[arg-type] # it serves as a fake one does
    world.api.drop(PROVIDERS, process.key, force=True)
    world.move_to("one")
    await world.settle(seconds=60)
    assert not _on(world, "one")  # nobody can tell whether the new one runs
    world.api.drop(SIMULATED_MACHINES, NEW)
    await world.play(until=lambda: world.is_at("one"))
    assert len(_on(world, "one")) == 1


@BOTH
async def test_an_api_from_between_two_moves_is_brought_up_to_date(nics: list[Any]) -> None:
    world = await MovingWorld.with_vm(nics)
    await _there(world)
    saved = world.api.backup()
    await _back(world)
    world.was_ready = False
    world.api.roll_back(saved)
    world.restart()
    for process in world.serving.values():
        process.restart()
    await world.settle(seconds=600)
    await world.play(until=lambda: world.status()["scheduled"]["providerName"] == "one")
    await world.settle(seconds=600)
    assert len(_on(world, "one")) == 1
    assert not _on(world, "two")
    assert world.condition("Ready")["status"] == "True"


@BOTH
async def test_objects_made_anew_after_a_rollback_find_the_machine(nics: list[Any]) -> None:
    world = await MovingWorld.with_vm(nics)
    await _there(world)
    await _back(world)
    spec = (world.vm() or {})["spec"]
    for obj in world.machines():
        world.api.drop(SIMULATED_MACHINES, Key.of(obj), force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    for process in world.serving.values():
        process.publish()
    world.add_vm(**spec)
    await world.play(until=lambda: world.condition("Ready").get("status") == "True", seconds=900)
    assert len(world.vms_at("one")) == 1
    assert len(world.vms_at("two")) == 1
    assert len(_on(world, "one")) == 1
    assert not _on(world, "two")


@BOTH
async def test_a_third_pin_in_the_middle_and_back(nics: list[Any]) -> None:
    world = await MovingWorld.with_vm(nics)
    world.move_to("two")
    await world.play(until=lambda: _switched(world) if nics else bool(world.vms_at("two")))
    world.move_to("nowhere")
    await world.settle(seconds=300)
    assert len(_on(world, "one")) == 1
    assert not world.vms_at("two")
    world.move_to("two")
    await world.play(until=lambda: world.is_at("two"))


@BOTH
async def test_ephemeral_placement_flaps(nics: list[Any]) -> None:
    world = await MovingWorld.with_vm(nics)
    world.was_ready = False
    world.edit_vm(ephemeral=True, providerRef=None)
    await world.settle(seconds=60)
    for _ in range(3):
        world.edit_vm(placement={"providerSelector": {"matchLabels": {"no": "such"}}})
        await world.settle(seconds=2)
        world.edit_vm(placement={})
        await world.settle(seconds=2)
        world.check()
    await world.settle(seconds=600)
    assert world.condition("Ready")["status"] == "True"
    assert len(world.vms_at("one")) + len(world.vms_at("two")) == 1


@BOTH
@pytest.mark.parametrize("point", range(2, 40, 9))
async def test_a_backup_from_the_middle_is_restored(nics: list[Any], point: int) -> None:
    world = await MovingWorld.with_vm(nics)
    saved: list[Any] = []
    seen = 0

    def snap(call: Call, moment: Moment) -> None:
        nonlocal seen
        del moment
        if call.verb in {"create", "apply", "json_patch", "delete"}:
            seen += 1
            if seen == point + 1:
                saved.append(world.api.backup())

    world.api.intercept(snap)
    await _there(world)
    if not saved:
        return
    world.was_ready = False
    world.api.roll_back(saved[0])
    world.restart()
    for process in world.serving.values():
        process.restart()
    await world.settle(seconds=900)
    world.annotate(accept_data_disk_loss="true")
    await world.settle(seconds=3600)
    assert world.condition("Ready")["status"] == "True", world.status()
    assert len(_on(world, "one")) + len(_on(world, "two")) == 1, world.status()


@BOTH
async def test_the_object_of_what_was_left_behind_comes_back_late_and_as_it_was(
    nics: list[Any],
) -> None:
    """A backup tool brings it back without its owner, when its successor was taken up again."""
    world = await MovingWorld.with_vm(nics)
    old = world.api.peek(SIMULATED_MACHINES, VM)
    assert old is not None
    await _there(world)
    world.api.edit(VIRTUAL_MACHINES, VM, lambda obj: obj["status"].pop("previous"))
    world.api.drop(SIMULATED_MACHINES, VM, force=True)
    for process in world.serving.values():
        process.restart()
    await world.settle(seconds=60)
    late = restored(old, status=False)
    del late["metadata"]["ownerReferences"]
    world.api.put(SIMULATED_MACHINES, late)
    ran: list[Vm] = []
    for _ in range(40):
        await world.settle(seconds=2)
        world.clock.advance(2)
        ran += _on(world, "one")
    assert not ran
    assert len(world.vms_at("one")) == len(_on(world, "two")) == 1
    assert world.api.peek(SIMULATED_MACHINES, VM) is None
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("word", [True, False], ids=["by its user", "by somebody"])
async def test_what_was_left_behind_keeps_its_mark_unless_its_user_lets_it_go(
    *, word: bool
) -> None:
    world = await MovingWorld.with_vm([])
    world.edit_vm(deletionPolicy="Orphan")
    await _there(world)
    await world.settle(seconds=60)
    if word:
        world.annotate(release_previous="true")
    else:
        world.api.drop(SIMULATED_MACHINES, VM)
    await world.settle(seconds=60)
    assert world.api.peek(SIMULATED_MACHINES, VM) is None
    (left,) = world.vms_at("one")
    assert (left.mark is None) is word
