"""Looks for VMs: by identity, by name, by mark; and says when one is provably not there.

The driver never decides whose a VM is: it tells what it found, and the SDK compares the mark.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.creates import Create, Creates, Stage
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import (
    Found,
    find_by_uuid,
    find_child,
    moid,
)
from banlieue.providers.vsphere.differing import attribute
from banlieue.providers.vsphere.places import privileges
from banlieue.providers.vsphere.places.inventory import InventoryCache
from banlieue.providers.vsphere.vms.absence import Absence
from banlieue.providers.vsphere.vms.attributes import Attributes
from banlieue.providers.vsphere.vms.looking import Look, Looks
from banlieue.providers.vsphere.watching import missing
from banlieue.providers.vsphere.watching.census import Census, Entry
from banlieue.providers.vsphere.watching.coming import Coming
from banlieue.providers.vsphere.watching.records import Records, VmRecord, machine_state
from banlieue.providers.vsphere.watching.watcher import Watcher
from banlieue.providers.vsphere.watching.watchlist import RUNNING, read_task
from banlieue.sdk.driver import MachineRef, MachineState
from banlieue.sdk.errors import AbsenceUnproven, DriverError, Foreign, NotYet, Transient
from banlieue.sdk.identity import Mark, Owner, valid_mark

_BULK = 3000
_FEW = 300
"""VMs up to which a bulk read of names is cheaper than asking for a name: for many, and for one."""

_RECENT_SECONDS = 10.0
"""Age that a list of very many VMs may have when a machine is looked for by its mark."""
_SIGHT_SECONDS = 60.0
_FRESH_SECONDS = 600.0

_TOGETHER = 2
"""From how many on it is worth to look at VMs before anybody asks."""

_KEPT = 16
_MOMENT = 1.0
"""Seconds for which a VM that was read, and of which nothing was told since, is as it was."""


@dataclass(frozen=True, slots=True)
class Live:
    """A VM as it is now, and the unfinished tasks on it with their description ids.

    `read_at` is when, in seconds of the monotonic clock.
    """

    record: VmRecord
    tasks: Mapping[str, str]
    found: Found = field(repr=False)
    read_at: float = 0.0

    @property
    def unchanged(self) -> bool:
        """Whether nothing was told of the VM, and nothing done to it, since it was read."""
        record, read = self.record, self.found.get("config.changeVersion")
        same = (record.change_version, record.power) == (read, self.found.get("runtime.powerState"))
        return same and not (record.gone or record.dirty)


@dataclass(slots=True, kw_only=True)
class Machines:
    """Finds VMs. Thread-safe."""

    session: Session
    records: Records
    watcher: Watcher
    census: Census
    creates: Creates
    places: InventoryCache
    attributes: Attributes
    absence: Absence
    monotonic: Callable[[], float]
    _coming: Coming = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _absent: dict[tuple[Owner, int], tuple[str | None, float]] = field(
        init=False, default_factory=dict
    )
    _looking: threading.Lock = field(init=False, default_factory=threading.Lock)
    _sight_until: float = field(init=False, default=0.0)
    _looks: Looks = field(init=False)
    _latest: dict[str, Live] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._coming = Coming(self.session, self.creates, self.monotonic)
        self._looks = Looks(self.session, self.monotonic, lambda: self.watcher.busy)

    # Observing

    def observe(self, ref: MachineRef) -> MachineState | None:
        """The VM that has the machine's UUID, or else its name; None proves that there is none."""
        if ref.uuid is None:
            return self._unminted(ref)
        watched = self._watched(ref.uuid)
        if watched is not None:
            return self._state(watched)
        self._settle_doubles(ref.uuid)
        if self._was_minted_here(ref):
            return None
        if ref.seen and self.watcher.building:
            raise NotYet  # one list of all tells more than a look at each
        if self.absence.is_proven(ref, self.known_ids(ref)):
            self._forget(self.known_ids(ref))
            return None
        live = self._followed(ref, kept=True)
        return self._state(live.record) if live is not None else self._look(ref)

    def _settle_doubles(self, uuid: str) -> None:
        """Drop those of several VMs with one UUID that left without a word of the watch.

        Raises:
            Foreign: several are there.
        """
        known = {record.moid for record in self.records.with_uuid(uuid) if not record.gone}
        if len(known) > 1:
            gone = missing.proved(self.session, known)
            self._forget(tuple(gone))
            if len(known - gone) > 1:
                raise _several(len(known - gone))

    def _watched(self, uuid: str) -> VmRecord | None:
        """The VM as the watch knows it; None when that is not current or not whole."""
        if not self.watcher.healthy:
            return None
        with self.records.lock:
            hits = [record for record in self.records.with_uuid(uuid) if not record.gone]
            record = hits[0] if len(hits) == 1 else None
            if record is None or record.dirty or not record.readable:
                return None
            details = record.details
            whole = details is not None and details.change_version == record.change_version
            return record if whole and self.watcher.watches(record.moid) else None

    def _followed(
        self, ref: MachineRef, *, latest: bool = False, kept: bool = False
    ) -> Live | None:
        """The VM that the watch follows under the machine's UUID, read by its id.

        One call instead of the two of a search; None where the watch follows none, or another one
        has that id now. With `latest`, a read that was made a moment ago counts, unless something
        was told of the VM, or done to it, since; it counts once. With `kept` one of a VM that is
        being destroyed counts, and again for whoever takes the next step.
        """
        uuid = (ref.uuid or "").lower()
        if not ref.seen or not self.watcher.healthy:
            return None
        hits = [record for record in self.records.with_uuid(uuid) if not record.gone]
        if len(hits) != 1 or not self.watcher.watches(hits[0].moid):
            return None
        key = hits[0].moid
        kept = kept and hits[0].leaving
        with self._lock:
            live = self._latest.get(key) if latest or kept else None
            if latest:
                self._latest.pop(key, None)
        if live is None or self.monotonic() - live.read_at > _MOMENT or not live.unchanged:
            live = self.by_id(key)
        return live if live is not None and live.record.uuid == uuid else None

    def of_machine(self, ref: MachineRef) -> Live | None:
        """The VM of the machine's UUID, never one of its name only; None proves there is none.

        Raises:
            Foreign: several VMs have that UUID, or what was the machine's VM has another one now.
            AbsenceUnproven: it is not to be found, and that proves nothing.
        """
        uuid = (ref.uuid or "").lower()
        live = self._followed(ref, latest=True)
        if live is not None:
            self._check_alone(uuid, live.record.moid)
            return live
        live = self.by_uuid(uuid)
        if live is None:
            live = self.prove_absence(ref)
        return live

    def _check_alone(self, uuid: str, key: str) -> None:
        """Raise `Foreign` where another VM has the same UUID.

        A vCenter gives UUIDs once, so a second one comes of a mistake of long before: a list of
        all VMs serves everything that is asked within a minute.
        """
        self.census.ensure()
        many = self.census.size > (_BULK if self.watcher.busy else _FEW)
        if many or self.census.has_unreadable:
            if len(hits := find_by_uuid(self.session, uuid)) > 1:
                raise _several(len(hits))
            return
        self.census.refresh(max_age=_SIGHT_SECONDS)
        others = [entry for entry in self.census.with_uuid(uuid) if entry.moid != key]
        alive = [live for live in self._alive(others) if live.record.uuid == uuid]
        if alive:
            raise _several(len(alive) + 1)

    def _was_minted_here(self, ref: MachineRef) -> bool:
        """Whether the UUID cannot be on any VM, since it was made up after absence was proven.

        The owner's machine was proven absent within this session, this process made the UUID up
        after that, and it has not sent a create for it.
        """
        if not ref.fresh or ref.seen or ref.uuid is None or ref.backend_id is not None:
            return False
        key, uuid = (ref.owner, ref.epoch), ref.uuid.lower()
        with self._lock:
            bound, until = self._absent.get(key, (None, 0.0))
            if self.monotonic() >= until or bound not in {None, uuid}:
                return False
            self._absent[key] = (uuid, until)
        known = self.creates.get(uuid) or self._pending(ref)
        return known is None and not self.census.with_uuid(uuid)

    def _look(self, ref: MachineRef) -> MachineState | None:
        """Look on the vCenter itself, by UUID, then by every id it ever had, then by name."""
        known = self.known_ids(ref)
        # Asked before looking: what ends in between is then found by the look.
        pending = self._pending(ref) is not None
        if not (ref.seen or known or pending):
            self._check_coming(ref)
        live = self.by_uuid(ref.uuid or "")
        for key in () if live else known:
            live = live or self.by_id(key)
        if live is None:
            live = self._by_name(ref, at_once=not ref.seen)
        if live is not None:
            return self._state(live.record)
        if pending and not ref.seen:
            raise _being_made()
        self._prove(ref, known)
        self._forget(known)
        return None

    def _state(self, record: VmRecord) -> MachineState:
        places = self.places.last()
        if places is None or (record.host and record.host not in places.hosts):
            places = self.places.get()
        with self.records.lock:
            state, details = machine_state(record, places), record.details
        known = self.attributes.of(details.values) if details else {}
        own = {attribute(name): value for name, value in known.items()}
        return replace(state, facts={**state.facts, **own}) if own else state

    # Before the mint

    def _unminted(self, ref: MachineRef) -> MachineState | None:
        """By mark over the whole vCenter, then by name."""
        pending = self._pending(ref) is not None
        before = self._coming.left_from_before(ref.name)
        self._learn_names(ref.name)
        hit = _one(self._made_for(ref)) or _one(self._alive(self.census.named(ref.name)))
        if hit is not None:
            return self._state(hit.record)
        if before or pending:
            raise _being_made()
        self._check_sight(cached=True)
        with self._lock:
            until = self.monotonic() + _FRESH_SECONDS
            self._absent[ref.owner, ref.epoch] = (None, until)
        return None

    def _made_for(self, ref: MachineRef) -> list[Live]:
        """VMs that carry, now, a valid mark of the machine's owner and epoch."""
        known = self.census.made_for(ref.owner, ref.epoch)
        found = self._alive(known or self.census.vanished(ref.owner, ref.epoch))
        now = {entry.moid for entry in self.census.made_for(ref.owner, ref.epoch)}
        return [live for live in found if live.record.moid in now]

    def _learn_names(self, name: str) -> None:
        """Have the census know who has that name, and who carries which mark.

        One bulk read serves all machines that are looked for together. While machines are made
        one after the other among very many VMs, one of a moment ago does, and the name is asked
        for: a VM that came back meanwhile most likely has it.
        """
        self.watcher.expect_more()
        self.census.ensure()
        busy = self.watcher.busy
        many = self.census.size > (_BULK if busy else _FEW)
        self.census.refresh(max_age=_RECENT_SECONDS if many and busy else 0.0)
        if not many:
            return
        for datacenter in self.places.get().datacenters.values():
            key = find_child(self.session, datacenter.vm_folder, name)
            if key is not None:
                self.by_id(key)

    def _alive(self, entries: list[Entry]) -> list[Live]:
        """Those of the entries that are there now; one that is not is dropped."""
        return [live for entry in entries if (live := self.by_id(entry.moid)) is not None]

    def of_owner(self, owner: Owner) -> list[MachineState]:
        """VMs that carry a valid mark of an owner now; those that the watch knows cost no call."""
        self.census.ensure()
        found = []
        for entry in self.census.of_owner(owner):
            known = self._current(entry.moid)
            live = None if known else self.by_id(entry.moid)
            record = known or (live.record if live else None)
            mark = Mark.decode(record.mark) if record else None
            if record and mark and valid_mark(mark, record.uuid or "") and mark.owner == owner:
                found.append(self._state(record))
        return found

    def _current(self, key: str) -> VmRecord | None:
        """What is known of a VM, if that is current but for its details."""
        record = self.records.get(key) if self.watcher.healthy else None
        if record is None or record.dirty or record.gone or not record.readable:
            return None
        return record if self.watcher.watches(key) else None

    # One VM

    def by_uuid(self, uuid: str) -> Live | None:
        """The VM of an instance UUID, read now; raises `Foreign` when there are several."""
        for _ in range(2):
            hits = find_by_uuid(self.session, uuid)
            if len(hits) > 1:
                raise _several(len(hits))
            if not hits:
                return None
            live = self.by_id(hits[0])
            if live is not None:
                return live
        return None

    def by_id(self, key: str) -> Live | None:
        """A VM by its managed object id, read now in one call; None proves that the id is gone.

        Raises:
            AbsenceUnproven: it is there, and the account cannot read it.
            Transient: its host or storage is away, so nobody knows what it is.
        """
        return self._taken(key, lambda: self._looks.at(key))

    def look_ahead(self, keys: Collection[str]) -> None:
        """Read VMs that are about to be destroyed together; whoever asks next finds it done.

        What cannot be read now is read by whoever asks.
        """
        if len(keys) < _TOGETHER:
            return
        with contextlib.suppress(*faults.NATIVE, DriverError):
            for key, look in self._looks.many(keys).items():
                with contextlib.suppress(*faults.NATIVE, DriverError):
                    self._taken(key, partial(_given, look))

    def _taken(self, key: str, read: Callable[[], Look]) -> Live | None:
        try:
            look = read()
        except vmodl.fault.ManagedObjectNotFound:
            self.census.drop(key)
            return None
        except vim.fault.NotAuthenticated:
            raise
        except vim.fault.NoPermission as error:
            raise _hidden() from error
        item = look.vm
        if item is None or isinstance(
            item.faults.get("config.instanceUuid"), vim.fault.NoPermission
        ):
            raise _hidden()
        record = self.records.take(item, self.monotonic())
        if not record.readable:
            raise Transient(
                Reason.PROVIDER_UNREACHABLE,
                "the VM's host or storage is away, so its state is not known; reconnect it",
            )
        self._note(record, item)
        tasks = {
            task.moid: str(task.get("info.descriptionId") or "unknown")
            for task in look.tasks
            if task.get("info.state") in RUNNING
        }
        live = Live(record, tasks, item, self.monotonic())
        self._keep_latest(key, live)
        return live

    def _keep_latest(self, key: str, live: Live) -> None:
        with self._lock:
            if len(self._latest) >= _KEPT:
                fresh = self.monotonic() - _MOMENT
                self._latest = {k: it for k, it in self._latest.items() if it.read_at > fresh}
            self._latest[key] = live

    def _note(self, record: VmRecord, item: Found) -> None:
        """Have census and watch know the VM."""
        mark = Mark.decode(record.mark)
        self.census.put(
            Entry(
                record.moid,
                record.name,
                record.uuid,
                mark,
                power=record.power,
                host=record.host,
                folder=item.ref("parent"),
            )
        )
        if valid_mark(mark, record.uuid or ""):
            self.watcher.add(record.moid)

    def known_ids(self, ref: MachineRef) -> tuple[str, ...]:
        """Every managed object id the machine's VM has or had, as far as we know."""
        uuid = ref.uuid or ""
        create = self.creates.get(uuid)
        hints = (ref.backend_id, create.vm if create else None)
        with self.records.lock:
            records = tuple(record.moid for record in self.records.with_uuid(uuid))
        census = tuple(entry.moid for entry in self.census.with_uuid(uuid))
        vanished = tuple(entry.moid for entry in self.census.vanished(ref.owner, ref.epoch))
        found = (*filter(None, hints), *records, *census, *vanished)
        return tuple(dict.fromkeys(found))

    def _by_name(self, ref: MachineRef, *, at_once: bool) -> Live | None:
        if at_once:
            self.census.refresh()
        else:
            self.census.ensure()
        return _one(self._alive(self.census.named(ref.name)))

    # Absence

    def prove_absence(self, ref: MachineRef) -> Live | None:
        """Raise `AbsenceUnproven` unless nothing can be, or be coming, under the machine's UUID.

        Gives the VM after all where one has it that a search by UUID does not tell of: the search
        forgets a VM before it is destroyed, and learns of one late.
        """
        known = self.known_ids(ref)
        alive = [live for key in known if (live := self.by_id(key)) is not None]
        own = [live for live in alive if live.record.uuid == (ref.uuid or "").lower()]
        if len(own) == 1:
            return own[0]
        if alive:
            raise Foreign(
                "the VM that was this machine has another UUID now; find out who changed it"
            )
        if not ref.seen:
            self._check_coming(ref)
        self._check_sight(cached=False)
        self._forget(known)
        return None

    def _prove(self, ref: MachineRef, known: tuple[str, ...]) -> None:
        """The proof for a machine that was looked for in vain.

        Once seen, its managed object id must be gone; a UUID that is not found may only be hidden.
        """
        if ref.seen and not known:
            raise AbsenceUnproven(
                "the VM was not found, and its id on the vCenter is not known, so it may only be "
                "hidden; look for it there, then release or delete this object"
            )
        if not ref.seen:
            self._check_coming(ref)
        self._check_sight(cached=False)

    def creating(self) -> list[str]:
        """Names of the machines that are being made, by whomever."""
        return self._coming.names()

    def _check_coming(self, ref: MachineRef) -> None:
        """Nothing of that name is being made, nor may a call to make it still arrive."""
        if self._pending(ref) or self._coming.now(ref.name):
            raise _being_made()

    def _pending(self, ref: MachineRef) -> Create | None:
        """A create of that name that this process sent and that may still have an effect."""
        create = self.creates.pending(ref.name)
        if create is None or create.stage is not Stage.RUNNING or create.task is None:
            return create
        told = self.watcher.task(create.task) or read_task(self.session, create.task)
        if told is not None and told.state in RUNNING:
            return create
        # Nobody asked about the task since it ended.
        if told is not None and told.result is not None:
            self.creates.end(create, Stage.MADE, moid(told.result))
        else:
            self.creates.end(create, Stage.FAILED)
        return None

    def _check_sight(self, *, cached: bool) -> None:
        """The session is alive and may read everything from the root down."""
        with self._looking:
            self._look_around(cached=cached)

    def _look_around(self, *, cached: bool) -> None:
        if cached and self.monotonic() < self._sight_until:
            return
        if not privileges.can_see_everything(self.session):
            raise AbsenceUnproven(
                "the VM was not found, but the account cannot see everything; give it System.View "
                "and System.Read on the root folder, with propagation"
            )
        self._sight_until = self.monotonic() + _SIGHT_SECONDS

    def _forget(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self.census.drop(key)
            self.watcher.drop(key)


def _given(look: Look | Exception) -> Look:
    if isinstance(look, Exception):
        raise look
    return look


def _one(found: list[Live]) -> Live | None:
    if len(found) > 1:
        raise _several(len(found))
    return found[0] if found else None


def _several(count: int) -> Foreign:
    return Foreign(f"{count} VMs could be this machine; none is touched, remove the wrong ones")


def _hidden() -> AbsenceUnproven:
    return AbsenceUnproven(
        "the VM is there, but the account cannot read it; give it back the right to see the VM"
    )


def _being_made() -> AbsenceUnproven:
    return AbsenceUnproven(
        "a VM of this name may be in the making; it is looked for again when that is over"
    )
