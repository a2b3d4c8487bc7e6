"""A VMImage is Ready where one Provider can use it; rows of dead Providers go."""

from banlieue.api.resources import PROVIDERS, VM_IMAGES
from banlieue.sdk.kube import Key
from test.kit.controllerworld import SYSTEM, ControllerWorld

IMAGE = Key("", "ubuntu")


def _status(world: ControllerWorld) -> dict[str, object]:
    return (world.api.peek(VM_IMAGES, IMAGE) or {}).get("status") or {}


def _ready(world: ControllerWorld) -> tuple[str, str, str]:
    conditions = _status(world)["conditions"]
    assert isinstance(conditions, list)
    (ready,) = conditions
    return ready["status"], ready["reason"], ready["message"]


def _row(name: str, **changes: object) -> dict[str, object]:
    return {"providerNamespace": SYSTEM, "providerName": name, "ready": False, **changes}


async def test_usable_somewhere_is_ready_and_the_count_says_how_often() -> None:
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["status"]["perProvider"].pop())
    await world.settle()
    assert _ready(world) == ("True", "Ready", "")
    assert _status(world)["readyProviders"] == "1/2"
    writes = len(world.api.writes())
    world.restart()
    await world.settle()
    assert len(world.api.writes()) == writes


async def test_what_providers_say_is_in_the_message() -> None:
    world = ControllerWorld.ready(one={}, two={})
    rows = [
        _row("one", reason="ImageNotAvailable", message="no template t"),
        _row("two", reason="Importing", progressPercent=40),
    ]
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["status"].update(perProvider=rows))
    await world.settle()
    status, reason, message = _ready(world)
    assert (status, reason) == ("False", "ImageNotReady")
    assert "one: no template t" in message
    assert "two: Importing" in message
    assert _status(world)["progress"] == "40%"


async def test_rows_of_dead_providers_are_removed_and_others_kept() -> None:
    world = ControllerWorld.ready(one={}, two={})
    await world.settle()
    assert _status(world)["readyProviders"] == "2/2"
    world.api.drop(PROVIDERS, Key(SYSTEM, "two"))
    await world.settle()
    rows = _status(world)["perProvider"]
    assert rows == [_row("one", ready=True)]
    assert _status(world)["readyProviders"] == "1/1"


async def test_an_image_no_provider_can_ever_have_says_what_to_do() -> None:
    world = ControllerWorld.ready()
    world.add_image("odd", sources=[{"providerClass": "other", "kind": "Template", "ref": "t"}])
    await world.settle()
    conditions = (world.api.peek(VM_IMAGES, Key("", "odd")) or {})["status"]["conditions"]
    assert conditions[0]["reason"] == "ImageSourceMissing"
    assert "other" in conditions[0]["message"]
