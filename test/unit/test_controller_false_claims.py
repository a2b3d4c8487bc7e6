"""What a Provider of others says of VMs that are none of its own business.

Who runs a namespace may have a Provider there, and whatever he likes on its backend: a mark with
the owner of a machine that is none of his, of a move that never was.
"""

from typing import Any

import pytest

from banlieue.api.resources import NAMESPACES, PROVIDERS
from banlieue.controller.scheduling import facts
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import NAMESPACE, SYSTEM, ControllerWorld

MALLORY = "mallory"
EVIL = Key(MALLORY, "evil")


def world_with_evil(**options: Any) -> ControllerWorld:  # noqa: ANN401 - fields of a Provider
    """A Provider for all, and one that only its own namespace may use."""
    world = ControllerWorld.ready()
    world.api.put(NAMESPACES, {"metadata": {"name": MALLORY}})
    world.add_provider(
        "evil", namespace=MALLORY, allowedNamespaces={"from": "Same"}, **options
    ).down = True
    return world


def claim(world: ControllerWorld, epoch: int, name: str = "db-1") -> None:
    """Have it say that it holds a VM of that VirtualMachine."""
    installation = (world.installation or {})["data"]["id"]
    owner = facts.owner_digest(installation, Key(NAMESPACE, name))

    def change(provider: Obj) -> None:
        told = {"complete": True, "count": 1, "owners": [{"hash": owner, "epoch": epoch}]}
        provider["status"]["unclaimed"] = told

    world.providers[1].reports = False
    world.api.edit(PROVIDERS, EVIL, change)


@pytest.mark.identity("12.7")
async def test_no_vm_is_taken_from_its_provider_by_the_word_of_one_it_may_not_use() -> None:
    world = world_with_evil()
    world.add_vm()
    await world.settle()
    claim(world, 99)
    await world.settle()
    assert [it["spec"]["providerRef"]["name"] for it in world.machines()] == ["one"]
    assert "incomingRef" not in world.status()
    assert world.condition("Ready")["status"] == "True"
    assert world.vms()[0].power == "PoweredOn"
    told = [it for it in world.recorder.events if it.reason.value == "OwnershipConflict"]
    assert "Provider mallory/evil" in told[-1].message


async def test_nor_does_its_word_count_for_the_next_move() -> None:
    world = world_with_evil()
    world.add_provider("two")
    world.add_vm(providerRef={"name": "one", "namespace": SYSTEM})
    await world.settle()
    claim(world, 999_999)
    world.edit_vm(providerRef={"name": "two", "namespace": SYSTEM})
    await world.settle()
    current = [it for it in world.machines() if it["spec"].get("move", {}).get("role") == "Current"]
    assert [it["spec"]["move"]["epoch"] for it in current] == [1]


@pytest.mark.identity("12.7")
@pytest.mark.parametrize("epoch", [0, 7])
async def test_a_new_machine_is_not_put_where_it_may_not_be_and_says_what_it_waits_for(
    epoch: int,
) -> None:
    world = world_with_evil()
    world.add_vm("first")
    await world.settle()
    claim(world, epoch)
    world.add_vm()
    await world.settle()
    assert world.machine() is None
    found = world.condition("Scheduled")
    assert (found["status"], found["reason"]) == ("False", "ProviderNotAllowed")
    assert "Provider mallory/evil" in found["message"]
    world.api.drop(PROVIDERS, EVIL)
    await world.settle()
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.identity("12.7")
async def test_a_machine_that_was_placed_there_once_goes_back_all_the_same() -> None:
    """Its namespace lost the Provider since: it is looked at there, and made nowhere else."""
    world = world_with_evil()
    world.api.edit(PROVIDERS, EVIL, lambda it: it["spec"].update(allowedNamespaces={"from": "All"}))
    world.providers[1].down = False
    world.add_vm(providerRef={"name": "evil", "namespace": MALLORY})
    await world.settle()
    assert world.condition("Ready")["status"] == "True"
    world.api.edit(
        PROVIDERS, EVIL, lambda it: it["spec"].update(allowedNamespaces={"from": "Same"})
    )
    machine = world.machine()
    assert machine is not None
    world.api.drop(world.providers[1].kind, Key.of(machine), force=True)
    await world.settle()
    assert [it["spec"]["providerRef"]["name"] for it in world.machines()] == ["evil"]
    assert len(world.vms()) == 1


@pytest.mark.identity("12.7")
async def test_one_that_was_moved_there_after_its_status_was_saved_is_made_nowhere_else() -> None:
    """Its object was lost, too: whether it is the very machine only its admins can tell."""
    world = world_with_evil()
    world.add_vm()
    await world.settle()
    before = world.vms()
    machine = world.machine()
    assert machine is not None
    claim(world, 1)
    world.api.drop(world.providers[0].kind, Key.of(machine), force=True)
    await world.settle()
    assert world.machines() == []
    assert world.vms() == before
    claim(world, 0)
    await world.settle()
    assert [it["spec"]["providerRef"]["name"] for it in world.machines()] == ["one"]
