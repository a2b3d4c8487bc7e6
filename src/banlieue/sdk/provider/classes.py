"""The ProviderClass a backend has when nobody made one. Pure."""

from typing import Any

from banlieue.api.infrastructure.cluster import InfraCluster
from banlieue.api.meta import Resource
from banlieue.api.v1alpha1.providerclass import GroupVersionKind, ProviderClass, ProviderClassSpec
from banlieue.sdk.backend import Backend


def default_class(backend: Backend[Any]) -> ProviderClass:
    """The class named like the backend, with the kinds the backend brings."""
    clusters = [kind.resource for kind in backend.kinds if issubclass(kind, InfraCluster)]
    spec = ProviderClassSpec(
        backend=backend.name,
        machine=_kind(backend.machine),
        cluster=_kind(clusters[0]) if clusters else None,
    )
    made = ProviderClass(spec=spec)
    made.metadata.name = backend.name
    return made


def _kind(resource: Resource) -> GroupVersionKind:
    return GroupVersionKind(api_group=resource.group, version=resource.version, kind=resource.kind)
