"""The storage classes, networks and features an admin declares for a Provider."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import LIST_SET, Rule, list_map
from banlieue.api.meta import (
    Model,
)
from banlieue.api.types import (
    Cidr,
    ClassName,
    Feature,
    IpAddress,
    Line,
    ObjectName,
    Target,
)

_URL_WITH_LOGIN = r"'^[^/]*//[^/@]*:[^/@]*@'"


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
    gateway: IpAddress | None = Field(
        default=None,
        description="Default gateway: an address in the subnet, or an IPv6 link-local one.",
    )
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
            # Routers of IPv6 are named by their link-local address as a rule.
            "!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.cidr) || "
            "ip(self.gateway).family() != cidr(self.cidr).ip().family() || "
            "cidr(self.cidr).containsIP(ip(self.gateway)) || "
            "(ip(self.gateway).family() == 6 && ip(self.gateway).isLinkLocalUnicast())",
            "gateway must lie within cidr, or be an IPv6 link-local address: correct gateway or "
            "cidr",
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
