"""VMImage: what machines boot from, wherever they run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import AGE, LIST_SET, Column, Definition, Rule, list_map
from banlieue.api.meta import Conditions, Model, Resource, ResourceObject
from banlieue.api.resources import VM_IMAGES
from banlieue.api.types import (
    Architecture,
    Checksum,
    Count,
    FailureDomainName,
    Firmware,
    Message,
    NamespaceName,
    ObjectName,
    Observed,
    ReasonWord,
    SizeGiB,
    Url,
    Word,
)


class OsFamily(StrEnum):
    """The family an operating system belongs to."""

    LINUX = "linux"
    WINDOWS = "windows"
    BSD = "bsd"
    OTHER = "other"


class BootstrapFormat(StrEnum):
    """What reads the user data in the guest."""

    CLOUD_INIT = "cloud-init"
    IGNITION = "ignition"
    NONE = "none"


class AgentPresence(StrEnum):
    """Whether the guest has the backend's agent."""

    PRESENT = "present"
    INSTALL = "install"
    ABSENT = "absent"


class SourceKind(StrEnum):
    """What a source is on the backend."""

    TEMPLATE = "Template"
    BACKING_FILE = "BackingFile"
    URL = "Url"


class ImageSource(Model):
    """Where one backend finds the image."""

    provider_class: ObjectName = Field(
        description="Backend, such as `vsphere`, or name of a ProviderClass. A class's own source "
        "beats its backend's."
    )
    kind: SourceKind = Field(
        description="`Template`: a template on the backend. `BackingFile`: a disk image on its "
        "storage. `Url`: a disk image to import."
    )
    ref: Annotated[str, MaxLen(1024)] = Field(
        min_length=1,
        description="Name, path or id of the template or file, or the URL.",
    )
    import_from: Url | None = Field(
        default=None,
        description="URL to import the template or file from when it is missing.",
    )
    checksum: Checksum | None = Field(
        default=None,
        description="Digest of what is imported, as sha256:… or sha512:…. An import is always "
        "verified.",
    )

    cel = (
        Rule(
            "!(self.kind == 'Url' || has(self.importFrom)) || has(self.checksum)",
            "checksum must be given for what is imported: add the publisher's sha256:… or "
            "sha512:… digest",
            ".checksum",
        ),
        Rule(
            "self.kind != 'Url' || self.ref.matches('^https?://')",
            "ref must be an http or https URL with kind Url: correct it or change kind",
            ".ref",
        ),
        Rule(
            "self.kind != 'Url' || !has(self.importFrom)",
            "importFrom must be left out with kind Url: ref is the URL",
            ".importFrom",
        ),
    )


class VMImageSpec(Model):
    """What the image is, and where each backend finds it."""

    os_family: OsFamily = Field(
        default=OsFamily.LINUX, description="Family of the operating system."
    )
    os_distribution: Word | None = Field(
        default=None, description="Distribution or edition, such as `ubuntu`."
    )
    os_version: Word | None = Field(default=None, description='Version, such as "22.04".')
    architecture: Architecture = Field(
        default=Architecture.AMD64, description="Processor architecture."
    )
    firmware: Annotated[list[Firmware], MaxLen(3), LIST_SET] = Field(
        default_factory=list,
        description="Firmware the image boots with. Empty: every kind.",
    )
    min_disk_gib: SizeGiB | None = Field(
        default=None, description="Smallest root disk the image fits on, in GiB."
    )
    bootstrap: BootstrapFormat = Field(
        default=BootstrapFormat.CLOUD_INIT,
        description="What reads the user data in the guest: `cloud-init`, `ignition`, or `none`.",
    )
    agent: AgentPresence = Field(
        default=AgentPresence.ABSENT,
        description="Whether the guest has the backend's agent: `present`, `install` (put in at "
        "first boot), or `absent`. Without one, addresses are not waited for.",
    )
    sources: Annotated[list[ImageSource], MaxLen(16), list_map("providerClass")] = Field(
        min_length=1, description="Where each backend finds the image."
    )


class ProviderImageStatus(Model):
    """What one Provider says about the image; it owns this row."""

    provider_namespace: NamespaceName = Field(description="Namespace of the Provider.")
    provider_name: ObjectName = Field(description="Name of the Provider.")
    ready: bool = Field(description="Whether machines can be made from the image there.")
    reason: ReasonWord | None = Field(default=None, description="Why it is not ready.")
    message: Message | None = Field(default=None, description="The same for people.")
    resolved_ref: Observed = Field(
        default=None, description="What the source was found to be on the backend."
    )
    progress_percent: int | None = Field(
        default=None, ge=0, le=100, description="How far an import is, in steps of ten."
    )
    bytes: Count | None = Field(default=None, description="Size of the image, in bytes.")
    ready_failure_domains: Annotated[list[FailureDomainName], MaxLen(256)] = Field(
        default_factory=list,
        description="Failure domains that have it. Absent on a row that is ready: all of them.",
    )
    copies: Annotated[list[Word], MaxLen(16)] = Field(
        default_factory=list,
        description="Names of what the Provider imports or imported for it. They are deleted with "
        "the VMImage; nothing else ever is.",
    )


class VMImageStatus(Model):
    """Where the image can be used."""

    per_provider: Annotated[
        list[ProviderImageStatus],
        MaxLen(256),
        list_map("providerNamespace", "providerName"),
    ] = Field(default_factory=list, description="What each Provider says.")
    ready_providers: Word | None = Field(
        default=None, description="Providers that can use it, of those that match: `1/2`."
    )
    progress: Word | None = Field(
        default=None, description="The import that is furthest behind, such as `40%`."
    )
    observed_generation: Count | None = Field(
        default=None, description="The metadata.generation this status was computed from."
    )
    conditions: Conditions = Field(
        default_factory=list,
        description="Ready: usable on at least one matching Provider. Deleting: what its end "
        "waits for.",
    )


class VMImage(ResourceObject):
    """What machines boot from, wherever they run."""

    resource: ClassVar[Resource] = VM_IMAGES
    definition: ClassVar[Definition] = Definition(
        short_names=("vmi",),
        columns=(
            Column("OS", ".spec.osDistribution"),
            Column("Version", ".spec.osVersion"),
            Column("Arch", ".spec.architecture"),
            Column("Ready", ".status.readyProviders"),
            Column("Progress", ".status.progress"),
            AGE,
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
        ),
    )

    spec: VMImageSpec = Field(description="What the image is, and where it comes from.")
    status: VMImageStatus = Field(
        default_factory=VMImageStatus, description="Where the image can be used."
    )
