"""Machine objects that vanished while their VMs may live on: their owners are told at once.

What carries our mark on the backend is read seldom, so a machine object that is lost between two
reads, as by a restore of an older backup, would leave a VM that nobody tells of. Its owner would be
placed anew, perhaps elsewhere, and get a second VM. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from banlieue.api.v1alpha1.provider import Unclaimed, UnclaimedOwner
from banlieue.sdk.identity import adopted_digest
from banlieue.sdk.provider.inventory import MAX_OWNERS

if TYPE_CHECKING:
    from banlieue.sdk.provider.scope import KnownMachine

LINGER = 600.0
"""Seconds for which a lost machine counts that was never seen: its create may still end."""


@dataclass(frozen=True, slots=True)
class _Lost:
    machine: KnownMachine
    since: float


@dataclass(slots=True)
class Claims:
    """The VMs that machine objects of a Provider stand for, and those that stand alone now.

    Attributes:
        unchecked: UUIDs that the backend was not read for since their objects vanished.
    """

    unchecked: set[str] = field(default_factory=set)
    _held: dict[str, KnownMachine] = field(default_factory=dict)
    _torn: set[str] = field(default_factory=set)
    _lost: dict[str, _Lost] = field(default_factory=dict)

    def torn_out(self, uuid: str) -> None:
        """An object went while its provider still held it, so nothing of its VM was proved gone.

        Its intent to destroy does not matter then: a restore took it back, or somebody forced it.
        """
        self._torn.add(uuid.lower())

    def follow(self, machines: Iterable[KnownMachine], now: float) -> frozenset[str]:
        """Take in which machine objects there are.

        An object that went with the intent to destroy had its VM proved gone first, unless it was
        torn out.

        Args:
            machines: all of the Provider, from a cache that is filled.
            now: monotonic seconds.

        Returns:
            UUIDs of VMs that were destroyed since the last call.
        """
        there = {machine.uuid.lower(): machine for machine in machines if machine.uuid}
        gone = {uuid: it for uuid, it in self._held.items() if uuid not in there}
        destroyed = {uuid for uuid, it in gone.items() if it.doomed and uuid not in self._torn}
        for uuid, machine in gone.items():
            if uuid not in destroyed and machine.owner:
                self._lost[uuid] = _Lost(machine, now)
                self.unchecked.add(uuid)
        self._torn.clear()
        for uuid in there:
            self._lost.pop(uuid, None)
            self.unchecked.discard(uuid)
        self._held = there
        return frozenset(destroyed)

    @property
    def lost(self) -> frozenset[str]:
        """UUIDs of VMs whose objects vanished and that may not be listed yet."""
        return frozenset(self._lost)

    def looked(self, before: Collection[str], now: float) -> None:
        """The whole backend was read; it tells the truth about what had vanished by then.

        Only a VM that was never seen may still be coming.

        Args:
            before: the `unchecked` of when the read began.
            now: monotonic seconds.
        """
        self.unchecked -= set(before)
        for uuid, lost in list(self._lost.items()):
            settled = lost.machine.seen or now - lost.since > LINGER
            if uuid not in self.unchecked and settled:
                del self._lost[uuid]

    def add_to(self, told: Unclaimed, claimed: Collection[str]) -> Unclaimed:
        """What is told, and the owners of all that was lost and is not claimed by anybody else."""
        taken = {uuid.lower() for uuid in claimed}
        owners = {(owner.hash, owner.epoch): owner for owner in told.owners}
        fresh = {
            (it.machine.owner, it.machine.epoch): it.machine
            for uuid, it in self._lost.items()
            if uuid not in taken and (it.machine.owner, it.machine.epoch) not in owners
        }
        for (digest, epoch), machine in fresh.items():
            if digest is not None:
                owners[digest, epoch] = UnclaimedOwner(
                    hash=digest,
                    epoch=epoch,
                    incoming=True if machine.incoming else None,
                    vm=adopted_digest(machine.backend_name or "", digest, machine.uuid or ""),
                )
        listed = [owner for _, owner in sorted(owners.items())][:MAX_OWNERS]
        return told.model_copy(update={"owners": listed, "count": told.count + len(fresh)})
