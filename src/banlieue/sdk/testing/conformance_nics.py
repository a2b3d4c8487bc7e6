"""Conformance: whether interfaces are plugged in, and into what."""
# ruff: noqa: S101 - a test kit asserts

from dataclasses import replace

import pytest

from banlieue.api.types import PowerState
from banlieue.sdk.driver import NicState
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, Benched


class PlugConformance(Benched):
    """An interface is connected and plugged in as planned, and keeps its MAC address."""

    @pytest.mark.parametrize("power", [PowerState.POWERED_ON, PowerState.POWERED_OFF])
    def test_an_interface_is_made_disconnected_and_plugged_in_later(
        self, bench: Bench, power: PowerState
    ) -> None:
        out = _plan(bench, power, connected=False)
        bench.ensure(out)
        bench.until("the VM is as planned", lambda: bench.state(out).power == power)
        mac = _nic(bench, out).mac_address
        assert not _nic(bench, out).connected, "it was made connected"
        assert bench.driver.update(out, bench.state(out)) is None, "a fresh VM needs an update"
        for connected in (True, False, True):
            plan = _connected(out, connected=connected)
            _change(bench, plan)
            assert _nic(bench, plan).connected is connected
            assert _nic(bench, plan).mac_address == mac
            assert bench.state(plan).power == power
            with bench.connect() as other:
                seen = bench.look(plan.ref, other)
                assert seen is not None
                told = [nic.connected for nic in seen.nics or ()]
                assert told == [connected], "another session sees it otherwise"

    def test_an_interface_is_out_from_the_first_moment_of_a_start(self, bench: Bench) -> None:
        out = _plan(bench, PowerState.POWERED_OFF, connected=False)
        bench.ensure(out)
        assert not _nic(bench, out).connected, "it was made connected"
        on = replace(out, power=PowerState.POWERED_ON)
        _change(bench, on)
        assert bench.state(on).power == PowerState.POWERED_ON
        assert not _nic(bench, on).connected

    def test_an_interface_that_somebody_unplugged_is_told_and_plugged_in(
        self, bench: Bench
    ) -> None:
        plan = _plan(bench, PowerState.POWERED_ON, connected=True)
        made = bench.ensure(plan)
        bench.until("the VM is on", lambda: bench.state(plan).power == PowerState.POWERED_ON)
        bench.target.unplug(made.backend_id, _nic(bench, plan).id)
        bench.until("it is told", lambda: not _nic(bench, plan).connected)
        _change(bench, plan)
        assert _nic(bench, plan).connected

    def test_an_interface_is_plugged_into_another_network(self, bench: Bench) -> None:
        plan = _plan(bench, PowerState.POWERED_ON, connected=True)
        offered = plan.failure_domain.network_classes
        declared = bench.target.connection().capabilities.network_classes
        targets = [entry.target for entry in declared if entry.name in offered]
        if not targets[1:]:
            pytest.skip("the target has one network only")
        made = bench.ensure(plan)
        bench.target.attach_foreign_interface(made.backend_id)
        before = bench.state(plan)
        other = replace(plan, nics=(replace(plan.nics[0], network=targets[1]),))
        _change(bench, other)
        nic = _nic(bench, other)
        assert nic.network != _named(before.nics).network, "it was not plugged elsewhere"
        assert nic.mac_address == _named(before.nics).mac_address
        for target, there in ((targets[0], False), (targets[1], True)):
            for key, value in target.items():
                assert nic.plugged is None or (str(value) in nic.plugged[key]) is there
        after = bench.state(other)
        assert _foreign(after.nics) == _foreign(before.nics), "a foreign interface was changed"
        assert bench.driver.update(other, after) is None


def _plan(bench: Bench, power: PowerState, *, connected: bool) -> AnyPlan:
    return _connected(replace(bench.plan(), power=power), connected=connected)


def _connected(plan: AnyPlan, *, connected: bool) -> AnyPlan:
    return replace(plan, nics=tuple(replace(nic, connected=connected) for nic in plan.nics))


def _nic(bench: Bench, plan: AnyPlan) -> NicState:
    nics = bench.state(plan).nics
    if nics is None:
        # What was just made may not have been looked at yet.
        nics = bench.until("interfaces are told", lambda: bench.state(plan).nics)
    return _named(nics)


def _named(nics: tuple[NicState, ...] | None) -> NicState:
    (found,) = [nic for nic in nics or () if nic.name == "eth0"]
    return found


def _foreign(nics: tuple[NicState, ...] | None) -> list[NicState]:
    return [nic for nic in nics or () if nic.name is None]


def _change(bench: Bench, plan: AnyPlan) -> None:
    bench.run(plan, lambda: bench.driver.update(plan, bench.state(plan)))
