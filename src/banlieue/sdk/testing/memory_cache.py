"""The cache of watched kinds over a `MemoryApi`, which can be made to lag behind."""

from collections.abc import Iterator, Mapping

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing.plain import clone


class MemoryCache:
    """The objects of a `MemoryApi` as a reconciler's cache shows them: fresh copies."""

    def __init__(self) -> None:
        self._objects: dict[Resource, dict[Key, Obj]] = {}
        self._held: list[Change] | None = None
        self.unsynced: set[Resource] = set()

    def get(self, resource: Resource, key: Key) -> Obj | None:
        """The newest version that reached the cache."""
        return clone(self._objects.get(resource, {}).get(key))

    def list(self, resource: Resource, *, namespace: str = "") -> Iterator[Obj]:
        """All objects of the kind, by key."""
        for key, obj in sorted(self._objects.get(resource, {}).items()):
            if namespace in {"", key.namespace}:
                yield clone(obj)

    def revisions(self, resource: Resource) -> Mapping[Key, object]:
        """What tells a known object from what it was before: the one that is kept."""
        return dict(self._objects.get(resource, {}))

    def synced(self, *resources: Resource) -> bool:
        """Whether none of the kinds stands in `unsynced`, a set a test may fill."""
        return self.unsynced.isdisjoint(resources)

    def hold(self) -> None:
        """Stop following what others write."""
        self._held = self._held if self._held is not None else []

    def follow(self) -> None:
        """Catch up with what was held back, and follow again."""
        held, self._held = self._held or [], None
        for change in held:
            if not self._outdated(change):
                self._store(change)

    def learn(self, change: Change, *, own: bool) -> None:
        """Take a change in, at once or, while holding, only if the client made it."""
        if self._held is not None and not own:
            self._held.append(change)
            return
        if self._held is not None and change.new is None:
            self._held = [held for held in self._held if not _same_object(held, change)]
        self._store(change)

    def _outdated(self, change: Change) -> bool:
        """Whether an answer of the client brought a newer version while this one was held."""
        known = self._objects.get(change.resource, {}).get(change.key)
        return known is not None and _version(known) > _version(change.new or change.old or {})

    def _store(self, change: Change) -> None:
        objects = self._objects.setdefault(change.resource, {})
        if change.new is None:
            objects.pop(change.key, None)
        else:
            objects[change.key] = change.new


def _same_object(one: Change, other: Change) -> bool:
    return (one.resource, one.key, _uid(one)) == (other.resource, other.key, _uid(other))


def _uid(change: Change) -> str:
    meta = (change.old or change.new or {}).get("metadata") or {}
    return str(meta.get("uid", ""))


def _version(obj: Obj) -> int:
    return int((obj.get("metadata") or {}).get("resourceVersion") or 0)
