"""Kept disks on a vCenter: what was begun is undone, and an admin's hands are noticed."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.providers.vsphere.hardware import kept
from banlieue.providers.vsphere.hardware.devices import virtual_disks
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.testing.conformance_disks import follow, with_disks, with_existing
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, seen
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

KEPT = "web-data-1"


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.fixture
def bench(vcenter: VSphereTarget) -> Iterator[Bench]:
    with vcenter.backend.connect(vcenter.connection()) as driver:
        yield Bench(vcenter, driver)


def _driver(bench: Bench) -> VSphereDriver:
    assert isinstance(bench.driver, VSphereDriver)
    return bench.driver


def _keep(bench: Bench) -> AnyPlan:
    """A VM that is gone, and whose disk is kept."""
    plan = replace(with_disks(bench.plan(), data=1), power=PowerState.POWERED_OFF)
    ref, driver = seen(plan, bench.ensure(plan)), _driver(bench)
    bench.run(plan, lambda: driver.keep_disks(ref, {"data": KEPT}))
    bench.delete(ref, plan)
    return plan


def test_a_disk_that_was_taken_and_never_attached_is_given_back(bench: Bench) -> None:
    """The process died between the rename and the reconfiguration, and then the VM is deleted."""
    driver, plan = _driver(bench), _keep(bench)
    owner = plan.ref.owner
    other = with_existing(bench, plan, "other", KEPT)
    ref = seen(other, bench.ensure(other))
    for there in (True, False):
        # First it is noted; then the rename makes it this VM's alone.
        task = driver.update(other, bench.state(other))
        assert task is not None
        bench.finish(task)
        assert (driver.kept_disk(owner, KEPT) is not None) is there
    assert [disk.name for disk in bench.state(other).disks] == ["root"]

    with bench.connect() as later:
        again = Bench(bench.target, later)
        assert isinstance(later, VSphereDriver)
        again.run(other, lambda: later.keep_disks(ref, {"old": KEPT}))
        again.delete(ref, other)
        assert later.kept_disk(owner, KEPT) is not None
        listed = wait_until(
            lambda: later.kept_disks(owner.installation_id), 30.0, "the search of the datastores"
        )
        assert [disk.id for disk in listed] == [KEPT]


def test_a_kept_disk_that_an_admin_attached_is_left_to_him(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    plan = _keep(bench)
    rescue = bench.ensure(bench.plan("rescue")).backend_id
    path = kept.file("LocalDS_0", plan.ref.owner, KEPT)
    with VSphereClient(vcenter.vcenter.url, ca_pem=vcenter.vcenter.ca_pem) as admin:
        admin.login(vcenter.vcenter.username, vcenter.vcenter.password)
        machine = admin.reference(vim.VirtualMachine, rescue)
        hardware = admin.read(machine, "config.hardware.device")["config.hardware.device"]
        beside = virtual_disks(hardware)[0]
        disk = vim.vm.device.VirtualDisk(
            key=-1,
            controllerKey=beside.controllerKey,
            unitNumber=9,
            capacityInKB=0,
            backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
                fileName=path, diskMode="persistent"
            ),
        )
        change = vim.vm.device.VirtualDeviceSpec(operation="add", device=disk)
        admin.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=[change])))

    other = with_existing(bench, plan, "other", KEPT)
    bench.ensure(other)
    with pytest.raises(NeedsOperator) as refusal:
        follow(bench, other)
    assert refusal.value.reason is Reason.DISK_IN_USE
    assert "rescue" in refusal.value.message
    assert bench.state(other).power == PowerState.POWERED_OFF


def test_the_note_of_a_template_moves_no_disk_of_another_vm(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    """The template was a VM of ours once, and released while a disk of it was on its way."""
    victim = replace(bench.plan("victim"), power=PowerState.POWERED_OFF)
    disk = bench.ensure(victim).disks[0].id
    plan = bench.plan("copy")
    assert plan.image is not None
    note = {"banlieue.kept": json.dumps({"theirs": disk})}
    golden = vcenter.vcenter.create_foreign_vm(
        "golden", copy_of=plan.image.handle, extra_config=note
    )
    plan = replace(plan, image=replace(plan.image, handle=golden.mo_ref))
    bench.ensure(plan)
    follow(bench, plan)
    assert _driver(bench).kept_disk(plan.ref.owner, "theirs") is None
    assert bench.state(victim).disks[0].id == disk


def test_an_old_note_moves_no_disk_that_is_attached_and_goes_with_the_mark(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    plan = replace(with_disks(bench.plan(), data=1), power=PowerState.POWERED_OFF)
    ref = seen(plan, bench.ensure(plan))
    disk = next(it for it in bench.state(plan).disks if it.name == "data")
    assert ref.backend_id is not None
    note = {"banlieue.kept": json.dumps({"old": disk.id})}
    vcenter.vcenter.change_vm(ref.backend_id, extra_config=note)
    driver = _driver(bench)
    bench.run(plan, lambda: driver.remove_mark(ref))
    assert driver.kept_disk(plan.ref.owner, "old") is None
    (left,) = [vm for vm in vcenter.vcenter.vms() if vm.mo_ref == ref.backend_id]
    assert "banlieue.kept" not in left.extra_config
    assert disk.id in {it.id for it in bench.state(plan).disks}
