"""What a VirtualMachine is, as its user sees it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.conditions import Phase
from banlieue.api.devices import (
    Guest,
    MachineAddress,
    ObservedInterface,
    ObservedResources,
)
from banlieue.api.markers import list_map
from banlieue.api.meta import (
    Conditions,
    KindRef,
    Model,
    Time,
)
from banlieue.api.types import (
    ClassName,
    Count,
    DeletionPolicy,
    DiskName,
    FailureDomainName,
    Hash,
    Hostname,
    InterfaceName,
    Message,
    NamespaceName,
    ObjectName,
    Observed,
    PowerState,
    ProviderID,
    Uid,
    Word,
)


class ReadinessGate(StrEnum):
    """What Ready waits for beyond a running machine."""

    ADDRESSES_AVAILABLE = "AddressesAvailable"
    GUEST_BOOTSTRAPPED = "GuestBootstrapped"


class ScheduledClass(Model):
    """The class the machine was placed with."""

    name: ObjectName = Field(description="Name of the VMClass.")
    uid: Uid | None = Field(default=None, description="Its uid.")
    hash: Hash | None = Field(default=None, description="Digest of its spec.")


class ResolvedStorage(Model):
    """The storage class one disk was placed with."""

    disk: DiskName = Field(description="Name of the disk.")
    storage_class: ClassName = Field(description="The storage class.")


class ResolvedNetwork(Model):
    """The network class one interface was placed with."""

    interface: InterfaceName = Field(description="Name of the interface.")
    network_class: ClassName = Field(description="The network class.")


class Scheduled(Model):
    """Where the machine was placed. Sticky: only a move changes it."""

    provider_name: ObjectName = Field(description="Name of the Provider.")
    provider_namespace: NamespaceName = Field(description="Namespace of the Provider.")
    provider_class: ObjectName | None = Field(default=None, description="Its ProviderClass.")
    failure_domain: FailureDomainName | None = Field(
        default=None, description="Failure domain of that Provider."
    )
    class_: ScheduledClass | None = Field(default=None, description="Class used.")
    resolved_storage: Annotated[list[ResolvedStorage], MaxLen(64), list_map("disk")] = Field(
        default_factory=list, description="Storage classes used."
    )
    resolved_networks: Annotated[list[ResolvedNetwork], MaxLen(32), list_map("interface")] = Field(
        default_factory=list, description="Network classes used."
    )
    scheduled_at: Time | None = Field(default=None, description="When it was placed.")


class Previous(Model):
    """What a move left behind."""

    infrastructure_ref: KindRef = Field(description="The old machine object.")
    since: Time | None = Field(default=None, description="When it was left behind.")
    until: Time | None = Field(
        default=None, description="When it is destroyed. Absent: when it is released by hand."
    )
    fixed_addresses: bool | None = Field(
        default=None,
        description="True: its guest may have the fixed addresses that the machine has, whatever "
        "the spec says by now, so the two never run together.",
    )


class MoveStatus(Model):
    """The move that goes on, or the last one that failed."""

    provider_name: ObjectName = Field(description="Name of the Provider it goes to.")
    provider_namespace: NamespaceName = Field(description="Namespace of that Provider.")
    failure_domain: FailureDomainName | None = Field(
        default=None, description="Failure domain of that Provider."
    )
    epoch: int = Field(
        ge=0, le=1_000_000, description="Which move it is, counted over the machine's life."
    )
    started_at: Time | None = Field(default=None, description="When it began.")
    switched_at: Time | None = Field(
        default=None,
        description="When the old machine was told to stop for the new one to take over its fixed "
        "addresses. If the new one does not become Ready then, the move is undone.",
    )
    fixed_addresses: bool | None = Field(
        default=None,
        description="True: both guests may have the same fixed addresses, whatever the spec says "
        "by now.",
    )
    rebind: bool | None = Field(
        default=None,
        description="True: the machine itself was found on the other Provider, and is taken up "
        "there as it is.",
    )
    given_up: bool | None = Field(
        default=None,
        description="True: it is being undone, as it was not asked for any more; it begins anew "
        "if it is asked for again.",
    )
    failure: Message | None = Field(
        default=None,
        description="Why it failed and was undone. It is tried again when spec.providerRef is set "
        "back and changed anew, or with annotation `banlieue.io/migrate=true`.",
    )


class VirtualMachineInitialization(Model):
    """What happened once and stays true."""

    provisioned: bool = Field(description="Whether the machine was seen on the backend.")


class VirtualMachineStatus(Model):
    """What is."""

    phase: Phase | None = Field(
        default=None, description="One word for people, derived from the rest; nothing reads it."
    )
    deletion_policy: DeletionPolicy | None = Field(
        default=None, description="The policy in force, given or computed."
    )
    readiness_gates: Annotated[list[ReadinessGate], MaxLen(4)] | None = Field(
        default=None, description="The gates in force, given or computed."
    )
    hostname: Hostname | None = Field(
        default=None, description="The host name in force, given or computed."
    )
    scheduled: Scheduled | None = Field(default=None, description="Where it was placed.")
    infrastructure_ref: KindRef | None = Field(
        default=None, description="The machine object that makes it true."
    )
    incoming_ref: KindRef | None = Field(
        default=None, description="During a move: the machine object to come."
    )
    previous: Previous | None = Field(default=None, description="What a move left behind.")
    move: MoveStatus | None = Field(
        default=None, description="The move that goes on, or the last one that failed."
    )
    initialization: VirtualMachineInitialization | None = Field(
        default=None, description="What happened once and stays true."
    )
    provider_id: ProviderID | None = Field(
        default=None, description="Stable id of the machine, equal to its Node's spec.providerID."
    )
    observed_power_state: PowerState | None = Field(
        default=None, description="Power state on the backend."
    )
    observed_failure_domain: FailureDomainName | None = Field(
        default=None, description="Failure domain the machine is in now."
    )
    resources: ObservedResources | None = Field(
        default=None, description="What the guest really has."
    )
    interfaces: Annotated[list[ObservedInterface], MaxLen(64), list_map("name")] | None = Field(
        default=None, description="Network interfaces of an adopted machine, by the name they got."
    )
    pending_changes: Annotated[list[Word], MaxLen(64)] = Field(
        default_factory=list, description="Fields of the spec that are not in force yet."
    )
    addresses: Annotated[list[MachineAddress], MaxLen(256)] = Field(
        default_factory=list, description="Addresses, the most useful first."
    )
    guest: Guest | None = Field(default=None, description="What the guest agent tells.")
    host: Observed = Field(default=None, description="Host the machine runs on, for people only.")
    last_restart_time: Time | None = Field(
        default=None, description="The restartAt that was done last."
    )
    observed_generation: Count | None = Field(
        default=None, description="The metadata.generation this status was computed from."
    )
    followed_generation: Count | None = Field(
        default=None, description="The metadata.generation the machine object follows."
    )
    conditions: Conditions = Field(
        default_factory=list,
        description="Ready and what it is made of: Scheduled, PlacementValid, ImageReady, "
        "InfrastructureReady, Provisioned, PowerStateSynced, UpToDate, AddressesAvailable; "
        "Reconciling and Stalled while true.",
    )
