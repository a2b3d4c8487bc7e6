"""Drift that was put right is told once, and nothing else is called that."""

import pytest

from banlieue.api.events import EventReason
from test.kit.machinebench import MACHINE, MachineBench


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


async def _running(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.clock.advance(60)
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")


async def _settle(bench: MachineBench) -> None:
    for _ in range(4):
        bench.clock.advance(40)
        await bench.run()


def _told(bench: MachineBench) -> list[str]:
    events = bench.recorder.events
    return [it.message for it in events if it.reason is EventReason.DRIFT_CORRECTED]


async def test_power_that_was_put_right_is_told_once(bench: MachineBench) -> None:
    await _running(bench)
    bench.control("set_power", vm=bench.vms()[0].id, power="PoweredOff")
    await bench.run()
    assert bench.condition("PowerStateSynced") == ("False", "DriftDetected")
    assert _told(bench) == []
    await _settle(bench)
    assert bench.vms()[0].power == "PoweredOn"
    assert _told(bench) == ["What was changed on the backend was put right: powerState"]
    await _settle(bench)
    assert len(_told(bench)) == 1


async def test_each_drift_is_told_of_anew(bench: MachineBench) -> None:
    await _running(bench)
    for _ in range(2):
        bench.control("set_power", vm=bench.vms()[0].id, power="PoweredOff")
        await bench.run()
        await _settle(bench)
    assert len(_told(bench)) == 2


async def test_what_an_admin_puts_right_is_not_told_as_ours(bench: MachineBench) -> None:
    await _running(bench)
    for power in ("PoweredOff", "PoweredOn"):
        bench.control("set_power", vm=bench.vms()[0].id, power=power)
        await bench.run()
    await _settle(bench)
    assert bench.condition("Ready") == ("True", "Ready")
    assert _told(bench) == []


async def test_what_the_user_asked_for_is_no_correction(bench: MachineBench) -> None:
    await _running(bench)
    bench.edit(powerState="PoweredOff", powerOffMode="Hard")
    await _settle(bench)
    bench.edit(powerState="PoweredOn")
    await _settle(bench)
    assert bench.vms()[0].power == "PoweredOn"
    assert _told(bench) == []


async def test_an_edit_that_comes_between_takes_the_word_back(bench: MachineBench) -> None:
    await _running(bench)
    bench.control("set_power", vm=bench.vms()[0].id, power="PoweredOff")
    await bench.run()
    bench.control("set_latencies", power=50.0)
    bench.clock.advance(40)
    await bench.reconciler.reconcile(MACHINE)
    assert bench.reconciler.memories[MACHINE].correcting
    bench.edit(powerState="PoweredOff", powerOffMode="Hard")
    await _settle(bench)
    await _settle(bench)
    assert bench.vms()[0].power == "PoweredOff"
    assert _told(bench) == []


async def test_a_vm_that_is_found_again_is_told_once(bench: MachineBench) -> None:
    def told() -> int:
        return [it.reason for it in bench.recorder.events].count(EventReason.REBOUND)

    await _running(bench)
    assert told() == 0, "a VM that was made is not found"
    bench.delete(mode="Release")
    await bench.run()
    bench.restart()
    bench.make_machine()
    await bench.run()
    await _settle(bench)
    assert len(bench.vms()) == 1
    assert told() == 1
