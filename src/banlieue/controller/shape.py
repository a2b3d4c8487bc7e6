"""Disks and interfaces of a machine: those of its class, overridden and extended by name. Pure."""

from collections.abc import Iterable

from banlieue.api.devices import (
    AddressAssignment,
    AddressRequest,
    Disk,
    InterfaceRequest,
    NetworkInterface,
)
from banlieue.api.names import ROOT_DISK
from banlieue.api.types import AddressSource
from banlieue.api.v1alpha1.vmclass import ClassNetwork, Hardware

ROOT = ROOT_DISK


def disks(hardware: Hardware, own: Iterable[Disk]) -> list[Disk]:
    """All disks, the class's first, each with what the object says about it."""
    merged = {
        disk.name: Disk(name=disk.name, size_gib=disk.size_gib, storage_class=disk.storage_class)
        for disk in hardware.disks
    }
    for disk in own:
        base = merged.get(disk.name)
        merged[disk.name] = disk.model_copy(
            update={
                "size_gib": disk.size_gib or (base.size_gib if base else None),
                "storage_class": disk.storage_class or (base.storage_class if base else None),
            }
        )
    return list(merged.values())


def interfaces(network: ClassNetwork, own: Iterable[InterfaceRequest]) -> list[InterfaceRequest]:
    """All interfaces, the class's first, each with what the object says about it."""
    merged = {
        nic.name: InterfaceRequest(name=nic.name, network_class=nic.network_class)
        for nic in network.interfaces
    }
    for nic in own:
        base = merged.get(nic.name)
        network_class = nic.network_class or (base.network_class if base else None)
        merged[nic.name] = nic.model_copy(update={"network_class": network_class})
    return list(merged.values())


def problem(hardware: Hardware, network: ClassNetwork, own: "Own") -> str | None:
    """What keeps class and object from making one machine, as a sentence; else None."""
    for disk in disks(hardware, own.disks):
        if disk.name != ROOT and disk.size_gib is None and disk.existing is None:
            return f"disk {disk.name} has no size; give sizeGiB in spec.disks or in the class"
    for nic in interfaces(network, own.interfaces):
        if nic.network_class is None:
            return (
                f"interface {nic.name} has no network class; "
                "give networkClass in spec.networkInterfaces or in the class"
            )
    return None


class Own:
    """What the object itself says about devices."""

    def __init__(self, own_disks: Iterable[Disk], own_nics: Iterable[InterfaceRequest]) -> None:
        self.disks = tuple(own_disks)
        self.interfaces = tuple(own_nics)


def machine_interfaces(
    own: Iterable[InterfaceRequest], current: Iterable[NetworkInterface] = ()
) -> list[NetworkInterface]:
    """The object's interfaces as the machine carries them.

    Addresses claimed from pools are kept as they stand on the machine.
    """
    present = {nic.name: nic for nic in current}
    return [_interface(nic, present.get(nic.name)) for nic in own]


def _interface(nic: InterfaceRequest, present: NetworkInterface | None) -> NetworkInterface:
    claimed = {entry.family: entry for entry in (present.ipam if present else ())}
    return NetworkInterface(
        name=nic.name,
        network_class=nic.network_class,
        mac_address=present.mac_address if present else None,
        connected=present.connected if present else None,
        ipam=[_assignment(wish, claimed.get(wish.family)) for wish in nic.ipam],
    )


def _assignment(wish: AddressRequest, claimed: AddressAssignment | None) -> AddressAssignment:
    if claimed is not None and wish.source is claimed.source is AddressSource.POOL:
        return claimed
    return AddressAssignment(family=wish.family, source=wish.source, address=wish.address)
