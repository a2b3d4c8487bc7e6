"""Sweeps: compare what a stream's cache holds with what exists, and correct it.

A watch may lose a deletion (kopf lists again after an expired version and does not compare) or,
after the server was restored from a backup, hold versions that never were. A sweep lists uid and
version of everything and takes the list's word: what was cached before the list and is not in it
is gone; what differs and goes on differing is read live.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Clock
from banlieue.sdk.runtime.cache import Identity, Store
from banlieue.sdk.runtime.hub import Hub

REPAIR_AFTER = 30.0
"""Seconds a difference must last before the object is read live."""

_Suspect = tuple[Identity | None, Identity]


class SweepClient(Protocol):
    """What a sweep asks of the API client."""

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Obj]:
        """Read all matching objects live."""

    async def identities(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> dict[Key, Identity]:
        """Read uid and version of all matching objects live."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found; `unseen` exist but were not delivered (yet)."""

    removed: int = 0
    unseen: int = 0
    differing: int = 0
    repaired: int = 0


@dataclass(slots=True)
class Sweeper:
    """Sweeps one stream. Not reentrant."""

    store: Store
    hub: Hub
    client: SweepClient
    clock: Clock
    _suspects: dict[Key, tuple[_Suspect, float]] = field(default_factory=dict)

    async def sweep(self) -> Swept:
        """Compare and correct once; raises `ApiError`."""
        stream = self.store.stream
        before = self.store.snapshot()
        listed = await self.client.identities(
            stream.resource,
            namespace=stream.namespace,
            label_selector=stream.label_selector,
            field_selector=stream.field_selector,
        )
        removed = self._remove_absent(before, listed)
        suspects = self._differing(before, listed)
        repaired = await self._repair_old_suspects(suspects)
        unseen = sum(1 for cached, _ in suspects.values() if cached is None)
        return Swept(removed, unseen, len(suspects) - unseen, repaired)

    def _remove_absent(self, before: Mapping[Key, Identity], listed: Mapping[Key, Identity]) -> int:
        removed = 0
        for key, known in before.items():
            found = listed.get(key)
            if found is not None and found.uid == known.uid:
                continue
            change = self.store.remove(key, known.uid)
            if change is not None:
                removed += 1
                self.hub.deliver(self.store.stream, change)
        return removed

    def _differing(
        self, before: Mapping[Key, Identity], listed: Mapping[Key, Identity]
    ) -> dict[Key, _Suspect]:
        suspects: dict[Key, _Suspect] = {}
        for key, found in listed.items():
            cached = self.store.identity(key)
            if cached == found:
                continue
            if cached is not None and before.get(key) != cached:
                # It moved while the list was read.
                continue
            suspects[key] = (cached, found)
        return suspects

    async def _repair_old_suspects(self, suspects: Mapping[Key, _Suspect]) -> int:
        """Read live what has differed in the same way for long: the watch will not bring it."""
        now = self.clock.monotonic()
        old, self._suspects = self._suspects, {}
        repaired = 0
        for key, suspect in suspects.items():
            same, since = old.get(key, (None, now))
            if same != suspect:
                since = now
            if now - since < REPAIR_AFTER:
                self._suspects[key] = (suspect, since)
            elif await self._repair(key, suspect[0]):
                repaired += 1
        return repaired

    async def _repair(self, key: Key, cached: Identity | None) -> bool:
        # By a list, for which the right to watch the kind is enough.
        live = await self.client.list(
            self.store.stream.resource,
            namespace=key.namespace,
            field_selector=f"metadata.name={key.name}",
        )
        if not live or self.store.identity(key) != cached:
            return False
        self.hub.deliver(self.store.stream, self.store.replace(live[0]))
        return True
