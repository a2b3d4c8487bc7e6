"""What a VM is in vSphere's own words, for people to see on its machine. Pure."""

from collections.abc import Sequence
from typing import Any

from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.differing import CLONE_MODE, HARDWARE_VERSION
from banlieue.providers.vsphere.hardware import devices
from banlieue.providers.vsphere.models import CloneMode


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


def values(told: Any) -> dict[int, str]:  # noqa: ANN401 - a list of CustomFieldValues
    """Custom values of a VM by the keys of their definitions."""
    return {item.key: str(getattr(item, "value", "")) for item in told or ()}
