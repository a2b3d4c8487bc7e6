"""Whose an object of Cluster API is, and whether it may be touched."""

from banlieue.api import names
from banlieue.api.resources import CAPI_CLUSTERS
from banlieue.sdk.kube import Key, NotFound, Obj
from banlieue.sdk.machine.pausing import is_paused
from banlieue.sdk.reconcile import Context


def owner_of(obj: Obj) -> Key | None:
    """The Cluster that owns an object, None while none does."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        group = reference["apiVersion"].partition("/")[0]
        if (group, reference["kind"]) == (CAPI_CLUSTERS.group, CAPI_CLUSTERS.kind):
            return Key(obj["metadata"].get("namespace") or "", reference["name"])
    return None


async def read_cluster(ctx: Context, key: Key) -> Obj | None:
    """A Cluster as cached, or live when it is not known yet; None when there is none.

    Raises:
        ApiError: nobody knows.
    """
    known = ctx.cache.get(CAPI_CLUSTERS, key)
    if known is not None:
        return known
    try:
        return await ctx.api.get(CAPI_CLUSTERS, key)
    except NotFound:
        return None


def is_others(obj: Obj) -> bool:
    """Whether somebody else manages the object, or `clusterctl move` takes it away.

    By presence, whatever the value. Then not even a condition is written.
    """
    annotations = obj["metadata"].get("annotations") or {}
    return names.CAPI_ANNOTATION_MANAGED_BY in annotations or moves_away(obj)


def moves_away(obj: Obj) -> bool:
    """Whether `clusterctl move` takes the object away."""
    annotations = obj["metadata"].get("annotations") or {}
    return names.CAPI_ANNOTATION_DELETE_FOR_MOVE in annotations


def pause_of(obj: Obj, cluster: Obj | None) -> str | None:
    """Why nothing may be done with the object but to say so, None when nothing asks for that.

    Args:
        obj: the object; its annotation pauses by presence.
        cluster: the Cluster that owns it. One that is not there pauses nothing.
    """
    if names.CAPI_ANNOTATION_PAUSED in (obj["metadata"].get("annotations") or {}):
        return f"annotation {names.CAPI_ANNOTATION_PAUSED} is set"
    return "its Cluster is paused" if is_paused(cluster) else None
