"""Writes a status once per pass, whole, and only when it differs.

Server-side apply removes what a manager leaves out only while nobody else owns it too. After a
create, a restore or an edit by hand somebody else does, so the answer is compared with what was
wanted and what is left over is taken out by JSON patch.
"""

from collections.abc import Collection, Mapping
from typing import Any

from banlieue.api.meta import Resource
from banlieue.sdk.kube import STATUS, ApiClient, Invalid, Key, Obj

Ops = list[dict[str, Any]]


async def write_status(
    api: ApiClient,
    resource: Resource,
    obj: Obj,
    status: Mapping[str, Any],
    *,
    manager: str,
    foreign: Collection[str] = (),
) -> Obj | None:
    """Make the object's status equal to `status`.

    Args:
        api: client to write with.
        resource: kind of the object.
        obj: the object as last read; what it says already is not written again.
        status: the complete status this manager owns, as JSON data.
        manager: field manager.
        foreign: top-level fields of the status that belong to somebody else.

    Returns:
        The object as it is now, None when nothing had to be written.

    Raises:
        Conflict: the object is not the version that was read.
        ApiError: the object is gone, or the status does not fit the schema.
    """
    if not _differences(obj, status, foreign):
        return None
    meta = obj["metadata"]
    # With the version, since an apply that names a uid only does not notice another object of the
    # name: the status of a machine must not land on the one that was made in its place.
    named = ("namespace", "name", "resourceVersion")
    target = {name: meta[name] for name in named if meta.get(name)}
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": target,
        "status": dict(status),
    }
    try:
        answer = await api.apply(resource, body, manager=manager, subresource=STATUS)
    except Invalid:
        # Of a group of fields only those go that nobody else owns, and what is left of it may not
        # fit the schema: an object restored in the middle of a task could never be written again.
        return await _patch(api, resource, obj, _differences(obj, status, foreign), manager)
    leftovers = _differences(answer, status, foreign)
    if not leftovers:
        return answer
    return await _patch(api, resource, answer, leftovers, manager)


async def _patch(api: ApiClient, resource: Resource, obj: Obj, ops: Ops, manager: str) -> Obj:
    version = obj["metadata"]["resourceVersion"]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return await api.json_patch(
        resource, Key.of(obj), [test, *ops], manager=manager, subresource=STATUS
    )


async def replace_status(
    api: ApiClient,
    resource: Resource,
    obj: Obj,
    status: Mapping[str, Any],
    *,
    manager: str,
) -> Obj | None:
    """Make the object's status equal to `status`, only if nobody touched the object meanwhile.

    For an object whose status carries decisions (where a machine was placed, which object makes
    it): a pass over an old copy must not undo them. One write, whatever was there before.

    Returns:
        The object as it is now, None when nothing had to be written.

    Raises:
        Conflict: the object is not the version that was read.
        ApiError: the object is gone.
    """
    differences = _differences(obj, status, ())
    if not differences:
        return None
    version = obj["metadata"]["resourceVersion"]
    ops = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    if not obj.get("status"):
        ops.append({"op": "add", "path": "/status", "value": dict(status)})
    else:
        ops.extend(differences)
    return await api.json_patch(resource, Key.of(obj), ops, manager=manager, subresource=STATUS)


def _differences(obj: Obj, status: Mapping[str, Any], foreign: Collection[str]) -> Ops:
    """The patch that would make the object's status equal to `status`."""
    found = {key: value for key, value in (obj.get("status") or {}).items() if key not in foreign}
    ops: Ops = [
        {"op": "remove", "path": f"/status/{key}"} for key in sorted(found) if key not in status
    ]
    ops += [
        {"op": "add", "path": f"/status/{key}", "value": value}
        for key, value in sorted(status.items())
        if found.get(key) != value
    ]
    return ops
