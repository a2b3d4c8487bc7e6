"""Address claims as plain data: what a machine wants claimed, and what a claim gave. Pure.

The consumer's side of Cluster API's IPAM contract, v1beta2.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from banlieue.api import names
from banlieue.api.devices import AddressAssignment, NetworkInterface
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import Resource
from banlieue.api.resources import CAPI_CLUSTERS, IP_ADDRESS_CLAIMS, VIRTUAL_MACHINES
from banlieue.api.types import AddressSource, IPFamily
from banlieue.api.v1alpha1.provider import Capabilities, PoolRef
from banlieue.sdk import pools, shape
from banlieue.sdk.kube import Key, Obj

Owners = list[dict[str, Any]]
"""Owner references as metadata holds them."""

POOL_EXHAUSTED = "PoolExhausted"
"""Reason with which an IPAM provider says that its pool is empty (contract, condition Ready)."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One address a machine wants from a pool, and the claim it comes by."""

    nic: str
    family: IPFamily
    pool: PoolRef
    claim: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """The address a pool gave; prefix in bits."""

    address: str
    prefix: int | None
    gateway: str | None


Given = Mapping[tuple[str, IPFamily], Assigned]
"""What pools gave, by interface and family."""


def wants_pool(machine: Obj) -> bool:
    """Whether a machine object has an interface with an address from a pool."""
    nics = (machine.get("spec") or {}).get("networkInterfaces") or ()
    return any(
        entry.get("source") == AddressSource.POOL.value
        for nic in nics
        for entry in nic.get("ipam") or ()
    )


def is_held(machine: Obj) -> bool:
    """Whether a machine object stays until its claims are settled."""
    return names.FINALIZER_ADDRESSES in (machine["metadata"].get("finalizers") or ())


def wishes(machine: Machine, capabilities: Capabilities) -> list[Wish]:
    """All addresses of a machine that come from pools, as its Provider declares them.

    A network class without a pool of the family has none: the provider says so.
    """
    snapshot = machine.spec.class_
    nics = shape.interfaces(
        NetworkInterface, snapshot.network if snapshot else None, machine.spec.network_interfaces
    )
    subnets = {net.name: net.subnets for net in capabilities.network_classes}
    found: list[Wish] = []
    for nic in nics:
        for entry in nic.ipam:
            pool = pools.pool_of(subnets.get(nic.network_class or "", ()), entry.family)
            if entry.source is AddressSource.POOL and pool is not None:
                name = pools.claim_of(machine, nic.name, entry.family, pool)
                found.append(Wish(nic.name, entry.family, pool, name))
    return found


def claim(wish: Wish, machine: Machine, owners: Owners) -> Obj:
    """The claim to POST."""
    # On a VirtualMachine's it is a label like others, which its user chose.
    made_for_vm = machine.spec.virtual_machine_ref is not None
    labels_of = machine.metadata.labels if not made_for_vm else {}
    cluster = labels_of.get(names.CAPI_LABEL_CLUSTER_NAME)
    spec: dict[str, Any] = {
        "poolRef": {
            "apiGroup": wish.pool.api_group,
            "kind": wish.pool.kind,
            "name": wish.pool.name,
        }
    }
    labels: dict[str, str] = {}
    if cluster:
        spec["clusterName"] = labels[names.CAPI_LABEL_CLUSTER_NAME] = cluster
    return {
        "apiVersion": IP_ADDRESS_CLAIMS.api_version,
        "kind": IP_ADDRESS_CLAIMS.kind,
        "metadata": {
            "name": wish.claim,
            "namespace": machine.metadata.namespace,
            "labels": labels,
            "annotations": {names.ANNOTATION_INTERFACE: wish.nic},
            "finalizers": [names.FINALIZER_ADDRESSES],
            "ownerReferences": owners,
        },
        "spec": spec,
    }


def owners(machine: Machine, kind: Resource, vm: Obj | None) -> Owners:
    """Whom a claim belongs to.

    Its VirtualMachine, which outlives its machine objects, and each machine that uses it: no claim
    is collected while any of them is there. With Cluster API the machine alone.
    """
    using = _reference(kind, machine.metadata.name, machine.metadata.uid or "", controls=vm is None)
    if vm is None:
        return [using]
    meta = vm["metadata"]
    return [_reference(VIRTUAL_MACHINES, meta["name"], meta["uid"], controls=True), using]


def _reference(kind: Resource, name: str, uid: str, *, controls: bool) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": uid,
        "controller": controls,
        "blockOwnerDeletion": controls,
    }


def with_owners(present: Iterable[Mapping[str, Any]], wanted: Owners) -> Owners:
    """The owners of a claim, ours put right; an outdated uid is replaced, others stay."""
    ours = {_identity(entry) for entry in wanted}
    return [*wanted, *(dict(entry) for entry in present if _identity(entry) not in ours)]


def without_owner(present: Iterable[Mapping[str, Any]], kind: Resource, name: str) -> Owners:
    """The owners of a claim but for one."""
    gone = (kind.group, kind.kind, name)
    return [dict(entry) for entry in present if _identity(entry) != gone]


def machines_among(present: Iterable[Mapping[str, Any]], kinds: Iterable[Resource]) -> list[Key]:
    """Kind and name of the machines among the owners, as `Key(kind's CRD name, name)`."""
    known = {(kind.group, kind.kind): kind.crd_name for kind in kinds}
    return [
        Key(known[identity[:2]], identity[2])
        for identity in map(_identity, present)
        if identity[:2] in known
    ]


def is_used(present: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a machine is among these owners, of whatever kind.

    A machine whose class is gone answers to its address all the same.
    """
    others = {(VIRTUAL_MACHINES.group, VIRTUAL_MACHINES.kind)}
    return any(
        group != CAPI_CLUSTERS.group and (group, kind) not in others
        for group, kind, _ in map(_identity, present)
    )


def serves(obj: Obj, wish: Wish, owners: Owners) -> bool:
    """Whether a claim is one of these owners' for the interface of a wish, and stays."""
    meta = obj["metadata"]
    mine = {_identity(entry) for entry in owners}
    return (
        not meta.get("deletionTimestamp")
        and (meta.get("annotations") or {}).get(names.ANNOTATION_INTERFACE) == wish.nic
        and not mine.isdisjoint(map(_identity, meta.get("ownerReferences") or ()))
    )


def _identity(reference: Mapping[str, Any]) -> tuple[str, str, str]:
    group = str(reference.get("apiVersion", "")).partition("/")[0]
    return group, str(reference.get("kind", "")), str(reference.get("name", ""))


def foreign(obj: Obj, wish: Wish, owners: Owners) -> str | None:
    """Why a claim of that name is somebody else's and what to do about it, None when it is not."""
    meta, mine = obj["metadata"], {_identity(entry) for entry in owners}
    if names.ANNOTATION_LEFT_WITH in (meta.get("annotations") or {}):
        return (
            "keeps the address of a VM of this name that was left on its backend; delete the claim "
            "when that VM is gone, or give the new one another name"
        )
    for it in meta.get("ownerReferences") or ():
        if it.get("controller") and _identity(it) not in mine:
            return (
                f"belongs to {it.get('kind')} {it.get('name')}; delete the claim when nothing uses "
                "its address, or choose another name"
            )
    pool = (obj.get("spec") or {}).get("poolRef") or {}
    wanted = (wish.pool.api_group, wish.pool.kind, wish.pool.name)
    if (pool.get("apiGroup"), pool.get("kind"), pool.get("name")) != wanted:
        return f"is of another pool than {wish.pool.kind} {wish.pool.name}; delete the claim"
    return None


def problem(obj: Obj) -> tuple[str, str] | None:
    """Reason and message with which the pool's provider says why it gives no address."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "False":
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return None


def address_name(obj: Obj) -> str | None:
    """Name of the IPAddress a claim was given."""
    reference = (obj.get("status") or {}).get("addressRef") or {}
    name: str | None = reference.get("name")
    return name


def assigned(address: Obj, claim_name: str, family: IPFamily) -> Assigned | None:
    """What an IPAddress gives, None when it is not this claim's or no address of the family."""
    spec = address.get("spec") or {}
    text, prefix, gateway = spec.get("address", ""), spec.get("prefix"), spec.get("gateway")
    mine = (spec.get("claimRef") or {}).get("name") == claim_name
    if not mine or not pools.is_of(family, text):
        return None
    if gateway and not pools.is_of(family, gateway):
        return None
    return Assigned(text, prefix, gateway or None)


def entry_of(machine: Machine, wish: Wish) -> AddressAssignment | None:
    """Where the machine's spec holds the address of a wish."""
    for nic in machine.spec.network_interfaces:
        if nic.name == wish.nic:
            return next((it for it in nic.ipam if it.family is wish.family), None)
    return None


def filled_in(machine: Obj, given: Given) -> list[Any] | None:
    """The interfaces of a machine object with addresses in them, None when they say all already.

    An address once written stays, whatever a pool says later: the guest has it. What else stands
    there is kept as it is, fields of later versions among it.
    """
    nics = copy.deepcopy((machine.get("spec") or {}).get("networkInterfaces") or [])
    filled = [_fill(nic, entry, given) for nic in nics for entry in nic.get("ipam") or ()]
    return nics if any(filled) else None


def is_complete(machine: Machine, given: Given) -> bool:
    """Whether all addresses from pools stand in the spec, or are about to."""
    return all(
        entry.address is not None or (nic.name, entry.family) in given
        for nic in machine.spec.network_interfaces
        for entry in nic.ipam
        if entry.source is AddressSource.POOL
    )


def _fill(nic: dict[str, Any], entry: dict[str, Any], given: Given) -> bool:
    found = given.get((nic["name"], IPFamily(entry["family"])))
    if found is None or entry.get("address") is not None:
        return False
    told = {"address": found.address, "prefix": found.prefix, "gateway": found.gateway}
    entry.update({name: value for name, value in told.items() if value is not None})
    return True


def is_unplugged(machine: Machine, nic: str) -> bool:
    """Whether an interface is not asked for any more, and was seen to be on the VM no more."""
    seen = machine.status.interfaces
    asked = any(it.name == nic for it in machine.spec.network_interfaces)
    return seen is not None and not asked and all(it.name != nic for it in seen)
