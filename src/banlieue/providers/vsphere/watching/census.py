"""Every VM of the vCenter by name, UUID and mark; one bulk read, kept by what we learn later."""

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pyVmomi import vim

from banlieue.providers.vsphere.client.pace import Pace
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, property_spec, step, walk
from banlieue.providers.vsphere.watching.records import MARK, VmRecord
from banlieue.sdk.identity import Mark, Owner, valid_mark

_PATHS = (
    "name",
    "parent",
    "config.instanceUuid",
    "config.template",
    MARK,
    "runtime.powerState",
    "runtime.host",
)
VM_STEPS = (
    step(
        vim.Folder,
        "childEntity",
        "Folder.childEntity",
        "Datacenter.vmFolder",
        "VirtualApp.vm",
        "ResourcePool.resourcePool",
    ),
    step(vim.Datacenter, "vmFolder", "Folder.childEntity"),
    step(vim.VirtualApp, "vm"),
    # Nested vApps; plain resource pools are not reached from folders.
    step(vim.ResourcePool, "resourcePool", "VirtualApp.vm", "ResourcePool.resourcePool"),
)
"""The ways from the root folder to every VM and template."""

_STEP = 0.25
_LONGEST = 1.0
_PLENTY = 6
"""While VMs are made: how fast the rests between reads grow, up to how many seconds, and how many
callers wait no longer, as each of them holds a thread."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One VM or template; `name` as people write it, `folder` None inside a vApp."""

    moid: str
    name: str
    uuid: str | None = None
    mark: Mark | None = None
    template: bool = False
    folder: str | None = None
    power: str | None = None
    host: str | None = None

    def belongs_to(self, owner: Owner, epoch: int | None = None) -> bool:
        """Whether a valid mark says that it was made for that owner, and epoch if one is given."""
        mark = self.mark
        return (
            mark is not None
            and valid_mark(mark, self.uuid or "")
            and mark.owner == owner
            and epoch in {None, mark.epoch}
        )

    def as_record(self) -> VmRecord:
        """As much of a record as the census tells."""
        record = VmRecord(self.moid)
        record.name = self.name
        record.uuid = self.uuid
        record.mark = self.mark.encode() if self.mark else None
        record.power = self.power
        record.host = self.host
        return record


def read_census(session: Session) -> list[Entry]:
    """Every VM and template the session can see; raises what the vendor library raises."""
    root = session.login.content.root_folder
    wanted = (property_spec(vim.VirtualMachine, _PATHS),)
    return [_entry(found) for found in walk(session, root, vim.Folder, VM_STEPS, wanted)]


def _entry(found: Found) -> Entry:
    option = found.get(MARK)
    uuid = found.get("config.instanceUuid")
    return Entry(
        moid=found.moid,
        name=unquote(found.get("name", "")),
        uuid=uuid.lower() if uuid else None,
        mark=Mark.decode(getattr(option, "value", None)),
        template=bool(found.get("config.template")),
        folder=found.ref("parent"),
        power=found.get("runtime.powerState"),
        host=found.ref("runtime.host"),
    )


class Census:
    """The entries of the last bulk read, and changes we made or saw since. Thread-safe."""

    def __init__(
        self,
        session: Session,
        monotonic: Callable[[], float],
        gather: Callable[[float], float],
        reader: Callable[[Session], list[Entry]] = read_census,
    ) -> None:
        """Start empty; `gather` turns the rest a read should take into the one it does take."""
        self._session = session
        self._gather = gather
        self._monotonic = monotonic
        self._reader = reader
        self._pace = Pace(monotonic, _STEP, _LONGEST)
        self._reading = threading.Lock()
        self._joined = 0
        self._plenty = threading.Event()
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._vanished: dict[str, Entry] = {}
        self._noted: dict[str, Entry | None] = {}
        self._begun = 0
        self._ended = 0
        self._read_at: float | None = None

    def ensure(self) -> None:
        """Read once; raises what the vendor library raises."""
        if self._read_at is None:
            self.refresh()

    def refresh(self, max_age: float = 0.0) -> None:
        """Have a read that began after this call, or is not older than `max_age` seconds.

        Callers that come together share one read.
        """
        with self._lock:
            wanted = self._begun + 1
            self._joined += 1
            if self._joined >= _PLENTY:
                self._plenty.set()
        with self._reading:
            if self._ended >= wanted or self.age < max_age:
                return
            self._plenty.wait(self._gather(self._pace.rest()))
            with self._lock:
                self._joined = 0
                self._plenty.clear()
                self._begun += 1  # whoever asked until now shares this read
                self._noted = {}
            begun_at = self._monotonic()
            self._pace.note()
            entries = {entry.moid: entry for entry in self._reader(self._session)}
            with self._lock:
                self._replace(entries)
                self._read_at = begun_at
                self._ended = self._begun

    def _replace(self, entries: dict[str, Entry]) -> None:
        """Take over a read; marked VMs it lacks may only be hidden, so they are remembered."""
        missed = {k: e for k, e in self._entries.items() if e.mark and k not in entries}
        self._vanished = {k: e for k, e in self._vanished.items() if k not in entries} | missed
        self._entries = entries
        for moid, entry in self._noted.items():
            self._note(moid, entry)

    @property
    def age(self) -> float:
        """Seconds since the last bulk read began."""
        return math.inf if self._read_at is None else self._monotonic() - self._read_at

    @property
    def size(self) -> int:
        """How many VMs there are."""
        return len(self._entries)

    @property
    def has_unreadable(self) -> bool:
        """Whether there are VMs whose UUID nobody knows at the moment: their host is away."""
        return any(entry.uuid is None for entry in self.all())

    def put(self, entry: Entry) -> None:
        """Add or replace a VM that was seen."""
        with self._lock:
            known = self._entries.get(entry.moid)
            if known is not None:
                folder = entry.folder or known.folder
                entry = replace(entry, folder=folder, template=known.template)
            self._noted[entry.moid] = entry
            self._note(entry.moid, entry)

    def drop(self, moid: str) -> None:
        """Forget a VM that is proven gone."""
        with self._lock:
            self._noted[moid] = None
            self._note(moid, None)

    def _note(self, moid: str, entry: Entry | None) -> None:
        self._vanished.pop(moid, None)
        if entry is None:
            self._entries.pop(moid, None)
        else:
            self._entries[moid] = entry

    def all(self) -> tuple[Entry, ...]:
        """Every entry."""
        with self._lock:
            return tuple(self._entries.values())

    def get(self, moid: str) -> Entry | None:
        """The entry of a managed object id."""
        with self._lock:
            return self._entries.get(moid)

    def named(self, name: str) -> list[Entry]:
        """VMs of that name, anywhere."""
        return [entry for entry in self.all() if entry.name == name]

    def with_uuid(self, uuid: str) -> list[Entry]:
        """VMs of that instance UUID."""
        return [entry for entry in self.all() if entry.uuid == uuid.lower()]

    def made_for(self, owner: Owner, epoch: int) -> list[Entry]:
        """VMs with a valid mark of that owner and epoch."""
        return [entry for entry in self.all() if entry.belongs_to(owner, epoch)]

    def of_owner(self, owner: Owner) -> list[Entry]:
        """VMs with a valid mark of that owner, of whatever epoch."""
        return [entry for entry in self.all() if entry.belongs_to(owner)]

    def vanished(self, owner: Owner, epoch: int) -> list[Entry]:
        """VMs made for an owner and epoch that are seen no longer and not proven gone."""
        with self._lock:
            return [e for e in self._vanished.values() if e.belongs_to(owner, epoch)]

    def marked(self) -> list[Entry]:
        """VMs with a mark, valid or not."""
        return [entry for entry in self.all() if entry.mark is not None]


def only(entries: Iterable[Entry]) -> Entry | None:
    """The single entry, None when there is none or more than one."""
    found = list(entries)
    return found[0] if len(found) == 1 else None
