"""What an adopted machine asks for: whatever its spec leaves out stays as it is. Pure."""

from collections.abc import Collection
from dataclasses import replace

from banlieue.api.infrastructure.machine import MachineSpec, Reserved, ReservedMac
from banlieue.sdk.driver import MachineState
from banlieue.sdk.machine.drift import Desired

_MOST_INTERFACES = 16
_MOST_DISKS = 64


def as_adopted(want: Desired, spec: MachineSpec, seen: MachineState | None) -> Desired:
    """The wishes of a spec, completed by what the VM has.

    Args:
        want: what the spec and its class say.
        spec: the machine's spec.
        seen: its VM as observed; without it nothing can be completed.
    """
    if spec.adopt is None or seen is None:
        return want
    there = {nic.name for nic in seen.nics or () if nic.name is not None}
    came_along = _came_along(spec, there) & there
    return replace(
        want,
        power=spec.power_state or seen.power,
        cpus=want.cpus or seen.cpus,
        memory_mib=want.memory_mib or seen.memory_mib,
        removed_disks=tuple(set(want.removed_disks) - disks_it_had(spec)),
        nics=None if want.nics is None else tuple(dict.fromkeys([*want.nics, *sorted(came_along)])),
    )


def left_alone(spec: MachineSpec, listed: Collection[str]) -> frozenset[str]:
    """Interfaces the VM came along with and the spec does not list: nobody touches them."""
    if spec.adopt is None:
        return frozenset()
    return frozenset(_came_along(spec, ()) - set(listed))


def disks_it_had(spec: MachineSpec) -> frozenset[str]:
    """Names of the disks an adopted VM came along with: no edit of a spec ever removes them."""
    instance = spec.instance if spec.adopt is not None else None
    return frozenset(instance.reserved.adopted_disks if instance and instance.reserved else ())


def reserved(seen: MachineState) -> Reserved | None:
    """The devices a VM came along with, as its machine remembers them."""
    nics = [
        ReservedMac(nic=nic.name, address=nic.mac_address.lower())
        for nic in seen.nics or ()
        if nic.name is not None and nic.mac_address
    ]
    disks = [disk.name for disk in seen.disks if disk.name is not None]
    if not (nics or disks):
        return None
    return Reserved(mac_addresses=nics[:_MOST_INTERFACES], adopted_disks=disks[:_MOST_DISKS])


def _came_along(spec: MachineSpec, otherwise: Collection[str]) -> set[str]:
    """Names of the interfaces the VM had when it was taken over; `otherwise` until it was."""
    if spec.instance is None:
        return set(otherwise)
    remembered = spec.instance.reserved
    return {entry.nic for entry in remembered.mac_addresses} if remembered else set()
