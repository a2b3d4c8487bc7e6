"""The writes the controller makes outside of status, each with a version test."""

from typing import Any

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.sdk.kube import ApiClient, Key, Obj

Ops = list[dict[str, Any]]


async def patch(api: ApiClient, resource: Resource, obj: Obj, ops: Ops) -> Obj:
    """JSON patch the object as it was read.

    Raises:
        Conflict: it changed since.
    """
    version = obj["metadata"]["resourceVersion"]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return await api.json_patch(
        resource, Key.of(obj), [test, *ops], manager=names.MANAGER_CONTROLLER
    )


async def add_finalizer(api: ApiClient, resource: Resource, obj: Obj, finalizer: str) -> Obj:
    """Hold the object; returns it as it is now. No write when it is held already."""
    held = obj["metadata"].get("finalizers") or []
    if finalizer in held:
        return obj
    value = [*held, finalizer]
    return await patch(
        api, resource, obj, [{"op": "add", "path": "/metadata/finalizers", "value": value}]
    )


async def drop_finalizer(api: ApiClient, resource: Resource, obj: Obj, finalizer: str) -> Obj:
    """Let the object go; returns it as it was last. No write when it is not held."""
    held = obj["metadata"].get("finalizers") or []
    if finalizer not in held:
        return obj
    value = [name for name in held if name != finalizer]
    return await patch(
        api, resource, obj, [{"op": "replace", "path": "/metadata/finalizers", "value": value}]
    )
