"""Conformance: marks that follow a move, and machines that a move left behind."""
# ruff: noqa: S101 - a test kit asserts

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import MachineState
from banlieue.sdk.errors import Foreign, Transient
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner, backend_name
from banlieue.sdk.powers import MarkWriter, OwnerIndex
from banlieue.sdk.testing.conformance_target import (
    AnyDriver,
    AnyPlan,
    Bench,
    Benched,
    seen,
    unminted,
)

_NOT_OURS: dict[str, Callable[[Mark], Mark]] = {
    "an earlier epoch": lambda mark: replace(mark, epoch=mark.epoch - 1),
    "incoming again": lambda mark: replace(mark, incoming=True),
    "another owner": lambda mark: replace(
        mark, owner=Owner("another", OWNER_VIRTUAL_MACHINE, "tests", mark.owner.name)
    ),
    "another UUID": lambda mark: replace(mark, uuid="11111111-1111-4111-8111-111111111111"),
}


class MoveConformance(Benched):
    """A mark follows its machine's role; no other mark is ever written over."""

    def test_a_commit_clears_incoming_and_changes_nothing_else(self, bench: Bench) -> None:
        writer, plan = _writer(bench), _of_epoch(bench.plan(), 1, incoming=True)
        ref = seen(plan, bench.ensure(plan))
        bench.until("the VM is on", lambda: bench.state(plan).power == PowerState.POWERED_ON)
        before = bench.state(plan)
        wanted = replace(plan.mark, incoming=False)
        bench.run(plan, lambda: writer.write_mark(ref, wanted))
        after = bench.state(plan)
        assert after.mark == wanted
        assert _without_guest(after) == _without_guest(replace(before, mark=wanted))
        with bench.connect() as other:
            again = bench.look(ref, other)
            assert again is not None
            assert again.mark == wanted, "another session does not see it"

    def test_a_later_epoch_is_found_and_an_earlier_one_no_longer(self, bench: Bench) -> None:
        writer, plan = _writer(bench), bench.plan()
        made = bench.ensure(plan)
        later = replace(plan.mark, epoch=2, incoming=True)
        bench.run(plan, lambda: writer.write_mark(seen(plan, made), later))
        name = backend_name(plan.ref.owner, 2)
        found = bench.look(replace(unminted(plan), epoch=2, name=name))
        assert found is not None, "a VM that went through a rollback is not found by its epoch"
        assert (found.backend_id, found.name) == (made.backend_id, plan.ref.name)

    def test_a_mark_that_stands_there_is_not_written_again(self, bench: Bench) -> None:
        writer, plan = _writer(bench), replace(bench.plan(), power=PowerState.POWERED_OFF)
        made = bench.ensure(plan)
        before = bench.raw(made.backend_id)
        assert writer.write_mark(seen(plan, made), plan.mark) is None
        assert bench.raw(made.backend_id) == before

    @pytest.mark.parametrize("kind", list(_NOT_OURS))
    def test_no_other_mark_is_written_over(self, bench: Bench, kind: str) -> None:
        writer = _writer(bench)
        plan = replace(_of_epoch(bench.plan(), 3), power=PowerState.POWERED_OFF)
        made = bench.ensure(plan)
        before = bench.raw(made.backend_id)
        with pytest.raises(Foreign):
            bench.finish(writer.write_mark(seen(plan, made), _NOT_OURS[kind](plan.mark)))
        assert bench.raw(made.backend_id) == before, "the VM was changed"

    def test_of_two_writers_the_later_epoch_stays(self, bench: Bench) -> None:
        _writer(bench)
        plan = replace(bench.plan(), power=PowerState.POWERED_OFF)
        ref = seen(plan, bench.ensure(plan))
        together = Barrier(2)

        def write(driver: AnyDriver, epoch: int) -> None:
            assert isinstance(driver, MarkWriter)
            together.wait(bench.target.patience)
            mark = replace(plan.mark, epoch=epoch)

            def written() -> bool:
                try:
                    task = driver.write_mark(ref, mark)
                    bench.until("the task ends", lambda: not task or driver.poll(task) is None)
                except Transient:
                    return False
                except Foreign:
                    return True
                return task is None

            bench.until("the mark is written", written)

        with bench.connect() as other, ThreadPoolExecutor(2) as pool:
            list(pool.map(write, (bench.driver, other), (2, 1)))
            again = bench.look(ref, other)
        assert again is not None
        assert again.mark == replace(plan.mark, epoch=2)

    def test_all_vms_of_an_owner_are_found_and_no_copy(self, bench: Bench) -> None:
        if not isinstance(bench.driver, OwnerIndex):
            pytest.skip("the driver has no index of owners; its inventory is asked")
        first = bench.plan()
        owner = first.ref.owner
        assert bench.driver.made_for(owner) == [], "there is something before anything was made"
        second = _of_owner(_of_epoch(bench.plan(), 1, incoming=True), owner)
        made = {bench.ensure(plan).backend_id for plan in (first, second)}
        bench.target.copy(next(iter(made)), f"{first.ref.name}-copy")
        assert _found(bench.driver, owner) == made
        with bench.connect() as other:
            assert _found(other, owner) == made

    def test_power_follows_alone_when_nothing_else_is_to(self, bench: Bench) -> None:
        plan = bench.plan()
        bench.ensure(plan)
        bench.until("the VM is on", lambda: bench.state(plan).power == PowerState.POWERED_ON)
        before = bench.state(plan)
        off = replace(
            plan,
            power=PowerState.POWERED_OFF,
            power_only=True,
            power_off_mode=PowerOffMode.HARD,
            cpus=plan.cpus + 1,
            disks=tuple(replace(disk, storage={}) for disk in plan.disks),
            nics=(replace(plan.nics[0], network={}, connected=False),),
        )
        for _ in range(2):
            bench.run(off, lambda: bench.driver.update(off, bench.state(off)))
        after = bench.state(plan)
        assert after.power == PowerState.POWERED_OFF
        assert (after.cpus, after.disks) == (before.cpus, before.disks)
        if before.nics is not None:
            told = [(nic.name, nic.connected, nic.mac_address) for nic in before.nics]
            assert [(nic.name, nic.connected, nic.mac_address) for nic in after.nics or ()] == told


def _writer(bench: Bench) -> MarkWriter:
    if not isinstance(bench.driver, MarkWriter):
        pytest.skip("the driver has no power to write marks; nothing is moved on its backend")
    return bench.driver


def _of_epoch(plan: AnyPlan, epoch: int, *, incoming: bool = False) -> AnyPlan:
    """The plan as that of a machine that went through moves."""
    ref = replace(
        plan.ref, epoch=epoch, incoming=incoming, name=backend_name(plan.ref.owner, epoch)
    )
    return replace(plan, ref=ref, mark=replace(plan.mark, epoch=epoch, incoming=incoming))


def _of_owner(plan: AnyPlan, owner: Owner) -> AnyPlan:
    """The plan as that of another owner's machine of the same epoch."""
    ref = replace(plan.ref, owner=owner, name=backend_name(owner, plan.ref.epoch))
    return replace(plan, ref=ref, mark=replace(plan.mark, owner=owner))


def _found(driver: AnyDriver, owner: Owner) -> set[str]:
    assert isinstance(driver, OwnerIndex)
    return {state.backend_id for state in driver.made_for(owner)}


def _without_guest(state: MachineState) -> MachineState:
    """What of a VM does not change by itself while its guest boots."""
    guest = type(state.guest)()
    return replace(state, addresses=(), guest=guest, last_boot=None, host=None, seed=None)
