"""Disks and interfaces of a machine: those of its class, overridden and extended by name. Pure.

The scheduler asks before there is a machine object, the machine's provider afterwards; both get
the same answer from here.
"""

from collections.abc import Iterable
from typing import TypeVar

from banlieue.api.devices import Disk, InterfaceRequest, NetworkInterface
from banlieue.api.v1alpha1.vmclass import ClassNetwork, Hardware

N = TypeVar("N", InterfaceRequest, NetworkInterface)


def disks(hardware: Hardware | None, own: Iterable[Disk]) -> list[Disk]:
    """All disks, the class's first, each with what the object says about it."""
    merged = {
        disk.name: Disk(name=disk.name, size_gib=disk.size_gib, storage_class=disk.storage_class)
        for disk in (hardware.disks if hardware else ())
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


def interfaces(kind: type[N], network: ClassNetwork | None, own: Iterable[N]) -> list[N]:
    """All interfaces, the class's first, each with what the object says about it."""
    merged: dict[str, N] = {
        nic.name: kind(name=nic.name, network_class=nic.network_class)
        for nic in (network.interfaces if network else ())
    }
    for nic in own:
        base = merged.get(nic.name)
        network_class = nic.network_class or (base.network_class if base else None)
        merged[nic.name] = nic.model_copy(update={"network_class": network_class})
    return list(merged.values())
