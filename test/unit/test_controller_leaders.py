"""Two controllers that both think they lead: still one machine object, then none."""

import asyncio
import itertools

import pytest

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.controller.vm.virtualmachine import CONTROLLER
from banlieue.sdk.kube import ApiError, Key
from banlieue.sdk.reconcile import Reconciler
from test.kit.controllerworld import NAMESPACE, ControllerWorld

VM = Key(NAMESPACE, "db-1")


def _reconciler(world: ControllerWorld) -> Reconciler:
    return next(it.reconciler for it in world.role.controllers() if it.name == CONTROLLER)


async def _late(reconciler: Reconciler, head_start: int) -> None:
    for _ in range(head_start):
        await asyncio.sleep(0)  # sleep-ok: lets other tasks run
    try:
        await reconciler.reconcile(VM)
    except ApiError:
        return  # what one of them may meet; the runtime tries again


async def _both(world: ControllerWorld, head_start: int) -> None:
    """One pass of each, interleaved at every call, and then some more until both are content."""
    first = _reconciler(world)
    world.restart()
    second = _reconciler(world)
    for _ in range(3):
        await asyncio.gather(_late(first, 0), _late(second, head_start))


@pytest.mark.identity("3.3")
@pytest.mark.parametrize("head_start", range(8))
@pytest.mark.parametrize("backends", list(itertools.product(["this", "that"], repeat=2)))
async def test_two_leaders_create_one_machine(backends: tuple[str, str], head_start: int) -> None:
    world = ControllerWorld.ready(one={"backend": backends[0]}, two={"backend": backends[1]})
    await world.settle()
    world.add_vm()
    await _both(world, head_start)
    assert len(world.machines()) == 1
    await world.settle()
    assert len(world.vms()) == len(world.machines()) == 1
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("head_start", range(8))
async def test_two_leaders_find_the_same_machine_again(head_start: int) -> None:
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    world.add_vm()
    await world.settle()
    world.api.edit(VIRTUAL_MACHINES, VM, lambda it: it.pop("status"))
    await _both(world, head_start)
    await world.settle()
    assert len(world.vms()) == len(world.machines()) == 1


@pytest.mark.parametrize("head_start", range(8))
async def test_two_leaders_delete_one_machine(head_start: int) -> None:
    world = ControllerWorld.ready()
    world.add_vm()
    await world.settle()
    world.delete_vm()
    await _both(world, head_start)
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert not world.vms()
