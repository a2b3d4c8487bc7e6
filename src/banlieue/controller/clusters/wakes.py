"""Which passes over clusters and templates a change asks for. Every function is total and pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from banlieue.api.conditions import ConditionType
from banlieue.api.meta import Resource
from banlieue.controller.clusters.kinds import Kinds, request_key
from banlieue.controller.clusters.owner import owner_of
from banlieue.sdk.kube import Key, Obj, ObjectReader
from banlieue.sdk.reconcile import Change, Priority, Request

_SPREAD = 0.01
_LONGEST_SPREAD = 30.0


@dataclass(frozen=True, slots=True)
class Wakes:
    """Maps changes to the objects of some kinds that concern them."""

    cache: ObjectReader
    kinds: Kinds

    def itself(self, kind: Resource, change: Change) -> Iterable[Request]:
        """The object was made or changed; one that is gone needs nothing."""
        return () if change.new is None else (Request(request_key(kind, change.key)),)

    def owner(self, change: Change) -> Iterable[Request]:
        """A Cluster was paused, resumed, or got its endpoint."""
        if _word(change.old) == _word(change.new) and not change.replayed:
            return ()
        return self._later(change.key.namespace, change.key)

    def claim(self, change: Change) -> Iterable[Request]:
        """The claim of an endpoint was answered, changed hands, or is gone."""
        for owner in (*_owners(change.old), *_owners(change.new)):
            for kind in self.kinds.all():
                group = str(owner.get("apiVersion", "")).partition("/")[0]
                if (group, owner.get("kind")) == (kind.group, kind.kind):
                    yield Request(request_key(kind, Key(change.key.namespace, owner["name"])))

    def provider(self, change: Change) -> Iterable[Request]:
        """A Provider offers other failure domains, or to others."""
        return () if _offer(change.old) == _offer(change.new) else self._later()

    def provider_class(self, change: Change) -> Iterable[Request]:
        """A class came, went, was paused, or has another kind of clusters."""
        old, new = change.old or {}, change.new or {}
        return () if old.get("spec") == new.get("spec") else self._later()

    def namespace(self, change: Change) -> Iterable[Request]:
        """Labels decide which Providers are offered to a namespace."""
        if _labels(change.old) == _labels(change.new):
            return ()
        return self._later(change.key.name)

    def image(self, change: Change) -> Iterable[Request]:
        """An image came, went or was edited: templates that name it tell its architecture."""
        old, new = change.old or {}, change.new or {}
        if old.get("spec") == new.get("spec"):
            return ()
        return self._later(image=change.key.name)

    def _later(
        self, namespace: str = "", owner: Key | None = None, image: str = ""
    ) -> Iterator[Request]:
        """Those of a namespace, of an owner, or that name an image; not all at once."""
        position = 0
        for kind in self.kinds.all():
            for obj in self.cache.list(kind, namespace=namespace):
                if owner is not None and owner_of(obj) != owner:
                    continue
                if image and _image(obj) != image:
                    continue
                delay = 0.0 if owner else min(position * _SPREAD, _LONGEST_SPREAD)
                priority = Priority.CHANGE if owner else Priority.RESYNC
                yield Request(request_key(kind, Key.of(obj)), delay, priority)
                position += 1


def _word(cluster: Obj | None) -> tuple[object, ...] | None:
    """What of a Cluster its infrastructure heeds."""
    if cluster is None:
        return None
    spec = cluster.get("spec") or {}
    return bool(spec.get("paused")), spec.get("controlPlaneEndpoint")


def _offer(provider: Obj | None) -> tuple[object, ...] | None:
    """What decides which failure domains a Provider gives to which clusters."""
    if provider is None:
        return None
    spec, meta, status = (provider.get(it) or {} for it in ("spec", "metadata", "status"))
    telling = ("providerClassRef", "allowedNamespaces", "cordoned", "paused", "mode")
    domains = [
        (it.get("name"), it.get("labels"), it.get("schedulable"))
        for it in status.get("failureDomains") or ()
    ]
    return (
        meta.get("labels"),
        bool(meta.get("deletionTimestamp")),
        [spec.get(name) for name in telling],
        domains,
        bool(domains) or _ready(status),
    )


def _ready(status: dict[str, Any]) -> bool:
    """Whether an empty list of failure domains is meant so."""
    conditions = status.get("conditions") or ()
    return any(
        it.get("type") == ConditionType.READY and it.get("status") == "True" for it in conditions
    )


def _owners(obj: Obj | None) -> Iterable[dict[str, Any]]:
    return ((obj or {}).get("metadata") or {}).get("ownerReferences") or ()


def _labels(obj: Obj | None) -> object:
    return ((obj or {}).get("metadata") or {}).get("labels")


def _image(template: Obj) -> str | None:
    body = ((template.get("spec") or {}).get("template") or {}).get("spec") or {}
    name: str | None = (body.get("imageRef") or {}).get("name")
    return name
