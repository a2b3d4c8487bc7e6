"""Restarts on a vCenter, whose tasks and boot times tell nothing of a guest that restarts."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.sdk.driver import Task
from banlieue.sdk.errors import Transient
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench
from test.kit.vsphere_target import VSphereTarget, vsphere_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.fixture
def bench(target: VSphereTarget) -> Iterator[Bench]:
    with BACKEND.connect(target.connection()) as driver:
        yield Bench(target, driver)


def restart(bench: Bench, plan: AnyPlan, mode: PowerOffMode, seconds: float = 0.5) -> Task:
    """Ask for a restart; the guest gets that many seconds to obey."""
    asked = replace(plan, restart=True, power_off_mode=mode, power_off_timeout=seconds)
    task = bench.driver.update(asked, bench.state(plan))
    assert task is not None
    return task


def resets(bench: Bench) -> int:
    """How often this session has reset a VM."""
    driver = bench.driver
    assert isinstance(driver, VSphereDriver)
    return driver.calls().get("ResetVM_Task", 0)


def running(bench: Bench, target: VSphereTarget, *, hangs: bool) -> AnyPlan:
    """The plan of a VM that runs, with a guest that obeys or does not."""
    plan = bench.plan()
    target.vcenter.guest(machine=plan.ref.name, ignore_shutdown=hangs)
    bench.ensure(plan)
    bench.until("the guest runs", lambda: bench.state(plan).guest.agent_connected)
    return plan


def test_a_guest_that_restarts_keeps_the_boot_time(bench: Bench, target: VSphereTarget) -> None:
    plan = running(bench, target, hangs=False)
    before = bench.state(plan)
    bench.finish(restart(bench, plan, PowerOffMode.SOFT, 200))
    bench.until("the guest runs again", lambda: bench.state(plan).guest.agent_connected)
    assert bench.state(plan).last_boot == before.last_boot


def test_a_guest_that_hangs_is_reset_only_where_that_is_allowed(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = running(bench, target, hangs=True)
    with pytest.raises(Transient) as raised:
        bench.finish(restart(bench, plan, PowerOffMode.SOFT))
    assert raised.value.reason is Reason.SHUTDOWN_TIMED_OUT
    assert resets(bench) == 0
    bench.finish(restart(bench, plan, PowerOffMode.TRY_SOFT))
    assert resets(bench) == 1
    bench.until("the guest runs again", lambda: bench.state(plan).guest.agent_connected)


def test_a_vm_without_an_agent_is_reset_only_where_that_is_allowed(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = bench.plan()
    target.vcenter.guest(machine=plan.ref.name, enabled=False)
    bench.ensure(plan)
    with pytest.raises(Transient) as raised:
        restart(bench, plan, PowerOffMode.SOFT)
    assert raised.value.reason is Reason.GUEST_AGENT_NOT_READY
    bench.finish(restart(bench, plan, PowerOffMode.TRY_SOFT))
    assert resets(bench) == 1


def test_a_process_that_knows_nothing_of_a_restart_takes_it_for_done(
    bench: Bench, target: VSphereTarget
) -> None:
    plan = running(bench, target, hangs=True)
    task = restart(bench, plan, PowerOffMode.SOFT, 3600)
    assert bench.driver.poll(task) is not None
    with bench.connect() as other:
        assert other.poll(task) is None


def test_a_guest_that_restarted_while_nobody_watched_is_not_reset(
    bench: Bench, target: VSphereTarget
) -> None:
    driver = bench.driver
    assert isinstance(driver, VSphereDriver)
    plan = running(bench, target, hangs=True)
    driver.changes(0)
    task = restart(bench, plan, PowerOffMode.TRY_SOFT, 3600)
    assert driver.poll(task) is not None
    assert target.vcenter.terminate_sessions()

    def obeyed() -> bool:
        driver.changes(0.5)
        return driver.poll(task) is None

    bench.until("the restart to be taken for done", obeyed)
    assert resets(bench) == 0
