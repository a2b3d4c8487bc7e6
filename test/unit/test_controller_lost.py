"""Objects that a restore of an older backup takes away do not have their VMs made a second time."""

from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.controller.scheduling.placement import Claim, Place, Placed, Unplaced
from banlieue.controller.scheduling.placing import place
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import NAMESPACE, SYSTEM, THIS, ControllerWorld
from test.kit.scheduling import demand, site

VM = Key(NAMESPACE, "db-1")
ONE, TWO = Key(SYSTEM, "one"), Key(SYSTEM, "two")


async def _on_one() -> ControllerWorld:
    """A VM on Provider one, which the scheduler would not choose any more."""
    world = ControllerWorld.ready(one={}, two={})
    world.add_vm()
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "one"
    world.api.edit(PROVIDERS, ONE, lambda obj: obj["spec"].update(cordoned=True))
    for provider in world.providers:
        provider.reports = False  # slow to tell what vanished
    return world


def _roll_back(world: ControllerWorld) -> None:
    """Both objects were made after the backup."""
    world.api.drop(THIS, VM, force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)


@pytest.mark.identity("12.2")
async def test_a_new_object_of_a_lost_name_goes_where_the_lost_one_was() -> None:
    world = await _on_one()
    (vm,) = world.vms()
    _roll_back(world)
    await world.settle()
    world.add_vm()
    await world.settle()
    assert [it.uuid for it in world.vms()] == [vm.uuid]
    assert world.status()["scheduled"]["providerName"] == "one"
    assert world.condition("Ready")["status"] == "True"


async def test_it_does_not_help_to_wait_while_its_provider_is_not_served() -> None:
    world = await _on_one()
    (vm,) = world.vms()
    stored = (world.api.peek(PROVIDERS, ONE) or {})["status"]["conditions"]

    def fail(obj: Obj) -> None:
        obj["status"]["conditions"] = [{**it, "status": "False"} for it in stored]

    world.api.edit(PROVIDERS, ONE, fail)
    _roll_back(world)
    world.clock.advance(3600)
    world.add_vm()
    await world.settle()
    assert [it.uuid for it in world.vms()] == [vm.uuid]


async def test_after_a_while_the_providers_know_better() -> None:
    """The VM was removed, too, and the Provider said so."""
    world = await _on_one()
    _roll_back(world)
    world.providers[0].vms.clear()
    world.clock.advance(3600)
    world.add_vm()
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"


@pytest.mark.parametrize("policy", ["Delete", "Orphan"])
async def test_what_its_user_deleted_binds_nobody(policy: str) -> None:
    world = await _on_one()
    world.edit_vm(deletionPolicy=policy)
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    world.add_vm()
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"


async def test_a_provider_that_is_gone_binds_nobody() -> None:
    world = await _on_one()
    _roll_back(world)
    world.api.drop(PROVIDERS, ONE, force=True)
    world.add_vm()
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"


@pytest.mark.identity("12.3")
async def test_a_new_owner_waits_for_a_provider_that_is_being_read_anew() -> None:
    world = ControllerWorld.ready(one={}, two={})
    await world.settle()
    _doubt(world, complete=False)
    world.providers[1].reports = False
    world.add_vm()
    await world.settle()
    assert world.condition("Scheduled")["reason"] == Reason.RECOVERY_PENDING
    assert f"{TWO}" in world.condition("Scheduled")["message"]
    assert not world.machines()
    assert EventReason.SCHEDULING_FAILED in world.recorder.reasons()
    _doubt(world, complete=True)
    await world.settle()
    assert world.condition("Ready")["status"] == "True"


def _doubt(world: ControllerWorld, *, complete: bool) -> None:
    world.api.edit(PROVIDERS, TWO, lambda obj: obj["status"]["unclaimed"].update(complete=complete))


# The rule itself


def _place(*sites: Any, **more: Any) -> Placed | Unplaced:  # noqa: ANN401 - as `place` takes them
    return place(demand(), sites, [], **more)


def test_a_provider_that_cannot_be_read_keeps_nobody_waiting() -> None:
    assert isinstance(_place(site("one"), site("two", complete=False, ready=False)), Placed)
    assert isinstance(_place(site("one"), site("two", complete=False, told=False)), Placed)
    assert isinstance(_place(site("one"), site("two", complete=False, allowed=False)), Placed)
    waiting = _place(site("one"), site("two", complete=False))
    assert isinstance(waiting, Unplaced)
    assert waiting.reason is Reason.RECOVERY_PENDING


@pytest.mark.identity("12.4")
def test_in_recovery_only_what_was_read_since_counts() -> None:
    stale = _place(site("one"), site("two", recovering=False), recovery=True)
    assert isinstance(stale, Unplaced)
    assert stale.reason is Reason.RECOVERY_PENDING
    assert isinstance(_place(site("one"), site("two"), recovery=True), Placed)


def test_what_was_placed_before_waits_for_nobody() -> None:
    where = Place(Key("system", "one"), "one-a")
    found = _place(site("one"), site("two", complete=False), before=where)
    assert found == Placed(where)


def test_what_a_provider_tells_beats_what_is_remembered() -> None:
    digest = demand().digest
    traces = {Key("system", "two"): [Claim(digest)]}
    told = _place(site("one", claims=(Claim(digest, 1),)), site("two"), traces=traces)
    assert isinstance(told, Placed)
    assert (told.place.provider.name, told.epoch) == ("one", 1)
    remembered = _place(site("one"), site("two"), traces={Key("system", "two"): [Claim(digest, 3)]})
    assert isinstance(remembered, Placed)
    assert (remembered.place.provider.name, remembered.epoch) == ("two", 3)
