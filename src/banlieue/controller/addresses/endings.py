"""How claims end: with the VM that used the address, never before it."""

import contextlib
import logging

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine, MoveRole, TeardownMode
from banlieue.api.meta import Resource
from banlieue.api.resources import IP_ADDRESS_CLAIMS, VIRTUAL_MACHINES
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
    machine = Machine.from_api(found.obj)
    destroyed = _is_destroyed(machine)
    # What a move leaves behind, or gives up, is not made again.
    superseded = destroyed and machine.spec.role is not MoveRole.CURRENT
    ends = superseded or await _ends(services, machine)
    open_ones = [
        await _settle_one(services, found, obj, ends=ends, destroyed=destroyed)
        for obj in await _used_by(api, found)
    ]
    if any(open_ones):
        return Result(_CLAIM_SECONDS)
    await writes.drop_finalizer(api, found.kind, found.obj, names.FINALIZER_ADDRESSES)
    return Result()


def _is_destroyed(machine: Machine) -> bool:
    """Whether the VM is gone for good, or never was begun."""
    intent = machine.spec.teardown
    asked = intent is not None and intent.uid == machine.metadata.uid
    destroyed = asked and intent is not None and intent.mode is TeardownMode.DESTROY
    return destroyed or machine.spec.instance is None


async def _ends(services: Services, machine: Machine) -> bool:
    """Whether nobody will make another machine that takes the same claims up."""
    made_for = machine.spec.virtual_machine_ref
    if made_for is None:
        return True
    key = Key(machine.metadata.namespace or "", made_for.name)
    with contextlib.suppress(NotFound):
        vm = await services.ctx.api.get(VIRTUAL_MACHINES, key)
        return bool(vm["metadata"].get("deletionTimestamp"))
    return True


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


async def _settle_one(
    services: Services, found: Found, obj: Obj, *, ends: bool, destroyed: bool
) -> bool:
    """Do what is due with one claim; whether it still has to go."""
    api = services.ctx.api
    left = claims.without_owner(_owners(obj), found.kind, found.key.name)
    others = claims.machines_among(left, services.kinds.named())
    if others or not ends:
        if not obj["metadata"].get("deletionTimestamp"):
            await _own(api, obj, left)
            return False
        await unhold(api, obj)
        return True
    if destroyed:
        await release(api, obj)
        return True
    log.warning(
        "the VM was left on its backend, and so is its address; delete the claim when it is gone",
        extra={"machine": str(found.key), "claim": obj["metadata"]["name"]},
    )
    await _leave(api, obj)
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


async def _leave(api: ApiClient, obj: Obj) -> None:
    """Let a claim belong to nobody: no garbage collector gives its address away."""
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
    """End the claims of interfaces the VM has lost, unless another machine uses them."""
    wanted = {wish.claim for wish in wishes}
    mine = Key(found.kind.crd_name, found.key.name)
    kinds: tuple[Resource, ...] = services.kinds.named()
    for obj in services.ctx.cache.list(IP_ADDRESS_CLAIMS, namespace=found.key.namespace):
        using = claims.machines_among(_owners(obj), kinds)
        nic = (obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_INTERFACE, "")
        if using != [mine] or obj["metadata"]["name"] in wanted:
            continue
        if nic and claims.is_unplugged(machine, nic):
            await release(services.ctx.api, obj)


def _owners(obj: Obj) -> claims.Owners:
    owners: claims.Owners = obj["metadata"].get("ownerReferences") or []
    return owners
