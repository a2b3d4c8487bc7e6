"""Moves as a machine's provider sees them: roles in spec, marks on the backend."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.driver import Changes, MachineRef
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner, may_replace
from banlieue.sdk.kube import Conflict, Key, Obj, Unavailable
from banlieue.sdk.machine import epochs
from banlieue.sdk.simulated.driver import SimulatedDriver
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import OFF, ON, Vm
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.machinebench import MACHINE, NAMESPACE, MachineBench

NEXT = Key(NAMESPACE, "db-1-m1")
OWNER = Owner("installation-1", OWNER_VIRTUAL_MACHINE, NAMESPACE, MACHINE.name)


def role(epoch: int, name: str) -> dict[str, object]:
    return {"epoch": epoch, "role": name}


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


def make_next(bench: MachineBench, key: Key = NEXT, **spec: object) -> None:
    """The second object of a move, as the controller makes it: same owner, its own epoch."""
    first = bench.machine()
    owner = first["metadata"]["ownerReferences"]
    bench.api.edit(
        VIRTUAL_MACHINES,
        MACHINE,
        lambda obj: obj["status"].update(
            incomingRef={
                "apiGroup": SIMULATED_MACHINES.group,
                "kind": SIMULATED_MACHINES.kind,
                "name": key.name,
                "namespace": key.namespace,
            }
        ),
    )
    kept = ("providerRef", "placement", "virtualMachineRef", "imageRef", "cpus", "memoryMiB")
    body = {name: first["spec"][name] for name in (*kept, "disks", "networkInterfaces")}
    bench.api.put(
        SIMULATED_MACHINES,
        {
            "apiVersion": SIMULATED_MACHINES.api_version,
            "kind": SIMULATED_MACHINES.kind,
            "metadata": {
                "namespace": key.namespace,
                "name": key.name,
                "ownerReferences": owner,
            },
            "spec": {**body, "move": role(1, "Incoming"), **spec},
        },
    )


def vm_of(bench: MachineBench, key: Key = MACHINE) -> Vm:
    uuid = bench.machine(key)["spec"]["instance"]["uuid"]
    return next(vm for vm in bench.vms() if vm.uuid == uuid)


def mark_of(vm: Vm) -> Mark:
    mark = Mark.decode(vm.mark)
    assert mark is not None
    return mark


def stage(vm: Vm) -> tuple[int, bool]:
    mark = mark_of(vm)
    return mark.epoch, mark.incoming


def told(bench: MachineBench, key: Key = MACHINE) -> dict[str, object]:
    found: dict[str, object] = bench.machine(key)["status"]["move"]
    return found


async def in_move(bench: MachineBench) -> None:
    """A machine that runs, and the target of its move beside it."""
    bench.make_machine()
    await bench.run()
    make_next(bench)
    await bench.run(NEXT)
    bench.clock.advance(5)
    await bench.run(NEXT)


async def moved(bench: MachineBench) -> None:
    """The move is over: the target is Current, the first VM is left behind."""
    await in_move(bench)
    bench.edit(NEXT, move=role(1, "Current"))
    await bench.run(NEXT)
    bench.edit(move=role(0, "Previous"), powerState="PoweredOff")
    await bench.run()


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


# An owner whose other VM went further


async def lose_objects(bench: MachineBench) -> None:
    """A cluster made anew from Git after a move: the VMs are there, and no machine object."""
    await moved(bench)
    for key in (MACHINE, NEXT):
        bench.delete(key, mode="Release")
        await bench.run(key)
    bench.restart()


def looks(bench: MachineBench) -> list[Vm]:
    return [vm.model_copy(deep=True) for vm in bench.vms()]


@pytest.mark.identity("8.3")
async def test_nothing_is_minted_for_an_object_that_was_overtaken(bench: MachineBench) -> None:
    await lose_objects(bench)
    before = looks(bench)
    bench.make_machine()
    await bench.run()
    assert bench.condition("Ready") == ("False", "RebindPending")
    assert "instance" not in bench.machine()["spec"]
    assert looks(bench) == before


@pytest.mark.identity("8.3")
async def test_an_object_that_was_brought_up_to_date_takes_its_vm(bench: MachineBench) -> None:
    await lose_objects(bench)
    bench.make_machine()
    await bench.run()
    (later,) = [vm for vm in bench.vms() if stage(vm) == (1, False)]
    bench.edit(move=role(1, "Current"))
    await bench.run()
    assert vm_of(bench).uuid == later.uuid
    assert bench.condition("Ready") == ("True", "Ready")
    assert len(bench.vms()) == 2


async def test_nothing_is_made_for_an_identity_that_was_overtaken(bench: MachineBench) -> None:
    await moved(bench)
    bench.control("remove", vm=vm_of(bench).id)

    def of_before(obj: Obj) -> None:
        obj["spec"].pop("providerID")
        obj["spec"].pop("move")
        obj["spec"]["powerState"] = "PoweredOn"

    bench.api.edit(SIMULATED_MACHINES, MACHINE, of_before)
    bench.restart()
    await bench.run()
    assert len(bench.vms()) == 1
    assert bench.condition("Ready") == ("False", "RebindPending")


@pytest.mark.identity("8.3")
async def test_a_vm_that_was_overtaken_is_not_started(bench: MachineBench) -> None:
    await moved(bench)

    def of_before(obj: Obj) -> None:
        obj["spec"].pop("move")
        obj["spec"].update(powerState="PoweredOn", cpus=4)
        obj["metadata"]["generation"] -= 1

    bench.api.edit(SIMULATED_MACHINES, MACHINE, of_before)
    before = looks(bench)
    for _ in range(3):
        bench.clock.advance(40)
        await bench.run()
    assert looks(bench) == before
    assert bench.condition("Ready") == ("False", "RebindPending")
    assert told(bench) == role(0, "Current")


async def test_the_target_of_a_move_overtakes_nobody(bench: MachineBench) -> None:
    await in_move(bench)
    bench.edit(cpus=4)
    await bench.run()
    assert vm_of(bench).cpus == 4
    assert bench.condition("Ready") == ("True", "Ready")


async def test_a_copy_overtakes_nobody(bench: MachineBench) -> None:
    await in_move(bench)
    copied = mark_of(vm_of(bench, NEXT))
    bench.control("copy", vm=vm_of(bench, NEXT).id, name="a-copy")
    (copy,) = [vm for vm in bench.vms() if vm.name == "a-copy"]
    bench.control("set_mark", vm=copy.id, mark=Mark(copied.owner, copied.uuid, 9).encode())
    bench.edit(cpus=4)
    await bench.run()
    assert vm_of(bench).cpus == 4


async def test_the_epoch_is_asked_once_and_before_a_change(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.clock.advance(5)
    await bench.run()
    before = bench.world.control("calls", {})
    await bench.reconciler.reconcile(MACHINE)
    after = cast("dict[str, int]", bench.world.control("calls", {}))
    made = {name: after[name] - cast("dict[str, int]", before).get(name, 0) for name in after}
    assert made["find"] == 1, "a machine at rest costs more than a look"


# Crashes


def _fail_write(bench: MachineBench, which: int, moment: Moment) -> None:
    seen = [0]

    def hook(call: Call, now: Moment) -> None:
        if now is not moment or call.verb in {"get", "list"}:
            return
        seen[0] += 1
        if seen[0] == which + 1:
            raise Unavailable(0, "the process died here")

    bench.api.intercept(hook)


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("which", range(4))
async def test_a_commit_killed_at_any_write_ends_committed(
    bench: MachineBench, which: int, moment: Moment
) -> None:
    await in_move(bench)
    bench.edit(NEXT, move=role(1, "Current"))
    _fail_write(bench, which, moment)
    await bench.run_through_crashes(NEXT)
    assert stage(vm_of(bench, NEXT)) == (1, False)
    assert told(bench, NEXT) == role(1, "Current")
    assert len(bench.vms()) == 2


async def test_a_process_that_dies_between_mark_and_status_is_followed_by_the_status(
    bench: MachineBench,
) -> None:
    await in_move(bench)
    bench.edit(NEXT, move=role(1, "Current"))
    await bench.reconciler.reconcile(NEXT)
    bench.clock.advance(5)
    assert stage(vm_of(bench, NEXT)) == (1, False)
    assert told(bench, NEXT) == role(1, "Incoming")
    bench.restart()
    await bench.run(NEXT)
    assert told(bench, NEXT) == role(1, "Current")


@pytest.mark.parametrize("effect", ["lose-reply", "cut", "refuse", "fail-task"])
async def test_a_mark_whose_writing_failed_is_written_in_the_end(
    bench: MachineBench, effect: str
) -> None:
    await in_move(bench)
    bench.control("inject", rule={"effect": effect, "method": "take_over"})
    bench.edit(NEXT, move=role(1, "Current"))
    for _ in range(4):
        await bench.run(NEXT)
        bench.clock.advance(120)
    assert stage(vm_of(bench, NEXT)) == (1, False)
    assert told(bench, NEXT) == role(1, "Current")


# Two processes


async def test_a_process_with_an_old_object_writes_no_mark(bench: MachineBench) -> None:
    await in_move(bench)
    bench.edit(NEXT, move=role(1, "Current"))
    stale = bench.machine(NEXT)
    bench.edit(NEXT, move=role(2, "Incoming"))
    cache = bench.reconciler.ctx.cache
    with _cached(bench, stale), pytest.raises(Conflict):
        await bench.reconciler.reconcile(NEXT)
    assert bench.reconciler.ctx.cache is cache
    assert stage(vm_of(bench, NEXT)) == (1, True)


@contextmanager
def _cached(bench: MachineBench, stale: Obj) -> Iterator[None]:
    """While it lasts the process has not heard of later versions of an object."""
    context = bench.reconciler.ctx
    cache = context.cache

    class Late:
        def get(self, resource: Resource, key: Key) -> Obj | None:
            return stale if key == Key.of(stale) else cache.get(resource, key)

    object.__setattr__(context, "cache", Late())
    try:
        yield
    finally:
        object.__setattr__(context, "cache", cache)


async def test_of_two_writers_the_later_epoch_stays(bench: MachineBench) -> None:
    await moved(bench)
    vm = vm_of(bench)
    ref = MachineRef(OWNER, 0, vm.name, vm.uuid, seen=True, backend_id=vm.id)
    first = cast("SimulatedDriver", bench.served.driver)
    bench.restart()
    second = cast("SimulatedDriver", bench.served.driver)
    task = second.write_mark(ref, Mark(OWNER, vm.uuid, 4, incoming=True))
    assert task is not None
    bench.clock.advance(5)
    bench.vms()
    for earlier in (Mark(OWNER, vm.uuid, 2), Mark(OWNER, vm.uuid, 3, incoming=True)):
        with pytest.raises(Foreign):
            first.write_mark(ref, earlier)
    assert stage(vm_of(bench)) == (4, True)


# What a driver may lack


class _Plain:
    """A driver without the powers of `hidden` names."""

    def __init__(self, driver: object, *hidden: str) -> None:
        self._driver = driver
        self._hidden = hidden

    def __getattr__(self, name: str) -> object:
        if name in self._hidden:
            raise AttributeError(name)
        return getattr(self._driver, name)


async def test_a_backend_that_writes_no_marks_moves_nothing(bench: MachineBench) -> None:
    await in_move(bench)
    plain = _Plain(bench.served.driver, "write_mark")
    bench.served.driver = cast("Any", plain)
    bench.edit(NEXT, move=role(1, "Current"))
    await bench.run(NEXT)
    assert stage(vm_of(bench, NEXT)) == (1, True)
    assert bench.condition("Ready", NEXT) == ("False", "UnsupportedByProvider")


async def test_a_driver_without_an_index_of_owners_is_asked_for_all_marks(
    bench: MachineBench,
) -> None:
    await lose_objects(bench)
    bench.served.driver = cast("Any", _Plain(bench.served.driver, "made_for"))
    bench.make_machine()
    await bench.run()
    assert bench.condition("Ready") == ("False", "RebindPending")


def test_a_driver_that_tells_no_marks_is_taken_at_its_word() -> None:
    class Bare:
        def changes(self, timeout: float) -> Changes:
            del timeout
            return Changes()

    assert epochs.made_for(cast("Any", Bare()), OWNER) == ()


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
