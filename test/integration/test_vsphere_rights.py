"""The least-privilege role in strict mode: enough for a whole life, and no privilege too many."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.places.privileges import ROLE
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.image.ports import ImageImport, ImageImporter
from test.kit import soaprules
from test.kit.imagefiles import ova
from test.kit.mirror import Mirror, checksum
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.vspherebench import CONCRETE, DOMAIN, PROVIDER, VSphereBench
from test.kit.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "config" / "vsphere" / "role.yaml"
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    use: tuple(privileges)
    for use, privileges in yaml.safe_load(FILE.read_text(encoding="utf-8"))["optional"].items()
}
ALL = tuple(privilege for privileges in ROLE.values() for privilege in privileges)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.vcenter.guest(delay=0.0, shutdown_delay=0.0)
        yield target


@pytest.fixture
def target(shared: VSphereTarget) -> Iterator[VSphereTarget]:
    yield shared
    shared.vcenter.clear_permissions()


async def test_the_role_is_enough_for_a_whole_life(target: VSphereTarget) -> None:
    target.vcenter.permit(target.vcenter.username, "", ALL)
    with VSphereBench(target) as bench:
        assert not bench.driver.about().missing_privileges
        root = {"name": "root", "storageClass": "gold"}
        data = {"name": "data", "storageClass": "gold", "sizeGiB": 1, "reclaimPolicy": "Retain"}
        more = {"name": "more", "storageClass": "gold", "sizeGiB": 1}
        bench.make_machine("web", disks=[root, data])
        await bench.until("it is Ready", lambda: bench.is_ready("web"))
        await wait_until_async(lambda: bench.vm("web").tools_running, 20.0, "the guest's tools")

        nics = [{"name": "eth0", "networkClass": "prod"}, {"name": "eth1", "networkClass": "test"}]
        bench.edit("web", disks=[root, data, more], networkInterfaces=nics)
        await bench.until("it has more", lambda: bench.is_ready("web"))
        bench.edit("web", disks=[root, data, {**more, "sizeGiB": 2}])
        await bench.until("it grows", lambda: bench.is_ready("web"))
        for state, spec in (
            ("Suspended", {}),
            ("PoweredOn", {}),
            ("PoweredOff", {"powerOffMode": "Hard", "cpus": 2, "memoryMiB": 1024}),
            ("PoweredOn", {}),
        ):
            bench.edit("web", powerState=state, **spec)
            await bench.until(state, lambda: bench.is_ready("web"))
        assert bench.vm("web").cpus == 2
        bench.delete("web")
        await bench.until("it is gone", lambda: not bench.machine("web"))
        assert not [error for error in bench.told if error.reason.value.startswith("Provider")]


@pytest.mark.parametrize("privilege", ALL)
def test_what_lacks_is_named_with_its_object(target: VSphereTarget, privilege: str) -> None:
    target.vcenter.permit(target.vcenter.username, "", [name for name in ALL if name != privilege])
    with BACKEND.connect(target.connection()) as driver:
        lacking = driver.about().missing_privileges
    assert privilege in {found.privilege for found in lacking}
    assert {found.privilege for found in lacking} <= {privilege, *ROLE["root"]}
    assert all(found.where for found in lacking)


async def test_what_lacks_is_named_by_the_machine_too(target: VSphereTarget) -> None:
    with VSphereBench(target, feeding=False) as bench:
        target.vcenter.deny(target.vcenter.username, "", ["Resource.AssignVMToPool"])
        bench.make_machine("poor")
        denied = ("False", Reason.PROVIDER_PERMISSION_DENIED)
        await bench.until("it is told", lambda: bench.condition("Ready", "poor") == denied)
        assert "Resource.AssignVMToPool" in bench.message("Ready", "poor")
        assert not bench.vms("poor")
        target.vcenter.clear_permissions()
        await bench.until("it is made", lambda: bench.is_ready("poor"))


# What only some machines need: the preflight does not know, so whoever needs it tells.


async def _told(bench: VSphereBench, name: str, kind: str, **spec: object) -> str:
    """The message of a machine that lacks a right."""
    bench.make_machine(name, **spec)
    denied = ("False", Reason.PROVIDER_PERMISSION_DENIED)
    await bench.until(
        "it is told", lambda: bench.condition(kind, name) == denied, name, timeout=10.0
    )
    return bench.message(kind, name)


def _of_machine(kind: str = "Ready", **spec: object) -> Callable[[VSphereBench, str], Any]:
    async def lacking(bench: VSphereBench, name: str) -> str:
        return await _told(bench, name, kind, **spec)

    return lacking


async def _of_source(bench: VSphereBench, name: str) -> str:
    bench.target.vcenter.create_foreign_vm("golden", copy_of="ubuntu")
    return await _told(bench, name, "Ready", template="golden")


async def _of_import(bench: VSphereBench, name: str) -> str:
    def step(driver: Driver[Any]) -> bool:
        assert isinstance(driver, ImageImporter)
        with Mirror({"image.ova": ova()}) as mirror:
            wanted = ImageImport(
                f"banlieue-{name}", mirror.url("image.ova"), checksum(mirror.contents["image.ova"])
            )
            wait_until(
                lambda: driver.import_image(wanted, bench.domains[DOMAIN]) is None,
                60,
                "the import to end",
            )
        return True

    with pytest.raises(NeedsOperator) as lacking:
        await bench.open_one().call(step)
    return f"{lacking.value.reason}: {lacking.value.message}"


def _of_tags(call: str) -> Callable[[VSphereBench, str], Any]:
    """The simulator's tagging knows no privileges: its refusal is the proxy's."""

    async def lacking(bench: VSphereBench, name: str) -> str:
        path = f"POST /rest/com/vmware/cis/tagging/{call}"
        bench.target.proxy.add(soaprules.rest_fault(path, "unauthorized", 403))
        try:
            return await _told(bench, name, "UpToDate", tags={name: "blue"})
        finally:
            bench.target.proxy.clear()

    return lacking


_ATTACHES = "tag-association attach-multiple-tags-to-object"
NEEDED_BY: Mapping[str, Callable[[VSphereBench, str], Awaitable[str]]] = {
    "VirtualMachine.Provisioning.Clone": _of_source,
    "Folder.Create": _of_machine(folder="denied", folderPolicy="Create"),
    "VirtualMachine.Config.UpgradeVirtualHardware": _of_machine(hardwareVersion="vmx-19"),
    "VirtualMachine.Config.Resource": _of_machine(cpuAllocation={"reservationMhz": 1}),
    "VApp.Import": _of_import,
    "VirtualMachine.Inventory.Create": _of_import,
    "VirtualMachine.Config.Rename": _of_import,
    "VirtualMachine.State.CreateSnapshot": _of_import,
    "VirtualMachine.Provisioning.MarkAsTemplate": _of_import,
    "Host.Inventory.EditCluster": _of_machine("UpToDate", antiAffinityGroup="denied"),
    "InventoryService.Tagging.AttachTag": _of_tags(_ATTACHES),
    "InventoryService.Tagging.ObjectAttachable": _of_tags(_ATTACHES),
    "InventoryService.Tagging.CreateTag": _of_tags("tag"),
    "InventoryService.Tagging.CreateCategory": _of_tags("category"),
    "Global.SetCustomField": _of_machine("UpToDate", customAttributes={"site": "a"}),
    "Global.ManageCustomFields": _of_machine("UpToDate", customAttributes={"new": "a"}),
}
ELSEWHERE = {
    "StorageProfile.View": "the preflight, where a class names a policy: *_spec_troubles.py",
    "Datastore.Config": "vSAN, which the simulator has not",
}


async def test_each_privilege_that_a_use_needs_is_named_by_whoever_lacks_it(
    target: VSphereTarget,
) -> None:
    listed = {privilege for privileges in OPTIONAL.values() for privilege in privileges}
    assert listed == {*NEEDED_BY, *ELSEWHERE}
    vcenter, wrong = target.vcenter, []
    with VSphereBench(target) as bench:
        fields = (*CONCRETE, "template", "cpuAllocation")
        tags = [f"poor-{number}" for number in range(len(NEEDED_BY))]
        spec = {
            "policy": {"concreteFields": {name: ["*"] for name in fields}},
            "tagMapping": [{"label": f"example.org/{tag}", "tag": tag} for tag in tags],
        }
        bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(spec))
        for number, (privilege, lacking) in enumerate(NEEDED_BY.items()):
            vcenter.deny(vcenter.username, "", [privilege])
            message = await lacking(bench, f"poor-{number}")
            if privilege not in message:
                wrong.append(f"{privilege}: {message}")
            vcenter.clear_permissions()
        for name in bench.machines():
            whole = lambda name=name: bench.condition("UpToDate", name)[0] == "True"  # noqa: E731
            await bench.until(f"{name} is as wanted", whole, name, timeout=15.0)
    assert not wrong, "\n".join(wrong)
