"""Conformance: one VM per machine, whatever happens, and no VM that is not the machine's."""
# ruff: noqa: S101 - a test kit asserts

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.sdk.driver import MachineState, Task
from banlieue.sdk.errors import (
    AbsenceUnproven,
    DriverError,
    Foreign,
    NeedsOperator,
    Transient,
    Unreachable,
)
from banlieue.sdk.identity import valid_mark
from banlieue.sdk.powers import Inventory, MarkRemover
from banlieue.sdk.testing.conformance_target import AnyDriver, Bench, Benched, seen, unminted

_THREADS = 6


class CreateConformance(Benched):
    """Whatever happens to a create, it ends in one VM, and that one is found."""

    def test_a_made_vm_is_as_planned(self, bench: Bench) -> None:
        plan = bench.plan(data_disk=True)
        state = bench.ensure(plan)
        bench.until("the VM is on", lambda: bench.state(plan).power == PowerState.POWERED_ON)
        assert state.name == plan.ref.name
        assert state.mark == plan.mark, "the mark is not the planned one"
        assert state.failure_domain == plan.failure_domain.id
        assert (state.cpus, state.memory_mib) == (plan.cpus, plan.memory_mib)
        names = [disk.name for disk in state.disks]
        assert names == ["root", "data"], "the plan's disks are not told by their names"
        assert bench.driver.update(plan, bench.state(plan)) is None, "a fresh VM needs an update"

    def test_creating_twice_makes_one_vm(self, bench: Bench) -> None:
        """It holds on every backend (identity 3.2)."""
        plan = bench.plan()
        first = bench.driver.create(plan)
        second = _settled(lambda: bench.driver.create(plan), bench)
        bench.finish(first)
        bench.finish(second)
        bench.ensure(plan)
        assert _settled(lambda: bench.driver.create(plan), bench) is None
        assert len(bench.named(plan)) == 1

    def test_two_concurrent_creates_make_one_vm(self, bench: Bench) -> None:
        """It holds on every backend (identity 3.4)."""
        plan = bench.plan()
        together = Barrier(2)

        def create(driver: AnyDriver) -> MachineState:
            together.wait(bench.target.patience)
            _settled(lambda: driver.create(plan), bench)
            return bench.ensure(plan, driver)

        with bench.connect() as other, ThreadPoolExecutor(2) as pool:
            states = list(pool.map(create, (bench.driver, other)))
        assert states[0].backend_id == states[1].backend_id
        assert len(bench.named(plan)) == 1

    def test_a_create_with_a_lost_reply_is_found(self, bench: Bench) -> None:
        """It holds on every backend (identity 3.3)."""
        plan = bench.plan()
        bench.target.lose_next_create_reply()
        with pytest.raises(Unreachable):
            bench.driver.create(plan)
        state = bench.look(plan.ref)
        assert state is not None, "absence was claimed while the create call was not resolved"
        assert state.uuid.lower() == plan.ref.uuid
        assert len(bench.named(plan)) == 1

    def test_a_killed_create_is_found_by_a_new_session(self, bench: Bench) -> None:
        plan = bench.plan()
        with bench.connect() as doomed:
            doomed.create(plan)
        with bench.connect() as fresh:
            state = bench.look(plan.ref, fresh)
            assert state is not None, "absence was claimed while the VM was being made"
            assert state.uuid.lower() == plan.ref.uuid
        assert len(bench.named(plan)) == 1

    def test_the_mark_is_there_from_the_first_moment(self, bench: Bench) -> None:
        """It holds on every backend (identity 3.1)."""
        plan = bench.plan()
        states: list[MachineState] = []
        with bench.target.slow_tasks(0.5), bench.connect() as watcher:
            task = bench.driver.create(plan)

            def ended() -> bool:
                try:
                    state = watcher.observe(unminted(plan))
                    assert state is not None, "absence was claimed while the VM was being made"
                    states.append(state)
                except (AbsenceUnproven, Transient):
                    pass
                return task is None or bench.driver.poll(task) is None

            bench.until("the VM is made", ended)
        states.append(bench.state(plan))
        assert all(state.mark == plan.mark for state in states), "a VM was visible without mark"
        assert all(state.uuid.lower() == plan.ref.uuid for state in states)

    def test_many_machines_at_once(self, bench: Bench) -> None:
        plans = [bench.plan(f"web-{number}") for number in range(_THREADS)]
        with ThreadPoolExecutor(_THREADS) as pool:
            states = list(pool.map(bench.ensure, plans))
            assert len({state.backend_id for state in states}) == len(plans)
            refs = [seen(plan, state) for plan, state in zip(plans, states, strict=True)]
            list(pool.map(bench.delete, refs, plans))
        assert [bench.named(plan) for plan in plans] == [[]] * len(plans)


class IdentityConformance(Benched):
    """A VM is ours only by UUID and a mark that names this UUID."""

    def test_a_machine_without_uuid_is_found_by_name(self, bench: Bench) -> None:
        plan = bench.plan()
        made = bench.ensure(plan)
        found = bench.look(unminted(plan))
        assert found is not None, "the VM is not found before the mint"
        assert (found.backend_id, found.mark) == (made.backend_id, plan.mark)

    def test_another_epoch_is_another_machine(self, bench: Bench) -> None:
        plan = bench.plan()
        bench.ensure(plan)
        later = replace(unminted(plan), epoch=1, name=f"{plan.ref.name}-1")
        assert bench.look(later) is None

    def test_a_copy_is_told_from_the_original(self, bench: Bench) -> None:
        """It holds on every backend (identity 0.3)."""
        plan = bench.plan()
        made = bench.ensure(plan)
        copy = bench.target.copy(made.backend_id, f"{plan.ref.name}-copy")
        for ref in (plan.ref, unminted(plan), seen(plan, made)):
            found = bench.look(ref)
            assert found is not None
            assert found.backend_id == made.backend_id, "the copy was taken for the machine"
        if isinstance(bench.driver, Inventory):
            valid = {
                state.backend_id: valid_mark(state.mark, state.uuid)
                for state in bench.driver.marked()
                if state.mark and state.mark.owner == plan.ref.owner
            }
            assert valid == {made.backend_id: True, copy: False}

    def test_a_copy_never_takes_the_place_of_the_original(self, bench: Bench) -> None:
        plan = bench.plan()
        made = bench.ensure(plan)
        copy = bench.target.copy(made.backend_id, f"{plan.ref.name}-copy")
        before = bench.raw(copy)
        bench.target.remove(made.backend_id)
        assert bench.look(seen(plan, made)) is None
        assert bench.look(unminted(plan)) is None
        bench.delete(seen(plan, made), plan)
        assert bench.raw(copy) == before, "the copy was changed"

    def test_a_foreign_vm_of_our_name_is_reported_and_left_alone(self, bench: Bench) -> None:
        plan = bench.plan()
        foreign = bench.target.make_foreign(plan.ref.name, plan.failure_domain)
        before = bench.raw(foreign)
        for ref in (plan.ref, unminted(plan)):
            found = bench.look(ref)
            assert found is not None, "the foreign VM is not reported"
            assert found.backend_id == foreign
            assert not valid_mark(found.mark, found.uuid)
        with pytest.raises(Foreign) as refusal:
            bench.finish(bench.driver.create(plan))
        assert refusal.value.reason is Reason.OWNERSHIP_CONFLICT
        with contextlib.suppress(Foreign):
            bench.delete(plan.ref, plan)
        assert bench.raw(foreign) == before, "the foreign VM was changed"

    def test_another_installation_is_noticed(self, bench: Bench) -> None:
        identity = bench.driver.about().identity
        assert identity
        with bench.target.other_identity():
            with bench.connect() as other:
                assert other.about().identity not in {"", identity}
            with contextlib.suppress(DriverError):
                assert bench.driver.about().identity != identity, "an old identity is shown"
        with bench.connect() as again:
            assert again.about().identity == identity

    def test_a_mark_can_be_removed(self, bench: Bench) -> None:
        if not isinstance(bench.driver, MarkRemover):
            pytest.skip("the driver removes no marks: it lacks those of sdk.powers.MarkRemover")
        remover, plan = bench.driver, bench.plan()
        ref = seen(plan, bench.ensure(plan))
        bench.run(plan, lambda: remover.remove_mark(ref))
        state = bench.state(plan)
        assert state.mark is None
        assert state.uuid.lower() == plan.ref.uuid


class AbsenceConformance(Benched):
    """An answer of "not found" has to prove that nothing is there."""

    def test_nothing_is_observed_as_nothing(self, bench: Bench) -> None:
        plan = bench.plan()
        for ref in (plan.ref, unminted(plan)):
            assert bench.driver.observe(ref) is None

    def test_a_vanished_vm_is_observed_as_gone(self, bench: Bench) -> None:
        plan = bench.plan()
        made = bench.ensure(plan)
        bench.target.remove(made.backend_id)
        assert bench.look(seen(plan, made)) is None

    def test_a_hidden_vm_is_never_gone(self, bench: Bench) -> None:
        """It holds on every backend (identity 5.2)."""
        plan = bench.plan()
        made = bench.ensure(plan)
        refs = (plan.ref, unminted(plan), seen(plan, made))
        with bench.target.hidden(made.backend_id):
            for ref in refs:
                with pytest.raises(AbsenceUnproven):
                    bench.driver.observe(ref)
            for ref in (plan.ref, seen(plan, made)):
                with pytest.raises(NeedsOperator):
                    bench.driver.delete(ref)
            with bench.connect() as fresh, pytest.raises(AbsenceUnproven):
                fresh.observe(seen(plan, made))
        for ref in refs:
            found = bench.look(ref)
            assert found is not None
            assert found.backend_id == made.backend_id

    def test_another_installation_proves_nothing(self, bench: Bench) -> None:
        made, unmade = bench.plan("made"), bench.plan("unmade")
        ref = seen(made, bench.ensure(made))
        with bench.target.other_identity():
            for absent in (ref, made.ref, unmade.ref, unminted(unmade)):
                with pytest.raises(DriverError):
                    bench.driver.observe(absent)
            with pytest.raises(DriverError):
                bench.driver.create(unmade)
            with pytest.raises(DriverError):
                bench.driver.delete(ref)
        assert bench.named(unmade) == []
        with bench.connect() as again:
            assert bench.look(ref, again) is not None

    def test_an_unknown_task_is_over(self, bench: Bench) -> None:
        assert bench.driver.poll(bench.target.unknown_task()) is None


def _settled(create: Callable[[], Task | None], bench: Bench) -> Task | None:
    """The answer of a create; one that only says "busy" is asked again."""
    answers: list[Task | None] = []

    def answered() -> bool:
        try:
            answers.append(create())
        except Transient:
            return False
        return True

    bench.until("create gives an answer", answered)
    return answers[-1]
