"""What the watch of a vCenter must not miss, however close together things happen."""

from pathlib import Path

import pytest

from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.providers.vsphere.vms import machines
from banlieue.sdk.testing.conformance_target import Bench, seen
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE = 30.0
TASK_AND_VM = 2
"""Edits of the list: one for the task of a create, one for its VM."""


def _edits(target: VSphereTarget) -> int:
    return target.vcenter.counters().soap.get("ModifyListView", 0)


def test_a_vm_that_goes_right_after_it_was_watched_is_looked_for(tmp_path: Path) -> None:
    """Between two polls it came onto the list and went: the vCenter tells neither."""
    with vsphere_target(tmp_path) as target, BACKEND.connect(target.connection()) as driver:
        assert isinstance(driver, VSphereDriver)
        assert driver.changes(0).everything
        plan = Bench(target, driver).plan()
        task = driver.create(plan)
        assert task is not None
        handle = task.handle
        wait_until(lambda: handle in driver.changes(0.5).tasks, PATIENCE, "the VM to be made")
        assert driver.poll(task) is None
        state = driver.observe(plan.ref)
        assert state is not None
        wait_until(lambda: _edits(target) == TASK_AND_VM, PATIENCE, "the VM to be watched")
        again = target.vcenter.register_again(state.backend_id)
        wait_until(lambda: plan.ref.uuid in driver.changes(1.0).uuids, PATIENCE, "it to be told")
        found = driver.observe(seen(plan, state))
        assert found is not None
        assert found.backend_id == again.mo_ref


def test_a_vm_that_a_search_does_not_tell_of_is_the_machines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vCenter that destroys a VM finds it no more by its UUID and still shows it by its id."""
    with vsphere_target(tmp_path) as target, BACKEND.connect(target.connection()) as driver:
        bench = Bench(target, driver)
        plan = bench.plan()
        ref = seen(plan, bench.ensure(plan))
        with monkeypatch.context() as patch:
            patch.setattr(machines, "find_by_uuid", lambda *_: ())
            bench.finish(driver.delete(ref))
            state = driver.observe(ref)
            assert state is not None
            assert state.uuid == plan.ref.uuid
        bench.delete(ref, plan)
        assert bench.look(ref) is None
