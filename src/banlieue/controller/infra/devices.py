"""Devices a VirtualMachine asks for, checked, and as its machine carries them. Pure."""

from collections.abc import Iterable

from banlieue.api.devices import (
    AddressAssignment,
    AddressRequest,
    InterfaceRequest,
    NetworkInterface,
)
from banlieue.api.infrastructure.machine import ClassSnapshot
from banlieue.api.names import ROOT_DISK
from banlieue.api.types import AddressSource
from banlieue.api.v1alpha1.virtualmachine import VirtualMachineSpec
from banlieue.api.v1alpha1.vmclass import VMClassSpec
from banlieue.sdk import shape


def problem(vm_class: VMClassSpec, own: VirtualMachineSpec) -> str | None:
    """What keeps class and object from making one machine, as a sentence; else None."""
    for disk in shape.disks(vm_class.hardware, own.disks):
        if disk.name != ROOT_DISK and disk.size_gib is None and disk.existing is None:
            return f"disk {disk.name} has no size; give sizeGiB in spec.disks or in the class"
    for nic in shape.interfaces(InterfaceRequest, vm_class.network, own.network_interfaces):
        if nic.network_class is None:
            return (
                f"interface {nic.name} has no network class; "
                "give networkClass in spec.networkInterfaces or in the class"
            )
    return None


def machine_interfaces(
    own: Iterable[InterfaceRequest], current: Iterable[NetworkInterface] = ()
) -> list[NetworkInterface]:
    """The object's interfaces as the machine carries them.

    Addresses claimed from pools are kept as they stand on the machine.
    """
    present = {nic.name: nic for nic in current}
    return [_interface(nic, present.get(nic.name)) for nic in own]


def plugged(
    own: Iterable[NetworkInterface], snapshot: ClassSnapshot | None, *, plugged: bool
) -> list[NetworkInterface]:
    """A machine's interfaces, all of them plugged in or, those of its class too, all of them not.

    Args:
        own: the object's interfaces as the machine carries them.
        snapshot: the machine's class.
        plugged: which of the two.
    """
    if plugged:
        return [nic.model_copy(update={"connected": None}) for nic in own]
    every = shape.interfaces(NetworkInterface, snapshot.network if snapshot else None, own)
    return [nic.model_copy(update={"connected": False}) for nic in every]


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
