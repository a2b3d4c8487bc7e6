"""VirtualMachine: what a user wants, never how, where, or with which credentials."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.devices import (
    Disks,
    InterfaceRequest,
)
from banlieue.api.markers import AGE, LIST_SET, Column, Definition, Rule, list_map
from banlieue.api.meta import (
    Model,
    NameRef,
    Resource,
    ResourceObject,
    Selector,
    Time,
)
from banlieue.api.names import DEFAULT_POWER_OFF_TIMEOUT_SECONDS
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.types import (
    DeletionPolicy,
    DriftAction,
    Duration,
    Hostname,
    LabelKey,
    Line,
    NamespaceName,
    ObjectName,
    PowerOffMode,
    PowerState,
    SecretKey,
    SshKey,
)
from banlieue.api.v1alpha1.virtualmachine_status import (
    MoveStatus,
    Previous,
    ReadinessGate,
    ResolvedNetwork,
    ResolvedStorage,
    Scheduled,
    ScheduledClass,
    VirtualMachineInitialization,
    VirtualMachineStatus,
)

__all__ = [
    "Adopt",
    "AntiAffinity",
    "AntiAffinityMode",
    "DriftPolicy",
    "MigrationPolicy",
    "MoveStatus",
    "NetworkData",
    "OnMissing",
    "Placement",
    "Previous",
    "ProviderRef",
    "ReadinessGate",
    "ResolvedNetwork",
    "ResolvedStorage",
    "Scheduled",
    "ScheduledClass",
    "UserData",
    "VirtualMachine",
    "VirtualMachineInitialization",
    "VirtualMachineSpec",
    "VirtualMachineStatus",
]


class ProviderRef(Model):
    """A Provider, by name."""

    name: ObjectName = Field(description="Name of the Provider.")
    namespace: NamespaceName | None = Field(
        default=None, description="Namespace of the Provider. Default: the machine's own."
    )


class AntiAffinityMode(StrEnum):
    """How strictly machines are kept apart."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class AntiAffinity(Model):
    """Keeps the machine away from others of its namespace."""

    topology_key: LabelKey = Field(
        description="What must differ: a label of failure domains, or "
        "`banlieue.io/failure-domain`, `banlieue.io/provider`, `banlieue.io/host`."
    )
    label_selector: Selector = Field(description="Labels of the VirtualMachines to keep away from.")
    mode: AntiAffinityMode = Field(
        description="`required`: rather wait than break it. `preferred`: ranks places only.",
    )


class Placement(Model):
    """Where the machine may run, in the admin's labels."""

    provider_selector: Selector | None = Field(
        default=None, description="Labels of Providers. Default: every Provider that is allowed."
    )
    failure_domain_selector: Selector | None = Field(
        default=None, description="Labels of failure domains. Default: every one."
    )
    anti_affinity: Annotated[list[AntiAffinity], MaxLen(8)] = Field(
        default_factory=list, description="Machines to keep away from."
    )


class UserData(Model):
    """What is handed to the guest at its first boot."""

    secret_ref: NameRef = Field(description="Secret in the same namespace.")
    key: SecretKey = Field(default="user-data", description="Key in the Secret's data.")


class NetworkData(Model):
    """Network configuration handed to the guest at its first boot, instead of ours."""

    secret_ref: NameRef = Field(description="Secret in the same namespace.")
    key: SecretKey = Field(default="network-data", description="Key in the Secret's data.")


class MigrationPolicy(StrEnum):
    """What an edit of providerRef does."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"
    NEVER = "never"


class DriftPolicy(Model):
    """What happens when somebody changed the machine behind our back."""

    power: DriftAction = Field(
        default=DriftAction.CORRECT,
        description="Power state: `Correct` puts it right after 30 s, `Report` only says so.",
    )
    hardware: DriftAction = Field(
        default=DriftAction.CORRECT,
        description="Processors, memory, disks and interfaces: `Correct` or `Report`. What we did "
        "not add is never removed.",
    )


class OnMissing(StrEnum):
    """What happens when the machine vanished from the backend."""

    REPORT = "Report"
    RECREATE = "Recreate"


class Adopt(Model):
    """Takes over a machine that exists on the backend."""

    id: Line = Field(description="The backend's stable id of the machine, such as its UUID.")
    accepted: bool = Field(
        default=False,
        description="False: differences are reported and nothing is changed. True: the machine "
        "is managed from now on; there is no way back.",
    )


class VirtualMachineSpec(Model):
    """What the user wants."""

    class_ref: NameRef | None = Field(
        default=None,
        description="VMClass. A change resizes the machine. Required without `adopt`.",
    )
    image_ref: NameRef | None = Field(
        default=None,
        description="VMImage the machine is made from. Immutable. Required without `adopt`.",
    )
    provider_ref: ProviderRef | None = Field(
        default=None,
        description="Pins the machine to one Provider. A change asks for a move, see "
        "migrationPolicy; removing it never moves. Default: the scheduler chooses.",
    )
    placement: Placement = Field(
        default_factory=Placement, description="Where the machine may run."
    )
    hostname: Hostname | None = Field(
        default=None,
        description="Host name in the guest. Used at the first boot; a later change has no effect. "
        "Default: the object's name.",
    )
    desired_power_state: PowerState | None = Field(
        default=None,
        description="`PoweredOn`, `PoweredOff` or `Suspended`; may change at any time. Default: "
        "`PoweredOn`; an adopted machine is left as it is.",
    )
    power_off_mode: PowerOffMode = Field(
        default=PowerOffMode.TRY_SOFT,
        description="How the guest is stopped: `Soft` asks it and waits, `TrySoft` asks and pulls "
        "the plug after the timeout, `Hard` pulls the plug.",
    )
    power_off_timeout_seconds: int = Field(
        default=DEFAULT_POWER_OFF_TIMEOUT_SECONDS,
        ge=5,
        le=86400,
        description="How long the guest may take to shut down, in seconds.",
    )
    restart_at: Time | None = Field(
        default=None,
        description="Restarts the machine once at this moment. A moment before the machine was "
        "first seen or last booted is recorded as done.",
    )
    disks: Disks = Field(
        default_factory=list, description="Disks beside or instead of the class's, by name."
    )
    network_interfaces: Annotated[list[InterfaceRequest], MaxLen(16), list_map("name")] = Field(
        default_factory=list,
        description="Network interfaces beside or instead of the class's, by name.",
    )
    user_data: UserData | None = Field(
        default=None,
        description="Cloud-init or ignition data for the first boot; a later change has no effect.",
    )
    network_data: NetworkData | None = Field(
        default=None,
        description="Network configuration for the first boot; a later change has no effect. "
        "Default: made from networkInterfaces.",
    )
    ssh_authorized_keys: Annotated[list[SshKey], MaxLen(32)] = Field(
        default_factory=list,
        description="Public keys that may log in as the image's default user, beside those of "
        "userData. Given to the guest when it is made; a later change has no effect.",
    )
    readiness_gates: Annotated[list[ReadinessGate], MaxLen(4), LIST_SET] | None = Field(
        default=None,
        description="Conditions that Ready waits for. Default: `AddressesAvailable` when the "
        "image's agent is present or installed, else none.",
    )
    migration_policy: MigrationPolicy = Field(
        default=MigrationPolicy.AUTOMATIC,
        description="What an edit of providerRef does: `automatic` moves at once, `manual` after "
        "annotation `banlieue.io/migrate=true`, `never` refuses.",
    )
    retain_period: Duration | None = Field(
        default=None,
        description="How long the machine a move left behind is kept, powered off, such as "
        "`168h`. Default: until it is released by hand.",
    )
    ephemeral: bool = Field(
        default=False,
        description="The machine holds nothing of value: it may be rebuilt elsewhere unasked.",
    )
    drift_policy: DriftPolicy = Field(
        default_factory=DriftPolicy,
        description="What happens when somebody changed the machine behind our back.",
    )
    on_missing: OnMissing = Field(
        default=OnMissing.REPORT,
        description="What happens when the machine vanished from its backend, once that is "
        "proved: `Report` waits for a decision, `Recreate` makes a new one from the image, unless "
        "a disk of it is to be retained.",
    )
    deletion_policy: DeletionPolicy | None = Field(
        default=None,
        description="What becomes of the machine when this object is deleted: `Delete` destroys "
        "it, `Orphan` leaves it. May change until then. Default: `Delete`, and `Orphan` for an "
        "adopted machine.",
    )
    deletion_protection: bool = Field(
        default=False, description="Refuse to delete this object until set to false."
    )
    adopt: Adopt | None = Field(
        default=None,
        description="Takes over a machine that exists on the backend. Only at creation.",
    )
    paused: bool = Field(
        default=False, description="Hands off: nothing is changed, not even on deletion."
    )

    @property
    def wanted_power_state(self) -> PowerState | None:
        """Power state wanted, given or by default; None leaves an adopted machine as it is."""
        return self.desired_power_state or (None if self.adopt else PowerState.POWERED_ON)

    @property
    def wanted_deletion_policy(self) -> DeletionPolicy:
        """What becomes of the machine, given or by default: an adopted one is left alone."""
        return self.deletion_policy or (
            DeletionPolicy.ORPHAN if self.adopt else DeletionPolicy.DELETE
        )


class VirtualMachine(ResourceObject):
    """A virtual machine, on whichever backend fits."""

    resource: ClassVar[Resource] = VIRTUAL_MACHINES
    definition: ClassVar[Definition] = Definition(
        short_names=("vm", "bvm"),
        columns=(
            Column("Class", ".spec.classRef.name"),
            Column("Image", ".spec.imageRef.name"),
            Column("Provider", ".status.scheduled.providerName"),
            Column("Power", ".status.observedPowerState"),
            Column("IP", '.status.addresses[?(@.type=="InternalIP")].address'),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
            AGE,
            Column("FailureDomain", ".status.observedFailureDomain", wide=True),
            Column("ProviderID", ".status.providerID", wide=True),
            Column("Host", ".status.host", wide=True),
        ),
    )
    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.spec.adopt) || has(self.spec.classRef)",
            "spec.classRef is required without spec.adopt: name a VMClass",
            ".spec.classRef",
        ),
        Rule(
            "has(self.spec.adopt) || has(self.spec.imageRef)",
            "spec.imageRef is required without spec.adopt: name a VMImage",
            ".spec.imageRef",
        ),
        Rule(
            "!has(oldSelf.spec.imageRef) || "
            "(has(self.spec.imageRef) && self.spec.imageRef == oldSelf.spec.imageRef)",
            "spec.imageRef is immutable: make a new VirtualMachine from the other image",
            ".spec.imageRef",
        ),
        Rule(
            "has(self.spec.adopt) == has(oldSelf.spec.adopt)",
            "spec.adopt can be given at creation only and never be removed: make a new "
            "VirtualMachine",
            ".spec.adopt",
        ),
        Rule(
            "!has(self.spec.adopt) || !has(oldSelf.spec.adopt) || "
            "self.spec.adopt.id == oldSelf.spec.adopt.id",
            "spec.adopt.id is immutable: make a new VirtualMachine to adopt another machine",
            ".spec.adopt.id",
        ),
        Rule(
            "!has(self.spec.adopt) || !has(oldSelf.spec.adopt) || "
            "!oldSelf.spec.adopt.accepted || self.spec.adopt.accepted",
            "spec.adopt.accepted cannot go back to false: set spec.paused to have hands off",
            ".spec.adopt.accepted",
        ),
        Rule(
            "size(self.metadata.name) <= 63",
            "metadata.name must have at most 63 characters, because it becomes the host name: "
            "choose a shorter one",
        ),
    )

    spec: VirtualMachineSpec = Field(description="What the user wants.")
    status: VirtualMachineStatus = Field(
        default_factory=VirtualMachineStatus, description="What is."
    )
