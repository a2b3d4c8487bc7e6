"""Conformance: first-boot data is there until the guest has had it, and then no longer."""
# ruff: noqa: S101 - a test kit asserts

from dataclasses import replace

import pytest

from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import MachineState
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import Owner
from banlieue.sdk.powers import SeedRedactor
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, Benched, seen


class SeedConformance(Benched):
    """The guest tells when its first boot is over; its data is cleared when it is told to be."""

    def test_a_guest_tells_when_its_first_boot_is_over(self, bench: Bench) -> None:
        _redactor(bench)
        plan = bench.plan()
        bench.ensure(plan)
        first = bench.state(plan).seed
        assert first is not None, "nobody can tell where the first boot of this VM stands"
        assert first.secret, "it is not told that the VM was given user data"
        assert first.kept, "the user data is gone before anybody asked for that"
        bench.until("the guest tells", lambda: _done(bench.state(plan)))
        told = bench.state(plan).seed
        assert told is not None
        assert told.kept, "the guest's word alone clears nothing"

    def test_a_vm_without_user_data_has_nothing_to_clear(self, bench: Bench) -> None:
        redactor = _redactor(bench)
        plan = bench.plan()
        plan = replace(plan, bootstrap=replace(plan.bootstrap, user_data=None))
        made = bench.ensure(plan)
        seed = bench.state(plan).seed
        assert seed is not None
        assert (seed.secret, seed.kept) == (False, False)
        bench.until("the guest tells", lambda: _done(bench.state(plan)))
        bench.run(plan, lambda: redactor.redact_seed(seen(plan, made)))
        assert _done(bench.state(plan))

    def test_cleared_data_is_gone_and_the_vm_is_the_same(self, bench: Bench) -> None:
        redactor = _redactor(bench)
        plan, made = _booted(bench)
        secret = _user_data(plan)
        before = bench.target.first_boot_data(made.backend_id)
        assert secret in before, "the guest could not read its user data"
        bench.run(plan, lambda: redactor.redact_seed(seen(plan, made)))
        bench.until("it is told", lambda: not _kept(bench.state(plan)))
        after = bench.state(plan)
        assert secret not in bench.target.first_boot_data(made.backend_id)
        assert _done(after), "the guest's word was lost with its data"
        settled = replace(made, seed=None), replace(after, seed=None)
        assert settled[0] == settled[1], "more was changed than the first-boot data"
        assert redactor.redact_seed(seen(plan, made)) is None, "there is nothing left to do"

    def test_cleared_twice_over_it_stays_the_same_guest(self, bench: Bench) -> None:
        redactor = _redactor(bench)
        plan, made = _booted(bench)
        bench.run(plan, lambda: redactor.redact_seed(seen(plan, made)))
        off = replace(plan, power=PowerState.POWERED_OFF, power_off_mode=PowerOffMode.HARD)
        for _ in range(2):
            bench.run(off, lambda: bench.driver.update(off, bench.state(plan)))
            bench.run(plan, lambda: bench.driver.update(plan, bench.state(plan)))
            bench.until("the guest is up", lambda: bench.state(plan).guest.agent_connected)
            bench.until("its addresses are told", lambda: bench.state(plan).addresses)
        after = bench.state(plan)
        assert after.addresses == made.addresses
        assert after.guest.hostname == made.guest.hostname
        assert not _kept(after)
        assert _done(after)

    def test_another_process_sees_that_it_was_cleared(self, bench: Bench) -> None:
        redactor = _redactor(bench)
        plan, made = _booted(bench)
        bench.run(plan, lambda: redactor.redact_seed(seen(plan, made)))
        with bench.connect() as other:
            state = bench.look(seen(plan, made), other)
        assert state is not None
        assert not _kept(state)
        assert _done(state)

    def test_first_boot_data_of_somebody_elses_vm_is_left_alone(self, bench: Bench) -> None:
        redactor = _redactor(bench)
        plan, made = _booted(bench)
        before = bench.raw(made.backend_id)
        stranger = Owner("another-installation", plan.ref.owner.kind, "tests", "web")
        with pytest.raises(Foreign):
            redactor.redact_seed(replace(seen(plan, made), owner=stranger))
        assert bench.raw(made.backend_id) == before
        assert _user_data(plan) in bench.target.first_boot_data(made.backend_id)


def _redactor(bench: Bench) -> SeedRedactor:
    if not isinstance(bench.driver, SeedRedactor):
        pytest.skip("the driver does not clear first-boot data")
    return bench.driver


def _booted(bench: Bench) -> tuple[AnyPlan, MachineState]:
    """A VM whose guest has told all that it has to tell."""
    plan = bench.plan()
    bench.ensure(plan)
    bench.until("the guest tells", lambda: _done(bench.state(plan)))
    bench.until("it has addresses", lambda: bench.state(plan).addresses)
    bench.until("it has a name", lambda: bench.state(plan).guest.hostname)
    return plan, bench.state(plan)


def _user_data(plan: AnyPlan) -> bytes:
    data = plan.bootstrap.user_data
    assert data is not None
    return bytes(data.get_secret_value())


def _done(state: MachineState) -> bool:
    return state.seed is not None and state.seed.done is True


def _kept(state: MachineState) -> bool:
    return state.seed is not None and state.seed.kept
