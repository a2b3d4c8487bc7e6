"""`status.missing` of a machine: written on proof that its VM is gone, and only then."""

import pytest

from test.kit.machinebench import MachineBench


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


@pytest.mark.identity("4.4")
async def test_proof_is_written_down_with_its_time_and_stays_until_the_vm_is_back(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    assert "missing" not in bench.machine()["status"]
    (vm,) = bench.vms()
    bench.control("remove", vm=vm.id)
    await bench.run()
    told = bench.machine()["status"]["missing"]
    assert told["since"]
    for _ in range(2):
        bench.clock.advance(400)
        await bench.run()
    assert bench.machine()["status"]["missing"] == told

    bench.world.state.vms[vm.id] = vm  # an admin registers it again
    await bench.run()
    assert "missing" not in bench.machine()["status"]
    assert bench.condition("Ready") == ("True", "Ready")


@pytest.mark.identity("5.4")
async def test_what_is_only_not_to_be_seen_is_not_missing(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.control("hide", vm=bench.vms()[0].id)
    await bench.run()
    assert bench.condition("Ready") == ("Unknown", "AbsenceUnproven")
    assert "missing" not in bench.machine()["status"]


@pytest.mark.identity("5.1")
async def test_proof_does_not_outlast_the_sight_it_was_made_with(bench: MachineBench) -> None:
    """Another backend answers now: nothing that was proved before is said of it."""
    bench.make_machine()
    await bench.run()
    bench.control("remove", vm=bench.vms()[0].id)
    await bench.run()
    assert bench.machine()["status"]["missing"]
    bench.control("set_identity", identity="another")
    bench.restart()
    await bench.run()
    assert bench.condition("Ready") == ("False", "BackendIdentityChanged")
    assert "missing" not in bench.machine()["status"]


async def test_a_machine_that_was_never_made_misses_nothing(bench: MachineBench) -> None:
    bench.make_machine()
    bench.control("inject", rule={"effect": "cut", "method": "create*", "count": None})
    await bench.run()
    assert "missing" not in (bench.machine().get("status") or {})
