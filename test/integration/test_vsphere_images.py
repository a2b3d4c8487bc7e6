"""Images on a vCenter: imported once, whole or not at all, and never destroyed under a clone."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.providers.vsphere.client import soap
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.client.transport import Untold
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.providers.vsphere.images import images
from banlieue.sdk.driver import FailureDomain, Image
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator
from banlieue.sdk.image.ports import ImageImport
from banlieue.sdk.testing.conformance_target import Bench
from test.kit.imagefiles import archive, descriptor, manifest, ova, vmdk
from test.kit.mirror import Mirror, checksum
from test.kit.soaprules import drop_reply
from test.kit.vcsim_values import Machine
from test.kit.vsphere_rest import VSphereRest
from test.kit.vsphere_target import TEMPLATE, VSphereTarget, vsphere_target
from test.kit.vspherespec import admin

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim"), ["-lease-timeout", "2s"]) as target:
        yield target


@pytest.fixture
def bench(vcenter: VSphereTarget) -> Iterator[Bench]:
    vcenter.proxy.clear()
    with vcenter.backend.connect(vcenter.connection()) as driver:
        yield Bench(vcenter, driver)


def _driver(bench: Bench) -> VSphereDriver:
    assert isinstance(bench.driver, VSphereDriver)
    return bench.driver


def _where(bench: Bench) -> FailureDomain:
    return bench.target.failure_domain(bench.driver)


def _wanted(mirror: Mirror, name: str, **more: str) -> ImageImport:
    digest = checksum(mirror.contents[name])
    return ImageImport(f"banlieue-{uuid4().hex[:12]}", mirror.url(name), digest, **more)


def _imported(bench: Bench, wanted: ImageImport) -> Image:
    driver, where = _driver(bench), _where(bench)
    bench.until("the import", lambda: driver.import_image(wanted, where) is None)
    source = ImageSource(provider_class="vsphere", kind=SourceKind.TEMPLATE, ref=wanted.name)
    found = driver.find_image(source, where)
    assert found is not None
    return found


def _named(vcenter: VSphereTarget, start: str) -> list[Machine]:
    return [vm for vm in vcenter.vcenter.vms() if vm.name.startswith(start)]


@contextmanager
def _mirror() -> Iterator[Mirror]:
    contents = {
        "image.ova": ova(vmdk(gib=3), gib=3),
        "image.vmdk": vmdk(gib=5),
        "bad.ova": archive({"a.ovf": b"<Envelope/>", "disk1.vmdk": vmdk()}),
        "lacking.ova": archive({"a.ovf": descriptor(10).encode()}),
    }
    with Mirror(contents) as mirror:
        yield mirror


def test_machines_are_made_from_an_imported_ova_and_linked_to_it(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    """CAPV #1838 and #4128: images without hand work."""
    with _mirror() as mirror:
        image = _imported(bench, wanted := _wanted(mirror, "image.ova"))
        assert mirror.requests == ["image.ova"]
    assert image.disk_gib == 3
    (template,) = _named(vcenter, wanted.name)
    assert (template.template, template.name) == (True, wanted.name)
    assert template.cards == (), "its cards would need networks that nobody asked for"
    plan = replace(bench.plan(), image=image, disks=())
    state = bench.ensure(plan)
    driver, where = _driver(bench), _where(bench)
    with pytest.raises(NeedsOperator, match="linked clone") as refused:
        driver.delete_image(wanted.name, where)
    assert refused.value.reason is Reason.IMAGE_IN_USE
    bench.delete(replace(plan.ref, seen=True, backend_id=state.backend_id), plan)
    bench.until("the deletion", lambda: driver.delete_image(wanted.name, where) is None)
    assert _named(vcenter, wanted.name) == []


def test_an_ovf_in_several_files_is_verified_by_its_manifest(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    disk = vmdk(gib=2)
    files = {"image.ovf": descriptor(len(disk), 2).encode(), "disk1.vmdk": disk}
    with Mirror({**files, "image.mf": manifest(files)}) as mirror:
        image = _imported(bench, wanted := _wanted(mirror, "image.mf"))
        assert mirror.requests == ["image.mf", "image.ovf", "disk1.vmdk"]
        assert (image.disk_gib, len(_named(vcenter, wanted.name))) == (2, 1)

        mirror.contents["disk1.vmdk"] = vmdk(gib=2, size=70_000)
        other = _wanted(mirror, "image.mf")
        error = bench.until("the refusal", lambda: _refusal(bench, other))
    assert error.reason is Reason.IMAGE_CHECKSUM_MISMATCH
    assert _named(vcenter, other.name) == []


def _refusal(bench: Bench, wanted: ImageImport) -> DriverError | None:
    try:
        _driver(bench).import_image(wanted, _where(bench))
    except DriverError as error:
        return error
    return None


def test_a_bare_disk_becomes_a_template_with_the_firmware_of_its_image(bench: Bench) -> None:
    with _mirror() as mirror:
        image = _imported(bench, _wanted(mirror, "image.vmdk", firmware="efi-secure"))
    assert (image.disk_gib, image.firmware) == (5, "efi")


@pytest.mark.parametrize("name", ["bad.ova", "lacking.ova"])
def test_an_image_the_vcenter_cannot_use_is_told_and_leaves_nothing(
    bench: Bench, vcenter: VSphereTarget, name: str
) -> None:
    with _mirror() as mirror:
        wanted = _wanted(mirror, name)
        error = bench.until("the refusal", lambda: _refusal(bench, wanted))
    assert isinstance(error, InvalidSpec)
    assert error.reason is Reason.IMAGE_IMPORT_FAILED
    assert _named(vcenter, wanted.name) == []


def test_what_a_dead_process_left_behind_is_waited_for_and_imported_anew(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    driver, where = _driver(bench), _where(bench)
    with _mirror() as mirror:
        mirror.hold(after=20_000)
        wanted = _wanted(mirror, "image.ova")
        with bench.connect() as other:
            assert isinstance(other, VSphereDriver)
            other.import_image(wanted, where)
            bench.until("the part", lambda: _named(vcenter, wanted.name))
            # While one process imports it, another one does not.
            told = driver.import_image(wanted, where)
            assert told is not None
            assert mirror.requests == ["image.ova"]
            # A process that is killed says no goodbye: its lease runs out.
            other._transfers._jobs.clear()
            vcenter.vcenter.terminate_sessions()
        mirror.release()
        _imported(bench, wanted)
    assert [vm.name for vm in _named(vcenter, wanted.name)] == [wanted.name]


def test_a_part_that_is_whole_needs_only_its_name(bench: Bench, vcenter: VSphereTarget) -> None:
    """The process died between the last check and the rename."""
    where = _where(bench)
    with _mirror() as mirror:
        wanted = _wanted(mirror, "image.ova")
        image = _imported(bench, wanted)
        vcenter.vcenter.change_vm(image.handle, name=f"{wanted.name}.part")
        with bench.connect() as other:
            assert isinstance(other, VSphereDriver)
            bench.until("the rename", lambda: other.import_image(wanted, where) is None)
        assert mirror.requests == ["image.ova"]
    assert [vm.name for vm in _named(vcenter, wanted.name)] == [wanted.name]
    with bench.connect() as other:
        assert isinstance(other, VSphereDriver)
        bench.until("the deletion", lambda: other.delete_image(wanted.name, where) is None)


def test_a_deleted_image_stops_its_import(bench: Bench, vcenter: VSphereTarget) -> None:
    driver, where = _driver(bench), _where(bench)
    with _mirror() as mirror:
        mirror.hold(after=20_000)
        wanted = _wanted(mirror, "image.ova")
        driver.import_image(wanted, where)
        bench.until("the part", lambda: _named(vcenter, wanted.name))
        began = time.monotonic()
        driver.delete_image(wanted.name, where)
        mirror.release()
        bench.until("the end", lambda: driver.delete_image(wanted.name, where) is None)
        assert time.monotonic() - began < 20
    assert _named(vcenter, wanted.name) == []


def test_a_copy_of_an_image_under_its_name_is_never_destroyed(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    """Copies copy the mark: one in another folder may be somebody's VM, with data of his."""
    driver, where, vms = _driver(bench), _where(bench), vcenter.vcenter
    with _mirror() as mirror:
        image = _imported(bench, wanted := _wanted(mirror, "image.ova"))
    vms.create_folder("/DC0/vm/theirs")
    copy = vms.create_foreign_vm(wanted.name, folder="/DC0/vm/theirs", copy_of=image.handle)
    assert copy.extra_config["banlieue.image"].startswith(wanted.name)
    vms.destroy_vm(image.handle)
    with bench.connect() as other:
        assert isinstance(other, VSphereDriver)
        with pytest.raises(NeedsOperator, match="left alone"):
            bench.until("the refusal", lambda: other.delete_image(wanted.name, where) is None)
    assert [vm.mo_ref for vm in _named(vcenter, wanted.name)] == [copy.mo_ref]
    vms.destroy_vm(copy.mo_ref)
    bench.until("the deletion", lambda: driver.delete_image(wanted.name, where) is None)


def test_a_mark_whose_answer_is_lost_ends_in_the_same_one_template(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    """Other steps of an import are disturbed in every way in test_vsphere_fault_services.py."""
    driver, where = _driver(bench), _where(bench)
    with _mirror() as mirror:
        wanted = _wanted(mirror, "image.ova")
        rule = vcenter.proxy.add(drop_reply("ReconfigVM_Task", count=1))
        errors: list[DriverError] = []

        def published() -> bool:
            try:
                return driver.import_image(wanted, where) is None
            except DriverError as error:
                errors.append(error)
                return False

        bench.until("the import", published)
    assert rule.hits == 1
    assert not any(isinstance(error, InvalidSpec) for error in errors)
    assert [vm.name for vm in _named(vcenter, wanted.name)] == [wanted.name]
    bench.until("the deletion", lambda: driver.delete_image(wanted.name, where) is None)
    assert _named(vcenter, wanted.name) == []


def test_a_slow_import_keeps_its_lease(
    bench: Bench, vcenter: VSphereTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that stalls for longer than a lease lasts, two seconds here."""
    monkeypatch.setattr("banlieue.providers.vsphere.images.lease.MOST_SILENCE", 0.3)
    driver, where = _driver(bench), _where(bench)
    with _mirror() as mirror:
        mirror.hold(after=20_000)
        wanted = _wanted(mirror, "image.ova")
        driver.import_image(wanted, where)
        bench.until("progress", lambda: vcenter.proxy.passed["HttpNfcLeaseProgress"] >= 10)
        mirror.release()
        _imported(bench, wanted)
        assert mirror.requests == ["image.ova"]
    bench.until("the deletion", lambda: driver.delete_image(wanted.name, where) is None)


def test_vms_that_vanish_meanwhile_do_not_make_a_deletion_fail(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, where = _driver(bench), _where(bench)
    with _mirror() as mirror:
        _imported(bench, wanted := _wanted(mirror, "image.ova"))
    vanishing: list[Exception] = [
        vmodl.fault.ManagedObjectNotFound(),
        Untold("nothing is told of vm-1"),
    ]

    def read_all(session: Session, start: Mapping[str, Any], paths: Sequence[str]) -> list[Found]:
        if vanishing and vim.VirtualMachine in start.values():
            raise vanishing.pop()
        return soap.read_all(session, start, paths)

    monkeypatch.setattr(images, "read_all", read_all)
    bench.until("the deletion", lambda: driver.delete_image(wanted.name, where) is None)
    assert not vanishing


def test_a_machine_is_made_from_the_template_of_a_library_item(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    rest, where = VSphereRest(vcenter.vcenter), _where(bench)
    with admin(vcenter) as client:
        place = [
            str(client.at(path)._moId)
            for path in ("DC0/datastore/LocalDS_0", "DC0/vm", "DC0/host/DC0_C0/Resources")
        ]
    (source,) = _named(vcenter, TEMPLATE)
    library = rest.make_library("golden", place[0])
    rest.make_template_item(library, "ubuntu-24.04", source.mo_ref, *place[1:])
    (held,) = _named(vcenter, "ubuntu-24.04")
    assert held.template

    wanted = ImageSource(
        provider_class="vsphere", kind=SourceKind.TEMPLATE, ref="library:golden/ubuntu-24.04"
    )
    found = _driver(bench).find_image(wanted, where)
    assert found is not None
    assert found.handle == held.mo_ref, "the one it holds, not the one it was made of"
    plan = replace(bench.plan("from-library"), image=found)
    made = bench.ensure(plan)
    assert made.uuid == plan.ref.uuid
    absent = wanted.model_copy(update={"ref": "library:golden/debian"})
    assert _driver(bench).find_image(absent, where) is None
