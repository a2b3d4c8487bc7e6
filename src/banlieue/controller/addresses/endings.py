"""How claims end: with the VM that used the address, never before it."""

import contextlib
import logging
from enum import Enum

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine, MoveRole, TeardownMode
from banlieue.api.resources import IP_ADDRESS_CLAIMS, VIRTUAL_MACHINES
from banlieue.api.types import DeletionPolicy
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller import writes
from banlieue.controller.addresses import claims
from banlieue.controller.addresses.claims import Wish
from banlieue.controller.infra.kinds import Found
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import ApiClient, Key, NotFound, Obj
from banlieue.sdk.reconcile import Result

_CLAIM_SECONDS = 10.0

log = logging.getLogger(__name__)


async def settle(services: Services, found: Found) -> Result:
    """A machine object is on its way out: once its VM is settled, so are its claims, then it goes.

    The VM was destroyed: the claims end, but for those another machine of its VirtualMachine uses,
    or that the VirtualMachine will use again. It was left on the backend: they stay, and belong to
    nobody, because the VM still answers to its addresses.
    """
    if not claims.is_held(found.obj):
        return Result()
    if names.machine_finalizer(found.kind.kind) in found.obj["metadata"]["finalizers"]:
        return Result()
    api = services.ctx.api
    end = _end(Machine.from_api(found.obj), await _made_for(api, found))
    open_ones = [await _settle_one(api, found, obj, end) for obj in await _used_by(api, found)]
    if any(open_ones):
        return Result(_CLAIM_SECONDS)
    await writes.drop_finalizer(api, found.kind, found.obj, names.FINALIZER_ADDRESSES)
    return Result()


class _End(Enum):
    """What becomes of the claims that no other machine uses."""

    KEPT = "a machine of the same VirtualMachine takes them up again"
    RELEASED = "the VM is destroyed, or never was"
    ABANDONED = "the VM may be there, and is found again if its owner comes back"
    LEFT = "the VM was left to its user, and is nobody's any more"


def _end(machine: Machine, vm: VirtualMachine | None) -> _End:
    """Decide for a machine whose provider has let go of it.

    Args:
        machine: the machine.
        vm: what it was made for, as read live; None when that is gone, and with Cluster API.
    """
    behind = machine.spec.role is not MoveRole.CURRENT
    leaving = vm is None or vm.metadata.deletion_timestamp is not None
    if _is_destroyed(machine, vm):
        # What a move leaves behind, or gives up, is not made again.
        return _End.RELEASED if leaving or behind else _End.KEPT
    if vm is None:
        return _End.ABANDONED
    orphans = vm.spec.wanted_deletion_policy is DeletionPolicy.ORPHAN
    if orphans and (leaving or machine.spec.role is MoveRole.PREVIOUS):
        return _End.LEFT
    return _End.ABANDONED if leaving else _End.KEPT


def _is_destroyed(machine: Machine, vm: VirtualMachine | None) -> bool:
    """Whether the VM is gone for good, or never was begun.

    An object that was made anew knows nothing yet of the VM that its VirtualMachine has.
    """
    if machine.spec.instance is None:
        begun = vm.status.initialization if vm is not None else None
        known = begun is not None and begun.provisioned
        return machine.spec.role is not MoveRole.CURRENT or not known
    intent = machine.spec.teardown
    asked = intent is not None and intent.uid == machine.metadata.uid
    return asked and intent is not None and intent.mode is TeardownMode.DESTROY


async def _made_for(api: ApiClient, found: Found) -> VirtualMachine | None:
    """The VirtualMachine of a machine, read live."""
    made_for = (found.obj.get("spec") or {}).get("virtualMachineRef")
    if made_for is None:
        return None
    with contextlib.suppress(NotFound):
        key = Key(found.key.namespace, made_for["name"])
        return VirtualMachine.from_api(await api.get(VIRTUAL_MACHINES, key))
    return None


async def _used_by(api: ApiClient, found: Found) -> list[Obj]:
    """All claims that name this machine among their owners, read live."""
    try:
        listed = await api.list(IP_ADDRESS_CLAIMS, namespace=found.key.namespace)
    except NotFound:
        return []  # Cluster API was removed, and all claims with it
    mine = Key(found.kind.crd_name, found.key.name)
    return [
        obj
        for obj in listed
        if names.FINALIZER_ADDRESSES in (obj["metadata"].get("finalizers") or ())
        and mine in claims.machines_among(_owners(obj), [found.kind])
    ]


async def _settle_one(api: ApiClient, found: Found, obj: Obj, end: _End) -> bool:
    """Do what is due with one claim; whether it still has to go."""
    left = claims.without_owner(_owners(obj), found.kind, found.key.name)
    if end is _End.KEPT or claims.is_used(left):
        if not obj["metadata"].get("deletionTimestamp"):
            await _own(api, obj, left)
            return False
        await unhold(api, obj)
        return True
    if end is _End.RELEASED:
        await release(api, obj)
        return True
    log.warning(
        "the VM was left on its backend, and so is its address; delete the claim when it is gone",
        extra={"machine": str(found.key), "claim": obj["metadata"]["name"]},
    )
    await _leave(api, obj, found.key.name if end is _End.LEFT else None)
    return False


async def release(api: ApiClient, obj: Obj) -> None:
    """Delete a claim; the pool has its address back then."""
    key, meta = Key.of(obj), obj["metadata"]
    with contextlib.suppress(NotFound):
        if not meta.get("deletionTimestamp"):
            await api.delete(IP_ADDRESS_CLAIMS, key, uid=meta["uid"])
            obj = await api.get(IP_ADDRESS_CLAIMS, key)
        await unhold(api, obj)


async def unhold(api: ApiClient, obj: Obj) -> None:
    """Take our finalizer off a claim; one that is gone already is fine."""
    with contextlib.suppress(NotFound):
        await writes.drop_finalizer(api, IP_ADDRESS_CLAIMS, obj, names.FINALIZER_ADDRESSES)


async def _own(api: ApiClient, obj: Obj, owners: claims.Owners) -> None:
    op = {"op": "replace", "path": "/metadata/ownerReferences", "value": owners}
    with contextlib.suppress(NotFound):
        await writes.patch(api, IP_ADDRESS_CLAIMS, obj, [op])


async def _leave(api: ApiClient, obj: Obj, left_with: str | None) -> None:
    """Let a claim belong to nobody: no garbage collector gives its address away.

    One that was left together with its VM says so, and no other machine of that name takes it up.
    """
    ops: writes.Ops = [
        {"op": "replace", "path": "/metadata/ownerReferences", "value": []},
        {
            "op": "replace",
            "path": "/metadata/finalizers",
            "value": [
                it for it in obj["metadata"]["finalizers"] if it != names.FINALIZER_ADDRESSES
            ],
        },
    ]
    if left_with is not None:
        told = {**(obj["metadata"].get("annotations") or {}), names.ANNOTATION_LEFT_WITH: left_with}
        ops.append({"op": "add", "path": "/metadata/annotations", "value": told})
    with contextlib.suppress(NotFound):
        await writes.patch(api, IP_ADDRESS_CLAIMS, obj, ops)


async def let_unused_go(services: Services, key: Key) -> None:
    """A claim that no machine uses: if it is being deleted, nothing of ours holds it."""
    obj = services.ctx.cache.get(IP_ADDRESS_CLAIMS, key)
    if obj is None or not obj["metadata"].get("deletionTimestamp"):
        return
    if not await _is_used(services, obj):
        await unhold(services.ctx.api, obj)


async def _is_used(services: Services, obj: Obj) -> bool:
    """Whether a machine among the owners is there, read live: it settles its claims itself."""
    kinds = {kind.crd_name: kind for kind in services.kinds.named()}
    for it in claims.machines_among(_owners(obj), kinds.values()):
        with contextlib.suppress(NotFound):
            await services.ctx.api.get(kinds[it.namespace], Key(Key.of(obj).namespace, it.name))
            return True
    return False


async def release_unplugged(
    services: Services, found: Found, machine: Machine, wishes: list[Wish]
) -> None:
    """End the claims of interfaces the VM has lost, unless another machine uses them.

    Raises:
        Conflict: the machine changed since it was read, perhaps by having the interface back.
    """
    wanted = {wish.claim for wish in wishes}
    mine = Key(found.kind.crd_name, found.key.name)
    for obj in services.ctx.cache.list(IP_ADDRESS_CLAIMS, namespace=found.key.namespace):
        meta, present = obj["metadata"], _owners(obj)
        if meta["name"] in wanted or [mine] != claims.machines_among(present, [found.kind]):
            continue
        nic = (meta.get("annotations") or {}).get(names.ANNOTATION_INTERFACE, "")
        others = claims.is_used(claims.without_owner(present, found.kind, found.key.name))
        if nic and not others and claims.is_unplugged(machine, nic):
            await writes.patch(services.ctx.api, found.kind, found.obj, [])
            await release(services.ctx.api, obj)


def _owners(obj: Obj) -> claims.Owners:
    owners: claims.Owners = obj["metadata"].get("ownerReferences") or []
    return owners
