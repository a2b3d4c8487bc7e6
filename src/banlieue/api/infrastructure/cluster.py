"""The common InfraCluster: failure domains of several Providers for one Kubernetes cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import Rule, list_map
from banlieue.api.meta import Conditions, Model, NamespacedRef, ResourceObject, Selector
from banlieue.api.types import Count, FailureDomainName, Line
from banlieue.api.v1alpha1.capabilities import PoolRef


class ControlPlaneEndpoint(Model):
    """Where the API server of the workload cluster answers."""

    host: str = Field(min_length=1, max_length=512, description="Host name or IP address.")
    port: int = Field(ge=1, le=65535, description="TCP port, such as 6443.")


class EndpointPool(PoolRef):
    """Where the address of the control plane endpoint comes from."""

    port: int = Field(ge=1, le=65535, description="TCP port of the endpoint, such as 6443.")


class ClusterSpec(Model):
    """Which Providers a cluster may use, and where its API server answers."""

    control_plane_endpoint: ControlPlaneEndpoint | None = Field(
        default=None,
        description="Where the API server of the workload cluster answers. Never changes once "
        "status.initialization.provisioned is true. Default: waits until the Cluster has one.",
    )
    control_plane_endpoint_pool: EndpointPool | None = Field(
        default=None,
        description="Pool that the address of the endpoint is claimed from, where neither "
        "controlPlaneEndpoint nor the Cluster gives one. What it gives is written into "
        "controlPlaneEndpoint and stays; an edit has no effect then.",
    )
    provider_refs: Annotated[list[NamespacedRef], MaxLen(32), list_map("namespace", "name")] = (
        Field(
            default_factory=list,
            description="Providers whose failure domains the cluster has. Beats providerSelector.",
        )
    )
    provider_selector: Selector | None = Field(
        default=None,
        description="Labels of Providers whose failure domains the cluster has. Default, without "
        "providerRefs: every Provider of the backend that is offered to the namespace.",
    )
    control_plane_failure_domain_selector: Selector | None = Field(
        default=None,
        description="Labels of failure domains control plane machines may be in. Default: every "
        "one.",
    )


class ClusterFailureDomain(Model):
    """A failure domain, in the words of Cluster API."""

    name: FailureDomainName = Field(description="Name, for Machine.spec.failureDomain.")
    control_plane: bool = Field(description="Whether control plane machines may be in it.")
    attributes: Annotated[dict[str, Line], MaxLen(16)] = Field(
        default_factory=dict, description="What it is, such as its Provider."
    )


class ClusterInitialization(Model):
    """What happened once and stays true."""

    provisioned: bool = Field(
        description="Whether the infrastructure is there. Never goes back to false."
    )


class ClusterStatus(Model):
    """What the Providers offer the cluster."""

    initialization: ClusterInitialization | None = Field(
        default=None, description="What happened once and stays true."
    )
    failure_domains: Annotated[list[ClusterFailureDomain], MaxLen(100), list_map("name")] = Field(
        default_factory=list, description="Failure domains of all its Providers."
    )
    observed_generation: Count | None = Field(
        default=None, description="The metadata.generation this status was computed from."
    )
    conditions: Conditions = Field(
        default_factory=list, description="Ready, Paused, FailureDomainsAvailable."
    )


PROVISIONED_STAYS = Rule(
    "!has(oldSelf.status) || !has(oldSelf.status.initialization) || "
    "!oldSelf.status.initialization.provisioned || !has(self.status) || "
    "!has(self.status.initialization) || self.status.initialization.provisioned",
    "status.initialization.provisioned never goes back to false: report trouble in conditions",
    ".status.initialization.provisioned",
)
"""Cluster API copies the flag once and never looks again."""

ENDPOINT_STAYS = Rule(
    "!has(oldSelf.status) || !has(oldSelf.status.initialization) || "
    "!oldSelf.status.initialization.provisioned || !has(oldSelf.spec) || "
    "!has(oldSelf.spec.controlPlaneEndpoint) || (has(self.spec) && "
    "has(self.spec.controlPlaneEndpoint) && "
    "self.spec.controlPlaneEndpoint == oldSelf.spec.controlPlaneEndpoint)",
    "spec.controlPlaneEndpoint never changes once the cluster is provisioned: put it back, or make "
    "another cluster",
    ".spec.controlPlaneEndpoint",
)
"""Cluster API copies the endpoint once, and certificates and kubeconfigs are made for it."""


class InfraCluster(ResourceObject):
    """The cluster kind of any backend; all backends agree on all of it."""

    cel: ClassVar[tuple[Rule, ...]] = (PROVISIONED_STAYS, ENDPOINT_STAYS)

    spec: ClusterSpec = Field(
        default_factory=ClusterSpec,
        description="Which Providers the cluster may use, and where its API server answers.",
    )
    status: ClusterStatus = Field(
        default_factory=ClusterStatus, description="What the Providers offer the cluster."
    )
