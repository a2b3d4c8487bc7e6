"""What the in-memory API server holds, and what a write makes of it."""

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from banlieue.api.meta import Resource, format_time
from banlieue.sdk.kube import STATUS, Conflict, Invalid, Key, NotFound, Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing import field_sets, list_order
from banlieue.sdk.testing.memory_cache import MemoryCache
from banlieue.sdk.testing.plain import clone
from banlieue.sdk.testing.stored import (
    SERVER_FIELDS,
    Stored,
    copy_owned,
    finalizers,
    generation_moves,
    hand_over,
    owned_leaves,
    without_nulls,
)

OTHER = "somebody-else"
"""Field manager of what tests write with `put` and `edit`."""


@dataclass(slots=True)
class Call:
    """One call of the client; `changed` tells whether it altered the stored object."""

    verb: str
    resource: Resource
    key: Key
    manager: str = ""
    subresource: str = ""
    changed: bool = False


Backup = dict[tuple[Resource, Key], Stored]
"""A copy of everything, to roll back to."""


class MemoryStore:
    """Objects by kind and key, what tests do with them as somebody else, and the server's rules."""

    def __init__(
        self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC), share: bool = False
    ) -> None:
        """Make an empty server.

        Args:
            now: its clock.
            share: whether its answers are the stored objects themselves, which nobody may change,
                rather than copies.
        """
        self._shown: Callable[[Obj], Obj] = _itself if share else clone
        self.cache = MemoryCache()
        self._now = now
        self._objects: dict[Resource, dict[Key, Stored]] = {}
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)
        self._subscribers: list[Callable[[Change], None]] = []
        self.schema: Callable[[Resource, Obj], str] = _fits
        """What is wrong with an object that an apply would leave; empty when it fits."""

    # What tests do as somebody else.

    def put(self, resource: Resource, obj: Mapping[str, Any]) -> Obj:
        """Store an object whole, status and all, as it is or as it replaces the one there is.

        Given uid, finalizers and deletionTimestamp are kept: this is how restores are played.
        """
        key = Key.of(obj)
        before = self._objects.get(resource, {}).get(key)
        fresh = without_nulls(obj)
        meta = fresh.setdefault("metadata", {})
        old_meta = before.obj["metadata"] if before else {}
        for name in SERVER_FIELDS:
            if name not in meta and name in old_meta:
                meta[name] = old_meta[name]
        meta.setdefault("creationTimestamp", format_time(self._now()))
        meta.setdefault("uid", self._new_uid())
        meta.setdefault("generation", 1)
        stored = Stored(fresh, {(OTHER, ""): {path for path, _ in owned_leaves(fresh)}})
        self._commit(resource, key, before, stored, own=False)
        return clone(fresh)

    def edit(self, resource: Resource, key: Key, change: Callable[[Obj], object]) -> Obj:
        """Let `change` alter a copy of the object, spec, status or metadata, and store that."""
        before = self._stored(resource, key)
        fresh = clone(before.obj)
        change(fresh)
        after = Stored(without_nulls(fresh), copy_owned(before.owned))
        hand_over(before, after, (OTHER, ""))
        self._commit(resource, key, before, after, own=False)
        return self.peek(resource, key) or {}

    def drop(self, resource: Resource, key: Key, *, force: bool = False) -> None:
        """Delete as `kubectl delete` does; with `force` also past finalizers."""
        before = self._stored(resource, key)
        if force:
            self._commit(resource, key, before, None, own=False)
        else:
            self._delete(resource, key, before, own=False)

    def peek(self, resource: Resource, key: Key) -> Obj | None:
        """A copy of the stored object, without a call being recorded."""
        stored = self._objects.get(resource, {}).get(key)
        return clone(stored.obj) if stored else None

    def look(self, resource: Resource) -> Iterator[Obj]:
        """All stored objects of the kind, by key, as they are stored: not to be changed."""
        kept = self._objects.get(resource, {})
        return (kept[key].obj for key in sorted(kept))

    def look_at(self, resource: Resource, key: Key) -> Obj | None:
        """The stored object as it is stored: not to be changed."""
        stored = self._objects.get(resource, {}).get(key)
        return stored.obj if stored else None

    def peek_all(self, resource: Resource) -> list[Obj]:
        """Copies of all stored objects of the kind, by key."""
        kept = self._objects.get(resource, {})
        return [clone(kept[key].obj) for key in sorted(kept)]

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` with every change, in order, in the task that makes it.

        They get the objects as they are stored and must not change them. The answer ends the
        subscription.
        """
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def backup(self) -> Backup:
        """Everything that is stored, as a copy of etcd's data holds it."""
        return {
            (resource, key): Stored(stored.obj, copy_owned(stored.owned))
            for resource, kept in self._objects.items()
            for key, stored in kept.items()
        }

    def roll_back(self, backup: Backup) -> None:
        """Let everything be as it was, versions included; later writes get versions never seen."""
        for resource, kept in tuple(self._objects.items()):
            for key in [key for key in kept if (resource, key) not in backup]:
                self._tell(resource, key, kept.pop(key), None, own=False)
        for (resource, key), stored in backup.items():
            before = self._objects.setdefault(resource, {}).get(key)
            after = Stored(stored.obj, copy_owned(stored.owned))
            self._objects[resource][key] = after
            if before is None or before.obj != after.obj:
                self._tell(resource, key, before, after, own=False)

    def collect_garbage(self) -> int:
        """Delete, as the garbage collector would, what only has owners that are gone.

        Returns how many objects it deleted; call it until that is 0 for chains of owners.
        """
        items = [(r, k, s) for r, kept in self._objects.items() for k, s in kept.items()]
        alive = {stored.obj["metadata"]["uid"] for _, _, stored in items}
        doomed = [
            (resource, key, stored)
            for resource, key, stored in items
            if (owners := stored.obj["metadata"].get("ownerReferences"))
            and not any(owner["uid"] in alive for owner in owners)
            and not stored.obj["metadata"].get("deletionTimestamp")
        ]
        for resource, key, stored in doomed:
            self._delete(resource, key, stored, own=False)
        return len(doomed)

    # The server.

    def _stored(self, resource: Resource, key: Key) -> Stored:
        stored = self._objects.get(resource, {}).get(key)
        if stored is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {key} not found")
        return stored

    def _create(self, call: Call, obj: Obj) -> Obj:
        fresh = without_nulls(obj)
        fresh.pop(STATUS, None)
        meta = fresh["metadata"]
        for name in SERVER_FIELDS:
            meta.pop(name, None)
        fresh.setdefault("apiVersion", call.resource.api_version)
        fresh.setdefault("kind", call.resource.kind)
        meta |= {
            "uid": self._new_uid(),
            "generation": 1,
            "creationTimestamp": format_time(self._now()),
        }
        owned = {path for path, _ in owned_leaves(fresh)}
        call.changed = True
        stored = Stored(fresh, {(call.manager, ""): owned})
        self._commit(call.resource, call.key, None, stored, own=True)
        return self._shown(fresh)

    def _apply(self, call: Call, obj: Obj) -> Obj:
        before = self._stored(call.resource, call.key)
        named, meta = obj.get("metadata") or {}, before.obj["metadata"]
        for name in ("uid", "resourceVersion"):
            if named.get(name) and named[name] != meta[name]:
                raise Conflict(409, "Conflict", f"the object has another {name}")
        part = {STATUS: obj.get(STATUS, {})} if call.subresource else dict(obj)
        if not call.subresource:
            part.pop(STATUS, None)
        part = without_nulls(part)
        wanted = dict(owned_leaves(part))
        owner = (call.manager, call.subresource)
        owned = copy_owned(before.owned)
        after = Stored(_copy_to_apply(before.obj, call.subresource), owned)
        if left_out := owned.get(owner, set()).difference(wanted):
            left_out.difference_update(*(paths for it, paths in owned.items() if it != owner))
            field_sets.discard_all(after.obj, left_out)
        there = {name: before.obj[name] for name in part if name in before.obj}
        changed, _ = field_sets.difference(there, part)
        for path in changed:
            if path in wanted:
                field_sets.assign(after.obj, path, wanted[path])
        list_order.arrange(after.obj, before.obj, part)
        hand_over(before, after, owner)
        owned[owner] = set(wanted)
        wrong = self.schema(call.resource, after.obj)
        if wrong:
            raise Invalid(422, "Invalid", wrong)
        return self._write(call, before, after)

    def _write(self, call: Call, before: Stored, after: Stored) -> Obj:
        self._check_finalizers(before.obj, after.obj)
        call.changed = after.obj != before.obj
        if call.changed:
            self._commit(call.resource, call.key, before, after, own=True)
        else:
            before.owned = after.owned
            return self._shown(before.obj)
        return self._shown(after.obj)

    @staticmethod
    def _check_finalizers(before: Obj, after: Obj) -> None:
        if before["metadata"].get("deletionTimestamp"):
            added = set(finalizers(after)) - set(finalizers(before))
            if added:
                raise Invalid(
                    422, "Invalid", f"no new finalizers on a deleted object: {sorted(added)}"
                )

    def _delete(self, resource: Resource, key: Key, before: Stored, *, own: bool) -> bool:
        if not finalizers(before.obj):
            self._commit(resource, key, before, None, own=own)
            return True
        if before.obj["metadata"].get("deletionTimestamp"):
            return False
        meta = {
            **before.obj["metadata"],
            "deletionTimestamp": format_time(self._now()),
            "deletionGracePeriodSeconds": 0,
        }
        after = Stored({**before.obj, "metadata": meta}, before.owned)
        self._commit(resource, key, before, after, own=own)
        return True

    def _commit(
        self,
        resource: Resource,
        key: Key,
        before: Stored | None,
        after: Stored | None,
        *,
        own: bool,
    ) -> None:
        kept = self._objects.setdefault(resource, {})
        if after is not None:
            after.obj["metadata"]["resourceVersion"] = str(next(self._versions))
            if before and generation_moves(before.obj, after.obj):
                after.obj["metadata"]["generation"] = before.obj["metadata"]["generation"] + 1
            if after.obj["metadata"].get("deletionTimestamp") and not finalizers(after.obj):
                before, after = after, None  # a watch tells the last state: held by nobody
        if after is None:
            kept.pop(key, None)
        else:
            kept[key] = after
        self._tell(resource, key, before, after, own=own)

    def _tell(
        self,
        resource: Resource,
        key: Key,
        before: Stored | None,
        after: Stored | None,
        *,
        own: bool,
    ) -> None:
        change = Change(
            resource,
            key,
            before.obj if before else None,
            after.obj if after else None,
        )
        self.cache.learn(change, own=own)
        for callback in tuple(self._subscribers):
            callback(change)

    def _new_uid(self) -> str:
        return str(uuid.UUID(int=next(self._uids)))


def _copy_to_apply(obj: Obj, subresource: str) -> Obj:
    """A copy to be changed by an apply, which shares what this endpoint does not change."""
    changing = {STATUS} if subresource else obj.keys() - {STATUS}
    fresh = {name: clone(value) if name in changing else value for name, value in obj.items()}
    return {**fresh, "metadata": {**fresh["metadata"]}}


def _fits(_resource: Resource, _obj: Obj) -> str:
    return ""


def _itself(obj: Obj) -> Obj:
    return obj
