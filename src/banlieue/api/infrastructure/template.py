"""Templates of machines and clusters, and what the kinds of every backend have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Generic, TypeVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api import names
from banlieue.api.infrastructure.cluster import ClusterSpec
from banlieue.api.infrastructure.machine import MachineTemplateSpec
from banlieue.api.markers import AGE, TEMPLATE, Column, Definition
from banlieue.api.meta import Model, ResourceObject
from banlieue.api.types import Architecture, LabelMap, QuantityText, Word

SpecT = TypeVar("SpecT", bound=MachineTemplateSpec)


class TemplateMetadata(Model):
    """Labels and annotations of what is made from a template."""

    labels: Annotated[LabelMap, MaxLen(64)] = Field(
        default_factory=dict, description="Labels of the object."
    )
    annotations: Annotated[dict[str, Annotated[str, MaxLen(4096)]], MaxLen(64)] = Field(
        default_factory=dict, description="Annotations of the object."
    )


class NodeInfo(Model):
    """What a node made from a template would be."""

    architecture: Architecture | None = Field(default=None, description="Processor architecture.")
    operating_system: Word | None = Field(
        default=None, description="Family of the operating system, such as linux."
    )


class MachineTemplateStatus(Model):
    """What a machine made from a template would offer, for scaling from zero."""

    capacity: Annotated[dict[str, QuantityText], MaxLen(16)] = Field(
        default_factory=dict, description='Resources of the node, such as `cpu: "4"`.'
    )
    node_info: NodeInfo | None = Field(default=None, description="What the node would be.")


class MachineTemplateResource(Model, Generic[SpecT]):
    """What is copied into a machine."""

    metadata: TemplateMetadata = Field(
        default_factory=TemplateMetadata, description="Labels and annotations of the machine."
    )
    spec: Annotated[SpecT, TEMPLATE] = Field(
        description="The fields of the machine's spec that controllers do not write."
    )


class MachineTemplateBody(Model, Generic[SpecT]):
    """The template."""

    template: MachineTemplateResource[SpecT] = Field(description="What is copied into a machine.")


class MachineTemplate(ResourceObject, Generic[SpecT]):
    """The machine template kind of any backend; its own template spec is the parameter."""

    spec: MachineTemplateBody[SpecT] = Field(description="The template.")
    status: MachineTemplateStatus = Field(
        default_factory=MachineTemplateStatus,
        description="What a machine made from it would offer, for scaling from zero.",
    )


class ClusterTemplateResource(Model):
    """What is copied into a cluster."""

    metadata: TemplateMetadata = Field(
        default_factory=TemplateMetadata, description="Labels and annotations of the cluster."
    )
    spec: Annotated[ClusterSpec, TEMPLATE] = Field(description="As spec of the cluster kind.")


class ClusterTemplateBody(Model):
    """The template."""

    template: ClusterTemplateResource = Field(description="What is copied into a cluster.")


class InfraClusterTemplate(ResourceObject):
    """The cluster template kind of any backend."""

    spec: ClusterTemplateBody = Field(description="The template.")


_READY = '.status.conditions[?(@.type=="Ready")]'
_CLUSTER = Column("Cluster", r".metadata.labels['cluster\.x-k8s\.io/cluster-name']")
_CATEGORIES = ("banlieue", names.CAPI_CATEGORY)


def machine_definition(*short_names: str) -> Definition:
    """Say what the CRD of a machine kind carries, whatever the backend."""
    return Definition(
        short_names=short_names,
        categories=_CATEGORIES,
        columns=(
            _CLUSTER,
            Column("Provider", ".spec.providerRef.name"),
            Column("Provisioned", ".status.initialization.provisioned", type="boolean"),
            Column("Power", ".status.powerState"),
            Column("Ready", f"{_READY}.status"),
            Column("Reason", f"{_READY}.reason"),
            AGE,
            Column("FailureDomain", ".status.failureDomain", wide=True),
            Column("ProviderID", ".spec.providerID", wide=True),
            Column("Host", ".status.host", wide=True),
        ),
        selectable=(
            f".{names.FIELD_PROVIDER_NAMESPACE}",
            f".{names.FIELD_PROVIDER_NAME}",
            f".{names.FIELD_VIRTUAL_MACHINE_NAME}",
        ),
        labels={names.LABEL_CONTRACT: names.VERSION, names.LABEL_MACHINE_KIND: "true"},
    )


def cluster_definition(*short_names: str) -> Definition:
    """Say what the CRD of a cluster kind carries, whatever the backend."""
    return Definition(
        short_names=short_names,
        categories=_CATEGORIES,
        columns=(
            _CLUSTER,
            Column("Endpoint", ".spec.controlPlaneEndpoint.host"),
            Column("Provisioned", ".status.initialization.provisioned", type="boolean"),
            Column("Ready", f"{_READY}.status"),
            Column("Reason", f"{_READY}.reason"),
            AGE,
        ),
        labels={names.LABEL_CONTRACT: names.VERSION, names.LABEL_CLUSTER_KIND: "true"},
    )


def machine_template_definition(*short_names: str) -> Definition:
    """Say what the CRD of a machine template kind carries, whatever the backend."""
    machine = ".spec.template.spec"
    return replace(
        template_definition(*short_names),
        columns=(
            Column("Image", f"{machine}.imageRef.name"),
            Column("CPUs", f"{machine}.cpus", type="integer"),
            Column("MemoryMiB", f"{machine}.memoryMiB", type="integer"),
            AGE,
        ),
    )


def template_definition(*short_names: str) -> Definition:
    """Say what the CRD of a template kind carries, whatever the backend."""
    return Definition(
        short_names=short_names,
        categories=_CATEGORIES,
        labels={names.LABEL_CONTRACT: names.VERSION},
    )
