"""Decides when the details of a VM are read again, and reads those of many VMs in one call."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from pyVmomi import vim

from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, read
from banlieue.providers.vsphere.watching.records import (
    DETAILS,
    VERSION,
    WATCHED,
    Details,
    Records,
    VmRecord,
    read_details,
)

_RETRIES = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Pauses between reads of a guest that runs and does not tell all its addresses."""

_CALM = 10.0
"""Least seconds between two reads of a guest whose addresses are all known."""

_BOOT = 10.0
"""Seconds a VM we just made may take to boot before its details are read without that."""

_CHUNK = 100


class Detailer:
    """Keeps the details of records current. Thread-safe."""

    def __init__(self, session: Session, records: Records, monotonic: Callable[[], float]) -> None:
        self._session = session
        self._records = records
        self._monotonic = monotonic

    def told(self, record: VmRecord, before: tuple[object, object, object]) -> None:
        """Plan a read if what the watch told makes the details doubtful.

        Args:
            record: the record as it is now; the caller holds the records' lock.
            before: its address, agent and power before.
        """
        if record.leaving:
            return
        now = self._monotonic()
        details = record.details
        if details is None:
            details = record.details = self._planned(record, now)
            record.details_due = now if details is None or record.running else now + _BOOT
            record.tries = 0
        elif details.change_version != record.change_version or before[1:] != (
            record.tools,
            record.power,
        ):
            record.details_due, record.tries = now, 0
        elif before[0] != record.ip:
            calm = details.read_at + _CALM if self._records.is_told(record) else now
            record.details_due, record.tries = max(now, calm), 0

    def _planned(self, record: VmRecord, now: float) -> Details | None:
        """What a VM that was just made as planned has, before anybody looked."""
        planned = self._records.planned(record)
        if planned is None:
            return None
        disks, facts = planned
        return Details(disks, (), None, None, record.change_version, now, facts=facts)

    def seconds_until_due(self) -> float | None:
        """When the next read is due; None when none is planned."""
        with self._records.lock:
            dues = [r.details_due for r in self._records.all() if r.details_due is not None]
        return max(0.0, min(dues) - self._monotonic()) if dues else None

    @property
    def expecting(self) -> int:
        """How many VMs run and have not told all their addresses, or have not booted."""
        with self._records.lock:
            return sum(
                1
                for record in self._records.all()
                if record.details_due is not None and not record.gone
            )

    def _due(self) -> list[str]:
        now = self._monotonic()
        with self._records.lock:
            return [
                record.moid
                for record in self._records.all()
                if record.details_due is not None and record.details_due <= now and not record.gone
            ]

    def read_due(self) -> frozenset[str]:
        """Read what is due; the words of VMs whose details changed.

        What cannot be read now is read later.
        """
        words: set[str] = set()
        for chunk in _chunks(self._due()):
            now, known = self._monotonic(), self._versions(chunk)
            wanted = dict.fromkeys(chunk, vim.VirtualMachine)
            try:
                found = read(self._session, wanted, (VERSION, *DETAILS))
            except faults.NATIVE:
                self._put_off(chunk, now)
                continue
            words |= self._take(found, known, now)
        return frozenset(words)

    def read(self, made: list[str]) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
        """Read VMs that nothing is known of, leaves and details, and with them what is due.

        One that cannot be read is left to the watch. Gives the words of those of the first that are
        there, and of the others whose details changed.
        """
        words: dict[str, frozenset[str]] = {}
        changed: set[str] = set()
        for chunk in _chunks([*made, *(self._due() if made else ())]):
            now, known = self._monotonic(), self._versions(chunk)
            try:
                wanted = dict.fromkeys(chunk, vim.VirtualMachine)
                found = read(self._session, wanted, (*WATCHED, *DETAILS))
            except faults.NATIVE:
                continue
            for item in found:
                if item.moid in made:
                    words |= self._take_whole(item, now)
                else:
                    changed |= self._take([item], known, now)
        # What was due and is not read by now.
        return words, frozenset(changed | self.read_due())

    def _take_whole(self, item: Found, now: float) -> dict[str, frozenset[str]]:
        with self._records.lock:
            record = self._records.take(item, now)
            if record.uuid is None:
                return {}
            record.tries = 0
            self._plan_next(record, now)
            return {item.moid: record.words()}

    def _put_off(self, moids: Collection[str], now: float) -> None:
        with self._records.lock:
            for key in moids:
                self._records.ensure(key).details_due = now + _RETRIES[0]

    def _versions(self, moids: Iterable[str]) -> dict[str, str | None]:
        with self._records.lock:
            return {key: self._records.ensure(key).change_version for key in moids}

    def _take(
        self, found: Collection[Found], known: Mapping[str, str | None], begun: float
    ) -> set[str]:
        """Take over answers to a read, given the versions that were known when it began.

        Workers look at VMs meanwhile: what a later look found stays, and what was told of a later
        version has the details read again.
        """
        words: set[str] = set()
        with self._records.lock:
            for item in found:
                record = self._records.ensure(item.moid)
                before = record.details
                if before is not None and before.read_at > begun:
                    continue
                record.details = read_details(record, item, begun)
                self._plan_next(record, begun)
                now = record.change_version
                if now not in {known[item.moid], record.details.change_version}:
                    record.details_due = begun
                if before is None or before.content != record.details.content:
                    words |= record.words()
        return words

    def _plan_next(self, record: VmRecord, now: float) -> None:
        waiting = record.running and not self._records.is_told(record)
        if waiting and record.tries < len(_RETRIES):
            record.details_due = now + _RETRIES[record.tries]
            record.tries += 1
        else:
            record.details_due = None


def _chunks(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
