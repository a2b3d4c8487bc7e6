"""The conformance kit notices drivers that break a promise: each mutant here breaks one."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.sdk.driver import About, Connection, DiskState, MachineRef, MachineState, Task
from banlieue.sdk.errors import AbsenceUnproven, Foreign, NeedsOperator, Unreachable
from banlieue.sdk.identity import Mark, Owner
from banlieue.sdk.powers import Changes
from banlieue.sdk.simulated.driver import SimulatedDriver
from banlieue.sdk.simulated.states import Plan, vm_spec
from banlieue.sdk.testing.conformance import Bench, DriverConformance
from test.kit.simulated import PLANTED_PASSWORD, memory_target

pytestmark = pytest.mark.slow


class Mutant(SimulatedDriver):
    """A driver that is right but for what a subclass overrides."""

    def finish(self, task: Task | None) -> None:
        while task is not None and self.poll(task) is not None:
            self._session.changes("", 0.05)


class MarksLate(Mutant):
    """Makes the VM first and marks it never."""

    def create(self, plan: Plan) -> Task | None:
        task = self._session.create(vm_spec(plan) | {"mark": None})
        return Task(task["id"], "create")


class ForgetsTheLock(Mutant):
    """Takes another name when its own is taken."""

    def create(self, plan: Plan) -> Task | None:
        try:
            return super().create(plan)
        finally:
            with contextlib.suppress(Exception):
                self._session.create(vm_spec(plan) | {"domain": "domain-b"})


class ClaimsAbsence(Mutant):
    """Takes every "not found" for "gone"."""

    def observe(self, ref: MachineRef) -> MachineState | None:
        try:
            return super().observe(ref)
        except AbsenceUnproven:
            return None


class LooksByNameOnly(Mutant):
    """Takes any VM of the name, or any that carries a mark of the owner, for the machine."""

    def observe(self, ref: MachineRef) -> MachineState | None:
        for state in reversed(self.marked()):
            if state.mark and state.mark.owner == ref.owner:
                return state
        return super().observe(ref)


class DeletesByName(Mutant):
    """Deletes whatever has the machine's name."""

    def delete(self, ref: MachineRef) -> Task | None:
        found = self._session.call("find", name=ref.name)
        return super().delete(replace(ref, uuid=found[0]["uuid"] if found else ref.uuid))


class HidesForeignVms(Mutant):
    """Does not report a VM of the machine's name when it is not ours."""

    def observe(self, ref: MachineRef) -> MachineState | None:
        state = super().observe(ref)
        return state if state and state.mark else None


class DestroysDisks(Mutant):
    """Forgets to detach."""

    def detach_disks(self, ref: MachineRef, disks: Sequence[DiskState]) -> Task | None:
        return super().detach_disks(ref, disks[:0])


class NamesForeignDisks(Mutant):
    """Takes every disk for its own."""

    def observe(self, ref: MachineRef) -> MachineState | None:
        state = super().observe(ref)
        named = tuple(replace(d, name=d.name or "mine") for d in state.disks) if state else ()
        return replace(state, disks=named) if state else None


class Waits(Mutant):
    """Waits for its tasks."""

    def create(self, plan: Plan) -> Task | None:
        task = super().create(plan)
        self.finish(task)
        return None


class StopsHalfway(Mutant):
    """Takes "powered off" for "gone"."""

    def delete(self, ref: MachineRef) -> Task | None:
        state = self.observe(ref)
        if state is None or state.power == PowerState.POWERED_OFF:
            return None
        return super().delete(ref)


class KeepsItsIdentity(Mutant):
    """Remembers who answered first."""

    def about(self) -> About:
        return About("always-the-same", "1")


class SaysNothing(Mutant):
    """Has a change feed that is silent."""

    def changes(self, timeout: float) -> Changes:
        real = super().changes(timeout)
        return Changes(everything=real.everything)


class Babbles(Mutant):
    """Shows the password."""

    def __repr__(self) -> str:
        return f"driver({PLANTED_PASSWORD})"


class UnknownTasksFail(Mutant):
    """Takes an unknown task for a failed one."""

    def poll(self, task: Task) -> Task | None:
        if task.handle == "task-999999":
            raise NeedsOperator(Reason.PROVISIONING_FAILED, "unknown task")
        return super().poll(task)


class TakesDuplicatesForForeign(Mutant):
    """Does not look again when its own name is taken."""

    def create(self, plan: Plan) -> Task | None:
        if self._session.call("creating", name=plan.ref.name):
            raise Foreign("the name is taken")
        return super().create(plan)


class ForgetsLostCalls(Mutant):
    """Says that nothing was made when the answer got lost."""

    def create(self, plan: Plan) -> Task | None:
        try:
            return super().create(plan)
        except Unreachable:
            return None


class WritesAnyMark(Mutant):
    """Writes whatever mark it is told, over whatever stands there."""

    def write_mark(self, ref: MachineRef, mark: Mark) -> Task | None:
        (vm,) = self._session.call("find", uuid=ref.uuid)
        if vm["mark"] == mark.encode():
            return None
        wanted = {"mark": mark.encode(), "expected": vm["mark"]}
        task = self._session.call("take_over", vm=vm["id"], wanted=wanted)
        return Task(task["id"], "take-over")


class RestartsForAMark(Mutant):
    """Stops the VM to write on it."""

    def write_mark(self, ref: MachineRef, mark: Mark) -> Task | None:
        (vm,) = self._session.call("find", uuid=ref.uuid)
        if vm["power"] == PowerState.POWERED_ON:
            return Task(self._session.call("power_off", vm=vm["id"])["id"], "power-off")
        return super().write_mark(ref, mark)


class CountsCopies(Mutant):
    """Takes every mark of an owner for a valid one."""

    def made_for(self, owner: Owner) -> Sequence[MachineState]:
        return [state for state in self.marked() if state.mark and state.mark.owner == owner]


class DoesMoreThanPower(Mutant):
    """Changes hardware although only the power state is asked for."""

    def update(self, plan: Plan, seen: MachineState) -> Task | None:
        disks = tuple(replace(disk, storage={"pool": "fast"}) for disk in plan.disks)
        nics = tuple(replace(nic, network={"network": "lan"}) for nic in plan.nics)
        return super().update(replace(plan, power_only=False, disks=disks, nics=nics), seen)


class PlugsEverythingIn(Mutant):
    """Makes every interface connected."""

    def create(self, plan: Plan) -> Task | None:
        nics = tuple(replace(nic, connected=True) for nic in plan.nics)
        return super().create(replace(plan, nics=nics))


class LeavesInterfaces(Mutant):
    """Leaves interfaces that are there as they are, and tells that they are as planned."""

    def update(self, plan: Plan, seen: MachineState) -> Task | None:
        there = {nic.name: nic for nic in seen.nics or ()}
        nics = tuple(
            replace(
                nic,
                connected=there[nic.name].connected,
                network={"network": there[nic.name].network or ""},
            )
            for nic in plan.nics
        )
        return super().update(replace(plan, nics=nics), seen)


class ThrowsMemoryAway(Mutant):
    """Pulls the plug on a VM that sleeps, whatever the mode."""

    def update(self, plan: Plan, seen: MachineState) -> Task | None:
        if seen.power == PowerState.SUSPENDED and plan.power == PowerState.POWERED_OFF:
            task = self._session.call("power_off", vm=seen.backend_id)
            return Task(task["id"], "power-off")
        return super().update(plan, seen)


class KnowsNoHold(Mutant):
    """Does not tell that an admin holds a VM."""

    def observe(self, ref: MachineRef) -> MachineState | None:
        state = super().observe(ref)
        return replace(state, held=False) if state else None


FAILURES = (AssertionError, pytest.fail.Exception, NeedsOperator)
KIT = DriverConformance()


def _no_earlier_mark(bench: Bench) -> None:
    KIT.test_no_other_mark_is_written_over(bench, "an earlier epoch")


BROKEN: list[tuple[type[Mutant], Callable[[Bench], None]]] = [
    (MarksLate, KIT.test_the_mark_is_there_from_the_first_moment),
    (ForgetsTheLock, KIT.test_creating_twice_makes_one_vm),
    (ForgetsTheLock, KIT.test_two_concurrent_creates_make_one_vm),
    (ClaimsAbsence, KIT.test_a_hidden_vm_is_never_gone),
    (ClaimsAbsence, KIT.test_a_create_with_a_lost_reply_is_found),
    (ClaimsAbsence, KIT.test_a_killed_create_is_found_by_a_new_session),
    (LooksByNameOnly, KIT.test_a_copy_is_told_from_the_original),
    (LooksByNameOnly, KIT.test_a_copy_never_takes_the_place_of_the_original),
    (DeletesByName, KIT.test_a_foreign_vm_of_our_name_is_reported_and_left_alone),
    (HidesForeignVms, KIT.test_a_foreign_vm_of_our_name_is_reported_and_left_alone),
    (DestroysDisks, KIT.test_a_foreign_disk_outlives_the_vm),
    (NamesForeignDisks, KIT.test_a_foreign_disk_outlives_the_vm),
    (Waits, KIT.test_no_verb_waits_for_a_task),
    (StopsHalfway, KIT.test_a_running_vm_is_deleted),
    (KeepsItsIdentity, KIT.test_another_installation_is_noticed),
    (SaysNothing, KIT.test_changes_are_told),
    (UnknownTasksFail, KIT.test_an_unknown_task_is_over),
    (TakesDuplicatesForForeign, KIT.test_creating_twice_makes_one_vm),
    (ForgetsLostCalls, KIT.test_a_create_with_a_lost_reply_is_found),
    (RestartsForAMark, KIT.test_a_commit_clears_incoming_and_changes_nothing_else),
    (WritesAnyMark, _no_earlier_mark),
    (CountsCopies, KIT.test_all_vms_of_an_owner_are_found_and_no_copy),
    (DoesMoreThanPower, KIT.test_power_follows_alone_when_nothing_else_is_to),
    (PlugsEverythingIn, KIT.test_an_interface_is_out_from_the_first_moment_of_a_start),
    (LeavesInterfaces, KIT.test_an_interface_that_somebody_unplugged_is_told_and_plugged_in),
    (LeavesInterfaces, KIT.test_an_interface_is_plugged_into_another_network),
    (ThrowsMemoryAway, KIT.test_a_guest_that_sleeps_is_woken_to_be_shut_down),
    (KnowsNoHold, KIT.test_a_hold_is_told_until_it_is_lifted),
]


@contextlib.contextmanager
def bench_of(mutant: type[Mutant]) -> Iterator[Bench]:
    target = memory_target("mutants")
    backend = target.backend
    target.patience, target.promptness = 2.0, 0.5

    @contextlib.contextmanager
    def connect(to: Connection) -> Iterator[Mutant]:
        with backend.connect(to) as driver:
            assert isinstance(driver, SimulatedDriver)
            yield mutant(driver._session, to.capabilities)

    target.backend = replace(backend, connect=connect)
    with target.backend.connect(target.connection()) as driver:
        yield Bench(target, driver)


@pytest.mark.parametrize(("mutant", "test"), BROKEN)
def test_a_broken_promise_is_noticed(mutant: type[Mutant], test: Callable[[Bench], None]) -> None:
    with bench_of(mutant) as bench, pytest.raises(FAILURES):
        test(bench)


@pytest.mark.parametrize("test", dict.fromkeys(test for _, test in BROKEN))
def test_kept_promises_pass(test: Callable[[Bench], None]) -> None:
    with bench_of(Mutant) as bench:
        test(bench)


def test_a_shown_secret_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    with bench_of(Babbles) as bench, pytest.raises(AssertionError, match="secret"):
        KIT.test_no_secret_is_shown(bench, caplog)
