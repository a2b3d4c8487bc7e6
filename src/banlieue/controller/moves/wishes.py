"""Whether a machine is to move, and what holds the move until somebody decides. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from banlieue.api import names
from banlieue.api.infrastructure.machine import ClassSnapshot, Machine
from banlieue.api.names import ROOT_DISK
from banlieue.api.reasons import Reason
from banlieue.api.types import AddressSource, ReclaimPolicy
from banlieue.api.v1alpha1.virtualmachine import (
    MigrationPolicy,
    MoveStatus,
    Previous,
    VirtualMachine,
)
from banlieue.controller.scheduling.placement import Claim
from banlieue.sdk import shape
from banlieue.sdk.kube import Key


@dataclass(frozen=True, slots=True)
class Wish:
    """Where the machine is to go: to a Provider the user names, or anywhere its spec is met."""

    provider: Key | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Why nothing moves although it is asked for, and what to do."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A VM of this owner that some Provider holds and no machine object claims."""

    provider: Key
    epoch: int


def wish_of(vm: VirtualMachine, here: Key, *, misplaced: bool) -> Wish | None:
    """What the spec asks for; None when the machine is to stay.

    Args:
        vm: the VirtualMachine.
        here: the Provider it is on.
        misplaced: whether its place does not meet the spec any more. That moves nothing but a
            machine that says it holds nothing of value.
    """
    pin = vm.spec.provider_ref
    if pin is not None:
        asked = Key(pin.namespace or vm.metadata.namespace or "", pin.name)
        if asked != here:
            return Wish(asked)
    return Wish() if vm.spec.ephemeral and misplaced else None


def still_wanted(wish: Wish | None, record: MoveStatus) -> bool:
    """Whether a move that goes on is what the spec asks for now."""
    if record.rebind:
        return True
    if wish is None:
        return False
    return wish.provider in {None, target_of(record)}


def target_of(record: MoveStatus) -> Key:
    """The Provider a move goes to."""
    return Key(record.provider_namespace, record.provider_name)


def has_fixed_addresses(vm: VirtualMachine) -> bool:
    """Whether two machines of this spec on the network would be in each other's way.

    Network data of the user's own is not read, so it may hold such addresses.
    """
    fixed = {AddressSource.STATIC, AddressSource.POOL}
    wishes = (wish.source for nic in vm.spec.network_interfaces for wish in nic.ipam)
    return vm.spec.network_data is not None or not fixed.isdisjoint(wishes)


def guest_may_have_fixed_addresses(machine: Machine) -> bool:
    """Whether the guest of a machine that takes part in a move may have fixed addresses.

    A guest keeps the addresses it was made with whatever becomes of the spec: of a machine that
    was left behind its object tells them still, and one that waits unplugged does so for them.
    """
    spec = machine.spec
    fixed = {AddressSource.STATIC, AddressSource.POOL}
    sources = {wish.source for nic in spec.network_interfaces for wish in nic.ipam}
    waits = bool(spec.network_interfaces) and all(
        nic.connected is False for nic in spec.network_interfaces
    )
    return waits or spec.network_data is not None or not fixed.isdisjoint(sources)


def held_by_spec(vm: VirtualMachine, wish: Wish) -> Hold | None:
    """What in the object itself keeps the machine from being built anew elsewhere."""
    spec = vm.spec
    if wish.provider is not None:
        held = _held_by_policy(vm, wish.provider)
        if held is not None:
            return held
    buildable = spec.class_ref is not None and spec.image_ref is not None
    if not buildable or spec.wanted_power_state is None:
        return Hold(
            Reason.INVALID_CONFIGURATION,
            "a move builds the machine anew from its image; give classRef, imageRef and "
            "desiredPowerState, or set providerRef back",
        )
    return None


def _held_by_policy(vm: VirtualMachine, provider: Key) -> Hold | None:
    policy = vm.spec.migration_policy
    if policy is MigrationPolicy.NEVER:
        return Hold(
            Reason.MIGRATION_REFUSED,
            f"spec.providerRef asks for a move to Provider {provider}, and migrationPolicy never "
            "refuses it; set providerRef back, or change migrationPolicy",
        )
    if policy is MigrationPolicy.MANUAL and not is_set(vm, names.ANNOTATION_MIGRATE):
        return Hold(
            Reason.MIGRATION_NOT_APPROVED,
            f"spec.providerRef asks for a move to Provider {provider}; approve it with "
            f"annotation {names.ANNOTATION_MIGRATE}=true, or set providerRef back",
        )
    return None


def held_by_failure(vm: VirtualMachine, wish: Wish, record: MoveStatus | None) -> Hold | None:
    """A move that failed and was undone is not tried again by itself."""
    if record is None or record.failure is None or not still_wanted(wish, record):
        return None
    if is_set(vm, names.ANNOTATION_MIGRATE):
        return None
    return Hold(
        Reason.MIGRATION_FAILED,
        f"no move to Provider {target_of(record)}: {record.failure}; the machine stays where it "
        f"is, set providerRef back, or ask for it with annotation {names.ANNOTATION_MIGRATE}=true",
    )


def held_back(vm: VirtualMachine, here: Key, epoch: int) -> MoveStatus | None:
    """A pin from before a restore does not undo a move that was made after it was saved.

    Returns:
        The record that keeps the machine on Provider `here`, None when the pin does not lead away.
    """
    pin = vm.spec.provider_ref
    asked = Key(pin.namespace or vm.metadata.namespace or "", pin.name) if pin else here
    if asked == here:
        return None
    return MoveStatus(
        provider_name=asked.name,
        provider_namespace=asked.namespace,
        epoch=epoch,
        failure=f"after a restore the machine was found on Provider {here}, where it was moved to "
        "by a later word than providerRef",
    )


def held_by_data(vm: VirtualMachine, snapshot: ClassSnapshot | None) -> Hold | None:
    """Disks whose data a machine that is built anew does not have."""
    if is_set(vm, names.ANNOTATION_ACCEPT_DATA_LOSS):
        return None
    disks = shape.disks(snapshot.hardware if snapshot else None, vm.spec.disks)
    at_risk = sorted(
        disk.name
        for disk in disks
        if disk.wanted_reclaim_policy is ReclaimPolicy.RETAIN
        or (disk.name != ROOT_DISK and not vm.spec.ephemeral)
    )
    if not at_risk:
        return None
    return Hold(
        Reason.DATA_DISKS_AT_RISK,
        f"a move builds the machine anew and leaves the data of its disks {', '.join(at_risk)} "
        "behind on the old one; copy it over yourself and accept that with annotation "
        f"{names.ANNOTATION_ACCEPT_DATA_LOSS}=true, or set providerRef back",
    )


def held_by_previous(previous: Previous | None) -> Hold | None:
    """Only one machine is kept back: a second move would leave another one behind."""
    if previous is None:
        return None
    return Hold(
        Reason.PREVIOUS_RETAINED,
        f"the machine an earlier move left behind ({previous.infrastructure_ref.name}) is still "
        f"kept; release it with annotation {names.ANNOTATION_RELEASE_PREVIOUS}=true first",
    )


def is_set(vm: VirtualMachine, annotation: str) -> bool:
    """Whether the user gave that word."""
    return vm.metadata.annotations.get(annotation) == "true"


def superseding(current: Machine, claims: Iterable[tuple[Key, Claim]]) -> list[Hit]:
    """VMs that were the machine after the current one, as after a restore; the latest ones."""
    later = [
        Hit(provider, claim.epoch)
        for provider, claim in claims
        if not claim.incoming and claim.epoch > current.spec.epoch
    ]
    latest = max((hit.epoch for hit in later), default=0)
    return [hit for hit in later if hit.epoch == latest]


def next_epoch(machines: Sequence[Machine | None], claims: Iterable[tuple[Key, Claim]]) -> int:
    """An epoch later than everything that is known of an owner's VMs."""
    known = [machine.spec.epoch for machine in machines if machine is not None]
    told = [it.status.move.epoch for it in machines if it is not None and it.status.move]
    return max([*known, *told, *(claim.epoch for _, claim in claims)], default=0) + 1


def kept_until(vm: VirtualMachine, previous: Previous) -> datetime | None:
    """When what a move left behind is destroyed; None: when somebody releases it."""
    since = previous.since
    if vm.spec.retain_period is not None and since is not None:
        return since + duration(vm.spec.retain_period)
    return since if vm.spec.ephemeral else None


def duration(text: str) -> timedelta:
    """A length of time as the API spells it, such as `168h` or `1h30m`."""
    seconds, number = 0, ""
    for sign in text:
        if sign.isdigit():
            number += sign
        else:
            seconds += int(number or 0) * {"h": 3600, "m": 60, "s": 1}[sign]
            number = ""
    return timedelta(seconds=seconds)
