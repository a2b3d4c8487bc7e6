"""Interfaces of a VM that exists follow its machine; those of other people are left alone."""

from typing import Any, cast

import pytest

from banlieue.sdk.driver import MachineState, NicState
from banlieue.sdk.machine import drift
from banlieue.sdk.machine.drift import Desired
from test.kit.machinebench import MACHINE, MachineBench

ETH0 = {"name": "eth0", "networkClass": "lan"}
ETH1 = {"name": "eth1", "networkClass": "lan"}


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


def interfaces(bench: MachineBench) -> dict[str | None, str]:
    return {nic.name: nic.mac for nic in bench.vms()[0].nics}


def message(bench: MachineBench, kind: str) -> str:
    found = bench.machine()["status"]["conditions"]
    return next(str(item["message"]) for item in found if item["type"] == kind)


async def test_an_interface_comes_and_goes_with_an_edit(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    before = interfaces(bench)
    bench.edit(networkInterfaces=[ETH0, ETH1])
    await bench.run()
    assert interfaces(bench).keys() == {"eth0", "eth1"}
    assert interfaces(bench)["eth0"] == before["eth0"]
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    bench.edit(networkInterfaces=[ETH0])
    await bench.run()
    assert interfaces(bench) == before
    assert bench.vms()[0].power == "PoweredOn"
    assert bench.condition("Ready") == ("True", "Ready")


async def test_an_interface_of_somebody_else_is_neither_drift_nor_removed(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    bench.control("attach_nic", vm=bench.vms()[0].id)
    bench.clock.advance(100)
    await bench.run()
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    bench.edit(networkInterfaces=[ETH1])
    await bench.run()
    assert interfaces(bench).keys() == {"eth1", None}


async def test_an_interface_taken_away_comes_back_after_a_while(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.vms()[0].nics.clear()
    await bench.reconciler.reconcile(MACHINE)
    assert bench.condition("UpToDate") == ("False", "DriftDetected")
    assert "eth0" in message(bench, "UpToDate")
    assert interfaces(bench) == {}
    bench.clock.advance(31)
    await bench.run()
    assert interfaces(bench).keys() == {"eth0"}
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_drift_of_interfaces_is_only_reported_when_the_policy_says_so(
    bench: MachineBench,
) -> None:
    bench.make_machine(driftPolicy={"hardware": "Report"})
    await bench.run()
    bench.vms()[0].nics.clear()
    bench.clock.advance(100)
    await bench.run()
    bench.clock.advance(100)
    await bench.run()
    assert interfaces(bench) == {}
    assert bench.condition("UpToDate") == ("False", "DriftDetected")


async def test_a_backend_that_cannot_says_which_interface(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.make_machine()
    await bench.run()
    driver = cast("Any", bench.served.driver)
    monkeypatch.setattr(driver, "update", lambda *_: None)
    bench.edit(networkInterfaces=[ETH0, ETH1])
    await bench.run()
    assert bench.condition("UpToDate") == ("False", "UnsupportedByProvider")
    assert "networkInterfaces (eth1)" in message(bench, "UpToDate")
    assert bench.machine()["status"]["pendingChanges"] == ["networkInterfaces"]
    assert bench.condition("Ready") == ("True", "Ready")


def state(*names: str | None) -> MachineState:
    nics = tuple(NicState(str(number), name) for number, name in enumerate(names))
    return cast("MachineState", _State(nics))


class _State:
    def __init__(self, nics: tuple[NicState, ...] | None) -> None:
        self.nics = nics


@pytest.mark.parametrize(
    ("wanted", "seen", "differing"),
    [
        (("eth0",), state("eth0"), ()),
        (("eth0",), state("eth0", None), ()),
        (("eth0", "eth1"), state("eth0"), ("eth1",)),
        (("eth1",), state("eth0", None), ("eth0", "eth1")),
        ((), state("eth0"), ("eth0",)),
        (None, state("eth0"), ()),
        (("eth0",), cast("MachineState", _State(None)), ()),
    ],
)
def test_interfaces_differ_by_name(
    wanted: tuple[str, ...] | None, seen: MachineState, differing: tuple[str, ...]
) -> None:
    want = Desired(power=cast("Any", None), cpus=None, memory_mib=None, nics=wanted)
    assert drift.differing_nics(want, seen) == differing
