"""The tags of our VMs: attached once, changed with the labels they come from, else never looked at.

Which tags we put on a VM is written on it, by category and name: only those are ever taken off. A
VM is made with the note of what it will get; later the note is widened before a tag is attached and
narrowed after one was taken off, so that a crash in between loses nothing.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, read
from banlieue.providers.vsphere.client.tags import Tags
from banlieue.providers.vsphere.vms.beside import TAGS_KEY, Named, decode, encode, tags_of
from banlieue.providers.vsphere.vms.work import Work
from banlieue.providers.vsphere.watching.census import Census
from banlieue.providers.vsphere.watching.records import extra_config
from banlieue.sdk.driver import Task
from banlieue.sdk.identity import valid_mark

_NOTE = extra_config(TAGS_KEY)
_CHUNK = 200
_SOON = 1.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What a VM has: our note on it, and ids of the tags that are on it."""

    note: frozenset[Named]
    attached: frozenset[str]


@dataclass(slots=True, kw_only=True)
class Tagging:
    """Brings tags of VMs about, step by step. Thread-safe."""

    session: Session
    tags: Tags
    census: Census
    work: Work
    poll: Callable[[Task], Task | None]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _reading: threading.Lock = field(init=False, default_factory=threading.Lock)
    _made: dict[str, frozenset[Named]] = field(init=False, default_factory=dict)
    _settled: dict[str, frozenset[Named]] = field(init=False, default_factory=dict)
    _known: dict[str, _Known] | None = field(init=False, default=None)
    _writing: dict[str, Task] = field(init=False, default_factory=dict)

    def made(self, uuid: str, tags: Mapping[str, str]) -> None:
        """A VM is being made with the note of these tags, and without any tag."""
        with self._lock:
            self._made[uuid.lower()] = frozenset(tags.items())

    def step(self, vm: str, uuid: str, tags: Mapping[str, str]) -> float | None:
        """Take one step towards a VM's tags; gives the seconds until the next, None when all is so.

        Raises what the vendor library raises, and `DriverError` for what cannot be done.
        """
        wanted = tags_of(tags)
        with self._lock:
            if self._settled.get(vm) == wanted:
                return None
            fresh = self._made.get(uuid.lower())
        if self._still_writing(vm):
            return _SOON
        ids = {tag: self.tags.ensure(*tag) for tag in sorted(wanted)}
        if fresh is not None and fresh == wanted:
            known = _Known(wanted, frozenset())
        else:
            known = self._look(vm)
        pause = self._change(vm, ids, known)
        if pause is None:
            with self._lock:
                self._settled[vm] = wanted
                self._made.pop(uuid.lower(), None)
        return pause

    def _change(self, vm: str, ids: Mapping[Named, str], known: _Known) -> float | None:
        lacking = {tag for tag, key in ids.items() if key not in known.attached}
        if not lacking <= known.note:
            self._write(vm, known.note | lacking)
            return _SOON
        stale = known.note - ids.keys()
        self._take_off(vm, stale, known.attached)
        self.tags.attach(vm, [ids[tag] for tag in lacking])
        if stale:
            self._write(vm, known.note - stale)
            return _SOON
        return None

    def _take_off(self, vm: str, stale: Collection[Named], attached: frozenset[str]) -> None:
        """Take tags off that we put on; one whose name is not known any more is left alone."""
        found = (self.tags.find(*tag) for tag in sorted(stale))
        self.tags.detach(vm, [key for key in found if key is not None and key in attached])

    # What is there

    def _look(self, vm: str) -> _Known:
        """What a VM has. The first one asked about has those of all VMs of ours read with it."""
        with self._reading:
            if self._known is None:
                self.census.ensure()
                ours = {
                    entry.moid
                    for entry in self.census.marked()
                    if valid_mark(entry.mark, entry.uuid or "")
                }
                self._known = self._read(ours | {vm})
            known = self._known.pop(vm, None)
        return known or self._read({vm}).get(vm) or _Known(frozenset(), frozenset())

    def _read(self, vms: Collection[str]) -> dict[str, _Known]:
        keys, notes = sorted(vms), dict[str, frozenset[Named]]()
        for first in range(0, len(keys), _CHUNK):
            for found in self._notes(keys[first : first + _CHUNK]):
                notes[found.moid] = decode(getattr(found.get(_NOTE), "value", None))
        attached = self.tags.attached(notes)
        return {key: _Known(note, attached[key]) for key, note in notes.items()}

    def _notes(self, keys: list[str]) -> list[Found]:
        try:
            return read(self.session, dict.fromkeys(keys, vim.VirtualMachine), (_NOTE,))
        except vmodl.fault.ManagedObjectNotFound:
            if len(keys) == 1:
                return []
            # One went meanwhile; the others are still to be known.
            return [found for key in keys for found in self._notes([key])]

    # The note

    def _write(self, vm: str, note: Collection[Named]) -> None:
        option = vim.option.OptionValue(key=TAGS_KEY, value=encode(note))
        task = self.work.reconfigure(vm, "tag", vim.vm.ConfigSpec(extraConfig=[option]))
        with self._lock:
            self._writing[vm] = task
            self._settled.pop(vm, None)

    def _still_writing(self, vm: str) -> bool:
        with self._lock:
            task = self._writing.get(vm)
        if task is None:
            return False
        running = False
        try:
            running = self.poll(task) is not None
        finally:
            if not running:
                with self._lock:
                    self._writing.pop(vm, None)
        return running
