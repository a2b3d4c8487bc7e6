"""A cluster at one moment: objects that were read once, to be looked at like a cache."""

import copy
from collections.abc import Iterable, Iterator, Mapping

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj


class Snapshot:
    """Implements `banlieue.sdk.kube.ObjectReader` over objects that never change."""

    def __init__(self, objects: Iterable[tuple[Resource, Obj]] = ()) -> None:
        self._objects: dict[Resource, dict[Key, Obj]] = {}
        for resource, obj in objects:
            self._objects.setdefault(resource, {})[Key.of(obj)] = obj

    def get(self, resource: Resource, key: Key) -> Obj | None:
        """The object as it was read, None when it was not there."""
        return copy.deepcopy(self._objects.get(resource, {}).get(key))

    def list(self, resource: Resource, *, namespace: str = "") -> Iterator[Obj]:
        """All objects of a kind, by key."""
        for key, obj in sorted(self._objects.get(resource, {}).items()):
            if namespace in {"", key.namespace}:
                yield copy.deepcopy(obj)

    def revisions(self, resource: Resource) -> Mapping[Key, object]:
        """The objects themselves: they stay what they are."""
        return dict(self._objects.get(resource, {}))

    def synced(self, *resources: Resource) -> bool:
        """Everything there is was read."""
        del resources
        return True
