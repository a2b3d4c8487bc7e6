"""A whole move and all the way back, with a process killed at every write: nothing is lost."""

from typing import Any

import pytest

from test.kit.movingworld import MARKER, MovingWorld

pytestmark = pytest.mark.slow

STATIC = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "static", "address": "10.0.0.7"}]}]
GAP = 30.0
"""Seconds in which nothing may answer while a fixed address changes hands, once each way."""


async def _there_and_back(world: MovingWorld) -> None:
    world.move_to("two")
    await world.play(until=lambda: world.is_at("two"))
    world.move_to("one")
    await world.play(until=lambda: world.is_at("one"))


def _assert_back(world: MovingWorld, nics: list[Any]) -> None:
    (old,), (new,) = world.vms_at("one"), world.vms_at("two")
    assert (old.power, new.power) == ("PoweredOn", "PoweredOff")
    assert MARKER in [disk.content for disk in old.disks]
    assert len(world.machines()) == 2
    assert world.gap <= (2 * GAP if nics else 0.0)


@pytest.mark.parametrize("nics", [[], STATIC], ids=["dhcp", "static"])
async def test_there_and_back(nics: list[Any]) -> None:
    world = await MovingWorld.with_vm(nics)
    await _there_and_back(world)
    _assert_back(world, nics)
    assert bool(world.gap) == bool(nics)


@pytest.mark.identity("8.2")
@pytest.mark.parametrize("before_reply", [True, False], ids=["reply lost", "never sent"])
@pytest.mark.parametrize("nics", [[], STATIC], ids=["dhcp", "static"])
async def test_a_process_dies_at_every_write(nics: list[Any], *, before_reply: bool) -> None:
    world = await MovingWorld.with_vm(nics)
    world.kill_at_each(before_reply=before_reply)
    await _there_and_back(world)
    assert world.deaths >= 30
    _assert_back(world, nics)


@pytest.mark.parametrize("before_reply", [True, False], ids=["reply lost", "never sent"])
async def test_a_switch_is_given_up_while_a_process_dies_at_every_write(
    *, before_reply: bool
) -> None:
    world = await MovingWorld.with_vm(STATIC)
    world.move_to("two")
    await world.play(until=lambda: "switchedAt" in world.status().get("move", {}))
    world.kill_at_each(before_reply=before_reply)
    world.move_to("one")
    await world.play(until=lambda: world.is_at("one") and not world.vms_at("two"))
    (old,) = world.vms_at("one")
    assert old.power == "PoweredOn"
    assert all(nic.connected for nic in old.nics)
    assert len(world.machines()) == 1
    assert "previous" not in world.status()
