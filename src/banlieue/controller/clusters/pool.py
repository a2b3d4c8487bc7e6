"""The control plane endpoint from an address pool: claimed once, written once, kept to the end.

The consumer's side of Cluster API's IPAM contract, v1beta2. The address belongs to the cluster as
long as one of its machines is there: whoever announces it would otherwise share it with the next
one the pool gives it to. That is why a cluster that claims one is held by a finalizer.
"""

import contextlib
import hashlib
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.cluster import EndpointPool, InfraCluster
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CAPI_CLUSTERS,
    CAPI_MACHINES,
    IP_ADDRESS_CLAIMS,
    IP_ADDRESSES,
)
from banlieue.controller import writes
from banlieue.controller.clusters import report
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import AlreadyExists, Key, NotFound, Obj
from banlieue.sdk.machine.pausing import is_paused

RETRY_SECONDS = 30.0
"""Until something nobody tells of is looked at again: a kind that is installed, an address."""

ENDING_SECONDS = 5.0
"""Until the machines of a cluster that is deleted are counted again."""

_LONGEST = 253
_HASH_LENGTH = 8
_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class Pooled:
    """What became of the address of a cluster.

    Attributes:
        obj: the cluster as it is now.
        waits: why there is no endpoint yet; empty when nothing is waited for here.
        note: what is wrong with the claim of an endpoint that stands; empty when nothing is.
        again: seconds until the next look, None when a change will tell.
    """

    obj: Obj
    waits: str = ""
    again: float | None = None
    note: str = ""


def claim_name(cluster: str, pool: EndpointPool) -> str:
    """Name the claim of a cluster's endpoint; another pool means another claim."""
    identity = ["endpoint", cluster, pool.api_group, pool.kind, pool.name]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-endpoint-{digest}"
    return cluster[: _LONGEST - len(tail)].rstrip("-.") + tail


def is_held(obj: Obj) -> bool:
    """Whether a cluster stays until its address is given back."""
    return names.FINALIZER_ADDRESSES in (obj["metadata"].get("finalizers") or ())


async def settle(services: Services, kind: Resource, obj: Obj, owner: Key) -> Pooled:
    """Have the endpoint of a living cluster claimed, and write it into the spec once it is given.

    Args:
        services: what the controller works with.
        kind: the kind of the cluster.
        obj: the cluster as read, which is not paused as far as the cache knows.
        owner: its Cluster.

    Raises:
        ApiError: a call failed; a Conflict means that the cluster changed meanwhile.
    """
    cluster = InfraCluster.from_api(obj)
    pool = cluster.spec.control_plane_endpoint_pool
    if pool is None:
        return Pooled(obj)
    if cluster.spec.control_plane_endpoint is not None:
        obj = await _held(services, kind, obj, owner, claim_name(cluster.metadata.name, pool))
        host = cluster.spec.control_plane_endpoint.host
        note = ""
        if is_held(obj):
            note = await _reserved(services, kind, obj, pool=pool, owner=owner, host=host)
        if note and note not in _ready_message(cluster):
            services.ctx.recorder.event(obj, EventReason.ADDRESS_NOT_ASSIGNED, note, warning=True)
        return Pooled(obj, note=note, again=RETRY_SECONDS if note else None)
    whose = await _live(services, owner)
    if is_paused(whose) or report.endpoint(cluster, whose) is not None:
        return Pooled(obj)  # the pause, or the endpoint, will be told to the cache
    obj = await _confirmed(services, kind, obj)
    await _drop_others(services, kind, obj, claim_name(cluster.metadata.name, pool))
    return await _ask(services, kind, obj, pool, owner)


async def _ask(
    services: Services, kind: Resource, obj: Obj, pool: EndpointPool, owner: Key
) -> Pooled:
    claim, waits = await _claim(services, kind, obj, pool, owner)
    if claim is None:
        return Pooled(obj, waits, RETRY_SECONDS)
    reference = _reference_to_address(claim)
    if not reference:
        return Pooled(obj, _pending(claim, pool))
    address = await _address(services, claim, reference)
    if address is None:
        what = f"IPAddress {reference} is no address for IPAddressClaim {claim['metadata']['name']}"
        return Pooled(obj, what, RETRY_SECONDS)
    endpoint = {"host": address, "port": pool.port}
    op = {"op": "add", "path": "/spec/controlPlaneEndpoint", "value": endpoint}
    return Pooled(await writes.patch(services.ctx.api, kind, obj, [op]))


async def let_go(services: Services, kind: Resource, obj: Obj, owner: Key | None) -> Pooled:
    """Give the address of a cluster that is being deleted back, once its machines are gone.

    Args:
        services: what the controller works with.
        kind: the kind of the cluster.
        obj: the cluster as read.
        owner: its Cluster; None when nothing tells any more, then labels do.
    """
    if not is_held(obj):
        return Pooled(obj)
    if owner is not None and is_paused(await _live(services, owner)):
        return Pooled(obj)
    api, namespace = services.ctx.api, obj["metadata"].get("namespace") or ""
    selector = f"{names.CAPI_LABEL_CLUSTER_NAME}={_cluster_name(obj, owner)}"
    for machines in (CAPI_MACHINES, *services.kinds.named()):
        with contextlib.suppress(NotFound):
            left = await api.list(machines, namespace=namespace, label_selector=selector)
            # A VirtualMachine's labels are its user's, and so are those of its machine.
            if not all((it.get("spec") or {}).get("virtualMachineRef") for it in left):
                return Pooled(obj, again=ENDING_SECONDS)
    await _drop_others(services, kind, obj, "")
    with contextlib.suppress(NotFound):
        obj = await writes.drop_finalizer(api, kind, obj, names.FINALIZER_ADDRESSES)
    return Pooled(obj)


def _cluster_name(obj: Obj, owner: Key | None) -> str:
    meta = obj["metadata"]
    told = (meta.get("labels") or {}).get(names.CAPI_LABEL_CLUSTER_NAME)
    return owner.name if owner else str(told or meta["name"])


async def _live(services: Services, owner: Key) -> Obj | None:
    with contextlib.suppress(NotFound):
        return await services.ctx.api.get(CAPI_CLUSTERS, owner)
    return None


async def _confirmed(services: Services, kind: Resource, obj: Obj) -> Obj:
    """The cluster held, and certainly as it was read: claims are ended by what it says.

    Raises:
        Conflict: it changed since, and may have an endpoint of a claim that is to stay.
    """
    api = services.ctx.api
    if is_held(obj):
        return await writes.patch(api, kind, obj, [])
    return await writes.add_finalizer(api, kind, obj, names.FINALIZER_ADDRESSES)


async def _held(services: Services, kind: Resource, obj: Obj, owner: Key, claim: str) -> Obj:
    """Hold a cluster again whose finalizer was taken off, as long as its claim is there.

    A claim that was restored names the owner of an earlier life, and would be collected.
    """
    known = services.ctx.cache.get(IP_ADDRESS_CLAIMS, Key(obj["metadata"]["namespace"], claim))
    if known is None or _is_foreign(kind, obj, known):
        return obj
    owned = _reference(kind, obj) in (known["metadata"].get("ownerReferences") or ())
    if (is_held(obj) and owned) or is_paused(await _live(services, owner)):
        return obj
    await _owned(services, kind, obj, known)
    return await writes.add_finalizer(services.ctx.api, kind, obj, names.FINALIZER_ADDRESSES)


async def _reserved(
    services: Services, kind: Resource, obj: Obj, *, pool: EndpointPool, owner: Key, host: str
) -> str:
    """What keeps the pool from knowing that an address of it is in use; empty when it knows.

    A claim that somebody deleted, or that no backup brought back, is made again. Nothing in the
    contract asks for a certain address, so another one may come of it.
    """
    namespace = obj["metadata"]["namespace"]
    known = services.ctx.cache.list(IP_ADDRESS_CLAIMS, namespace=namespace)
    claim = _standing(services, (it for it in known if _is_mine(kind, obj, it)), host)
    if claim is None:
        if is_paused(await _live(services, owner)):
            return ""
        claim, why = await _claim(
            services, kind, await _confirmed(services, kind, obj), pool, owner, again=host
        )
        if claim is None:
            return f"the address pool does not know that {host} is the endpoint: {why}"
    return await _misgiven(services, claim, pool, host)


def _standing(services: Services, claims: Iterable[Obj], host: str) -> Obj | None:
    """The claim that stands for an endpoint: that of its address, else one that will stay.

    One that is being deleted, of a pool that was named before, may take its time.
    """
    staying = None
    for claim in claims:
        if _known_address(services, claim) == host:
            return claim
        if not claim["metadata"].get("deletionTimestamp"):
            staying = claim
    return staying


def _reference_to_address(claim: Obj) -> str:
    return str(((claim.get("status") or {}).get("addressRef") or {}).get("name") or "")


def _known_address(services: Services, claim: Obj) -> str:
    """The address of a claim as far as the cache knows; empty when it does not."""
    key = Key(claim["metadata"]["namespace"], _reference_to_address(claim))
    found = services.ctx.cache.get(IP_ADDRESSES, key) or {}
    return str((found.get("spec") or {}).get("address", ""))


async def _misgiven(services: Services, claim: Obj, pool: EndpointPool, host: str) -> str:
    """Why the address of an endpoint is not that of its claim; empty when it is."""
    name, whose = claim["metadata"]["name"], claim["spec"]["poolRef"]
    if claim["metadata"].get("deletionTimestamp"):
        return (
            f"IPAddressClaim {name} is being deleted while {host} is the endpoint: the pool may "
            "give it to somebody else; the claim is made again"
        )
    reference = _reference_to_address(claim)
    if not reference:
        refused = any(
            (it.get("type"), it.get("status")) == ("Ready", "False")
            for it in (claim.get("status") or {}).get("conditions") or ()
        )
        return f"nobody keeps {host} for this cluster: {_pending(claim, pool)}" if refused else ""
    if _known_address(services, claim) == host:
        return ""
    given = await _address(services, claim, reference)
    if given in {None, host}:
        return ""
    return (
        f"{whose['kind']} {whose['name']} gave {given} to IPAddressClaim {name}, but {host} is the "
        f"endpoint and stays it: reserve {host} in the pool it came from, which may give it to "
        "somebody else"
    )


def _ready_message(cluster: InfraCluster) -> str:
    told = (it.message for it in cluster.status.conditions if it.type == ConditionType.READY)
    return next(told, "")


async def _claim(
    services: Services,
    kind: Resource,
    obj: Obj,
    pool: EndpointPool,
    owner: Key,
    *,
    again: str = "",
) -> tuple[Obj | None, str]:
    """The claim as it is, made or put right; or why it cannot be had.

    `again` is the endpoint whose claim was there once: that it had to be made is told.
    """
    api, meta = services.ctx.api, obj["metadata"]
    key = Key(meta["namespace"], claim_name(meta["name"], pool))
    wanted = _wanted(kind, obj, pool, owner, key)
    try:
        claim = await api.get(IP_ADDRESS_CLAIMS, key)
    except NotFound:
        try:
            claim = await api.create(IP_ADDRESS_CLAIMS, wanted, manager=names.MANAGER_CONTROLLER)
            if again:
                made = f"made IPAddressClaim {key.name} of endpoint {again} again: it was gone"
                services.ctx.recorder.event(
                    obj, EventReason.ADDRESS_NOT_ASSIGNED, made, warning=True
                )
        except AlreadyExists:
            claim = await api.get(IP_ADDRESS_CLAIMS, key)
        except NotFound:
            return None, (
                "the API server knows no IPAddressClaim: install Cluster API's core provider and "
                "an IPAM provider"
            )
    if claim["metadata"].get("deletionTimestamp"):
        return None, f"IPAddressClaim {key.name} is being deleted, and is made again then"
    if _is_foreign(kind, obj, claim) or claim["spec"].get("poolRef") != wanted["spec"]["poolRef"]:
        return None, (
            f"IPAddressClaim {key.name} exists and was made for something else: delete it when "
            "nothing uses its address"
        )
    return await _owned(services, kind, obj, claim), ""


def _wanted(kind: Resource, obj: Obj, pool: EndpointPool, owner: Key, key: Key) -> Obj:
    return {
        "apiVersion": IP_ADDRESS_CLAIMS.api_version,
        "kind": IP_ADDRESS_CLAIMS.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {names.CAPI_LABEL_CLUSTER_NAME: owner.name},
            "ownerReferences": [_reference(kind, obj)],
        },
        "spec": {
            "clusterName": owner.name,
            "poolRef": {"apiGroup": pool.api_group, "kind": pool.kind, "name": pool.name},
        },
    }


def _reference(kind: Resource, obj: Obj) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _identity(reference: dict[str, Any]) -> tuple[str, str, str]:
    group = str(reference.get("apiVersion", "")).partition("/")[0]
    return group, str(reference.get("kind")), str(reference.get("name"))


def _is_foreign(kind: Resource, obj: Obj, claim: Obj) -> bool:
    mine = (kind.group, kind.kind, obj["metadata"]["name"])
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(it.get("controller") and _identity(it) != mine for it in owners)


def _is_mine(kind: Resource, obj: Obj, claim: Obj) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(it.get("controller") for it in owners) and not _is_foreign(kind, obj, claim)


async def _owned(services: Services, kind: Resource, obj: Obj, claim: Obj) -> Obj:
    """Put right whose a claim is, after a restore or a hand."""
    present, mine = claim["metadata"].get("ownerReferences") or [], _reference(kind, obj)
    if mine in present:
        return claim
    others = [it for it in present if _identity(it) != _identity(mine)]
    op = {"op": "add", "path": "/metadata/ownerReferences", "value": [mine, *others]}
    return await writes.patch(services.ctx.api, IP_ADDRESS_CLAIMS, claim, [op])


async def _drop_others(services: Services, kind: Resource, obj: Obj, kept: str) -> None:
    """Delete the claims of a cluster but one.

    No endpoint was ever made of the others' addresses, or no machine is left that answers to them.
    """
    api = services.ctx.api
    with contextlib.suppress(NotFound):
        for claim in await api.list(IP_ADDRESS_CLAIMS, namespace=obj["metadata"]["namespace"]):
            meta = claim["metadata"]
            if not _is_mine(kind, obj, claim) or meta["name"] == kept:
                continue
            if not meta.get("deletionTimestamp"):
                await api.delete(IP_ADDRESS_CLAIMS, Key.of(claim), uid=meta["uid"])


def _pending(claim: Obj, pool: EndpointPool) -> str:
    what = f"{pool.kind} {pool.name} gives no address to IPAddressClaim {claim['metadata']['name']}"
    for it in (claim.get("status") or {}).get("conditions") or ():
        if it.get("type") == "Ready" and it.get("status") == "False":
            said = str(it.get("message", ""))[:_SHOWN]
            return f"{what} ({it.get('reason', '')}): {said}"
    return f"{what} yet"


async def _address(services: Services, claim: Obj, name: str) -> str | None:
    """What the claim was given, read live: what is written is written for good."""
    key = Key(claim["metadata"]["namespace"], name)
    with contextlib.suppress(NotFound, ValueError):
        found = await services.ctx.api.get(IP_ADDRESSES, key)
        spec = found.get("spec") or {}
        mine = (spec.get("claimRef") or {}).get("name") == claim["metadata"]["name"]
        if mine and not found["metadata"].get("deletionTimestamp"):
            return str(ipaddress.ip_address(spec.get("address", "")))
    return None
