"""Disks, network interfaces and addresses, as users, classes and machines describe them."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import Rule, list_map
from banlieue.api.meta import Model
from banlieue.api.types import (
    AddressSource,
    AddressType,
    ClassName,
    Count,
    DiskName,
    InterfaceName,
    IpAddress,
    IPFamily,
    Line,
    MacAddress,
    Observed,
    ReclaimPolicy,
    SizeGiB,
)


class ClassDisk(Model):
    """A disk every machine of a class has."""

    name: DiskName = Field(
        description="Name of the disk. `root` is the one that boots, made from the image."
    )
    size_gib: SizeGiB | None = Field(
        default=None,
        description="Size in GiB. Default for `root`: the size of the image; others need one.",
    )
    storage_class: ClassName | None = Field(
        default=None,
        description="Storage class, a name the Providers declare. Default: where the backend "
        "puts disks by itself.",
    )

    cel = (
        Rule(
            "self.name == 'root' || has(self.sizeGiB)",
            "sizeGiB must be given for a disk other than root: add it",
            ".sizeGiB",
        ),
    )


class Disk(Model):
    """A disk of one machine, beside or instead of the class's disk of the same name."""

    name: DiskName = Field(
        description="Name of the disk. One the class has too overrides it; `root` is the one "
        "that boots."
    )
    size_gib: SizeGiB | None = Field(
        default=None,
        description="Size in GiB; it can only grow. Default: the class's size, or the image's "
        "for `root`.",
    )
    storage_class: ClassName | None = Field(
        default=None,
        description="Storage class, a name the Providers declare. Used when the disk is made. "
        "Default: the class's.",
    )
    reclaim_policy: ReclaimPolicy | None = Field(
        default=None,
        description="What becomes of the disk when its machine is destroyed, or when it is not "
        "listed any more. `Retain` keeps it on the backend, to be attached again by `existing`. "
        "Default: `Delete`; `Retain` for a disk with `existing`.",
    )
    existing: Line | None = Field(
        default=None,
        description="Id of a retained disk of this namespace to attach instead of making a new "
        "one. Fixed for a disk once it is listed.",
    )

    @property
    def wanted_reclaim_policy(self) -> ReclaimPolicy:
        """What becomes of the disk, given or by default: data of before is kept unless told."""
        return self.reclaim_policy or (
            ReclaimPolicy.RETAIN if self.existing else ReclaimPolicy.DELETE
        )

    cel = (
        Rule(
            "self.name != 'root' || !has(self.existing)",
            "existing is not for disk root, which is made from the image: list the disk under "
            "another name",
            ".existing",
        ),
        Rule(
            "!has(oldSelf.sizeGiB) || (has(self.sizeGiB) && self.sizeGiB >= oldSelf.sizeGiB)",
            "sizeGiB can only grow: give a size at least as large as before, or add a second disk",
            ".sizeGiB",
        ),
        Rule(
            "has(self.existing) == has(oldSelf.existing) && "
            "(!has(self.existing) || self.existing == oldSelf.existing)",
            "existing is fixed for a listed disk: remove this disk and add one of another name",
            ".existing",
        ),
    )


Disks = Annotated[list[Disk], MaxLen(32), list_map("name")]


class RemovedDisk(Model):
    """A disk that was listed once and is to go from the machine."""

    name: DiskName = Field(description="Name the disk was listed by.")
    reclaim_policy: ReclaimPolicy = Field(
        description="What becomes of it: `Delete` destroys it, `Retain` keeps it on the backend."
    )
    existing: Line | None = Field(
        default=None, description="Id it was attached by, which it is kept under again."
    )


RemovedDisks = Annotated[list[RemovedDisk], MaxLen(32), list_map("name")]


class ClassInterface(Model):
    """A network interface every machine of a class has."""

    name: InterfaceName = Field(
        description="Name of the interface, in the guest too; at most 15 characters."
    )
    network_class: ClassName = Field(
        description="Network class to connect to, a name the Providers declare."
    )


_SLAAC = Rule(
    "self.source != 'slaac' || self.family == 'IPv6'",
    "source slaac exists for family IPv6 only: use dhcp, static or pool",
    ".source",
)
_FAMILY = Rule(
    "!has(self.address) || (isIP(self.address) && "
    "ip(self.address).family() == (self.family == 'IPv4' ? 4 : 6))",
    "address must be one IP address of the family given: correct address or family",
    ".address",
)


class AddressRequest(Model):
    """How one interface gets its address of one family."""

    family: IPFamily = Field(description="`IPv4` or `IPv6`.")
    source: AddressSource = Field(
        description="Where the address comes from: `dhcp`, `slaac` (IPv6 only), `static` (the "
        "`address` below), `pool` (claimed from the network class's pool), or `none`."
    )
    address: IpAddress | None = Field(
        default=None,
        description="The address, with source `static`. It must lie in the network class's "
        "allowStatic; prefix, gateway and DNS come from there.",
    )

    cel = (
        Rule(
            "(self.source == 'static') == has(self.address)",
            "address must be given with source static, and left out with any other source",
            ".address",
        ),
        _SLAAC,
        _FAMILY,
    )


class InterfaceRequest(Model):
    """A network interface of one virtual machine, beside or instead of the class's."""

    name: InterfaceName = Field(
        description="Name of the interface, in the guest too; at most 15 characters. One the "
        "class has too overrides it."
    )
    network_class: ClassName | None = Field(
        default=None,
        description="Network class to connect to, a name the Providers declare. Default: the "
        "class's for this name.",
    )
    ipam: Annotated[list[AddressRequest], MaxLen(2), list_map("family")] = Field(
        default_factory=list,
        description="Addresses by family. Default: what the network offers by itself (DHCP, "
        "SLAAC).",
    )


class AddressAssignment(Model):
    """The address of one family on an interface, with what the guest needs to use it."""

    family: IPFamily = Field(description="`IPv4` or `IPv6`.")
    source: AddressSource = Field(
        description="Where the address comes from: `dhcp`, `slaac` (IPv6 only), `static`, `pool`, "
        "or `none`."
    )
    address: IpAddress | None = Field(
        default=None,
        description="The address. With source `pool` it is written when the claim is bound, and "
        "the machine waits for it.",
    )
    prefix: int | None = Field(
        default=None, ge=0, le=128, description="Length of the network prefix, in bits."
    )
    gateway: IpAddress | None = Field(
        default=None, description="Address of the default gateway. Absent: no default route."
    )

    cel = (
        Rule(
            "self.source in ['static', 'pool'] || !has(self.address)",
            "address must be left out with a source other than static and pool: remove it or "
            "change source",
            ".address",
        ),
        Rule(
            "self.source != 'static' || has(self.address)",
            "address must be given with source static: add it or use dhcp or pool",
            ".address",
        ),
        _SLAAC,
        _FAMILY,
        Rule(
            "!has(self.prefix) || self.family != 'IPv4' || self.prefix <= 32",
            "prefix must be at most 32 with family IPv4: correct prefix or family",
            ".prefix",
        ),
        Rule(
            "!has(self.gateway) || (isIP(self.gateway) && "
            "ip(self.gateway).family() == (self.family == 'IPv4' ? 4 : 6))",
            "gateway must be one IP address of the family given: correct it",
            ".gateway",
        ),
    )


class NetworkInterface(Model):
    """A network interface of one machine."""

    name: InterfaceName = Field(
        description="Name of the interface, in the guest too; at most 15 characters."
    )
    network_class: ClassName | None = Field(
        default=None,
        description="Network class, resolved by the provider against its Provider's "
        "capabilities at the machine's failure domain. Default: the class's for this name.",
    )
    mac_address: MacAddress | None = Field(
        default=None,
        description="MAC address in lower case. Default: the one reserved when the machine was "
        "minted, or one the backend gives.",
    )
    connected: bool | None = Field(
        default=None,
        description="Whether the interface is plugged in. Default: true. False while a moved "
        "machine waits for its predecessor to go off.",
    )
    ipam: Annotated[list[AddressAssignment], MaxLen(2), list_map("family")] = Field(
        default_factory=list,
        description="Addresses by family. Default: what the network offers by itself (DHCP, "
        "SLAAC).",
    )


class MachineAddress(Model):
    """One address of a machine, in the words of Cluster API."""

    type: AddressType = Field(description="What the address is good for.")
    address: str = Field(min_length=1, max_length=256, description="The address itself.")


class ObservedDisk(Model):
    """A disk as the backend has it."""

    name: DiskName = Field(description="Name of the disk in the spec.")
    size_gib: Count | None = Field(
        default=None, description="Size the guest sees, in whole GiB, rounded down."
    )
    guest_path: Observed = Field(
        default=None, description="Stable device path in the guest, such as /dev/disk/by-id/…."
    )
    retain_id: Line | None = Field(
        default=None,
        description="Id to attach the disk by (`disks[].existing`) once it is retained. Only of "
        "disks whose reclaimPolicy is `Retain`.",
    )


class ObservedInterface(Model):
    """A network interface as the backend has it."""

    name: InterfaceName = Field(description="Name of the interface in the spec.")
    connected: bool = Field(description="Whether it is plugged in.")
    mac_address: Observed = Field(default=None, description="Its MAC address.")


class ObservedResources(Model):
    """What the guest really has, as opposed to what was asked for."""

    cpus: Count | None = Field(default=None, description="Virtual processors.")
    memory_mib: Count | None = Field(default=None, description="Memory in MiB.")
    disks: Annotated[list[ObservedDisk], MaxLen(64), list_map("name")] = Field(
        default_factory=list, description="Disks we know by name."
    )


class Guest(Model):
    """What the guest agent tells."""

    hostname: Observed = Field(default=None, description="Host name the guest uses.")
    os_name: Observed = Field(
        default=None, description="Name of the operating system, as the guest gives it."
    )
    agent_connected: bool | None = Field(
        default=None, description="Whether the guest agent answers."
    )
