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


def _told(world: ControllerWorld, status: str, reason: str) -> None:
    """Have the provider say that of the first boot, once and for all."""

    def report(obj: Obj) -> None:
        told = {
            "type": "GuestBootstrapped",
            "status": status,
            "reason": reason,
            "message": "as the guest says",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        kept = [it for it in obj["status"]["conditions"] if it["type"] != told["type"]]
        obj["status"]["conditions"] = [*kept, told]

    for provider in world.providers:
        provider.down = True
    world.api.edit(THIS, Key(NAMESPACE, "db-1"), report)


async def test_a_guest_that_has_not_told_yet_holds_ready_up_only_where_that_is_asked_for() -> None:
    world = ControllerWorld.ready()
    world.add_vm(readinessGates=["AddressesAvailable"])
    await world.settle()
    _told(world, "False", "GuestBootstrapPending")
    await world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("GuestBootstrapped") == {}, "a guest without an agent never tells"
    world.edit_vm(readinessGates=GATES)
    await world.settle()
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "GuestBootstrapPending")
    assert world.condition("Stalled") == {}, "it is on its way"
    _told(world, "True", "GuestBootstrapped")
    await world.settle()
    assert world.condition("Ready")["status"] == "True"


async def test_a_first_boot_that_failed_is_told_whether_or_not_it_is_asked_for() -> None:
    world = ControllerWorld.ready()
    world.add_vm(readinessGates=["AddressesAvailable"])
    await world.settle()
    _told(world, "False", "GuestBootstrapFailed")
    await world.settle()
    assert world.condition("GuestBootstrapped")["reason"] == "GuestBootstrapFailed"
    assert world.condition("Ready")["status"] == "True"
    world.edit_vm(readinessGates=GATES)
    await world.settle()
    assert world.condition("Ready")["reason"] == "GuestBootstrapFailed"
    assert world.condition("Stalled")["status"] == "True"
