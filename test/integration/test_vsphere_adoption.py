"""What only a vCenter has to be asked about VMs that are to be adopted."""

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.sdk.driver import MachineRef, Task
from banlieue.sdk.errors import AbsenceUnproven, InvalidSpec, Transient
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner, backend_name
from banlieue.sdk.powers import Candidate
from test.kit.vsphere_target import TEMPLATE, VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

BIOS = "4211aaaa-0000-4000-8000-00000000b105"
INSTANCE = "5011aaaa-0000-4000-8000-0000000001d5"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("adoption")) as target:
        yield target


@pytest.fixture
def driver(target: VSphereTarget) -> Iterator[VSphereDriver]:
    with target.backend.connect(target.connection()) as driver:
        assert isinstance(driver, VSphereDriver)
        yield driver


@pytest.fixture
def legacy(target: VSphereTarget, driver: VSphereDriver) -> Iterator[Candidate]:
    """A VM with a disk, whose two UUIDs differ."""
    vm = target.vcenter.create_foreign_vm(
        f"legacy-{uuid.uuid4().hex[:8]}", copy_of=TEMPLATE, uuid=BIOS, instance_uuid=INSTANCE
    )
    found = driver.find(INSTANCE)
    assert found is not None
    yield found
    target.remove(vm.mo_ref)


def claim(name: str) -> tuple[MachineRef, Mark]:
    owner = Owner("adoption", OWNER_VIRTUAL_MACHINE, "team-a", name)
    return MachineRef(owner, 0, backend_name(owner, 0), INSTANCE), Mark(owner, INSTANCE)


def finish(driver: VSphereDriver, task: Task | None) -> None:
    wait_until(lambda: task is None or driver.poll(task) is None, 20, "the task to end")


def test_a_vm_has_one_uuid_to_be_found_by_and_one_its_guest_sees(
    driver: VSphereDriver, legacy: Candidate
) -> None:
    assert (legacy.id, legacy.hardware_uuid) == (INSTANCE, BIOS)
    assert driver.find(INSTANCE.upper()) == legacy
    assert driver.find(BIOS) is None, "the BIOS UUID is no id"
    assert legacy.path == f"DC0/{legacy.state.name}"
    (nic,) = legacy.state.nics or ()
    assert nic.network, "the network is told by its name"
    assert not nic.network.startswith("dvportgroup")


def test_a_copy_of_a_vm_of_ours_is_taken_over_without_its_notes(
    driver: VSphereDriver, legacy: Candidate, target: VSphereTarget
) -> None:
    """They would move a disk of the VM it was copied from, and take tags off that an admin gave."""
    ref, mark = claim("copied")
    notes = {
        "banlieue.kept": '{"theirs": "[ds] other/other_1.vmdk"}',
        "banlieue.tags": '[["a","b"]]',
    }
    target.vcenter.change_vm(legacy.state.backend_id, extra_config=notes)
    finish(driver, driver.take_over(ref, mark))
    (vm,) = [it for it in target.vcenter.vms() if it.mo_ref == legacy.state.backend_id]
    assert Mark.decode(vm.extra_config["banlieue.mark"]) == mark
    assert not notes.keys() & vm.extra_config.keys()


def test_templates_are_told_apart_and_refused(driver: VSphereDriver, legacy: Candidate) -> None:
    listed = {it.id: it for it in driver.candidates()}
    assert listed[INSTANCE].template is False
    (template,) = [it for it in listed.values() if it.state.name == TEMPLATE]
    assert template.template
    with pytest.raises(InvalidSpec, match="template"):
        driver.find(template.id)
    assert listed[INSTANCE].state.disks == legacy.state.disks


def test_a_vm_the_account_cannot_read_is_not_taken_for_none(
    target: VSphereTarget, driver: VSphereDriver, legacy: Candidate
) -> None:
    with target.hidden(legacy.state.backend_id):
        with contextlib.suppress(AbsenceUnproven):
            assert driver.find(INSTANCE) is None
        assert INSTANCE not in {it.id for it in driver.candidates()}


@pytest.mark.usefixtures("legacy")
def test_a_mark_decided_on_an_older_look_is_refused_by_the_vcenter(
    target: VSphereTarget, driver: VSphereDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = driver._machines
    stale = machines.by_uuid(INSTANCE)
    assert stale is not None
    first_ref, first = claim("first")
    with target.backend.connect(target.connection()) as other:
        assert isinstance(other, VSphereDriver)
        finish(other, other.take_over(first_ref, first))
    monkeypatch.setattr(type(machines), "by_uuid", lambda *_: stale)
    stale.record.change_version = str(int(stale.record.change_version or 0) - 1)
    task = driver.take_over(*claim("second"))
    assert task is not None
    with pytest.raises(Transient) as refused:
        finish(driver, task)
    assert refused.value.reason is Reason.PROVIDER_BUSY
    monkeypatch.undo()
    seen = driver.observe(first_ref)
    assert seen is not None
    assert seen.mark == first
