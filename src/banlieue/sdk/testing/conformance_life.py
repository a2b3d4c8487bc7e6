"""Conformance: power, teardown, errors and changes."""
# ruff: noqa: S101 - a test kit asserts

import functools
import io
import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import MachineState, NicPlan, Task
from banlieue.sdk.errors import DriverError, NeedsOperator, Unreachable
from banlieue.sdk.powers import ChangeFeed, DiskDetacher
from banlieue.sdk.testing.conformance_target import (
    USER_DATA,
    AnyPlan,
    Bench,
    Benched,
    ConformanceTarget,
    seen,
    unminted,
)


class TeardownConformance(Benched):
    """Deleting ends in "gone" and destroys nothing that was not made for the machine."""

    def test_deleting_nothing_is_done(self, bench: Bench) -> None:
        assert bench.driver.delete(bench.plan().ref) is None

    def test_a_running_vm_is_deleted(self, bench: Bench) -> None:
        plan = bench.plan()
        ref = seen(plan, bench.ensure(plan))
        bench.until("the VM is on", lambda: bench.state(plan).power == PowerState.POWERED_ON)
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
        """What was detached is nobody's, and stays (identity 6.9)."""
        if not isinstance(bench.driver, DiskDetacher):
            pytest.skip("the driver has no power to detach disks")
        detacher, plan = bench.driver, bench.plan(data_disk=True)
        ref = seen(plan, bench.ensure(plan))
        disk = bench.target.attach_foreign_disk(ref.backend_id or "")
        disks = bench.state(plan).disks
        foreign = [found for found in disks if found.name is None]
        assert [found.id for found in foreign] == [disk], "the foreign disk is not told"
        kept = [found for found in disks if found.name in {None, "data"}]
        bench.run(plan, lambda: detacher.detach_disks(ref, kept))
        assert [found.name for found in bench.state(plan).disks] == ["root"]
        bench.delete(ref, plan)
        assert bench.named(plan) == []
        for found in kept:
            assert bench.target.disk_exists(found.id), f"the disk {found.id} was destroyed"


class PowerConformance(Benched):
    """Power follows the plan, and no verb waits for it."""

    @pytest.mark.parametrize("mode", list(PowerOffMode))
    def test_power_follows_the_plan(self, bench: Bench, mode: PowerOffMode) -> None:
        plan = replace(bench.plan(), power_off_mode=mode, power_off_timeout=5.0)
        bench.ensure(plan)
        bench.until("the guest runs", lambda: bench.state(plan).guest.agent_connected)
        for power in (PowerState.POWERED_OFF, PowerState.POWERED_ON):
            wanted = replace(plan, power=power)

            def step(wanted: AnyPlan = wanted) -> Task | None:
                return bench.driver.update(wanted, bench.state(wanted))

            bench.run(wanted, step)
            assert bench.state(plan).power == power

    def test_addresses_are_reported(self, bench: Bench) -> None:
        plan = bench.plan()
        bench.ensure(plan)
        bench.until("the guest reports addresses", lambda: bench.state(plan).addresses)

    def test_no_verb_waits_for_a_task(self, bench: Bench) -> None:
        plan = bench.plan()
        with bench.target.slow_tasks(1.5 * bench.target.promptness):
            task = _prompt(bench, lambda: bench.driver.create(plan))
            assert isinstance(task, Task), "a slow create gave no task"
            assert _prompt(bench, functools.partial(bench.driver.poll, task)) is not None
            bench.finish(task)
            state = bench.state(plan)
            off = replace(plan, power=PowerState.POWERED_OFF, power_off_mode=PowerOffMode.HARD)
            task = _prompt(bench, lambda: bench.driver.update(off, state))
            assert isinstance(task, Task), "a slow power-off gave no task"
            bench.finish(task)
            task = _prompt(bench, lambda: bench.driver.delete(seen(plan, state)))
            assert isinstance(task, Task), "a slow delete gave no task"
        bench.finish(task)
        bench.delete(seen(plan, state), plan)


class InterfaceConformance(Benched):
    """Interfaces follow the plan while the VM runs, and a foreign one is left alone."""

    def test_an_interface_is_added_and_removed(self, bench: Bench) -> None:
        plan = bench.plan()
        before = bench.ensure(plan)
        if before.nics is None:
            pytest.skip("the driver does not tell interfaces")
        assert [nic.name for nic in before.nics] == ["eth0"]
        bench.until("the VM is on", lambda: bench.state(plan).power == PowerState.POWERED_ON)
        foreign = bench.target.attach_foreign_interface(before.backend_id)
        two = replace(plan, nics=(*plan.nics, replace(plan.nics[0], name="eth1")))
        _change(bench, two)
        state = bench.state(two)
        assert _interfaces(state) == {"eth0", "eth1", None}, "the interface was not added"
        macs = [nic.mac_address for nic in state.nics or ()]
        assert len(set(macs)) == len(macs), "two interfaces share a MAC address"
        assert bench.driver.update(two, state) is None, "what was added needs an update"
        with bench.connect() as other:
            again = bench.look(plan.ref, other)
            assert again is not None
            assert _interfaces(again) == {"eth0", "eth1", None}, "another session forgot it"
        _change(bench, plan)
        state = bench.state(plan)
        assert _interfaces(state) == {"eth0", None}, "the interface was not removed"
        assert state.power == PowerState.POWERED_ON
        assert foreign in {nic.id for nic in state.nics or ()}, "a foreign interface was removed"
        kept = {nic.name: nic.mac_address for nic in state.nics or ()}
        assert kept["eth0"] == before.nics[0].mac_address, "an interface nobody named was changed"

    def test_the_interfaces_of_a_plan_are_told_with_their_addresses(self, bench: Bench) -> None:
        plan = bench.plan()
        wanted = replace(plan.nics[0], name="eth1", mac_address="02:00:00:12:34:56")
        made = bench.ensure(replace(plan, nics=(*plan.nics, wanted)))
        if made.nics is None:
            pytest.skip("the driver does not tell interfaces")
        told = {nic.name: nic for nic in made.nics}
        assert told["eth1"].mac_address == "02:00:00:12:34:56"
        assert told["eth1"].connected
        assert told["eth0"].network == told["eth1"].network
        assert told["eth0"].network


class ErrorConformance(Benched):
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


class FeedConformance(Benched):
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
        bench.until("the guest runs", lambda: bench.state(plan).guest.agent_connected)
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


def _change(bench: Bench, plan: AnyPlan) -> None:
    bench.run(plan, lambda: bench.driver.update(plan, bench.state(plan)))


def _interfaces(state: MachineState) -> set[str | None]:
    return {nic.name for nic in state.nics or ()}


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
