"""Deletions by the real driver on a vCenter in memory: how few calls they take, and what if."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import BoundedSemaphore
from typing import Any, cast

import pytest
from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.providers.vsphere.places.privileges import READ
from banlieue.providers.vsphere.vms.machines import Live, Machines
from banlieue.providers.vsphere.watching import ends
from banlieue.sdk.driver import MachineRef, Task
from banlieue.sdk.errors import AbsenceUnproven, DriverError, Foreign, NeedsOperator, NotYet
from test.kit.fakevcenter import FakeVCenter
from test.kit.feed import Feed
from test.kit.waiting import wait_until

PATIENCE = 30.0
THREADS = 8
AT_ONCE = 0.1
TIMINGS = Timings(gather=0.3, stream=0.3, longest_poll=2.0)


@contextmanager
def watching(vcenter: FakeVCenter) -> Iterator[tuple[VSphereDriver, Feed]]:
    driver = vcenter.driver(TIMINGS)
    with Feed(driver, 2.0).running() as feed:
        try:
            yield driver, feed
        finally:
            vcenter.hang_up()


def follow(driver: VSphereDriver, feed: Feed, task: Task) -> Task | None:
    """Wait as the SDK does: for the feed, or until the task is to be asked about."""
    if task.poll_after > AT_ONCE:
        wait_until(partial(feed.told, task.handle), PATIENCE, "the step to be told")
    return driver.poll(task)


def delete(driver: VSphereDriver, feed: Feed, calls: BoundedSemaphore, ref: MachineRef) -> None:
    while True:
        with calls:
            task = driver.delete(ref) if driver.observe(ref) is not None else None
        if task is None:
            return
        assert follow(driver, feed, task) is None


@pytest.mark.parametrize(("vms", "budget"), [(1, 10), (20, 66)], ids=["alone", "together"])
def test_deletions_take_few_calls(vms: int, budget: int) -> None:
    """Sixty for twenty that go together; a busy machine spreads them by a look or two."""
    vcenter = FakeVCenter()
    fleet = [vcenter.make(f"vm-{number}") for number in range(vms)]
    other = vcenter.make("other")
    with watching(vcenter) as (driver, feed):
        assert all(driver.observe(ref) for ref in fleet)
        vcenter.calls.clear()
        calls = BoundedSemaphore(THREADS)
        with ThreadPoolExecutor(vms) as pool:
            list(pool.map(partial(delete, driver, feed, calls), fleet))
        spent = dict(vcenter.calls)
    assert vcenter.vms == {other.name}
    assert "ModifyListView" not in spent
    assert sum(spent.values()) <= budget, spent


def test_a_disk_of_others_is_seen_whatever_was_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Details that were read before it was attached may come in after the look at the VM."""
    vcenter = FakeVCenter()
    volume = vim.vm.device.VirtualDisk(
        key=2001,
        controllerKey=1000,
        unitNumber=1,
        backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName="[ds] fcd/volume.vmdk"),
    )
    hardware = cast("Any", vim.vm.device.VirtualDevice).Array([volume])
    look = Machines.by_id

    def late(self: Machines, key: str) -> Live | None:
        live = look(self, key)
        if live is not None and live.record.details is not None:
            live.record.details = replace(live.record.details, disks=())
        return live

    ref = vcenter.make(
        "vm-0",
        **{"runtime.powerState": "poweredOff", "config.hardware.device": hardware},
    )
    monkeypatch.setattr(Machines, "by_id", late)
    with watching(vcenter) as (driver, _), pytest.raises(NeedsOperator) as refusal:
        driver.delete(ref)
    assert refusal.value.reason is Reason.FOREIGN_DISK_ATTACHED
    assert vcenter.vms == {ref.name}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is late soon."""
    monkeypatch.setattr(ends, "_SECONDS", 0.2)


def gone(driver: VSphereDriver, ref: MachineRef) -> None:
    """Delete a VM, asking again and again."""
    tasks: list[Task] = []

    def ended() -> bool:
        if tasks:
            task = driver.poll(tasks.pop())
        elif driver.observe(ref) is None:
            return True
        else:
            task = driver.delete(ref)
        tasks.extend([task] if task is not None else [])
        return False

    # A watch that is built anew at this moment says so; its caller asks again.
    wait_until(ended, PATIENCE, "the VM to be gone", retry_on=(NotYet,))


@pytest.mark.usefixtures("impatient")
def test_a_step_that_fails_is_told_and_nothing_is_destroyed() -> None:
    vcenter = FakeVCenter()
    ref = vcenter.make("web")
    vcenter.failing["PowerOffVM_Task"] = vim.fault.FileLocked()
    with watching(vcenter) as (driver, _):
        task = driver.delete(ref)
        assert task is not None
        with pytest.raises(DriverError):
            wait_until(lambda: driver.poll(task) is None, PATIENCE, "the failure")
    assert vcenter.vms == {"web"}
    assert vcenter.calls["Destroy_Task"] == 0


@pytest.mark.usefixtures("impatient")
def test_a_vcenter_that_never_tells_of_leaves_is_asked() -> None:
    vcenter = FakeVCenter()
    vcenter.tells_leaves = False
    fleet = [vcenter.make(name) for name in ("web", "db")]
    with watching(vcenter) as (driver, _):
        for ref in fleet:
            gone(driver, ref)
    assert vcenter.vms == frozenset()
    assert vcenter.calls["Destroy_Task"] == len(fleet)


def test_a_task_that_lags_behind_its_vm_is_nobody_elses() -> None:
    vcenter = FakeVCenter()
    vcenter.lag = 0.5
    ref = vcenter.make("web")
    with watching(vcenter) as (driver, _):
        gone(driver, ref)
    assert vcenter.vms == frozenset()
    assert (vcenter.calls["PowerOffVM_Task"], vcenter.calls["Destroy_Task"]) == (1, 1)


def test_a_watch_that_is_lost_in_the_middle_keeps_nobody_waiting() -> None:
    vcenter = FakeVCenter(seconds=0.3)
    ref = vcenter.make("web")
    with watching(vcenter) as (driver, _):
        task = driver.delete(ref)
        assert task is not None
        vcenter.lost = [vmodl.query.InvalidCollectorVersion()]
        wait_until(lambda: driver.poll(task) is None, PATIENCE, "the VM to be off")
        gone(driver, ref)
    assert vcenter.vms == frozenset()


def test_a_disk_that_comes_while_the_vm_is_stopped_is_not_destroyed() -> None:
    vcenter = FakeVCenter()
    fleet = [vcenter.make(name) for name in ("web", "db")]
    with watching(vcenter) as (driver, feed):
        for task in [driver.delete(ref) for ref in fleet]:
            assert task is not None
            assert follow(driver, feed, task) is None
        file = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName="[gold] volumes/pv-1.vmdk")
        disk = vim.vm.device.VirtualDisk(
            key=2001, controllerKey=1000, unitNumber=3, backing=file, capacityInKB=1024
        )
        web = fleet[0].backend_id or ""
        feed.forget()
        disks = vim.vm.device.VirtualDevice.Array([disk])  # type: ignore[attr-defined] # pyVmomi
        vcenter.change(web, config__hardware__device=disks, config__changeVersion="2")
        wait_until(lambda: feed.told(fleet[0].uuid or ""), PATIENCE, "the change to be told")
        with pytest.raises(NeedsOperator) as told:
            driver.delete(fleet[0])
        assert told.value.reason is Reason.FOREIGN_DISK_ATTACHED
        gone(driver, fleet[1])
    assert vcenter.vms == {"web"}
    assert vcenter.calls["Destroy_Task"] == 1


def test_of_two_vms_with_one_uuid_none_is_stopped() -> None:
    vcenter = FakeVCenter()
    ref = vcenter.make("web")
    vcenter.make("copy", **{"config.instanceUuid": ref.uuid})
    with watching(vcenter) as (driver, _), pytest.raises(Foreign):
        driver.delete(ref)
    assert vcenter.calls["PowerOffVM_Task"] == 0


@pytest.mark.parametrize("vms", [1, 3])
def test_without_the_right_to_see_everything_nothing_is_gone(vms: int) -> None:
    vcenter = FakeVCenter()
    fleet = [vcenter.make(f"vm-{number}") for number in range(vms)]
    vcenter.rights = READ[:1]
    with watching(vcenter) as (driver, feed):
        for _ in range(2):
            for task in [driver.delete(ref) for ref in fleet]:
                assert task is not None
                assert follow(driver, feed, task) is None
        assert vcenter.vms == frozenset()
        for ref in fleet:
            with pytest.raises(AbsenceUnproven):
                driver.observe(ref)
        vcenter.rights = READ
        assert [driver.observe(ref) for ref in fleet] == [None] * vms


def test_a_process_that_takes_over_a_vm_that_is_off_ends_it() -> None:
    vcenter = FakeVCenter()
    ref = vcenter.make("web")
    with watching(vcenter) as (driver, feed):
        task = driver.delete(ref)
        assert task is not None
        assert follow(driver, feed, task) is None
    with watching(vcenter) as (driver, _):
        assert driver.poll(task) is None
        gone(driver, ref)
    assert vcenter.vms == frozenset()
