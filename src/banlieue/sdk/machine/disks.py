"""Disks of a machine: what is asked for, what differs, what must be kept, and whose is what."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from banlieue.api import names
from banlieue.api.devices import Disk
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import MoveRole
from banlieue.api.reasons import Reason
from banlieue.api.types import ReclaimPolicy
from banlieue.sdk import shape
from banlieue.sdk.disks import disk_in_use, disk_not_found, disk_not_reachable, is_of_image
from banlieue.sdk.driver import DiskRemoval, Driver, FailureDomain, Task
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator
from banlieue.sdk.identity import Owner
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine import disk_drift, drift
from banlieue.sdk.machine.adopted import disks_it_had
from banlieue.sdk.machine.disk_drift import DiskProblem
from banlieue.sdk.machine.scope import Scope, told_of
from banlieue.sdk.outcome import CONTINUE, Outcome
from banlieue.sdk.powers import DiskDetacher, DiskKeeper, KeptDisk

BLOCKING = frozenset(
    {
        Reason.BLOCKED_BY_SNAPSHOT,
        Reason.BLOCKED_BY_LINKED_CLONE,
        Reason.BACKUP_IN_PROGRESS,
        Reason.INSUFFICIENT_STORAGE,
        Reason.DISK_NOT_FOUND,
        Reason.DISK_IN_USE,
    }
)
"""Why a change of a VM that runs as it should has to wait, without the VM being any worse."""

_CHANGES = frozenset({"reconfigure", "attach", "keep", "detach"})
"""Operations of tasks that change a VM which runs on whatever becomes of them."""

BLOCKED_SECONDS = 60.0
"""How long a blocked change waits when nothing tells that what blocks it is gone."""

_NAME_LENGTH = 63
_NOT_SLUG = re.compile(r"[^a-z0-9-]+")


def wanted(scope: Scope) -> list[Disk]:
    """The disks a machine asks for, the boot disk first; its own entries beat its class's."""
    spec = scope.machine.spec
    inherited = spec.class_.hardware if spec.class_ else None
    merged = {disk.name: disk for disk in shape.disks(inherited, spec.disks)}
    if spec.adopt is None:
        merged.setdefault(names.ROOT_DISK, Disk(name=names.ROOT_DISK))
    return sorted(merged.values(), key=lambda disk: disk.name != names.ROOT_DISK)


def kept_id(owner: Owner, uuid: str, disk: str) -> str:
    """The id a disk made for a VM is kept under: readable, lasting, and of this VM only."""
    name = _NOT_SLUG.sub("-", owner.name.lower()).strip("-")[:_NAME_LENGTH].strip("-") or "vm"
    digest = hashlib.sha256(f"{uuid.lower()}/{disk}".encode()).hexdigest()[:8]
    return f"{name}-{disk}-{digest}"


def removals(scope: Scope) -> tuple[DiskRemoval, ...]:
    """The disks that are to go; one that is listed again stays."""
    listed = {disk.name for disk in wanted(scope)} | disks_it_had(scope.machine.spec)
    return tuple(
        DiskRemoval(
            entry.name,
            _id(scope, entry.name, entry.existing)
            if entry.reclaim_policy is ReclaimPolicy.RETAIN
            else None,
        )
        for entry in scope.machine.spec.removed_disks
        if entry.name not in listed
    )


def retained(scope: Scope) -> dict[str, str]:
    """The disks that outlive the machine, and the ids they are kept under.

    So does one that nobody lists or ever took off the list: what was to become of it went with an
    object that was lost, and the one that found the VM again knows nothing of it. Disks that the
    image brought are never listed, and go with their VM.
    """
    kept = {name: _id(scope, name, None) for name in _unlisted(scope)}
    kept |= {
        disk.name: _id(scope, disk.name, disk.existing)
        for disk in wanted(scope)
        if disk.wanted_reclaim_policy is ReclaimPolicy.RETAIN
    }
    return kept | {gone.name: gone.keep_as for gone in removals(scope) if gone.keep_as}


def _unlisted(scope: Scope) -> set[str]:
    """Names of disks the VM has and its object has never heard of."""
    spec, seen = scope.machine.spec, scope.seen
    if spec.instance is None:
        return set()
    known = {disk.name for disk in wanted(scope)} | {gone.name for gone in spec.removed_disks}
    there = {disk.name for disk in (seen.disks if seen else ()) if disk.name is not None}
    came = {name for name in there if is_of_image(name)}
    return there - known - disks_it_had(spec) - came


def _id(scope: Scope, name: str, existing: str | None) -> str:
    instance = scope.machine.spec.instance
    if existing is not None:
        return existing
    if instance is None or scope.owner is None:
        return ""
    return kept_id(scope.owner, instance.uuid, name)


def problem(scope: Scope) -> DiskProblem | None:
    """What of the disks stays other than asked for, with the reason of UpToDate."""
    if scope.blocked is not None:
        return DiskProblem(scope.blocked.reason, scope.blocked.message)
    return disk_drift.problem(scope.desired.disks, scope.seen)


# Disks that exist already


async def check_existing(scope: Scope, where: FailureDomain | None) -> None:
    """Every kept disk the machine is still to get can be had by it, there.

    A machine that has a VM may have begun to take one; its driver finishes that, or says why not.

    Raises:
        NeedsOperator: one is not kept for this namespace, cannot be reached, or is another's.
        InvalidSpec: the backend keeps no disks.
    """
    if scope.machine.spec.role is MoveRole.PREVIOUS:
        return
    there = {disk.name for disk in scope.seen.disks} if scope.seen else set()
    for disk in wanted(scope):
        if disk.existing is not None and disk.name not in there:
            _check_free(scope, disk.name, disk.existing)
            if scope.seen is None and where is not None:
                await _check_kept(scope, disk.name, disk.existing, where)


def _check_free(scope: Scope, name: str, kept: str) -> None:
    """No other machine of the namespace has the disk or came first."""
    mine = _precedence(scope.raw)
    for other in scope.ctx.cache.list(scope.backend.machine, namespace=scope.key.namespace):
        if Key.of(other) == scope.key or not _lists(other, kept):
            continue
        if _has(other, kept) or _precedence(other) < mine:
            raise disk_in_use(name, kept, f"machine {other['metadata']['name']}")


def _precedence(machine: Obj) -> tuple[str, str]:
    meta = machine["metadata"]
    return str(meta.get("creationTimestamp") or ""), str(meta["name"])


def _lists(machine: Obj, kept: str) -> bool:
    disks = (machine.get("spec") or {}).get("disks") or ()
    return any(disk.get("existing") == kept for disk in disks)


def _has(machine: Obj, kept: str) -> bool:
    """Whether a machine was seen with the disk."""
    resources = (machine.get("status") or {}).get("resources") or {}
    there = {disk["name"] for disk in resources.get("disks") or ()}
    disks = (machine.get("spec") or {}).get("disks") or ()
    return any(disk.get("existing") == kept and disk["name"] in there for disk in disks)


async def _check_kept(scope: Scope, name: str, kept: str, where: FailureDomain) -> None:
    owner = scope.ref().owner

    def find(driver: Driver[Any]) -> KeptDisk | None:
        if not isinstance(driver, DiskKeeper):
            raise InvalidSpec(
                Reason.UNSUPPORTED_BY_PROVIDER,
                f"disk {name}: existing disks cannot be attached here; leave `existing` out",
            )
        return driver.kept_disk(owner, kept)

    found = await scope.open.call(find)
    if found is None:
        raise disk_not_found(name, kept, owner)
    if where.id not in found.failure_domains:
        raise disk_not_reachable(name, kept)


def put_off(scope: Scope, error: NeedsOperator) -> Outcome:
    """Have a VM that runs as it should go on, and try the change again later.

    Raises:
        NeedsOperator: the VM is not as it should be, or something else is wrong.
    """
    if error.reason not in BLOCKING or drift.POWER in scope.differing:
        raise error
    scope.blocked, scope.again_after = error, BLOCKED_SECONDS
    scope.memory.owed = scope.machine.metadata.generation
    return CONTINUE


def put_off_task(scope: Scope, task: Task, error: DriverError) -> None:
    """Take in that a change of hardware failed for want of space and such; tried again later.

    Raises:
        DriverError: anything else failed, or the machine is on its way out.
    """
    leaving = scope.machine.metadata.deletion_timestamp is not None
    if leaving or task.operation not in _CHANGES or error.reason not in BLOCKING:
        raise error
    scope.blocked, scope.again_after = error, BLOCKED_SECONDS
    scope.memory.owed = scope.machine.metadata.generation


# Keeping disks


def keep(driver: Driver[Any], scope: Scope, kept: Mapping[str, str]) -> Task | None:
    """One step towards keeping disks of a machine that goes; None when there is none left."""
    ref = scope.ref()
    if isinstance(driver, DiskKeeper):
        return driver.keep_disks(ref, kept)
    attached = [disk for disk in (scope.seen.disks if scope.seen else ()) if disk.name in kept]
    if attached and isinstance(driver, DiskDetacher):
        return driver.detach_disks(ref, attached)
    if attached:
        raise NeedsOperator(
            Reason.FOREIGN_DISK_ATTACHED, "this backend cannot take disks off a VM by itself"
        )
    return None


def tell_kept(scope: Scope, kept: Mapping[str, str]) -> None:
    """Say which disks are taken off to be kept and by which ids they are attached again."""
    if not kept:
        return
    named = ", ".join(f"{name} as {kept[name]}" for name in sorted(kept))
    scope.ctx.recorder.event(
        told_of(scope),
        EventReason.DISK_RETAINED,
        f"Disks are kept: {named}; attach one in this namespace by `existing`",
    )


def tell_removed(scope: Scope) -> None:
    """Say which disks went from a living VM since its status was written, and are kept."""
    if scope.seen is None:
        return
    resources = scope.machine.status.resources
    before = {disk.name for disk in resources.disks} if resources else set()
    now = {disk.name for disk in scope.seen.disks}
    gone = {it.name: it.keep_as for it in removals(scope) if it.keep_as is not None}
    tell_kept(scope, {name: gone[name] for name in gone if name in before - now})
