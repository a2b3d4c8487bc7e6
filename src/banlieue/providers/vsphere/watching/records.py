"""What is known of each VM: leaf properties as the watch delivers them, details read on demand."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from banlieue.api.meta import format_time
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.differing import LEAVING_DISKS
from banlieue.providers.vsphere.hardware import cards, devices, notes
from banlieue.providers.vsphere.places import networks
from banlieue.providers.vsphere.places.inventory import Inventory
from banlieue.providers.vsphere.places.networks import NETWORK_KEY
from banlieue.providers.vsphere.places.zones import zone_of
from banlieue.providers.vsphere.vms import facts, firstboot, guest
from banlieue.sdk.driver import Address, DiskState, Guest, MachineState, NicState
from banlieue.sdk.identity import Mark

MARK_KEY = "banlieue.mark"
DISKS_KEY = "banlieue.disks"
NICS_KEY = "banlieue.nics"
KEPT_KEY = "banlieue.kept"
"""Disks that were taken off to be kept, until their files are where kept disks lie."""
HOLD_KEY = "banlieue-hold"

_VALUES = frozenset({"mark", "hold", "stage", "word"})
"""Attributes that are entries of the extra configuration."""


def extra_config(key: str) -> str:
    """The property path of one entry of a VM's extra configuration."""
    return f'config.extraConfig["{key}"]'


MARK = extra_config(MARK_KEY)
DISKS = extra_config(DISKS_KEY)
NICS = extra_config(NICS_KEY)
KEPT = extra_config(KEPT_KEY)
HOLD = extra_config(HOLD_KEY)
STAGE = extra_config(firstboot.STAGE_KEY)
WORD = extra_config(firstboot.WORD_KEY)
VALUES = "customValue"
SNAPSHOTS = "snapshot.rootSnapshotList"
CORES = "config.hardware.numCoresPerSocket"
CPU_HOT = "config.cpuHotAddEnabled"
MEMORY_HOT = "config.memoryHotAddEnabled"
MEMORY_STEP = "config.hotPlugMemoryIncrementSize"
MEMORY_MOST = "config.hotPlugMemoryLimit"
HARDWARE = (CORES, CPU_HOT, MEMORY_HOT, MEMORY_STEP, MEMORY_MOST)
"""What a look at one VM reads besides, to know what may change while it runs."""


QUESTION = "runtime.question.text"

VERSION = "config.changeVersion"

_LEAVES = {
    "name": "name",
    "config.instanceUuid": "uuid",
    VERSION: "change_version",
    "config.hardware.numCPU": "cpus",
    "config.hardware.memoryMB": "memory_mib",
    MARK: "mark",
    HOLD: "hold",
    STAGE: "stage",
    WORD: "word",
    "runtime.powerState": "power",
    "runtime.connectionState": "connection",
    "runtime.host": "host",
    "resourcePool": "pool",
    "runtime.bootTime": "boot_time",
    QUESTION: "question",
    "guest.ipAddress": "ip",
    "guest.toolsRunningStatus": "tools",
}
WATCHED: tuple[str, ...] = tuple(_LEAVES)
"""Few and small, since every change of any of them travels; `guest.net` changes constantly."""

DETAILS: tuple[str, ...] = (
    "config.hardware.device",
    "config.files.vmPathName",
    "config.version",
    VALUES,
    DISKS,
    NICS,
    KEPT,
    "guest.net",
    "guest.hostName",
    "guest.guestFullName",
)

_POWER = {
    "poweredOn": PowerState.POWERED_ON,
    "poweredOff": PowerState.POWERED_OFF,
    "suspended": PowerState.SUSPENDED,
}
_ON = "poweredOn"
_RUNNING = "guestToolsRunning"
_LOST = frozenset({"inaccessible", "invalid", "orphaned"})


@dataclass(frozen=True, slots=True)
class Details:
    """What is read on demand, and the VM's change version and time of the reading."""

    disks: tuple[DiskState, ...]
    addresses: tuple[Address, ...]
    hostname: str | None
    os_name: str | None
    change_version: str | None
    read_at: float
    nics: tuple[NicState, ...] | None = None
    lost_disks: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[int, str] = field(default_factory=dict)

    @property
    def content(self) -> tuple[object, ...]:
        """What matters to anybody, without when it was read."""
        told = self.addresses, self.hostname, self.os_name
        return self.disks, self.lost_disks, self.nics, dict(self.facts), dict(self.values), *told


class VmRecord:
    """One VM. Guarded by the lock of `Records`.

    `gone` means the VM left our sight, which proves nothing; `dirty` that we changed it and the
    watch has not told yet; `details_due` when the details are to be read again; `downs` how often
    the guest's agent was seen to stop; `leaving` that it is being destroyed.
    """

    __slots__ = (
        "boot_time",
        "change_version",
        "connection",
        "cpus",
        "details",
        "details_due",
        "dirty",
        "downs",
        "gone",
        "hold",
        "host",
        "ip",
        "leaving",
        "mark",
        "memory_mib",
        "moid",
        "name",
        "pool",
        "power",
        "question",
        "stage",
        "tools",
        "tries",
        "uuid",
        "word",
    )

    def __init__(self, moid: str) -> None:
        self.moid = moid
        self.name = ""
        self.uuid: str | None = None
        self.change_version: str | None = None
        self.cpus: int | None = None
        self.memory_mib: int | None = None
        self.mark: str | None = None
        self.hold: str | None = None
        self.stage: str | None = None
        self.word: str | None = None
        self.power: str | None = None
        self.question: str | None = None
        self.connection: str | None = None
        self.host: str | None = None
        self.pool: str | None = None
        self.boot_time: datetime | None = None
        self.ip: str | None = None
        self.tools: str | None = None
        self.details: Details | None = None
        self.details_due: float | None = None
        self.tries = 0
        self.downs = 0
        self.gone = False
        self.dirty = False
        self.leaving = False

    @property
    def running(self) -> bool:
        """Whether the VM is on and its agent runs."""
        return self.power == _ON and self.tools == _RUNNING

    @property
    def readable(self) -> bool:
        """Whether the vCenter itself knows the VM's configuration at the moment."""
        return self.uuid is not None and self.connection not in _LOST

    def clear(self) -> None:
        """Forget every leaf, since what is unset is not told when an object is told whole."""
        for attribute in _LEAVES.values():
            setattr(self, attribute, "" if attribute == "name" else None)

    def set(self, path: str, value: Any) -> None:  # noqa: ANN401 - any property
        """Take over one property; entries of the extra configuration come whole or as values."""
        if path == QUESTION.removesuffix(".text"):
            # A question that was answered goes as a whole.
            path, value = QUESTION, getattr(value, "text", None)
        attribute = _LEAVES.get(path) or _LEAVES.get(path.removesuffix(".value"))
        if attribute is None:
            return
        if attribute in _VALUES:
            value = getattr(value, "value", value) or None
        elif attribute in {"host", "pool"}:
            value = getattr(value, "_moId", None)
        elif attribute == "name":
            value = unquote(value or "")
        elif attribute == "uuid":
            value = value.lower() if value else None
        elif value is not None and attribute in {"power", "connection", "change_version"}:
            value = str(value)
        if attribute == "tools" and self.tools == _RUNNING and value != _RUNNING:
            self.downs += 1
        setattr(self, attribute, value)

    def words(self) -> frozenset[str]:
        """What a change of this VM is told by: UUID, name, and the UUID its mark speaks of."""
        mark = Mark.decode(self.mark)
        return frozenset(filter(None, (self.uuid, self.name, mark.uuid if mark else None)))


class Records:
    """All VMs that are watched or were looked at, by managed object id. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._by_id: dict[str, VmRecord] = {}
        self._families: dict[str, frozenset[str]] = {}
        self._planned: dict[str, tuple[tuple[DiskState, ...], Mapping[str, str]]] = {}

    def get(self, moid: str) -> VmRecord | None:
        """The record of a VM."""
        with self.lock:
            return self._by_id.get(moid)

    def ensure(self, moid: str) -> VmRecord:
        """The record of a VM, a new one if there is none."""
        with self.lock:
            return self._by_id.setdefault(moid, VmRecord(moid))

    def forget(self, moid: str) -> None:
        """Drop a VM that is proven gone."""
        with self.lock:
            record = self._by_id.pop(moid, None)
            if record is not None and record.uuid is not None:
                self._families.pop(record.uuid, None)
                self._planned.pop(record.uuid, None)

    def doubt(self, moids: Iterable[str]) -> None:
        """What is known of VMs is not current until the watch tells more, or they are read."""
        with self.lock:
            for moid in moids:
                record = self._by_id.get(moid)
                if record is not None:
                    record.dirty = True

    def with_uuid(self, uuid: str) -> list[VmRecord]:
        """Records that have, or had when last seen, that instance UUID."""
        with self.lock:
            return [record for record in self._by_id.values() if record.uuid == uuid.lower()]

    def all(self) -> list[VmRecord]:
        """Every record."""
        with self.lock:
            return list(self._by_id.values())

    def expect(
        self,
        uuid: str,
        families: frozenset[str],
        disks: tuple[DiskState, ...] = (),
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Remember what a VM that is being made will have.

        Args:
            uuid: its instance UUID.
            families: address families; until they are told its guest is asked again.
            disks: its disks, which hold until something about the VM changes.
            facts: what else is known of it, for people.
        """
        with self.lock:
            self._families[uuid.lower()] = families
            self._planned[uuid.lower()] = disks, facts or {}

    def planned(self, record: VmRecord) -> tuple[tuple[DiskState, ...], Mapping[str, str]] | None:
        """Disks and facts of a VM that was just made, told once; None when it was not by us now."""
        with self.lock:
            return self._planned.pop(record.uuid or "", None)

    def is_told(self, record: VmRecord) -> bool:
        """Whether the guest told at least one address of each family it is to have."""
        told = guest.families(record.details.addresses if record.details else ())
        return bool(told) and told >= self._families.get(record.uuid or "", frozenset())

    def take(self, found: Found, now: float) -> VmRecord:
        """Take over a full read of a VM, leaves and details."""
        with self.lock:
            record = self.ensure(found.moid)
            for path in WATCHED:
                record.set(path, found.get(path))
            record.details = read_details(record, found, now)
            record.details_due = None
            record.gone = record.dirty = False
            return record


def read_details(record: VmRecord, found: Found, now: float) -> Details:
    """The details of a VM; addresses once known stay while the agent runs and tells none.

    They are of the version that was read with them: the record may have been told a later one.
    """
    attached: Sequence[Any] = found.get("config.hardware.device") or ()
    keys = {card.key for card in devices.network_cards(attached)}
    told = guest.addresses(found.get("guest.net") or (), keys) if record.running else ()
    if not told and record.running and record.details is not None:
        told = tuple(item for item in record.details.addresses if item.type != "Hostname")
    slots = devices.decode_slots(getattr(found.get(DISKS), "value", None))
    path = found.get("config.files.vmPathName") or ""
    disks = devices.disk_states(attached, slots, path, record.name)
    version = found.get(VERSION)
    return Details(
        disks=disks,
        lost_disks=devices.lost(slots, disks),
        addresses=told,
        hostname=found.get("guest.hostName"),
        os_name=found.get("guest.guestFullName"),
        change_version=str(version) if version is not None else None,
        read_at=now,
        nics=cards.states(
            attached,
            cards.decode(getattr(found.get(NICS), "value", None)),
            running=record.power == _ON,
        ),
        facts={**facts.of(found, record.name), **_leaving(found, record)},
        values=facts.values(found.get(VALUES)),
    )


def _leaving(found: Found, record: VmRecord) -> Mapping[str, str]:
    """The fact that disks are on their way to where kept ones lie; empty when none is."""
    note = getattr(found.get(KEPT), "value", None)
    disks = notes.of_vm(note, Mark.decode(record.mark), record.uuid)
    return {LEAVING_DISKS: ", ".join(sorted(disks))} if disks else {}


def whereabouts(record: VmRecord, places: Inventory | None) -> tuple[str | None, str | None]:
    """The failure domain and the name of the host of a VM; None what is not known."""
    if places is None:
        return None, None
    host = places.hosts.get(record.host or "")
    return zone_of(places, record.host, record.pool), host.name if host else None


def machine_state(record: VmRecord, places: Inventory | None) -> MachineState:
    """A record with details in the words of the SDK."""
    details = record.details
    failure_domain, host = whereabouts(record, places)
    running = record.running
    hostname = details.hostname if details and running else None
    told = details.addresses if details and running else ()
    return MachineState(
        name=record.name,
        uuid=record.uuid or "",
        backend_id=record.moid,
        mark=Mark.decode(record.mark),
        power=_POWER.get(record.power or "", PowerState.POWERED_OFF),
        failure_domain=failure_domain,
        host=host,
        addresses=(*told, *_hostname(hostname)),
        cpus=record.cpus,
        memory_mib=record.memory_mib,
        disks=details.disks if details else (),
        lost_disks=details.lost_disks if details else (),
        nics=_nics(details, places),
        facts=details.facts if details else {},
        guest=Guest(
            hostname=hostname,
            os_name=details.os_name if details and running else None,
            agent_connected=running,
        ),
        held=bool(record.hold),
        question=record.question,
        last_boot=format_time(record.boot_time) if record.boot_time else None,
        seed=firstboot.seed(record.stage, record.word, record.uuid),
    )


def _nics(details: Details | None, places: Inventory | None) -> tuple[NicState, ...] | None:
    """The network cards, their networks by name where the inventory knows them."""
    if details is None or details.nics is None:
        return None
    if places is None:
        return details.nics
    return tuple(_named(nic, places) for nic in details.nics)


def _named(nic: NicState, places: Inventory) -> NicState:
    known = {nic.network or "", *(nic.plugged or {}).get(NETWORK_KEY, ())}
    network = networks.of_words(places, known)
    if network is None:
        return nic
    tags = networks.tags_of(places, network)
    if tags is None:
        return replace(nic, network=network.name, plugged=None)
    plugged = {NETWORK_KEY: networks.words(places, network), networks.TAG_KEY: tags}
    return replace(nic, network=network.name, plugged=plugged)


def _hostname(name: str | None) -> Iterable[Address]:
    return (Address("Hostname", name),) if name else ()
