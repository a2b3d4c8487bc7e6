"""Only the process that made an identity up, to make a VM, tells its driver that it is unused."""

import pytest

from banlieue.sdk.driver import MachineRef, MachineState
from banlieue.sdk.simulated.driver import SimulatedDriver
from test.kit.machinebench import MachineBench


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[MachineRef]:
    """What the driver was asked about, the oldest first."""
    found: list[MachineRef] = []
    observe = SimulatedDriver.observe

    def noted(driver: SimulatedDriver, ref: MachineRef) -> MachineState | None:
        found.append(ref)
        return observe(driver, ref)

    monkeypatch.setattr(SimulatedDriver, "observe", noted)
    return found


async def test_the_process_that_minted_says_so_until_the_end(asked: list[MachineRef]) -> None:
    bench = MachineBench()
    bench.make_machine()
    await bench.run()
    assert {ref.fresh for ref in asked if ref.uuid is None} == {False}
    assert next(ref for ref in asked if ref.uuid is not None).fresh
    asked.clear()
    bench.delete()
    await bench.run()
    assert asked
    assert not [ref for ref in asked if ref.fresh]


async def test_another_process_takes_no_identity_for_unused(asked: list[MachineRef]) -> None:
    bench = MachineBench()
    bench.make_machine()
    await bench.run()
    bench.reconciler.memories.clear()
    asked.clear()
    await bench.run()
    assert asked
    assert not [ref for ref in asked if ref.fresh]
