"""A VirtualMachine becomes exactly one machine object, with few writes, whatever crashes."""

import pytest

from banlieue.api.events import EventReason
from test.kit.controllerworld import NAMESPACE, ControllerWorld


async def test_a_virtual_machine_becomes_ready() -> None:
    world = ControllerWorld.ready()
    world.add_vm()
    await world.settle()
    status = world.status()
    assert world.condition("Ready")["status"] == "True"
    assert status["phase"] == "Running"
    assert status["scheduled"]["failureDomain"] == "one-a"
    assert status["addresses"] == [{"type": "InternalIP", "address": "10.0.0.7"}]
    assert status["providerID"].startswith("fake://")
    assert len(world.machines()) == len(world.vms()) == 1


async def test_the_write_budget_of_a_create() -> None:
    world = ControllerWorld.ready()
    world.add_vm()
    await world.settle()
    assert dict(world.controller_writes()) == {
        "create ConfigMap": 1,
        "json_patch VMImage": 1,
        "json_patch VMImage/status": 1,
        "json_patch VirtualMachine": 1,
        "create ThisMachine": 1,
        "json_patch VirtualMachine/status": 2,
    }
    assert world.recorder.reasons() == [
        EventReason.SCHEDULED,
        EventReason.PROVISIONED,
        EventReason.ADDRESS_ASSIGNED,
    ]


async def test_nothing_is_written_when_nothing_changed() -> None:
    world = ControllerWorld.ready()
    world.add_vm()
    await world.settle()
    before = len(world.api.writes())
    world.restart()
    await world.settle()
    assert len(world.api.writes()) == before


@pytest.mark.identity("1.2", "3.3")
@pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "never sent"])
@pytest.mark.parametrize("write", range(1, 9))
async def test_a_crash_at_any_write_ends_in_one_machine(write: int, *, lost: bool) -> None:
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    world.crash_at(write, before_reply=lost)
    world.add_vm()
    await world.settle()
    assert world.crashed == (write <= 7)
    assert world.condition("Ready")["status"] == "True"
    assert len(world.machines()) == len(world.vms()) == 1
    assert world.machines()[0]["metadata"]["namespace"] == NAMESPACE
