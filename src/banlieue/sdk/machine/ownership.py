"""Whether a VM found on the backend is this machine's; every pass asks that first. Pure."""

from banlieue.sdk.driver import MachineRef, MachineState
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import valid_mark


def check_ours(ref: MachineRef, seen: MachineState) -> None:
    """Refuse a VM that is not provably the machine's own.

    Ours is a VM that has the machine's UUID and a mark that names owner, epoch and that UUID. A
    copy keeps the mark but has a UUID of its own; a VM somebody else made has no mark.

    Raises:
        Foreign: somebody else's VM, or one whose mark was lost; nothing may be copied from it or
            changed on it.
    """
    if ref.uuid is None or seen.uuid.lower() != ref.uuid.lower():
        raise Foreign(
            f"a VM named {seen.name} exists that this machine did not make; rename or remove it, "
            "or delete this object with deletionPolicy Orphan and choose another name"
        )
    if not _names(ref, seen):
        raise Foreign(
            f"VM {seen.name} has this machine's UUID but not its mark; "
            "restore the mark, or release the object with deletionPolicy Orphan"
        )


def rebind_uuid(ref: MachineRef, seen: MachineState) -> str:
    """The UUID to take over for a machine that has none yet, from a VM found by its name.

    Raises:
        Foreign: the VM of that name was not made for this owner and epoch, or is a copy.
    """
    if seen.mark is None or not valid_mark(seen.mark, seen.uuid) or not _names(ref, seen):
        raise Foreign(
            f"a VM named {seen.name} exists that was not made for this object; "
            "rename or remove it, or delete this object and choose another name"
        )
    return seen.mark.uuid


def _names(ref: MachineRef, seen: MachineState) -> bool:
    mark = seen.mark
    return (
        mark is not None
        and valid_mark(mark, seen.uuid)
        and mark.owner == ref.owner
        and mark.epoch == ref.epoch
    )
