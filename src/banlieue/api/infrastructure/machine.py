"""The common machine: the part of every backend's machine kind the controller reads and writes.

A backend's kind extends ``MachineSpec`` (and ``MachineTemplateSpec`` for its template) with its own
fields; ``Machine`` reads any of them. No field has a default in the schema, because server-side
apply and Cluster API would see defaults as changes: absent means what the description says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api import names
from banlieue.api.devices import (
    Disks,
    NetworkInterface,
    RemovedDisks,
)
from banlieue.api.infrastructure.cluster import PROVISIONED_STAYS
from banlieue.api.infrastructure.identity import (
    Instance,
    Move,
    MoveRole,
    Reserved,
    ReservedMac,
    Teardown,
    TeardownMode,
    VirtualMachineRef,
)
from banlieue.api.infrastructure.machine_status import (
    BackendError,
    CreateRefused,
    Failures,
    Initialization,
    MachineStatus,
    Missing,
    TaskStatus,
)
from banlieue.api.markers import LIST_SET, Rule, list_map
from banlieue.api.meta import Model, NameRef, NamespacedRef, ResourceObject, Time
from banlieue.api.types import (
    Cpus,
    DriftAction,
    FailureDomainName,
    Feature,
    Firmware,
    Hash,
    Hostname,
    LabelValue,
    Line,
    MemoryMiB,
    ObjectName,
    PowerOffMode,
    PowerState,
    ProviderID,
    SecretKey,
    SshKey,
    Uid,
    Word,
)
from banlieue.api.v1alpha1.vmclass import ClassNetwork, Hardware

__all__ = [
    "MACHINE_RULES",
    "BackendError",
    "ClassSnapshot",
    "CreateRefused",
    "DataFormat",
    "Failures",
    "Initialization",
    "Instance",
    "Machine",
    "MachineAdopt",
    "MachineDriftPolicy",
    "MachineNetworkData",
    "MachinePlacement",
    "MachineSpec",
    "MachineStatus",
    "MachineTemplateSpec",
    "MachineUserData",
    "Missing",
    "Move",
    "MoveRole",
    "Reserved",
    "ReservedMac",
    "TaskStatus",
    "Teardown",
    "TeardownMode",
    "VirtualMachineRef",
]


class MachinePlacement(Model):
    """Where the machine is to be made."""

    failure_domain: FailureDomainName = Field(
        description="Failure domain of the Provider, by its name."
    )


class ClassSnapshot(Model):
    """The VMClass as it was when the machine was made or last resized."""

    name: ObjectName = Field(description="Name of the VMClass.")
    uid: Uid | None = Field(default=None, description="Its uid.")
    hash: Hash = Field(description="Digest of its spec.")
    hardware: Hardware = Field(description="Processors, memory and disks.")
    network: ClassNetwork = Field(default_factory=ClassNetwork, description="Network interfaces.")
    firmware: Firmware | None = Field(default=None, description="What boots the guest.")
    features: Annotated[list[Feature], MaxLen(16), LIST_SET] = Field(
        default_factory=list, description="Further properties."
    )


class DataFormat(StrEnum):
    """What reads the user data in the guest."""

    CLOUD_CONFIG = "cloud-config"
    IGNITION = "ignition"


class MachineUserData(Model):
    """What is handed to the guest at its first boot."""

    secret_ref: NameRef = Field(description="Secret in the same namespace.")
    key: SecretKey | None = Field(
        default=None, description="Key in the Secret's data. Default: `value`."
    )
    format: DataFormat | None = Field(
        default=None,
        description="`cloud-config` or `ignition`. Default: the Secret's key `format`, else "
        "`cloud-config`.",
    )


class MachineNetworkData(Model):
    """Network configuration handed to the guest at its first boot, instead of ours."""

    secret_ref: NameRef = Field(description="Secret in the same namespace.")
    key: SecretKey | None = Field(
        default=None, description="Key in the Secret's data. Default: `network-data`."
    )


class MachineDriftPolicy(Model):
    """What happens when somebody changed the machine behind our back."""

    power: DriftAction | None = Field(
        default=None, description="Power state: `Correct` or `Report`. Default: `Correct`."
    )
    hardware: DriftAction | None = Field(
        default=None,
        description="Processors, memory, disks and interfaces: `Correct` or `Report`. Default: "
        "`Correct`.",
    )


class MachineAdopt(Model):
    """Takes over a machine that exists on the backend."""

    id: Line = Field(description="The backend's stable id of the machine, such as its UUID.")
    accepted: bool | None = Field(
        default=None,
        description="Whether the machine may be changed. Default: false, differences are only "
        "reported.",
    )


class MachineTemplateSpec(Model):
    """What a machine and a machine template have in common."""

    image_ref: NameRef | None = Field(
        default=None,
        description="VMImage the machine is made from, unless the backend's own field names one.",
    )
    hostname: Hostname | None = Field(
        default=None, description="Host name in the guest. Default: the name of the owner."
    )
    cpus: Cpus | None = Field(
        default=None, description="Virtual processors. Default: the class's; required without one."
    )
    memory_mib: MemoryMiB | None = Field(
        default=None, description="Memory in MiB. Default: the class's; required without one."
    )
    firmware: Firmware | None = Field(
        default=None, description="What boots the guest. Default: the class's, else the image's."
    )
    features: Annotated[list[Feature], MaxLen(16), LIST_SET] = Field(
        default_factory=list, description="Further properties, beside the class's."
    )
    disks: Disks = Field(
        default_factory=list, description="Disks beside or instead of the class's, by name."
    )
    network_interfaces: Annotated[list[NetworkInterface], MaxLen(16), list_map("name")] = Field(
        default_factory=list,
        description="Network interfaces beside or instead of the class's, by name.",
    )
    anti_affinity_group: Word | None = Field(
        default=None,
        description="Machines of the same group are kept on different hosts where the backend can.",
    )
    tags: Annotated[dict[str, LabelValue], MaxLen(32)] = Field(
        default_factory=dict,
        description="Tags on the backend, made from the owner's labels by the Provider's "
        "tagMapping.",
    )
    power_off_mode: PowerOffMode | None = Field(
        default=None, description="How the guest is stopped. Default: `TrySoft`."
    )
    power_off_timeout_seconds: int | None = Field(
        default=None,
        ge=5,
        le=86400,
        description="How long the guest may take to shut down, in seconds. Default: 300.",
    )
    drift_policy: MachineDriftPolicy | None = Field(
        default=None,
        description="What happens when somebody changed the machine behind our back. Default: it "
        "is corrected.",
    )
    ssh_authorized_keys: Annotated[list[SshKey], MaxLen(32)] = Field(
        default_factory=list,
        description="Public keys that may log in as the image's default user, beside those of "
        "userData.",
    )
    paused: bool | None = Field(
        default=None,
        description="Hands off: nothing is changed, not even on deletion. Default: false.",
    )
    deletion_protection: bool | None = Field(
        default=None, description="Refuse to destroy the machine. Default: false."
    )

    @property
    def own_image(self) -> str | None:
        """What the backend's own field names to make the machine from; it beats `imageRef`."""
        return None


class MachineSpec(MachineTemplateSpec):
    """What a machine should be."""

    provider_ref: NamespacedRef | None = Field(
        default=None,
        description="Provider that makes the machine. From the scheduler, or from the failure "
        "domain of a Machine; never changes.",
    )
    placement: MachinePlacement | None = Field(
        default=None,
        description="Where the machine is made. Fixed once `instance` exists, unless "
        "status.createRefused names this failure domain.",
    )
    virtual_machine_ref: VirtualMachineRef | None = Field(
        default=None,
        description="The VirtualMachine that made this machine. Absent for Cluster API machines.",
    )
    instance: Instance | None = Field(
        default=None,
        description="Identity on the backend. Written once by the provider, before the first "
        "creating call.",
    )
    provider_id: ProviderID | None = Field(
        default=None,
        description="Stable id of the machine, equal to its Node's spec.providerID. Written once "
        "by the provider, when the machine was seen on the backend.",
    )
    move: Move | None = Field(
        default=None, description="Where the machine stands in moves. Default: epoch 0, Current."
    )
    teardown: Teardown | None = Field(
        default=None,
        description="What becomes of the machine when this object is deleted. Absent or void: "
        "the deletion is held.",
    )
    class_: ClassSnapshot | None = Field(
        default=None, description="The VMClass as it was when the machine was made or resized."
    )
    power_state: PowerState | None = Field(
        default=None, description="Power state wanted. Default: `PoweredOn`."
    )
    restart_at: Time | None = Field(
        default=None, description="Restarts the machine once at this moment."
    )
    removed_disks: RemovedDisks = Field(
        default_factory=list,
        description="Disks that were listed in `disks` once and are to go from the machine.",
    )
    adopt: MachineAdopt | None = Field(
        default=None,
        description="Takes over a machine that exists on the backend. Only at creation.",
    )
    user_data: MachineUserData | None = Field(default=None, description="Data for the first boot.")
    network_data: MachineNetworkData | None = Field(
        default=None,
        description="Network configuration for the first boot. Default: made from "
        "networkInterfaces.",
    )

    @property
    def epoch(self) -> int:
        """How often the owner was moved before; 0 when never."""
        return self.move.epoch if self.move else 0

    @property
    def role(self) -> MoveRole:
        """What the machine is in a move; Current when there is none."""
        return self.move.role if self.move else MoveRole.CURRENT

    @property
    def wanted_power_state(self) -> PowerState:
        """Power state wanted, given or by default."""
        return self.power_state or PowerState.POWERED_ON

    @property
    def wanted_power_off_mode(self) -> PowerOffMode:
        """How the guest is stopped, given or by default."""
        return self.power_off_mode or PowerOffMode.TRY_SOFT

    @property
    def wanted_power_off_timeout_seconds(self) -> int:
        """How long the guest may take to shut down in seconds, given or by default."""
        return self.power_off_timeout_seconds or names.DEFAULT_POWER_OFF_TIMEOUT_SECONDS


def _set_once(path: str, remedy: str) -> Rule:
    return Rule(
        f"!has(oldSelf.spec.{path}) || "
        f"(has(self.spec.{path}) && self.spec.{path} == oldSelf.spec.{path})",
        f"spec.{path} never changes once it is set: {remedy}",
        f".spec.{path}",
    )


MACHINE_RULES = (
    _set_once("providerRef", "move the VirtualMachine or replace the Machine"),
    _set_once("instance", "it is the identity on the backend, leave it as it is"),
    _set_once("providerID", "the Node is known by it, leave it as it is"),
    Rule(
        "!has(oldSelf.spec.instance) || !has(oldSelf.spec.placement) || "
        "(has(self.spec.placement) && self.spec.placement == oldSelf.spec.placement) || "
        "(has(self.spec.placement) && !has(oldSelf.spec.providerID) && has(oldSelf.status) && "
        "has(oldSelf.status.createRefused) && "
        "oldSelf.status.createRefused.failureDomain == oldSelf.spec.placement.failureDomain)",
        "spec.placement is fixed once spec.instance exists, unless status.createRefused names its "
        "failure domain: move the VirtualMachine or replace the Machine",
        ".spec.placement",
    ),
    Rule(
        "!has(oldSelf.spec.virtualMachineRef) || (has(self.spec.virtualMachineRef) && "
        "self.spec.virtualMachineRef.name == oldSelf.spec.virtualMachineRef.name)",
        "spec.virtualMachineRef never names another VirtualMachine: make a machine of its own",
        ".spec.virtualMachineRef",
    ),
    Rule(
        "has(self.spec.adopt) == has(oldSelf.spec.adopt)",
        "spec.adopt can be given at creation only and never be removed: make a new machine",
        ".spec.adopt",
    ),
    Rule(
        "!has(self.spec.adopt) || !has(oldSelf.spec.adopt) || "
        "self.spec.adopt.id == oldSelf.spec.adopt.id",
        "spec.adopt.id is immutable: make a new machine to adopt another one",
        ".spec.adopt.id",
    ),
    Rule(
        "!has(self.spec.adopt) || !has(oldSelf.spec.adopt) || "
        "!has(oldSelf.spec.adopt.accepted) || !oldSelf.spec.adopt.accepted || "
        "(has(self.spec.adopt.accepted) && self.spec.adopt.accepted)",
        "spec.adopt.accepted cannot go back to false: set spec.paused to have hands off",
        ".spec.adopt.accepted",
    ),
    PROVISIONED_STAYS,
)
"""What holds for the machine kind of every backend, whoever writes."""


class Machine(ResourceObject):
    """A machine of any backend, as far as all backends agree."""

    cel: ClassVar[tuple[Rule, ...]] = MACHINE_RULES

    spec: MachineSpec = Field(
        default_factory=MachineSpec, description="What the machine should be."
    )
    status: MachineStatus = Field(default_factory=MachineStatus, description="What it is.")
