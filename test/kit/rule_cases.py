"""For each CEL rule of our CRDs an object or change that breaks it, and no other rule."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from banlieue.api.meta import ResourceObject

Object = dict[str, Any]
Changes = Mapping[str, Any]
"""New values by dotted path; None takes the field away."""


@dataclass(frozen=True, slots=True)
class Case:
    """A write the API server has to refuse.

    Attributes:
        message: the rule's whole message.
        kinds: kinds to try it on.
        broken: what is wrong, as changes to the minimal object or to `before`.
        before: the object that exists before, for a rule that compares with it.
    """

    message: str
    kinds: tuple[str, ...]
    broken: Changes
    before: Changes | None = field(default=None)


_VM: Final = ("VirtualMachine",)
_IMAGE: Final = ("VMImage",)
_PROVIDER: Final = ("Provider",)
_MACHINES: Final = ("VSphereMachine", "SimulatedMachine")
_CLUSTERS: Final = ("VSphereCluster", "SimulatedCluster")
_MACHINE_TEMPLATES: Final = ("VSphereMachineTemplate", "SimulatedMachineTemplate")
_CLUSTER_TEMPLATES: Final = ("VSphereClusterTemplate", "SimulatedClusterTemplate")

_URL_SOURCE: Final = {
    "providerClass": "libvirt",
    "kind": "Url",
    "ref": "https://example.com/disk.qcow2",
    "checksum": "sha256:" + "0" * 64,
}
_NO_CHECKSUM: Final = {key: it for key, it in _URL_SOURCE.items() if key != "checksum"}
_INSTANCE: Final = {
    "uuid": "01234567-89ab-4cde-8f01-23456789abcd",
    "name": "db-0123abcd",
    "installationID": "one",
    "backendIdentity": "vc-1",
    "reserved": {"macAddresses": [{"nic": "eth0", "address": "00:50:56:00:00:01"}]},
}
_PLACED: Final = {
    "spec.providerRef": {"name": "prod", "namespace": "infra"},
    "spec.placement": {"failureDomain": "prod-dc1-a"},
    "spec.instance": _INSTANCE,
}
_PROVISIONED: Final = {"status.initialization": {"provisioned": True}}
_ENDPOINT: Final = {"host": "10.0.0.9", "port": 6443}

MINIMAL: Final[Mapping[str, Object]] = {
    "VirtualMachine": {
        "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu-22.04"}}
    },
    "VMClass": {"spec": {"hardware": {"cpus": 1, "memoryMiB": 512}}},
    "VMImage": {
        "spec": {"sources": [{"providerClass": "vsphere", "kind": "Template", "ref": "ubuntu"}]}
    },
    "Provider": {
        "spec": {
            "providerClassRef": {"name": "vsphere"},
            "connection": {"endpoint": "https://vcenter.example.com/sdk"},
        }
    },
    "ProviderClass": {
        "spec": {
            "backend": "vsphere",
            "machine": {
                "apiGroup": "infrastructure.banlieue.io",
                "version": "v1alpha1",
                "kind": "VSphereMachine",
            },
        }
    },
    "VSphereMachine": {"spec": {"imageRef": {"name": "ubuntu-22.04"}}},
    "SimulatedMachine": {"spec": {"imageRef": {"name": "ubuntu-22.04"}}},
    "VSphereMachineTemplate": {
        "spec": {"template": {"spec": {"imageRef": {"name": "ubuntu-22.04"}}}}
    },
    "SimulatedMachineTemplate": {
        "spec": {"template": {"spec": {"imageRef": {"name": "ubuntu-22.04"}}}}
    },
    "VSphereCluster": {"spec": {}},
    "SimulatedCluster": {"spec": {}},
    "VSphereClusterTemplate": {"spec": {"template": {"spec": {}}}},
    "SimulatedClusterTemplate": {"spec": {"template": {"spec": {}}}},
}
"""The least a valid object of each kind has."""


def minimal(kind: type[ResourceObject], name: str) -> Object:
    """Give the smallest valid object of a kind."""
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.__name__,
        "metadata": {"name": name},
        **copy.deepcopy(MINIMAL[kind.__name__]),
    }


def changed(obj: Mapping[str, Any], changes: Changes) -> Object:
    """Give a copy of an object with other values."""
    result = copy.deepcopy(dict(obj))
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return result


def _subnet(**words: object) -> Changes:
    subnet = {"cidr": "10.0.0.0/24", **words}
    return {"spec.capabilities": {"networkClasses": [{"name": "prod", "subnets": [subnet]}]}}


def _interface(**words: object) -> Changes:
    return {"spec.networkInterfaces": [{"name": "eth0", "ipam": [words]}]}


def _in_template(changes: Changes) -> Changes:
    """The same mistake in what a template's machines or clusters are made of."""
    return {f"spec.template.{path}": value for path, value in changes.items()}


_USERS: Final = (
    Case(
        "spec.classRef is required without spec.adopt: name a VMClass",
        _VM,
        {"spec.classRef": None},
    ),
    Case(
        "spec.imageRef is required without spec.adopt: name a VMImage",
        _VM,
        {"spec.imageRef": None},
    ),
    Case(
        "spec.imageRef is immutable: make a new VirtualMachine from the other image",
        _VM,
        {"spec.imageRef": {"name": "debian-12"}},
        before={},
    ),
    Case(
        "spec.imageRef is immutable: make a new VirtualMachine from the other image",
        _VM,
        {"spec.imageRef": None},
        before={"spec.adopt": {"id": "42"}},
    ),
    Case(
        "spec.adopt can be given at creation only and never be removed: make a new VirtualMachine",
        _VM,
        {"spec.adopt": {"id": "42"}},
        before={},
    ),
    Case(
        "spec.adopt can be given at creation only and never be removed: make a new VirtualMachine",
        _VM,
        {"spec.adopt": None},
        before={"spec.adopt": {"id": "42"}},
    ),
    Case(
        "spec.adopt.id is immutable: make a new VirtualMachine to adopt another machine",
        _VM,
        {"spec.adopt": {"id": "43"}},
        before={"spec.adopt": {"id": "42"}},
    ),
    Case(
        "spec.adopt.accepted cannot go back to false: set spec.paused to have hands off",
        (*_VM, *_MACHINES),
        {"spec.adopt": {"id": "42", "accepted": False}},
        before={"spec.adopt": {"id": "42", "accepted": True}},
    ),
    Case(
        "metadata.name must have at most 63 characters, because it becomes the host name: choose "
        "a shorter one",
        _VM,
        {"metadata.name": "x" * 64},
    ),
    Case(
        "sizeGiB can only grow: give a size at least as large as before, or add a second disk",
        (*_VM, *_MACHINES),
        {"spec.disks": [{"name": "data", "sizeGiB": 9}]},
        before={"spec.disks": [{"name": "data", "sizeGiB": 10}]},
    ),
    Case(
        "sizeGiB can only grow: give a size at least as large as before, or add a second disk",
        _VM,
        {"spec.disks": [{"name": "data"}]},
        before={"spec.disks": [{"name": "data", "sizeGiB": 10}]},
    ),
    Case(
        "existing is not for disk root, which is made from the image: list the disk under another "
        "name",
        (*_VM, *_MACHINES),
        {"spec.disks": [{"name": "root", "existing": "db-data-0123abcd"}]},
    ),
    Case(
        "existing is not for disk root, which is made from the image: list the disk under another "
        "name",
        _MACHINE_TEMPLATES,
        _in_template({"spec.disks": [{"name": "root", "existing": "db-data-0123abcd"}]}),
    ),
    Case(
        "existing is fixed for a listed disk: remove this disk and add one of another name",
        (*_VM, *_MACHINES),
        {"spec.disks": [{"name": "data", "sizeGiB": 10, "existing": "disk-7"}]},
        before={"spec.disks": [{"name": "data", "sizeGiB": 10}]},
    ),
    Case(
        "address must be given with source static, and left out with any other source",
        _VM,
        _interface(family="IPv4", source="static"),
    ),
    Case(
        "address must be given with source static, and left out with any other source",
        _VM,
        _interface(family="IPv4", source="dhcp", address="10.0.0.7"),
    ),
    Case(
        "source slaac exists for family IPv6 only: use dhcp, static or pool",
        (*_VM, *_MACHINES),
        _interface(family="IPv4", source="slaac"),
    ),
    Case(
        "source slaac exists for family IPv6 only: use dhcp, static or pool",
        _MACHINE_TEMPLATES,
        _in_template(_interface(family="IPv4", source="slaac")),
    ),
    Case(
        "address must be one IP address of the family given: correct address or family",
        (*_VM, *_MACHINES),
        _interface(family="IPv6", source="static", address="10.0.0.7"),
    ),
    Case(
        "address must be one IP address of the family given: correct address or family",
        _MACHINE_TEMPLATES,
        _in_template(_interface(family="IPv6", source="static", address="10.0.0.7")),
    ),
    Case(
        "address must be one IP address of the family given: correct address or family",
        _VM,
        _interface(family="IPv4", source="static", address="10.0.0.777"),
    ),
)

_ADMINS: Final = (
    Case(
        "values must be given with operator In or NotIn, and left out with Exists or DoesNotExist",
        _VM,
        {
            "spec.placement.providerSelector.matchExpressions": [
                {"key": "tier", "operator": "Exists", "values": ["gold"]}
            ]
        },
    ),
    Case(
        "values must be given with operator In or NotIn, and left out with Exists or DoesNotExist",
        _CLUSTERS,
        {"spec.providerSelector.matchExpressions": [{"key": "tier", "operator": "In"}]},
    ),
    Case(
        "values must be given with operator In or NotIn, and left out with Exists or DoesNotExist",
        _CLUSTER_TEMPLATES,
        _in_template(
            {"spec.providerSelector.matchExpressions": [{"key": "tier", "operator": "In"}]}
        ),
    ),
    Case(
        "values must be given with operator In or NotIn, and left out with Exists or DoesNotExist",
        _PROVIDER,
        {
            "spec.allowedNamespaces": {
                "from": "Selector",
                "selector": {"matchExpressions": [{"key": "tier", "operator": "In"}]},
            }
        },
    ),
    Case(
        "values must be given with operator In or NotIn, and left out with Exists or DoesNotExist",
        ("ProviderClass",),
        {
            "spec.affinity.podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In"}]},
                    }
                ]
            }
        },
    ),
    Case(
        "sizeGiB must be given for a disk other than root: add it",
        ("VMClass",),
        {"spec.hardware.disks": [{"name": "root"}, {"name": "data"}]},
    ),
    Case(
        "sizeGiB must be given for a disk other than root: add it",
        _MACHINES,
        {
            "spec.class": {
                "name": "small",
                "hash": "0123abcd",
                "hardware": {
                    "cpus": 1,
                    "memoryMiB": 512,
                    "disks": [{"name": "root"}, {"name": "data"}],
                },
            }
        },
    ),
    Case(
        "checksum must be given for what is imported: add the publisher's sha256:… or sha512:… "
        "digest",
        _IMAGE,
        {"spec.sources": [_NO_CHECKSUM]},
    ),
    Case(
        "ref must be an http or https URL with kind Url: correct it or change kind",
        _IMAGE,
        {"spec.sources": [{**_URL_SOURCE, "ref": "ubuntu"}]},
    ),
    Case(
        "importFrom must be left out with kind Url: ref is the URL",
        _IMAGE,
        {"spec.sources": [{**_URL_SOURCE, "importFrom": "https://example.com/disk.qcow2"}]},
    ),
    Case(
        "connection must have exactly one of endpoint and endpoints: remove the other",
        _PROVIDER,
        {"spec.connection.endpoints": ["https://pve1:8006"]},
    ),
    Case(
        "connection must have exactly one of endpoint and endpoints: remove the other",
        _PROVIDER,
        {"spec.connection.endpoint": None},
    ),
    Case(
        "endpoint must not carry a password: put it into the Secret of credentialsRef",
        _PROVIDER,
        {"spec.connection.endpoint": "https://root:calvin@vcenter.example.com/sdk"},
    ),
    Case(
        "endpoints must not carry a password: put it into the Secret of credentialsRef",
        _PROVIDER,
        {
            "spec.connection": {
                "endpoints": ["qemu+tls://a/system", "qemu+libssh://root:calvin@b/system"]
            }
        },
    ),
    Case(
        "caBundle must have exactly one of inline, configMapRef and secretRef: remove the others",
        _PROVIDER,
        {"spec.connection.caBundle": {"inline": "PEM", "secretRef": {"name": "ca"}}},
    ),
    Case(
        "caBundle must have exactly one of inline, configMapRef and secretRef: remove the others",
        _PROVIDER,
        {"spec.connection.caBundle": {}},
    ),
    Case(
        "cidr must be an IP subnet without host bits, such as 10.0.0.0/24: correct it",
        _PROVIDER,
        _subnet(cidr="10.0.0.5/24"),
    ),
    Case(
        "gateway must be an IP address of the family of cidr: correct it",
        _PROVIDER,
        _subnet(gateway="2001:db8::1"),
    ),
    Case(
        "gateway must lie within cidr, or be an IPv6 link-local address: correct gateway or cidr",
        _PROVIDER,
        _subnet(gateway="10.0.1.1"),
    ),
    Case(
        "gateway must lie within cidr, or be an IPv6 link-local address: correct gateway or cidr",
        _PROVIDER,
        _subnet(cidr="2001:db8::/64", gateway="2001:db8:0:1::1"),
    ),
    Case(
        "nameservers must be IP addresses: correct them",
        _PROVIDER,
        _subnet(nameservers=["10.0.0.1", "10.0.0.999"]),
    ),
    Case(
        "allowStatic must be ranges within cidr, such as 10.0.0.128/25: correct them",
        _PROVIDER,
        _subnet(allowStatic=["10.0.1.0/25"]),
    ),
    Case(
        "selector must be given with from: Selector, and left out otherwise",
        _PROVIDER,
        {"spec.allowedNamespaces": {"from": "Selector"}},
    ),
    Case(
        "selector must be given with from: Selector, and left out otherwise",
        _PROVIDER,
        {"spec.policy.adoption.allowedNamespaces": {"from": "All", "selector": {}}},
    ),
)

_CONTROLLERS: Final = (
    Case(
        "spec.providerRef never changes once it is set: move the VirtualMachine or replace the "
        "Machine",
        _MACHINES,
        {"spec.providerRef": {"name": "other", "namespace": "infra"}},
        before=_PLACED,
    ),
    Case(
        "spec.providerRef never changes once it is set: move the VirtualMachine or replace the "
        "Machine",
        _MACHINES,
        {"spec.providerRef": None},
        before=_PLACED,
    ),
    Case(
        "spec.instance never changes once it is set: it is the identity on the backend, leave it "
        "as it is",
        _MACHINES,
        {"spec.instance": {**_INSTANCE, "name": "db-89abcdef"}},
        before=_PLACED,
    ),
    Case(
        "spec.instance never changes once it is set: it is the identity on the backend, leave it "
        "as it is",
        _MACHINES,
        {"spec.instance": None},
        before=_PLACED,
    ),
    Case(
        "spec.providerID never changes once it is set: the Node is known by it, leave it as it is",
        _MACHINES,
        {"spec.providerID": "vsphere://2"},
        before={"spec.providerID": "vsphere://1"},
    ),
    Case(
        "spec.placement is fixed once spec.instance exists, unless status.createRefused names its "
        "failure domain: move the VirtualMachine or replace the Machine",
        _MACHINES,
        {"spec.placement": {"failureDomain": "prod-dc1-b"}},
        before=_PLACED,
    ),
    Case(
        "spec.placement is fixed once spec.instance exists, unless status.createRefused names its "
        "failure domain: move the VirtualMachine or replace the Machine",
        _MACHINES,
        {"spec.placement": {"failureDomain": "prod-dc1-b"}},
        before={
            **_PLACED,
            "spec.providerID": "vsphere://1",
            "status.createRefused": {"failureDomain": "prod-dc1-a", "reason": "NoSpace"},
        },
    ),
    Case(
        "spec.placement is fixed once spec.instance exists, unless status.createRefused names its "
        "failure domain: move the VirtualMachine or replace the Machine",
        _MACHINES,
        {"spec.placement": None},
        before={
            **_PLACED,
            "status.createRefused": {"failureDomain": "prod-dc1-a", "reason": "NoSpace"},
        },
    ),
    Case(
        "spec.virtualMachineRef never names another VirtualMachine: make a machine of its own",
        _MACHINES,
        {"spec.virtualMachineRef": {"name": "other"}},
        before={"spec.virtualMachineRef": {"name": "db", "uid": "1"}},
    ),
    Case(
        "spec.adopt can be given at creation only and never be removed: make a new machine",
        _MACHINES,
        {"spec.adopt": {"id": "42"}},
        before={},
    ),
    Case(
        "spec.adopt.id is immutable: make a new machine to adopt another one",
        _MACHINES,
        {"spec.adopt": {"id": "43"}},
        before={"spec.adopt": {"id": "42"}},
    ),
    Case(
        "status.initialization.provisioned never goes back to false: report trouble in conditions",
        (*_MACHINES, *_CLUSTERS),
        {"status.initialization": {"provisioned": False}},
        before=_PROVISIONED,
    ),
    *(
        Case(
            "spec.controlPlaneEndpoint never changes once the cluster is provisioned: put it back, "
            "or make another cluster",
            _CLUSTERS,
            {"spec.controlPlaneEndpoint": changed},
            before={**_PROVISIONED, "spec.controlPlaneEndpoint": _ENDPOINT},
        )
        for changed in ({**_ENDPOINT, "port": 443}, None)
    ),
    Case(
        "address must be left out with a source other than static and pool: remove it or change "
        "source",
        _MACHINES,
        _interface(family="IPv4", source="dhcp", address="10.0.0.7"),
    ),
    Case(
        "address must be left out with a source other than static and pool: remove it or change "
        "source",
        _MACHINE_TEMPLATES,
        _in_template(_interface(family="IPv4", source="dhcp", address="10.0.0.7")),
    ),
    Case(
        "address must be given with source static: add it or use dhcp or pool",
        _MACHINES,
        _interface(family="IPv4", source="static"),
    ),
    Case(
        "address must be given with source static: add it or use dhcp or pool",
        _MACHINE_TEMPLATES,
        _in_template(_interface(family="IPv4", source="static")),
    ),
    Case(
        "prefix must be at most 32 with family IPv4: correct prefix or family",
        _MACHINES,
        _interface(family="IPv4", source="pool", prefix=64),
    ),
    Case(
        "prefix must be at most 32 with family IPv4: correct prefix or family",
        _MACHINE_TEMPLATES,
        _in_template(_interface(family="IPv4", source="pool", prefix=64)),
    ),
    Case(
        "gateway must be one IP address of the family given: correct it",
        _MACHINES,
        _interface(family="IPv4", source="pool", gateway="2001:db8::1"),
    ),
    Case(
        "gateway must be one IP address of the family given: correct it",
        _MACHINE_TEMPLATES,
        _in_template(_interface(family="IPv4", source="pool", gateway="2001:db8::1")),
    ),
    Case(
        "imageRef or template is required without adopt: name a VMImage or a template",
        ("VSphereMachine",),
        {"spec.imageRef": None},
    ),
    Case(
        "imageRef or template is required: name a VMImage or a template",
        ("VSphereMachineTemplate",),
        {"spec.template.spec.imageRef": None},
    ),
    Case(
        "imageRef is required without adopt: name a VMImage",
        ("SimulatedMachine",),
        {"spec.imageRef": None},
    ),
    Case(
        "imageRef is required: name a VMImage",
        ("SimulatedMachineTemplate",),
        {"spec.template.spec.imageRef": None},
    ),
    Case(
        "extraConfig must not have keys of first-boot data, identity, hardware or devices, such as "
        "guestinfo., banlieue, uuid., disk.enableUUID, scsi0: use the fields for that",
        ("VSphereMachine",),
        {"spec.extraConfig": {"GuestInfo.userdata": "x"}},
    ),
    Case(
        "extraConfig must not have keys of first-boot data, identity, hardware or devices, such as "
        "guestinfo., banlieue, uuid., disk.enableUUID, scsi0: use the fields for that",
        ("VSphereMachineTemplate",),
        _in_template({"spec.extraConfig": {"GuestInfo.userdata": "x"}}),
    ),
)

CASES: Final = (*_USERS, *_ADMINS, *_CONTROLLERS)
