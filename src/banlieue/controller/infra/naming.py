"""Names of machine objects: whose one is, what it tells, and which is free.

One of another VirtualMachine may have the name a later machine would get, such as `web-m1`.
"""

from banlieue.api.meta import Resource
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller.infra.blueprint import machine_name
from banlieue.controller.scheduling.placement import Placed
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.identity import vm_digest
from banlieue.sdk.kube import Key, NotFound, Obj


def is_own(vm: VirtualMachine, obj: Obj) -> bool:
    """Whether a machine object was made for a VirtualMachine of this name."""
    reference = (obj.get("spec") or {}).get("virtualMachineRef") or {}
    return bool(reference.get("name") == vm.metadata.name)


def named_epoch(vm: VirtualMachine, name: str) -> int:
    """The epoch the name of a machine of this one tells, spelled longer where it had to be."""
    _, mark, number = name.rpartition(f"{vm.metadata.name}-m")
    return int(number) if mark and number.isdecimal() else 0


async def is_free(scope: Scope, kind: Resource, name: str) -> bool:
    """Whether no object of the kind has that name, ours or another's; asked live."""
    return await _named(scope, kind, name) is None


async def free_name(scope: Scope, kind: Resource, epoch: int) -> str:
    """A name for the object that takes a VM up, which tells its epoch as all names do.

    The epoch is that of the VM, so where another VirtualMachine has the name it is spelled longer.
    The VirtualMachine's own name is no other's to have.
    """
    name, digits = machine_name(scope.vm, epoch), str(epoch)
    while epoch and (found := await _named(scope, kind, name)) and not is_own(scope.vm, found):
        digits = f"0{digits}"
        name = f"{scope.vm.metadata.name}-m{digits}"
    return name


async def name_at(scope: Scope, kind: Resource, decision: Placed) -> str:
    """A name for the object of a place, as `free_name`.

    The VM that was adopted has the object that adopts, whatever epoch moves there and back gave it:
    as a machine that we made it would lose the disks and interfaces that it came along with.
    """
    adopt = scope.vm.spec.adopt
    if adopt is not None and decision.vm and decision.vm == vm_digest(adopt.id):
        own = machine_name(scope.vm, 0)
        found = await _named(scope, kind, own)
        if found is None or is_own(scope.vm, found):
            return own
    return await free_name(scope, kind, decision.epoch)


async def _named(scope: Scope, kind: Resource, name: str) -> Obj | None:
    try:
        return await scope.ctx.api.get(kind, Key(scope.key.namespace, name))
    except NotFound:
        return None
