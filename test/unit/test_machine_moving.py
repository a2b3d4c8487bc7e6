"""Moves as a machine's provider sees them: roles in spec, marks on the backend."""

from collections.abc import Callable

import pytest

from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner, may_replace
from banlieue.sdk.kube import Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import OFF, ON, SUSPENDED
from test.kit.machinebench import MACHINE, NAMESPACE, MachineBench
from test.kit.movebench import (
    NEXT,
    OWNER,
    in_move,
    make_next,
    mark_of,
    moved,
    role,
    stage,
    told,
    vm_of,
)


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


# Roles


async def test_a_machine_that_never_moved_tells_epoch_0(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    assert stage(vm_of(bench)) == (0, False)
    assert told(bench) == role(0, "Current")


@pytest.mark.identity("8.1")
async def test_an_incoming_machine_is_a_vm_of_its_own_epoch(bench: MachineBench) -> None:
    await in_move(bench)
    first, second = vm_of(bench), vm_of(bench, NEXT)
    assert (stage(first), stage(second)) == ((0, False), (1, True))
    assert second.name == f"{first.name}-1"
    assert told(bench, NEXT) == role(1, "Incoming")
    assert (first.power, second.power) == (ON, ON)
    assert bench.condition("Ready", NEXT) == ("True", "Ready")


@pytest.mark.identity("8.1")
async def test_an_incoming_machine_is_found_again_by_its_epoch(bench: MachineBench) -> None:
    await in_move(bench)
    uuid = vm_of(bench, NEXT).uuid
    bench.delete(NEXT, mode="Release")
    await bench.run(NEXT)
    bench.restart()
    make_next(bench)
    await bench.run(NEXT)
    assert bench.machine(NEXT)["spec"]["instance"]["uuid"] == uuid
    assert len(bench.vms()) == 2


@pytest.mark.identity("8.2")
async def test_a_commit_clears_incoming_and_changes_nothing_else(bench: MachineBench) -> None:
    await in_move(bench)
    before = vm_of(bench, NEXT).model_copy(deep=True)
    bench.edit(NEXT, move=role(1, "Current"))
    await bench.run(NEXT)
    after = vm_of(bench, NEXT)
    assert stage(after) == (1, False)
    assert told(bench, NEXT) == role(1, "Current")
    assert after.model_copy(update={"mark": before.mark}) == before
    assert bench.condition("Ready", NEXT) == ("True", "Ready")


async def test_what_a_move_left_behind_is_told_once_it_was_seen_off(bench: MachineBench) -> None:
    await in_move(bench)
    bench.control("hang_guest", vm=vm_of(bench).id)
    bench.edit(move=role(0, "Previous"), powerState="PoweredOff", powerOffTimeoutSeconds=60)
    await bench.reconciler.reconcile(MACHINE)
    assert told(bench) == role(0, "Current")
    assert vm_of(bench).power == ON
    bench.clock.advance(61)
    await bench.run()
    await bench.run()
    assert vm_of(bench).power == OFF
    assert told(bench) == role(0, "Previous")
    assert stage(vm_of(bench)) == (0, False)
    assert bench.condition("Ready") == ("True", "Ready")


async def test_what_a_move_left_behind_is_off_whatever_its_power_state_says(
    bench: MachineBench,
) -> None:
    await in_move(bench)
    bench.edit(move=role(0, "Previous"), restartAt="2026-01-02T00:00:00Z")
    bench.clock.advance(7 * 86400)
    await bench.run()
    await bench.run()
    assert vm_of(bench).power == OFF


async def test_what_a_move_left_behind_is_never_woken_to_be_shut_down(
    bench: MachineBench,
) -> None:
    await in_move(bench)
    bench.control("set_power", vm=vm_of(bench).id, power=SUSPENDED)
    calls = bench.control("calls")
    assert isinstance(calls, dict)
    before = calls.get("power_on", 0)
    bench.edit(move=role(0, "Previous"), powerState="PoweredOff", powerOffMode="TrySoft")
    await bench.run()
    bench.clock.advance(100)
    await bench.run()
    assert vm_of(bench).power == OFF
    calls = bench.control("calls")
    assert isinstance(calls, dict)
    assert calls.get("power_on", 0) == before


async def test_what_a_move_left_behind_keeps_its_hardware_and_data(bench: MachineBench) -> None:
    disks = [{"name": "root", "storageClass": "fast"}]
    bench.make_machine(disks=[*disks, {"name": "data", "sizeGiB": 1, "storageClass": "fast"}])
    await bench.run()
    make_next(bench)
    await bench.run(NEXT)
    bench.control("write_disk", vm=vm_of(bench).id, disk="data", content="marker-4711")
    bench.edit(NEXT, move=role(1, "Current"))
    await bench.run(NEXT)
    bench.edit(
        move=role(0, "Previous"),
        powerState="PoweredOff",
        cpus=8,
        disks=[{"name": "root", "sizeGiB": 50, "storageClass": "fast"}],
        networkInterfaces=[{"name": "eth0", "networkClass": "lan", "connected": False}],
    )
    before = vm_of(bench).model_copy(deep=True)
    await bench.run()
    bench.clock.advance(100)
    await bench.run()
    after = vm_of(bench)
    assert after.power == OFF
    assert (after.cpus, after.disks, after.nics) == (before.cpus, before.disks, before.nics)
    assert {disk.name: disk.content for disk in after.disks}["data"] == "marker-4711"


async def test_what_a_move_left_behind_is_stopped_without_its_classes(bench: MachineBench) -> None:
    await in_move(bench)
    bench.edit(
        move=role(0, "Previous"),
        powerState="PoweredOff",
        networkInterfaces=[{"name": "eth0", "networkClass": "gone"}],
        disks=[{"name": "root", "storageClass": "gone"}],
    )
    await bench.run()
    assert vm_of(bench).power == OFF


async def test_what_a_move_left_behind_is_never_made_again(bench: MachineBench) -> None:
    await moved(bench)
    bench.control("remove", vm=vm_of(bench).id)
    await bench.run()
    bench.restart()
    await bench.run()
    assert len(bench.vms()) == 1
    assert bench.condition("Ready") == ("False", "VMMissing")


@pytest.mark.parametrize("lost", ["providerID", "instance"])
async def test_what_a_move_left_behind_is_not_even_minted(bench: MachineBench, lost: str) -> None:
    await moved(bench)
    bench.control("remove", vm=vm_of(bench).id)

    def forget(obj: Obj) -> None:
        obj["spec"].pop("providerID", None)
        obj["spec"].pop(lost, None)

    bench.api.edit(SIMULATED_MACHINES, MACHINE, forget)
    bench.restart()
    await bench.run()
    assert len(bench.vms()) == 1
    assert ("instance" in bench.machine()["spec"]) == (lost == "providerID")


@pytest.mark.parametrize(("policy", "power"), [("Correct", OFF), ("Report", ON)])
async def test_what_a_move_left_behind_is_stopped_again_unless_told_otherwise(
    bench: MachineBench, policy: str, power: str
) -> None:
    await moved(bench)
    bench.edit(driftPolicy={"power": policy})
    await bench.run()
    bench.control("set_power", vm=vm_of(bench).id, power=ON)
    await bench.run()
    bench.clock.advance(31)
    await bench.run()
    await bench.run()
    assert vm_of(bench).power == power
    assert told(bench) == role(0, "Previous")


@pytest.mark.identity("8.4")
async def test_a_rollback_gives_the_old_vm_the_next_epoch_and_its_old_name(
    bench: MachineBench,
) -> None:
    await moved(bench)
    name = vm_of(bench).name
    bench.edit(move=role(2, "Incoming"), powerState="PoweredOn")
    await bench.run()
    assert stage(vm_of(bench)) == (2, True)
    assert told(bench) == role(2, "Incoming")
    assert vm_of(bench).power == ON
    bench.edit(move=role(2, "Current"))
    await bench.run()
    bench.edit(NEXT, move=role(1, "Previous"), powerState="PoweredOff")
    await bench.run(NEXT)
    assert (stage(vm_of(bench)), stage(vm_of(bench, NEXT))) == ((2, False), (1, False))
    assert (told(bench), told(bench, NEXT)) == (role(2, "Current"), role(1, "Previous"))
    assert (vm_of(bench).power, vm_of(bench, NEXT).power) == (ON, OFF)
    assert vm_of(bench).name == name
    assert bench.condition("Ready") == ("True", "Ready")


# Marks that are not ours to change


def foreign_marks() -> dict[str, Callable[[Mark], Mark]]:
    stranger = Owner("installation-1", OWNER_VIRTUAL_MACHINE, "team-b", "db-1")
    elsewhere = Owner("installation-2", OWNER_VIRTUAL_MACHINE, NAMESPACE, "db-1")
    return {
        "another namespace": lambda mark: Mark(stranger, mark.uuid, mark.epoch),
        "another installation": lambda mark: Mark(elsewhere, mark.uuid, mark.epoch),
        "another UUID": lambda mark: Mark(mark.owner, "11111111-1111-4111-8111-111111111111", 0),
        "a later epoch, incoming": lambda mark: Mark(mark.owner, mark.uuid, 7, incoming=True),
    }


@pytest.mark.identity("0.4")
@pytest.mark.parametrize("kind", foreign_marks())
async def test_a_mark_of_somebody_else_is_never_rewritten(bench: MachineBench, kind: str) -> None:
    await in_move(bench)
    vm = vm_of(bench, NEXT)
    other = foreign_marks()[kind](mark_of(vm)).encode()
    bench.control("set_mark", vm=vm.id, mark=other)
    bench.edit(NEXT, move=role(1, "Current"), powerState="PoweredOff", cpus=4)
    before = vm_of(bench, NEXT).model_copy(deep=True)
    await bench.run(NEXT)
    bench.clock.advance(400)
    await bench.run(NEXT)
    assert vm_of(bench, NEXT) == before
    assert bench.condition("Ready", NEXT) == ("False", "OwnershipConflict")


async def test_a_vm_without_a_mark_gets_none_by_a_move(bench: MachineBench) -> None:
    await in_move(bench)
    vm = vm_of(bench, NEXT)
    bench.control("set_mark", vm=vm.id, mark=None)
    bench.edit(NEXT, move=role(1, "Current"))
    await bench.run(NEXT)
    assert vm_of(bench, NEXT).mark is None
    assert bench.condition("Ready", NEXT) == ("False", "OwnershipConflict")


async def test_nothing_becomes_incoming_again_by_itself(bench: MachineBench) -> None:
    await moved(bench)
    bench.edit(NEXT, move=role(1, "Incoming"))
    await bench.run(NEXT)
    assert stage(vm_of(bench, NEXT)) == (1, False)
    assert bench.condition("Ready", NEXT) == ("False", "OwnershipConflict")
    assert told(bench, NEXT) == role(1, "Current"), "nobody could find out what happened"


async def test_a_restored_object_of_before_the_rollback_changes_nothing(
    bench: MachineBench,
) -> None:
    await moved(bench)
    behind = bench.machine()["spec"]
    bench.edit(move=role(2, "Incoming"), powerState="PoweredOn")
    await bench.run()
    bench.edit(move=role(2, "Current"))
    await bench.run()
    vm = vm_of(bench).model_copy(deep=True)
    bench.edit(**behind)
    bench.restart()
    await bench.run()
    assert vm_of(bench) == vm
    assert bench.condition("Ready")[0] == "False"
    assert told(bench) == role(2, "Current")


async def test_a_vm_of_the_same_epoch_stops_a_mark(bench: MachineBench) -> None:
    await moved(bench)
    bench.edit(move=role(1, "Incoming"))
    before = vm_of(bench).model_copy(deep=True)
    await bench.run()
    assert vm_of(bench) == before
    assert bench.condition("Ready") == ("False", "OwnershipConflict")


def test_which_marks_may_follow_each_other() -> None:
    def mark(epoch: int, *, incoming: bool = False) -> Mark:
        return Mark(OWNER, "u-1", epoch, incoming=incoming)

    allowed = [
        (mark(0), mark(0)),
        (mark(0), mark(1)),
        (mark(0), mark(2, incoming=True)),
        (mark(1, incoming=True), mark(1)),
        (mark(1, incoming=True), mark(1, incoming=True)),
        (mark(1, incoming=True), mark(2)),
        (Mark(OWNER, "U-1"), mark(0)),
    ]
    refused = [
        (mark(1), mark(1, incoming=True)),
        (mark(1), mark(0)),
        (mark(2, incoming=True), mark(1)),
        (mark(2, incoming=True), mark(1, incoming=True)),
        (Mark(OWNER, "u-2"), mark(1)),
        (Mark(Owner("i", "VirtualMachine", "n", "m"), "u-1"), mark(1)),
        (None, mark(1)),
    ]
    assert all(may_replace(found, wanted) for found, wanted in allowed)
    assert not any(may_replace(found, wanted) for found, wanted in refused)


# The end


async def test_a_vm_whose_mark_lags_behind_its_object_is_destroyed_with_it(
    bench: MachineBench,
) -> None:
    await moved(bench)
    bench.edit(move=role(2, "Incoming"))
    bench.delete()
    await bench.run()
    assert [stage(vm) for vm in bench.vms()] == [(1, False)]
    assert bench.machine() == {}


async def test_a_committed_vm_outlives_an_object_that_calls_it_incoming(
    bench: MachineBench,
) -> None:
    await moved(bench)
    bench.edit(NEXT, move=role(1, "Incoming"))
    before = vm_of(bench, NEXT).model_copy(deep=True)
    bench.delete(NEXT)
    await bench.run(NEXT)
    assert [vm for vm in bench.vms() if vm.uuid == before.uuid] == [before]
    assert bench.machine(NEXT) != {}
