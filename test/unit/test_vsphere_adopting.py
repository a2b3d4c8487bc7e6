"""Which disks and cards of a VM nobody marked are its own, and what they are called. Pure."""

from typing import Any

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.hardware import devices
from banlieue.sdk.naming import disk_names, interface_names

VMX = "[ds] web/web.vmx"


def disk(
    key: int, unit: int, file: str, *, first_class: str | None = None, sharing: str | None = None
) -> Any:  # noqa: ANN401
    backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
        fileName=file, diskMode="persistent", sharing=sharing
    )
    return vim.vm.device.VirtualDisk(
        key=key,
        controllerKey=1000,
        unitNumber=unit,
        capacityInKB=1024 * 1024,
        backing=backing,
        vDiskId=vim.vslm.ID(id=first_class) if first_class else None,
    )


SCSI = vim.vm.device.ParaVirtualSCSIController(key=1000, busNumber=0, sharedBus="noSharing")


def test_disks_in_the_vms_own_directory_are_its_own_in_the_order_of_their_slots() -> None:
    attached = [
        SCSI,
        disk(2002, 2, "[other] web/data.vmdk"),
        disk(2000, 0, "[ds] web/web-000001.vmdk", sharing="sharingNone"),
        disk(2003, 3, "[other] web_1/more.vmdk"),
    ]
    assert devices.own_slots(attached, VMX, "web") == ["scsi0:0", "scsi0:2", "scsi0:3"]


@pytest.mark.parametrize(
    "foreign",
    [
        disk(2001, 1, "[ds] web/pv.vmdk", first_class="fcd-1"),
        disk(2001, 1, "[ds] fcd/pv.vmdk"),
        disk(2001, 1, "[ds] another-vm/another-vm.vmdk"),
        disk(2001, 1, "[ds] loose.vmdk"),
        disk(2001, 1, "[ds] web_b/web_b.vmdk"),
        disk(2001, 1, "[other] web_b/web_b.vmdk"),
        disk(2001, 1, "[ds] web_1/web_1.vmdk"),
        disk(2001, 1, "[ds] web/web_1.vmdk", sharing="sharingMultiWriter"),
    ],
    ids=[
        "first class",
        "volume",
        "hot-added by a backup",
        "in no directory",
        "of a VM whose name begins alike",
        "of one on another datastore",
        "of one that is called as a second directory is",
        "shared",
    ],
)
def test_what_is_not_its_own_gets_no_name(foreign: Any) -> None:  # noqa: ANN401 - a VirtualDisk
    attached = [SCSI, disk(2000, 0, "[ds] web/web.vmdk"), foreign]
    slots = devices.own_slots(attached, VMX, "web")
    assert slots == ["scsi0:0"]
    named = dict(zip(slots, disk_names([None]), strict=True))
    states = devices.disk_states(attached, named, VMX, "web")
    assert [state.name for state in states] == ["root", None]


def test_a_vm_that_was_renamed_keeps_its_disks() -> None:
    attached = [SCSI, disk(2000, 0, "[ds] web/web.vmdk")]
    assert devices.own_slots(attached, VMX, "renamed") == ["scsi0:0"]


@pytest.mark.parametrize(
    ("known", "named"),
    [
        ([], []),
        ([None], ["root"]),
        ([None, None, None], ["root", "disk-1", "disk-2"]),
        (["root", None, "data"], ["root", "disk-1", "data"]),
        (["disk-1", None, None], ["disk-1", "root", "disk-2"]),
    ],
)
def test_names_of_disks_are_those_they_have_and_else_by_number(
    known: list[str | None], named: list[str]
) -> None:
    assert list(disk_names(known)) == named


def test_names_of_interfaces_leave_none_out_and_none_twice() -> None:
    assert interface_names([None, "eth0", None, "lan"]) == ("eth1", "eth0", "eth2", "lan")
