"""Disks of a VM on a vCenter: what is changed, what is left, and where kept ones lie."""

from typing import Any

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.hardware import devices, disks, kept, notes
from banlieue.providers.vsphere.hardware.disks import Attached
from banlieue.providers.vsphere.places.inventory import Datastore
from banlieue.providers.vsphere.places.stores import Wish
from banlieue.sdk.driver import DiskPlan, DiskRemoval
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner

Native = Any
"""An object of the vendor's library, which has no types for them."""

KIB = 1024 * 1024
STORE = Datastore("datastore-1", "ds1", None, usable=True)
OWNER = Owner("installation-1", OWNER_VIRTUAL_MACHINE, "team-a", "db")
CHILD = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName="[ds1] ubuntu/0.vmdk")


def disk(unit: int, file: str, gib: float = 5, **words: Native) -> Native:
    backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
        fileName=file, datastore=vim.Datastore("datastore-1", None), parent=words.get("parent")
    )
    return vim.vm.device.VirtualDisk(
        key=2000 + unit,
        controllerKey=words.get("controller", 1000),
        unitNumber=unit,
        capacityInKB=int(gib * KIB),
        backing=backing,
    )


def vm(*extra: Native, slots: dict[str, str] | None = None, **words: Native) -> Attached:
    hardware = [
        vim.vm.device.ParaVirtualSCSIController(key=1000, busNumber=0),
        vim.vm.device.VirtualIDEController(key=200, busNumber=0),
        disk(0, "[ds1] web-1/web-1.vmdk", parent=words.pop("parent", None)),
        *extra,
    ]
    known = {"scsi0:0": "root"} if slots is None else slots
    return Attached(hardware, known, "[ds1] web-1/web-1.vmx", "web-1", **words)


def plans(**sizes: int | None) -> tuple[DiskPlan, ...]:
    return tuple(DiskPlan(name, size, {}) for name, size in {"root": None, **sizes}.items())


def found(plan: tuple[DiskPlan, ...], has: Attached, *gone: DiskRemoval) -> disks.Edit:
    return disks.edit(plan, gone, has, lambda _: (STORE, Wish()))


def told(edit: disks.Edit) -> list[tuple[str, str | None]]:
    return [(change.operation, change.fileOperation) for change in edit.changes]


DATA = {"scsi0:0": "root", "scsi0:1": "data"}


def with_data(**words: Native) -> Attached:
    return vm(disk(1, "[ds1] web-1/web-1_1.vmdk"), slots=DATA, **words)


# What is changed


def test_a_missing_disk_is_made_where_there_is_room_and_written_down_with_it() -> None:
    edit = found(plans(data=3), vm(running=True))
    (change,) = edit.changes
    assert told(edit) == [("add", "create")]
    assert (change.device.controllerKey, change.device.unitNumber) == (1000, 1)
    assert change.device.backing.fileName == "[ds1]"
    assert change.device.capacityInKB == 3 * KIB
    assert dict(edit.slots) == DATA


def test_nothing_is_made_where_nobody_can_tell_what_was_there() -> None:
    assert found(plans(data=3), vm(slots={})).changes == ()


def test_a_lost_disk_is_not_made_anew_and_its_place_not_given_away() -> None:
    edit = found(plans(data=3, more=1), vm(slots=DATA))
    (change,) = edit.changes
    assert change.device.unitNumber == 2
    assert edit.slots["scsi0:2"] == "more"
    states = devices.disk_states(vm().devices, DATA, "[ds1] web-1/web-1.vmx", "web-1")
    assert devices.lost(DATA, states) == ("data",)


def test_a_disk_grows_and_never_shrinks() -> None:
    (change,) = found(plans(data=8), with_data(running=True)).changes
    assert (change.operation, change.device.capacityInKB) == ("edit", 8 * KIB)
    assert found(plans(data=5), with_data()).changes == ()
    assert found(plans(data=2), with_data()).changes == ()


@pytest.mark.parametrize(
    ("has", "wanted", "reason"),
    [
        (with_data(snapshots=True), plans(data=8), Reason.BLOCKED_BY_SNAPSHOT),
        (vm(parent=CHILD), (DiskPlan("root", 8, {}),), Reason.BLOCKED_BY_LINKED_CLONE),
        (
            vm(
                disk(0, "[ds1] web-1/web-1_1.vmdk", controller=200),
                slots={"scsi0:0": "root", "ide0:0": "data"},
                running=True,
            ),
            plans(data=8),
            Reason.RESTART_REQUIRED,
        ),
    ],
)
def test_what_cannot_grow_says_why_and_holds_up_nothing_else(
    has: Attached, wanted: tuple[DiskPlan, ...], reason: Reason
) -> None:
    edit = found((*wanted, DiskPlan("more", 1, {})), has)
    assert told(edit) == [("add", "create")]
    assert isinstance(edit.blocked, NeedsOperator)
    assert edit.blocked.reason is reason


def test_only_what_was_made_for_the_vm_is_ever_destroyed() -> None:
    foreign = disk(2, "[ds2] volumes/pv-1.vmdk")
    has = vm(disk(1, "[ds1] web-1/web-1_1.vmdk"), foreign, slots={**DATA, "scsi0:2": "stolen"})
    gone = [DiskRemoval(name, None) for name in ("data", "stolen", "root", "nothing")]
    edit = found(plans(), has, *gone)
    assert told(edit) == [("remove", "destroy")]
    assert edit.changes[0].device.backing.fileName == "[ds1] web-1/web-1_1.vmdk"
    assert "data" not in edit.slots.values()
    assert found(plans(), with_data(snapshots=True), gone[0]).changes == ()


def test_a_disk_to_keep_is_taken_off_with_its_file_left() -> None:
    edit = disks.detachment(["data"], with_data())
    assert told(edit) == [("remove", None)]
    assert dict(edit.slots) == {"scsi0:0": "root"}
    with pytest.raises(NeedsOperator) as refusal:
        disks.detachment(["data"], with_data(snapshots=True))
    assert refusal.value.reason is Reason.BLOCKED_BY_SNAPSHOT
    with pytest.raises(NeedsOperator) as refusal:
        disks.detachment(["root"], vm(parent=CHILD))
    assert refusal.value.reason is Reason.BLOCKED_BY_LINKED_CLONE


def test_a_disk_that_exists_is_attached_and_not_made() -> None:
    plan = DiskPlan("old", None, {}, existing="db-data-1")
    edit = disks.attachment(plan, "[ds1] web-1/db-data-1.vmdk", vm())
    assert told(edit) == [("add", None)]
    assert edit.slots["scsi0:1"] == "old"


def test_a_full_controller_gets_company_and_a_full_vm_refuses() -> None:
    many = plans(**{f"d{number}": 1 for number in range(59)})
    edit = found(many, vm())
    kinds = [type(change.device) for change in edit.changes]
    assert kinds.count(vim.vm.device.ParaVirtualSCSIController) == 3
    assert list(edit.slots.values()) == [plan.name for plan in many]
    with pytest.raises(InvalidSpec):
        found((*many, DiskPlan("last", 1, {})), vm())


def test_a_guest_finds_a_disk_by_its_lasting_number() -> None:
    with_uuid = disk(1, "[ds1] web-1/web-1_1.vmdk")
    with_uuid.backing.uuid = "6000C29A-1111-2222-3333-444455556666"
    buses = {1000: "scsi0", 200: "ide0"}
    path = "/dev/disk/by-id/wwn-0x6000c29a111122223333444455556666"
    assert devices.guest_path(with_uuid, buses) == path
    with_uuid.controllerKey = 200
    assert devices.guest_path(with_uuid, buses) is None


# Where kept disks lie


def test_the_path_says_whose_a_kept_disk_is() -> None:
    path = "[ds1] banlieue-retained/installation-1/team-a/db-data-1.vmdk"
    assert kept.file("ds1", OWNER, "db-data-1") == path
    assert kept.store_of(path) == "ds1"
    odd = Owner("../elsewhere", OWNER_VIRTUAL_MACHINE, "team-a", "db")
    assert ".." not in kept.file("ds1", odd, "db-data-1")


@pytest.mark.parametrize(
    "text", ["", "../team-b/db-data-1", "a/b", "[ds1] x.vmdk", ".hidden", "A", "a" * 300, "a\n"]
)
def test_nothing_but_an_id_leads_to_a_file(text: str) -> None:
    assert not notes.is_id(text)


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"../x": "[ds1] a"}', '{"a": 1}'])
def test_a_damaged_note_moves_nothing(text: str | None) -> None:
    uuid = "11111111-2222-4333-8444-555555555555"
    assert notes.of_vm(text, Mark(OWNER, uuid), uuid) == {}
