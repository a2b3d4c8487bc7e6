"""Which kinds an API server serves, and under which paths."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from test.kit.kube_http import KubeError

# Media type of the answers that `Discovery` reads.
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind in one version.

    Attributes:
        group: API group; empty for the core group.
        version: Version within the group.
        plural: Name in paths.
        kind: Kind of its objects.
        namespaced: Whether its objects live in namespaces.
        names: All names it goes by, lower case: plural, singular, kind and short names.
        verbs: What can be done with it.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    names: frozenset[str]
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        """As objects of the kind carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str = "") -> str:
        """The path of a collection, an object or a subresource.

        Args:
            namespace: For a collection None means all namespaces.
            name: None for the collection.
            subresource: Such as `status`.

        Raises:
            ValueError: An object of a namespaced kind is named without its namespace.
        """
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


class Discovery:
    """Kinds by name; asked again when a name is not known, since kinds come and go."""

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        """Ask by `fetch`, which gets a path and answers with the document of type AGGREGATED."""
        self._fetch = fetch
        self._resources: tuple[Resource, ...] = ()
        self._lock = threading.Lock()

    def resource(self, name: str) -> Resource:
        """The kind of a name as kubectl takes it: `Pod`, `pods`, `po`, `machines.cluster.x-k8s.io`.

        Without group the core group goes first, then the server's order of groups.

        Raises:
            KubeError: The server does not serve it (404 NotFound).
        """
        plural, _, group = name.lower().partition(".")
        for resources in self._looks():
            for resource in resources:
                if plural in resource.names and (not group or resource.group == group):
                    return resource
        raise KubeError(404, "NotFound", f"the server serves no kind {name!r}")

    def resource_of(self, obj: Mapping[str, Any]) -> Resource:
        """The kind of an object with `apiVersion` and `kind`.

        Raises:
            KubeError: The server does not serve it (404 NotFound).
        """
        api_version, kind = obj["apiVersion"], obj["kind"]
        for resources in self._looks():
            for resource in resources:
                if resource.api_version == api_version and resource.kind == kind:
                    return resource
        raise KubeError(404, "NotFound", f"the server serves no {kind} in {api_version}")

    def refresh(self) -> tuple[Resource, ...]:
        """Ask the server for all kinds it serves now."""
        found: list[Resource] = []
        for path in ("/api", "/apis"):
            found += _resources_in(json.loads(self._fetch(path)))
        with self._lock:
            self._resources = tuple(found)
        return self._resources

    def _looks(self) -> Iterator[tuple[Resource, ...]]:
        yield self._resources
        yield self.refresh()


def _resources_in(document: dict[str, Any]) -> Iterator[Resource]:
    for group in document["items"]:
        # The first version of a group is the preferred one, so it is found first.
        for version in group.get("versions", ()):
            for entry in version.get("resources", ()):
                # An entry without response kind exists only for its subresources.
                if "responseKind" in entry:
                    yield _resource(group["metadata"].get("name", ""), version["version"], entry)


def _resource(group: str, version: str, entry: dict[str, Any]) -> Resource:
    kind = entry["responseKind"]["kind"]
    names = {entry["resource"], entry.get("singularResource", ""), kind.lower()}
    return Resource(
        group=group,
        version=version,
        plural=entry["resource"],
        kind=kind,
        namespaced=entry["scope"] == "Namespaced",
        names=frozenset(names | set(entry.get("shortNames", ())) - {""}),
        verbs=frozenset(entry["verbs"]),
    )
