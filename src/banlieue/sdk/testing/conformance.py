"""The tests every backend has to pass, ours or anybody's.

A backend's test module subclasses `DriverConformance` and gives it a fixture `target`:

    class TestMine(DriverConformance):
        @pytest.fixture
        def target(self) -> ConformanceTarget:
            return MyTarget()

It needs nothing but pytest. Every failure says which promise of `banlieue.sdk.driver` is broken.
"""
# ruff: noqa: S101 - a test kit asserts

import contextlib
import functools
import io
import logging
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from time import monotonic

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import (
    ChangeFeed,
    DiskDetacher,
    Inventory,
    MachineState,
    MarkRemover,
    NicPlan,
    Task,
)
from banlieue.sdk.errors import (
    AbsenceUnproven,
    DriverError,
    Foreign,
    NeedsOperator,
    Transient,
    Unreachable,
)
from banlieue.sdk.identity import valid_mark
from banlieue.sdk.testing.conformance_target import (
    USER_DATA,
    AnyDriver,
    AnyPlan,
    Bench,
    ConformanceTarget,
    open_bench,
    seen,
    unminted,
)

__all__ = ["Bench", "ConformanceTarget", "DriverConformance"]

_THREADS = 6


class _Benched:
    @pytest.fixture
    def bench(self, target: ConformanceTarget) -> Iterator[Bench]:
        yield from open_bench(target)


class CreateConformance(_Benched):
    """Whatever happens to a create, it ends in one VM, and that one is found."""

    def test_a_made_vm_is_as_planned(self, bench: Bench) -> None:
        plan = bench.plan(data_disk=True)
        state = bench.ensure(plan)
        bench.until("the VM is on", lambda: _power(bench, plan) == PowerState.POWERED_ON)
        assert state.name == plan.ref.name
        assert state.mark == plan.mark, "the mark is not the planned one"
        assert state.failure_domain == plan.failure_domain.id
        assert (state.cpus, state.memory_mib) == (plan.cpus, plan.memory_mib)
        names = [disk.name for disk in state.disks]
        assert names == ["root", "data"], "the plan's disks are not told by their names"
        assert bench.driver.update(plan, _look(bench, plan)) is None, "a fresh VM needs an update"

    def test_creating_twice_makes_one_vm(self, bench: Bench) -> None:
        plan = bench.plan()
        first = bench.driver.create(plan)
        second = _settled(lambda: bench.driver.create(plan), bench)
        bench.finish(first)
        bench.finish(second)
        bench.ensure(plan)
        assert _settled(lambda: bench.driver.create(plan), bench) is None
        assert len(bench.named(plan)) == 1

    def test_two_concurrent_creates_make_one_vm(self, bench: Bench) -> None:
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
        states.append(_look(bench, plan))
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


class IdentityConformance(_Benched):
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
            pytest.skip("the driver has no power to remove marks")
        remover, plan = bench.driver, bench.plan()
        ref = seen(plan, bench.ensure(plan))
        bench.run(plan, lambda: remover.remove_mark(ref))
        state = _look(bench, plan)
        assert state.mark is None
        assert state.uuid.lower() == plan.ref.uuid


class AbsenceConformance(_Benched):
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
        assert bench.look(replace(seen(plan, made), backend_id=None)) is None

    def test_a_hidden_vm_is_never_gone(self, bench: Bench) -> None:
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
            with bench.connect() as fresh:
                assert fresh.about().missing_privileges, "the missing right is not reported"
                with pytest.raises(AbsenceUnproven):
                    fresh.observe(seen(plan, made))
        for ref in refs:
            found = bench.look(ref)
            assert found is not None
            assert found.backend_id == made.backend_id

    def test_an_unknown_task_is_over(self, bench: Bench) -> None:
        assert bench.driver.poll(bench.target.unknown_task()) is None


class TeardownConformance(_Benched):
    """Deleting ends in "gone" and destroys nothing that was not made for the machine."""

    def test_deleting_nothing_is_done(self, bench: Bench) -> None:
        plan = bench.plan()
        assert bench.driver.delete(plan.ref) is None
        assert bench.driver.delete(replace(plan.ref, seen=True)) is None

    def test_a_running_vm_is_deleted(self, bench: Bench) -> None:
        plan = bench.plan()
        ref = seen(plan, bench.ensure(plan))
        bench.until("the VM is on", lambda: _power(bench, plan) == PowerState.POWERED_ON)
        bench.delete(ref, plan)
        assert bench.named(plan) == []
        assert bench.look(ref) is None
        assert bench.look(unminted(plan)) is None

    def test_a_vm_that_is_off_is_deleted(self, bench: Bench) -> None:
        plan = replace(bench.plan(), power=PowerState.POWERED_OFF)
        ref = seen(plan, bench.ensure(plan))
        bench.delete(ref, plan)
        assert bench.named(plan) == []

    def test_a_foreign_disk_outlives_the_vm(self, bench: Bench) -> None:
        if not isinstance(bench.driver, DiskDetacher):
            pytest.skip("the driver has no power to detach disks")
        detacher, plan = bench.driver, bench.plan(data_disk=True)
        ref = seen(plan, bench.ensure(plan))
        disk = bench.target.attach_foreign_disk(ref.backend_id or "")
        disks = _look(bench, plan).disks
        foreign = [found for found in disks if found.name is None]
        assert [found.id for found in foreign] == [disk], "the foreign disk is not told"
        kept = [found for found in disks if found.name in {None, "data"}]
        bench.run(plan, lambda: detacher.detach_disks(ref, kept))
        assert [found.name for found in _look(bench, plan).disks] == ["root"]
        bench.delete(ref, plan)
        assert bench.named(plan) == []
        for found in kept:
            assert bench.target.disk_exists(found.id), f"the disk {found.id} was destroyed"


class PowerConformance(_Benched):
    """Power follows the plan, and no verb waits for it."""

    @pytest.mark.parametrize("mode", list(PowerOffMode))
    def test_power_follows_the_plan(self, bench: Bench, mode: PowerOffMode) -> None:
        plan = replace(bench.plan(), power_off_mode=mode, power_off_timeout=5.0)
        bench.ensure(plan)
        bench.until("the guest runs", lambda: _look(bench, plan).guest.agent_connected)
        for power in (PowerState.POWERED_OFF, PowerState.POWERED_ON):
            wanted = replace(plan, power=power)

            def step(wanted: AnyPlan = wanted) -> Task | None:
                return bench.driver.update(wanted, _look(bench, wanted))

            bench.run(wanted, step)
            assert _power(bench, plan) == power

    def test_addresses_are_reported(self, bench: Bench) -> None:
        plan = bench.plan()
        bench.ensure(plan)
        bench.until("the guest reports addresses", lambda: _look(bench, plan).addresses)

    def test_no_verb_waits_for_a_task(self, bench: Bench) -> None:
        plan = bench.plan()
        with bench.target.slow_tasks(1.5 * bench.target.promptness):
            task = _prompt(bench, lambda: bench.driver.create(plan))
            assert isinstance(task, Task), "a slow create gave no task"
            assert _prompt(bench, functools.partial(bench.driver.poll, task)) is not None
            bench.finish(task)
            state = _look(bench, plan)
            off = replace(plan, power=PowerState.POWERED_OFF, power_off_mode=PowerOffMode.HARD)
            task = _prompt(bench, lambda: bench.driver.update(off, state))
            assert isinstance(task, Task), "a slow power-off gave no task"
            bench.finish(task)
            task = _prompt(bench, lambda: bench.driver.delete(seen(plan, state)))
            assert isinstance(task, Task), "a slow delete gave no task"
        bench.finish(task)
        bench.delete(seen(plan, state), plan)


class ErrorConformance(_Benched):
    """Whatever goes wrong is said in the uniform words, and never with a secret."""

    def test_wrong_credentials(self, target: ConformanceTarget) -> None:
        with pytest.raises(NeedsOperator) as failure, target.backend.connect(target.wrong_login()):
            pass
        assert failure.value.reason is Reason.PROVIDER_AUTH_FAILED
        assert failure.value.message
        _check_silence(target, _printed(failure.value), repr(target.wrong_login()))

    def test_an_endpoint_that_does_not_answer(self, target: ConformanceTarget) -> None:
        with pytest.raises(Unreachable) as failure, target.backend.connect(target.unreachable()):
            pass
        assert failure.value.reason is Reason.PROVIDER_UNREACHABLE
        _check_silence(target, _printed(failure.value))

    def test_a_plan_that_cannot_be_honoured(self, bench: Bench) -> None:
        plan = bench.plan()
        (key,) = plan.nics[0].network
        broken = replace(plan, nics=(NicPlan("eth0", {key: "no-such-network"}),))
        with pytest.raises(DriverError) as failure:
            bench.finish(bench.driver.create(broken))
        assert isinstance(failure.value.reason, Reason)
        assert bench.named(plan) == [], "a create that failed left a VM"
        _check_silence(bench.target, _printed(failure.value))

    def test_no_secret_is_shown(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        plan = bench.plan()
        state = bench.ensure(plan)
        shown = [repr(plan), str(plan), repr(state), repr(bench.target.connection())]
        _check_silence(bench.target, *shown, caplog.text, repr(bench.driver))


class FeedConformance(_Benched):
    """A driver that tells changes tells all of them."""

    def test_changes_are_told(self, bench: Bench) -> None:
        if not isinstance(bench.driver, ChangeFeed):
            pytest.skip("the driver has no change feed; it is polled")
        feed, plan = bench.driver, bench.plan()
        assert feed.changes(0).everything, "the first answer must ask to look at everything"
        task = bench.driver.create(plan)
        handle = task.handle if task else None
        words = {plan.ref.uuid, plan.ref.name}

        def told() -> bool:
            changes = feed.changes(0.2)
            return changes.everything or handle in changes.tasks or bool(words & changes.uuids)

        bench.until("the create is told", told)
        state = bench.ensure(plan)
        bench.until("the guest runs", lambda: _look(bench, plan).guest.agent_connected)
        bench.until("the feed is quiet", lambda: not told())
        bench.target.toggle_power(state.backend_id)
        bench.until("the change behind our back is told", told)

    def test_waiting_for_changes_ends_in_time(self, bench: Bench) -> None:
        if not isinstance(bench.driver, ChangeFeed):
            pytest.skip("the driver has no change feed; it is polled")
        bench.driver.changes(0)
        started = monotonic()
        bench.driver.changes(0.3)
        assert monotonic() - started < 0.3 + bench.target.promptness


class DriverConformance(
    CreateConformance,
    IdentityConformance,
    AbsenceConformance,
    TeardownConformance,
    PowerConformance,
    ErrorConformance,
    FeedConformance,
):
    """All of it; subclass this and define the fixture `target`."""


def _look(bench: Bench, plan: AnyPlan) -> MachineState:
    state = bench.look(plan.ref)
    assert state is not None, f"{plan.ref.name} is not there any more"
    return state


def _power(bench: Bench, plan: AnyPlan) -> PowerState:
    return _look(bench, plan).power


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


def _prompt(bench: Bench, verb: Callable[[], Task | None]) -> Task | None:
    started = monotonic()
    answer = verb()
    assert monotonic() - started < bench.target.promptness, "a verb waited for its task"
    return answer


def _printed(error: BaseException) -> str:
    text = io.StringIO()
    traceback.print_exception(error, file=text)
    return f"{text.getvalue()}\n{error!r}\n{error}"


def _check_silence(target: ConformanceTarget, *texts: str) -> None:
    for secret in (*target.secrets, USER_DATA.splitlines()[1]):
        assert not any(secret in text for text in texts), "a secret is shown"
