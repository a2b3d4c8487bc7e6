"""Who asks for hands off a machine, and how: read before anything else, the deletion included.

`clusterctl move` replaces all annotations of an object by its own before it deletes it, so that
annotation and the pause of the Cluster are all that tells a move from an end.
"""

from collections.abc import Awaitable, Callable, Iterator

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import Resource
from banlieue.api.resources import CAPI_CLUSTERS
from banlieue.sdk.kube import ApiClient, Key, NotFound, Obj, ObjectReader
from banlieue.sdk.machine.strays import no_cluster
from banlieue.sdk.reconcile import Change, Request

ClusterReader = Callable[[Key], Awaitable[Obj | None]]
"""Gives a Cluster by its key, None when there is none."""


def moves_away(machine: Machine) -> bool:
    """Whether a move to another management cluster takes this object away: nothing is written."""
    return names.CAPI_ANNOTATION_DELETE_FOR_MOVE in machine.metadata.annotations


async def why_paused(machine: Machine, read_cluster: ClusterReader) -> str | None:
    """Why nothing may be done to this machine at all, None when something may.

    The presence of the annotation counts, whatever its value. A machine of Cluster API whose
    Cluster is not known counts as paused; one whose Cluster is gone does not.

    Args:
        machine: the machine.
        read_cluster: reads its Cluster; asked only where that decides.

    Raises:
        ApiError: nobody knows whether the Cluster is paused.
    """
    if machine.spec.paused:
        return "spec.paused is set"
    if names.CAPI_ANNOTATION_PAUSED in machine.metadata.annotations:
        return f"annotation {names.CAPI_ANNOTATION_PAUSED} is set"
    if machine.spec.virtual_machine_ref is not None:
        return None
    cluster = machine.metadata.labels.get(names.CAPI_LABEL_CLUSTER_NAME)
    if not cluster:
        return no_cluster(machine)
    found = await read_cluster(Key(machine.metadata.namespace or "", cluster))
    return "its Cluster is paused" if is_paused(found) else None


def is_paused(cluster: Obj | None) -> bool:
    """Whether a Cluster asks for hands off all that belongs to it; one that is gone does not."""
    return bool(((cluster or {}).get("spec") or {}).get("paused"))


def machines_of(cache: ObjectReader, kind: Resource, change: Change) -> Iterator[Request]:
    """Passes over the machines of a Cluster that was paused, resumed, or is gone.

    Nothing else tells of it: a machine's own object stays as it is.
    """
    if is_paused(change.old) == is_paused(change.new) and change.new is not None:
        return
    for obj in cache.list(kind, namespace=change.key.namespace):
        labels = obj["metadata"].get("labels") or {}
        if labels.get(names.CAPI_LABEL_CLUSTER_NAME) == change.key.name:
            yield Request(Key.of(obj))


def live(api: ApiClient) -> ClusterReader:
    """Reads Clusters from the API server, as is due before anything irreversible."""

    async def read(key: Key) -> Obj | None:
        try:
            return await api.get(CAPI_CLUSTERS, key)
        except NotFound:
            return None

    return read
