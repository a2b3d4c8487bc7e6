"""Which cluster and machine template kinds are watched, and whose clusters are of which kind."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import PROVIDER_CLASSES
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.sdk.kube import ApiClient, Forbidden, Key, ObjectReader
from banlieue.sdk.machine_kinds import labelled_kinds, labelled_machine_kinds

log = logging.getLogger(__name__)


def request_key(kind: Resource, key: Key) -> Key:
    """A queue key that tells the kind too, as one controller serves those of all backends."""
    return Key(key.namespace, f"{kind.crd_name}/{key.name}")


def template_of(machine: Resource) -> Resource:
    """The template kind of a machine kind; Cluster API makes its name the same way."""
    kind = f"{machine.kind}Template"
    return Resource(machine.group, machine.version, kind, names.plural(kind))


@dataclass(slots=True)
class Kinds:
    """Kinds by the name of their CRD; one once known stays known."""

    _known: dict[str, Resource] = field(default_factory=dict)

    def add(self, kind: Resource) -> None:
        """Know a kind from now on."""
        self._known[kind.crd_name] = kind

    def all(self) -> tuple[Resource, ...]:
        """All that are known."""
        return tuple(self._known.values())

    def find(self, key: Key) -> tuple[Resource, Key] | None:
        """The kind and the object a queue key means."""
        crd, _, name = key.name.partition("/")
        kind = self._known.get(crd)
        return (kind, Key(key.namespace, name)) if kind else None


def of_classes(cache: ObjectReader) -> Mapping[str, str]:
    """For each ProviderClass the name of its cluster kind's CRD, empty where it has none."""
    found: dict[str, str] = {}
    for obj in cache.list(PROVIDER_CLASSES):
        cluster = ProviderClass.from_api(obj).spec.cluster
        found[obj["metadata"]["name"]] = cluster.to_resource().crd_name if cluster else ""
    return found


async def installed(api: ApiClient) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """The cluster kinds and the machine kinds that are installed, by the labels on their CRDs.

    A cluster whose class is missing is served too: its status says what it waits for.
    """
    try:
        clusters = await labelled_kinds(api, names.LABEL_CLUSTER_KIND)
        return clusters, await labelled_machine_kinds(api)
    except Forbidden:
        log.warning("may not list CustomResourceDefinitions; cluster kinds come from classes")
        return (), ()
