"""The other machines, arranged for the questions the scheduler asks about a candidate."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from banlieue.controller.placement import (
    TOPOLOGY_FAILURE_DOMAIN,
    TOPOLOGY_HOST,
    TOPOLOGY_PROVIDER,
    Apart,
    Demand,
    Domain,
    Place,
    Resident,
    Site,
)
from banlieue.sdk.kube import Key


@dataclass(frozen=True, slots=True)
class _Zone:
    """A value of a topology key, such as one rack."""

    topology_key: str
    value: str


class Crowd:
    """All machines but the one being placed, by where they are."""

    def __init__(
        self, demand: Demand, sites: Iterable[Site], residents: Iterable[Resident]
    ) -> None:
        self._labels: dict[Place, Mapping[str, str]] = {
            Place(site.key, domain.name): domain.labels for site in sites for domain in site.domains
        }
        self._at: dict[Place, list[Resident]] = {}
        self._required: dict[_Zone, Key] = {}
        self._preferred: dict[_Zone, int] = {}
        self._keys = {term.topology_key for term in demand.apart}
        for resident in residents:
            if resident.key == demand.key:
                continue
            for place in resident.places:
                self._at.setdefault(place, []).append(resident)
            if resident.key.namespace == demand.key.namespace:
                self._separate(demand, resident)

    def free_memory(self, site: Site, domain: Domain) -> int:
        """Memory in MiB that may still be promised there, in-flight machines taken off."""
        capacity = domain.capacity
        if capacity is None:
            return 0
        extra = int(capacity.memory_mib * (site.overcommit_memory - 1.0))
        uncounted = [
            resident.memory_mib
            for resident in self._at.get(Place(site.key, domain.name), ())
            if not counts(resident.digest, capacity.included)
        ]
        return capacity.free_memory_mib + extra - sum(uncounted)

    def promised_cpus(self, place: Place) -> int:
        """Virtual CPUs of the machines there."""
        return sum(resident.cpus for resident in self._at.get(place, ()))

    def population(self, place: Place) -> int:
        """How many machines of ours are there."""
        return len(self._at.get(place, ()))

    def required_conflict(self, demand: Demand, site: Site, domain: Domain) -> str | None:
        """Name of a machine that must not share a topology with this one, None when none is."""
        del demand
        place = Place(site.key, domain.name)
        for zone in sorted(self._required, key=lambda zone: (zone.topology_key, zone.value)):
            if self._zone(zone.topology_key, place) == zone:
                return self._required[zone].name
        return None

    def preferred_conflicts(self, place: Place) -> int:
        """How many machines this one would rather be apart from share a topology with it."""
        zones = [self._zone(key, place) for key in sorted(self._keys)]
        return sum(self._preferred.get(zone, 0) for zone in zones)

    def _separate(self, demand: Demand, resident: Resident) -> None:
        for term in demand.apart:
            if term.selector.matches(resident.labels):
                self._occupy(term, resident)
        for term in resident.apart:
            if term.required and term.selector.matches(demand.labels):
                self._occupy(term, resident)

    def _occupy(self, term: Apart, resident: Resident) -> None:
        for zone in self._zones(term.topology_key, resident):
            if term.required and term.topology_key != TOPOLOGY_HOST:
                self._required[zone] = min(self._required.get(zone, resident.key), resident.key)
            else:
                self._preferred[zone] = self._preferred.get(zone, 0) + 1

    def _zones(self, topology_key: str, resident: Resident) -> Iterator[_Zone]:
        for place in resident.places:
            yield self._zone(topology_key, place)

    def _zone(self, topology_key: str, place: Place) -> _Zone:
        """Where a place lies; one without that label is a zone of its own.

        Hosts are chosen by the backend, so for the scheduler the failure domain stands for them.
        """
        if topology_key == TOPOLOGY_PROVIDER:
            return _Zone(topology_key, str(place.provider))
        own = f"{place.provider}/{place.domain}"
        if topology_key in {TOPOLOGY_FAILURE_DOMAIN, TOPOLOGY_HOST}:
            return _Zone(topology_key, own)
        label = self._labels.get(place, {}).get(topology_key)
        return _Zone(topology_key, f"={label}" if label is not None else own)


def counts(digest: str, included: frozenset[str]) -> bool:
    """Whether a capacity figure counts the owner; figures may list beginnings of digests."""
    return digest in included or any(
        digest.startswith(beginning) for beginning in included if len(beginning) < len(digest)
    )
