"""How VMs that exist already are looked at and taken over in a simulated world."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from banlieue.sdk.driver import MachineRef
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import Mark, valid_mark
from banlieue.sdk.naming import disk_names, interface_names
from banlieue.sdk.powers import Candidate
from banlieue.sdk.simulated.session import Session
from banlieue.sdk.simulated.states import machine_state

Json = dict[str, Any]


def find(session: Session, uuid: str) -> Candidate | None:
    """The VM of that UUID.

    Raises:
        Foreign: there are several.
    """
    hits = session.call("find", uuid=uuid.lower())
    if len(hits) > 1:
        raise Foreign(f"{len(hits)} VMs have the id {uuid}; none is touched, remove the wrong ones")
    return _candidate(hits[0]) if hits else None


def candidates(session: Session) -> Sequence[Candidate]:
    """Every visible VM."""
    return [_candidate(vm) for vm in session.call("find")]


def take_over(session: Session, vm: Json, ref: MachineRef, mark: Mark) -> Json | None:
    """Start marking the VM, unless it is marked so already; gives the job.

    Raises:
        Foreign: it is marked as somebody else's.
    """
    present = Mark.decode(vm["mark"])
    if present is not None and valid_mark(present, vm["uuid"]):
        if (present.owner, present.epoch) != (ref.owner, ref.epoch):
            raise Foreign(f"VM {vm['name']} belongs to somebody else by its mark; it is left alone")
        if present == mark:
            return None
    disks = disk_names([disk["name"] for disk in vm["disks"]])
    nics = interface_names([nic["name"] for nic in vm["nics"]])
    wanted = {
        "mark": mark.encode(),
        "expected": vm["mark"],
        "disks": {disk["id"]: name for disk, name in zip(vm["disks"], disks, strict=True)},
        "nics": {nic["mac"]: name for nic, name in zip(vm["nics"], nics, strict=True)},
    }
    started: Json = session.call("take_over", vm=vm["id"], wanted=wanted)
    return started


def _candidate(vm: Json) -> Candidate:
    state = machine_state(vm)
    disks = disk_names([disk.name for disk in state.disks])
    nics = state.nics or ()
    cards = interface_names([nic.name for nic in nics])
    named = replace(
        state,
        disks=tuple(
            replace(disk, name=name) for disk, name in zip(state.disks, disks, strict=True)
        ),
        nics=tuple(replace(nic, name=name) for nic, name in zip(nics, cards, strict=True)),
    )
    return Candidate(id=state.uuid, state=named, hardware_uuid=state.uuid, firmware=vm["firmware"])
