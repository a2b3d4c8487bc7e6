from typing import Any

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.hardware.devices import decode_slots, disk_states, encode_slots
from banlieue.providers.vsphere.vms.guest import addresses, families

Native = Any
"""An object of the vendor's library, which has no types for them."""

CARDS = {4000, 4001}


def nic(card: int, *found: str) -> Native:
    return vim.vm.GuestInfo.NicInfo(deviceConfigId=card, ipAddress=list(found))


def told(*nics: Native) -> list[str]:
    return [item.address for item in addresses(nics, CARDS)]


def test_addresses_come_by_card_and_ipv4_first() -> None:
    found = told(nic(4001, "10.0.0.9"), nic(4000, "fd00::7", "10.0.0.7"))
    assert found == ["10.0.0.7", "fd00::7", "10.0.0.9"]


@pytest.mark.parametrize(
    "useless",
    ["fe80::1", "169.254.3.4", "127.0.0.1", "::1", "224.0.0.1", "0.0.0.0", "fe80::1%4"],  # noqa: S104 - an address to be left out
)
def test_addresses_nobody_reaches_are_left_out(useless: str) -> None:
    assert told(nic(4000, useless, "10.0.0.7")) == ["10.0.0.7"]


def test_bridges_inside_the_guest_are_left_out() -> None:
    assert told(nic(-1, "172.17.0.1"), nic(4007, "10.9.9.9"), nic(4000, "10.0.0.7")) == ["10.0.0.7"]


def test_an_address_is_told_once_and_nonsense_never() -> None:
    assert told(nic(4000, "10.0.0.7", "10.0.0.7", "not an address")) == ["10.0.0.7"]


def test_families() -> None:
    both = addresses([nic(4000, "10.0.0.7", "fd00::7")], CARDS)
    assert families(both) == {"IPv4", "IPv6"}
    assert families(()) == frozenset()


# Disks

SCSI = vim.vm.device.ParaVirtualSCSIController(key=1000, busNumber=0)
SLOTS = {"scsi0:0": "root", "scsi0:1": "data"}
VMX = "[ds1] web-1234/web-1234.vmx"


def disk(unit: int, path: str, **more: Native) -> Native:
    backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName=path)
    return vim.vm.device.VirtualDisk(
        key=2000 + unit,
        controllerKey=1000,
        unitNumber=unit,
        capacityInKB=2 * 1024 * 1024,
        backing=backing,
        **more,
    )


def names(*disks: Native) -> list[str | None]:
    return [state.name for state in disk_states([SCSI, *disks], SLOTS, VMX, "web-1234")]


def test_disks_of_the_plan_are_told_by_name_in_its_order() -> None:
    root = disk(0, "[ds1] web-1234/web-1234.vmdk")
    data = disk(1, "[ds2] web-1234/web-1234_1.vmdk")
    assert names(data, root) == ["root", "data"]


def test_a_disk_in_another_slot_is_foreign() -> None:
    assert names(disk(2, "[ds1] web-1234/extra.vmdk")) == [None]


@pytest.mark.parametrize(
    "path",
    ["[ds1] fcd/1f2e.vmdk", "[ds1] other/other.vmdk", "[ds1] web-1234-1/x.vmdk", "[ds1] x.vmdk"],
)
def test_a_disk_from_elsewhere_in_a_slot_of_ours_is_foreign(path: str) -> None:
    assert names(disk(1, path)) == [None]


def test_a_first_class_disk_is_foreign_wherever_it_lies() -> None:
    identity = vim.vslm.ID(id="1f2e")
    assert names(disk(1, "[ds1] web-1234/web-1234_1.vmdk", vDiskId=identity)) == [None]


def test_directories_of_the_vm_on_other_datastores_are_its_own() -> None:
    assert names(disk(1, "[ds2] web-1234_1/web-1234_1.vmdk")) == ["data"]


def test_without_a_note_every_disk_is_foreign() -> None:
    states = disk_states([SCSI, disk(0, "[ds1] web-1234/web-1234.vmdk")], {}, VMX, "web-1234")
    assert [state.name for state in states] == [None]


@pytest.mark.parametrize("damaged", [None, "", "{", "[]", '{"scsi0:0": 4}'])
def test_damaged_notes_name_nothing(damaged: str | None) -> None:
    assert decode_slots(damaged) == {}


def test_notes_survive_the_round_trip() -> None:
    assert decode_slots(encode_slots(SLOTS)) == SLOTS
