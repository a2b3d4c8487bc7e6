"""Image files as small as a vCenter takes them: an OVA, a stream-optimized VMDK."""

import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping

DISK_GIB = 1
_SECTORS_PER_GIB = 2 * 1024 * 1024
_FLAGS = 0x30001


def vmdk(*, gib: int = DISK_GIB, size: int = 64 * 1024, flags: int = _FLAGS) -> bytes:
    """A VMDK with a true header and nothing sensible behind it."""
    header = struct.pack("<4sIIQ", b"KDMV", 3, flags, gib * _SECTORS_PER_GIB)
    return header + bytes(index % 251 for index in range(size - len(header)))


def ova(disk: bytes | None = None, *, gib: int = DISK_GIB, name: str = "disk1.vmdk") -> bytes:
    """An OVA of one VM with one disk, one network card and a vApp property."""
    disk = vmdk(gib=gib) if disk is None else disk
    return archive({"image.ovf": descriptor(len(disk), gib, name).encode(), name: disk})


def archive(files: Mapping[str, bytes]) -> bytes:
    """A tar archive of those files, in their order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def manifest(files: Mapping[str, bytes]) -> bytes:
    """The manifest of an OVF in several files."""
    lines = (f"SHA256({name})= {hashlib.sha256(files[name]).hexdigest()}" for name in files)
    return "\n".join((*lines, "")).encode()


def descriptor(disk_size: int, gib: int = DISK_GIB, name: str = "disk1.vmdk") -> str:
    """An OVF descriptor of one VM."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
  xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
  <References><File ovf:id="file1" ovf:href="{name}" ovf:size="{disk_size}"/></References>
  <DiskSection>
    <Info>Disks</Info>
    <Disk ovf:capacity="{gib}" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="vmdisk1"
      ovf:fileRef="file1"
      ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
  </DiskSection>
  <NetworkSection><Info>Networks</Info><Network ovf:name="nat"/></NetworkSection>
  <VirtualSystem ovf:id="image">
    <Info>A VM</Info>
    <ProductSection><Info>Product</Info>
      <Property ovf:key="user-data" ovf:type="string" ovf:userConfigurable="true" ovf:value=""/>
    </ProductSection>
    <VirtualHardwareSection>
      <Info>Hardware</Info>
      <System>
        <vssd:ElementName>Virtual Hardware Family</vssd:ElementName>
        <vssd:InstanceID>0</vssd:InstanceID>
        <vssd:VirtualSystemType>vmx-19</vssd:VirtualSystemType>
      </System>
      <Item><rasd:ElementName>cpus</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID>
        <rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
      <Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits>
        <rasd:ElementName>memory</rasd:ElementName><rasd:InstanceID>2</rasd:InstanceID>
        <rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>512</rasd:VirtualQuantity></Item>
      <Item><rasd:Address>0</rasd:Address><rasd:ElementName>SCSI</rasd:ElementName>
        <rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType>
        <rasd:ResourceType>6</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>disk</rasd:ElementName>
        <rasd:HostResource>ovf:/disk/vmdisk1</rasd:HostResource>
        <rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent>
        <rasd:ResourceType>17</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>7</rasd:AddressOnParent><rasd:Connection>nat</rasd:Connection>
        <rasd:ElementName>card</rasd:ElementName><rasd:InstanceID>5</rasd:InstanceID>
        <rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType>
        <rasd:ResourceType>10</rasd:ResourceType></Item>
    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>
"""
