"""JSON patches that apply only to the very version that was read.

Finalizers and single fields of objects that others write too go this way, not by server-side apply:
omission removes a field only while nobody else owns it, and after a restore somebody does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from banlieue.api.meta import Resource
from banlieue.sdk.kube import ApiClient, Key, Obj

Op = Mapping[str, Any]


def unchanged(obj: Obj) -> Op:
    """The operation that makes a patch fail when the object is not the version that was read."""
    version = obj["metadata"]["resourceVersion"]
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}


def finalizer_ops(obj: Obj, finalizer: str, *, present: bool) -> list[Op]:
    """What adds or removes a finalizer, empty when nothing is due; those of others stay.

    The list is written whole, so send it together with `unchanged`, as `patch_unchanged` does.
    """
    held: list[str] = list(obj["metadata"].get("finalizers") or ())
    if (finalizer in held) == present:
        return []
    wanted = [*held, finalizer] if present else [it for it in held if it != finalizer]
    return [{"op": "add", "path": "/metadata/finalizers", "value": wanted}]


async def patch_unchanged(
    api: ApiClient,
    resource: Resource,
    obj: Obj,
    ops: Sequence[Op],
    *,
    manager: str,
    subresource: str = "",
) -> Obj:
    """Patch the object as it was read, and give it as it is now; no operations, no request.

    Raises:
        Conflict: it changed since.
        ApiError: it is gone, or the result was refused.
    """
    if not ops:
        return obj
    return await api.json_patch(
        resource,
        Key.of(obj),
        [unchanged(obj), *ops],
        manager=manager,
        subresource=subresource,
    )
