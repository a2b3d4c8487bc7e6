"""Proves that VMs we destroyed are gone, for all that go together in a few calls.

The proof is the same as for a single VM: the vCenter says of its id that there is no such object,
no VM has its UUID, and the account may read everything from the root down in a session that is
alive. Each part is asked after the VM left the watch, and for all of them together.
"""

import contextlib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import find_by_uuid
from banlieue.providers.vsphere.places import privileges
from banlieue.providers.vsphere.watching import missing
from banlieue.providers.vsphere.watching.census import Census
from banlieue.sdk.driver import MachineRef
from banlieue.sdk.errors import DriverError

_TOGETHER = 2
"""From how many on it is worth to prove them before anybody asks."""

_SECONDS = 15.0
"""For how long a proof serves."""

_BULK = 3000
"""VMs up to which a list of all tells more cheaply which UUIDs there are."""


@dataclass(frozen=True, slots=True)
class _Proof:
    vm: str
    login: int
    until: float


@dataclass(slots=True, kw_only=True)
class Absence:
    """Remembers what we destroy, and what of it is provably gone. Thread-safe."""

    session: Session
    census: Census
    monotonic: Callable[[], float]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _destroyed: dict[str, str] = field(init=False, default_factory=dict)
    _proofs: dict[str, _Proof] = field(init=False, default_factory=dict)

    def destroying(self, uuid: str, vm: str) -> None:
        """A VM is about to be destroyed by us."""
        with self._lock:
            self._destroyed[vm] = uuid.lower()

    def left(self, vms: Collection[str]) -> None:
        """VMs left the watch: prove that those we destroyed are gone.

        What cannot be proved now is looked for by whoever asks.
        """
        now = self.monotonic()
        with self._lock:
            self._proofs = {uuid: it for uuid, it in self._proofs.items() if it.until > now}
            ours = {vm: self._destroyed.pop(vm) for vm in vms if vm in self._destroyed}
        if len(ours) < _TOGETHER:
            return
        with contextlib.suppress(*faults.NATIVE, DriverError):
            self._prove(ours)

    def _prove(self, ours: dict[str, str]) -> None:
        login = self.session.login.number
        gone = missing.proved(self.session, ours)
        uuids = self._unused({ours[vm] for vm in gone})
        if not uuids or not privileges.can_see_everything(self.session):
            return
        if self.session.login.number != login:
            return
        until = self.monotonic() + _SECONDS
        with self._lock:
            for vm in gone:
                if ours[vm] in uuids:
                    self._proofs[ours[vm]] = _Proof(vm, login, until)

    def _unused(self, uuids: Collection[str]) -> frozenset[str]:
        """Those UUIDs that no VM has."""
        if not uuids:
            return frozenset()
        if self.census.size <= _BULK:
            self.census.refresh()
            if not self.census.has_unreadable:
                return frozenset(uuid for uuid in uuids if not self.census.with_uuid(uuid))
        return frozenset(uuid for uuid in uuids if not find_by_uuid(self.session, uuid))

    def is_proven(self, ref: MachineRef, known: Collection[str]) -> bool:
        """Whether the machine's VM was proved to be gone a moment ago; a proof serves once.

        Args:
            ref: the machine, whose VM was seen.
            known: every id its VM has or had: only that of the proof may be among them.
        """
        with self._lock:
            proof = self._proofs.pop((ref.uuid or "").lower(), None)
        if proof is None or not ref.seen or self.monotonic() >= proof.until:
            return False
        return proof.login == self.session.login.number and set(known) <= {proof.vm}
