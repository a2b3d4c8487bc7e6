"""VMClass: the size and shape of machines, curated by platform admins."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.devices import ClassDisk, ClassInterface
from banlieue.api.markers import AGE, LIST_SET, Column, Definition, list_map
from banlieue.api.meta import Model, Resource, ResourceObject
from banlieue.api.resources import VM_CLASSES
from banlieue.api.types import Cpus, Feature, Firmware, MemoryMiB


class Hardware(Model):
    """Processors, memory and disks."""

    cpus: Cpus = Field(description="Virtual processors.")
    memory_mib: MemoryMiB = Field(description="Memory in MiB.")
    disks: Annotated[list[ClassDisk], MaxLen(32), list_map("name")] = Field(
        default_factory=list, description="Disks, by name; `root` is the one that boots."
    )


class ClassNetwork(Model):
    """Network interfaces."""

    interfaces: Annotated[list[ClassInterface], MaxLen(16), list_map("name")] = Field(
        default_factory=list, description="Network interfaces, by name."
    )


class VMClassSpec(Model):
    """The size and shape of a machine."""

    hardware: Hardware = Field(description="Processors, memory and disks.")
    network: ClassNetwork = Field(default_factory=ClassNetwork, description="Network interfaces.")
    firmware: Firmware | None = Field(
        default=None,
        description="What boots the guest: `bios`, `efi`, or `efi-secure` (EFI with secure "
        "boot). Default: what the image supports, `efi` first.",
    )
    features: Annotated[list[Feature], MaxLen(16), LIST_SET] = Field(
        default_factory=list,
        description="Further properties: `HotAddCPU` and `HotAddMemory` (grow without a "
        "restart), `NestedVirtualization`, `SecureBoot` (implied by firmware `efi-secure`), "
        "`TPM`.",
    )


class VMClass(ResourceObject):
    """The size and shape of machines.

    An edit does not touch machines that exist: they keep what they were made with until their
    classRef changes.
    """

    resource: ClassVar[Resource] = VM_CLASSES
    definition: ClassVar[Definition] = Definition(
        short_names=("vmc",),
        columns=(
            Column("CPUs", ".spec.hardware.cpus", type="integer"),
            Column("MemoryMiB", ".spec.hardware.memoryMiB", type="integer"),
            Column("Firmware", ".spec.firmware", wide=True),
            AGE,
        ),
    )

    spec: VMClassSpec = Field(description="The size and shape of a machine.")
