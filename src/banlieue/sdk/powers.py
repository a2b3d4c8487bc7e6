"""What a driver may be able to do beyond `Driver`: small protocols, asked for with `isinstance`.

A driver that lacks one says so by not having its methods; nobody calls a method to be told that it
is not implemented. Every verb raises only `banlieue.sdk.errors.DriverError`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from banlieue.sdk.driver import (
    DiskState,
    MachineRef,
    MachineState,
    Task,
)
from banlieue.sdk.identity import Mark, Owner


@dataclass(frozen=True, slots=True)
class Changes:
    """What moved on the backend since the last answer: UUIDs and names of VMs, task handles.

    `everything` asks the caller to look at all its machines again (first answer, lost feed).
    """

    uuids: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    everything: bool = False


@runtime_checkable
class ChangeFeed(Protocol):
    """Optional power: the backend tells what changed, so nobody has to poll."""

    def changes(self, timeout: float) -> Changes:
        """Block for at most `timeout` seconds until something changed; called from one thread."""


@runtime_checkable
class DomainSight(Protocol):
    """Optional power: tell a failure domain that is gone from one that may not be read any more."""

    def hidden_domains(self, ids: Collection[str]) -> Collection[str]:
        """Those of failure domains shown before that are still there, but not to be seen."""


@runtime_checkable
class Inventory(Protocol):
    """Optional power: list what carries a mark of ours, for orphans and restores."""

    def marked(self) -> Sequence[MachineState]:
        """Every VM with a mark that the session can see; one bulk read."""


@runtime_checkable
class CreateWatch(Protocol):
    """Optional power: tell which VMs are being made, by this process or another, for restores."""

    def creating(self) -> Sequence[str]:
        """Names of ours that running creates will have; `Inventory` shows them when they end."""


@runtime_checkable
class DiskDetacher(Protocol):
    """Optional power: take disks off a VM and keep their data."""

    def detach_disks(self, ref: MachineRef, disks: Sequence[DiskState]) -> Task | None:
        """Detach without deleting; None when none of them is attached any more."""


@dataclass(frozen=True, slots=True)
class KeptDisk:
    """A disk that was made for a VM of ours, is kept apart from any, and says whose it is.

    Only machines of the same installation and namespace may attach it. `failure_domains` are ids
    of the places it can be attached in.
    """

    id: str
    namespace: str
    size_gib: int | None = None
    failure_domains: tuple[str, ...] = ()


@runtime_checkable
class DiskKeeper(Protocol):
    """Optional power: keep disks of ours apart from any VM, to be found and attached again.

    What is kept bears the installation and the namespace of the machine it was taken from. No two
    VMs ever get the same one: who attaches it takes it out of what is kept, in one step.
    """

    def keep_disks(self, ref: MachineRef, disks: Mapping[str, str]) -> Task | None:
        """Take one step towards keeping disks of a VM: detach, then keep; None when all are kept.

        `disks` gives the id for each name. One that is neither attached nor on its way is left out.
        What an earlier process began is finished here, by `update` and by `delete` alike.
        """

    def kept_disk(self, owner: Owner, disk: str) -> KeptDisk | None:
        """The kept disk of that id as it is now, if it is one of the owner's own namespace."""

    def kept_disks(self, installation_id: str) -> Sequence[KeptDisk] | None:
        """All kept disks of an installation; None while that is being found out: ask again."""


@runtime_checkable
class MarkRemover(Protocol):
    """Optional power: take our mark off a VM that is released to its user."""

    def remove_mark(self, ref: MachineRef) -> Task | None:
        """Remove the mark, change nothing else; None when there is none."""


@runtime_checkable
class MarkWriter(Protocol):
    """Optional power: say on a VM where it stands in a move; without it nothing is ever moved."""

    def write_mark(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Write `mark` on the VM of `ref.uuid`, change nothing else; None when it stands there.

        What is there is read in the same step as it is replaced, as far as the backend can: the
        later epoch that another process wrote meanwhile stays.

        Raises `Foreign` when the VM has no valid mark that `may_replace` lets `mark` follow.
        """


@runtime_checkable
class SeedRedactor(Protocol):
    """Optional power: take secrets of the first boot off the backend when no guest needs them.

    `MachineState.seed` says where a VM stands. What a guest needs for life stays: its identity,
    host name, network and keys, by which the next boots are boots of the same instance.
    """

    def redact_seed(self, ref: MachineRef) -> Task | None:
        """Clear the user data of the VM of `ref.uuid`; None when a read proves that none is left.

        Whoever calls knows that the guest has had it. Where a boot was interrupted, or a guest was
        never started, it is still needed. Raises `Foreign` when the VM's mark is not the owner's.
        """


@runtime_checkable
class OwnerIndex(Protocol):
    """Optional power: find all VMs of one owner; without it `Inventory.marked` is asked."""

    def made_for(self, owner: Owner) -> Sequence[MachineState]:
        """Every VM with a valid mark of that owner, of whatever epoch, as known or read now."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A VM of the backend, ours or not, as one looks at it before adopting it.

    `id` is the backend's stable id of it, the one `Adoption.find` takes. The disks and interfaces
    in `state` have the names they are given when it is adopted; those without a name are not its
    own (volumes, disks that a backup attached) and stay foreign. `hardware_uuid` is the UUID its
    guest sees, which its provider ID is made of. `path` is where people find it.
    """

    id: str
    state: MachineState
    hardware_uuid: str
    firmware: str | None = None
    template: bool = False
    path: str = ""


@runtime_checkable
class Adoption(Protocol):
    """Optional power: take over VMs that exist already."""

    def find(self, id_: str) -> Candidate | None:
        """The VM of that id as it is now, None when the session sees none; changes nothing.

        Raises `Foreign` when several VMs have the id.
        """

    def candidates(self) -> Sequence[Candidate]:
        """Every VM the session can see, marked ones and templates too; one bulk read."""

    def take_over(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Write mark and names of devices on the VM of `ref.uuid`; change nothing else.

        None when they stand there already. Whoever writes first has it: a VM that carries a valid
        mark of somebody else, or gets one before this call is carried out, is left alone. Raises
        `Foreign` for such a VM, and `Transient` or `NeedsOperator` when there is none.
        """
