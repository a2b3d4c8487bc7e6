"""The vSphere driver against the simulator: what only a vCenter can do to it."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from time import monotonic

import pytest
from pydantic import SecretBytes
from pyVmomi.StubAdapterAccessorImpl import StubAdapterAccessorMixin

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.client.creates import PER_TEMPLATE, Creates
from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.driver import VSphereDriver, open_driver
from banlieue.providers.vsphere.models import FolderPolicy
from banlieue.sdk.driver import Bootstrap, Task
from banlieue.sdk.errors import (
    AbsenceUnproven,
    DriverError,
    Foreign,
    InvalidSpec,
    NeedsOperator,
    Refused,
    Unreachable,
)
from banlieue.sdk.powers import MarkRemover
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, seen, unminted
from test.kit.feed import Feed
from test.kit.soaprules import black_hole, delay, drop_reply, fault, half_body, http_status
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE = 30.0
QUICK = Timings(read=1.5, longest_poll=1.0, poll_slack=1.0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.fixture
def target(shared: VSphereTarget) -> Iterator[VSphereTarget]:
    yield shared
    shared.proxy.clear()
    shared.vcenter.clear_delays()
    shared.vcenter.clear_faults()
    shared.vcenter.clear_permissions()


@pytest.fixture
def bench(target: VSphereTarget) -> Iterator[Bench]:
    with BACKEND.connect(target.connection()) as driver:
        yield Bench(target, driver)


def quick_driver(
    target: VSphereTarget, creates: Creates | None = None
) -> AbstractContextManager[VSphereDriver]:
    return open_driver(
        target.connection(), creates or Creates(monotonic, 2 * QUICK.read), QUICK, monotonic
    )


def finish(driver: VSphereDriver, task: Task | None) -> None:
    if task is not None:
        wait_until(lambda: driver.poll(task) is None, PATIENCE, "the task to end")


def disk_gib(plan: AnyPlan) -> int:
    assert plan.image is not None
    assert plan.image.disk_gib is not None
    return plan.image.disk_gib


# Opening a session


def test_a_wrong_pin_is_refused(target: VSphereTarget) -> None:
    wrong = replace(target.connection(), thumbprints=("00" * 32,))
    with pytest.raises(NeedsOperator) as refusal, BACKEND.connect(wrong):
        pass
    assert refusal.value.reason is Reason.PROVIDER_TLS_INVALID
    assert target.proxy.thumbprint in refusal.value.message, "the admin cannot compare"


def test_any_of_several_pins_is_enough(target: VSphereTarget) -> None:
    pins = ("00" * 32, target.proxy.thumbprint.replace(":", "").lower())
    with BACKEND.connect(replace(target.connection(), thumbprints=pins)) as driver:
        assert driver.about().identity == target.vcenter.instance_uuid


def test_a_pin_holds_even_where_verification_is_off(target: VSphereTarget) -> None:
    wrong = replace(target.connection(), thumbprints=("00" * 32,), insecure_skip_tls_verify=True)
    with pytest.raises(NeedsOperator), BACKEND.connect(wrong):
        pass


def test_a_ca_is_enough_and_another_is_refused(target: VSphereTarget) -> None:
    right = replace(target.connection(), thumbprints=(), ca_bundle=target.proxy.ca_pem)
    with BACKEND.connect(right) as driver:
        assert driver.about().identity
    wrong = replace(right, ca_bundle=target.vcenter.ca_pem)
    with pytest.raises(NeedsOperator) as refusal, BACKEND.connect(wrong):
        pass
    assert refusal.value.reason is Reason.PROVIDER_TLS_INVALID


def test_a_changed_certificate_is_noticed_on_every_new_connection(target: VSphereTarget) -> None:
    with quick_driver(target) as driver:
        driver.about()
        target.proxy.use_certificate(target.proxy.issue())
        with pytest.raises(NeedsOperator) as refusal:
            driver.about()
    assert refusal.value.reason is Reason.PROVIDER_TLS_INVALID


def test_an_unencrypted_endpoint_is_refused(target: VSphereTarget) -> None:
    clear = replace(target.connection(), endpoints=("http://127.0.0.1:1/sdk",))
    with pytest.raises(NeedsOperator), BACKEND.connect(clear):
        pass


def test_the_next_endpoint_is_tried_when_one_does_not_answer(target: VSphereTarget) -> None:
    both = (*target.unreachable().endpoints, target.proxy.url)
    with BACKEND.connect(replace(target.connection(), endpoints=both)) as driver:
        assert driver.about().identity == target.vcenter.instance_uuid


def test_sessions_are_logged_out(target: VSphereTarget) -> None:
    before = len(target.vcenter.sessions())
    with BACKEND.connect(target.connection()) as driver:
        driver.about()
        assert len(target.vcenter.sessions()) == before + 1
    assert len(target.vcenter.sessions()) == before


def test_a_server_that_is_too_old_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("old")
    with (
        vsphere_target(directory, ["-api-version", "6.7.3"]) as old,
        pytest.raises(NeedsOperator) as refusal,
        BACKEND.connect(old.connection()),
    ):
        pass
    assert refusal.value.reason is Reason.PROVIDER_VERSION_UNSUPPORTED


# Losing the session or the network


def test_a_session_that_was_ended_is_renewed(bench: Bench, target: VSphereTarget) -> None:
    plan = bench.plan()
    made = bench.ensure(plan)
    target.vcenter.terminate_sessions()
    assert bench.state(plan).backend_id == made.backend_id
    assert bench.driver.about().identity == target.vcenter.instance_uuid


def test_the_feed_survives_the_end_of_its_session(target: VSphereTarget) -> None:
    with quick_driver(target) as driver, Feed(driver).running() as feed:
        bench = Bench(target, driver)
        plan = bench.plan()
        state = bench.ensure(plan)
        target.vcenter.terminate_sessions()
        feed.forget()
        wait_until(feed.is_up, PATIENCE, "the feed to ask for everything again")
        feed.forget()
        target.vcenter.change_vm(state.backend_id, memory_mib=1024)
        wait_until(lambda: feed.told(plan.ref.uuid or ""), PATIENCE, "the change to be told")
        assert bench.state(plan).memory_mib == 1024


def test_an_ended_session_in_the_middle_of_a_create_makes_one_vm(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = bench.plan()
    target.proxy.add(fault("CloneVM_Task", "NotAuthenticated", count=1))
    bench.ensure(plan)
    assert len(bench.named(plan)) == 1


def test_a_silent_endpoint_is_unreachable_within_the_timeout(target: VSphereTarget) -> None:
    with quick_driver(target) as driver:
        driver.about()
        target.proxy.add(black_hole("RetrieveServiceContent"))
        started = monotonic()
        with pytest.raises(Unreachable):
            driver.about()
        assert monotonic() - started < QUICK.read + 2.0


def test_a_proxy_without_its_vcenter_is_unreachable(target: VSphereTarget) -> None:
    with quick_driver(target) as driver:
        target.proxy.add(http_status("*", 503))
        with pytest.raises(Unreachable) as failure:
            driver.about()
        assert "503" in failure.value.message


def test_half_a_reply_is_no_answer(target: VSphereTarget) -> None:
    with quick_driver(target) as driver:
        target.proxy.add(half_body("RetrieveServiceContent"))
        with pytest.raises(DriverError):
            driver.about()
        assert driver.about().identity == target.vcenter.instance_uuid


def test_connections_that_were_closed_while_idle_disturb_nobody(target: VSphereTarget) -> None:
    with quick_driver(target) as driver:
        bench = Bench(target, driver)
        plan = bench.plan()
        target.proxy.cut_all()
        bench.ensure(plan)
        assert len(bench.named(plan)) == 1


def test_another_vcenter_at_the_endpoint_is_never_asked_about_vms(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = bench.plan()
    ref = seen(plan, bench.ensure(plan))
    with target.other_identity():
        with pytest.raises(NeedsOperator) as refusal:
            bench.driver.observe(ref)
        with pytest.raises(NeedsOperator):
            bench.driver.delete(ref)
    assert refusal.value.reason is Reason.BACKEND_IDENTITY_CHANGED
    assert len(bench.named(plan)) == 1


# Making one VM, and only one


@pytest.mark.parametrize("lose", [drop_reply, half_body])
def test_a_clone_whose_reply_is_lost_is_found_and_never_repeated(
    target: VSphereTarget, lose: Callable[..., object]
) -> None:
    with quick_driver(target) as driver, Feed(driver).running() as feed:
        bench = Bench(target, driver)
        plan = bench.plan()
        target.proxy.reset_counts()
        target.proxy.add(lose("CloneVM_Task", count=1))  # type: ignore[arg-type] # a rule
        with pytest.raises(DriverError):
            driver.create(plan)
        wait_until(lambda: feed.told(plan.ref.uuid or ""), PATIENCE, "the VM to be told")
        bench.ensure(plan)
        assert target.proxy.passed["CloneVM_Task"] == 1
        assert len(bench.named(plan)) == 1


def test_absence_is_not_claimed_while_a_lost_call_may_arrive(target: VSphereTarget) -> None:
    with quick_driver(target) as driver:
        plan = Bench(target, driver).plan()
        target.proxy.add(black_hole("CloneVM_Task", count=1))
        with pytest.raises(Unreachable):
            driver.create(plan)
        for ref in (plan.ref, unminted(plan)):
            with pytest.raises(AbsenceUnproven):
                driver.observe(ref)
        wait_until(lambda: _absent(driver, plan), PATIENCE, "the lost call to be given up")


def test_what_comes_before_the_call_is_no_part_of_how_long_it_may_arrive(
    target: VSphereTarget,
) -> None:
    """A vCenter that takes long to make the folder may still take long over the clone."""
    creates = Creates(monotonic, 3.0)
    with quick_driver(target, creates) as driver:
        plan = Bench(target, driver).plan()
        spec = plan.spec.model_copy(
            update={"folder": plan.ref.name, "folder_policy": FolderPolicy.CREATE}
        )
        plan = replace(plan, spec=spec)
        target.proxy.add(delay("CreateFolder", 0.5, count=1))
        target.proxy.add(drop_reply("CloneVM_Task", count=1))
        before = monotonic()
        with pytest.raises(Unreachable):
            driver.create(plan)
        (lost,) = creates.lost()
        assert lost.since - before >= 0.5
        wait_until(lambda: driver.observe(plan.ref), PATIENCE, "the VM that was made")


def _absent(driver: VSphereDriver, plan: AnyPlan) -> bool:
    try:
        return driver.observe(plan.ref) is None
    except AbsenceUnproven:
        return False


def test_creates_of_two_processes_end_in_one_vm(target: VSphereTarget) -> None:
    with quick_driver(target) as one, quick_driver(target) as other:
        plan = Bench(target, one).plan()
        with target.slow_tasks(0.3), ThreadPoolExecutor(2) as pool:
            tasks = list(pool.map(lambda driver: driver.create(plan), (one, other)))
            list(pool.map(finish, (one, other), tasks))
        states = [driver.observe(plan.ref) for driver in (one, other)]
        assert {state.backend_id for state in states if state} == {
            vm.id for vm in target.vms() if vm.name == plan.ref.name
        }
        assert all(states)


def test_a_process_that_starts_meanwhile_waits_for_a_running_create(
    target: VSphereTarget,
) -> None:
    with quick_driver(target) as one, target.slow_tasks(6.0):
        plan = Bench(target, one).plan()
        task = one.create(plan)
        with quick_driver(target) as fresh:
            for ref in (plan.ref, unminted(plan)):
                with pytest.raises(AbsenceUnproven):
                    fresh.observe(ref)
            finish(one, task)
            found = fresh.observe(plan.ref)
        assert found is not None
        assert found.mark == plan.mark


def test_a_failed_create_makes_room_for_another_place(bench: Bench, target: VSphereTarget) -> None:
    plan = bench.plan()
    target.vcenter.add_fault(
        "CloneVM_Task",
        "InsufficientMemoryResourcesFault",
        {"unreserved": 1, "requested": 2},
        stage="task",
        count=1,
    )
    with pytest.raises(Refused) as refusal:
        bench.finish(bench.driver.create(plan))
    assert refusal.value.reason is Reason.INSUFFICIENT_CAPACITY
    bench.ensure(plan)


def test_more_creates_than_the_vcenter_likes_wait_for_their_turn(target: VSphereTarget) -> None:
    with quick_driver(target) as driver, target.slow_tasks(1.0):
        bench = Bench(target, driver)
        plans = [bench.plan(f"vm-{number}") for number in range(PER_TEMPLATE + 2)]
        target.proxy.reset_counts()
        tasks = [driver.create(plan) for plan in plans]
        assert target.proxy.passed["CloneVM_Task"] == PER_TEMPLATE
        for task in tasks:
            finish(driver, task)
        for plan in plans:
            bench.ensure(plan)


def test_a_vm_is_made_on_a_connected_host_where_the_cluster_picks_none(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with vsphere_target(tmp_path_factory.mktemp("no-drs"), ["-drs", "off"]) as alone:
        alone.vcenter.set_host("DC0_C0_H0", connection="disconnected")
        alone.vcenter.set_host("DC0_C0_H2", maintenance=True)
        with BACKEND.connect(alone.connection()) as driver:
            bench = Bench(alone, driver)
            assert bench.ensure(bench.plan()).host == "DC0_C0_H1"


def test_a_call_that_found_no_connection_is_no_lost_call(target: VSphereTarget) -> None:
    with quick_driver(target) as driver:
        plan = Bench(target, driver).plan()
        target.proxy.refuse()
        with pytest.raises(Unreachable):
            driver.create(plan)
        target.proxy.restore()
        assert driver.observe(plan.ref) is None


# Whose VM it is


def test_a_changed_uuid_is_shown_and_never_taken_for_absence(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = bench.plan()
    made = bench.ensure(plan)
    other = str(uuid.uuid4())
    target.reidentify(made.backend_id, other)
    for ref in (plan.ref, seen(plan, made)):
        found = bench.driver.observe(ref)
        assert found is not None
        assert (found.backend_id, found.uuid) == (made.backend_id, other)
    with pytest.raises(Foreign):
        bench.driver.delete(seen(plan, made))
    assert len(bench.named(plan)) == 1


def test_two_vms_of_one_uuid_are_both_left_alone(bench: Bench, target: VSphereTarget) -> None:
    plan = bench.plan()
    made = bench.ensure(plan)
    target.vcenter.create_foreign_vm(f"{plan.ref.name}-twin", instance_uuid=plan.ref.uuid or "")
    with pytest.raises(Foreign):
        bench.driver.observe(plan.ref)
    with pytest.raises(Foreign):
        bench.driver.delete(seen(plan, made))
    target.vcenter.destroy_vm(f"{plan.ref.name}-twin")


def test_a_vm_moved_to_a_folder_that_is_hidden_is_never_gone(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = bench.plan()
    made = bench.ensure(plan)
    target.vcenter.create_folder("/DC0/vm/private")
    target.vcenter.move_vm(made.backend_id, "/DC0/vm/private")
    target.vcenter.hide(target.vcenter.username, "/DC0/vm/private")
    for ref in (plan.ref, unminted(plan), seen(plan, made)):
        with pytest.raises(AbsenceUnproven):
            bench.driver.observe(ref)
    with quick_driver(target) as fresh:
        assert not fresh.about().missing_privileges
        for known in (made.backend_id, None):
            with pytest.raises(AbsenceUnproven):
                fresh.observe(replace(seen(plan, made), backend_id=known))
    target.vcenter.clear_permissions()
    assert bench.state(plan).backend_id == made.backend_id
    target.vcenter.destroy_vm(made.backend_id)


def test_a_released_vm_is_found_by_its_name_only(bench: Bench) -> None:
    plan = bench.plan()
    assert isinstance(bench.driver, MarkRemover)
    ref = seen(plan, bench.ensure(plan))
    remover = bench.driver
    bench.run(plan, lambda: remover.remove_mark(ref))
    found = bench.look(unminted(plan))
    assert found is not None
    assert found.mark is None


def test_a_vm_is_found_wherever_an_admin_moved_it(bench: Bench, target: VSphereTarget) -> None:
    plan = bench.plan()
    made = bench.ensure(plan)
    target.vcenter.create_folder("/DC0/vm/elsewhere")
    target.vcenter.move_vm(made.backend_id, "/DC0/vm/elsewhere")
    with quick_driver(target) as fresh:
        for ref in (plan.ref, unminted(plan)):
            found = fresh.observe(ref)
            assert found is not None
            assert found.backend_id == made.backend_id


def test_missing_rights_are_named_with_their_object(target: VSphereTarget) -> None:
    target.vcenter.deny(target.vcenter.username, "", ["VirtualMachine.Interact.PowerOn"])
    with quick_driver(target) as driver:
        missing = driver.about().missing_privileges
        assert [found.privilege for found in missing] == ["VirtualMachine.Interact.PowerOn"]
        assert "DC0" in missing[0].where
        bench = Bench(target, driver)
        with pytest.raises(NeedsOperator) as refusal:
            finish(driver, driver.create(bench.plan()))
    assert refusal.value.reason is Reason.PROVIDER_PERMISSION_DENIED
    assert "VirtualMachine.Interact.PowerOn" in refusal.value.message


# Images and plans


def test_a_template_is_found_by_name_path_and_uuid(bench: Bench, target: VSphereTarget) -> None:
    source, where = target.image_source(), target.failure_domain(bench.driver)
    template = target.vcenter.vm("ubuntu")
    names = ("ubuntu", "templates/ubuntu", "/DC0/vm/templates/ubuntu", template.instance_uuid)
    for name in names:
        found = bench.driver.find_image(source.model_copy(update={"ref": name}), where)
        assert found is not None, name
        assert (found.handle, found.firmware) == (template.mo_ref, template.firmware)
    missing = source.model_copy(update={"ref": "no-such-template"})
    assert bench.driver.find_image(missing, where) is None


def test_first_boot_data_reaches_the_guest(bench: Bench, target: VSphereTarget) -> None:
    plan = replace(bench.plan(), hostname="spelled-out")
    bench.ensure(plan)
    bench.until("the guest is up", lambda: bench.state(plan).guest.hostname == "spelled-out")
    options = target.vcenter.vm(plan.ref.name).extra_config
    assert options["guestinfo.userdata.encoding"] == "gzip+base64"
    assert options["disk.EnableUUID"] == "TRUE"


def test_user_data_that_is_too_large_is_refused_before_the_clone(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = bench.plan()
    noise = b"".join(uuid.uuid4().bytes for _ in range(6000))
    large = replace(plan, bootstrap=Bootstrap(user_data=SecretBytes(noise)))
    target.proxy.reset_counts()
    with pytest.raises(InvalidSpec) as refusal:
        bench.driver.create(large)
    assert refusal.value.reason is Reason.USER_DATA_TOO_LARGE
    assert target.proxy.arrived["CloneVM_Task"] == 0


def test_a_larger_boot_disk_and_resized_hardware(bench: Bench) -> None:
    plan = bench.plan()
    larger = replace(
        plan,
        disks=(replace(plan.disks[0], size_gib=disk_gib(plan) + 3),),
        power=PowerState.POWERED_OFF,
    )
    state = bench.ensure(larger)
    assert [(disk.name, disk.size_gib) for disk in state.disks] == [
        (plan.disks[0].name, disk_gib(plan) + 3)
    ]
    resized = replace(larger, cpus=4, memory_mib=2048, power=PowerState.POWERED_ON)
    bench.run(resized, lambda: bench.driver.update(resized, bench.state(resized)))
    state = bench.state(resized)
    assert (state.cpus, state.memory_mib, state.power) == (4, 2048, PowerState.POWERED_ON)


# Cost


def test_attributes_of_managed_objects_are_never_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an attribute was read, which costs a call each")

    monkeypatch.setattr(StubAdapterAccessorMixin, "InvokeAccessor", refuse)
    plan = bench.plan(data_disk=True)
    ref = seen(plan, bench.ensure(plan))
    bench.driver.about()
    bench.delete(ref, plan)
