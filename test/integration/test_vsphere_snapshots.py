"""Snapshots hold on to disks, and a vCenter destroys what they hold on to along with the VM."""

from collections.abc import Iterator

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.providers.vsphere.hardware.devices import disk_id, virtual_disks
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.testing.conformance_target import Bench, seen
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget, vsphere_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.fixture
def bench(vcenter: VSphereTarget) -> Iterator[Bench]:
    connection = vcenter.connection()
    with vcenter.backend.connect(connection) as driver:
        yield Bench(vcenter, driver)


def _take_off(target: VSphereTarget, vm: str, path: str) -> None:
    """What a storage driver does when a volume is no longer needed here."""
    vcenter = target.vcenter
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        machine = admin.reference(vim.VirtualMachine, vm)
        hardware = admin.read(machine, "config.hardware.device")["config.hardware.device"]
        (disk,) = [found for found in virtual_disks(hardware) if disk_id(found) == path]
        change = vim.vm.device.VirtualDeviceSpec(operation="remove", device=disk)
        admin.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=[change])))


def test_no_disk_is_taken_off_while_a_snapshot_holds_on_to_it(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    plan = bench.plan(data_disk=True)
    ref = seen(plan, bench.ensure(plan))
    vm = ref.backend_id or ""
    vcenter.attach_foreign_disk(vm)
    vcenter.vcenter.snapshot_vm(vm, "before")
    driver = bench.driver
    assert isinstance(driver, VSphereDriver)
    kept = [disk for disk in bench.state(plan).disks if disk.name in {None, "data"}]
    assert len(kept) == 2
    with pytest.raises(NeedsOperator):
        driver.detach_disks(ref, kept)


def test_a_vm_whose_snapshot_holds_a_disk_that_was_taken_off_is_not_destroyed(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    plan = bench.plan()
    ref = seen(plan, bench.ensure(plan))
    vm = ref.backend_id or ""
    disk = vcenter.attach_foreign_disk(vm)
    vcenter.vcenter.snapshot_vm(vm, "before")
    _take_off(vcenter, vm, disk)
    assert [found.name for found in bench.state(plan).disks] == ["root"]
    with pytest.raises(NeedsOperator):
        bench.delete(ref, plan)
    assert bench.named(plan)


def test_a_vm_with_snapshots_of_its_own_disks_is_destroyed(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    plan = bench.plan(data_disk=True)
    ref = seen(plan, bench.ensure(plan))
    vcenter.vcenter.snapshot_vm(ref.backend_id or "", "before")
    bench.delete(ref, plan)
    assert bench.named(plan) == []
