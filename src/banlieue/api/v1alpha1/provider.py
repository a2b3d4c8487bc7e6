"""Provider: one configured endpoint, such as a vCenter, a Proxmox VE cluster, libvirt hosts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import AGE, LIST_SET, Column, Definition, Rule, list_map
from banlieue.api.meta import (
    Conditions,
    ConfigMapKeyRef,
    Model,
    NameRef,
    Resource,
    ResourceObject,
    SecretKeyRef,
    Selector,
    Time,
)
from banlieue.api.resources import PROVIDERS
from banlieue.api.types import (
    Cidr,
    ClassName,
    Count,
    Factor,
    FailureDomainName,
    Feature,
    Hash,
    IpAddress,
    LabelKey,
    LabelMap,
    Line,
    NamespaceName,
    ObjectName,
    Target,
    Text,
    Thumbprint,
    Url,
    Word,
)

_URL_WITH_LOGIN = r"'^[^/]*//[^/@]*:[^/@]*@'"


class CaBundle(Model):
    """Where the certificates to trust come from; exactly one of the three."""

    inline: Annotated[str, MaxLen(65536)] | None = Field(
        default=None, description="The certificates themselves, in PEM."
    )
    config_map_ref: ConfigMapKeyRef | None = Field(
        default=None, description="A ConfigMap in the Provider's namespace with PEM certificates."
    )
    secret_ref: SecretKeyRef | None = Field(
        default=None, description="A Secret in the Provider's namespace with PEM certificates."
    )

    cel = (
        Rule(
            "[has(self.inline), has(self.configMapRef), has(self.secretRef)]"
            ".filter(given, given).size() == 1",
            "caBundle must have exactly one of inline, configMapRef and secretRef: remove the "
            "others",
        ),
    )


class Connection(Model):
    """How the endpoint is reached and trusted."""

    endpoint: Url | None = Field(
        default=None,
        description="URL of the endpoint, such as https://vcenter.example.com/sdk. Give either "
        "this or `endpoints`.",
    )
    endpoints: Annotated[list[Url], MaxLen(32)] = Field(
        default_factory=list,
        description="URLs of several nodes or hosts that are served as one Provider.",
    )
    credentials_ref: NameRef | None = Field(
        default=None,
        description="Secret in the Provider's namespace with the credentials; its keys are "
        "documented by the backend. Absent only where the backend needs none.",
    )
    ca_bundle: CaBundle | None = Field(
        default=None,
        description="Certificates to trust. Default: those of the system.",
    )
    thumbprints: Annotated[list[Thumbprint], MaxLen(32)] = Field(
        default_factory=list,
        description="SHA-256 thumbprints of the endpoint's certificate; any match is enough, and "
        "a certificate that matches none is refused.",
    )
    insecure_skip_tls_verify: bool = Field(
        default=False, description="Do not verify certificates. For laboratories only."
    )
    accepted_identities: Annotated[list[Line], MaxLen(16)] = Field(
        default_factory=list,
        description="Further identities of the backend (status.backendIdentity) under which its "
        "machines were made, for an endpoint that was rebuilt or renamed.",
    )

    cel = (
        Rule(
            "has(self.endpoint) != (has(self.endpoints) && size(self.endpoints) > 0)",
            "connection must have exactly one of endpoint and endpoints: remove the other",
            ".endpoint",
        ),
        Rule(
            f"!has(self.endpoint) || !self.endpoint.matches({_URL_WITH_LOGIN})",
            "endpoint must not carry a password: put it into the Secret of credentialsRef",
            ".endpoint",
        ),
        Rule(
            f"!has(self.endpoints) || self.endpoints.all(url, !url.matches({_URL_WITH_LOGIN}))",
            "endpoints must not carry a password: put it into the Secret of credentialsRef",
            ".endpoints",
        ),
    )


class StorageClassCapability(Model):
    """A storage class this Provider offers, and what it means on the backend."""

    name: ClassName = Field(description="Name that VMClass and VirtualMachine use.")
    target: Annotated[Target, MaxLen(16)] = Field(
        default_factory=dict,
        description="What it is on the backend, such as `datastore: ssd-tier-0`; the keys are "
        "documented by the backend, and an unknown one is reported as CapabilityInvalid.",
    )


class PoolRef(Model):
    """An address pool of an IPAM provider that follows the Cluster API contract."""

    api_group: str = Field(min_length=1, max_length=253, description="API group of the pool.")
    kind: str = Field(min_length=1, max_length=63, description="Kind of the pool.")
    name: ObjectName = Field(description="Name of the pool, seen from the machine's namespace.")


class Subnet(Model):
    """One IP subnet of a network."""

    cidr: Cidr = Field(description="The subnet, such as 10.0.0.0/24 or 2001:db8::/64.")
    gateway: IpAddress | None = Field(default=None, description="Default gateway in the subnet.")
    nameservers: Annotated[list[IpAddress], MaxLen(8)] = Field(
        default_factory=list, description="Name servers, tried in order."
    )
    search_domains: Annotated[list[Line], MaxLen(16)] = Field(
        default_factory=list, description="Domains that short host names are looked up in."
    )
    pool: PoolRef | None = Field(
        default=None, description="Pool that addresses with source `pool` are claimed from."
    )
    allow_static: Annotated[list[Cidr], MaxLen(16)] = Field(
        default_factory=list,
        description="Ranges users may take addresses with source `static` from. Empty: none.",
    )

    cel = (
        Rule(
            "isCIDR(self.cidr) && cidr(self.cidr) == cidr(self.cidr).masked()",
            "cidr must be an IP subnet without host bits, such as 10.0.0.0/24: correct it",
            ".cidr",
        ),
        Rule(
            "!has(self.gateway) || "
            "(isIP(self.gateway) && (!isCIDR(self.cidr) || "
            "ip(self.gateway).family() == cidr(self.cidr).ip().family()))",
            "gateway must be an IP address of the family of cidr: correct it",
            ".gateway",
        ),
        Rule(
            "!has(self.nameservers) || self.nameservers.all(server, isIP(server))",
            "nameservers must be IP addresses: correct them",
            ".nameservers",
        ),
        Rule(
            "!has(self.allowStatic) || !isCIDR(self.cidr) || "
            "self.allowStatic.all(range, isCIDR(range) && "
            "cidr(self.cidr).containsCIDR(cidr(range)))",
            "allowStatic must be ranges within cidr, such as 10.0.0.128/25: correct them",
            ".allowStatic",
        ),
    )


class NetworkClassCapability(Model):
    """A network class this Provider offers, and what it means on the backend."""

    name: ClassName = Field(description="Name that VMClass and VirtualMachine use.")
    target: Annotated[Target, MaxLen(16)] = Field(
        default_factory=dict,
        description="What it is on the backend, such as `portGroup: vmnet-prod`; the keys are "
        "documented by the backend, and an unknown one is reported as CapabilityInvalid.",
    )
    subnets: Annotated[list[Subnet], MaxLen(8), list_map("cidr")] = Field(
        default_factory=list,
        description="Subnets of the network, for addresses that are not given by the network "
        "itself.",
    )
    mtu: int | None = Field(
        default=None,
        ge=576,
        le=65535,
        description="Largest packet in bytes. Default: the guest's own.",
    )


class Capabilities(Model):
    """What the admin declares; the provider verifies it per failure domain."""

    storage_classes: Annotated[list[StorageClassCapability], MaxLen(64), list_map("name")] = Field(
        default_factory=list, description="Storage classes offered here."
    )
    network_classes: Annotated[list[NetworkClassCapability], MaxLen(64), list_map("name")] = Field(
        default_factory=list, description="Network classes offered here."
    )
    features: Annotated[list[Feature], MaxLen(16), LIST_SET] = Field(
        default_factory=list, description="Features machines may have here."
    )


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


class CapacityFigure(Model):
    """One resource of a failure domain."""

    total: Count | None = Field(default=None, description="What there is.")
    free: Count | None = Field(default=None, description="What new machines can get.")


class StorageCapacity(Model):
    """Space behind one storage class."""

    storage_class: ClassName = Field(description="The storage class.")
    total_gib: Count | None = Field(default=None, description="What there is, in GiB.")
    free_gib: Count | None = Field(default=None, description="What is free, in GiB.")


class Capacity(Model):
    """What a failure domain has and has left, rounded so that small changes stay quiet."""

    observed_at: Time | None = Field(default=None, description="When it was read.")
    cpus: CapacityFigure | None = Field(default=None, description="Processors.")
    memory_mib: CapacityFigure | None = Field(default=None, description="Memory in MiB.")
    storage: Annotated[list[StorageCapacity], MaxLen(64), list_map("storageClass")] = Field(
        default_factory=list, description="Space by storage class."
    )
    included_machines: Annotated[list[Hash], MaxLen(128)] = Field(
        default_factory=list,
        description="Owner hashes of the machines placed last that these figures already count.",
    )


class FailureDomainAttributes(Model):
    """What was verified to be reachable from a failure domain."""

    available_storage_classes: Annotated[list[ClassName], MaxLen(64), LIST_SET] = Field(
        default_factory=list, description="Declared storage classes that are reachable here."
    )
    available_network_classes: Annotated[list[ClassName], MaxLen(64), LIST_SET] = Field(
        default_factory=list, description="Declared network classes that are reachable here."
    )
    features: Annotated[list[Feature], MaxLen(16), LIST_SET] = Field(
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


class UnclaimedSample(Model):
    """One unclaimed machine, for people."""

    name: Line = Field(description="Name on the backend.")
    owner: Line | None = Field(
        default=None, description="Kind, namespace and name of the owner in its mark."
    )
    failure_domain: FailureDomainName | None = Field(default=None, description="Where it is.")


class Unclaimed(Model):
    """Machines on the backend that carry our mark and have no object. Never deleted."""

    complete: bool = Field(description="Whether the whole backend was read at least once.")
    count: Count = Field(default=0, description="How many there are.")
    sample: Annotated[list[UnclaimedSample], MaxLen(20)] = Field(
        default_factory=list, description="Some of them, for people."
    )
    owners: Annotated[list[UnclaimedOwner], MaxLen(8192), list_map("hash", "epoch")] = Field(
        default_factory=list, description="All of them, so that their owners find them again."
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
    message: Text | None = Field(default=None, description="The same for people.")


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
    version: Word | None = Field(default=None, description="Version of the backend.")
    spec_features: Annotated[list[Word], MaxLen(64), LIST_SET] = Field(
        default_factory=list,
        description="Features of the machine spec the provider process understands.",
    )
    unclaimed: Unclaimed | None = Field(
        default=None, description="Machines that carry our mark and have no object."
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
