"""What differs between a plan and the VM, and whether it is time to act. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from banlieue.api.types import PowerState
from banlieue.sdk.driver import MachineState
from banlieue.sdk.machine import disk_drift, nic_drift
from banlieue.sdk.machine.nic_drift import Cards

SETTLE_SECONDS = 30.0
"""How long a change made behind our back is left alone before it is corrected."""

POWER = "powerState"
CPUS = "cpus"
MEMORY = "memoryMiB"
DISKS = "disks"
NICS = "networkInterfaces"


@dataclass(frozen=True, slots=True)
class Desired:
    """What a machine asks for, as far as it can be compared with a VM.

    `nics` are the names of its interfaces; None where nothing is said about them. `cards` says
    more about them, by name.
    """

    power: PowerState
    cpus: int | None
    memory_mib: int | None
    disks: Mapping[str, int | None] = field(default_factory=dict)
    nics: Collection[str] | None = None
    cards: Cards = field(default_factory=dict)
    removed_disks: Collection[str] = ()


def differences(want: Desired, seen: MachineState) -> tuple[str, ...]:
    """Spec fields the VM does not match, by API name; what is not asked for never differs."""
    found = []
    if seen.power != want.power:
        found.append(POWER)
    if want.cpus is not None and seen.cpus is not None and seen.cpus != want.cpus:
        found.append(CPUS)
    if (
        want.memory_mib is not None
        and seen.memory_mib is not None
        and seen.memory_mib != want.memory_mib
    ):
        found.append(MEMORY)
    if disk_drift.differ(want.disks, want.removed_disks, seen):
        found.append(DISKS)
    if differing_nics(want, seen):
        found.append(NICS)
    return tuple(found)


def differing_nics(want: Desired, seen: MachineState | None) -> tuple[str, ...]:
    """Names of interfaces that are missing, are not as asked for, or that nobody asks for."""
    if want.nics is None or seen is None or seen.nics is None:
        return ()
    return nic_drift.differing(want.nics, want.cards, seen.nics)


def nics_wait_for_edit(want: Desired, seen: MachineState | None) -> bool:
    """Whether what differs of interfaces is told and left alone until the spec is edited."""
    if want.nics is None or seen is None or seen.nics is None:
        return False
    return nic_drift.waits_for_edit(want.nics, want.cards, seen.nics)


@dataclass(frozen=True, slots=True)
class Patience:
    """Whether to act on a difference now, and if not, for how many seconds to leave it alone."""

    act: bool
    again_after: float | None = None


def patience(*, edited: bool, correct: bool, busy: bool, since: float, now: float) -> Patience:
    """Decide when a difference is acted upon.

    An edit of the spec is acted upon at once. Anything else is drift: corrected only if the policy
    says so, after it has settled, and never while somebody else works on the VM or holds it.
    """
    if busy:
        return Patience(act=False, again_after=SETTLE_SECONDS)
    if edited:
        return Patience(act=True)
    if not correct:
        return Patience(act=False)
    left = since + SETTLE_SECONDS - now
    return Patience(act=True) if left <= 0 else Patience(act=False, again_after=left)
