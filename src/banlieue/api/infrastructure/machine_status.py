"""What a machine is, as its provider observed it."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.devices import (
    Guest,
    MachineAddress,
    ObservedInterface,
    ObservedResources,
)
from banlieue.api.infrastructure.identity import Move
from banlieue.api.markers import list_map
from banlieue.api.meta import Conditions, Model, Time
from banlieue.api.types import (
    Count,
    FailureDomainName,
    Line,
    Message,
    Observed,
    PowerState,
    ReasonWord,
    Word,
)


class Initialization(Model):
    """What happened once and stays true."""

    provisioned: bool = Field(
        description="Whether the machine is there, with its providerID. Never goes back to false."
    )


class CreateRefused(Model):
    """The backend refused to make the machine at this place, and nothing was made."""

    failure_domain: FailureDomainName = Field(description="The place that refused.")
    reason: ReasonWord = Field(description="Why, as one word.")


class TaskStatus(Model):
    """The backend's own job that is running for the machine."""

    id: Line | None = Field(
        default=None, description="The backend's handle. Absent: the call was not answered."
    )
    operation: Word = Field(description="What the job does, such as create.")
    started_at: Time | None = Field(default=None, description="When it was started.")
    deadline: Time | None = Field(
        default=None,
        description="When its time is up, such as that of a guest that was asked to stop.",
    )


class Failures(Model):
    """Attempts that failed one after the other."""

    count: Count = Field(description="How many.")
    reason: ReasonWord | None = Field(default=None, description="Why the last one did.")


class BackendError(Model):
    """What the backend said last, in its own words."""

    code: Message = Field(description="Type or code of the error.")
    message: Message = Field(default="", description="Its text.")
    time: Time = Field(description="When it was first seen.")


class Missing(Model):
    """The machine was there and is gone from its backend, as was proved."""

    since: Time = Field(description="When that was found out.")


class SeedStatus(Model):
    """What became of the user data on the backend."""

    redacted_at: Time = Field(
        description="When a read proved that the backend holds no user data any more."
    )


class MachineStatus(Model):
    """What a machine is."""

    initialization: Initialization | None = Field(
        default=None, description="What happened once and stays true."
    )
    addresses: Annotated[list[MachineAddress], MaxLen(256)] | None = Field(
        default=None,
        description="Addresses, the most useful first. An empty list says there are none any more.",
    )
    failure_domain: FailureDomainName | None = Field(
        default=None, description="Failure domain the machine is in now."
    )
    power_state: PowerState | None = Field(default=None, description="Power state on the backend.")
    resources: ObservedResources | None = Field(
        default=None, description="What the guest really has."
    )
    interfaces: Annotated[list[ObservedInterface], MaxLen(64), list_map("name")] | None = Field(
        default=None,
        description="Network interfaces we know by name, as the backend has them. Absent: not "
        "known.",
    )
    move: Move | None = Field(
        default=None,
        description="Where the machine stands in moves by the mark on the backend. `Previous` "
        "once it was seen off.",
    )
    pending_changes: Annotated[list[Word], MaxLen(64)] = Field(
        default_factory=list, description="Fields of the spec that are not in force yet."
    )
    guest: Guest | None = Field(default=None, description="What the guest agent tells.")
    facts: Annotated[dict[str, Annotated[str, MaxLen(256)]], MaxLen(16)] = Field(
        default_factory=dict,
        description="What the machine is in its backend's own words, such as `cloneMode` on "
        "vSphere. For people only.",
    )
    host: Observed = Field(default=None, description="Host the machine runs on, for people only.")
    last_restart_time: Time | None = Field(
        default=None, description="The restartAt that was done last."
    )
    observed_generation: Count | None = Field(
        default=None, description="The metadata.generation this status was computed from."
    )
    create_refused: CreateRefused | None = Field(
        default=None,
        description="The place that refused to make the machine; it may be placed anew.",
    )
    missing: Missing | None = Field(
        default=None,
        description="Set while it is proved that the machine was there and is gone; never while "
        "its absence is only likely.",
    )
    seed: SeedStatus | None = Field(
        default=None,
        description="Set once the user data was cleared on the backend, after the first boot.",
    )
    task: TaskStatus | None = Field(
        default=None, description="The backend's job that is running for the machine."
    )
    failures: Failures | None = Field(
        default=None, description="Attempts that failed one after the other."
    )
    next_attempt: Time | None = Field(
        default=None, description="When it is tried again at the latest."
    )
    last_backend_error: BackendError | None = Field(
        default=None, description="What the backend said last, in its own words."
    )
    backend_id: Line | None = Field(
        default=None,
        description="The backend's own handle of the machine. A hint: losing it only costs the "
        "quick proof that a machine is gone.",
    )
    conditions: Conditions = Field(
        default_factory=list,
        description="Ready and what it is made of: Provisioned, PowerStateSynced, UpToDate, "
        "AddressesAvailable, Paused.",
    )
