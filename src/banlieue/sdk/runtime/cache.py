"""The cache: what the API server last told us, or answered to our own writes.

One `Store` per stream (kind, selectors, namespace). Objects are kept as compressed JSON without
managed fields, a kilobyte each, and decoded afresh for each reader.

Our own writes enter the store with the API server's answer, so the next pass sees them. The event
that follows such a write is an *echo*: it carries nothing the writing pass did not know. Versions
are compared only between events of one watch and our own writes; an object seen by a re-list
replaces what is stored whatever its version, since the server may have been restored.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.runtime.sources import Stream

_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""As `json.dumps`, which makes an encoder for every object."""

_QUICK = 1
"""Compression level; higher ones gain a twentieth of the size."""

EventType = Literal["ADDED", "MODIFIED", "DELETED"] | None
"""As a watch says it; None stands for an object of a list."""

Writer = tuple[str, Key]
"""The controller and key of the pass that wrote."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an event changed; `echo_of` is the pass that already knows."""

    change: Change
    echo_of: Writer | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Which object, and which version of it."""

    uid: str
    version: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Identity":
        """Read it from an object's metadata."""
        meta = obj.get("metadata") or {}
        return cls(meta.get("uid") or "", meta.get("resourceVersion") or "")


@dataclass(slots=True)
class _Own:
    """Writes whose events have not come yet, and what the watchers knew before the first."""

    before: bytes | None
    writers: dict[str, Writer | None] = field(default_factory=dict)
    mixed: bool = False

    def sole_writer(self) -> Writer | None:
        writers = set(self.writers.values())
        return next(iter(writers)) if len(writers) == 1 and not self.mixed else None


@dataclass(slots=True)
class _Entry:
    identity: Identity
    body: bytes
    own: _Own | None = None

    def known(self) -> bytes | None:
        """What the watchers were told last."""
        return self.own.before if self.own is not None else self.body


class Store:
    """The objects of one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.stale = 0
        self._entries: dict[Key, _Entry] = {}
        self._removed: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def get(self, key: Key) -> Obj | None:
        """A fresh copy, None when unknown."""
        entry = self._entries.get(key)
        return _decode(entry.body) if entry is not None else None

    def identity(self, key: Key) -> Identity | None:
        """Uid and version of what is stored."""
        entry = self._entries.get(key)
        return entry.identity if entry is not None else None

    def body(self, key: Key) -> bytes | None:
        """What is stored, as it is; another object after every change."""
        entry = self._entries.get(key)
        return entry.body if entry is not None else None

    def snapshot(self) -> dict[Key, Identity]:
        """Uid and version of everything stored now."""
        return {key: entry.identity for key, entry in self._entries.items()}

    def observe(self, kind: EventType, obj: Obj) -> Observation | None:
        """Take in an event; None when it says nothing new."""
        key, seen = Key.of(obj), Identity.of(obj)
        if kind == "DELETED":
            return self._observe_deleted(key, seen, obj)
        if self._removed.get(key) == seen.uid:
            return None
        entry = self._entries.get(key)
        if entry is None:
            return self._put(key, seen, obj, old=None)
        if entry.identity.uid != seen.uid:
            return self._observe_successor(key, entry, seen, obj, listed=kind is None)
        if kind is None:
            return self._observe_listed(key, entry, seen, obj)
        return self._observe_live(key, entry, seen, obj)

    def record(self, obj: Obj, writer: Writer | None) -> None:
        """Take in the answer to a write of ours."""
        key, written = Key.of(obj), Identity.of(obj)
        entry = self._entries.get(key)
        if _is_gone(obj):
            self.record_gone(key, written.uid)
            return
        if self._removed.get(key) == written.uid:
            return
        if entry is None:
            # Behind a selector only the watch knows whether the object belongs here.
            if self.stream.covers(key.namespace):
                own = _Own(before=None, writers={written.version: writer})
                self._entries[key] = _Entry(written, _encode(obj), own)
            return
        if _is_older(written.version, entry.identity.version, or_equal=True):
            return
        own = entry.own or _Own(before=entry.body)
        own.writers[written.version] = writer
        self._entries[key] = _Entry(written, _encode(obj), own)

    def record_gone(self, key: Key, uid: str) -> None:
        """Take in that a write of ours made the object vanish at once."""
        entry = self._entries.get(key)
        if entry is not None and entry.identity.uid == uid:
            del self._entries[key]
            self._removed[key] = uid

    def remove(self, key: Key, uid: str) -> Change | None:
        """Drop an object that a list proved to be gone; None when it is not stored."""
        if self._removed.get(key) == uid:
            del self._removed[key]
        entry = self._entries.get(key)
        if entry is None or entry.identity.uid != uid:
            return None
        del self._entries[key]
        return self._change(key, old=entry.known() or entry.body, new=None)

    def replace(self, obj: Obj) -> Change:
        """Put in an object read live, whatever is stored."""
        key = Key.of(obj)
        entry = self._entries.get(key)
        old = entry.known() if entry is not None else None
        return self._put(key, Identity.of(obj), obj, old=old).change

    def _observe_deleted(self, key: Key, seen: Identity, obj: Obj) -> Observation:
        if self._removed.get(key) == seen.uid:
            del self._removed[key]
        entry = self._entries.get(key)
        if entry is None:
            return Observation(self._change(key, old=_encode(obj), new=None))
        if entry.identity.uid != seen.uid:
            # The name was taken again before the deletion reached us.
            return Observation(self._change(key, old=_encode(obj), new=entry.body))
        del self._entries[key]
        return Observation(self._change(key, old=entry.known() or _encode(obj), new=None))

    def _observe_successor(
        self, key: Key, entry: _Entry, seen: Identity, obj: Obj, *, listed: bool
    ) -> Observation | None:
        earlier = _is_older(seen.version, entry.identity.version)
        if earlier and (entry.own is not None or not listed):
            self.stale += 1
            return None
        return self._put(key, seen, obj, old=entry.known())

    def _observe_listed(
        self, key: Key, entry: _Entry, seen: Identity, obj: Obj
    ) -> Observation | None:
        if entry.own is not None and _is_older(seen.version, entry.identity.version):
            # The list was read before our write; the watch brings the write.
            entry.own.mixed = True
            return None
        return self._put(key, seen, obj, old=entry.known(), replayed=True)

    def _observe_live(
        self, key: Key, entry: _Entry, seen: Identity, obj: Obj
    ) -> Observation | None:
        own, stored = entry.own, entry.identity.version
        if seen.version == stored:
            if own is None:
                return None
            entry.own = None
            change = self._change(key, old=own.before, new=entry.body)
            return Observation(change, echo_of=own.sole_writer())
        if _is_older(seen.version, stored):
            if own is None:
                self.stale += 1
            elif seen.version not in own.writers:
                # Somebody wrote between our writes; the writing pass may not have seen it.
                own.mixed = True
            return None
        return self._put(key, seen, obj, old=entry.known())

    def _put(
        self, key: Key, seen: Identity, obj: Obj, *, old: bytes | None, replayed: bool = False
    ) -> Observation:
        # What is stored is its text, so the object itself may be shown: it is decoded already.
        shown = _without_managed_fields(obj)
        self._entries[key] = _Entry(seen, _encode(shown))
        before = _decode(old) if old is not None else None
        return Observation(Change(self.stream.resource, key, before, shown, replayed=replayed))

    def _change(self, key: Key, *, old: bytes | None, new: bytes | None) -> Change:
        return Change(
            self.stream.resource,
            key,
            _decode(old) if old is not None else None,
            _decode(new) if new is not None else None,
        )


class Cache:
    """All stores of a process; implements `banlieue.sdk.kube.ObjectReader`."""

    def __init__(self) -> None:
        self._stores: dict[Resource, list[Store]] = {}
        self._synced: set[Stream] = set()

    def open(self, stream: Stream) -> Store:
        """Give the store of a stream, made on first use."""
        stores = self._stores.setdefault(stream.resource, [])
        for store in stores:
            if store.stream == stream:
                return store
        store = Store(stream)
        stores.append(store)
        return store

    def set_synced(self, stream: Stream, synced: bool) -> None:  # noqa: FBT001 - a plain setter
        """Say whether the first full read of a stream is through."""
        (self._synced.add if synced else self._synced.discard)(stream)

    def stream_synced(self, stream: Stream) -> bool:
        """Whether the first full read of a stream is through."""
        return stream in self._synced

    def get(self, resource: Resource, key: Key) -> Obj | None:
        """The newest known version, None when it is not known to exist."""
        newest = self._newest(resource, key)
        return newest.get(key) if newest is not None else None

    def list(self, resource: Resource, *, namespace: str = "") -> Iterator[Obj]:
        """All known objects of a watched kind."""
        stores = self._stores.get(resource, ())
        keys = dict.fromkeys(key for store in stores for key in store)
        for key in keys:
            if namespace and key.namespace != namespace:
                continue
            obj = self.get(resource, key)
            if obj is not None:
                yield obj

    def revisions(self, resource: Resource) -> Mapping[Key, object]:
        """What tells a known object from what it was before: its stored body."""
        stores = self._stores.get(resource, ())
        found: dict[Key, object] = {}
        for key in dict.fromkeys(key for store in stores for key in store):
            newest = stores[0] if len(stores) == 1 else self._newest(resource, key)
            if newest is not None:
                found[key] = newest.body(key)
        return found

    def synced(self, *resources: Resource) -> bool:
        """Whether the first full read of these kinds is through; an unwatched kind never is."""
        return all(
            bool(self._stores.get(resource))
            and all(store.stream in self._synced for store in self._stores[resource])
            for resource in resources
        )

    def _newest(self, resource: Resource, key: Key) -> Store | None:
        found = [store for store in self._stores.get(resource, ()) if key in store]
        if not found:
            return None
        newest = found[0]
        for store in found[1:]:
            mine, other = newest.identity(key), store.identity(key)
            if mine and other and _is_older(mine.version, other.version):
                newest = store
        return newest

    def record(self, resource: Resource, obj: Obj, writer: Writer | None = None) -> None:
        """Take in the answer to a write."""
        for store in self._stores.get(resource, ()):
            store.record(obj, writer)

    def record_gone(self, resource: Resource, key: Key, uid: str) -> None:
        """Take in that a delete removed the object at once."""
        for store in self._stores.get(resource, ()):
            store.record_gone(key, uid)


def _is_gone(obj: Mapping[str, Any]) -> bool:
    """Whether the write that gave this answer took the last finalizer of a deleted object."""
    meta = obj.get("metadata") or {}
    graceful = meta.get("deletionGracePeriodSeconds") or 0
    return bool(meta.get("deletionTimestamp")) and not meta.get("finalizers") and not graceful


def _is_older(version: str, than: str, *, or_equal: bool = False) -> bool:
    if version == than:
        return or_equal
    if version.isdigit() and than.isdigit():
        return int(version) < int(than)
    return False


def _without_managed_fields(obj: Obj) -> Obj:
    meta = obj.get("metadata")
    if not meta or "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: meta[key] for key in meta if key != "managedFields"}}


def _encode(obj: Obj) -> bytes:
    return zlib.compress(_to_text(_without_managed_fields(obj)).encode(), _QUICK)


def _decode(body: bytes) -> Obj:
    obj: Obj = json.loads(zlib.decompress(body))
    return obj
