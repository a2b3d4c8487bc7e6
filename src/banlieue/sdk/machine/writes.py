"""The few writes a provider makes to a machine beside its report, each with a version test."""

from typing import Any

from banlieue.api.infrastructure.machine import Instance
from banlieue.api.meta import format_time
from banlieue.sdk.driver import RESTART
from banlieue.sdk.kube import STATUS, Obj
from banlieue.sdk.machine.scope import Scope

Ops = list[dict[str, Any]]


async def claim_instance(scope: Scope, instance: Instance) -> None:
    """Persist identity and finalizer in one patch, before anything is made on the backend.

    Raises:
        Conflict: the object changed meanwhile; another pass decides anew.
    """
    ops = _finalizer_added(scope.raw, scope.finalizer)
    ops.append({"op": "add", "path": "/spec/instance", "value": instance.to_api()})
    await _patch(scope, ops)


async def record_provider_id(scope: Scope, provider_id: str) -> None:
    """Write `spec.providerID`; the caller has seen the VM on the backend.

    Raises:
        Conflict: the object changed meanwhile.
    """
    await _patch(scope, [{"op": "add", "path": "/spec/providerID", "value": provider_id}])


async def clear_refusal(scope: Scope) -> None:
    """Take back that the backend refused the machine, as it is about to be asked again.

    The controller places a refused machine elsewhere and lets this object go unasked. From here on
    a VM may come into being, so whoever decided on the refusal must fail its version test.

    Raises:
        Conflict: the object changed meanwhile; it may be on its way out.
    """
    if scope.machine.status.create_refused is not None:
        await _patch(scope, [{"op": "remove", "path": "/status/createRefused"}], subresource=STATUS)


async def announce_restart(scope: Scope) -> None:
    """Write down that the VM is about to be restarted, so that it is not done again.

    Raises:
        Conflict: the object changed meanwhile.
    """
    started = format_time(scope.ctx.clock.now())
    value = {"operation": RESTART, "startedAt": started}
    ops = [{"op": "add", "path": "/status/task", "value": value}]
    await _patch(scope, ops, subresource=STATUS)


async def hold(scope: Scope) -> None:
    """Put our finalizer on a machine that has none, or not any more.

    Raises:
        Conflict: the object changed meanwhile; it may be on its way out.
    """
    ops = _finalizer_added(scope.raw, scope.finalizer)
    if ops:
        await _patch(scope, ops)


async def drop_finalizer(scope: Scope) -> None:
    """Let the object go; nothing of it is left on the backend, or it was released.

    Raises:
        Conflict: the object changed meanwhile.
    """
    finalizers = scope.raw["metadata"].get("finalizers") or []
    if scope.finalizer not in finalizers:
        return
    kept = [name for name in finalizers if name != scope.finalizer]
    await _patch(scope, [{"op": "replace", "path": "/metadata/finalizers", "value": kept}])


def _finalizer_added(raw: Obj, finalizer: str) -> Ops:
    finalizers = raw["metadata"].get("finalizers") or []
    if finalizer in finalizers:
        return []
    return [{"op": "add", "path": "/metadata/finalizers", "value": [*finalizers, finalizer]}]


async def _patch(scope: Scope, ops: Ops, *, subresource: str = "") -> None:
    version = scope.raw["metadata"]["resourceVersion"]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    scope.replace(
        await scope.ctx.api.json_patch(
            scope.backend.machine,
            scope.key,
            [test, *ops],
            manager=scope.manager,
            subresource=subresource,
        )
    )
