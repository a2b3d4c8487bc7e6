"""One pass over one machine template of any backend: what a machine made from it would offer."""

from dataclasses import dataclass

from banlieue.api import names
from banlieue.api.infrastructure.machine import MachineTemplateSpec
from banlieue.api.infrastructure.template import MachineTemplate
from banlieue.controller.clusters.capacity import template_status
from banlieue.controller.clusters.kinds import Kinds
from banlieue.controller.clusters.owner import is_others, owner_of, pause_of, read_cluster
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Result
from banlieue.sdk.status import replace_status

CONTROLLER = "machine-template"
"""Name of the controller in queues, logs and metrics."""


@dataclass(frozen=True, slots=True)
class MachineTemplateReconciler:
    """Writes capacity and node information; templates nobody uses yet have them too."""

    services: Services
    kinds: Kinds

    async def reconcile(self, key: Key) -> Result:
        """Look at one template once; `key` is one of `request_key`."""
        found, ctx = self.kinds.find(key), self.services.ctx
        raw = ctx.cache.get(*found) if found else None
        if found is None or raw is None or is_others(raw):
            return Result()
        if raw["metadata"].get("deletionTimestamp"):
            return Result()
        owner = owner_of(raw)
        if pause_of(raw, await read_cluster(ctx, owner) if owner else None) is not None:
            return Result()
        spec = MachineTemplate[MachineTemplateSpec].from_api(raw).spec.template.spec
        image = self.services.image(spec.image_ref.name) if spec.image_ref else None
        await replace_status(
            ctx.api,
            found[0],
            raw,
            template_status(spec, image).to_api(),
            manager=names.MANAGER_CONTROLLER,
        )
        return Result()
