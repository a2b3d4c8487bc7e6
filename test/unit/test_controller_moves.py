"""Moves to another Provider, from the user's side: what starts one, what holds it, how it ends."""

from typing import Any

import pytest

from banlieue.api.reasons import EventReason
from banlieue.sdk.kube import Key
from test.kit.controllerworld import NAMESPACE, SYSTEM, ControllerWorld
from test.kit.fakeprovider import Vm

VM = Key(NAMESPACE, "db-1")
TO_TWO = {"name": "two", "namespace": SYSTEM}
TO_ONE = {"name": "one", "namespace": SYSTEM}
STATIC = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "static", "address": "10.0.0.7"}]}]


async def _running(**spec: Any) -> ControllerWorld:  # noqa: ANN401 - spec as users write it
    networks = {"capabilities": {"networkClasses": [{"name": "prod", "subnets": [SUBNET]}]}}
    world = ControllerWorld.ready(one=networks, two={"backend": "that", **networks})
    world.add_vm(providerRef=TO_ONE, **spec)
    await world.settle()
    assert world.condition("Ready")["status"] == "True", world.status()
    world.vms()[0].data = "marker"
    return world


SUBNET = {"cidr": "10.0.0.0/24", "allowStatic": ["10.0.0.0/25"]}


def _at(world: ControllerWorld, provider: str) -> list[Vm]:
    return next(it for it in world.providers if it.key.name == provider).vms


@pytest.mark.parametrize("nics", [[], STATIC], ids=["dhcp", "static"])
async def test_a_pin_to_another_provider_moves_the_machine(nics: list[Any]) -> None:
    world = await _running(networkInterfaces=nics)
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    status = world.status()
    assert status["scheduled"]["providerName"] == "two"
    assert status["infrastructureRef"]["name"] == "db-1-m1"
    assert status["previous"]["infrastructureRef"]["name"] == "db-1"
    assert "incomingRef" not in status
    assert "move" not in status
    assert status["phase"] == "Running"
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("PlacementValid")["status"] == "True"
    assert world.condition("Migrating") == {}
    (old,), (new,) = _at(world, "one"), _at(world, "two")
    assert (old.power, old.data) == ("PoweredOff", "marker")
    assert (new.power, new.incoming, new.epoch) == ("PoweredOn", False, 1)
    assert new.live
    reasons = world.recorder.reasons()
    assert EventReason.MIGRATION_STARTED in reasons
    assert EventReason.MIGRATION_COMPLETED in reasons
