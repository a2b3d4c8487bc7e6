"""The machines of one namespace by the label selectors that anti-affinity terms ask for.

A group is made when a selector is asked for the first time, and follows every machine from then
on, so that a term costs as much as there are places, not as there are machines.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from banlieue.api.meta import LabelSelector
from banlieue.controller.scheduling.placement import Apart, Place, Resident
from banlieue.sdk.kube import Key

_MAX_GROUPS = 64

Identity = tuple[object, ...]
"""What two equal selectors have in common."""

_Label = tuple[str, str]

Everywhere = Mapping[Place, Collection[Key]]
"""Machines by the place they are in."""


def identity(selector: LabelSelector) -> Identity:
    """Equal for selectors that say the same, in whatever order."""
    return (
        tuple(sorted(selector.match_labels.items())),
        tuple(
            sorted(
                (it.key, it.operator.value, tuple(sorted(it.values)))
                for it in selector.match_expressions
            )
        ),
    )


@dataclass(slots=True)
class _Group:
    """The machines a selector matches, by place."""

    selector: LabelSelector
    places: dict[Place, set[Key]] = field(default_factory=dict)

    def put(self, resident: Resident) -> None:
        for place in resident.places:
            self.places.setdefault(place, set()).add(resident.key)

    def drop(self, resident: Resident) -> None:
        for place in dict.fromkeys(resident.places):
            there = self.places.get(place)
            if there is not None:
                there.discard(resident.key)
                if not there:
                    del self.places[place]


@dataclass(frozen=True, slots=True)
class Solitude:
    """Machines that say the same of whom they must not be together with."""

    topology_key: str
    selector: LabelSelector
    places: Everywhere


class Namespace:
    """The machines of one namespace."""

    def __init__(self) -> None:
        self.residents: dict[Key, Resident] = {}
        self._labelled: dict[_Label, dict[Key, Resident]] = {}
        self._groups: OrderedDict[Identity, _Group] = OrderedDict()
        self._alone: dict[_Label | None, dict[tuple[str, Identity], _Group]] = {}

    def put(self, resident: Resident) -> None:
        """Add a machine that is not known."""
        self.residents[resident.key] = resident
        for label in resident.labels.items():
            self._labelled.setdefault(label, {})[resident.key] = resident
        for group in self._groups.values():
            if group.selector.matches(resident.labels):
                group.put(resident)
        for name, term in _required(resident.apart):
            alone = self._alone.setdefault(_shelf(term.selector), {})
            alone.setdefault(name, _Group(term.selector)).put(resident)

    def drop(self, resident: Resident) -> None:
        """Take a machine out."""
        del self.residents[resident.key]
        for label in resident.labels.items():
            there = self._labelled[label]
            del there[resident.key]
            if not there:
                del self._labelled[label]
        for group in self._groups.values():
            group.drop(resident)
        for name, term in _required(resident.apart):
            self._drop_alone(_shelf(term.selector), name, resident)

    def matching(self, selector: LabelSelector) -> Everywhere:
        """The machines whose labels a selector matches, by place."""
        name = identity(selector)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(selector)
            for resident in self._near(selector):
                if selector.matches(resident.labels):
                    group.put(resident)
            if len(self._groups) > _MAX_GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end(name)
        return group.places

    def alone(self, labels: Mapping[str, str]) -> Iterator[Solitude]:
        """Required terms of the machines here that match these labels."""
        for shelf in (None, *labels.items()):
            for (topology_key, _), group in self._alone.get(shelf, {}).items():
                if group.selector.matches(labels):
                    yield Solitude(topology_key, group.selector, group.places)

    def _drop_alone(
        self, shelf: _Label | None, name: tuple[str, Identity], resident: Resident
    ) -> None:
        there = self._alone.get(shelf, {})
        group = there.get(name)
        if group is None:
            return
        group.drop(resident)
        if not group.places:
            del there[name]
        if not there:
            del self._alone[shelf]

    def _near(self, selector: LabelSelector) -> Iterable[Resident]:
        """Few machines that include all that match: those with the rarest label asked for."""
        asked = [self._labelled.get(label, {}) for label in selector.match_labels.items()]
        return min((*asked, self.residents), key=len).values()


def _shelf(selector: LabelSelector) -> _Label | None:
    """One label that everything a selector matches has, None when it asks for none."""
    return min(selector.match_labels.items(), default=None)


def _required(terms: Iterable[Apart]) -> Iterator[tuple[tuple[str, Identity], Apart]]:
    """Each required term once, by what it says."""
    seen = {(it.topology_key, identity(it.selector)): it for it in terms if it.required}
    yield from seen.items()
