"""Details that are read while workers look at the same VMs: which answer stays."""

from typing import Any, cast

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.watching import detailing
from banlieue.providers.vsphere.watching.detailing import Detailer
from banlieue.providers.vsphere.watching.records import VERSION, Records, VmRecord

VM = "vm-1"


def answer(version: str, *files: str) -> Found:
    disks = [
        vim.vm.device.VirtualDisk(
            key=2000 + unit,
            unitNumber=unit,
            backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName=file),
        )
        for unit, file in enumerate(files)
    ]
    values = {
        "name": "web-1",
        "config.instanceUuid": "u-1",
        VERSION: version,
        "runtime.powerState": "poweredOff",
        "config.hardware.device": disks,
    }
    return Found("VirtualMachine", VM, values)


OLD, NEW = answer("1", "[ds] root.vmdk"), answer("2", "[ds] root.vmdk", "[ds] volume.vmdk")


class Watched:
    """A VM whose details are due, and what happens while they are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.records = Records()
        self.record: VmRecord = self.records.take(OLD, self.now)
        self.detailer = Detailer(cast("Session", None), self.records, lambda: self.now)
        self._monkeypatch = monkeypatch

    def read(self, found: Found, *, look: Found | None = None, told: str | None = None) -> None:
        self.now += 1.0
        self.record.details_due = self.now

        def read(session: object, wanted: object, paths: tuple[str, ...]) -> list[Found]:
            del session, wanted
            assert VERSION in paths
            self.now += 1.0
            if look is not None:
                self.records.take(look, self.now)
            if told is not None:
                self.record.change_version = told
            return [found]

        self._monkeypatch.setattr(detailing, "read", read)
        self.detailer.read_due()

    @property
    def known(self) -> tuple[str | None, int]:
        details = self.record.details
        assert details is not None
        return details.change_version, len(details.disks)


@pytest.fixture
def vm(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_an_answer_that_began_before_a_look_does_not_replace_what_that_found(vm: Watched) -> None:
    vm.read(OLD, look=NEW)
    assert vm.known == ("2", 2)


def test_an_answer_from_before_a_change_is_of_the_version_it_was_read_with(vm: Watched) -> None:
    vm.read(OLD, told="2")
    assert vm.known == ("1", 1)
    assert vm.record.details_due is not None, "it is read again"
    vm.read(NEW)
    assert vm.known == ("2", 2)
    assert vm.record.details_due is None


def test_an_answer_ahead_of_the_watch_is_not_read_twice(vm: Watched) -> None:
    vm.read(NEW)
    record: Any = vm.record
    assert (vm.known, record.details_due) == (("2", 2), None)
    record.change_version = "2"
    vm.detailer.told(record, (record.ip, record.tools, record.power))
    assert record.details_due is None
