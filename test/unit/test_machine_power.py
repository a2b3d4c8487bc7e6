"""Restarts: one for each value of restartAt, whatever is lost in between."""

from datetime import timedelta

import pytest

from banlieue.api.events import EventReason
from banlieue.api.meta import format_time
from banlieue.api.resources import PROVIDERS
from banlieue.api.types import PowerOffMode
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.memory_api import Moment
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench

ASKS = {"Hard": "reset", "Soft": "reboot", "TrySoft": "reboot"}


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


async def _running(bench: MachineBench, **spec: object) -> None:
    """A machine that was observed, a minute ago."""
    bench.make_machine()
    bench.edit(MACHINE, **spec)
    await bench.run()
    bench.clock.advance(60)
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")


def _moment(bench: MachineBench, seconds: float = 0) -> str:
    return format_time(bench.clock.now() + timedelta(seconds=seconds))


def _restarts(bench: MachineBench) -> int:
    calls = bench.control("calls")
    assert isinstance(calls, dict)
    return sum(calls.get(method, 0) for method in ("reset", "reboot"))


def _recorded(bench: MachineBench) -> str | None:
    found: str | None = bench.machine()["status"].get("lastRestartTime")
    return found


@pytest.mark.parametrize("mode", list(PowerOffMode))
async def test_a_value_restarts_the_vm_once_as_its_power_off_mode_says(
    bench: MachineBench, mode: PowerOffMode
) -> None:
    await _running(bench, powerOffMode=mode.value)
    before = bench.vms()[0].model_copy()
    value = _moment(bench)
    bench.edit(restartAt=value)
    await bench.run()
    bench.clock.advance(5)
    await bench.run()

    vm = bench.vms()[0]
    assert (vm.power, vm.guest_up, vm.uuid) == ("PoweredOn", True, before.uuid)
    assert (vm.last_boot or "") >= value > (before.last_boot or "")
    assert _recorded(bench) == value
    assert "task" not in bench.machine()["status"]
    assert bench.condition("Ready") == ("True", "Ready")
    calls = bench.control("calls")
    assert isinstance(calls, dict)
    assert calls.get(ASKS[mode.value]) == _restarts(bench) == 1

    for _ in range(3):
        bench.clock.advance(600)
        await bench.run()
    bench.restart()
    await bench.run()
    assert _restarts(bench) == 1
    told = [event.reason for event in bench.recorder.events]
    assert told.count(EventReason.RESTARTED) == 1


async def test_while_it_restarts_the_machine_says_so(bench: MachineBench) -> None:
    await _running(bench)
    bench.control("set_latencies", shutdown=10.0)
    bench.edit(restartAt=_moment(bench))
    await bench.reconciler.reconcile(MACHINE)
    assert bench.condition("Ready") == ("False", "Restarting")
    assert bench.condition("PowerStateSynced") == ("True", "PowerStateSynced")
    assert bench.machine()["status"]["task"]["operation"] == "restart"
    assert _recorded(bench) is None


async def test_a_guest_that_does_not_obey_is_reset_in_the_end(bench: MachineBench) -> None:
    await _running(bench, powerOffMode="TrySoft", powerOffTimeoutSeconds=30)
    bench.control("hang_guest", vm=bench.vms()[0].id)
    value = _moment(bench)
    bench.edit(restartAt=value)
    await bench.reconciler.reconcile(MACHINE)
    bench.clock.advance(20)
    await bench.reconciler.reconcile(MACHINE)
    assert _recorded(bench) is None
    bench.clock.advance(20)
    await bench.run()
    assert (bench.vms()[0].last_boot or "") > value
    assert _recorded(bench) == value
    assert _restarts(bench) == 1


async def test_a_guest_that_must_obey_and_does_not_is_said_to_hang(bench: MachineBench) -> None:
    await _running(bench, powerOffMode="Soft", powerOffTimeoutSeconds=10)
    bench.control("hang_guest", vm=bench.vms()[0].id)
    before = bench.vms()[0].last_boot
    bench.edit(restartAt=_moment(bench))
    await bench.reconciler.reconcile(MACHINE)
    bench.clock.advance(20)
    await bench.reconciler.reconcile(MACHINE)
    assert bench.condition("Ready") == ("False", "ShutdownTimedOut")
    assert bench.condition("PowerStateSynced") == ("True", "PowerStateSynced")
    assert bench.vms()[0].last_boot == before
    assert _recorded(bench) is None


async def test_a_value_in_the_future_waits_until_it_is_due_and_asks_nobody(
    bench: MachineBench,
) -> None:
    await _running(bench)
    value = _moment(bench, 3600)
    bench.edit(restartAt=value)
    result = await bench.reconciler.reconcile(MACHINE)
    assert result.requeue_after == pytest.approx(3600, abs=1)
    assert (_restarts(bench), _recorded(bench)) == (0, None)
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    bench.clock.advance(3601)
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (1, value)


async def test_each_later_value_restarts_again_and_an_older_one_does_not(
    bench: MachineBench,
) -> None:
    await _running(bench)
    first = _moment(bench)
    bench.edit(restartAt=first)
    await bench.run()
    bench.clock.advance(100)
    second = _moment(bench)
    bench.edit(restartAt=second)
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (2, second)
    bench.clock.advance(100)
    for older in (first, None):
        bench.edit(restartAt=older)
        await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (2, second)


async def test_a_value_before_the_machine_was_seen_is_recorded_as_done(bench: MachineBench) -> None:
    value = _moment(bench, -3600)
    await _running(bench, restartAt=value)
    assert (_restarts(bench), _recorded(bench)) == (0, value)


async def test_a_value_the_vm_has_booted_after_is_recorded_as_done(bench: MachineBench) -> None:
    await _running(bench)
    value = _moment(bench)
    bench.clock.advance(10)
    for power in ("PoweredOff", "PoweredOn"):
        bench.control("set_power", vm=bench.vms()[0].id, power=power)
    bench.edit(restartAt=value)
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (0, value)


@pytest.mark.parametrize("power", ["PoweredOff", "Suspended"])
async def test_nothing_restarts_that_does_not_run(bench: MachineBench, power: str) -> None:
    await _running(bench, powerState=power)
    value = _moment(bench)
    bench.edit(restartAt=value)
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (0, value)
    assert bench.vms()[0].power == power


async def test_a_value_that_comes_with_the_wish_to_stop_restarts_nothing(
    bench: MachineBench,
) -> None:
    await _running(bench)
    value = _moment(bench)
    bench.edit(restartAt=value, powerState="PoweredOff")
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (0, value)
    assert bench.vms()[0].power == "PoweredOff"


@pytest.mark.parametrize("when", [-3600, 0])
async def test_a_lost_status_restarts_nothing(bench: MachineBench, when: float) -> None:
    await _running(bench)
    value = _moment(bench, when)
    bench.edit(restartAt=value)
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj.pop("status"))
    bench.restart()
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (0, value)


async def test_a_record_that_was_rolled_back_is_proven_by_the_boot_time(
    bench: MachineBench,
) -> None:
    await _running(bench)
    value = _moment(bench)
    bench.edit(restartAt=value)
    await bench.run()
    bench.clock.advance(100)
    await bench.run()
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj["status"].pop("lastRestartTime"))
    bench.restart()
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (1, value)


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("which", range(4))
async def test_a_process_that_dies_at_any_write_restarts_the_vm_once(
    bench: MachineBench, which: int, moment: Moment
) -> None:
    await _running(bench, powerOffMode="Hard")
    value = _moment(bench)
    bench.edit(restartAt=value)
    bench.die_at_write(which, moment)
    await bench.run_through_crashes()
    bench.clock.advance(5)
    await bench.run_through_crashes()
    assert _recorded(bench) == value
    # Dead between the intent and the call: it may have been sent, so it is not sent again.
    unsent = which == 0 and moment is Moment.AFTER
    assert _restarts(bench) == (0 if unsent else 1)


async def test_a_restart_whose_reply_was_lost_is_not_sent_again(bench: MachineBench) -> None:
    await _running(bench)
    value = _moment(bench)
    bench.control("inject", rule={"effect": "lose-reply", "method": "reboot"})
    bench.edit(restartAt=value)
    await bench.run()
    bench.clock.advance(5)
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (1, value)


async def test_a_restart_that_failed_is_tried_again(bench: MachineBench) -> None:
    await _running(bench)
    value = _moment(bench)
    bench.control("inject", rule={"effect": "fail-task", "method": "reboot", "code": "general"})
    bench.edit(restartAt=value)
    await bench.run()
    bench.clock.advance(5)
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (2, value)


async def test_a_restart_waits_for_the_task_of_somebody_else(bench: MachineBench) -> None:
    await _running(bench)
    bench.control("run_task", vm=bench.vms()[0].id, seconds=20.0)
    value = _moment(bench)
    bench.edit(restartAt=value)
    await bench.reconciler.reconcile(MACHINE)
    assert _restarts(bench) == 0
    bench.clock.advance(31)
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (1, value)


async def test_nobody_restarts_on_a_provider_that_may_not_be_changed(bench: MachineBench) -> None:
    await _running(bench)
    bench.served.writable = False
    bench.edit(restartAt=_moment(bench))
    await bench.run()
    assert (_restarts(bench), _recorded(bench)) == (0, None)
    assert bench.condition("Ready") == ("False", "ProviderPaused")


async def test_a_namespace_that_lost_access_restarts_nothing(bench: MachineBench) -> None:
    await _running(bench)
    allowed = {"from": "Same"}
    bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(allowedNamespaces=allowed))
    bench.edit(restartAt=_moment(bench))
    await bench.run()
    assert _restarts(bench) == 0
    assert bench.condition("Ready") == ("False", "ProviderNotAllowed")


async def test_a_guest_that_does_not_stop_in_time_is_said_where_power_is_told(
    bench: MachineBench,
) -> None:
    await _running(bench, powerOffMode="Soft", powerOffTimeoutSeconds=10)
    bench.control("hang_guest", vm=bench.vms()[0].id)
    bench.edit(powerState="PoweredOff")
    await bench.reconciler.reconcile(MACHINE)
    bench.clock.advance(20)
    await bench.reconciler.reconcile(MACHINE)
    for kind in ("Ready", "PowerStateSynced"):
        assert bench.condition(kind) == ("False", "ShutdownTimedOut")
