"""Labels the namespaces that hold a Provider with machines, so that they cannot be deleted.

A ValidatingAdmissionPolicy refuses the deletion of a namespace with the label. Whoever gives the
machines up says so by another value of it, which is left as it is while the namespace is in use.
"""

from collections.abc import Iterable

from banlieue.api.names import FINALIZER_PROVIDER_IN_USE, LABEL_IN_USE, MANAGER_OPERATOR
from banlieue.api.resources import NAMESPACES, PROVIDERS
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.patches import Op, patch_unchanged
from banlieue.sdk.reconcile import Change, Context, Controller, Request, Result, Watch

CONTROLLER = "namespace-in-use"
"""Name of the controller."""

VALUE = "true"


class InUseReconciler:
    """One pass looks at one namespace."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def reconcile(self, key: Key) -> Result:
        """Put the label on, or take it off. Raises `ApiError`."""
        obj = self._ctx.cache.get(NAMESPACES, key)
        if obj is None or not self._ctx.cache.synced(PROVIDERS):
            return Result()
        in_use = any(map(_in_use, self._ctx.cache.list(PROVIDERS, namespace=key.name)))
        await patch_unchanged(
            self._ctx.api, NAMESPACES, obj, _ops(obj, in_use=in_use), manager=MANAGER_OPERATOR
        )
        return Result()

    def controller(self) -> Controller:
        """The reconciler with its watches."""
        watches = (Watch(NAMESPACES, _map_namespace), Watch(PROVIDERS, _map_provider))
        return Controller(CONTROLLER, self, watches, workers=1)


def _ops(obj: Obj, *, in_use: bool) -> list[Op]:
    labels = obj["metadata"].get("labels")
    path = f"/metadata/labels/{LABEL_IN_USE.replace('/', '~1')}"
    if in_use and labels is None:
        return [{"op": "add", "path": "/metadata/labels", "value": {LABEL_IN_USE: VALUE}}]
    there = LABEL_IN_USE in (labels or {})
    if there == in_use:
        return []
    return [
        {"op": "add", "path": path, "value": VALUE} if in_use else {"op": "remove", "path": path}
    ]


def _in_use(provider: Obj) -> bool:
    return FINALIZER_PROVIDER_IN_USE in (provider["metadata"].get("finalizers") or ())


def _map_namespace(change: Change) -> Iterable[Request]:
    return (Request(change.key),) if change.new is not None else ()


def _map_provider(change: Change) -> Iterable[Request]:
    before, after = (it is not None and _in_use(it) for it in (change.old, change.new))
    # What is told of a deletion may be the object as it was last, its finalizers gone.
    moved = before != after or change.new is None or change.replayed
    return (Request(Key("", change.key.namespace)),) if moved else ()
