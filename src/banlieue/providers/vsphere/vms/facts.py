"""What a VM is in vSphere's own words, for people to see on its machine. Pure."""

from collections.abc import Sequence
from typing import Any

from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.hardware import devices
from banlieue.providers.vsphere.models import CloneMode

CLONE_MODE = "cloneMode"
HARDWARE_VERSION = "hardwareVersion"


def of(found: Found, name: str) -> dict[str, str]:
    """Facts of a VM from a read of its details.

    Args:
        found: the read.
        name: the VM's name.
    """
    attached: Sequence[Any] = found.get("config.hardware.device") or ()
    path = found.get("config.files.vmPathName") or ""
    facts = {}
    if devices.virtual_disks(attached):
        linked = devices.is_linked(attached, path, name)
        facts[CLONE_MODE] = (CloneMode.LINKED if linked else CloneMode.FULL).value
    version = found.get("config.version")
    if version:
        facts[HARDWARE_VERSION] = str(version)
    return facts
