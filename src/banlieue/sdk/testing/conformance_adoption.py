"""Conformance: taking over VMs that exist, for drivers that can."""
# ruff: noqa: S101 - a test kit asserts

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Barrier
from uuid import uuid4

import pytest

from banlieue.sdk.driver import MachineRef, Task
from banlieue.sdk.errors import Foreign, NeedsOperator, Transient
from banlieue.sdk.identity import Mark
from banlieue.sdk.powers import Adoption, Candidate, MarkRemover
from banlieue.sdk.testing.conformance_target import AnyDriver, AnyPlan, Bench, Benched, RawVm


@dataclass(frozen=True, slots=True)
class Found:
    """A VM that somebody else made, and who wants it."""

    bench: Bench
    adoption: Adoption
    plan: AnyPlan
    raw: RawVm
    candidate: Candidate

    def claim(self, name: str = "web") -> tuple[MachineRef, Mark]:
        """Reference and mark of an owner of that name who wants the VM."""
        plan = self.bench.plan(name)
        ref = replace(plan.ref, uuid=self.candidate.id, failure_domain=None)
        return ref, Mark(ref.owner, self.candidate.id)

    def take(self, ref: MachineRef, mark: Mark, driver: AnyDriver | None = None) -> None:
        """Take it over, asked again while it is busy."""
        adoption = driver or self.adoption
        assert isinstance(adoption, Adoption)
        self.bench.run(self.plan, lambda: adoption.take_over(ref, mark))

    def now(self) -> RawVm:
        """The VM as an admin sees it now."""
        found = self.bench.raw(self.raw.id)
        assert found is not None, "the VM is gone"
        return found


class AdoptionConformance(Benched):
    """Looking changes nothing; of all who want a VM one gets it; nothing but the mark changes."""

    @pytest.fixture
    def existing(self, bench: Bench) -> Iterator[Found]:
        """A VM that somebody else made."""
        driver = bench.driver
        if not isinstance(driver, Adoption):
            pytest.skip("the driver cannot adopt: it lacks the methods of sdk.powers.Adoption")
        plan = bench.plan()
        vm = bench.target.make_existing(f"existing-{uuid4().hex[:8]}", plan.failure_domain)
        raw = bench.raw(vm)
        assert raw is not None
        candidate = driver.find(raw.uuid)
        assert candidate is not None, "find does not find a VM by its UUID"
        yield Found(bench, driver, plan, raw, candidate)
        bench.target.remove(vm)

    def test_a_vm_is_told_as_it_is_and_not_changed(self, existing: Found) -> None:
        state, raw = existing.candidate.state, existing.raw
        assert (existing.candidate.id, state.uuid) == (raw.uuid, raw.uuid)
        assert (state.name, state.backend_id, state.mark) == (raw.name, raw.id, None)
        assert existing.candidate.hardware_uuid
        assert not existing.candidate.template
        assert state.cpus
        assert state.memory_mib
        assert [disk.name for disk in state.disks] == ["root"]
        assert state.nics is not None
        assert [nic.name for nic in state.nics] == [f"eth{n}" for n in range(len(state.nics))]
        assert existing.now().fingerprint == raw.fingerprint, "looking changed it"

    def test_an_unknown_id_is_nobody(self, existing: Found) -> None:
        assert existing.adoption.find(str(uuid4())) is None
        assert existing.adoption.find("no id of anything") is None

    def test_every_vm_is_listed_marked_ones_too(self, existing: Found) -> None:
        made = existing.bench.ensure(existing.plan)
        listed = {it.id: it for it in existing.adoption.candidates()}
        assert listed[existing.candidate.id].state.disks == existing.candidate.state.disks
        assert listed[existing.candidate.id].state.nics == existing.candidate.state.nics
        assert listed[made.uuid].state.mark == existing.plan.mark
        assert existing.now().fingerprint == existing.raw.fingerprint, "listing changed it"

    def test_a_taken_over_vm_is_the_machines_and_otherwise_as_it_was(self, existing: Found) -> None:
        ref, mark = existing.claim()
        before = existing.candidate.state
        existing.take(ref, mark)
        after = existing.bench.look(ref)
        assert after is not None
        assert (after.uuid, after.name, after.mark) == (before.uuid, before.name, mark)
        assert (after.power, after.cpus, after.memory_mib) == (
            before.power,
            before.cpus,
            before.memory_mib,
        )
        assert [disk.name for disk in after.disks] == [disk.name for disk in before.disks]
        assert after.nics == before.nics
        assert existing.adoption.take_over(ref, mark) is None, "once is not enough"

    def test_what_is_attached_later_is_foreign(self, existing: Found) -> None:
        ref, mark = existing.claim()
        existing.take(ref, mark)
        disk = existing.bench.target.attach_foreign_disk(existing.raw.id)

        def foreign() -> list[str]:
            state = existing.bench.look(ref)
            return [it.id for it in (state.disks if state else ()) if it.name is None]

        existing.bench.until("the new disk is told as foreign", lambda: foreign() == [disk])

    def test_what_it_came_along_with_and_no_plan_lists_stays(self, existing: Found) -> None:
        bench, (ref, mark) = existing.bench, existing.claim()
        existing.take(ref, mark)
        before = bench.look(ref)
        assert before is not None
        added = replace(existing.plan.nics[0], name="added")
        wanted = replace(
            existing.plan,
            ref=replace(ref, seen=True, backend_id=before.backend_id),
            mark=mark,
            cpus=before.cpus or 0,
            memory_mib=before.memory_mib or 0,
            power=before.power,
            disks=(),
            nics=(added,),
            left_alone=frozenset(nic.name or "" for nic in before.nics or ()),
        )
        for plan, more in ((wanted, ["added"]), (replace(wanted, nics=()), [])):

            def step(plan: AnyPlan = plan) -> Task | None:
                state = bench.look(ref)
                assert state is not None
                return bench.driver.update(plan, state)

            bench.run(plan, step)
            after = bench.look(ref)
            assert after is not None
            assert after.disks == before.disks
            had = [nic.name for nic in before.nics or ()]
            got = [nic.name for nic in after.nics or ()]
            assert sorted(map(str, got)) == sorted(map(str, [*had, *more])), "one came or went"

    def test_of_two_who_take_it_at_once_one_gets_it(self, existing: Found) -> None:
        bench, together = existing.bench, Barrier(2)

        def take(driver: AnyDriver, name: str) -> MachineRef | None:
            ref, mark = existing.claim(name)
            together.wait(bench.target.patience)
            try:
                existing.take(ref, mark, driver)
            except Foreign:
                return None
            return ref

        with bench.connect() as other, ThreadPoolExecutor(2) as pool:
            got = list(pool.map(take, (bench.driver, other), ("one", "two")))
        (winner,) = [ref for ref in got if ref is not None]
        state = bench.look(winner)
        assert state is not None
        assert state.mark is not None
        assert state.mark.owner == winner.owner

    def test_somebody_elses_vm_is_left_alone(self, existing: Found) -> None:
        existing.take(*existing.claim("first"))
        taken = existing.now().fingerprint
        with pytest.raises(Foreign):
            existing.adoption.take_over(*existing.claim("second"))
        assert existing.now().fingerprint == taken

    def test_a_mark_that_was_copied_along_is_nobodys(self, existing: Found) -> None:
        existing.take(*existing.claim("first"))
        copy = existing.bench.target.copy(existing.raw.id, f"copy-{uuid4().hex[:8]}")
        raw = existing.bench.raw(copy)
        assert raw is not None
        ref, _ = existing.claim("second")
        ref = replace(ref, uuid=raw.uuid)
        existing.take(ref, Mark(ref.owner, raw.uuid))
        found = existing.bench.look(ref)
        assert found is not None
        assert found.backend_id == copy
        existing.bench.target.remove(copy)

    def test_a_vm_that_is_gone_is_not_taken_over(self, existing: Found) -> None:
        ref, _ = existing.claim()
        gone = replace(ref, uuid=str(uuid4()))
        with pytest.raises((Transient, NeedsOperator)):
            existing.adoption.take_over(gone, Mark(gone.owner, gone.uuid or ""))

    def test_a_released_vm_can_be_taken_over_again(self, existing: Found) -> None:
        driver = existing.bench.driver
        if not isinstance(driver, MarkRemover):
            pytest.skip("the driver removes no marks: it lacks those of sdk.powers.MarkRemover")
        ref, mark = existing.claim("first")
        existing.take(ref, mark)
        existing.bench.run(existing.plan, lambda: driver.remove_mark(ref))
        existing.take(*existing.claim("second"))
