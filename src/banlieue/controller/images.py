"""The summary of a VMImage: usable on how many Providers, of those that could use it.

Each Provider writes its own row; the controller removes the rows of Providers that are gone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.meta import Condition
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS, VM_IMAGES
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.api.v1alpha1.vmimage import ProviderImageStatus, VMImage
from banlieue.controller.image_delete import ImageDeletion, hold
from banlieue.controller.infra.kinds import MachineKinds
from banlieue.controller.scheduling.facts import key_of
from banlieue.sdk.conditions import Finding, false, merge, true
from banlieue.sdk.image.sources import source_for
from banlieue.sdk.kube import STATUS, Key, Obj
from banlieue.sdk.reconcile import Context, Result

CONTROLLER = "image-summary"
"""Name of the controller in queues, logs and metrics."""

_SHOWN = 5


@dataclass(slots=True)
class ImageSummaryReconciler:
    """Keeps a VMImage's Ready condition and counts on what the Providers report.

    `namespace` is the one whose VirtualMachines are served, empty for all.
    """

    ctx: Context
    kinds: MachineKinds
    namespace: str = ""

    async def reconcile(self, key: Key) -> Result:
        """Look at one image once."""
        raw = self.ctx.cache.get(VM_IMAGES, key)
        if raw is None:
            return Result()
        if raw["metadata"].get("deletionTimestamp"):
            return await ImageDeletion(self.ctx, self.kinds, self.namespace).reconcile(raw)
        image = VMImage.from_api(raw)
        raw = await hold(self.ctx.api, raw, image)
        providers = [Provider.from_api(obj) for obj in self.ctx.cache.list(PROVIDERS)]
        alive = {key_of(provider) for provider in providers}
        rows = [row for row in image.status.per_provider if _row_key(row) in alive]
        wanted = summary(image, rows, self._matching(image, providers))
        ops = self._changes(raw, image, rows, wanted)
        if ops:
            version = raw["metadata"]["resourceVersion"]
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            await self.ctx.api.json_patch(
                VM_IMAGES,
                key,
                [test, *ops],
                manager=names.MANAGER_CONTROLLER,
                subresource=STATUS,
            )
        return Result()

    def _matching(self, image: VMImage, providers: Iterable[Provider]) -> set[Key]:
        """Providers the image has a source for, by class or by backend."""
        backends = {
            obj["metadata"]["name"]: ProviderClass.from_api(obj).spec.backend
            for obj in self.ctx.cache.list(PROVIDER_CLASSES)
        }
        return {
            key_of(provider)
            for provider in providers
            if source_for(image, backends.get(provider.spec.provider_class_ref.name, ""), provider)
        }

    def _changes(
        self, raw: Obj, image: VMImage, rows: list[ProviderImageStatus], wanted: "Summary"
    ) -> list[dict[str, Any]]:
        generation, status = image.metadata.generation, raw.get("status") or {}
        conditions: list[Condition] = merge(
            image.status.conditions,
            [wanted.ready],
            generation=generation,
            now=self.ctx.clock.now(),
        )
        shown: dict[str, Any] = {
            "readyProviders": wanted.count,
            "progress": wanted.progress,
            "observedGeneration": generation,
            "conditions": [condition.to_api() for condition in conditions],
        }
        ops: list[dict[str, Any]] = []
        if len(rows) != len(image.status.per_provider):
            kept = {_row_key(row) for row in rows}
            shown["perProvider"] = [
                row
                for row in status["perProvider"]
                if Key(row["providerNamespace"], row["providerName"]) in kept
            ]
        for name, value in shown.items():
            if value is None and name in status:
                ops.append({"op": "remove", "path": f"/status/{name}"})
            elif value is not None and status.get(name) != value:
                ops.append({"op": "add", "path": f"/status/{name}", "value": value})
        if ops and not raw.get("status"):
            ops.insert(0, {"op": "add", "path": "/status", "value": {}})
        return ops


@dataclass(frozen=True, slots=True)
class Summary:
    """What the image's status says about all Providers together."""

    ready: Finding
    count: str
    progress: str | None


def summary(image: VMImage, rows: Iterable[ProviderImageStatus], matching: set[Key]) -> Summary:
    """Sum the rows up. Pure.

    Args:
        image: the image.
        rows: what the living Providers say.
        matching: Providers the image has a source for.
    """
    told = {_row_key(row): row for row in rows if _row_key(row) in matching}
    usable = [key for key, row in told.items() if row.ready]
    waiting = [row for row in told.values() if not row.ready]
    moving = [row.progress_percent for row in waiting if row.progress_percent is not None]
    return Summary(
        ready=_ready(image, usable, waiting, matching),
        count=f"{len(usable)}/{len(matching)}",
        progress=f"{min(moving)}%" if moving else None,
    )


def _ready(
    image: VMImage,
    usable: list[Key],
    waiting: list[ProviderImageStatus],
    matching: set[Key],
) -> Finding:
    kind = ConditionType.READY
    if usable:
        return true(kind, Reason.READY)
    if not matching:
        named = ", ".join(sorted(source.provider_class for source in image.spec.sources))
        return false(
            kind,
            Reason.IMAGE_SOURCE_MISSING,
            f"no Provider is of a class the image has a source for ({named}); add a source",
        )
    said = sorted(f"{row.provider_name}: {row.message or row.reason or ''}" for row in waiting)
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    detail = "; ".join(said[:_SHOWN]) + more
    return false(
        kind,
        Reason.IMAGE_NOT_READY,
        f"no Provider can use it yet ({detail})" if detail else "no Provider has reported on it",
    )


def _row_key(row: ProviderImageStatus) -> Key:
    return Key(row.provider_namespace, row.provider_name)
