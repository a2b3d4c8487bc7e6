"""Many VMs of ours on a simulated vCenter, made in a moment: copies of one that the driver made."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

from banlieue.providers.vsphere.watching.records import MARK_KEY
from banlieue.sdk.driver import MachineRef
from banlieue.sdk.identity import Mark, backend_name
from banlieue.sdk.testing.conformance_target import Bench
from test.kit.vsphere_target import VSphereTarget

_AT_ONCE = 8


def make_fleet(target: VSphereTarget, count: int, *, power_on: bool = True) -> Sequence[MachineRef]:
    """So many VMs, each with a mark and a UUID of its own; what their machines know of them."""
    with target.backend.connect(target.connection()) as driver:
        bench = Bench(target, driver)
        plan = bench.plan("original")
        original = bench.ensure(plan)

        def copy(number: int) -> MachineRef:
            owner = replace(plan.ref.owner, name=f"vm-{number}")
            uuid, name = str(uuid4()), backend_name(owner, 0)
            made = target.vcenter.create_foreign_vm(
                name,
                copy_of=original.backend_id,
                uuid=uuid,
                instance_uuid=uuid,
                extra_config={MARK_KEY: Mark(owner, uuid).encode()},
                power_on=power_on,
            )
            return replace(
                plan.ref, owner=owner, name=name, uuid=uuid, seen=True, backend_id=made.mo_ref
            )

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            made = list(pool.map(copy, range(count)))
        target.vcenter.destroy_vm(original.backend_id)
    return made
