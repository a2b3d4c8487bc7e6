"""Namespaces that hold a Provider with machines are labelled, and others are not."""

import pytest

from banlieue.api import names
from banlieue.api.resources import NAMESPACES, PROVIDERS
from banlieue.sdk.kube import Key
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import OperatorWorld


def labelled(world: OperatorWorld) -> list[str]:
    return [
        obj["metadata"]["name"]
        for obj in world.api.peek_all(NAMESPACES)
        if (obj["metadata"].get("labels") or {}).get(names.LABEL_IN_USE) == "true"
    ]


async def test_a_namespace_is_labelled_while_one_of_its_providers_is_in_use() -> None:
    world = OperatorWorld()
    world.add_backend()
    keys = [world.register(name, "elsewhere") for name in ("one", "two")]
    await world.settle()
    assert labelled(world) == []
    for key in keys:
        world.use(key)
    await world.settle()
    assert labelled(world) == ["elsewhere"]
    world.use(keys[0], used=False)
    await world.settle()
    assert labelled(world) == ["elsewhere"]
    world.use(keys[1], used=False)
    await world.settle()
    assert labelled(world) == []


async def test_other_labels_stay() -> None:
    world = OperatorWorld()
    world.add_backend()
    tenant = Key("", "tenant")
    world.api.put(NAMESPACES, {"metadata": {"name": "tenant", "labels": {"team": "a"}}})
    key = world.register("one", "tenant")
    world.use(key)
    await world.settle()
    found = world.api.peek(NAMESPACES, tenant) or {}
    assert found["metadata"]["labels"] == {"team": "a", names.LABEL_IN_USE: "true"}
    world.use(key, used=False)
    await world.settle()
    found = world.api.peek(NAMESPACES, tenant) or {}
    assert found["metadata"]["labels"] == {"team": "a"}


async def test_a_label_that_was_taken_off_comes_back() -> None:
    world = OperatorWorld()
    key = world.register()
    world.use(key)
    await world.settle()
    world.api.edit(NAMESPACES, Key("", SYSTEM), lambda obj: obj["metadata"].pop("labels"))
    await world.settle()
    assert labelled(world) == [SYSTEM]


async def test_who_gives_the_machines_up_is_not_overruled() -> None:
    world = OperatorWorld()
    key = world.register()
    world.use(key)
    await world.settle()
    given_up = {names.LABEL_IN_USE: "false"}
    world.api.edit(NAMESPACES, Key("", SYSTEM), lambda obj: obj["metadata"].update(labels=given_up))
    await world.settle()
    assert labelled(world) == []
    world.use(key, used=False)
    await world.settle()
    assert (world.api.peek(NAMESPACES, Key("", SYSTEM)) or {})["metadata"].get("labels") == {}


async def test_a_label_nobody_needs_goes_at_the_next_start() -> None:
    world = OperatorWorld()
    key = world.register()
    world.use(key)
    await world.settle()
    world.api.drop(PROVIDERS, key, force=True)
    world.restart()
    await world.settle()
    assert labelled(world) == []


@pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "never sent"])
async def test_a_crash_at_the_write_changes_nothing(*, lost: bool) -> None:
    world = OperatorWorld()
    key = world.register()
    await world.settle()
    world.crash_at(1, before_reply=lost)
    world.use(key)
    await world.settle()
    assert world.crashed
    assert labelled(world) == [SYSTEM]
