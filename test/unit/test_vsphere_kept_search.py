"""Kept disks are searched for in steps, and their holders asked for a bounded number at a time."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import soap
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.hardware import holders, search
from banlieue.providers.vsphere.hardware.holders import AT_ONCE, Holders
from banlieue.providers.vsphere.hardware.search import Search
from banlieue.providers.vsphere.places.inventory import Datastore
from banlieue.providers.vsphere.vms import obstacles
from banlieue.providers.vsphere.vms.machines import Live
from banlieue.providers.vsphere.watching.records import SNAPSHOTS, VmRecord
from banlieue.providers.vsphere.watching.watchlist import TaskRecord
from banlieue.sdk.errors import NeedsOperator, Transient

SESSION = cast("Session", object())
STORE = "datastore-1"
PATH = "[gold] banlieue-retained/inst/team/data.vmdk"


class Vms:
    """VMs of one datastore, and how many had their devices read."""

    def __init__(self, count: int) -> None:
        self.versions = {f"vm-{number}": "1" for number in range(count)}
        self.files: dict[str, str] = {}
        self.untold: set[str] = set()
        self.devices_read = 0

    def read(
        self, session: object, start: Mapping[str, type[Any]], paths: Sequence[str]
    ) -> list[Found]:
        del session
        if paths == ("vm",):
            refs = [vim.VirtualMachine(key, None) for key in self.versions]
            return [Found("Datastore", STORE, {"vm": refs})]
        return [self._one(key, paths) for key in start if key not in self.untold]

    def _one(self, key: str, paths: Sequence[str]) -> Found:
        if "config.hardware.device" not in paths:
            values = {"name": f"name-of-{key}", "config.changeVersion": self.versions[key]}
            return Found("VirtualMachine", key, values)
        self.devices_read += 1
        parent = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName=self.files.get(key, "-"))
        backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName="delta", parent=parent)
        disk = vim.vm.device.VirtualDisk(key=2000, backing=backing)
        return Found("VirtualMachine", key, {"config.hardware.device": [disk]})


def vms(monkeypatch: pytest.MonkeyPatch, count: int) -> Vms:
    made = Vms(count)
    monkeypatch.setattr(soap, "read", made.read)
    monkeypatch.setattr(holders, "read", made.read)
    return made


def test_the_vm_that_has_a_file_below_its_snapshot_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = vms(monkeypatch, 3)
    made.files["vm-2"] = PATH
    assert Holders(session=SESSION).find(PATH, STORE) == "name-of-vm-2"
    assert Holders(session=SESSION).find("[gold] other.vmdk", STORE) is None


def test_only_so_many_vms_are_asked_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made = vms(monkeypatch, 2 * AT_ONCE + 1)
    asking = Holders(session=SESSION)
    for asked in (AT_ONCE, 2 * AT_ONCE):
        with pytest.raises(Transient) as later:
            asking.find(PATH, STORE)
        assert later.value.reason is Reason.PROVIDER_BUSY
        assert made.devices_read == asked
    assert asking.find(PATH, STORE) is None
    assert made.devices_read == 2 * AT_ONCE + 1


def test_a_vm_is_asked_again_only_after_it_was_reconfigured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = vms(monkeypatch, 5)
    asking = Holders(session=SESSION)
    assert asking.find(PATH, STORE) is None
    made.files["vm-3"], made.versions["vm-3"] = PATH, "2"
    assert asking.find(PATH, STORE) == "name-of-vm-3"
    assert made.devices_read == 6
    del made.versions["vm-3"]
    assert asking.find(PATH, STORE) is None, "a VM that is gone holds nothing"


def test_vms_that_may_not_be_seen_do_not_hinder(monkeypatch: pytest.MonkeyPatch) -> None:
    made = vms(monkeypatch, 3)
    made.files["vm-2"] = PATH
    made.untold = {"vm-0"}
    assert Holders(session=SESSION).find(PATH, STORE) == "name-of-vm-2"


class Tasks:
    """A vCenter's searches, which end when told."""

    def __init__(self) -> None:
        self.states: dict[str, TaskRecord | None] = {}

    def start(self, store: Datastore) -> str:
        task = f"task-{store.id}"
        self.states[task] = TaskRecord(task, "running")
        return task

    def read_task(self, session: object, task: str) -> TaskRecord | None:
        del session
        return self.states[task]

    def end(self, task: str, *files: str, error: Exception | None = None) -> None:
        found = vim.host.DatastoreBrowser.SearchResults(
            folderPath="[s] banlieue-retained/inst/team/",
            file=[vim.host.DatastoreBrowser.FileInfo(path=name) for name in files],
        )
        state = "error" if error else "success"
        self.states[task] = TaskRecord(task, state, error, None if error else [found])


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    made = Tasks()
    monkeypatch.setattr(search, "read_task", made.read_task)
    monkeypatch.setattr(Search, "_start", lambda _, store: made.start(store))
    return made


def searching(stores: int, clock: list[float] | None = None) -> Search:
    left = [Datastore(f"datastore-{n}", f"s{n}", None, usable=True) for n in range(stores)]
    times = clock or [0.0]
    return Search(session=SESSION, folder="f", left=left, changes=0, begun=1, now=lambda: times[0])


def test_a_search_waits_for_no_task_and_begins_a_few_at_a_time(tasks: Tasks) -> None:
    found = searching(10)
    assert not found.step()
    assert len(tasks.states) == 8
    tasks.end("task-datastore-3", "a.vmdk", "a-flat.vmdk")
    assert not found.step()
    assert len(tasks.states) == 9
    for task in tuple(tasks.states):
        tasks.end(task, error=vim.fault.FileNotFound())
    assert not found.step()
    tasks.end("task-datastore-9")
    assert found.step()
    assert [(store.id, file.path) for store, _, file in found.found] == [("datastore-3", "a.vmdk")]


def test_a_search_that_fails_or_never_ends_is_told(tasks: Tasks) -> None:
    clock = [0.0]
    found = searching(2, clock)
    found.step()
    clock[0] = 1000.0
    with pytest.raises(vmodl.fault.SystemError):
        found.step()
    found = searching(1)
    found.step()
    tasks.end("task-datastore-0", error=vim.fault.HostConnectFault())
    with pytest.raises(vim.fault.HostConnectFault):
        found.step()


def test_snapshots_in_the_making_are_told_as_a_backup() -> None:
    obstacles.check_free([])
    with pytest.raises(Transient) as backup:
        obstacles.check_free(["VirtualMachine.createSnapshot"])
    assert backup.value.reason is Reason.BACKUP_IN_PROGRESS
    with pytest.raises(Transient) as busy:
        obstacles.check_free(["VirtualMachine.rename"])
    assert busy.value.reason is Reason.PROVIDER_BUSY


def vm(*disabled: str, snapshot: bool = False, connection: str = "connected") -> Live:
    record = VmRecord("vm-1")
    record.connection = connection
    values: dict[str, Any] = {obstacles.DISABLED: list(disabled)}
    if snapshot:
        values[SNAPSHOTS] = ["a snapshot"]
    return Live(record, {}, Found("VirtualMachine", "vm-1", values))


@pytest.mark.parametrize(
    "found", [vm("ReconfigVM_Task"), vm("RelocateVM_Task", snapshot=True)], ids=["itself", "backup"]
)
def test_what_a_backup_program_forbids_is_not_tried(found: Live) -> None:
    with pytest.raises(NeedsOperator) as refusal:
        obstacles.check_allowed(found, "ReconfigVM_Task")
    assert refusal.value.reason is Reason.BACKUP_IN_PROGRESS


@pytest.mark.parametrize(
    "found",
    [
        vm(),
        vm("PowerOnVM_Task", "Destroy_Task"),
        vm("RelocateVM_Task"),
        vm(snapshot=True),
        vm("ReconfigVM_Task", connection="disconnected"),
    ],
    ids=["nothing", "others", "only moves", "only a snapshot", "host away"],
)
def test_what_means_no_backup_forbids_nothing(found: Live) -> None:
    obstacles.check_allowed(found, "ReconfigVM_Task")
