"""What one process knows of a vCenter is old when another one, or an admin, makes a VM there."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from time import monotonic

import pytest

from banlieue.providers.vsphere.client.creates import Creates
from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.driver import VSphereDriver, open_driver
from banlieue.providers.vsphere.vms import machines
from banlieue.sdk.testing.conformance_target import Bench
from test.kit.vsphere_target import VSphereTarget, vsphere_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


def process(target: VSphereTarget) -> AbstractContextManager[VSphereDriver]:
    return open_driver(target.connection(), Creates(monotonic, 60.0), Timings(), monotonic)


def test_an_identity_of_another_process_is_never_taken_for_unused(target: VSphereTarget) -> None:
    """It looked before its own mint, which then failed as the other one was first."""
    with process(target) as first, process(target) as second:
        bench = Bench(target, first)
        plan = bench.plan()
        assert second.observe(replace(plan.ref, uuid=None)) is None
        made = bench.ensure(plan)
        found = second.observe(plan.ref)
        assert found is not None
        assert found.backend_id == made.backend_id


@pytest.mark.identity("2.2")
def test_a_vm_restored_among_many_is_found_wherever_it_is(
    target: VSphereTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "_FEW", 0)
    monkeypatch.setattr(machines, "_BULK", 0)
    with process(target) as first, process(target) as second:
        bench = Bench(target, first)
        plan = bench.plan("db")
        # It has a list of all VMs from before.
        assert second.observe(replace(bench.plan("warm").ref, uuid=None)) is None
        made = bench.ensure(plan)
        target.vcenter.create_folder("/DC0/vm/restored")
        target.vcenter.move_vm(made.backend_id, "/DC0/vm/restored")
        found = second.observe(replace(plan.ref, uuid=None))
        assert found is not None
        assert found.backend_id == made.backend_id
