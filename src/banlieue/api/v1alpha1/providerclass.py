"""ProviderClass: which backend a Provider is, and what is run to serve it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import AGE, LIST_SET, Column, Definition, list_map
from banlieue.api.meta import Conditions, Model, NameRef, Resource, ResourceObject
from banlieue.api.names import plural
from banlieue.api.resources import PROVIDER_CLASSES
from banlieue.api.types import (
    Cidr,
    Count,
    LabelKey,
    LabelMap,
    LabelValue,
    Line,
    NamespaceName,
    ObjectName,
    Port,
    Quantity,
)
from banlieue.api.v1alpha1.affinity import Affinity


class GroupVersionKind(Model):
    """A kind of some backend."""

    api_group: str = Field(min_length=1, max_length=253, description="API group of the kind.")
    version: str = Field(
        min_length=2, max_length=63, pattern=r"^v[0-9a-z]+$", description="Version to use."
    )
    kind: str = Field(
        min_length=1, max_length=63, pattern=r"^[A-Z][A-Za-z0-9]*$", description="The kind."
    )

    def to_resource(self) -> Resource:
        """Give the resource; its plural follows from the kind as Cluster API demands."""
        return Resource(self.api_group, self.version, self.kind, plural(self.kind))


class PullPolicy(StrEnum):
    """When the node fetches the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Image(Model):
    """The container image of the provider process."""

    repository: Line | None = Field(
        default=None,
        description="Registry and name, without tag. Default: that of the operator's image.",
    )
    tag: Annotated[str, MaxLen(128)] | None = Field(
        default=None,
        description="Tag, or digest with its algorithm, such as `sha256:` and 64 digits. Default: "
        "that of the operator's image, so that an upgrade takes the providers along.",
    )
    pull_policy: PullPolicy = Field(
        default=PullPolicy.IF_NOT_PRESENT, description="When the node fetches the image."
    )


class ResourceRequirements(Model):
    """Compute resources of the container."""

    requests: Annotated[dict[str, Quantity], MaxLen(16)] = Field(
        default_factory=dict, description="What the pod is promised, such as `memory: 128Mi`."
    )
    limits: Annotated[dict[str, Quantity], MaxLen(16)] = Field(
        default_factory=dict, description="What the pod may use at most."
    )


class TolerationOperator(StrEnum):
    """How a toleration compares."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class Toleration(Model):
    """A node taint the pod tolerates (as in a pod's spec)."""

    key: LabelKey | None = Field(default=None, description="Taint key. Absent: every taint.")
    operator: TolerationOperator | None = Field(
        default=None, description="`Exists`, or `Equal` to the value. Default: `Equal`."
    )
    value: LabelValue | None = Field(default=None, description="Taint value for `Equal`.")
    effect: Annotated[str, MaxLen(32)] | None = Field(
        default=None, description="Taint effect. Absent: every effect."
    )
    toleration_seconds: Count | None = Field(
        default=None, description="How long a NoExecute taint is tolerated. Absent: for ever."
    )


class NetworkAccess(Model):
    """What the pod may connect to, beside the cluster's name service."""

    backend_addresses: Annotated[list[Cidr], MaxLen(64)] = Field(
        default_factory=list,
        description="Networks the endpoints of the Providers, and what they refer to, are in. "
        "Default: an endpoint that is an address, else any address at the endpoint's port.",
    )
    backend_ports: Annotated[list[Port], MaxLen(32), LIST_SET] = Field(
        default_factory=list,
        description="Further TCP ports of the backend, such as 443 of the hosts that images are "
        "sent to. Those of the endpoints are always open.",
    )
    api_server_addresses: Annotated[list[Cidr], MaxLen(16)] = Field(
        default_factory=list,
        description="Networks the Kubernetes API servers are in. Default: any address.",
    )
    api_server_ports: Annotated[list[Port], MaxLen(8), LIST_SET] = Field(
        default_factory=list,
        description="TCP ports of the Kubernetes API servers. Default: 443 and 6443.",
    )


class LogLevel(StrEnum):
    """How much a process tells."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ProviderClassSpec(Model):
    """Which backend this is, and what is run for each Provider of the class."""

    backend: str = Field(
        min_length=1,
        max_length=40,
        pattern=r"^[a-z][a-z0-9-]*[a-z0-9]$",
        description="Backend, such as vsphere, proxmox or libvirt: the role the provider process "
        "takes. Need not equal the name of the class.",
    )
    machine: GroupVersionKind = Field(description="Machine kind of the backend.")
    cluster: GroupVersionKind | None = Field(
        default=None, description="Cluster kind of the backend. Absent: no Cluster API clusters."
    )
    image: Image | None = Field(
        default=None,
        description="Container image of the provider process. Default: the operator's own.",
    )
    workload_namespace: NamespaceName | None = Field(
        default=None,
        description="Namespace the provider processes run in. Default: the Provider's.",
    )
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="Compute resources of the container."
    )
    node_selector: Annotated[LabelMap, MaxLen(32)] = Field(
        default_factory=dict, description="Labels of the nodes the pod may run on."
    )
    tolerations: Annotated[list[Toleration], MaxLen(32)] = Field(
        default_factory=list, description="Node taints the pod tolerates."
    )
    affinity: Affinity | None = Field(
        default=None, description="Where the pod is placed, beyond nodeSelector."
    )
    network_policy: NetworkAccess | None = Field(
        default=None,
        description="Makes a NetworkPolicy for each Provider that lets its pod reach what is "
        "listed here and nothing else; `{}` is enough. Absent: none is made.",
    )
    priority_class_name: ObjectName | None = Field(
        default=None, description="PriorityClass of the pod. Default: the cluster's."
    )
    image_pull_secrets: Annotated[list[NameRef], MaxLen(16), list_map("name")] = Field(
        default_factory=list,
        description="Secrets, in the workload's namespace, to fetch the image with.",
    )
    pod_labels: Annotated[LabelMap, MaxLen(32)] = Field(
        default_factory=dict,
        description="Further labels of the pod. The namespace it runs in has to allow them by its "
        "annotation `banlieue.io/pod-labels`, such as `team=a,tier=b`.",
    )
    pod_annotations: Annotated[dict[str, Annotated[str, MaxLen(4096)]], MaxLen(32)] = Field(
        default_factory=dict, description="Further annotations of the pod."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="How much the provider process tells in its log."
    )
    paused: bool = Field(
        default=False,
        description="Suspends every Provider of the class, as `paused` on each of them would.",
    )


class ProviderClassStatus(Model):
    """What the operator observed."""

    provider_count: Count | None = Field(
        default=None, description="Providers that refer to this class."
    )
    observed_generation: Count | None = Field(
        default=None, description="The metadata.generation this status was computed from."
    )
    conditions: Conditions = Field(
        default_factory=list, description="Ready: the backend's kinds are installed."
    )


class ProviderClass(ResourceObject):
    """Which backend a Provider is, and what is run to serve it. An image bump is one edit here."""

    resource: ClassVar[Resource] = PROVIDER_CLASSES
    definition: ClassVar[Definition] = Definition(
        short_names=("provc",),
        columns=(
            Column("Backend", ".spec.backend"),
            Column("Machine", ".spec.machine.kind"),
            Column("Providers", ".status.providerCount", type="integer"),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Tag", ".spec.image.tag"),
            Column("Paused", ".spec.paused", type="boolean"),
            AGE,
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
        ),
    )

    spec: ProviderClassSpec = Field(description="Which backend, and what is run.")
    status: ProviderClassStatus = Field(
        default_factory=ProviderClassStatus, description="What the operator observed."
    )
