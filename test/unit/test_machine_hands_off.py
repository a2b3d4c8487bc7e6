"""Hands off a VM that somebody else works on, or that an admin holds on the backend."""

import pytest

from test.kit.machinebench import MACHINE, MachineBench


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


async def _later(bench: MachineBench, seconds: float) -> None:
    """Passes as time goes by."""
    for _ in range(int(seconds // 5)):
        bench.clock.advance(5)
        await bench.run()


async def test_drift_is_not_corrected_while_an_admin_holds_the_vm(bench: MachineBench) -> None:
    bench.make_machine(powerOffMode="Hard")
    await bench.run()
    vm = bench.vms()[0].id
    bench.control("hold", vm=vm)
    bench.control("set_power", vm=vm, power="PoweredOff")
    await _later(bench, 120)
    assert bench.vms()[0].power == "PoweredOff"
    assert bench.condition("Held") == ("True", "HeldByBackend")
    assert bench.condition("PowerStateSynced") == ("False", "DriftDetected")

    bench.control("hold", vm=vm, held=False)
    await _later(bench, 40)
    assert bench.vms()[0].power == "PoweredOn"
    assert bench.condition("Held") == ("", "")
    assert bench.condition("Ready") == ("True", "Ready")


async def test_a_hold_is_no_answer_to_an_edit(bench: MachineBench) -> None:
    bench.make_machine(powerOffMode="Hard")
    await bench.run()
    bench.control("hold", vm=bench.vms()[0].id)
    bench.edit(powerState="PoweredOff")
    await bench.run()
    assert bench.vms()[0].power == "PoweredOff"


async def test_drift_is_not_corrected_while_somebody_else_works_on_the_vm(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    vm = bench.vms()[0].id
    bench.control("set_power", vm=vm, power="PoweredOff")
    bench.control("run_task", vm=vm, seconds=200.0)
    await _later(bench, 150)
    assert bench.vms()[0].power == "PoweredOff"
    await _later(bench, 120)
    assert bench.vms()[0].power == "PoweredOn"


@pytest.mark.parametrize("policy", ["Correct", "Report"])
async def test_an_edit_waits_for_the_task_of_somebody_else_and_is_not_forgotten(
    bench: MachineBench, policy: str
) -> None:
    bench.make_machine(powerOffMode="Hard", driftPolicy={"power": policy})
    await bench.run()
    bench.control("run_task", vm=bench.vms()[0].id, seconds=60.0)
    bench.edit(powerState="PoweredOff")
    await bench.reconciler.reconcile(MACHINE)
    assert bench.vms()[0].power == "PoweredOn"
    assert bench.condition("PowerStateSynced") == ("False", "ProviderBusy")
    await _later(bench, 120)
    assert bench.vms()[0].power == "PoweredOff"
    assert bench.condition("Ready") == ("True", "Ready")
