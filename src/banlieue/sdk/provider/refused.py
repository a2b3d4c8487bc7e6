"""Which namespaces have machines on a Provider that does not allow them. Pure but for the cache."""

from banlieue.api.resources import NAMESPACES
from banlieue.api.v1alpha1.provider_status import RefusedNamespaces
from banlieue.sdk import tenancy
from banlieue.sdk.kube import Key
from banlieue.sdk.provider.scope import ProviderScope

MAX_NAMES = 10


def refused(scope: ProviderScope) -> RefusedNamespaces | None:
    """What the Provider's status says of them; as it was while labels are not known.

    Only the names of those that have machines are told, so the status changes when a namespace
    comes or goes and not with each of its machines.
    """
    cache = scope.ctx.cache
    if not cache.synced(NAMESPACES, scope.backend.machine):
        return scope.provider.status.refused_namespaces
    names = sorted({machine.key.namespace for machine in scope.machines})
    found = [name for name in names if not _allowed(scope, name)]
    return RefusedNamespaces(count=len(found), names=found[:MAX_NAMES]) if found else None


def fresh(before: RefusedNamespaces | None, after: RefusedNamespaces | None) -> str:
    """What to tell about namespaces that came to be refused; empty when none did."""
    known = before.count if before else 0
    if after is None or after.count <= known:
        return ""
    more = f" and {after.count - len(after.names)} more" if after.count > len(after.names) else ""
    return (
        f"Machines of namespaces {', '.join(after.names)}{more} are held: allowedNamespaces "
        "leaves these out"
    )


def _allowed(scope: ProviderScope, namespace: str) -> bool:
    obj = scope.ctx.cache.get(NAMESPACES, Key("", namespace)) or {}
    labels = (obj.get("metadata") or {}).get("labels") or {}
    return tenancy.namespace_allowed(scope.provider, namespace, labels)
