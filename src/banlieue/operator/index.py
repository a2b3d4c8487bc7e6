"""Which objects were made for which Provider, kept from the changes that watches tell.

So a pass reads its own six objects from the cache, however many Providers there are.
"""

from collections import defaultdict
from collections.abc import Iterator

from banlieue.api.meta import Resource
from banlieue.operator.objects import KINDS, is_of, maker
from banlieue.sdk.kube import Key, Obj, ObjectReader
from banlieue.sdk.reconcile import Change

Made = tuple[Resource, Key]


class Index:
    """Objects of ours by Provider, and the backend that each Provider was last served by."""

    def __init__(self, cache: ObjectReader) -> None:
        self._cache = cache
        self._made: defaultdict[Key, set[Made]] = defaultdict(set)
        self._backends: dict[Key, tuple[str, str]] = {}

    def note(self, change: Change) -> set[Key]:
        """Take in a change; gives the Providers it concerns."""
        made = change.resource, change.key
        before, after = (maker(it) if it else None for it in (change.old, change.new))
        if before and before != after:
            self._made[before].discard(made)
        if after:
            self._made[after].add(made)
        return {it for it in (before, after) if it}

    def add(self, provider: Key, made: Made) -> None:
        """Know of an object before its event comes."""
        self._made[provider].add(made)

    def of(self, provider: Key) -> Iterator[tuple[Resource, Obj]]:
        """The Provider's objects as the cache has them, in the order they are taken away in."""
        known = self._made.get(provider) or ()
        for resource, key in sorted(known, key=lambda it: (KINDS.index(it[0]), it[1])):
            obj = self._cache.get(resource, key)
            if obj is not None and is_of(obj, provider):
                yield resource, obj

    def served_by(self, provider: Key, uid: str, backend: str) -> None:
        """Remember the backend: the cache may not show what was just made."""
        self._backends[provider] = uid, backend

    def backend(self, provider: Key, uid: str) -> str:
        """The backend that was remembered for this very Provider; empty if none."""
        known, backend = self._backends.get(provider, ("", ""))
        return backend if known == uid else ""

    def forget(self, provider: Key) -> None:
        """The Provider and all that was made for it are gone."""
        self._made.pop(provider, None)
        self._backends.pop(provider, None)
