"""The operator dies at every write, with the reply lost or never sent: no leak, no double."""

import pytest

from banlieue.api.resources import DEPLOYMENTS, PROVIDER_CLASSES, PROVIDERS
from banlieue.sdk.kube import Key
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import OperatorWorld

SIX = [
    "ClusterRoleBinding",
    "Deployment",
    "NetworkPolicy",
    "Role",
    "RoleBinding",
    "ServiceAccount",
]

each_way = pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "never sent"])


def world_with_class() -> OperatorWorld:
    world = OperatorWorld()
    world.add_backend(networkPolicy={})
    return world


def whole(world: OperatorWorld, key: Key, namespace: str = SYSTEM) -> bool:
    return (
        sorted(kind for kind, _ in world.made()) == SIX
        and world.deployment(key)["metadata"]["namespace"] == namespace
        and world.workload(key)["namespace"] == namespace
    )


@each_way
@pytest.mark.parametrize("write", range(1, 11))
async def test_while_it_makes_a_workload(write: int, *, lost: bool) -> None:
    world = world_with_class()
    world.crash_at(write, before_reply=lost)
    key = world.register()
    await world.settle()
    assert world.crashed == (write <= 9)
    assert whole(world, key)


@each_way
@pytest.mark.parametrize("write", range(1, 13))
async def test_while_it_moves_a_workload(write: int, *, lost: bool) -> None:
    world = world_with_class()
    key = world.register()
    await world.settle()
    world.crash_at(write, before_reply=lost)
    world.edit_backend(workloadNamespace="elsewhere")
    await world.settle()
    assert world.crashed == (write <= 10)
    assert whole(world, key, "elsewhere")


@each_way
@pytest.mark.parametrize("write", range(1, 10))
@pytest.mark.parametrize("where", [SYSTEM, "elsewhere"])
async def test_while_it_takes_a_workload_away(write: int, where: str, *, lost: bool) -> None:
    world = world_with_class()
    world.edit_backend(workloadNamespace=where)
    key = world.register()
    await world.settle()
    world.crash_at(write, before_reply=lost)
    world.api.drop(PROVIDERS, key)
    await world.settle()
    assert world.crashed == (write <= 8)
    assert world.provider(key) is None
    assert world.made() == set()


@each_way
async def test_at_every_write_of_a_whole_life(*, lost: bool) -> None:
    world = world_with_class()
    for write in range(1, 40):
        world.crash_at(write % 5 + 1, before_reply=lost)
        key = world.register(f"p{write}")
        await world.settle()
        world.crash_at(write % 7 + 1, before_reply=lost)
        world.edit_backend(workloadNamespace="elsewhere" if write % 2 else SYSTEM)
        await world.settle()
        assert whole(world, key, "elsewhere" if write % 2 else SYSTEM)
        world.crash_at(write % 8 + 1, before_reply=lost)
        world.api.drop(PROVIDERS, key)
        await world.settle()
        assert world.made() == set()
    assert world.restarts > 60


@each_way
async def test_a_class_that_goes_between_two_writes_tears_nothing_down(*, lost: bool) -> None:
    world = world_with_class()
    world.crash_at(3, before_reply=lost)
    key = world.register()
    await world.settle(seconds=0)
    world.api.drop(PROVIDER_CLASSES, Key("", "this"))
    before = world.made()
    await world.settle()
    assert before <= world.made()
    world.add_backend(networkPolicy={})
    await world.settle()
    assert whole(world, key)
    assert [Key.of(it) for it in world.api.peek_all(DEPLOYMENTS)] == [
        Key(SYSTEM, "banlieue-provider-this-prod")
    ]
