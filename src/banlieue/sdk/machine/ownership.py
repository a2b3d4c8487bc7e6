"""Whether a VM found on the backend is this machine's; every pass asks that first. Pure."""

from banlieue.api.infrastructure.machine import Move, MoveRole
from banlieue.api.reasons import Reason
from banlieue.sdk.driver import MachineRef, MachineState
from banlieue.sdk.errors import Foreign, NeedsOperator
from banlieue.sdk.identity import Mark, may_replace, valid_mark


def check_ours(ref: MachineRef, seen: MachineState) -> None:
    """Refuse a VM that is not provably the machine's own.

    Ours is a VM that has the machine's UUID and a mark that names owner and that UUID, and that
    the machine's own mark may follow in a move. A copy keeps the mark but has a UUID of its own; a
    VM somebody else made has no mark.

    Raises:
        Foreign: somebody else's VM, or one whose mark was lost; nothing may be copied from it or
            changed on it.
        NeedsOperator: the VM went through a later move than this object knows of, as after a
            restore; nothing may be changed on it before the object was brought up to date.
    """
    if ref.uuid is None or seen.uuid.lower() != ref.uuid.lower():
        raise Foreign(
            f"a VM named {seen.name} exists that this machine did not make; rename or remove it, "
            "or delete this object with deletionPolicy Orphan and choose another name"
        )
    mark = own_mark(ref, seen)
    if mark is None:
        raise Foreign(
            f"VM {seen.name} has this machine's UUID but not its mark; "
            "restore the mark, or release the object with deletionPolicy Orphan"
        )
    if may_replace(mark, wanted_mark(ref)):
        return
    if overtakes(mark, ref):
        raise NeedsOperator(
            Reason.REBIND_PENDING,
            f"VM {seen.name} is of a later move ({mark.epoch}) than this object ({ref.epoch}); "
            "it is left alone until the object was brought up to date",
        )
    raise Foreign(
        f"VM {seen.name} says that it stands elsewhere in a move (epoch {mark.epoch}"
        f"{', incoming' if mark.incoming else ''}) than this object; it is left alone"
    )


def own_mark(ref: MachineRef, seen: MachineState) -> Mark | None:
    """The mark of a VM, if it says that it is the machine's, wherever in a move it stands."""
    mark = seen.mark
    if mark is None or ref.uuid is None or seen.uuid.lower() != ref.uuid.lower():
        return None
    return mark if valid_mark(mark, seen.uuid) and mark.owner == ref.owner else None


def wanted_mark(ref: MachineRef) -> Mark:
    """The mark a machine's VM is to have.

    Raises:
        LookupError: the machine has no identity yet.
    """
    if ref.uuid is None:
        raise LookupError("a mark needs a minted identity")
    return Mark(ref.owner, ref.uuid, ref.epoch, incoming=ref.incoming)


def overtakes(mark: Mark, ref: MachineRef) -> bool:
    """Whether a VM of the same owner went through a later move, and to its end."""
    return mark.owner == ref.owner and mark.epoch > ref.epoch and not mark.incoming


def told_move(ref: MachineRef, seen: MachineState) -> Move | None:
    """Where a VM stands by its own mark; None when it is not provably the machine's."""
    mark = own_mark(ref, seen)
    if mark is None:
        return None
    return Move(epoch=mark.epoch, role=MoveRole.INCOMING if mark.incoming else MoveRole.CURRENT)


def rebind_uuid(ref: MachineRef, seen: MachineState) -> str:
    """The UUID to take over for a machine that has none yet, from a VM found by its name.

    Raises:
        Foreign: the VM of that name was not made for this owner and epoch, or is a copy.
    """
    mark = seen.mark
    if (
        mark is None
        or not valid_mark(mark, seen.uuid)
        or (mark.owner, mark.epoch) != (ref.owner, ref.epoch)
    ):
        raise Foreign(
            f"a VM named {seen.name} exists that was not made for this object; "
            "rename or remove it, or delete this object and choose another name"
        )
    return mark.uuid
