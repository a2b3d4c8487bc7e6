"""How marks are read and rewritten in a simulated world."""

from collections.abc import Sequence
from typing import Any

from banlieue.sdk.driver import MachineRef, MachineState
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import Mark, Owner, may_replace, valid_mark
from banlieue.sdk.simulated.session import Session
from banlieue.sdk.simulated.states import machine_state

Json = dict[str, Any]


def made_for(session: Session, owner: Owner) -> Sequence[MachineState]:
    """Every visible VM with a valid mark of that owner."""
    found = map(machine_state, session.call("find", marked=str(owner)))
    return [
        state
        for state in found
        if state.mark and valid_mark(state.mark, state.uuid) and state.mark.owner == owner
    ]


def check_owner(vm: Json, ref: MachineRef) -> None:
    """Raise `Foreign` unless the VM carries a valid mark of the machine's owner."""
    mark = Mark.decode(vm["mark"])
    if mark is None or not valid_mark(mark, vm["uuid"]) or mark.owner != ref.owner:
        raise Foreign(f"the mark of VM {vm['name']} is not this machine's; it is left alone")


def rewrite(session: Session, vm: Json, mark: Mark) -> Json | None:
    """Start writing a mark in place of the one that was read; None when it stands there already.

    Raises:
        Foreign: the VM has no mark that this one may follow.
    """
    present = Mark.decode(vm["mark"])
    if present == mark:
        return None
    if not valid_mark(present, vm["uuid"]) or not may_replace(present, mark):
        raise Foreign(
            f"the mark of VM {vm['name']} is not one that this machine may change; it is left alone"
        )
    wanted = {"mark": mark.encode(), "expected": vm["mark"]}
    started: Json = session.call("take_over", vm=vm["id"], wanted=wanted)
    return started
