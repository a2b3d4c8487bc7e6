"""What every driver says of kept disks that cannot be attached, in the same words."""

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.identity import Owner


def disk_not_found(name: str, kept: str, owner: Owner) -> NeedsOperator:
    """No such disk is kept for the owner's namespace; whether another one has it is not told."""
    return NeedsOperator(
        Reason.DISK_NOT_FOUND,
        f"disk {name}: no disk {kept!r} is kept here for namespace {owner.namespace}; correct "
        "`existing`, or choose the Provider that keeps it",
    )


def disk_not_reachable(name: str, kept: str) -> NeedsOperator:
    """The disk is kept in storage that the machine's failure domain does not see."""
    return NeedsOperator(
        Reason.DISK_NOT_FOUND,
        f"disk {name}: {kept!r} cannot be reached from this failure domain; choose another one",
    )


def disk_in_use(name: str, kept: str, holder: str) -> NeedsOperator:
    """Somebody else has the disk, or was promised it first."""
    return NeedsOperator(
        Reason.DISK_IN_USE,
        f"disk {name}: {holder} has {kept!r}, or comes first; take it off there, or use another "
        "disk",
    )
