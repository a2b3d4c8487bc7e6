"""What a ProviderClass says of itself: its Providers, and whether its kinds are there."""

from typing import Any

from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS
from banlieue.sdk.kube import ApiError, Forbidden, Key, NotFound
from banlieue.sdk.testing.memory_api import Call, Hook, Moment
from test.kit.operatorworld import OperatorWorld

CLASS = Key("", "this")


def status(world: OperatorWorld) -> dict[str, Any]:
    found = (world.api.peek(PROVIDER_CLASSES, CLASS) or {}).get("status") or {}
    return dict(found)


def ready(world: OperatorWorld) -> tuple[str, str]:
    (condition,) = status(world)["conditions"]
    return condition["status"], condition["reason"]


def answering(error: ApiError) -> Hook:
    def hook(call: Call, moment: Moment) -> None:
        if call.resource.kind == "ThisMachine" and moment is Moment.BEFORE:
            raise error

    return hook


async def test_a_class_counts_its_providers() -> None:
    world = OperatorWorld()
    world.add_backend()
    world.add_backend(called="other")
    keys = [world.register(name) for name in ("one", "two", "three")]
    await world.settle()
    assert status(world)["providerCount"] == 3
    assert status(world)["observedGeneration"] == 1
    assert ready(world) == ("True", "Ready")
    world.edit_provider(keys[0], providerClassRef={"name": "other"})
    world.api.drop(PROVIDERS, keys[1])
    await world.settle()
    assert status(world)["providerCount"] == 1


async def test_kinds_that_are_not_installed_are_told_until_they_are() -> None:
    world = OperatorWorld()
    come = world.api.intercept(answering(NotFound(404, "NotFound", "no such kind")))
    world.add_backend()
    await world.settle(seconds=70)
    assert ready(world) == ("False", "KindNotInstalled")
    before = len(world.api.writes())
    await world.settle(seconds=200)
    assert len(world.api.writes()) == before
    come()
    await world.settle(seconds=70)
    assert ready(world) == ("True", "Ready")


async def test_kinds_that_may_not_be_looked_at_are_not_known() -> None:
    world = OperatorWorld()
    world.api.intercept(answering(Forbidden(403, "Forbidden", "no")))
    world.add_backend()
    await world.settle(seconds=10)
    assert ready(world) == ("Unknown", "NotObserved")
