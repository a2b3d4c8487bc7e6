"""Disks that were taken off to be kept reach their place by themselves, and nobody loses one."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.hardware.devices import virtual_disks
from banlieue.providers.vsphere.hardware.holders import files
from banlieue.sdk.driver import MachineRef
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.vspherebench import VSphereBench
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

TIMINGS = Timings(read=5.0, longest_poll=1.0, gather=0.1, stream=0.1, inventory=0.0)
ROOT = {"name": "root", "storageClass": "gold"}
DATA = {"name": "data", "storageClass": "gold", "sizeGiB": 1, "reclaimPolicy": "Retain"}
NOTE = "banlieue.kept"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.vcenter.guest(delay=0.0)
        yield target


@pytest.fixture
async def bench(target: VSphereTarget) -> AsyncIterator[VSphereBench]:
    """Machine `web` with a disk that is to be kept; what is kept of earlier tests stays."""
    with VSphereBench(target, TIMINGS) as bench:
        bench.make_machine("web")
        await bench.until("web is Ready", lambda: bench.is_ready("web"))
        bench.edit("web", disks=[ROOT, DATA])
        await bench.until(
            "data is there", lambda: len(bench.vm("web").disks) == 2 and bench.is_ready("web")
        )
        yield bench
        target.vcenter.clear_faults()
        target.vcenter.clear_delays()
        ours = {it.mo_ref for name in ("web", "other") for it in bench.vms(name)}
        for vm in target.vcenter.vms():
            if vm.name == "rescue" or vm.mo_ref in ours:
                target.vcenter.destroy_vm(vm.mo_ref)


def admin(target: VSphereTarget) -> VSphereClient:
    client = VSphereClient(target.vcenter.url, ca_pem=target.vcenter.ca_pem)
    return client.login(target.vcenter.username, target.vcenter.password)


def attach(target: VSphereTarget, vm: str, path: str) -> None:
    """What an admin does with a disk that lies about."""
    with admin(target) as client:
        machine = client.reference(vim.VirtualMachine, vm)
        hardware = client.read(machine, "config.hardware.device")["config.hardware.device"]
        backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
            fileName=path, diskMode="persistent"
        )
        disk = vim.vm.device.VirtualDisk(
            key=-1,
            controllerKey=virtual_disks(hardware)[0].controllerKey,
            unitNumber=9,
            capacityInKB=0,
            backing=backing,
        )
        change = vim.vm.device.VirtualDeviceSpec(operation="add", device=disk)
        client.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=[change])))


def remove(bench: VSphereBench) -> None:
    removed = {"name": "data", "reclaimPolicy": "Retain"}
    bench.edit("web", disks=[ROOT], removedDisks=[removed])


def note(bench: VSphereBench, name: str = "web") -> str | None:
    return bench.vm(name).extra_config.get(NOTE) or None


def kept(target: VSphereTarget) -> set[str]:
    """Ids of the disks that lie where kept ones do."""
    files = [it for it in target.vcenter.inventory().files if "banlieue-retained" in it]
    names = {it.rpartition("/")[2] for it in files if it.endswith(".vmdk")}
    return {it.removesuffix(".vmdk") for it in names if not it.endswith("-flat.vmdk")}


async def test_a_disk_of_a_living_vm_reaches_its_place(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    file = bench.vm("web").disks[-1].file
    remove(bench)
    await bench.until(
        "it lies elsewhere and the VM knows nothing of it",
        lambda: (
            len(bench.vm("web").disks) == 1
            and not target.disk_exists(file)
            and note(bench) is None
            and bench.is_ready("web")
            and bench.condition("UpToDate", "web")[0] == "True"
        ),
    )


async def test_a_disk_that_somebody_else_attached_meanwhile_is_not_moved(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    file = bench.vm("web").disks[-1].file
    target.vcenter.add_fault("MoveVirtualDisk_Task", "FileLocked", {"file": file})
    remove(bench)
    await bench.until("it is off", lambda: len(bench.vm("web").disks) == 1)
    rescue = target.vcenter.create_foreign_vm("rescue", copy_of="ubuntu").mo_ref
    attach(target, rescue, file)
    target.vcenter.clear_faults()
    await bench.until(
        "it is told", lambda: bench.condition("UpToDate", "web") == ("False", "DiskInUse")
    )
    assert "VM rescue" in bench.message("UpToDate", "web")
    assert target.disk_exists(file)
    assert note(bench) is not None
    assert bench.is_ready("web")

    # A VM that is left to its user loses its mark all the same; the note says where the disk is.
    vm, instance = bench.vm("web"), bench.machine("web")["spec"]["instance"]
    owner = Owner(instance["installationID"], OWNER_VIRTUAL_MACHINE, "team-a", "web")
    ref = MachineRef(owner, 0, instance["name"], instance["uuid"], True, vm.mo_ref)
    task = bench.driver.remove_mark(ref)
    assert task is not None
    wait_until(lambda: bench.driver.poll(task) is None, 30, "the mark to be off")
    assert "banlieue.mark" not in bench.vm("web").extra_config
    assert file in (note(bench) or "")


async def test_storage_that_is_away_holds_the_vm_back(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    file = bench.vm("web").disks[-1].file
    with admin(target) as client:
        store = client.at("DC0/datastore/LocalDS_0")._moId
    where = {"datastore": {"type": "Datastore", "value": store}, "name": "LocalDS_0"}
    target.vcenter.add_fault("QueryVirtualDiskUuid", "InaccessibleDatastore", where)
    bench.delete("web")
    await bench.until(
        "it is told",
        lambda: (
            len(bench.vm("web").disks) == 1
            and bench.condition("Deleting", "web")[1] == "ForeignDiskAttached"
        ),
    )
    assert "cannot be reached" in bench.message("Deleting", "web")
    for _ in range(5):
        await bench.run_pass("web")
    assert bench.vms("web")
    target.vcenter.clear_faults()
    await bench.until("it is gone", lambda: not bench.machine("web"))
    assert not target.disk_exists(file), "it was not moved to where kept disks lie"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_a_disk_that_was_taken_and_never_attached_is_given_back(
    bench: VSphereBench, target: VSphereTarget, policy: str
) -> None:
    before = kept(target)
    bench.delete("web")
    await bench.until("web is gone", lambda: not bench.machine("web"))
    (disk,) = kept(target) - before
    target.vcenter.set_delay("MoveVirtualDisk_Task", 1.0, of="task")
    old = {"name": "old", "existing": disk, "reclaimPolicy": policy}
    bench.make_machine("other", disks=[ROOT, old])
    await bench.until("it is noted", lambda: bench.vms("other") and note(bench, "other"))
    target.vcenter.add_fault("ReconfigVM_Task", "GenericVmConfigFault", {"reason": "no"})
    await bench.until("it is taken", lambda: disk not in kept(target))
    bench.edit("other", disks=[ROOT], removedDisks=[old])
    target.vcenter.clear_faults()
    await bench.until(
        "it is given back",
        lambda: disk in kept(target) and not note(bench, "other") and bench.is_ready("other"),
    )


def take_off(target: VSphereTarget, vm: str, path: str) -> None:
    """What an admin does with a disk that he wants elsewhere; its file stays."""
    with admin(target) as client:
        machine = client.reference(vim.VirtualMachine, vm)
        hardware = client.read(machine, "config.hardware.device")["config.hardware.device"]
        # Under a snapshot the VM writes to a child of the file.
        disk = next(it for it in virtual_disks(hardware) if path in files([it]))
        change = vim.vm.device.VirtualDeviceSpec(operation="remove", device=disk)
        client.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=[change])))


async def put_off(bench: VSphereBench, target: VSphereTarget) -> str:
    """The disk is off, and its file locked where it was."""
    file = str(bench.vm("web").disks[-1].file)
    target.vcenter.add_fault("MoveVirtualDisk_Task", "FileLocked", {"file": file})
    remove(bench)
    await bench.until("it is off", lambda: len(bench.vm("web").disks) == 1)
    return file


async def test_a_file_that_a_snapshot_stands_on_is_not_moved(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    file, vm = await put_off(bench, target), bench.vm("web").mo_ref
    attach(target, vm, file)
    target.snapshot(vm)
    take_off(target, vm, file)
    target.vcenter.clear_faults()
    await bench.until(
        "it is told", lambda: bench.condition("UpToDate", "web") == ("False", "BlockedBySnapshot")
    )
    assert target.disk_exists(file)
    assert note(bench) is not None


async def test_a_disk_that_is_listed_again_before_its_file_was_moved_comes_back(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    await put_off(bench, target)
    (disk,) = json.loads(note(bench) or "{}")
    bench.edit("web", disks=[ROOT, {"name": "back", "existing": disk}])
    target.vcenter.clear_faults()
    await bench.until(
        "it is back",
        lambda: len(bench.vm("web").disks) == 2 and note(bench) is None and bench.is_ready("web"),
    )


async def test_storage_of_a_disk_that_is_off_holds_nothing_else_up(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    with admin(target) as client:
        store = client.at("DC0/datastore/LocalDS_0")._moId
    where = {"datastore": {"type": "Datastore", "value": store}, "name": "LocalDS_0"}
    target.vcenter.add_fault("QueryVirtualDiskUuid", "InaccessibleDatastore", where)
    remove(bench)
    await bench.until("it is off", lambda: len(bench.vm("web").disks) == 1)
    bench.edit("web", powerState="PoweredOff")
    await bench.until(
        "the VM is off and the storage told of",
        lambda: (
            bench.vm("web").power_state == "poweredOff"
            and bench.condition("UpToDate", "web") == ("False", "InsufficientStorage")
        ),
    )
