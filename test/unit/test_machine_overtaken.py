"""Machines whose owner has a VM that went further in moves, and what befalls writers of marks."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pytest

from banlieue.api.meta import Resource
from banlieue.sdk.driver import MachineRef
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import Mark
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.machine import epochs
from banlieue.sdk.powers import Changes
from banlieue.sdk.simulated.driver import SimulatedDriver
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.memory_api import Moment
from test.kit.machinebench import MACHINE, MachineBench
from test.kit.movebench import (
    NEXT,
    OWNER,
    in_move,
    looks,
    lose_objects,
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


# An owner whose other VM went further


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


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("which", range(4))
async def test_a_commit_killed_at_any_write_ends_committed(
    bench: MachineBench, which: int, moment: Moment
) -> None:
    await in_move(bench)
    bench.edit(NEXT, move=role(1, "Current"))
    bench.die_at_write(which, moment)
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

        def list(self, resource: Resource) -> Iterable[Obj]:
            return cache.list(resource)

        def revisions(self, resource: Resource) -> Mapping[Key, object]:
            return cache.revisions(resource)

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
