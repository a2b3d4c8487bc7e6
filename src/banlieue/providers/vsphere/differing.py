"""Which of the fields only vSphere has a VM does not match. Pure, without pyVmomi."""

from banlieue.providers.vsphere.models import VSphereMachineSpec
from banlieue.sdk.driver import MachineState

CLONE_MODE = "cloneMode"
HARDWARE_VERSION = "hardwareVersion"
LEAVING_DISKS = "leavingDisks"
"""The fact that names disks which were taken off and are on their way to where kept ones lie."""


def version_number(version: str | None) -> int:
    """19 of `vmx-19`; 0 of what says nothing."""
    digits = (version or "").rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def attribute(name: str) -> str:
    """What the fact of a custom attribute is called."""
    return f"customAttributes[{name}]"


def differing(spec: VSphereMachineSpec, seen: MachineState) -> tuple[str, ...]:
    """Names of fields that the VM does not match, of those that follow the spec for life."""
    found = []
    present = seen.facts.get(HARDWARE_VERSION)
    if present and version_number(present) < version_number(spec.hardware_version):
        found.append("hardwareVersion")
    wanted = {attribute(name): value for name, value in spec.custom_attributes.items()}
    if any(seen.facts.get(name) != value for name, value in wanted.items()):
        found.append("customAttributes")
    if seen.facts.get(LEAVING_DISKS):
        found.append("disks")
    return tuple(found)
