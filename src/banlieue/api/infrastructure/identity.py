"""Which machine on the backend an object means, and what becomes of it in the end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import LIST_SET, list_map
from banlieue.api.meta import Model
from banlieue.api.types import (
    DiskName,
    InterfaceName,
    Line,
    MacAddress,
    ObjectName,
    Uid,
    Uuid,
)


class VirtualMachineRef(Model):
    """The VirtualMachine that made this machine."""

    name: ObjectName = Field(description="Name, in the same namespace.")
    uid: Uid | None = Field(default=None, description="Its uid.")


class ReservedMac(Model):
    """The MAC address set aside for one interface."""

    nic: InterfaceName = Field(description="Name of the interface.")
    address: MacAddress = Field(description="Its MAC address.")


class Reserved(Model):
    """What was set aside on the backend before the machine was made."""

    id: Line | None = Field(
        default=None, description="The backend's own number for the machine, where it needs one."
    )
    mac_addresses: Annotated[list[ReservedMac], MaxLen(16), list_map("nic")] = Field(
        default_factory=list,
        description="MAC addresses, by interface. Of an adopted machine: those it came along with.",
    )
    adopted_disks: Annotated[list[DiskName], MaxLen(64), LIST_SET] = Field(
        default_factory=list,
        description="Names given to the disks an adopted machine came along with; none of them is "
        "ever removed.",
    )


class Instance(Model):
    """The identity the machine is made with. Written once, before the first creating call."""

    uuid: Uuid = Field(description="UUID of the machine on the backend.")
    name: Line = Field(description="Name of the machine on the backend.")
    installation_id: Line = Field(
        description="Installation that owns the machine; part of its mark."
    )
    backend_identity: Line = Field(
        description="The backend it is made on (the Provider's status.backendIdentity then)."
    )
    reserved: Reserved | None = Field(
        default=None, description="What was set aside on the backend."
    )


class MoveRole(StrEnum):
    """What a machine is in a move."""

    CURRENT = "Current"
    INCOMING = "Incoming"
    PREVIOUS = "Previous"


class Move(Model):
    """Where the machine stands in a series of moves."""

    epoch: int = Field(ge=0, le=1_000_000, description="How often the owner was moved before.")
    role: MoveRole = Field(
        description="`Current`: the machine of its owner. `Incoming`: to become it. `Previous`: "
        "left behind.",
    )


class TeardownMode(StrEnum):
    """What becomes of the machine when its object is deleted."""

    DESTROY = "Destroy"
    RELEASE = "Release"


class Teardown(Model):
    """What becomes of the machine when this object is deleted."""

    mode: TeardownMode = Field(
        description="`Destroy`: the machine is destroyed. `Release`: it is left as it is."
    )
    uid: Uid = Field(
        description="uid of this object. Any other value, as after a restore, makes the intent "
        "void."
    )
