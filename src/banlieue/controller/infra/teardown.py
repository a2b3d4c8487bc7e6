"""What becomes of a machine whose object goes: decided by the controller alone, from live reads."""

import contextlib
import logging

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine, Teardown, TeardownMode
from banlieue.api.resources import NAMESPACES, PROVIDERS, VIRTUAL_MACHINES
from banlieue.api.types import DeletionPolicy
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller import writes
from banlieue.controller.infra.kinds import Found
from banlieue.sdk.kube import ApiClient, Key, NotFound

log = logging.getLogger(__name__)


def refers(vm: VirtualMachine, machine: Found) -> bool:
    """Whether the VirtualMachine's status or the machine's own spec ties the two together."""
    return refers_by_status(vm, machine) or made_by(vm, Machine.from_api(machine.obj))


def refers_by_status(vm: VirtualMachine, machine: Found) -> bool:
    """Whether the status names this machine object in any role."""
    status = vm.status
    previous = status.previous.infrastructure_ref if status.previous else None
    for reference in (status.infrastructure_ref, status.incoming_ref, previous):
        if (
            reference is not None
            and (reference.api_group, reference.kind) == (machine.kind.group, machine.kind.kind)
            and Key(reference.namespace, reference.name) == machine.key
        ):
            return True
    return False


def looks_after(vm: VirtualMachine, machine: Found) -> bool:
    """Whether the VirtualMachine's own passes decide what becomes of a machine that is deleted.

    One that lives looks at what its status names and at nothing else: a machine restored beside
    them, such as what an earlier move left behind, is none of them.
    """
    if vm.metadata.deletion_timestamp is not None:
        return refers(vm, machine)
    return refers_by_status(vm, machine)


def made_by(vm: VirtualMachine, machine: Machine) -> bool:
    """Whether this very VirtualMachine made the machine, not one of that name before it."""
    made = machine.spec.virtual_machine_ref
    return made is not None and made.name == vm.metadata.name and made.uid == vm.metadata.uid


def redoable(machine: Machine) -> bool:
    """Whether the backend refused the machine where it was placed, and nothing was ever made."""
    refused, placement = machine.status.create_refused, machine.spec.placement
    return (
        machine.spec.provider_id is None
        and refused is not None
        and placement is not None
        and refused.failure_domain == placement.failure_domain
    )


async def decide(api: ApiClient, machine: Found) -> TeardownMode | None:
    """What becomes of a VirtualMachine's machine, None when it is not for us to say yet.

    A VirtualMachine that is being deleted says so by its policy. One that lives, or is not there,
    never has its machine destroyed: what is released is found again by its mark. In a namespace
    that is being deleted nothing could be made again, so a living one is waited for.
    """
    made = Machine.from_api(machine.obj)
    reference = made.spec.virtual_machine_ref
    if reference is None:
        return None
    try:
        owner = await api.get(VIRTUAL_MACHINES, Key(machine.key.namespace, reference.name))
    except NotFound:
        return TeardownMode.RELEASE
    vm = VirtualMachine.from_api(owner)
    if vm.metadata.deletion_timestamp is None and await is_ending(api, machine.key.namespace):
        return None
    return _by_owner(vm, machine)


async def is_ending(api: ApiClient, namespace: str) -> bool:
    """Whether the namespace is being deleted: kinds go in any order, a VM's turn comes."""
    with contextlib.suppress(NotFound):
        found = await api.get(NAMESPACES, Key("", namespace))
        return bool(found["metadata"].get("deletionTimestamp"))
    return False


def _by_owner(vm: VirtualMachine, machine: Found) -> TeardownMode | None:
    if vm.spec.paused:
        return None
    leaving = vm.metadata.deletion_timestamp is not None
    orphan = vm.spec.wanted_deletion_policy is DeletionPolicy.ORPHAN
    if not leaving or orphan or not refers(vm, machine):
        return TeardownMode.RELEASE
    return None if vm.spec.deletion_protection else TeardownMode.DESTROY


async def write_intent(
    api: ApiClient, machine: Found, mode: TeardownMode, *, unhold: bool = False
) -> Found:
    """Write the intent for this very object, if it does not stand there already.

    Args:
        api: client to write with.
        machine: the object as read live.
        mode: what becomes of the machine.
        unhold: also take off `paused` and `deletionProtection`, which the VirtualMachine no longer
            asks for.

    Raises:
        Conflict: the object changed since; decide again.
    """
    meta, spec = machine.obj["metadata"], machine.obj.get("spec") or {}
    wanted = Teardown(mode=mode, uid=meta["uid"]).to_api()
    ops = []
    if spec.get("teardown") != wanted:
        ops.append({"op": "add", "path": "/spec/teardown", "value": wanted})
    if unhold:
        ops += [
            {"op": "remove", "path": f"/spec/{name}"}
            for name in ("paused", "deletionProtection")
            if name in spec
        ]
    if not ops:
        return machine
    log.info("teardown decided", extra={"machine": str(machine.key), "mode": mode.value})
    return Found(machine.kind, await writes.patch(api, machine.kind, machine.obj, ops))


async def let_go(api: ApiClient, machine: Found) -> bool:
    """Release a machine that is being deleted although nobody asked for its end.

    Returns:
        Whether nothing holds the object any more.

    Raises:
        Conflict: the object changed since it was read; decide again.
    """
    mode = await decide(api, machine)
    if mode is not TeardownMode.RELEASE:
        return False
    machine = await write_intent(api, machine, mode, unhold=True)
    return await release_from_gone_provider(api, machine)


async def delete(api: ApiClient, machine: Found) -> None:
    """Delete exactly this version of this object; one that is gone already is fine.

    Raises:
        Conflict: the object changed since it was read; decide again.
    """
    meta = machine.obj["metadata"]
    with contextlib.suppress(NotFound):
        await api.delete(
            machine.kind,
            machine.key,
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
        )


async def release_from_gone_provider(api: ApiClient, machine: Found) -> bool:
    """Take the provider's finalizer off a released machine that no provider will ever see.

    Returns:
        Whether nothing holds the object any more.
    """
    made = Machine.from_api(machine.obj)
    intent, reference = made.spec.teardown, made.spec.provider_ref
    if intent is None or intent.uid != made.metadata.uid or intent.mode is not TeardownMode.RELEASE:
        return False
    if reference is not None:
        try:
            await api.get(PROVIDERS, Key(reference.namespace, reference.name))
        except NotFound:
            pass
        else:
            return False
    finalizer = names.machine_finalizer(machine.kind.kind)
    last = await writes.drop_finalizer(api, machine.kind, machine.obj, finalizer)
    return not last["metadata"].get("finalizers")
