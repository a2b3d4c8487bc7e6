"""What stands in the way of a step: other people's tasks, backups, what a backup program forbids.

All of it was read with the VM in the same call, so nothing is tried that must fail, and nothing is
changed while a backup reads the disks.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.soap import moid
from banlieue.providers.vsphere.watching.records import SNAPSHOTS
from banlieue.sdk.errors import NeedsOperator, Transient

if TYPE_CHECKING:
    from banlieue.providers.vsphere.vms.machines import Live

DISABLED = "disabledMethod"
"""Property of a VM: methods that may not be called now, by its state or by somebody's wish."""

BACKUP_TASKS = frozenset(
    {
        "virtualmachine.createsnapshot",
        "virtualmachine.createsnapshotex",
        "virtualmachine.removesnapshot",
        "virtualmachine.removeallsnapshots",
        "virtualmachine.consolidatedisks",
        "vm.snapshot.remove",
    }
)
"""Tasks by which a backup begins and ends, by their `descriptionId` in lower case."""

_RELOCATE = "RelocateVM_Task"
"""What backup programs forbid while they read."""


def check_free(descriptions: Collection[str]) -> None:
    """Raise while tasks of others run on a VM, given by their description ids."""
    if {text.lower() for text in descriptions} & BACKUP_TASKS:
        raise Transient(
            Reason.BACKUP_IN_PROGRESS,
            "a snapshot of the VM is being made or removed; the step follows when that ends",
        )
    if descriptions:
        raise Transient(
            Reason.PROVIDER_BUSY, "another task runs on the VM; the step follows when it ends"
        )


def check_allowed(live: "Live", method: str) -> None:
    """Raise while a backup, or another program, forbids a change of disks or a destruction.

    Backup programs forbid to move a VM while they read it, and have a snapshot of it; either alone
    means nothing. A VM whose host is away has most methods forbidden for that reason.
    """
    disabled = set(live.found.get(DISABLED) or ())
    reads = _RELOCATE in disabled and bool(live.found.get(SNAPSHOTS))
    if live.record.connection == "connected" and (method in disabled or reads):
        raise NeedsOperator(
            Reason.BACKUP_IN_PROGRESS,
            "a backup, or another program, forbids changes of the VM's disks at the moment; the "
            "step follows when it lets them again",
        )


def snapshot_ids(trees: Iterable[Any]) -> tuple[str, ...]:
    """The ids of all snapshots of a VM, from its trees of them."""
    found: list[str] = []
    left = list(trees)
    while left:
        tree = left.pop()
        found.append(moid(tree.snapshot))
        left += tree.childSnapshotList or ()
    return tuple(found)
