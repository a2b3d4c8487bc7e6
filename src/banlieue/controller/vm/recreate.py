"""Making a machine anew whose VM is proved to be gone, where its user agreed to that beforehand."""

from banlieue.api.conditions import ConditionType
from banlieue.api.devices import Disk
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Machine, MoveRole, TeardownMode
from banlieue.api.reasons import Reason
from banlieue.api.types import ReclaimPolicy
from banlieue.api.v1alpha1.virtualmachine import OnMissing
from banlieue.controller.infra import teardown
from banlieue.controller.infra.kinds import Found
from banlieue.controller.scheduling.placement import Site
from banlieue.controller.vm.scope import Scope
from banlieue.sdk import shape
from banlieue.sdk.conditions import false
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait


async def recreate_missing(scope: Scope) -> Outcome:
    """Is the VM proved to be gone, and does its user want a new one from the image?

    The machine object is released, not destroyed: should its VM show up in the meantime, the next
    machine object finds it by its mark and takes it up again. That one is POSTed when this one is
    gone, and whether the VM is there is asked once more before anything is made.

    Raises:
        Conflict: the machine changed since it was read, perhaps because the VM was seen again.
    """
    machine, raw, kind = scope.machine, scope.machine_raw, scope.kind
    if machine is None or raw is None or kind is None or not _asked_for(scope, machine):
        return CONTINUE
    obstacle = _obstacle(scope, machine)
    if obstacle is not None:
        scope.wait_for_others()
        message = f"the VM is gone from its backend; no new one is made: {obstacle}"
        scope.settle(false(ConditionType.INFRASTRUCTURE_READY, Reason.VM_MISSING, message))
        return CONTINUE
    api = scope.ctx.api
    released = await teardown.write_intent(api, Found(kind, raw), TeardownMode.RELEASE)
    await teardown.delete(api, released)
    message = "the VM is gone from its backend; a new one is made, as onMissing asks"
    scope.ctx.recorder.event(
        scope.raw,
        EventReason.RECREATED,
        "The VM was gone from its backend; a new one is made from the image, as onMissing asks",
        warning=True,
    )
    scope.settle(false(ConditionType.INFRASTRUCTURE_READY, Reason.VM_MISSING, message))
    return Wait(Reason.VM_MISSING, message)


def _asked_for(scope: Scope, machine: Machine) -> bool:
    spec, status = scope.vm.spec, scope.vm.status
    moving = status.incoming_ref is not None or status.previous is not None
    return (
        machine.status.missing is not None
        and machine.metadata.deletion_timestamp is None
        and machine.spec.role is MoveRole.CURRENT
        and spec.on_missing is OnMissing.RECREATE
        and not moving
    )


def _obstacle(scope: Scope, machine: Machine) -> str | None:
    """Why no new VM is made although its user wants one, with what to do about it."""
    spec = scope.vm.spec
    if spec.adopt is not None:
        return "it was adopted, so there is nothing to make it from; restore it on its backend"
    if scope.vm_class is None or scope.image is None:
        return "its VMClass or VMImage does not exist any more; create it again"
    kept = _retained(scope, machine)
    if kept:
        return (
            f"its disks {', '.join(kept)} are to be retained, and a new one would begin with "
            "empty ones; restore the VM, or set their reclaimPolicy to Delete"
        )
    where = scope.place
    site = scope.services.site(where.provider, scope.image, scope.key.namespace) if where else None
    return _closed(site, where.domain) if site and where else "its Provider does not exist any more"


def _closed(site: Site, domain: str) -> str | None:
    """Why the Provider cannot be asked, or takes no new VM there."""
    place = site.domain(domain)
    flaws = {
        "is not Ready": not site.ready,
        "is paused": site.paused,
        "is read-only": site.read_only,
        "is being deleted": site.deleting,
        "is cordoned": site.cordoned,
        "may not be used from this namespace": not site.allowed,
        f"takes no new VMs in failure domain {domain}": place is None or not place.schedulable,
    }
    found = [flaw for flaw, holds in flaws.items() if holds]
    return f"Provider {site.key} {found[0]}" if found else None


def _retained(scope: Scope, machine: Machine) -> list[str]:
    """Names of disks that are to be retained, by the VirtualMachine or by its machine object."""
    used = machine.spec.class_
    wanted = (
        *shape.disks(used.hardware if used else None, scope.vm.spec.disks),
        *machine.spec.disks,
    )
    return sorted({disk.name for disk in wanted if _kept(disk)})


def _kept(disk: Disk) -> bool:
    """Whether its data outlives the machine, or outlived one before."""
    return disk.reclaim_policy is ReclaimPolicy.RETAIN or disk.existing is not None
