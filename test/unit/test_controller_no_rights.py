"""A kind of machines on which the controller has no rights is told of, and stops nobody else.

So it is where a third party's CustomResourceDefinition and ProviderClass were applied without the
ClusterRole, or where that was lost.
"""

from collections.abc import Callable

import pytest

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS, VIRTUAL_MACHINES, VM_IMAGES
from banlieue.controller.infra.kinds import STEADY_SECONDS
from banlieue.sdk.kube import Forbidden, Key
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import NAMESPACE, SYSTEM, THAT, THIS, ControllerWorld

READY = ("True", "Ready")


def take_rights(world: ControllerWorld, kind: Resource = THAT) -> Callable[[], None]:
    """Every call about the kind is refused from now on; the answer gives the rights back."""

    def refuse(call: Call, moment: Moment) -> None:
        if call.resource == kind and moment is Moment.BEFORE and world._running is not None:
            raise Forbidden(403, "Forbidden", f"cannot {call.verb} {kind.plural}")

    return world.api.intercept(refuse)


def use(world: ControllerWorld, name: str, *, held: bool = True) -> None:
    """The provider has taken itself in use, as it does before the first VM."""
    kept = [names.FINALIZER_PROVIDER_IN_USE] if held else []
    world.api.edit(PROVIDERS, Key(SYSTEM, name), lambda it: it["metadata"].update(finalizers=kept))


def ready(world: ControllerWorld, name: str) -> tuple[str, str]:
    told = world.condition("Ready", name)
    return told.get("status", ""), told.get("reason", "")


@pytest.fixture
def world() -> ControllerWorld:
    """Two backends; the second one's kind is `THAT`."""
    return ControllerWorld.ready(one={}, two={"backend": "that"})


async def test_others_are_placed_made_and_deleted_and_the_class_says_what_is_missing(
    world: ControllerWorld,
) -> None:
    world.add_vm("before", providerRef={"namespace": SYSTEM, "name": "one"})
    await world.settle()
    give_back = take_rights(world)
    world.restart()
    world.add_vm("after", providerRef={"namespace": SYSTEM, "name": "one"})
    world.delete_vm("before")
    world.add_vm("there", providerRef={"namespace": SYSTEM, "name": "two"})
    await world.settle(seconds=120.0)
    assert ready(world, "after") == READY
    assert world.vm("before") is None
    assert ready(world, "there") == ("False", "MachineKindForbidden")
    message = world.condition("InfrastructureReady", "there")["message"]
    assert THAT.plural in message
    assert "aggregate-to-controller" in message
    told = {it.key for it in world.recorder.events if it.reason == "KindForbidden"}
    assert told == {Key("", "that")}
    give_back()
    await world.settle(seconds=120.0)
    assert ready(world, "there") == READY


async def test_while_it_may_have_a_machine_of_that_kind_nothing_is_made_elsewhere(
    world: ControllerWorld,
) -> None:
    """A restore without status: the machine object is there, and must be found, not doubled."""
    world.add_vm(placement={"providerSelector": {"matchLabels": {"at": "two"}}})
    world.api.edit(
        PROVIDERS, Key(SYSTEM, "two"), lambda it: it["metadata"].update(labels={"at": "two"})
    )
    await world.settle()
    (machine,) = world.api.peek_all(THAT)
    use(world, "two")
    give_back = take_rights(world)
    world.restart()
    world.api.edit(
        VIRTUAL_MACHINES,
        Key(NAMESPACE, "db-1"),
        lambda it: (it.pop("status"), it["spec"].pop("placement")),
    )
    await world.settle(seconds=100.0)
    assert world.api.peek_all(THIS) == []
    assert ready(world, "db-1") == ("False", "MachineKindForbidden")
    assert world.status()["phase"] == "Pending"
    give_back()
    await world.settle(seconds=120.0)
    assert ready(world, "db-1") == READY
    assert world.machines() == world.api.peek_all(THAT)
    assert world.machines()[0]["metadata"]["uid"] == machine["metadata"]["uid"]


async def test_its_deletion_waits_for_the_rights(world: ControllerWorld) -> None:
    world.add_vm(providerRef={"namespace": SYSTEM, "name": "two"})
    await world.settle()
    use(world, "two")
    give_back = take_rights(world)
    world.restart()
    world.delete_vm()
    await world.settle(seconds=120.0)
    assert world.condition("Deleting")["reason"] == "MachineKindForbidden"
    assert len(world.api.peek_all(THAT)) == 1
    give_back()
    await world.settle(seconds=120.0)
    assert world.vm() is None
    assert world.machines() == []


async def test_a_moment_without_rights_is_no_reason_to_go_on_without_a_kind(
    world: ControllerWorld,
) -> None:
    """An API server that just started refuses everybody until it has read its roles."""
    world.add_vm("first", providerRef={"namespace": SYSTEM, "name": "one"})
    await world.settle()
    take_rights(world)
    world.restart()
    world.add_vm("second", providerRef={"namespace": SYSTEM, "name": "one"})
    await world.settle(seconds=STEADY_SECONDS / 2)
    assert not world.machine("second")
    await world.settle(seconds=60.0)
    assert ready(world, "second") == READY


async def test_an_installation_is_not_named_anew_while_machines_cannot_be_read(
    world: ControllerWorld,
) -> None:
    """They may carry its id; with another one all their VMs would be somebody else's."""
    world.add_vm(providerRef={"namespace": SYSTEM, "name": "two"})
    await world.settle()
    installation = (world.installation or {})["data"]["id"]
    world.api.edit(
        THAT,
        Key(NAMESPACE, "db-1"),
        lambda it: it["spec"].update(
            instance={**it["spec"]["instance"], "installationID": installation}
        ),
    )
    give_back = take_rights(world)
    world.restart()
    world.api.drop(CONFIG_MAPS, Key(SYSTEM, names.INSTALLATION_CONFIG_MAP), force=True)
    await world.settle(seconds=120.0)
    assert world.installation is None
    give_back()
    await world.settle(seconds=600.0)
    made = world.api.peek(CONFIG_MAPS, Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)) or {}
    assert made["data"]["id"] == installation


@pytest.mark.parametrize("held", [True, False], ids=["in-use", "never-used"])
async def test_an_image_goes_only_when_nothing_can_be_made_from_it(
    world: ControllerWorld,
    held: bool,  # noqa: FBT001 - a parameter
) -> None:
    await world.settle()
    use(world, "two", held=held)
    take_rights(world)
    world.restart()
    # Where the cache does not hold the kind, it is read live.
    kinds = world.role.services.kinds
    synced = kinds.cache.synced
    world.role.services.ctx.cache.synced = lambda *of: THAT not in of and synced(*of)  # type: ignore[method-assign]
    world.api.drop(VM_IMAGES, Key("", "ubuntu"))
    await world.settle(seconds=120.0)
    found = world.api.peek(VM_IMAGES, Key("", "ubuntu"))
    assert (found is not None) == held
    if found:
        told = {it["type"]: it["reason"] for it in found["status"]["conditions"]}
        assert told["Deleting"] == "MachineKindForbidden"
