"""Which cards are ours, and which edits bring them in line with a plan."""

from typing import Any

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.hardware import cards
from banlieue.providers.vsphere.places.inventory import Network
from banlieue.sdk.driver import NicPlan
from banlieue.sdk.errors import InvalidSpec

Native = Any
UUID = "11111111-2222-3333-4444-555555555555"
ETH0, ETH1 = NicPlan("eth0", {}), NicPlan("eth1", {})
NAMES = cards.planned(UUID, [ETH0, ETH1])
MACS = {name: mac for mac, name in NAMES.items()}
FOREIGN = "00:50:56:00:00:99"


def card(mac: str, key: int = 4000, *, starts: bool = True, connected: bool = True) -> Native:
    backing = vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(deviceName="VM Network")
    return vim.vm.device.VirtualVmxnet3(
        key=key,
        macAddress=mac.upper(),
        backing=backing,
        connectable=vim.vm.device.VirtualDevice.ConnectInfo(
            startConnected=starts, connected=connected, allowGuestControl=True
        ),
    )


def network(port_group: str | None = "dvportgroup-1") -> Network:
    return Network("network-7", "prod", None, port_group, "switch-1")


def change(*wanted: NicPlan, attached: list[Native], names: dict[str, str]) -> Native:
    return cards.change(UUID, wanted, attached, names, lambda _: network(), running=True)


def test_names_survive_being_written_and_damage_tells_nothing() -> None:
    assert cards.decode(cards.encode(NAMES)) == NAMES
    assert cards.decode(cards.encode({})) == {}
    for damaged in (None, "", "[]", "{", "7"):
        assert cards.decode(damaged) is None


def test_cards_are_told_by_what_is_written_and_nothing_without_it() -> None:
    attached = [card(MACS["eth0"], 4000), card(FOREIGN, 4001)]
    told = cards.states(attached, NAMES)
    assert told is not None
    assert [(nic.id, nic.name, nic.mac_address, nic.network) for nic in told] == [
        ("4000", "eth0", MACS["eth0"], "VM Network"),
        ("4001", None, FOREIGN, "VM Network"),
    ]
    assert cards.states(attached, None) is None


def test_cards_as_planned_need_no_change() -> None:
    attached = [card(MACS["eth0"], 4000), card(FOREIGN, 4001)]
    assert change(ETH0, attached=attached, names={MACS["eth0"]: "eth0"}) is None


def test_a_missing_card_is_added_with_the_address_the_uuid_gives_it() -> None:
    found = change(ETH0, ETH1, attached=[card(MACS["eth0"])], names={MACS["eth0"]: "eth0"})
    (edit,) = found.edits
    assert edit.operation == "add"
    assert edit.device.macAddress == MACS["eth1"]
    assert edit.device.backing.port.portgroupKey == "dvportgroup-1"
    assert found.names == NAMES


def test_a_card_on_a_standard_network_refers_to_it() -> None:
    found = cards.change(UUID, [ETH0], [], {}, lambda _: network(None), running=True)
    assert found is not None
    assert found.edits[0].device.backing.network._moId == "network-7"


def test_only_our_own_card_is_removed() -> None:
    attached = [card(MACS["eth0"], 4000), card(MACS["eth1"], 4001), card(FOREIGN, 4002)]
    found = change(ETH0, attached=attached, names=NAMES)
    assert [(edit.operation, edit.device.key) for edit in found.edits] == [("remove", 4001)]
    assert found.names == {MACS["eth0"]: "eth0"}
    without_record = change(ETH0, attached=attached, names={MACS["eth0"]: "eth0"})
    assert without_record is None, "a card that is not written down is nobody's of ours"


def test_a_card_somebody_took_away_is_made_anew() -> None:
    found = change(ETH0, ETH1, attached=[card(MACS["eth1"])], names=NAMES)
    assert [edit.device.macAddress for edit in found.edits] == [MACS["eth0"]]


def test_an_address_that_somebody_elses_card_has_is_refused() -> None:
    taken = NicPlan("eth1", {}, mac_address=FOREIGN)
    with pytest.raises(InvalidSpec, match="eth1"):
        change(ETH0, taken, attached=[card(MACS["eth0"]), card(FOREIGN, 4001)], names=NAMES)


def test_a_card_is_plugged_in_as_its_guest_sees_it() -> None:
    attached = [card(MACS["eth0"], starts=False), card(MACS["eth1"], 4001, connected=False)]
    told = {
        running: [nic.connected for nic in cards.states(attached, NAMES, running=running) or ()]
        for running in (True, False)
    }
    assert told == {True: [True, False], False: [False, True]}


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("running", [True, False])
def test_a_card_follows_whether_it_is_plugged_in(*, wanted: bool, running: bool) -> None:
    attached = [card(MACS["eth0"], starts=not wanted, connected=not wanted)]
    nic = NicPlan("eth0", {}, connected=wanted)
    names = {MACS["eth0"]: "eth0"}
    found = cards.change(UUID, [nic], attached, names, lambda _: network(), running=running)
    assert found is not None
    (edit,) = found.edits
    plugged = edit.device.connectable
    assert (edit.operation, edit.device.key, edit.device.macAddress) == (
        "edit",
        4000,
        MACS["eth0"].upper(),
    )
    assert (plugged.startConnected, plugged.connected) == (wanted, wanted)
    assert plugged.allowGuestControl == wanted, "a guest could plug itself in"
    assert edit.device.backing.deviceName == "VM Network", "it was plugged elsewhere"
    assert found.names == names


@pytest.mark.parametrize(("starts", "running", "edits"), [(False, True, 1), (True, False, 0)])
def test_a_card_that_comes_back_other_at_the_next_start_is_put_right(
    *, starts: bool, running: bool, edits: int
) -> None:
    attached = [card(MACS["eth0"], starts=starts, connected=running)]
    names = {MACS["eth0"]: "eth0"}
    found = cards.change(UUID, [ETH0], attached, names, lambda _: network(), running=running)
    assert len(found.edits if found else ()) == edits


def test_a_card_is_plugged_into_another_network_and_keeps_its_address() -> None:
    nic = NicPlan("eth0", {"portGroup": "prod"}, mac_address="02:00:00:00:00:07")
    found = change(nic, attached=[card(MACS["eth0"])], names={MACS["eth0"]: "eth0"})
    (edit,) = found.edits
    assert edit.operation == "edit"
    assert edit.device.backing.port.portgroupKey == "dvportgroup-1"
    assert edit.device.macAddress == MACS["eth0"].upper()
    assert found.names == {MACS["eth0"]: "eth0"}


@pytest.mark.parametrize("word", ["VM Network", "network-7"])
def test_a_card_that_is_on_its_network_is_left_there(word: str) -> None:
    def find(_: NicPlan) -> Network:
        return Network("network-7", "VM Network", None)

    nic = NicPlan("eth0", {"portGroup": word})
    names = {MACS["eth0"]: "eth0"}
    assert cards.change(UUID, [nic], [card(MACS["eth0"])], names, find, running=True) is None
