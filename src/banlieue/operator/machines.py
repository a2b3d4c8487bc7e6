"""How many machine objects refer to a Provider, by live reads."""

import logging

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import PROVIDER_CLASSES
from banlieue.api.v1alpha1.providerclass import GroupVersionKind
from banlieue.sdk.kube import Forbidden, Key, NotFound
from banlieue.sdk.machine_kinds import labelled_machine_kinds
from banlieue.sdk.reconcile import Context

log = logging.getLogger(__name__)


async def left(ctx: Context, provider: Key, own: Resource | None) -> int:
    """Count the machines of a Provider over all kinds, those of classes that are gone as well.

    Args:
        ctx: the injected world.
        provider: the Provider.
        own: the machine kind of its class; others that may not be listed do not hold it up.

    Raises:
        Forbidden: `own` may not be listed.
        ApiError: nobody knows, so nothing may be taken away.
    """
    selector = (
        f"{names.FIELD_PROVIDER_NAMESPACE}={provider.namespace},"
        f"{names.FIELD_PROVIDER_NAME}={provider.name}"
    )
    count = 0
    for kind in await _kinds(ctx):
        try:
            count += len(await ctx.api.list(kind, field_selector=selector))
        except NotFound:
            continue  # a class names a kind that is not installed
        except Forbidden:
            if own is not None and (kind.group, kind.kind) == (own.group, own.kind):
                raise
            log.warning("may not list machines of a kind", extra={"kind": kind.crd_name})
    return count


async def _kinds(ctx: Context) -> list[Resource]:
    named = [
        GroupVersionKind.from_api(obj["spec"]["machine"]).to_resource()
        for obj in ctx.cache.list(PROVIDER_CLASSES)
    ]
    try:
        labelled = await labelled_machine_kinds(ctx.api)
    except Forbidden:
        log.warning("may not list CustomResourceDefinitions; machine kinds come from classes")
        labelled = ()
    known = {(kind.group, kind.kind): kind for kind in (*labelled, *named)}
    return [known[name] for name in sorted(known)]
