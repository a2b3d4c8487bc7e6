"""Who is where: every machine's place as observed, or as promised until its status shows it.

Placements are decided one at a time under `Ledger.turn`, so each sees all promises before it. The
ledger is filled from the cache once and kept by the passes, one of which follows every change.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.placement import Demand, Place, Resident, Unplaced
from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Clock

REFUSAL_SECONDS = 600.0
"""How long a place counts as full after its backend refused a machine."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The class and the image a machine waits for, or without whose change it has no place."""

    class_name: str | None
    image_name: str | None


@dataclass(frozen=True, slots=True)
class _Promise:
    """A machine at its new place, and places it was promised before with unknown outcome.

    `latest` is None when the last promise was taken back and an earlier one may stand all the same.
    """

    resident: Resident
    latest: Place | None
    uncertain: frozenset[Place] = frozenset()

    @property
    def places(self) -> tuple[Place, ...]:
        """Everywhere it may be, the last promise first."""
        latest = (self.latest,) if self.latest else ()
        return tuple(dict.fromkeys((*latest, *sorted(self.uncertain))))


@dataclass(frozen=True, slots=True)
class _Shortage:
    """Providers where only memory was missing, and how much a machine needs."""

    providers: frozenset[Key]
    memory_mib: int


@dataclass(frozen=True, slots=True)
class _Refusal:
    key: Key
    memory_mib: int
    cpus: int
    why: str
    until: float


class Ledger:
    """Residents, promises, waiting machines and recent refusals."""

    def __init__(self, clock: Clock) -> None:
        self.turn = asyncio.Lock()
        self.seeded = False
        self._clock = clock
        self._observed: dict[Key, Resident] = {}
        self._promised: dict[Key, _Promise] = {}
        self._waiting: dict[Key, Waiting] = {}
        self._shortages: dict[Key, _Shortage] = {}
        self._refusals: dict[Place, list[_Refusal]] = {}
        self._crowd = Crowd()

    def beside(self) -> "Ledger":
        """A ledger of machines of another sort: it tells of those alone, and counts all together.

        Both have one turn, and see each other's residents, promises and refusals. Their keys must
        differ.
        """
        other = Ledger(self._clock)
        other.turn, other._refusals, other._crowd = self.turn, self._refusals, self._crowd
        return other

    def residents(self) -> Crowd:
        """Everybody, kept up to date; a promise counts beside what is observed."""
        return self._crowd

    def seed(self, residents: Iterable[Resident]) -> None:
        """Take over what the cache knew when the process started; later knowledge wins."""
        for resident in residents:
            if resident.key not in self._observed:
                self._observed[resident.key] = resident
                self._count(resident.key)
        self.seeded = True

    def observe(self, resident: Resident, placed: Place | None = None) -> None:
        """Record what a machine's status shows.

        Args:
            resident: the machine where it was observed.
            placed: where the status says it was placed, which may be elsewhere. A promise of that
                place is kept no longer.
        """
        self._observed[resident.key] = resident
        promise = self._promised.get(resident.key)
        if promise and not {*resident.places, placed}.isdisjoint(promise.places):
            del self._promised[resident.key]
        self._count(resident.key)

    def promise(self, resident: Resident) -> None:
        """Count a machine at its new place from now on, until `observe` confirms it.

        A promise before it that was not taken back may have been written, so that place counts too.
        """
        before = self._promised.get(resident.key)
        (place,) = resident.places
        earlier = frozenset(before.places) if before else frozenset[Place]()
        self._promised[resident.key] = _Promise(resident, place, earlier)
        self._count(resident.key)

    def withdraw(self, key: Key) -> None:
        """Take the last promise back: it was certainly never written down."""
        promise = self._promised.pop(key, None)
        if promise and promise.uncertain:
            self._promised[key] = replace(promise, latest=None)
        self._count(key)

    def wait(self, key: Key, on: Waiting) -> None:
        """Remember what a machine waits for, so that changes elsewhere can wake it."""
        self._waiting[key] = on
        self._shortages.pop(key, None)

    def miss(self, demand: Demand, decision: Unplaced) -> None:
        """Remember where memory is all that a waiting machine misses, until it waits anew."""
        short = {it.provider for it in decision.rejections if it.filter == "memory"}
        self._shortages[demand.key] = _Shortage(frozenset(short), demand.memory_mib)

    def resume(self, key: Key) -> None:
        """The machine waits for nothing any more."""
        self._waiting.pop(key, None)
        self._shortages.pop(key, None)

    def forget(self, key: Key) -> bool:
        """The machine is gone; tells whether it was anywhere."""
        self.resume(key)
        promised = self._promised.pop(key, None)
        observed = self._observed.pop(key, None)
        self._count(key)
        return bool(promised or (observed and observed.places))

    def refuse(self, demand: Demand, place: Place, why: str) -> None:
        """Remember for a while that a backend refused this machine at that place."""
        until = self._clock.monotonic() + REFUSAL_SECONDS
        others = [old for old in self._refusals.get(place, []) if old.key != demand.key]
        others.append(_Refusal(demand.key, demand.memory_mib, demand.cpus, why, until))
        self._refusals[place] = others

    def refusals(self, demand: Demand) -> Mapping[Place, str]:
        """Places that refused this machine, or one that needs no more than it does."""
        now = self._clock.monotonic()
        found: dict[Place, str] = {}
        for place, refusals in list(self._refusals.items()):
            self._refusals[place] = [refusal for refusal in refusals if refusal.until > now]
            for refusal in self._refusals[place]:
                # How much a machine needs that takes its memory from its image is not known.
                if refusal.key == demand.key or (
                    0 < refusal.memory_mib <= demand.memory_mib and refusal.cpus <= demand.cpus
                ):
                    found[place] = refusal.why
        return found

    def waiting(
        self, *, namespace: str = "", class_name: str = "", image_name: str = ""
    ) -> list[Key]:
        """Machines without a place that wait on the given things, by key."""
        return [
            key
            for key, on in sorted(self._waiting.items())
            if namespace in {"", key.namespace}
            and class_name in {"", on.class_name}
            and image_name in {"", on.image_name}
        ]

    def short(self, provider: Key, memory_mib: int | None = None) -> list[Key]:
        """Waiting machines that so much memory on a Provider may help, by key.

        Args:
            provider: the Provider that has more room than before.
            memory_mib: the most that one machine can get there; None when that is not known.
        """
        return [
            key
            for key in sorted(self._waiting)
            if _may_help(self._shortages.get(key), provider, memory_mib)
        ]

    def places(self, key: Key) -> tuple[Place, ...]:
        """Where a machine is or is promised to be."""
        found = self._crowd.get(key)
        return found.places if found else ()

    def kept_apart(self, key: Key) -> list[Key]:
        """Machines that a known one must be apart from, by its terms or theirs, by key."""
        found = self._crowd.get(key)
        if found is None:
            return []
        return sorted(self._crowd.kept_apart(key, found.labels, found.apart))

    def owners_of(self, hashes: Collection[str]) -> list[Key]:
        """Machines whose owner has one of these digests, or beginnings of them, by key."""
        if not hashes:
            return []
        lengths = {len(beginning) for beginning in hashes}
        return sorted(
            resident.key
            for resident in self._crowd
            if self._has(resident.key)
            and any(resident.digest[:length] in hashes for length in lengths)
        )

    def known(self) -> list[Key]:
        """Every machine that is somewhere or waits, by key."""
        return sorted({*self._observed, *self._promised, *self._waiting})

    def at(self, provider: Key) -> list[Key]:
        """Machines that are, or are promised to be, on a Provider."""
        return [key for key in self._crowd.on(provider) if self._has(key)]

    def _has(self, key: Key) -> bool:
        """Whether the machine is one of those this ledger tells of."""
        return key in self._observed or key in self._promised

    def _count(self, key: Key) -> None:
        """Let the crowd have what is known of a machine."""
        seen, promise = self._observed.get(key), self._promised.get(key)
        if promise is not None:
            places = dict.fromkeys((*(seen.places if seen else ()), *promise.places))
            self._crowd.put(replace(promise.resident, places=tuple(places)))
        elif seen is not None:
            self._crowd.put(seen)
        else:
            self._crowd.drop(key)


def _may_help(shortage: _Shortage | None, provider: Key, memory_mib: int | None) -> bool:
    """Whether room on a Provider can change the outcome; when in doubt it can."""
    if shortage is None:
        return True
    return provider in shortage.providers and (
        memory_mib is None or shortage.memory_mib <= memory_mib
    )
