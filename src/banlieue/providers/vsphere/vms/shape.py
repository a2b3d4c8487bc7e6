"""The shape of a VM beyond its disks and interfaces: firmware, features, processors, PCI devices.

Pure over the plan and the template. What cannot be had together is refused here, with the field.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import Feature
from banlieue.providers.vsphere.differing import version_number
from banlieue.providers.vsphere.models import Shares
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.places.templates import Template
from banlieue.sdk.errors import InvalidSpec

PCI_VERSION = 17
"""Least hardware version with PCI devices that are assigned by label."""

NVME_VERSION = 13
TPM_VERSION = 14

_EFI = "efi"
_SECURE = "efi-secure"
_FIRST_PCI = -500
_TPM_KEY = -600
_PASSTHROUGH = vim.vm.device.VirtualPCIPassthrough


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A kind of PCI device that hosts offer under a label."""

    label: str
    vendor_id: int
    device_id: int


Offered = Mapping[str, tuple[PciDevice, ...]]
"""What is offered under each label."""


def upgrade_to(plan: Plan, present: str | None) -> str | None:
    """The hardware version to upgrade to before the VM is started; None when it has it."""
    wanted = plan.spec.hardware_version
    if wanted is None or version_number(wanted) <= version_number(present):
        return None
    return wanted


def config(plan: Plan, template: Template) -> dict[str, Any]:
    """Fields of the `ConfigSpec` of a clone.

    Raises:
        InvalidSpec: what is asked for cannot be had together.
    """
    secure = plan.firmware == _SECURE or _has(plan, Feature.SECURE_BOOT)
    is_efi = plan.firmware.startswith(_EFI)
    if secure and not is_efi:
        raise _invalid("features: SecureBoot needs firmware efi; set firmware to efi-secure")
    if _has(plan, Feature.TPM):
        _check_tpm(plan, template, is_efi=is_efi)
    return {
        "firmware": _EFI if is_efi else plan.firmware,
        "bootOptions": vim.vm.BootOptions(efiSecureBootEnabled=secure) if is_efi else None,
        "numCoresPerSocket": cores_per_socket(plan, template.cores_per_socket),
        "cpuHotAddEnabled": _has(plan, Feature.HOT_ADD_CPU) or None,
        "memoryHotAddEnabled": _has(plan, Feature.HOT_ADD_MEMORY) or None,
        "nestedHVEnabled": _has(plan, Feature.NESTED_VIRTUALIZATION) or None,
        "memoryReservationLockedToMax": bool(plan.spec.pci_device_labels) or None,
        **allocations(plan),
    }


def tpm(plan: Plan, attached: Iterable[Any]) -> list[Any]:
    """The addition of a trusted platform module, unless there is one."""
    present = any(isinstance(it, vim.vm.device.VirtualTPM) for it in attached)
    if present or not _has(plan, Feature.TPM):
        return []
    return [
        vim.vm.device.VirtualDeviceSpec(
            operation="add", device=vim.vm.device.VirtualTPM(key=_TPM_KEY)
        )
    ]


def cores_per_socket(plan: Plan, present: int | None) -> int | None:
    """What to set so that sockets are whole; None to leave it as it is.

    Raises:
        InvalidSpec: the number asked for does not divide that of the processors.
    """
    wanted = plan.spec.num_cores_per_socket
    if wanted is not None:
        if plan.cpus % wanted:
            raise _invalid(
                f"numCoresPerSocket {wanted} does not divide cpus {plan.cpus}; choose one that does"
            )
        return wanted
    if present is None or present < 1 or plan.cpus % present == 0:
        return None
    return math.gcd(plan.cpus, present)


def allocations(plan: Plan) -> dict[str, Any]:
    """Reservations, limits and shares; only what is asked for."""
    found: dict[str, Any] = {}
    cpu, memory = plan.spec.cpu_allocation, plan.spec.memory_allocation
    if cpu is not None:
        found["cpuAllocation"] = _allocation(cpu.reservation_mhz, cpu.limit_mhz, cpu.shares)
    if memory is not None:
        reserved, limit = memory.reservation_mib, memory.limit_mib
        if reserved is not None and reserved > plan.memory_mib:
            raise _invalid(
                f"memoryAllocation.reservationMiB {reserved} is more than memoryMiB "
                f"{plan.memory_mib}; reserve at most that"
            )
        if limit is not None and limit < max(reserved or 0, plan.memory_mib):
            raise _invalid(
                f"memoryAllocation.limitMiB {limit} is less than the VM's memory, so its host "
                "would swap it; raise it, or leave it out"
            )
        found["memoryAllocation"] = _allocation(reserved, limit, memory.shares)
    if cpu is not None and (cpu.limit_mhz or math.inf) < (cpu.reservation_mhz or 0):
        raise _invalid("cpuAllocation.limitMhz is less than reservationMhz; raise it")
    return found


def _allocation(reservation: int | None, limit: int | None, shares: Shares | None) -> Any:  # noqa: ANN401 - a ResourceAllocationInfo
    return vim.ResourceAllocationInfo(
        reservation=reservation,
        limit=limit,
        shares=vim.SharesInfo(level=shares.value.lower(), shares=0) if shares else None,
    )


# PCI devices


def pci_changes(labels: Iterable[str], attached: Iterable[Any], offered: Offered) -> list[Any]:
    """The additions of those PCI devices that the VM has not yet, by their labels.

    Raises:
        InvalidSpec: no host offers a device under a label.
    """
    left = [label for device in attached if (label := _label_of(device))]
    changes: list[Any] = []
    for label in labels:
        if label in left:
            left.remove(label)
            continue
        kinds = offered.get(label, ())
        if not kinds:
            raise _invalid(
                f"pciDeviceLabels: no host here offers a device with hardware label {label!r}; "
                f"{_other_labels(offered)}"
            )
        changes.append(_pci(_FIRST_PCI - len(changes), label, kinds))
    return changes


def _other_labels(offered: Offered) -> str:
    if not offered:
        return "no device here has a label: have one labelled, or remove the label from the field"
    return f"label one, or name one of: {', '.join(sorted(offered))}"


def _label_of(device: Any) -> str | None:  # noqa: ANN401 - a VirtualDevice
    if not isinstance(device, _PASSTHROUGH):
        return None
    return getattr(device.backing, "customLabel", None)


def _pci(key: int, label: str, kinds: tuple[PciDevice, ...]) -> Any:  # noqa: ANN401 - a VirtualDeviceSpec
    return vim.vm.device.VirtualDeviceSpec(
        operation="add",
        device=_PASSTHROUGH(
            key=key,
            backing=_PASSTHROUGH.DynamicBackingInfo(
                deviceName="",
                customLabel=label,
                allowedDevice=[
                    _PASSTHROUGH.AllowedDevice(vendorId=it.vendor_id, deviceId=it.device_id)
                    for it in kinds
                ],
            ),
        ),
    )


def check_version(
    field: str,
    needed: int,
    present: str | None,
    remedy: str = "raise hardwareVersion, or use a newer template",
) -> None:
    """Raise `InvalidSpec` unless the hardware version suffices for a field."""
    if present and version_number(present) < needed:
        raise _invalid(
            f"{field} needs virtual hardware vmx-{needed} or later, and this is {present}; {remedy}"
        )


def _check_tpm(plan: Plan, template: Template, *, is_efi: bool) -> None:
    if not is_efi:
        raise _invalid("features: TPM needs firmware efi; set firmware to efi or efi-secure")
    coming = upgrade_to(plan, template.version) or template.version
    check_version("features: TPM", TPM_VERSION, coming)


def _has(plan: Plan, feature: Feature) -> bool:
    return feature.value in plan.features


def _invalid(message: str) -> InvalidSpec:
    return InvalidSpec(Reason.INVALID_CONFIGURATION, message)
