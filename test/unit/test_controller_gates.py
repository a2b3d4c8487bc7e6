"""Readiness gates: one that nobody will ever open is told, with what to do."""

from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import THIS, ControllerWorld
from test.kit.fakeprovider import NAMESPACE

GATES = ["AddressesAvailable", "GuestBootstrapped"]


async def test_a_gate_that_the_provider_cannot_open_is_told_with_a_remedy() -> None:
    world = ControllerWorld.ready()
    world.add_vm(readinessGates=GATES)
    await world.settle()
    for kind in ("GuestBootstrapped", "Ready"):
        told = world.condition(kind)
        assert (told["status"], told["reason"]) == ("False", "UnsupportedByProvider")
        assert "take GuestBootstrapped out of readinessGates" in told["message"]
    assert world.condition("Stalled")
    world.edit_vm(readinessGates=["AddressesAvailable"])
    await world.settle()
    assert world.condition("GuestBootstrapped") == {}
    assert world.condition("Ready")["status"] == "True"


async def test_a_gate_that_the_provider_opens_makes_ready() -> None:
    world = ControllerWorld.ready()
    world.add_vm(readinessGates=GATES)
    await world.settle()

    def report(obj: Obj) -> None:
        told = {
            "type": "GuestBootstrapped",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        obj["status"]["conditions"].append(told)

    for provider in world.providers:
        provider.down = True
    world.api.edit(THIS, Key(NAMESPACE, "db-1"), report)
    await world.settle()
    assert world.condition("Ready")["status"] == "True"
