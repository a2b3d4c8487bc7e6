"""What goes wrong with fields of a VSphereMachine, and what a machine object tells of them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.client import pbm
from banlieue.providers.vsphere.models import (
    CpuAllocation,
    FolderPolicy,
)
from banlieue.sdk.driver import Task
from banlieue.sdk.errors import DriverError, FieldLacks, NeedsOperator
from banlieue.sdk.testing.conformance_target import Bench
from test.kit.vsphere_target import VSphereTarget
from test.kit.vspherebench import PROVIDER, VSphereBench
from test.kit.vspherespec import (
    POLICY,
    Native,
    admin,
    furnished,
    machine,
    made,
    planned,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with furnished(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.fixture
def bench(shared: VSphereTarget) -> Iterator[Bench]:
    with BACKEND.connect(shared.connection()) as driver:
        yield Bench(shared, driver)


# What goes wrong


def test_a_folder_that_was_removed_is_made_anew(bench: Bench) -> None:
    assert isinstance(bench.target, VSphereTarget)
    fields = {"folder": "passing", "folder_policy": FolderPolicy.CREATE}
    first = planned(bench, "first", **fields)
    made(bench, first)
    bench.delete(first.ref, first)
    with admin(bench.target) as client:
        client.outcome(client.at("DC0/vm/passing").Destroy_Task())
    second = planned(bench, "second", **fields)
    with pytest.raises(DriverError):
        bench.driver.create(second)
    made(bench, second)
    assert machine(bench, second).path.startswith("/DC0/vm/passing/")


def test_without_the_right_an_attribute_lacks_and_the_vm_runs(bench: Bench) -> None:
    assert isinstance(bench.target, VSphereTarget)
    vcenter = bench.target.vcenter
    vcenter.add_fault("SetField", "NoPermission", {"privilegeId": "Global.SetCustomField"})
    wanted = planned(bench, custom_attributes={"owner": "me"})
    bench.ensure(wanted)
    try:
        with pytest.raises(FieldLacks) as refusal:
            bench.driver.update(wanted, bench.state(wanted))
    finally:
        vcenter.clear_faults()
    assert (refusal.value.field, refusal.value.reason) == (
        "customAttributes",
        Reason.PROVIDER_PERMISSION_DENIED,
    )
    assert "Global.SetCustomField" in refusal.value.message
    bigger = replace(wanted, cpus=2)
    vcenter.add_fault("SetField", "NoPermission", {"privilegeId": "Global.SetCustomField"})
    state = bench.state(bigger)
    with pytest.raises(NeedsOperator) as restart:
        bench.driver.update(bigger, state)
    vcenter.clear_faults()
    assert restart.value.reason is Reason.RESTART_REQUIRED, "the rest is looked at all the same"


@pytest.mark.parametrize(
    ("privilege", "fields"),
    [
        ("Folder.Create", {"folder": "denied", "folder_policy": FolderPolicy.CREATE}),
        ("VirtualMachine.Config.Resource", {"cpu_allocation": CpuAllocation(reservation_mhz=1)}),
        ("VirtualMachine.Config.UpgradeVirtualHardware", {"hardware_version": "vmx-15"}),
        ("Global.SetCustomField", {"custom_attributes": {"site": "a"}}),
        ("Global.ManageCustomFields", {"custom_attributes": {"nobody made": "a"}}),
    ],
)
def test_a_right_that_a_field_needs_is_named(
    bench: Bench, privilege: str, fields: dict[str, Native]
) -> None:
    assert isinstance(bench.target, VSphereTarget)
    vcenter = bench.target.vcenter
    wanted = planned(bench, **fields)
    vcenter.deny(vcenter.username, "", [privilege])
    try:
        with pytest.raises(NeedsOperator) as refusal:
            made(bench, wanted)
    finally:
        vcenter.clear_permissions()
    assert refusal.value.reason is Reason.PROVIDER_PERMISSION_DENIED
    assert privilege in refusal.value.message


def test_a_name_that_another_kind_of_attribute_has_is_told(bench: Bench) -> None:
    assert isinstance(bench.target, VSphereTarget)
    with admin(bench.target) as client:
        client.content.customFieldsManager.AddCustomFieldDef("rack", vim.HostSystem)
    wanted = planned(bench, custom_attributes={"rack": "r1"})
    bench.target.vcenter.add_fault("AddCustomFieldDef", "DuplicateName", {"name": "rack"})
    bench.ensure(wanted)
    state = bench.state(wanted)
    with pytest.raises(FieldLacks) as refusal:
        bench.driver.update(wanted, state)
    bench.target.vcenter.clear_faults()
    assert "rack" in refusal.value.message


def test_a_vm_with_snapshots_starts_with_the_hardware_it_has(bench: Bench) -> None:
    assert isinstance(bench.target, VSphereTarget)
    off = replace(planned(bench), power=PowerState.POWERED_OFF)
    state = made(bench, off)
    bench.target.snapshot(state.backend_id)
    on = replace(
        off, power=PowerState.POWERED_ON, spec=planned(bench, hardware_version="vmx-19").spec
    )

    told: list[Reason] = []

    def step() -> Task | None:
        try:
            return bench.driver.update(on, bench.state(on))
        except NeedsOperator as error:
            told.append(error.reason)
            return None

    bench.run(on, step)
    assert told == [Reason.BLOCKED_BY_SNAPSHOT]
    assert bench.state(on).power is PowerState.POWERED_ON
    assert bench.state(on).facts["hardwareVersion"] == "vmx-13"


def test_storage_policies_that_cannot_be_asked_stop_nothing_else(shared: VSphereTarget) -> None:
    classes = shared.capabilities.to_api()
    classes["storageClasses"].append({"name": "policed", "target": {"storagePolicy": POLICY}})
    connection = replace(shared.connection(), capabilities=Capabilities.from_api(classes))
    with BACKEND.connect(connection) as driver:
        (domain,) = driver.failure_domains()
        assert "policed" in domain.storage_classes
        assert not driver.about().missing_privileges
    shared.vcenter.deny(shared.vcenter.username, "", ["StorageProfile.View"])
    try:
        with BACKEND.connect(connection) as driver:
            (lacking,) = driver.about().missing_privileges
    finally:
        shared.vcenter.clear_permissions()
    assert (lacking.privilege, lacking.where) == ("StorageProfile.View", "the root folder")
    real = pbm.read_policies
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pbm, "read_policies", _silent)
        with BACKEND.connect(connection) as driver:
            (domain,) = driver.failure_domains()
            assert domain.storage_classes == ("gold",)
            assert any("StorageProfile.View" in problem for problem in domain.problems)
            made(Bench(shared, driver), planned(Bench(shared, driver)))
    assert pbm.read_policies is real


def _silent(*_: object) -> dict[str, str]:
    raise TimeoutError("the policy service is away")


# As a machine object sees it


async def test_a_machine_object_tells_what_its_vm_is(shared: VSphereTarget) -> None:
    allowed = {
        "template": ["ubuntu"],
        "hardwareVersion": ["vmx-*"],
        "customAttributes": ["owner=*"],
        "folder": ["own*"],
        "folderPolicy": ["Create"],
    }
    with VSphereBench(shared) as bench:
        policy = {"policy": {"concreteFields": allowed}}
        bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(policy))
        fields = {"template": "ubuntu", "customAttributes": {"owner": "team-a"}}
        bench.make_machine("own", imageRef=None, folder="own/deep", folderPolicy="Create", **fields)
        await bench.until("it is Ready", lambda: bench.is_ready("own"))
        await bench.until(
            "its attributes are there", lambda: bench.condition("UpToDate", "own")[0] == "True"
        )
        assert bench.machine("own")["status"]["facts"] == {
            "cloneMode": "Linked",
            "hardwareVersion": "vmx-13",
        }
        assert bench.vm("own").path.startswith("/DC0/vm/own/deep/")
        bench.edit("own", hardwareVersion="vmx-17")
        await bench.until(
            "it waits for a restart",
            lambda: bench.condition("UpToDate", "own") == ("False", "RestartRequired"),
        )
        assert "hardwareVersion" in bench.message("UpToDate", "own")
        assert bench.condition("Ready", "own")[0] == "True"
        bench.edit("own", powerState="PoweredOff", powerOffMode="Hard")
        await bench.until("it is off", lambda: bench.vm("own").power_state == "poweredOff")
        bench.edit("own", powerState="PoweredOn")
        await bench.until(
            "it is upgraded and on",
            lambda: bench.condition("UpToDate", "own")[0] == "True" and bench.is_ready("own"),
        )
        assert bench.machine("own")["status"]["facts"]["hardwareVersion"] == "vmx-17"
        bench.make_machine("other", folder="elsewhere")
        await bench.until(
            "it is refused",
            lambda: bench.condition("Ready", "other") == ("False", "ValueNotAllowed"),
            "other",
        )
