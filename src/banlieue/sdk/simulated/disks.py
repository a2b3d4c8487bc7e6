"""Disks of plans against those of a simulated VM. Pure over the world's answers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from banlieue.api.reasons import Reason
from banlieue.sdk.disks import disk_not_found, disk_not_reachable
from banlieue.sdk.driver import DiskPlan, MachinePlan
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.identity import Owner
from banlieue.sdk.powers import KeptDisk
from banlieue.sdk.simulated.models import SimulatedMachineSpec

Json = dict[str, Any]
Plan = MachinePlan[SimulatedMachineSpec]

STORAGE_KEY = "pool"


def keeper(owner: Owner) -> str:
    """Whose a kept disk is, as one line of text."""
    return f"{owner.installation_id}/{owner.namespace}"


def disk_spec(disk: DiskPlan) -> Json:
    """A disk to make or to attach, as the world takes it."""
    return {
        "name": disk.name,
        "pool": str(disk.storage.get(STORAGE_KEY, "")),
        "size_gib": disk.size_gib,
        "existing": disk.existing,
    }


def lost(vm: Json) -> list[str]:
    """Names of disks that plans made and somebody else took off."""
    there = _by_name(vm)
    return [name for name in vm["had"] if name not in there]


def missing(plan: Plan, vm: Json) -> list[DiskPlan]:
    """Disks of the plan that the VM never had."""
    known = {*_by_name(vm), *vm["had"]}
    return [disk for disk in plan.disks if disk.name not in known]


def lacks_existing(plan: Plan, vm: Json) -> bool:
    """Whether the VM is still to get a kept disk, without which it is not started."""
    return any(disk.existing is not None for disk in missing(plan, vm))


def wanted(plan: Plan, vm: Json) -> list[Json]:
    """Every disk to make, attach or grow, as a reconfigure says it; those as planned are left out.

    Nothing grows while a snapshot holds on to the disks.
    """
    there = _by_name(vm)
    grown = [] if vm["snapshots"] else _smaller(plan, vm)
    return [
        *(disk_spec(disk) for disk in missing(plan, vm)),
        *(
            {"name": disk.name, "pool": there[disk.name]["pool"], "size_gib": disk.size_gib}
            for disk in grown
        ),
    ]


def _smaller(plan: Plan, vm: Json) -> list[DiskPlan]:
    there = _by_name(vm)
    return [
        disk
        for disk in plan.disks
        if disk.name in there and (disk.size_gib or 0) > there[disk.name]["size_gib"]
    ]


def destroyed(plan: Plan, vm: Json) -> list[str]:
    """Ids of disks to take off and destroy."""
    there = _by_name(vm)
    gone = [removal.name for removal in plan.removals if removal.keep_as is None]
    return [] if vm["snapshots"] else [there[name]["id"] for name in gone if name in there]


def to_keep(kept: Mapping[str, str], vm: Json, owner: Owner) -> dict[str, Json]:
    """What becomes of disks that are to be kept, by their ids in the world."""
    there = _by_name(vm)
    return {
        there[name]["id"]: {"id": id_, "keeper": keeper(owner)}
        for name, id_ in kept.items()
        if name in there
    }


def removed_and_kept(plan: Plan) -> dict[str, str]:
    """Disks the plan takes off and keeps, with their ids."""
    return {gone.name: gone.keep_as for gone in plan.removals if gone.keep_as is not None}


def check_blocked(plan: Plan, vm: Json) -> None:
    """Raise `NeedsOperator` when all that is left has to wait for snapshots to go."""
    there = _by_name(vm)
    removed = any(gone.name in there for gone in plan.removals)
    if vm["snapshots"] and (removed or _smaller(plan, vm)):
        raise NeedsOperator(
            Reason.BLOCKED_BY_SNAPSHOT,
            "the VM has snapshots, which hold on to its disks; delete the snapshots",
        )


def kept_disk(disk: Json) -> KeptDisk:
    """A kept disk of the world as the SDK sees it."""
    namespace = str(disk["keeper"]).rpartition("/")[2]
    return KeptDisk(disk["kept"], namespace, disk["size_gib"], tuple(disk["domains"]))


def resolved(plan: Plan, kept: Iterable[Json], had: Iterable[str] = ()) -> Plan:
    """The plan with kept disks by the world's own ids.

    Raises:
        NeedsOperator: one is not kept for the plan's owner, or not there.
    """
    mine = {disk["kept"]: disk for disk in kept if disk["keeper"] == keeper(plan.ref.owner)}
    found = []
    for disk in plan.disks:
        if disk.existing is None or disk.name in had:
            found.append(disk)
            continue
        known = mine.get(disk.existing)
        if known is None:
            raise disk_not_found(disk.name, disk.existing, plan.ref.owner)
        if plan.failure_domain.id not in known["domains"]:
            raise disk_not_reachable(disk.name, disk.existing)
        storage = {STORAGE_KEY: known["pool"]}
        found.append(replace(disk, existing=known["id"], storage=storage))
    return replace(plan, disks=tuple(found))


def _by_name(vm: Json) -> dict[str, Json]:
    return {disk["name"]: disk for disk in vm["disks"] if disk["name"]}
