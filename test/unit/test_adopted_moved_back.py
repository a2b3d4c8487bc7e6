"""A machine that was adopted, moved and moved back, whose object and status are lost afterwards.

Its mark tells a later epoch then, as those of machines we made at that Provider do. Taken for one
of these, it would lose the disks and interfaces it came along with as soon as somebody edits it.
"""

from typing import Any

import pytest

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.identity import Owner, adopted_digest, backend_name, vm_digest
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from test.kit.fakeprovider import SYSTEM
from test.kit.movingworld import VM, MovingWorld

UUID = "00000000-0000-4000-8000-00000000abcd"
POLICY = {"adoption": {"allowedNamespaces": {"from": "All"}}}


async def adopted() -> MovingWorld:
    """A VM that was there before us, taken over on Provider `one`."""
    world = MovingWorld()
    world.add_class()
    world.add_image(
        sources=[{"providerClass": "simulated", "kind": "Template", "ref": "ubuntu-24.04"}]
    )
    for number, name in enumerate(("one", "two")):
        world._add_serving(name, number)
        world.api.edit(PROVIDERS, Key(SYSTEM, name), _let_adopt)
    world.serving["one"].backend.control(
        "make_foreign", {"name": "legacy", "domain": "domain-a", "uuid": UUID}
    )
    world.add_vm(
        providerRef={"name": "one", "namespace": SYSTEM},
        adopt={"id": UUID, "accepted": True},
        desiredPowerState="PoweredOn",
    )
    await _arrive(world, "one")
    return world


def _let_adopt(provider: Obj) -> None:
    provider["spec"]["policy"] = POLICY
    provider["status"]["specFeatures"].append("adopt")


async def _arrive(world: MovingWorld, provider: str) -> None:
    world.move_to(provider)
    await world.play(until=lambda: world.is_at(provider), seconds=600.0)
    await world.settle(seconds=30.0)


async def lose(world: MovingWorld, *, everything: bool, restarted: bool) -> None:
    """The status and the current machine object go, or all of them; then all is as it should."""
    if restarted:
        world.restart()
        for process in world.serving.values():
            process.restart()
    current = world.status()["infrastructureRef"]["name"]
    for name in [it["metadata"]["name"] for it in world.machines()]:
        if everything or name == current:
            world.api.drop(SIMULATED_MACHINES, Key(VM.namespace, name), force=True)
    world.api.edit(VIRTUAL_MACHINES, VM, lambda it: it.pop("status", None))
    await world.play(until=lambda: world.is_at("one"), seconds=600.0)
    await world.settle(seconds=30.0)


def machine_of(world: MovingWorld) -> tuple[str, dict[str, Any]]:
    name = world.status()["infrastructureRef"]["name"]
    found = world.api.peek(SIMULATED_MACHINES, Key(VM.namespace, name))
    assert found is not None
    return name, found["spec"]


@pytest.mark.parametrize(
    ("everything", "restarted"), [(True, True), (False, False)], ids=["after-a-restart", "at-once"]
)
async def test_it_is_adopted_again(*, everything: bool, restarted: bool) -> None:
    world = await adopted()
    await _arrive(world, "two")
    await _arrive(world, "one")
    before = {name: [vm.uuid for vm in world.vms_at(name)] for name in world.serving}
    _, spec = machine_of(world)
    await lose(world, everything=everything, restarted=restarted)
    name, again = machine_of(world)
    assert name == "db-1"
    assert again["adopt"] == {"id": UUID, "accepted": True}
    assert again["move"]["epoch"] == 2
    for kept in ("providerID", "instance"):
        assert again[kept] == spec[kept]
    assert {name: [vm.uuid for vm in world.vms_at(name)] for name in world.serving} == before


async def test_one_that_was_built_anew_in_its_place_is_not_taken_for_it() -> None:
    """The adopted one was left to its user, and is nobody's: moved there, a new one was made."""
    world = await adopted()
    await _arrive(world, "two")
    world.annotate(release_previous="true")
    await world.settle(seconds=60.0)
    await _arrive(world, "one")
    _, spec = machine_of(world)
    assert "adopt" not in spec
    await lose(world, everything=True, restarted=True)
    name, again = machine_of(world)
    assert (name, again["instance"]["uuid"]) == ("db-1-m2", spec["instance"]["uuid"])
    assert "adopt" not in again
    (legacy,) = [vm for vm in world.vms_at("one") if vm.name == "legacy"]
    assert legacy.mark is None


def test_only_a_vm_without_a_name_of_ours_is_told_by_its_uuid() -> None:
    owner = Owner("inst", "VirtualMachine", "team-a", "db")
    for epoch in (0, 3):
        assert adopted_digest(backend_name(owner, epoch), owner.digest, UUID) is None
    assert adopted_digest("legacy", owner.digest, UUID) == vm_digest(UUID.upper())
    assert UUID not in vm_digest(UUID)
