"""Machine objects made for VirtualMachines that are on their way out, or that nobody refers to.

Cluster API's machines are left alone here: they carry no `virtualMachineRef`.
"""

from dataclasses import dataclass

from banlieue.api.infrastructure.machine import Machine, MoveRole, TeardownMode
from banlieue.api.meta import Resource
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller.infra import teardown
from banlieue.controller.infra.kinds import Found
from banlieue.controller.infra.references import references_of
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import Key, NotFound, Obj
from banlieue.sdk.reconcile import Result

CONTROLLER = "machine-teardown"
"""Name of the controller in queues, logs and metrics."""

_PROVIDER_SECONDS = 60.0


def request_key(kind: Resource, key: Key) -> Key:
    """A queue key that tells the kind too, as one controller serves those of all backends."""
    return Key(key.namespace, f"{kind.plural}.{kind.group}/{key.name}")


def is_suspicious(machine: Obj) -> bool:
    """Whether a machine object could need a decision: deleted, or without anything made for it."""
    spec = machine.get("spec") or {}
    made_for_vm = bool(spec.get("virtualMachineRef"))
    leaving = bool(machine["metadata"].get("deletionTimestamp"))
    return made_for_vm and (leaving or not spec.get("instance"))


def is_named(vm: Obj, kind: Resource, key: Key) -> bool:
    """Whether the status of a VirtualMachine names this machine object, in any role."""
    return (kind.group, kind.kind, key.namespace, key.name) in references_of(vm)


@dataclass(slots=True)
class MachineTeardownReconciler:
    """Decides what becomes of machines that no VirtualMachine looks after."""

    services: Services

    async def reconcile(self, key: Key) -> Result:
        """Look at one machine once; `key` is one of `request_key`."""
        crd, _, name = key.name.partition("/")
        kind = next((it for it in self.services.kinds.named() if it.crd_name == crd), None)
        if kind is None or not self._suspicious(kind, Key(key.namespace, name)):
            return Result()
        obj = await self._live(kind, Key(key.namespace, name))
        if obj is None:
            return Result()
        found, machine = Found(kind, obj), Machine.from_api(obj)
        if machine.spec.virtual_machine_ref is None:
            return Result()
        if (await self.services.keeper.standing()).problem is not None:
            return Result()
        if machine.metadata.deletion_timestamp is not None:
            return await self._let_go(found)
        if machine.spec.instance is None:
            await self._remove_unreferenced(found)
        else:
            await self._release_outdated(found, machine)
        return Result()

    def _suspicious(self, kind: Resource, key: Key) -> bool:
        """Whether the cache shows one on its way out, with nothing made for it, or unnamed."""
        cache = self.services.ctx.cache
        known = cache.get(kind, key)
        if known is None or is_suspicious(known):
            return known is not None
        made_for = ((known.get("spec") or {}).get("virtualMachineRef") or {}).get("name", "")
        vm = cache.get(VIRTUAL_MACHINES, Key(key.namespace, made_for))
        return vm is not None and not is_named(vm, kind, key)

    async def _live(self, kind: Resource, key: Key) -> Obj | None:
        try:
            return await self.services.ctx.api.get(kind, key)
        except NotFound:
            return None

    async def _let_go(self, found: Found) -> Result:
        """Release what is being deleted, unless its VirtualMachine is there and decides itself."""
        owner = await self._owner(found)
        if owner is not None and teardown.looks_after(owner, found):
            return Result()
        gone = await teardown.let_go(self.services.ctx.api, found)
        return Result(None if gone else _PROVIDER_SECONDS)

    async def _owner(self, found: Found) -> VirtualMachine | None:
        """The VirtualMachine the machine was made for, read live."""
        reference = (found.obj.get("spec") or {}).get("virtualMachineRef") or {}
        obj = await self._live(VIRTUAL_MACHINES, Key(found.key.namespace, reference["name"]))
        return VirtualMachine.from_api(obj) if obj else None

    async def _remove_unreferenced(self, found: Found) -> None:
        """Delete an object without a machine that its living owner does not refer to.

        One without an owner is the garbage collector's, or its VirtualMachine is still to come.
        """
        vm = await self._owner(found)
        if vm is None:
            return
        settled = vm.status.infrastructure_ref is not None
        if not settled or vm.metadata.deletion_timestamp or teardown.refers_by_status(vm, found):
            return
        api = self.services.ctx.api
        await teardown.delete(api, await teardown.write_intent(api, found, TeardownMode.RELEASE))

    async def _release_outdated(self, found: Found, machine: Machine) -> None:
        """Let go of an object that a restore brought back beside the one of a later move.

        Its VM was stopped by that move, and an object that says otherwise would start it again. It
        stays as it is, and its Provider lists it.
        """
        vm = await self._owner(found)
        if vm is None or vm.spec.paused or vm.metadata.deletion_timestamp is not None:
            return
        reference = vm.status.infrastructure_ref
        if reference is None or teardown.refers_by_status(vm, found):
            return
        kind = self.services.kinds.of_reference(reference)
        obj = await self._live(kind, Key(reference.namespace, reference.name))
        current = Machine.from_api(obj) if obj else None
        if current is None or current.metadata.deletion_timestamp is not None:
            return
        if current.spec.role is MoveRole.CURRENT and current.spec.epoch > machine.spec.epoch:
            api = self.services.ctx.api
            outdated = await teardown.write_intent(api, found, TeardownMode.RELEASE, unhold=True)
            await teardown.delete(api, outdated)
