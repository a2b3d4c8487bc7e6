"""The phases of a pass over a Provider, each answering one question."""

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.reasons import Reason
from banlieue.api.resources import DEPLOYMENTS, NAMESPACES, PROVIDERS
from banlieue.operator import machines, objects
from banlieue.operator.hands import Blocked, Done
from banlieue.operator.objects import KINDS, Wanted
from banlieue.operator.scope import ProviderScope, Services
from banlieue.sdk.kube import Forbidden, Key, NotFound, Obj
from banlieue.sdk.outcome import CONTINUE, Outcome, Stop, Wait
from banlieue.sdk.patches import finalizer_ops, patch_unchanged
from banlieue.sdk.phases import run_phases

_MACHINES_SECONDS = 15.0
_NAMESPACE_SECONDS = 10.0


async def check_paused(scope: ProviderScope) -> Outcome:
    """Does anybody ask for hands off?"""
    if scope.provider.spec.paused:
        return Stop(Reason.PAUSED, "spec.paused is set: what serves the Provider stays as it is")
    of_class = scope.provider_class
    if of_class is not None and of_class.spec.paused:
        return Stop(
            Reason.PAUSED,
            f"ProviderClass {of_class.metadata.name!r} is paused: what serves the Provider stays "
            "as it is",
        )
    return CONTINUE


async def check_class(scope: ProviderScope) -> Outcome:
    """Is there a class, and is it of the backend that serves the Provider already?"""
    name, of_class = scope.provider.spec.provider_class_ref.name, scope.provider_class
    if of_class is None:
        return Stop(
            Reason.PROVIDER_CLASS_NOT_FOUND,
            scope.class_flaw
            or f"ProviderClass {name!r} does not exist; create it or refer to another. What serves "
            "the Provider stays as it is",
        )
    if scope.backend not in {"", of_class.spec.backend}:
        return Stop(
            Reason.PROVIDER_CLASS_MISMATCH,
            f"ProviderClass {name!r} is of backend {of_class.spec.backend!r}; backend "
            f"{scope.backend!r} goes on serving the Provider: refer to a class of that backend, or "
            "make a new Provider",
        )
    return CONTINUE


async def check_image(scope: ProviderScope) -> Outcome:
    """Is it known what to run?"""
    if scope.workload is None or scope.workload.image:
        return CONTINUE
    return Stop(
        Reason.INVALID_CONFIGURATION,
        f"no image is known: set spec.image of ProviderClass "
        f"{scope.provider.spec.provider_class_ref.name!r}, or --image of the operator",
    )


async def check_namespace(scope: ProviderScope) -> Outcome:
    """Is there where the pod is to move to? What serves the Provider goes before its successor."""
    serving, cache = scope.serving(), scope.services.ctx.cache
    if scope.workload is None or serving is None or not cache.synced(NAMESPACES):
        return CONTINUE
    name = scope.workload.namespace
    if serving["metadata"]["namespace"] == name:
        return CONTINUE
    found = cache.get(NAMESPACES, Key("", name))
    if found is not None and not found["metadata"].get("deletionTimestamp"):
        return CONTINUE
    state = "does not exist" if found is None else "is being deleted"
    return Wait(
        Reason.WORKLOAD_REFUSED,
        f"namespace {name!r}, where the pod is to run by ProviderClass "
        f"{scope.provider.spec.provider_class_ref.name!r}, {state}: create it or correct "
        "spec.workloadNamespace. What serves the Provider stays as it is",
        after=_NAMESPACE_SECONDS,
    )


async def hold(scope: ProviderScope) -> Outcome:
    """Will the operator be asked before the Provider is gone?"""
    ops = finalizer_ops(scope.raw, names.FINALIZER_PROVIDER_WORKLOAD, present=True)
    scope.raw = await patch_unchanged(
        scope.services.ctx.api, PROVIDERS, scope.raw, ops, manager=names.MANAGER_OPERATOR
    )
    return CONTINUE


async def remove_strays(scope: ProviderScope) -> Outcome:
    """Is there something of ours that is no longer wanted, in another namespace or by another name?

    What is not wanted goes before its successor comes, the Deployment first.
    """
    if scope.workload is None:
        return CONTINUE
    wanted = {(it.resource, it.key) for it in scope.workload.wanted()}
    for (resource, key), obj in scope.found.items():
        if (resource, key) not in wanted and await scope.services.hands.remove(resource, obj):
            scope.removed.append(f"{resource.kind} {key}")
    return CONTINUE


async def make(scope: ProviderScope) -> Outcome:
    """Is everything there, and as it should be?"""
    workload, index = scope.workload, scope.services.index
    if workload is None:
        return CONTINUE
    index.served_by(scope.key, scope.uid, workload.spec.backend)
    for wanted in workload.wanted():
        index.add(scope.key, (wanted.resource, wanted.key))
        known = scope.found.get((wanted.resource, wanted.key))
        done, obj = await scope.services.hands.ensure(wanted, known, scope.key)
        if done is Done.GOING:
            return Wait(
                Reason.WORKLOAD_NOT_READY,
                f"{wanted.resource.kind} {wanted.key} is being deleted, and is made again then",
                after=5.0,
            )
        _note(scope, wanted, done)
        if wanted.resource == DEPLOYMENTS:
            scope.deployment = obj
    scope.settled = True
    return CONTINUE


def _note(scope: ProviderScope, wanted: Wanted, done: Done) -> None:
    told = {Done.MADE: scope.made, Done.CHANGED: scope.changed}.get(done)
    if told is not None:
        told.append(f"{wanted.resource.kind} {wanted.key}")


SERVING = (check_class, check_image, check_namespace, remove_strays, make)

LIVING = (
    check_paused,
    check_class,
    check_image,
    check_namespace,
    hold,
    remove_strays,
    make,
)


async def wait_for_machines(scope: ProviderScope) -> Outcome:
    """Does a machine still need the Provider? Then its process is kept at work."""
    left = await _machines_left(scope)
    if not scope.in_use and not left:
        return CONTINUE
    if scope.holds:
        outcome = await run_phases(SERVING, scope)
        if isinstance(outcome, Wait):
            return outcome
    count = max(left, scope.provider.status.machine_count or 0) if scope.in_use else left
    what = f"{count} machines are still there" if count else "its process still holds it"
    return Wait(
        Reason.PROVIDER_IN_USE,
        f"the deletion waits: {what}; delete or move the machines first. Until then the Provider "
        "is served",
        after=_MACHINES_SECONDS,
    )


async def _machines_left(scope: ProviderScope) -> int:
    of_class = scope.provider_class
    own = of_class.spec.machine.to_resource() if of_class else None
    try:
        return await machines.left(scope.services.ctx, scope.key, own)
    except Forbidden as error:
        raise Blocked(
            Reason.WORKLOAD_REFUSED,
            f"the deletion waits: whether machines are left cannot be told ({error.message}); the "
            f"backend's manifests bring a ClusterRole for that, with label "
            f"{names.LABEL_AGGREGATE_TO_OPERATOR}",
        ) from error


async def tear_down(scope: ProviderScope) -> Outcome:
    """Is everything gone that was made for the Provider?"""
    workload = scope.workload
    named = [(it.resource, it.key) for it in workload.wanted()] if workload else []
    named += [made for made in scope.found if made not in named]
    scope.removed += await take_away(scope.services, scope.key, named)
    return CONTINUE


async def let_go(scope: ProviderScope) -> Outcome:
    """May the Provider go?"""
    ops = finalizer_ops(scope.raw, names.FINALIZER_PROVIDER_WORKLOAD, present=False)
    scope.raw = await patch_unchanged(
        scope.services.ctx.api, PROVIDERS, scope.raw, ops, manager=names.MANAGER_OPERATOR
    )
    scope.let_go = True
    scope.services.index.forget(scope.key)
    return CONTINUE


DELETING = (check_paused, wait_for_machines, tear_down, let_go)


async def take_away(
    services: Services, provider: Key, named: list[tuple[Resource, Key]]
) -> list[str]:
    """Delete all that was made for a Provider, as live reads show it; says what it deleted.

    Args:
        services: what all passes share.
        provider: the Provider.
        named: names to look under as well, as somebody may have taken labels off.
    """
    api, removed = services.ctx.api, []
    for resource in KINDS:
        there = await api.list(resource, label_selector=objects.selector_of(provider))
        keys = {Key.of(obj) for obj in there}
        there += [
            obj
            for kind, key in named
            if kind == resource and key not in keys
            for obj in await _find(services, kind, key)
        ]
        removed += [
            f"{resource.kind} {Key.of(obj)}"
            for obj in there
            if objects.is_of(obj, provider) and await services.hands.remove(resource, obj)
        ]
    return removed


async def _find(services: Services, resource: Resource, key: Key) -> list[Obj]:
    try:
        return [await services.ctx.api.get(resource, key)]
    except NotFound:
        return []
