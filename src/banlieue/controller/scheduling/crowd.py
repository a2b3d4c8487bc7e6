"""All machines, kept so that the scheduler's questions cost the same however many there are.

Adding or removing one machine touches only the places it is in and the groups it belongs to.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from banlieue.controller.scheduling.groups import Namespace
from banlieue.controller.scheduling.placement import Apart, Capacity, Domain, Place, Resident, Site
from banlieue.sdk.kube import Key


class Crowd:
    """Every machine and where it is, indexed by place and by namespace."""

    def __init__(self, residents: Iterable[Resident] = ()) -> None:
        self._residents: dict[Key, Resident] = {}
        self._rooms: dict[Place, _Room] = {}
        self._namespaces: dict[str, Namespace] = {}
        for resident in residents:
            self.put(resident)

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._residents.values())

    def __len__(self) -> int:
        return len(self._residents)

    def get(self, key: Key) -> Resident | None:
        """What is known of a machine."""
        return self._residents.get(key)

    def put(self, resident: Resident) -> None:
        """Count a machine from now on, instead of what was known of it."""
        before = self._residents.get(resident.key)
        if before == resident:
            return
        if before is not None:
            self.drop(resident.key)
        self._residents[resident.key] = resident
        self._namespaces.setdefault(resident.key.namespace, Namespace()).put(resident)
        for place in dict.fromkeys(resident.places):
            self._rooms.setdefault(place, _Room()).put(resident)

    def drop(self, key: Key) -> None:
        """Count a machine no longer."""
        resident = self._residents.pop(key, None)
        if resident is None:
            return
        namespace = self._namespaces[key.namespace]
        namespace.drop(resident)
        if not namespace.residents:
            del self._namespaces[key.namespace]
        for place in dict.fromkeys(resident.places):
            room = self._rooms[place]
            room.drop(resident)
            if not room.residents:
                del self._rooms[place]

    def namespace(self, name: str) -> Namespace | None:
        """The machines of one namespace, None when there are none."""
        return self._namespaces.get(name)

    def kept_apart(
        self, key: Key, labels: Mapping[str, str], apart: Iterable[Apart]
    ) -> frozenset[Key]:
        """Others that a machine with these labels and terms must be apart from, by either side."""
        namespace = self._namespaces.get(key.namespace)
        if namespace is None:
            return frozenset()
        groups = [namespace.matching(it.selector) for it in apart if it.required]
        groups += [it.places for it in namespace.alone(labels)]
        found = {other for group in groups for there in group.values() for other in there}
        return frozenset(found - {key})

    def on(self, provider: Key) -> list[Key]:
        """Machines that are on a Provider, by key."""
        return sorted(
            {
                key
                for place, room in self._rooms.items()
                if place.provider == provider
                for key in room.residents
            }
        )

    def free_memory(self, site: Site, domain: Domain, newcomer: Key) -> int:
        """Memory in MiB that may still be promised to a machine there.

        Machines which the published figure does not count yet are taken off; the newcomer's own
        are not.
        """
        capacity = domain.capacity
        if capacity is None:
            return 0
        extra = int(capacity.memory_mib * (site.overcommit_memory - 1.0))
        room = self._rooms.get(Place(site.key, domain.name))
        uncounted = room.uncounted(capacity, newcomer) if room else 0
        return capacity.free_memory_mib + extra - uncounted

    def promised_cpus(self, place: Place, newcomer: Key) -> int:
        """Virtual CPUs of all other machines there."""
        room = self._rooms.get(place)
        if room is None:
            return 0
        own = room.residents.get(newcomer)
        return room.cpus - (own.cpus if own else 0)

    def population(self, place: Place, newcomer: Key) -> int:
        """How many other machines of ours are there."""
        room = self._rooms.get(place)
        return len(room.residents) - (newcomer in room.residents) if room else 0


@dataclass(slots=True)
class _Room:
    """The machines at one place, with sums that follow them."""

    residents: dict[Key, Resident] = field(default_factory=dict)
    cpus: int = 0
    _tally: "_Tally | None" = None

    def put(self, resident: Resident) -> None:
        self.residents[resident.key] = resident
        self.cpus += resident.cpus
        self._tally = self._tally.shifted(resident, 1) if self._tally else None

    def drop(self, resident: Resident) -> None:
        del self.residents[resident.key]
        self.cpus -= resident.cpus
        self._tally = self._tally.shifted(resident, -1) if self._tally else None

    def uncounted(self, capacity: Capacity, newcomer: Key) -> int:
        """MiB of the machines that the figures do not count, without the newcomer's own."""
        tally = self._tally
        if tally is None or tally.capacity is not capacity:
            tally = self._tally = _Tally.of(capacity, self.residents)
        own = self.residents.get(newcomer)
        return tally.memory_mib - (tally.share(own) if own else 0)


@dataclass(frozen=True, slots=True)
class _Tally:
    """Memory at one place that a capacity figure does not count yet.

    A list that was cut short holds the machines placed last, so those placed no later than the
    oldest listed one are counted too, if they are there at all.
    """

    capacity: Capacity
    lengths: tuple[int, ...]
    oldest: float | None
    memory_mib: int = 0

    @classmethod
    def of(cls, capacity: Capacity, residents: Mapping[Key, Resident]) -> "_Tally":
        lengths = tuple(sorted({len(beginning) for beginning in capacity.included}))
        blank = cls(capacity, lengths, None)
        listed = [it.since for it in residents.values() if it.since is not None and blank.lists(it)]
        oldest = (min(listed) if listed else capacity.read_at) if capacity.cut_short else None
        bare = cls(capacity, lengths, oldest)
        return cls(capacity, lengths, oldest, sum(map(bare.share, residents.values())))

    def shifted(self, resident: Resident, sign: int) -> "_Tally | None":
        """The tally with a machine more or less; None when it has to be made anew."""
        if self.capacity.cut_short and self.lists(resident):
            return None
        changed = self.memory_mib + sign * self.share(resident)
        return _Tally(self.capacity, self.lengths, self.oldest, changed)

    def share(self, resident: Resident) -> int:
        """MiB of this machine that the figures do not count."""
        return 0 if self._counts(resident) else resident.memory_mib

    def lists(self, resident: Resident) -> bool:
        digest, included = resident.digest, self.capacity.included
        return any(digest[:length] in included for length in self.lengths)

    def _counts(self, resident: Resident) -> bool:
        if not resident.digest:
            return resident.settled
        if self.lists(resident):
            return True
        since, oldest = resident.since, self.oldest
        return resident.settled and oldest is not None and since is not None and since <= oldest
