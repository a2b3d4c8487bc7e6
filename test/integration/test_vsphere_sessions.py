"""Sessions and vCenters that come and go in the middle of a life, and no task is lost over it.

The machine reconciler runs in the test's process over a real driver and a simulated vCenter.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from time import monotonic

import pytest
from pydantic import SecretStr

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.client.creates import Creates
from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.driver import open_driver
from banlieue.sdk.errors import NeedsOperator, Unreachable
from banlieue.sdk.testing.conformance_target import Bench
from test.kit.soaprules import fault
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.vspherebench import VSphereBench

pytestmark = pytest.mark.slow

TIMINGS = Timings(read=5.0, longest_poll=1.0, poll_slack=4.0, gather=0.1, stream=0.1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.vcenter.guest(delay=0.0)
        yield target


@pytest.fixture
def target(shared: VSphereTarget) -> Iterator[VSphereTarget]:
    yield shared
    shared.proxy.clear()
    shared.proxy.restore()
    shared.vcenter.clear_delays()
    shared.vcenter.clear_faults()


@pytest.fixture
async def bench(target: VSphereTarget) -> AsyncIterator[VSphereBench]:
    with VSphereBench(target, TIMINGS) as bench:
        yield bench
        target.vcenter.clear_delays()
        for name in tuple(bench.machines()):
            for vm in bench.vms(name):
                target.vcenter.destroy_vm(vm.mo_ref)


async def begin(bench: VSphereBench, name: str) -> None:
    """Have a clone under way that takes a second."""
    bench.target.vcenter.set_delay("CloneVM_Task", 1.0, of="task")
    bench.target.proxy.reset_counts()
    bench.make_machine(name)
    passed = bench.target.proxy
    await bench.until("the clone is sent", lambda: passed.passed["CloneVM_Task"] == 1, name)


async def end(bench: VSphereBench, name: str) -> None:
    """The one VM it must come to, whatever happened meanwhile."""
    await bench.until("it is Ready", lambda: bench.is_ready(name), name)
    assert bench.target.proxy.passed["CloneVM_Task"] == 1
    assert len(bench.vms(name)) == 1
    assert Reason.VM_MISSING not in bench.reasons


async def test_a_session_that_is_terminated_in_the_middle_of_a_clone(bench: VSphereBench) -> None:
    await begin(bench, "ended")
    assert bench.target.vcenter.terminate_sessions()
    await end(bench, "ended")


async def test_a_vcenter_that_restarts_in_the_middle_of_a_clone(bench: VSphereBench) -> None:
    """Its services are away, its sessions are gone, and it has forgotten the task."""
    await begin(bench, "restarted")
    vcenter, proxy = bench.target.vcenter, bench.target.proxy
    proxy.refuse()
    for _ in range(5):
        await bench.run_pass("restarted")
    assert Reason.PROVIDER_UNREACHABLE in bench.told_reasons()
    vcenter.terminate_sessions()
    vcenter.clear_delays()
    await bench.until(
        "the clone ends", lambda: [vm for vm in vcenter.vms() if not vm.template], "restarted"
    )
    vcenter.forget_tasks()
    proxy.restore()
    await end(bench, "restarted")


async def test_a_vcenter_that_restarts_before_a_deletion_ends(bench: VSphereBench) -> None:
    bench.make_machine("leaving")
    await bench.until("it is Ready", lambda: bench.is_ready("leaving"))
    bench.target.vcenter.set_delay("PowerOffVM_Task", 0.5, of="task")
    bench.delete("leaving")
    await bench.run_pass("leaving")
    bench.target.proxy.refuse()
    await bench.run_pass("leaving")
    bench.target.vcenter.terminate_sessions()
    bench.target.vcenter.forget_tasks()
    bench.target.proxy.restore()
    await bench.until("it is gone", lambda: not bench.machine("leaving"))
    assert not bench.vms("leaving")


async def test_a_process_that_begins_in_the_middle_of_a_clone(bench: VSphereBench) -> None:
    await begin(bench, "taken-over")
    bench.restart()
    await end(bench, "taken-over")


async def test_a_machine_that_is_deleted_while_its_vm_is_made_leaves_none(
    bench: VSphereBench,
) -> None:
    await begin(bench, "changed-mind")
    bench.delete("changed-mind")
    await bench.until("it is gone", lambda: not bench.machine("changed-mind"))
    assert not bench.vms("changed-mind")


async def test_a_certificate_that_is_renewed_is_told_and_taken_with_its_thumbprint(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    bench.make_machine("web")
    await bench.until("it is Ready", lambda: bench.is_ready("web"))
    old, fresh = target.proxy.certificate, target.proxy.issue()
    both = replace(target.connection(), thumbprints=(old.thumbprint, fresh.thumbprint))
    target.proxy.use_certificate(fresh)
    with pytest.raises(NeedsOperator) as refusal:
        bench.driver.about()
    assert refusal.value.reason is Reason.PROVIDER_TLS_INVALID
    assert fresh.thumbprint in refusal.value.message
    with BACKEND.connect(both) as again:
        assert again.about().identity == bench.identity
    bench.restart()
    await bench.until("it is seen again", lambda: bench.is_ready("web"))
    assert len(bench.vms("web")) == 1


def test_new_credentials_take_over_while_a_task_runs(target: VSphereTarget) -> None:
    """What a create of the old session began, the new one follows to its end."""
    vcenter, creates = target.vcenter, Creates(monotonic, 10.0)
    before = target.connection()
    vcenter.set_account("rotated@vsphere.local", "planted-new-password-77")
    after = replace(
        before,
        credentials={
            "username": SecretStr("rotated@vsphere.local"),
            "password": SecretStr("planted-new-password-77"),
        },
    )
    sessions = len(vcenter.sessions())
    vcenter.set_delay("CloneVM_Task", 2.0, of="task")
    target.proxy.reset_counts()
    with contextlib.ExitStack() as older:
        old = older.enter_context(open_driver(before, creates, TIMINGS, monotonic))
        plan = Bench(target, old).plan("rotated")
        assert old.observe(plan.ref) is None
        task = old.create(plan)
        assert task is not None
        with open_driver(after, creates, TIMINGS, monotonic) as new:
            assert len(vcenter.sessions()) == sessions + 2
            assert new.about().identity == vcenter.instance_uuid
            older.close()
            bench = Bench(target, new)
            bench.finish(task)
            state = bench.ensure(plan)
            assert [vm.mo_ref for vm in vcenter.vms() if vm.name == plan.ref.name] == [
                state.backend_id
            ]
            assert target.proxy.passed["CloneVM_Task"] == 1
            vcenter.destroy_vm(state.backend_id)
    assert len(vcenter.sessions()) == sessions, "a session was left open"
    vcenter.remove_account("rotated@vsphere.local")


async def test_many_machines_share_one_session(bench: VSphereBench, target: VSphereTarget) -> None:
    before = len(target.vcenter.sessions())
    names = [f"many-{number}" for number in range(5)]
    for name in names:
        bench.make_machine(name)
    await bench.until("all are Ready", lambda: all(map(bench.is_ready, names)))
    assert len(target.vcenter.sessions()) == before
    bench.stop()
    assert len(target.vcenter.sessions()) == before - 1
    bench.start()


def test_a_vcenter_with_no_session_left_is_told_and_tried_again(target: VSphereTarget) -> None:
    rule = target.proxy.add(fault("Login", "LimitExceeded", {"property": "sessions"}, count=1))
    with pytest.raises(NeedsOperator) as refusal, BACKEND.connect(target.connection()):
        pass
    assert rule.hits == 1
    assert refusal.value.reason is Reason.QUOTA_EXCEEDED
    with BACKEND.connect(target.connection()) as driver:
        assert driver.about().identity


def test_a_login_that_fails_halfway_leaves_no_session(target: VSphereTarget) -> None:
    before = len(target.vcenter.sessions())
    for _ in range(3):
        target.proxy.add(fault("Login", "InvalidLogin", count=1))
        with pytest.raises(NeedsOperator), BACKEND.connect(target.connection()):
            pass
    target.proxy.refuse()
    with pytest.raises(Unreachable), BACKEND.connect(target.connection()):
        pass
    assert len(target.vcenter.sessions()) == before
