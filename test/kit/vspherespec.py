"""vSphere machines with all their fields, on a vCenter that has something of each kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.models import VSphereMachineSpec
from banlieue.sdk.driver import MachineState
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench
from test.kit.vcsim_values import Machine
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget, vsphere_target

Native = Any
"""An object of the vendor's library, which has no types for them."""

POLICY: Final = "VVol No Requirements Policy"
PLACES: Final = (
    *("-cluster", "1", "-ds", "3", "-pod", "1"),
    *("-opaque", "1", "-pool", "2", "-pci", "gpu"),
)


@contextmanager
def furnished(directory: Path, *more: str) -> Iterator[VSphereTarget]:
    """A vCenter with a datastore cluster, pools, an opaque network and PCI devices."""
    with vsphere_target(directory, (*PLACES, *more)) as target:
        with admin(target) as client:
            pod = client.at("DC0/datastore/DC0_POD0")
            inside = [client.at(f"DC0/datastore/LocalDS_{number}") for number in (1, 2)]
            client.outcome(pod.MoveIntoFolder_Task(inside))
        yield target


@contextmanager
def admin(target: VSphereTarget) -> Iterator[VSphereClient]:
    """A session of an administrator, past the driver and its proxy."""
    with VSphereClient(target.vcenter.url, ca_pem=target.vcenter.ca_pem) as client:
        yield client.login(target.vcenter.username, target.vcenter.password)


def planned(bench: Bench, name: str = "web", **fields: Native) -> AnyPlan:
    """A plan for a machine with these fields of its own."""
    return replace(bench.plan(name), spec=VSphereMachineSpec.model_construct(**fields))


def made(bench: Bench, plan: AnyPlan) -> MachineState:
    """Make the VM and take every further step, as a reconciler does."""
    bench.ensure(plan)
    bench.run(plan, lambda: bench.driver.update(plan, bench.state(plan)))
    return bench.state(plan)


def machine(bench: Bench, plan: AnyPlan) -> Machine:
    """The VM as the simulator tells it."""
    assert isinstance(bench.target, VSphereTarget)
    return bench.target.vcenter.vm(plan.ref.name)


def read(bench: Bench, plan: AnyPlan, *paths: str) -> dict[str, Native]:
    """Properties of the VM."""
    assert isinstance(bench.target, VSphereTarget)
    with admin(bench.target) as client:
        vm = client.reference(vim.VirtualMachine, machine(bench, plan).mo_ref)
        return client.read(vm, *paths)


def devices(bench: Bench, plan: AnyPlan, kind: type[Native]) -> list[Native]:
    """The devices of a kind that the VM has."""
    found = read(bench, plan, "config.hardware.device")["config.hardware.device"]
    return [device for device in found if isinstance(device, kind)]


def stores(bench: Bench, plan: AnyPlan) -> list[str]:
    """The datastores of its disks."""
    return [disk.file.partition("]")[0].strip("[") for disk in machine(bench, plan).disks]


def refused(bench: Bench, plan: AnyPlan) -> DriverError:
    """What the create of a plan is refused with; nothing was made."""
    with pytest.raises((InvalidSpec, NeedsOperator)) as refusal:
        bench.driver.create(plan)
    assert not bench.named(plan), "something was made all the same"
    return refusal.value
