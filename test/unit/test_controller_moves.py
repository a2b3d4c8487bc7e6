"""Moves to another Provider, from the user's side: what starts one, what holds it, how it ends."""

from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import NAMESPACE, SYSTEM, THAT, THIS, ControllerWorld
from test.kit.fakeprovider import Vm

VM = Key(NAMESPACE, "db-1")
TO_TWO = {"name": "two", "namespace": SYSTEM}
TO_ONE = {"name": "one", "namespace": SYSTEM}
STATIC = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "static", "address": "10.0.0.7"}]}]


async def _running(**spec: Any) -> ControllerWorld:  # noqa: ANN401 - spec as users write it
    networks = {"capabilities": {"networkClasses": [{"name": "prod", "subnets": [SUBNET]}]}}
    world = ControllerWorld.ready(one=networks, two={"backend": "that", **networks})
    world.add_vm(providerRef=TO_ONE, **spec)
    await world.settle()
    assert world.condition("Ready")["status"] == "True", world.status()
    world.vms()[0].data = "marker"
    return world


SUBNET = {"cidr": "10.0.0.0/24", "allowStatic": ["10.0.0.0/25"]}


def _at(world: ControllerWorld, provider: str) -> list[Vm]:
    return next(it for it in world.providers if it.key.name == provider).vms


@pytest.mark.parametrize("nics", [[], STATIC], ids=["dhcp", "static"])
async def test_a_pin_to_another_provider_moves_the_machine(nics: list[Any]) -> None:
    world = await _running(networkInterfaces=nics)
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    status = world.status()
    assert status["scheduled"]["providerName"] == "two"
    assert status["infrastructureRef"]["name"] == "db-1-m1"
    assert status["previous"]["infrastructureRef"]["name"] == "db-1"
    assert "incomingRef" not in status
    assert "move" not in status
    assert status["phase"] == "Running"
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("PlacementValid")["status"] == "True"
    assert world.condition("Migrating") == {}
    (old,), (new,) = _at(world, "one"), _at(world, "two")
    assert (old.power, old.data) == ("PoweredOff", "marker")
    assert (new.power, new.incoming, new.epoch) == ("PoweredOn", False, 1)
    assert new.live
    reasons = world.recorder.reasons()
    assert EventReason.MIGRATION_STARTED in reasons
    assert EventReason.MIGRATION_COMPLETED in reasons
    assert EventReason.MOVED_BY_BACKEND not in reasons, "we moved it"
    assert EventReason.ADDRESS_LOST not in reasons


async def _moved(**spec: Any) -> ControllerWorld:  # noqa: ANN401 - spec as users write it
    world = await _running(**spec)
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    return world


async def test_a_machine_that_was_never_pinned_moves_when_it_is() -> None:
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    world.add_vm()
    await world.settle()
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"


async def test_removing_a_pin_never_moves() -> None:
    world = await _moved()
    world.edit_vm(providerRef=None)
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    assert world.condition("PlacementValid")["status"] == "True"


async def test_policy_manual_waits_for_the_word_and_uses_it_up() -> None:
    world = await _running(migrationPolicy="manual")
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.condition("PlacementValid")["reason"] == "MigrationNotApproved"
    assert "banlieue.io/migrate=true" in world.condition("PlacementValid")["message"]
    assert world.condition("Ready")["status"] == "True"
    assert len(world.vms()) == 1
    world.annotate(migrate="true")
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    assert (world.vm() or {})["metadata"].get("annotations", {}) == {}


async def test_policy_never_refuses_and_says_how_to_go_on() -> None:
    world = await _running(migrationPolicy="never")
    world.edit_vm(providerRef=TO_TWO)
    world.annotate(migrate="true")
    await world.settle()
    assert world.condition("PlacementValid")["reason"] == "MigrationRefused"
    assert world.condition("Ready")["status"] == "True"
    assert len(world.vms()) == 1
    world.edit_vm(providerRef=TO_ONE)
    await world.settle()
    assert world.condition("PlacementValid")["status"] == "True"


@pytest.mark.parametrize(
    ("disks", "ephemeral", "held"),
    [
        ([{"name": "data", "sizeGiB": 10}], False, True),
        ([{"name": "data", "sizeGiB": 10}], True, False),
        ([{"name": "data", "sizeGiB": 10, "reclaimPolicy": "Retain"}], True, True),
        ([{"name": "root", "reclaimPolicy": "Retain"}], False, True),
        ([], False, False),
    ],
)
async def test_data_that_would_stay_behind_holds_the_move(
    disks: list[Any], *, ephemeral: bool, held: bool
) -> None:
    world = await _running(disks=disks, ephemeral=ephemeral)
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    if held:
        assert world.condition("PlacementValid")["reason"] == "DataDisksAtRisk"
        assert disks[0]["name"] in world.condition("PlacementValid")["message"]
        assert [vm.power for vm in world.vms()] == ["PoweredOn"]
        world.annotate(accept_data_disk_loss="true")
        await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    assert (world.vm() or {})["metadata"].get("annotations", {}) == {}
    if not ephemeral:
        assert [vm.data for vm in _at(world, "one")] == ["marker"]


async def test_what_was_left_behind_is_kept_until_it_is_released() -> None:
    world = await _moved()
    await world.settle(seconds=1e7)
    assert [vm.power for vm in _at(world, "one")] == ["PoweredOff"]
    world.annotate(release_previous="true")
    await world.settle()
    assert _at(world, "one") == []
    assert len(_at(world, "two")) == len(world.machines()) == 1
    assert "previous" not in world.status()
    assert (world.vm() or {})["metadata"].get("annotations", {}) == {}
    assert EventReason.PREVIOUS_RELEASED in world.recorder.reasons()


async def test_a_word_to_release_given_too_early_destroys_nothing_later() -> None:
    world = await _running()
    world.annotate(release_previous="true")
    await world.settle()
    assert (world.vm() or {})["metadata"].get("annotations", {}) == {}
    world.edit_vm(providerRef=TO_TWO)
    await world.settle(seconds=1e6)
    assert [vm.data for vm in _at(world, "one")] == ["marker"]


async def test_a_retain_period_releases_by_itself() -> None:
    world = await _moved(retainPeriod="1h30m")
    until = world.status()["previous"]["until"]
    assert until > world.status()["previous"]["since"]
    world.clock.advance(3600)
    await world.settle(seconds=0)
    assert len(_at(world, "one")) == 1
    await world.settle(seconds=3600)
    assert _at(world, "one") == []
    assert "previous" not in world.status()


async def test_an_ephemeral_machine_keeps_nothing_behind() -> None:
    world = await _moved(ephemeral=True)
    assert _at(world, "one") == []
    assert "previous" not in world.status()


async def test_a_second_move_waits_until_the_first_ones_leavings_are_released() -> None:
    world = await _moved()
    world.add_provider("three")
    world.edit_vm(providerRef={"name": "three", "namespace": SYSTEM})
    await world.settle()
    assert world.condition("PlacementValid")["reason"] == "PreviousRetained"
    world.annotate(release_previous="true")
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "three"
    assert world.status()["infrastructureRef"]["name"] == "db-1-m2"


@pytest.mark.identity("8.4")
@pytest.mark.parametrize("nics", [[], STATIC], ids=["dhcp", "static"])
async def test_a_pin_to_where_it_came_from_rolls_back(nics: list[Any]) -> None:
    world = await _moved(networkInterfaces=nics)
    world.edit_vm(providerRef=TO_ONE)
    await world.settle()
    (old,), (new,) = _at(world, "one"), _at(world, "two")
    assert (old.power, old.data, old.epoch, old.incoming) == ("PoweredOn", "marker", 2, False)
    assert (new.power, new.epoch) == ("PoweredOff", 1)
    assert world.status()["infrastructureRef"]["name"] == "db-1"
    assert world.status()["previous"]["infrastructureRef"]["name"] == "db-1-m1"
    assert world.status()["scheduled"]["providerName"] == "one"
    assert world.condition("Ready")["status"] == "True"
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    assert _at(world, "two")[0].epoch == 3


@pytest.mark.parametrize("nics", [[], STATIC], ids=["dhcp", "static"])
async def test_a_new_machine_that_never_gets_ready_leaves_the_old_one_running(
    nics: list[Any],
) -> None:
    world = await _running(networkInterfaces=nics)
    world.providers[1].boots = False
    world.edit_vm(providerRef=TO_TWO)
    await world.settle(seconds=600)
    assert world.condition("Migrating")["status"] == "True"
    assert world.status()["phase"] == "Migrating"
    await world.settle(seconds=7200)
    assert world.condition("Migrating")["reason"] == "MigrationFailed"
    assert "set providerRef back" in world.condition("Migrating")["message"]
    assert world.condition("Ready")["status"] == "True"
    assert _at(world, "one")[0].live
    assert world.recorder.reasons().count(EventReason.MIGRATION_FAILED) == 1
    world.edit_vm(providerRef=TO_ONE)
    await world.settle()
    assert _at(world, "two") == []
    assert len(world.machines()) == 1
    assert "incomingRef" not in world.status()
    assert "move" not in world.status()
    assert world.condition("Migrating") == {}
    assert world.status()["phase"] == "Running"


async def test_a_switch_that_fails_brings_the_old_machine_back_and_is_not_tried_again() -> None:
    world = await _running(networkInterfaces=STATIC)
    _fails_when_plugged(world)
    world.edit_vm(providerRef=TO_TWO)
    await world.settle(seconds=300)
    assert world.condition("Ready")["reason"] == "Migrating"
    assert not _at(world, "one")[0].live
    await world.settle(seconds=7200)
    assert _at(world, "one")[0].live
    assert _at(world, "two") == []
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Migrating")["reason"] == "MigrationFailed"
    assert EventReason.MIGRATION_FAILED in world.recorder.reasons()
    await world.settle(seconds=1e5)
    assert len(world.machines()) == 1
    world.providers[1].trouble = lambda _: False
    world.annotate(migrate="true")
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    assert _at(world, "two")[0].live


def _fails_when_plugged(world: ControllerWorld) -> None:
    world.providers[1].trouble = lambda vm: vm.live


async def test_a_provider_that_cannot_take_part_in_moves_gets_none() -> None:
    world = await _running()
    world.api.edit(PROVIDERS, Key(SYSTEM, "two"), lambda it: it["status"].pop("specFeatures"))
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.condition("PlacementValid")["reason"] == "UnsupportedByProvider"
    assert len(world.machines()) == 1


async def test_no_room_at_the_target_moves_nothing_until_there_is() -> None:
    world = await _running()
    world.api.edit(PROVIDERS, Key(SYSTEM, "two"), lambda it: it["spec"].update(cordoned=True))
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.condition("PlacementValid")["status"] == "False"
    assert "cordoned" in world.condition("PlacementValid")["message"]
    assert world.condition("Ready")["status"] == "True"
    assert len(world.machines()) == 1
    world.api.edit(PROVIDERS, Key(SYSTEM, "two"), lambda it: it["spec"].update(cordoned=False))
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"


async def test_a_machine_moved_by_the_backends_own_means_is_taken_up_there() -> None:
    world = await _running()
    (vm,) = world.providers[0].vms
    world.providers[0].vms.clear()
    world.providers[1].vms.append(vm)
    await world.providers[0].step(VM)
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.vms() == [vm]
    assert (vm.power, vm.epoch, vm.data) == ("PoweredOn", 0, "marker")
    assert world.status()["infrastructureRef"]["kind"] == "ThatMachine"
    assert world.status()["scheduled"]["providerName"] == "two"
    assert world.status()["providerID"] == f"fake://{vm.uuid}"
    assert len(world.machines()) == 1
    assert "move" not in world.status()
    assert EventReason.MIGRATION_COMPLETED in world.recorder.reasons()


async def test_the_same_machine_on_both_sides_is_for_a_person_to_sort_out() -> None:
    world = await _running()
    world.providers[1].vms.append(world.providers[0].vms[0])
    world.providers[1].publish()
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.condition("PlacementValid")["reason"] == "OwnershipConflict"
    assert world.status()["scheduled"]["providerName"] == "one"
    assert world.machine() is not None


async def test_an_ephemeral_machine_moves_by_itself_when_its_place_is_not_valid_any_more() -> None:
    world = ControllerWorld.ready(
        one={"labels": {"tier": "a"}}, two={"labels": {"tier": "a"}, "backend": "that"}
    )
    for name, ephemeral in (("db-1", True), ("db-2", False)):
        selector = {"providerSelector": {"matchLabels": {"tier": "a"}}}
        world.add_vm(name, ephemeral=ephemeral, placement=selector)
        await world.settle()
    here = {name: world.status(name)["scheduled"]["providerName"] for name in ("db-1", "db-2")}
    place = Key(SYSTEM, here["db-1"])
    world.api.edit(PROVIDERS, place, lambda it: it["metadata"].pop("labels"))
    await world.settle()
    assert world.status("db-1")["scheduled"]["providerName"] != here["db-1"]
    assert world.condition("Ready", "db-1")["status"] == "True"
    assert "previous" not in world.status("db-1")
    assert world.status("db-2")["scheduled"]["providerName"] == here["db-2"]


async def test_a_machine_that_is_refused_is_placed_anew_at_the_target() -> None:
    world = ControllerWorld.ready(one={}, two={"backend": "that", "domains": ["a", "b"]})
    world.add_vm(providerRef=TO_ONE)
    await world.settle()
    world.providers[1].full = {"two-a"}
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.status()["scheduled"]["failureDomain"] == "two-b"
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("policy", ["Delete", "Orphan"])
@pytest.mark.parametrize("ready", [True, False])
async def test_a_deletion_takes_all_machines_of_a_move(policy: str, *, ready: bool) -> None:
    world = await _running(deletionPolicy=policy)
    world.providers[1].boots = ready
    world.edit_vm(providerRef=TO_TWO)
    await world.settle(seconds=60)
    assert len(world.machines()) == 2
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert len(world.vms()) == (2 if policy == "Orphan" else 0)


async def test_the_pause_reaches_every_machine_of_a_move() -> None:
    world = await _moved()
    world.edit_vm(paused=True)
    await world.settle()
    assert [it["spec"].get("paused") for it in world.machines()] == [True, True]
    world.edit_vm(paused=False)
    await world.settle()
    assert [it["spec"].get("paused") for it in world.machines()] == [None, None]


async def test_a_name_that_another_machine_has_is_not_taken() -> None:
    world = ControllerWorld.ready(one={}, two={})
    world.add_vm("db-1-m1", providerRef=TO_TWO)
    world.add_vm(providerRef=TO_ONE)
    await world.settle()
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    assert world.status()["infrastructureRef"]["name"] == "db-1-m2"
    assert world.condition("Ready", "db-1-m1")["status"] == "True"


@pytest.mark.parametrize("lost", ["status", "objects"])
async def test_after_a_move_the_right_machine_is_found_again(lost: str) -> None:
    world = await _moved()
    if lost == "status":
        world.api.edit(VIRTUAL_MACHINES, VM, lambda it: it.pop("status"))
    else:
        vm = world.vm() or {}
        world.api.drop(THIS, VM, force=True)
        world.api.drop(THAT, Key(NAMESPACE, "db-1-m1"), force=True)
        world.api.drop(VIRTUAL_MACHINES, VM, force=True)
        for provider in world.providers:
            provider.publish()
        world.add_vm(**vm["spec"])
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    assert world.status()["infrastructureRef"]["name"] == "db-1-m1"
    assert world.condition("Ready")["status"] == "True"
    assert [vm.power for vm in _at(world, "two")] == ["PoweredOn"]
    assert [vm.power for vm in _at(world, "one")] == ["PoweredOff"]
    if lost == "status":
        assert world.status()["previous"]["infrastructureRef"]["name"] == "db-1"


@pytest.mark.identity("8.3")
async def test_an_api_from_before_the_move_is_brought_up_to_date() -> None:
    world = await _running()
    before = world.api.backup()
    world.edit_vm(providerRef=TO_TWO)
    await world.settle()
    world.api.roll_back(before)
    world.restart()
    for provider in world.providers:
        provider.publish()
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "two"
    assert world.status()["previous"]["infrastructureRef"]["name"] == "db-1"
    assert [vm.power for vm in _at(world, "two")] == ["PoweredOn"]
    assert [vm.power for vm in _at(world, "one")] == ["PoweredOff"]
    # The pin that was restored is older than the move, so it asks for nothing.
    assert "after a restore" in world.condition("PlacementValid")["message"]
    world.annotate(migrate="true")
    await world.settle()
    assert world.status()["scheduled"]["providerName"] == "one"


async def test_an_ephemeral_machine_may_move_to_another_domain_of_its_provider() -> None:
    world = ControllerWorld.ready(one={"domains": ["a", "b"]})
    for_fast = {"failureDomainSelector": {"matchLabels": {"tier": "fast"}}}
    _label_domains(world, "one-a", "one-b")
    world.add_vm(ephemeral=True, placement=for_fast)
    await world.settle()
    here = world.status()["scheduled"]["failureDomain"]
    there = "one-b" if here == "one-a" else "one-a"
    _label_domains(world, there)
    await world.settle()
    assert world.status()["scheduled"]["failureDomain"] == there
    assert world.status()["infrastructureRef"]["name"] == "db-1-m1"
    assert [vm.domain for vm in world.vms()] == [there]
    assert world.condition("Ready")["status"] == "True"
    _label_domains(world)
    await world.settle()
    assert world.status()["scheduled"]["failureDomain"] == there
    assert world.condition("PlacementValid")["reason"] == "FailureDomainChanged"
    assert "not built anew elsewhere" in world.condition("PlacementValid")["message"]


def _label_domains(world: ControllerWorld, *fast: str) -> None:
    def change(obj: Obj) -> None:
        for domain in obj["status"]["failureDomains"]:
            domain["labels"] = {"tier": "fast"} if domain["name"] in fast else {}

    world.api.edit(PROVIDERS, Key(SYSTEM, "one"), change)


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_machine_that_moves_counts_in_both_places(*, restarted: bool) -> None:
    world = await _running()
    world.providers[1].boots = False
    world.edit_vm(providerRef=TO_TWO)
    await world.settle(seconds=60)
    if restarted:
        world.restart()
        await world.settle(seconds=60)
    ledger = world.role.services.ledger
    assert {place.provider.name for place in ledger.places(VM)} == {"one", "two"}
    world.edit_vm(providerRef=TO_ONE)
    await world.settle()
    assert {place.provider.name for place in ledger.places(VM)} == {"one"}
