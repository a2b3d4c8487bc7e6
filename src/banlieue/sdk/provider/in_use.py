"""The finalizer that keeps a Provider, its Secrets and its Lease while machines need them.

Without credentials nothing can be destroyed in order, so all that a Provider with machines needs
stays until the last of them is gone.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import LEASES, PROVIDERS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.backend import Backend
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.kube import ApiClient, Conflict, Forbidden, Key, NotFound, Obj
from banlieue.sdk.provider.connection import Source, sources

FINALIZER = names.FINALIZER_PROVIDER_IN_USE

_ATTEMPTS = 5

log = logging.getLogger(__name__)


def lease_key(provider: Provider) -> Key:
    """The Lease of a Provider: named by its UID, in its namespace."""
    return Key(provider.metadata.namespace or "", provider.metadata.uid or "")


def needed(provider: Provider) -> tuple[Source, ...]:
    """What must outlive the Provider's machines, the Provider itself last."""
    key = Key(provider.metadata.namespace or "", provider.metadata.name)
    return (*sources(provider).all(), (LEASES, lease_key(provider)), (PROVIDERS, key))


def is_in_use(provider: Provider) -> bool:
    """Whether the Provider carries the finalizer."""
    return FINALIZER in provider.metadata.finalizers


async def ensure_in_use(api: ApiClient, provider: Provider, *, manager: str) -> None:
    """Hold the Provider and all it needs, before its first machine is minted.

    The Provider is marked last: its finalizer says that the others have theirs. With it there, as
    `provider` was last read, nothing is called.

    Raises:
        NeedsOperator: the Provider is being deleted, so nothing new may depend on it; or an
            object it needs is missing or being deleted.
        ApiError: a write failed; nothing may be minted yet.
    """
    if provider.metadata.deletion_timestamp is not None:
        raise NeedsOperator(
            Reason.PROVIDER_DELETING, "the Provider is being deleted; use another Provider"
        )
    if not is_in_use(provider):
        await hold(api, needed(provider), manager=manager)


async def hold(api: ApiClient, objects: Sequence[Source], *, manager: str) -> None:
    """Put the finalizer on all of `objects`, in order.

    Raises:
        NeedsOperator: one of them is missing or being deleted.
        ApiError: a write failed.
    """
    for resource, key in objects:
        try:
            await _change(api, (resource, key), manager=manager, present=True)
        except NotFound as error:
            raise NeedsOperator(
                Reason.PROVIDER_NOT_READY,
                f"{resource.kind} {key} is missing, and machines of the Provider need it; "
                "create it again",
            ) from error


async def release(api: ApiClient, objects: Sequence[Source], *, manager: str) -> None:
    """Take the finalizer off all of `objects`, in order; what is gone already counts as done.

    Raises:
        ApiError: a write failed; the rest is not touched.
    """
    for source in objects:
        try:
            await _change(api, source, manager=manager, present=False)
        except NotFound:
            continue


async def let_go(
    api: ApiClient, backend: Backend[Any], provider: Provider, *, manager: str
) -> bool:
    """Release the Provider and all it needs if it has no machine; tells whether it did.

    A machine that is minted meanwhile may have relied on the finalizers. So the machines are read
    once more afterwards, and everything is held again if there is one.

    Raises:
        ApiError: a read or write failed; what is held then is held on.
    """
    key = Key(provider.metadata.namespace or "", provider.metadata.name)
    if await machines_exist(api, backend, key):
        return False
    await release(api, needed(provider), manager=manager)
    if provider.metadata.deletion_timestamp is None and await machines_exist(api, backend, key):
        await hold(api, needed(provider), manager=manager)
        return False
    return True


async def machines_exist(api: ApiClient, backend: Backend[Any], provider: Key) -> bool:
    """Whether any machine object of the Provider exists, by a live read.

    Raises:
        ApiError: nobody knows.
    """
    selector = machine_selector(provider)
    return bool(await api.list(backend.machine, field_selector=selector))


def machine_selector(provider: Key | None) -> str:
    """Selects a Provider's machines on the API server; everything for None.

    Watches with equal selectors share a stream, so machine reconcilers use the same.
    """
    if provider is None:
        return ""
    return (
        f"{names.FIELD_PROVIDER_NAMESPACE}={provider.namespace},"
        f"{names.FIELD_PROVIDER_NAME}={provider.name}"
    )


async def own_lease(api: ApiClient, provider: Provider, *, manager: str) -> None:
    """Give the Lease an owner reference to its Provider, so that it does not stay behind.

    With admission plugin OwnerReferencesPermissionEnforcement it is written by those alone
    who may delete the Lease, which no provider may. There it stays behind, empty.

    Raises:
        ApiError: a read or write failed.
    """
    key, meta = lease_key(provider), provider.metadata
    try:
        lease = await api.get(LEASES, key)
    except NotFound:
        return
    owners = list(lease["metadata"].get("ownerReferences") or ())
    if any(owner.get("uid") == meta.uid for owner in owners):
        return
    owner = {
        "apiVersion": PROVIDERS.api_version,
        "kind": PROVIDERS.kind,
        "name": meta.name,
        "uid": meta.uid,
    }
    version = lease["metadata"]["resourceVersion"]
    ops = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/ownerReferences", "value": [*owners, owner]},
    ]
    try:
        await api.json_patch(LEASES, key, ops, manager=manager)
    except Forbidden as error:
        log.info("the Lease stays behind", extra={"lease": str(key), "error": error.message})


async def _change(api: ApiClient, source: Source, *, manager: str, present: bool) -> None:
    resource, key = source
    for attempt in range(_ATTEMPTS):
        obj = await api.get(resource, key)
        ops = finalizer_ops(obj, FINALIZER, present=present)
        if not ops:
            return
        if present and obj["metadata"].get("deletionTimestamp"):
            raise NeedsOperator(
                Reason.PROVIDER_DELETING,
                f"{resource.kind} {key} is being deleted, and machines of the Provider need it; "
                "let the deletion end and create it again",
            )
        try:
            await api.json_patch(resource, key, ops, manager=manager)
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def finalizer_ops(obj: Obj, finalizer: str, *, present: bool) -> list[Mapping[str, Any]]:
    """A JSON patch that adds or removes a finalizer on exactly this version; empty if none is due.

    Finalizers of others stay as they are.
    """
    meta = obj["metadata"]
    current: list[str] = list(meta.get("finalizers") or ())
    if (finalizer in current) == present:
        return []
    wanted = [*current, finalizer] if present else [f for f in current if f != finalizer]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
        {"op": "add", "path": "/metadata/finalizers", "value": wanted},
    ]
