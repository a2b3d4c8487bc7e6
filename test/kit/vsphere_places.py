"""A small inventory, a template and a plan, for tests of what the vSphere driver decides."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyVmomi import vim

from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.models import VSphereMachineSpec
from banlieue.providers.vsphere.places.inventory import (
    Cluster,
    Datacenter,
    Datastore,
    Host,
    Inventory,
    Network,
    Place,
    Pool,
)
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.places.templates import Template, parse
from banlieue.sdk.driver import DiskPlan, FailureDomain, Image, MachinePlan, MachineRef, NicPlan
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner

Native = Any
"""An object of the vendor's library, which has no types for them."""

Field = Any
"""The value of any field of a place."""

STORES = frozenset({"datastore-1"})
NETS = frozenset({"network-1", "dvportgroup-1"})


def host(number: int, **changes: Field) -> Host:
    plain = Host(
        id=f"host-{number}",
        name=f"esx{number}",
        parent="domain-c1",
        usable=True,
        cpus=8,
        memory_mib=1000,
        used_mib=100 * number,
        datastores=STORES,
        networks=NETS,
    )
    return replace(plain, **changes)


def by_id(places: Iterable[Any]) -> dict[str, Any]:
    return {place.id: place for place in places}


def inventory(*hosts: Host, **changes: Field) -> Inventory:
    hosts = hosts or (host(1), host(2))
    plain = Inventory(
        root="group-d1",
        folders=by_id(
            [
                Place("group-d1", "Datacenters", None),
                Place("group-v1", "vm", "datacenter-1"),
                Place("group-h1", "host", "datacenter-1"),
                Place("group-s1", "datastore", "datacenter-1"),
                Place("group-n1", "network", "datacenter-1"),
                Place("group-v2", "team", "group-v1"),
                Place("group-v3", "web", "group-v2"),
                Place("group-v4", "web", "group-v1"),
            ]
        ),
        datacenters=by_id([Datacenter("datacenter-1", "dc-1", "group-d1", "group-v1")]),
        clusters=by_id(
            [
                Cluster(
                    id="domain-c1",
                    name="blue",
                    parent="group-h1",
                    datacenter="datacenter-1",
                    pool="resgroup-1",
                    hosts=tuple(item.id for item in hosts),
                    places_vms=True,
                )
            ]
        ),
        hosts=by_id(hosts),
        pools=by_id(
            [
                Pool("resgroup-1", "Resources", "domain-c1", "domain-c1"),
                Pool("resgroup-2", "prod", "resgroup-1", "domain-c1"),
            ]
        ),
        datastores=by_id([Datastore("datastore-1", "fast/a", "group-s1", True)]),
        networks=by_id(
            [
                Network("network-1", "VM Network", "group-n1"),
                Network("dvportgroup-1", "prod", "group-n1", "dvportgroup-1", "50 2c"),
            ]
        ),
    )
    return replace(plain, **changes)


UUID = "11111111-2222-4333-8444-555555555555"
OWNER = Owner("inst", OWNER_VIRTUAL_MACHINE, "team", "web")
KIB = 1024 * 1024


def template(*, snapshot: bool = True, disks: int = 1) -> Template:
    hardware: list[Native] = [vim.vm.device.ParaVirtualSCSIController(key=1000, busNumber=0)]
    hardware += [
        vim.vm.device.VirtualDisk(
            key=2000 + number,
            controllerKey=1000,
            unitNumber=number,
            capacityInKB=10 * KIB,
            backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
                fileName=f"[ds1] ubuntu/{number}.vmdk", datastore=vim.Datastore("datastore-1", None)
            ),
        )
        for number in range(disks)
    ]
    hardware.append(vim.vm.device.VirtualE1000(key=4000))
    values: dict[str, Native] = {
        "name": "ubuntu",
        "config.hardware.device": hardware,
        "config.firmware": "efi",
    }
    if snapshot:
        values["snapshot.currentSnapshot"] = vim.vm.Snapshot("snapshot-2", None)
        child = vim.vm.SnapshotTree(name="v2", snapshot=vim.vm.Snapshot("snapshot-2", None))
        root = vim.vm.SnapshotTree(
            name="v1", snapshot=vim.vm.Snapshot("snapshot-1", None), childSnapshotList=[child]
        )
        values["snapshot.rootSnapshotList"] = [root]
    return parse(Found("VirtualMachine", "vm-9", values))


def plan(size: int | None = 10, **spec: Native) -> Plan:
    return MachinePlan(
        ref=MachineRef(OWNER, 0, "web-abc", UUID, failure_domain="domain-c1"),
        mark=Mark(OWNER, UUID),
        spec=VSphereMachineSpec.model_construct(**spec),
        provider_id=f"vsphere://{UUID}",
        failure_domain=FailureDomain("domain-c1", ("dc", "blue")),
        image=Image("vm-9"),
        hostname="web",
        cpus=2,
        memory_mib=4096,
        firmware="efi",
        disks=(DiskPlan("root", size, {}),),
        nics=(NicPlan("eth0", {"portGroup": "prod"}),),
    )
