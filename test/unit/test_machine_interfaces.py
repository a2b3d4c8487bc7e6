"""Interfaces of a VM that exists follow its machine; those of other people are left alone."""

from typing import Any, cast

import pytest

from banlieue.sdk.driver import MachineState, NicState
from banlieue.sdk.machine import drift, nic_drift
from banlieue.sdk.machine.drift import Desired
from banlieue.sdk.machine.nic_drift import DesiredNic
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


# Plugged in, and into what


def told(bench: MachineBench) -> list[dict[str, object]]:
    found: list[dict[str, object]] = bench.machine()["status"]["interfaces"]
    return found


def plugs(bench: MachineBench) -> dict[str | None, tuple[bool, str]]:
    return {nic.name: (nic.connected, nic.network) for nic in bench.vms()[0].nics}


async def test_an_interface_is_made_disconnected_and_has_no_address(bench: MachineBench) -> None:
    bench.make_machine(networkInterfaces=[{**ETH0, "connected": False}, ETH1])
    await bench.run()
    bench.clock.advance(5)
    await bench.run()
    assert plugs(bench) == {"eth0": (False, "lan"), "eth1": (True, "lan")}
    macs = interfaces(bench)
    assert told(bench) == [
        {"name": "eth0", "connected": False, "macAddress": macs["eth0"]},
        {"name": "eth1", "connected": True, "macAddress": macs["eth1"]},
    ]
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    live = cast("dict[str, list[str]]", bench.control("live_addresses"))
    (plugged,) = [nic for nic in bench.vms()[0].nics if nic.connected]
    assert set(live) == set(plugged.addresses)


@pytest.mark.parametrize("power", ["PoweredOn", "PoweredOff"])
async def test_an_interface_is_plugged_in_and_out_with_an_edit(
    bench: MachineBench, power: str
) -> None:
    bench.make_machine(powerState=power, networkInterfaces=[{**ETH0, "connected": False}])
    await bench.run()
    before = interfaces(bench)
    for connected in (True, False):
        bench.edit(networkInterfaces=[{**ETH0, "connected": connected}])
        await bench.run()
        assert plugs(bench)["eth0"] == (connected, "lan")
        assert told(bench)[0]["connected"] is connected
    assert interfaces(bench) == before
    assert bench.vms()[0].power == power
    assert bench.condition("UpToDate") == ("True", "UpToDate")


@pytest.mark.parametrize("wanted", [True, False])
async def test_an_interface_that_somebody_switched_is_put_right_after_a_while(
    bench: MachineBench, *, wanted: bool
) -> None:
    bench.make_machine(networkInterfaces=[{**ETH0, "connected": wanted}])
    await bench.run()
    bench.control("set_nic", vm=bench.vms()[0].id, nic="eth0", connected=not wanted)
    await bench.reconciler.reconcile(MACHINE)
    assert told(bench)[0]["connected"] is not wanted, "nobody could see that it was switched"
    assert bench.condition("UpToDate") == ("False", "DriftDetected")
    assert plugs(bench)["eth0"][0] is not wanted
    bench.clock.advance(31)
    await bench.run()
    assert plugs(bench)["eth0"][0] is wanted
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_an_interface_moves_to_another_network_with_an_edit(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    before = interfaces(bench)
    bench.edit(networkInterfaces=[{**ETH0, "networkClass": "dmz"}])
    await bench.run()
    assert plugs(bench) == {"eth0": (True, "dmz")}
    assert interfaces(bench) == before
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_an_interface_that_is_on_another_network_is_told_and_left_there(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    bench.control("set_nic", vm=bench.vms()[0].id, nic="eth0", network="dmz")
    for _ in range(3):
        bench.clock.advance(60)
        await bench.run()
    assert plugs(bench) == {"eth0": (True, "dmz")}
    assert bench.condition("UpToDate") == ("False", "DriftDetected")
    assert "networkInterfaces (eth0)" in message(bench, "UpToDate")
    assert bench.condition("Ready") == ("True", "Ready")
    bench.edit(cpus=4)
    await bench.run()
    assert plugs(bench) == {"eth0": (True, "lan")}, "an edit asks for all of the spec"


async def test_an_interface_keeps_its_mac_address_and_says_so(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    before = interfaces(bench)
    bench.edit(networkInterfaces=[{**ETH0, "macAddress": "02:00:00:00:00:99"}])
    for _ in range(3):
        await bench.run()
        bench.clock.advance(60)
    assert interfaces(bench) == before
    assert bench.machine()["status"]["pendingChanges"] == ["networkInterfaces"]
    assert bench.condition("UpToDate") == ("False", "UnsupportedByProvider")
    assert "eth0" in message(bench, "UpToDate")
    assert bench.condition("Ready") == ("True", "Ready")


async def test_a_mac_address_is_given_at_creation(bench: MachineBench) -> None:
    bench.make_machine(networkInterfaces=[{**ETH0, "macAddress": "02:00:00:00:00:99"}])
    await bench.run()
    assert interfaces(bench) == {"eth0": "02:00:00:00:00:99"}
    assert bench.condition("UpToDate") == ("True", "UpToDate")


@pytest.mark.parametrize(
    ("want", "nic", "differs"),
    [
        (DesiredNic(), NicState("1", "eth0"), False),
        (DesiredNic(connected=False), NicState("1", "eth0"), True),
        (DesiredNic(mac_address="02:AA:00:00:00:01"), NicState("1", "eth0"), False),
        (
            DesiredNic(mac_address="02:AA:00:00:00:01"),
            NicState("1", "eth0", mac_address="02:aa:00:00:00:01"),
            False,
        ),
        (
            DesiredNic(mac_address="02:aa:00:00:00:02"),
            NicState("1", "eth0", mac_address="02:aa:00:00:00:01"),
            True,
        ),
        (DesiredNic(target={"bridge": "b0", "vlan": 7}), NicState("1", "eth0"), False),
        (
            DesiredNic(target={"bridge": "b0", "vlan": 7}),
            NicState("1", "eth0", plugged={"bridge": {"b0"}, "vlan": {"7"}}),
            False,
        ),
        (
            DesiredNic(target={"bridge": "b0", "vlan": 7}),
            NicState("1", "eth0", plugged={"bridge": {"b0"}, "vlan": {"8"}}),
            True,
        ),
        (
            DesiredNic(target={"bridge": "b0", "vlan": 7}),
            NicState("1", "eth0", plugged={"bridge": {"b0"}}),
            True,
        ),
    ],
)
def test_what_of_an_interface_differs(want: DesiredNic, nic: NicState, *, differs: bool) -> None:
    assert nic_drift.differing(["eth0"], {"eth0": want}, (nic,)) == (("eth0",) if differs else ())
