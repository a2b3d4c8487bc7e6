"""How a VMImage goes: not while anything is made from it, and not before its copies are gone.

Two finalizers say how far it is. The first one goes when nothing uses the image any more; then the
Providers delete what they imported for it, and with the last copy goes the second one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.meta import ConditionStatus, Resource
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES, VM_IMAGES
from banlieue.api.v1alpha1.vmimage import VMImage
from banlieue.controller import writes
from banlieue.controller.infra.kinds import MachineKinds, Unreadable
from banlieue.sdk.conditions import Finding, merge, true
from banlieue.sdk.image.sources import is_importable
from banlieue.sdk.kube import ApiClient, Key, Obj
from banlieue.sdk.reconcile import Context, Result
from banlieue.sdk.status import replace_status

_LOOK_SECONDS = 30.0
_UNSYNCED_SECONDS = 1.0
_SHOWN = 5


async def hold(api: ApiClient, raw: Obj, image: VMImage) -> Obj:
    """Keep the image until nothing needs it; gives it as it is now. No write when it is held."""
    raw = await writes.add_finalizer(api, VM_IMAGES, raw, names.FINALIZER_IMAGE_IN_USE)
    if is_importable(image):
        raw = await writes.add_finalizer(api, VM_IMAGES, raw, names.FINALIZER_IMAGE_COPIES)
    return raw


@dataclass(frozen=True, slots=True)
class ImageDeletion:
    """Lets an image go step by step; `namespace` is the one that is served, empty for all."""

    ctx: Context
    kinds: MachineKinds
    namespace: str

    async def reconcile(self, raw: Obj) -> Result:
        """One look at an image that is being deleted."""
        held = raw["metadata"].get("finalizers") or ()
        if names.FINALIZER_IMAGE_IN_USE in held:
            kinds = await self.kinds.all()
            if not self.namespace and not self.ctx.cache.synced(VIRTUAL_MACHINES):
                return Result(_UNSYNCED_SECONDS)
            try:
                users = await self._users(raw["metadata"]["name"], kinds)
            except Unreadable as refused:
                reason = Reason.MACHINE_KIND_FORBIDDEN
                await self._tell(raw, true(ConditionType.DELETING, reason, refused.message))
                return Result(_LOOK_SECONDS)
            if users:
                await self._tell(raw, _in_use(users))
                return Result(_LOOK_SECONDS)
            raw = await writes.drop_finalizer(
                self.ctx.api, VM_IMAGES, raw, names.FINALIZER_IMAGE_IN_USE
            )
        if names.FINALIZER_IMAGE_COPIES not in held:
            return Result()
        keeping = self._keeping(VMImage.from_api(raw))
        if keeping:
            await self._tell(raw, _waiting(keeping))
            return Result(_LOOK_SECONDS)
        await writes.drop_finalizer(self.ctx.api, VM_IMAGES, raw, names.FINALIZER_IMAGE_COPIES)
        return Result()

    async def _users(self, image: str, kinds: Sequence[Resource]) -> list[str]:
        """Who is made from the image, or will be; a machine is told by its VirtualMachine."""
        found: set[str] = set()
        for kind in (VIRTUAL_MACHINES, *kinds):
            for obj in await self._objects(kind):
                spec = obj.get("spec") or {}
                if (spec.get("imageRef") or {}).get("name") != image:
                    continue
                owner = spec.get("virtualMachineRef") or {}
                key = Key.of(obj)
                told = VIRTUAL_MACHINES.kind if owner else kind.kind
                found.add(f"{told} {Key(key.namespace, owner.get('name') or key.name)}")
        return sorted(found)

    async def _objects(self, kind: Resource) -> Iterable[Obj]:
        """All of a kind: those in the cache, or where it holds one namespace only, read live."""
        if not self.namespace and self.ctx.cache.synced(kind):
            return self.ctx.cache.list(kind)
        if kind == VIRTUAL_MACHINES:
            return await self.ctx.api.list(kind)
        return await self.kinds.machines(kind)

    def _keeping(self, image: VMImage) -> list[str]:
        """Providers that have copies to delete still; those that are gone delete nothing."""
        alive = self.ctx.cache.revisions(PROVIDERS)
        rows = image.status.per_provider
        keys = [Key(row.provider_namespace, row.provider_name) for row in rows if row.copies]
        return sorted(str(key) for key in keys if key in alive)

    async def _tell(self, raw: Obj, leaving: Finding) -> None:
        """Say in the status what the image's end waits for; everything else stays as it was."""
        image = VMImage.from_api(raw)
        ready = replace(leaving, type=ConditionType.READY, status=ConditionStatus.FALSE)
        found = merge(
            image.status.conditions,
            [ready, leaving],
            generation=image.metadata.generation,
            now=self.ctx.clock.now(),
        )
        status: dict[str, Any] = {
            **(raw.get("status") or {}),
            "observedGeneration": image.metadata.generation,
            "conditions": [condition.to_api() for condition in found],
        }
        await replace_status(self.ctx.api, VM_IMAGES, raw, status, manager=names.MANAGER_CONTROLLER)


def _in_use(users: Sequence[str]) -> Finding:
    return true(
        ConditionType.DELETING,
        Reason.IMAGE_IN_USE,
        f"it is used by {_listed(users)}; it goes when they are deleted",
    )


def _waiting(providers: Sequence[str]) -> Finding:
    return true(
        ConditionType.DELETING,
        Reason.DELETING,
        f"waiting for {_listed([f'Provider {name}' for name in providers])} to delete what was "
        "imported",
    )


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
