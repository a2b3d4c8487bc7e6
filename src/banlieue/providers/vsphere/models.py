"""The vSphere kinds: the common machine and cluster, and what only vSphere has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import Ge, Le, MaxLen
from pydantic import Field, StringConstraints

from banlieue.api.infrastructure.cluster import InfraCluster
from banlieue.api.infrastructure.machine import (
    Machine,
    MachineSpec,
    MachineTemplateSpec,
)
from banlieue.api.infrastructure.template import (
    InfraClusterTemplate,
    MachineTemplate,
    cluster_definition,
    machine_definition,
    machine_template_definition,
    template_definition,
)
from banlieue.api.markers import Definition, Rule
from banlieue.api.meta import Model, Resource, ResourceObject
from banlieue.api.resources import infrastructure
from banlieue.api.types import Line

VSPHERE_MACHINES = infrastructure("VSphereMachine")
VSPHERE_MACHINE_TEMPLATES = infrastructure("VSphereMachineTemplate")
VSPHERE_CLUSTERS = infrastructure("VSphereCluster")
VSPHERE_CLUSTER_TEMPLATES = infrastructure("VSphereClusterTemplate")

RESERVED_EXTRA_CONFIG = (
    r"^(guestinfo[.]|banlieue|disk[.]enableuuid|uuid[.]|vc[.]uuid|instanceuuid|displayname"
    r"|firmware$|uefi[.]|numvcpus|cpuid[.]corespersocket|memsize|virtualhw[.]|nvram"
    r"|(scsi|sata|ide|nvme)[0-9]"
    r"|ethernet[0-9]+[.](address|generatedaddress|present|startconnected|virtualdev|connectiontype"
    r"|networkname|dvs[.]|opaquenetwork[.]|externalid))"
)
"""Configuration keys that are ours or the vCenter's, in lower case: identity, first-boot data,
hardware and devices. An expression of RE2 and of Python."""


class FolderPolicy(StrEnum):
    """What happens when a folder is not there."""

    EXISTING = "Existing"
    CREATE = "Create"


class CloneMode(StrEnum):
    """How the disks of a template are copied."""

    LINKED = "Linked"
    FULL = "Full"


class Shares(StrEnum):
    """Weight of a VM against others of its pool while there is not enough for all."""

    LOW = "Low"
    NORMAL = "Normal"
    HIGH = "High"


class CpuAllocation(Model):
    """Processor time of a VM."""

    reservation_mhz: Annotated[int, Ge(0), Le(10_000_000)] | None = Field(
        default=None, description="What it gets for sure, in MHz."
    )
    limit_mhz: Annotated[int, Ge(1), Le(10_000_000)] | None = Field(
        default=None, description="What it gets at most, in MHz. Default: no limit."
    )
    shares: Shares | None = Field(
        default=None, description="`Low`, `Normal` or `High`. Default: the template's."
    )


class MemoryAllocation(Model):
    """Memory of a VM."""

    reservation_mib: Annotated[int, Ge(0), Le(25_165_824)] | None = Field(
        default=None, description="What it gets for sure, in MiB; at most memoryMiB."
    )
    limit_mib: Annotated[int, Ge(1), Le(25_165_824)] | None = Field(
        default=None, description="What it gets at most, in MiB. Default: no limit."
    )
    shares: Shares | None = Field(
        default=None, description="`Low`, `Normal` or `High`. Default: the template's."
    )


class VSphereFields(Model):
    """What only vSphere has. From another namespace than the Provider's, its policy decides."""

    template: Line | None = Field(
        default=None,
        description="Template to clone, by name, inventory path or UUID. Beats imageRef.",
    )
    clone_mode: CloneMode | None = Field(
        default=None,
        description="`Linked` shares disks with the template's snapshot and is fast, `Full` "
        "copies them. Default: `Linked` where the template has a snapshot and the root disk "
        "keeps its size, else `Full`.",
    )
    snapshot: Line | None = Field(
        default=None,
        description="Snapshot of the template for a linked clone. Default: the current one.",
    )
    datacenter: Line | None = Field(
        default=None,
        description="Datacenter, by name or inventory path. Default: the failure domain's.",
    )
    cluster: Line | None = Field(
        default=None,
        description="Compute cluster, by name or inventory path. Default: the failure domain's.",
    )
    resource_pool: Line | None = Field(
        default=None,
        description="Resource pool, by name or inventory path. Default: the failure domain's.",
    )
    folder: Line | None = Field(
        default=None,
        description="Folder, by name or inventory path. Default: the one in the Provider's "
        "settings, else the datacenter's VM folder.",
    )
    folder_policy: FolderPolicy | None = Field(
        default=None,
        description="`Existing`: the folder must be there. `Create`: it is made when it is not, "
        "and stays. Default: the Provider's setting `folderPolicy`, else `Existing`.",
    )
    datastore: Line | None = Field(
        default=None,
        description="Datastore or datastore cluster of the root disk, by name. Default: the "
        "storage class's.",
    )
    storage_policy: Line | None = Field(
        default=None,
        description="Storage policy of the VM and its disks, by name; disks are put on datastores "
        "that fulfil it. Default: the storage class's.",
    )
    hardware_version: (
        Annotated[str, StringConstraints(max_length=6, pattern=r"^vmx-[0-9]{1,2}$")] | None
    ) = Field(
        default=None,
        description="Least virtual hardware version, such as vmx-19; the VM is upgraded before it "
        "is started. Default: the template's.",
    )
    num_cores_per_socket: Annotated[int, Ge(1), Le(256)] | None = Field(
        default=None,
        description="Cores per virtual socket; cpus must be a multiple of it. Default: the "
        "template's, as far as it divides cpus.",
    )
    cpu_allocation: CpuAllocation | None = Field(
        default=None, description="How much of its host's processors the VM gets for sure or most."
    )
    memory_allocation: MemoryAllocation | None = Field(
        default=None, description="How much of its host's memory the VM gets for sure or at most."
    )
    pci_device_labels: Annotated[list[Line], MaxLen(16)] = Field(
        default_factory=list,
        description="Hardware labels of PCI devices to pass through, one device for each entry. "
        "All memory of the VM is reserved then.",
    )
    custom_attributes: Annotated[dict[str, Annotated[str, MaxLen(1024)]], MaxLen(32)] = Field(
        default_factory=dict,
        description="Custom attributes of the VM by name; one that the vCenter does not have is "
        "made.",
    )
    extra_config: Annotated[
        dict[str, Annotated[str, MaxLen(1024)]],
        MaxLen(32),
        Rule(
            f"self.all(key, !key.lowerAscii().matches('{RESERVED_EXTRA_CONFIG}'))",
            "extraConfig must not have keys of first-boot data, identity, hardware or devices, "
            "such as guestinfo., banlieue, uuid., disk.enableUUID, scsi0: use the fields for that",
        ),
    ] = Field(
        default_factory=dict,
        description="Further configuration keys of the virtual machine. Keys that are ours are "
        "refused.",
    )


class VSphereMachineSpec(VSphereFields, MachineSpec):
    """What a vSphere machine should be."""

    @property
    def own_image(self) -> str | None:
        """The template, which beats `imageRef`."""
        return self.template

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.imageRef) || has(self.template) || has(self.adopt)",
            "imageRef or template is required without adopt: name a VMImage or a template",
            ".imageRef",
        ),
    )


class VSphereMachine(Machine):
    """A virtual machine on vSphere, made for a VirtualMachine or a Cluster API Machine."""

    resource: ClassVar[Resource] = VSPHERE_MACHINES
    definition: ClassVar[Definition] = machine_definition("vsm")

    spec: VSphereMachineSpec = Field(description="What the machine should be.")


class VSphereMachineTemplateSpec(VSphereFields, MachineTemplateSpec):
    """What every vSphere machine made from a template should be."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.imageRef) || has(self.template)",
            "imageRef or template is required: name a VMImage or a template",
            ".imageRef",
        ),
    )


class VSphereMachineTemplate(MachineTemplate[VSphereMachineTemplateSpec]):
    """What Cluster API makes vSphere machines from. Immutable: rollouts replace it."""

    resource: ClassVar[Resource] = VSPHERE_MACHINE_TEMPLATES
    definition: ClassVar[Definition] = machine_template_definition("vsmt")


class VSphereCluster(InfraCluster):
    """A Kubernetes cluster over one or several vCenters."""

    resource: ClassVar[Resource] = VSPHERE_CLUSTERS
    definition: ClassVar[Definition] = cluster_definition("vsc")


class VSphereClusterTemplate(InfraClusterTemplate):
    """What a ClusterClass makes vSphere clusters from."""

    resource: ClassVar[Resource] = VSPHERE_CLUSTER_TEMPLATES
    definition: ClassVar[Definition] = template_definition("vsct")


KINDS: tuple[type[ResourceObject], ...] = (
    VSphereMachine,
    VSphereMachineTemplate,
    VSphereCluster,
    VSphereClusterTemplate,
)
RESOURCES: tuple[Resource, ...] = tuple(kind.resource for kind in KINDS)
