"""Which places one machine must not, or would rather not, share with others of its namespace."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.groups import Everywhere
from banlieue.controller.scheduling.placement import (
    TOPOLOGY_FAILURE_DOMAIN,
    TOPOLOGY_HOST,
    TOPOLOGY_PROVIDER,
    Demand,
    Place,
    Site,
)
from banlieue.sdk.kube import Key

_Zone = tuple[str, str]
"""A topology key and one value of it, such as one rack."""


@dataclass(slots=True)
class Neighbours:
    """The others, as the anti-affinity of both sides sees them.

    Hosts are chosen by the backend, so for the scheduler the failure domain stands for them, and
    a term about hosts only ranks.
    """

    newcomer: Key
    labels: Mapping[Place, Mapping[str, str]] = field(default_factory=dict)
    _forbidden: dict[_Zone, list[Collection[Key]]] = field(default_factory=dict)
    _unwanted: dict[_Zone, int] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, demand: Demand, sites: Iterable[Site], crowd: Crowd) -> "Neighbours":
        """Look at everybody in the machine's namespace; the machine itself is no neighbour."""
        found = cls(demand.key)
        namespace = crowd.namespace(demand.key.namespace)
        if namespace is None:
            return found
        alone = list(namespace.alone(demand.labels))
        if not demand.apart and not alone:
            return found
        found.labels = {
            Place(site.key, domain.name): domain.labels for site in sites for domain in site.domains
        }
        for term in demand.apart:
            found._mark(
                term.topology_key, namespace.matching(term.selector), required=term.required
            )
        for solitude in alone:
            found._mark(solitude.topology_key, solitude.places, required=True)
        return found

    def forbidding(self, place: Place) -> Key | None:
        """A machine that must not share a topology with the newcomer there, None when none is."""
        if not self._forbidden:
            return None
        for topology_key in sorted(self._keys):
            there = self._forbidden.get(self._zone(topology_key, place))
            if there:
                return min(key for keys in there for key in keys if key != self.newcomer)
        return None

    def unwanted(self, place: Place) -> int:
        """How many machines it would rather be apart from share a topology with it there."""
        if not self._unwanted:
            return 0
        return sum(self._unwanted.get(self._zone(key, place), 0) for key in self._keys)

    def _mark(self, topology_key: str, everywhere: Everywhere, *, required: bool) -> None:
        for place, keys in everywhere.items():
            count = len(keys) - (self.newcomer in keys)
            if not count:
                continue
            self._keys.add(topology_key)
            zone = self._zone(topology_key, place)
            if required and topology_key != TOPOLOGY_HOST:
                self._forbidden.setdefault(zone, []).append(keys)
            else:
                self._unwanted[zone] = self._unwanted.get(zone, 0) + count

    def _zone(self, topology_key: str, place: Place) -> _Zone:
        """Where a place lies; one without that label is a zone of its own."""
        if topology_key == TOPOLOGY_PROVIDER:
            return (topology_key, str(place.provider))
        own = f"{place.provider}/{place.domain}"
        if topology_key in {TOPOLOGY_FAILURE_DOMAIN, TOPOLOGY_HOST}:
            return (topology_key, own)
        label = self.labels.get(place, {}).get(topology_key)
        return (topology_key, f"={label}" if label is not None else own)
