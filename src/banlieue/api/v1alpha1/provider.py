"""Provider: one configured endpoint, such as a vCenter, a Proxmox VE cluster, libvirt hosts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import AGE, Column, Definition, Rule, list_map
from banlieue.api.meta import (
    Model,
    NameRef,
    Resource,
    ResourceObject,
    Selector,
)
from banlieue.api.resources import PROVIDERS
from banlieue.api.types import (
    Factor,
    FailureDomainName,
    LabelKey,
    LabelMap,
    Line,
    Target,
)
from banlieue.api.v1alpha1.capabilities import (
    Capabilities,
    NetworkClassCapability,
    PoolRef,
    StorageClassCapability,
    Subnet,
)
from banlieue.api.v1alpha1.connection import (
    CaBundle,
    Connection,
)
from banlieue.api.v1alpha1.provider_status import (
    Capacity,
    CapacityFigure,
    FailureDomainAttributes,
    FailureDomainStatus,
    ProviderStatus,
    StorageCapacity,
    Unclaimed,
    UnclaimedOwner,
    UnclaimedSample,
    Workload,
)

__all__ = [
    "AdoptionPolicy",
    "AllowedNamespaces",
    "CaBundle",
    "Capabilities",
    "Capacity",
    "CapacityFigure",
    "Connection",
    "DeclaredFailureDomain",
    "FailureDomainAttributes",
    "FailureDomainStatus",
    "NamespacesFrom",
    "NetworkClassCapability",
    "Overcommit",
    "PoolRef",
    "Provider",
    "ProviderMode",
    "ProviderPolicy",
    "ProviderSpec",
    "ProviderStatus",
    "StorageCapacity",
    "StorageClassCapability",
    "Subnet",
    "TagMapping",
    "Unclaimed",
    "UnclaimedOwner",
    "UnclaimedSample",
    "Workload",
]


_URL_WITH_LOGIN = r"'^[^/]*//[^/@]*:[^/@]*@'"


class NamespacesFrom(StrEnum):
    """Which namespaces are meant."""

    SAME = "Same"
    ALL = "All"
    SELECTOR = "Selector"


class AllowedNamespaces(Model):
    """Namespaces something is offered to."""

    from_: NamespacesFrom = Field(
        default=NamespacesFrom.SAME,
        description="`Same`: the Provider's namespace. `All`: every namespace. `Selector`: "
        "namespaces the selector matches.",
    )
    selector: Selector | None = Field(
        default=None, description="Labels of the namespaces, with `from: Selector` only."
    )

    cel = (
        Rule(
            "(self.from == 'Selector') == has(self.selector)",
            "selector must be given with from: Selector, and left out otherwise",
            ".selector",
        ),
    )


class AdoptionPolicy(Model):
    """Who may take over machines that exist on the backend."""

    allowed_namespaces: AllowedNamespaces = Field(
        default_factory=AllowedNamespaces,
        description="Namespaces whose VirtualMachines may adopt.",
    )


class ProviderPolicy(Model):
    """What machines may do here that is dangerous between tenants."""

    concrete_fields: Annotated[dict[str, Annotated[list[Line], MaxLen(64)]], MaxLen(32)] = Field(
        default_factory=dict,
        description="Values that machines from other namespaces may give for a backend's own "
        "fields, by field name, such as `template: [ubuntu-22.04]`. An entry that ends in `*` "
        "allows everything it begins. A field that is not listed may not be used from there.",
    )
    adoption: AdoptionPolicy | None = Field(
        default=None,
        description="Allows adoption of machines that exist on the backend. Absent: nobody may.",
    )


class Overcommit(Model):
    """How many times over resources may be promised, for scheduling."""

    cpu: Factor | None = Field(
        default=None,
        description="Virtual processors per real one, such as 4. Only ranks failure domains. "
        "Default: 1.",
    )
    memory: Factor | None = Field(
        default=None,
        description='Memory promised per memory there is, such as "1.5". Default: 1.',
    )


class DeclaredFailureDomain(Model):
    """What the admin says about a failure domain."""

    id: Line = Field(description="The backend's stable id, as status.failureDomains shows it.")
    name: FailureDomainName | None = Field(
        default=None,
        description="Name to give it. A name is given once; machines refer to it. Default: made "
        "from the Provider's and the backend's names.",
    )
    labels: Annotated[LabelMap, MaxLen(16)] = Field(
        default_factory=dict,
        description="Labels for failureDomainSelector and anti-affinity topology keys.",
    )
    schedulable: bool = Field(
        default=True, description="Whether new machines may be placed here; others stay."
    )


class TagMapping(Model):
    """Turns a label of the owner into a tag on the backend."""

    label: LabelKey = Field(description="Label of the VirtualMachine or Machine.")
    tag: Line = Field(
        description="Tag, tag category or metadata key on the backend that gets the label's value."
    )


class ProviderMode(StrEnum):
    """Whether the backend may be changed."""

    READ_WRITE = "ReadWrite"
    READ_ONLY = "ReadOnly"


class ProviderSpec(Model):
    """What the admin declares about one endpoint."""

    provider_class_ref: NameRef = Field(
        description="ProviderClass that says which backend this is and what serves it. May be "
        "changed to another class of the same backend."
    )
    connection: Connection = Field(description="How the endpoint is reached and trusted.")
    capabilities: Capabilities = Field(
        default_factory=Capabilities,
        description="Storage classes, network classes and features offered here.",
    )
    settings: Annotated[Target, MaxLen(16)] = Field(
        default_factory=dict,
        description="Settings of the backend for all machines made here, such as `folder`; the "
        "keys are documented by the backend, and an unknown one is reported as "
        "CapabilityInvalid.",
    )
    tag_mapping: Annotated[list[TagMapping], MaxLen(32), list_map("label")] = Field(
        default_factory=list, description="Labels of owners that become tags on the backend."
    )
    allowed_namespaces: AllowedNamespaces = Field(
        default_factory=AllowedNamespaces,
        description="Namespaces whose machines may use this Provider. One that loses access keeps "
        "its machines, unchanged.",
    )
    policy: ProviderPolicy = Field(
        default_factory=ProviderPolicy,
        description="What machines may do here that is dangerous between tenants.",
    )
    overcommit: Overcommit = Field(
        default_factory=Overcommit, description="How many times over resources may be promised."
    )
    failure_domains: Annotated[list[DeclaredFailureDomain], MaxLen(256), list_map("id")] = Field(
        default_factory=list,
        description="Names, labels and admission of failure domains. Those not listed are "
        "discovered and schedulable.",
    )
    cordoned: bool = Field(
        default=False, description="No new machines are placed here; those here stay."
    )
    mode: ProviderMode = Field(
        default=ProviderMode.READ_WRITE,
        description="`ReadOnly`: machines are observed and nothing on the backend is changed.",
    )
    paused: bool = Field(
        default=False,
        description="Hands off: the workload stays as it is, the provider makes no changing call "
        "and touches no finalizer.",
    )


class Provider(ResourceObject):
    """One configured endpoint of a backend: a vCenter, a Proxmox VE cluster, libvirt hosts.

    Platform admins write it; users never need to read it.
    """

    resource: ClassVar[Resource] = PROVIDERS
    definition: ClassVar[Definition] = Definition(
        short_names=("prov",),
        columns=(
            Column("Class", ".spec.providerClassRef.name"),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Version", ".status.version"),
            Column("FDs", ".status.failureDomainCount", type="integer"),
            Column("VMs", ".status.machineCount", type="integer"),
            AGE,
            Column("Endpoint", ".spec.connection.endpoint", wide=True),
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
        ),
    )

    spec: ProviderSpec = Field(description="What the admin declares.")
    status: ProviderStatus = Field(
        default_factory=ProviderStatus, description="What the provider observed."
    )
