"""What an imported image's VM is: from an OVF descriptor, or made up for a bare disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.images import formats
from banlieue.sdk.errors import InvalidSpec, NativeError, Transient

IMAGE_KEY = "banlieue.image"
"""Extra configuration of what was imported: the name it is published under, and, once it is whole,
its own UUID. Copies copy the value, and are told from the image by the UUID.
"""

_GUEST = "otherLinux64Guest"
_MEMORY_MIB = 1024
_CONTROLLER = -100
_DISK_FILE = "disk"


def taken() -> Transient:
    """The name of an image, or of a part of one, is taken: another attempt was faster."""
    return Transient(
        Reason.IMAGE_IMPORT_FAILED,
        "another process imports the image; it is looked for again",
    )


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be made of an image: under which name, and where, by managed object ids."""

    part: str
    name: str
    pool: str
    datastore: str
    datastore_name: str
    firmware: str | None


@dataclass(frozen=True, slots=True)
class Import:
    """A VM to import.

    `files` gives for each file's name the key its target is known by, and whether it is a disk.
    """

    spec: Any
    files: Mapping[str, tuple[str, bool]]


def from_descriptor(session: Session, text: str, wish: Wish) -> Import:
    """The VM of an OVF descriptor, without its network cards and vApp settings.

    Machines get cards of their own and their first-boot data by guestinfo; settings that a vApp
    brings along would be a second source of it.

    Raises:
        InvalidSpec: the vCenter cannot use the descriptor.
    """

    def create(login: Login) -> Any:  # noqa: ANN401 - an OvfCreateImportSpecResult
        parameters = vim.OvfManager.CreateImportSpecParams(
            locale="",
            deploymentOption="",
            entityName=wish.part,
            diskProvisioning="thin",
            networkMapping=[],
            propertyMapping=[],
        )
        manager = vim.OvfManager(login.content.ovf_manager, login.ops)
        return manager.CreateImportSpec(
            ovfDescriptor=text,
            resourcePool=vim.ResourcePool(wish.pool, login.ops),
            datastore=vim.Datastore(wish.datastore, login.ops),
            cisp=parameters,
        )

    result = session.run(create)
    if result.error or result.importSpec is None:
        raise _unusable(result.error or ())
    if not isinstance(result.importSpec, vim.vm.VmImportSpec):
        raise formats.damaged("it holds several virtual machines; export one alone")
    config = result.importSpec.configSpec
    config.deviceChange = [
        change
        for change in config.deviceChange or ()
        if not isinstance(change.device, vim.vm.device.VirtualEthernetCard)
    ]
    config.vAppConfig = None
    _ours(config, wish)
    files: dict[str, tuple[str, bool]] = {}
    for item in result.fileItem or ():
        if item.compressionMethod or item.chunkSize:
            raise formats.damaged(f"its file {item.path} is compressed or cut into pieces")
        files[item.path] = (item.deviceId, not item.create)
    return Import(result.importSpec, files)


def from_disk(capacity_kib: int, wish: Wish) -> Import:
    """The VM of a bare disk: one processor, a paravirtual controller, the disk, nothing else."""
    controller = vim.vm.device.ParaVirtualSCSIController(
        key=_CONTROLLER, busNumber=0, sharedBus="noSharing"
    )
    disk = vim.vm.device.VirtualDisk(
        key=_CONTROLLER - 1,
        controllerKey=_CONTROLLER,
        unitNumber=0,
        capacityInKB=capacity_kib,
        backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
            fileName=f"[{wish.datastore_name}]", diskMode="persistent", thinProvisioned=True
        ),
    )
    firmware = wish.firmware or "bios"
    config = vim.vm.ConfigSpec(
        name=wish.part,
        guestId=_GUEST,
        numCPUs=1,
        memoryMB=_MEMORY_MIB,
        firmware="efi" if firmware.startswith("efi") else firmware,
        files=vim.vm.FileInfo(vmPathName=f"[{wish.datastore_name}]"),
        deviceChange=[
            vim.vm.device.VirtualDeviceSpec(operation="add", device=controller),
            vim.vm.device.VirtualDeviceSpec(operation="add", fileOperation="create", device=disk),
        ],
    )
    _ours(config, wish)
    spec = vim.vm.VmImportSpec(configSpec=config, resPoolEntity=None)
    return Import(spec, {formats.DISK: ("", True)})


def _ours(config: Any, wish: Wish) -> None:  # noqa: ANN401 - a ConfigSpec
    """Name it, and say on it that it was imported."""
    config.name = wish.part
    config.annotation = f"image {wish.name}, imported by banlieue"
    option = vim.option.OptionValue(key=IMAGE_KEY, value=wish.name)
    config.extraConfig = [*(config.extraConfig or ()), option]


def _unusable(errors: Any) -> InvalidSpec:  # noqa: ANN401 - a list of LocalizedMethodFault
    first = next(iter(errors), None)
    fault = getattr(first, "fault", None) or first
    named = faults.fault_name(fault) if isinstance(fault, vmodl.MethodFault) else "no import spec"
    text = getattr(first, "localizedMessage", None) or getattr(fault, "msg", None) or ""
    return InvalidSpec(
        Reason.IMAGE_IMPORT_FAILED,
        f"the vCenter cannot use the image's OVF descriptor ({named}); correct the image",
        native=NativeError(named, str(text)[:1024]),
    )
