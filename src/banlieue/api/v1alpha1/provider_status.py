"""What a provider verified and observed about its endpoint."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import LIST_SET, list_map
from banlieue.api.meta import (
    Conditions,
    Model,
    Time,
)
from banlieue.api.types import (
    ClassName,
    Count,
    FailureDomainName,
    Feature,
    Figure,
    Hash,
    LabelMap,
    Line,
    Message,
    NamespaceName,
    ObjectName,
    Observed,
    Word,
)

_URL_WITH_LOGIN = r"'^[^/]*//[^/@]*:[^/@]*@'"


class CapacityFigure(Model):
    """One resource of a failure domain."""

    total: Count | None = Field(default=None, description="What there is.")
    free: Figure | None = Field(
        default=None, description="What new machines can get; negative when overcommitted."
    )


class StorageCapacity(Model):
    """Space behind one storage class."""

    storage_class: ClassName = Field(description="The storage class.")
    total_gib: Count | None = Field(default=None, description="What there is, in GiB.")
    free_gib: Figure | None = Field(
        default=None, description="What is free, in GiB; negative when overcommitted."
    )


class Capacity(Model):
    """What a failure domain has and has left, rounded so that small changes stay quiet."""

    observed_at: Time | None = Field(default=None, description="When it was read.")
    cpus: CapacityFigure | None = Field(default=None, description="Processors.")
    memory_mib: CapacityFigure | None = Field(default=None, description="Memory in MiB.")
    storage: Annotated[list[StorageCapacity], MaxLen(64)] = Field(
        default_factory=list, description="Space by storage class."
    )
    included_machines: Annotated[list[Hash], MaxLen(128)] = Field(
        default_factory=list,
        description="Owner hashes of the machines placed last that these figures already count.",
    )


class FailureDomainAttributes(Model):
    """What was verified to be reachable from a failure domain."""

    available_storage_classes: Annotated[list[ClassName], MaxLen(64)] = Field(
        default_factory=list, description="Declared storage classes that are reachable here."
    )
    available_network_classes: Annotated[list[ClassName], MaxLen(64)] = Field(
        default_factory=list, description="Declared network classes that are reachable here."
    )
    features: Annotated[list[Feature], MaxLen(16)] = Field(
        default_factory=list, description="Features machines may have here."
    )
    capacity: Capacity | None = Field(
        default=None, description="What there is and what is left. Absent: not known."
    )
    raw: Annotated[dict[str, Annotated[str, MaxLen(64)]], MaxLen(8)] = Field(
        default_factory=dict,
        description="What the place is on the backend, for people, such as `cluster: c1`.",
    )


class FailureDomainStatus(Model):
    """A place on the backend whose loss is independent of others."""

    name: FailureDomainName = Field(description="Name, given once and never changed.")
    id: Line = Field(description="The backend's stable id.")
    labels: Annotated[LabelMap, MaxLen(16)] = Field(
        default_factory=dict, description="Labels the admin declared."
    )
    schedulable: bool = Field(default=True, description="Whether new machines may be placed here.")
    attributes: FailureDomainAttributes = Field(
        default_factory=FailureDomainAttributes, description="What is reachable from here."
    )


class UnclaimedOwner(Model):
    """A machine on the backend that carries our mark and has no object."""

    hash: Hash = Field(description="Hash of the owner, as in the machine's name.")
    epoch: int = Field(ge=0, le=1_000_000, description="How often the machine was moved.")
    incoming: bool | None = Field(
        default=None, description="True: the target of a move that was never committed."
    )
    vm: Hash | None = Field(
        default=None,
        description="Hash of its UUID, where it has not the name we give, as an adopted one.",
    )


class UnclaimedSample(Model):
    """One unclaimed machine, for people."""

    name: Observed = Field(default=None, description="Name on the backend.")
    owner: Observed = Field(
        default=None, description="Kind, namespace and name of the owner in its mark."
    )
    failure_domain: FailureDomainName | None = Field(default=None, description="Where it is.")


class Unclaimed(Model):
    """Machines on the backend that carry our mark and have no object. Never deleted."""

    complete: bool = Field(description="Whether the whole backend was read at least once.")
    recovery: bool | None = Field(
        default=None,
        description="True: it was read while the installation recovered, and counts then.",
    )
    count: Count = Field(default=0, description="How many there are.")
    sample: Annotated[list[UnclaimedSample], MaxLen(20)] = Field(
        default_factory=list, description="Some of them, for people."
    )
    owners: Annotated[list[UnclaimedOwner], MaxLen(8192)] = Field(
        default_factory=list,
        description="All of them, so that their owners find them again. Two of one hash and epoch "
        "are a conflict.",
    )


class RetainedDisk(Model):
    """A disk that was kept when its machine went, and that no machine has."""

    id: Line = Field(description="What `disks[].existing` of a VirtualMachine gives to attach it.")
    namespace: NamespaceName = Field(
        description="Namespace it belongs to. Nobody else can attach it."
    )
    size_gib: Count | None = Field(default=None, description="Size in whole GiB, if known.")
    failure_domains: Annotated[list[FailureDomainName], MaxLen(256), LIST_SET] = Field(
        default_factory=list, description="Failure domains it can be reached from."
    )


class Workload(Model):
    """What the operator runs for this Provider. Absent without the operator."""

    namespace: NamespaceName | None = Field(default=None, description="Where it runs.")
    name: ObjectName | None = Field(default=None, description="Name of all its objects.")
    image: Line | None = Field(default=None, description="Image of the container.")
    replicas: Count | None = Field(default=None, description="Pods wanted.")
    ready_replicas: Count | None = Field(default=None, description="Pods that are ready.")
    updated_replicas: Count | None = Field(
        default=None, description="Pods that run what the ProviderClass says now."
    )
    observed_class_generation: Count | None = Field(
        default=None, description="Generation of the ProviderClass this was made from."
    )
    reason: Word | None = Field(default=None, description="Why it is not as it should be.")
    message: Message | None = Field(default=None, description="The same for people.")


class RefusedNamespaces(Model):
    """Namespaces that allowedNamespaces leaves out, with machines on this Provider all the same."""

    count: Count = Field(description="How many there are.")
    names: Annotated[list[NamespaceName], MaxLen(10)] = Field(
        default_factory=list, description="The first of them, by name."
    )


class ProviderStatus(Model):
    """What the provider verified and observed."""

    failure_domains: Annotated[list[FailureDomainStatus], MaxLen(256), list_map("name")] = Field(
        default_factory=list,
        description="Places machines can be in. An outage keeps the last known list.",
    )
    failure_domain_count: Count | None = Field(
        default=None, description="Length of failureDomains."
    )
    machine_count: Count | None = Field(
        default=None, description="Machine objects this Provider serves."
    )
    backend_identity: Line | None = Field(
        default=None,
        description="What tells this backend from every other (a vCenter's instanceUuid, a "
        "Proxmox VE cluster's name and CA, a libvirt host's UUID).",
    )
    version: Observed = Field(default=None, description="Version of the backend.")
    spec_features: Annotated[list[Word], MaxLen(256)] = Field(
        default_factory=list,
        description="Features of the machine spec the provider process understands.",
    )
    unclaimed: Unclaimed | None = Field(
        default=None, description="Machines that carry our mark and have no object."
    )
    refused_namespaces: RefusedNamespaces | None = Field(
        default=None,
        description="Namespaces that are not allowed and have machines here: nothing is made or "
        "changed for them. Absent when there is none.",
    )
    retained_disks: Annotated[list[RetainedDisk], MaxLen(1024), list_map("id")] = Field(
        default_factory=list,
        description="Disks that were kept when their machines went, by `reclaimPolicy: Retain`. "
        "Never deleted by us.",
    )
    workload: Workload | None = Field(
        default=None, description="What the operator runs for this Provider."
    )
    observed_generation: Count | None = Field(
        default=None, description="The metadata.generation this status was computed from."
    )
    conditions: Conditions = Field(
        default_factory=list,
        description="Ready, ProviderReachable, CredentialsValid, PermissionsValid.",
    )
