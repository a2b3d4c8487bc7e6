"""One pass over one cluster of any backend: gather, look, write its status.

The controller aggregates what Providers tell and talks to no backend. All it makes is the claim of
an endpoint from a pool; only for that it holds a cluster by a finalizer.
"""

from dataclasses import dataclass

from banlieue.api import names
from banlieue.api.infrastructure.cluster import ClusterStatus, InfraCluster
from banlieue.api.meta import Resource
from banlieue.controller.clusters import domains, pool, report
from banlieue.controller.clusters.kinds import Kinds, of_classes
from banlieue.controller.clusters.owner import (
    is_others,
    moves_away,
    owner_of,
    pause_of,
    read_cluster,
)
from banlieue.controller.clusters.pool import Pooled
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Result
from banlieue.sdk.status import replace_status

CONTROLLER = "infra-cluster"
"""Name of the controller in queues, logs and metrics."""


@dataclass(frozen=True, slots=True)
class InfraClusterReconciler:
    """Lists the failure domains of a cluster's Providers and says what it waits for."""

    services: Services
    kinds: Kinds

    async def reconcile(self, key: Key) -> Result:
        """Look at one cluster once; `key` is one of `request_key`."""
        found, ctx = self.kinds.find(key), self.services.ctx
        raw = ctx.cache.get(*found) if found else None
        if found is None or raw is None or moves_away(raw):
            return Result()
        kind, owner = found[0], owner_of(raw)
        if is_others(raw) or owner is None:
            # Cluster API is about to claim it, and must find it as it left it; or nobody asks us
            # for anything but what we hold.
            pooled = await self._ending(kind, raw, owner)
            return Result(pooled.again)
        theirs = await read_cluster(ctx, owner)
        pooled = await self._pooled(kind, raw, owner, theirs)
        if pool.is_held(raw) and not pool.is_held(pooled.obj):
            return Result()  # it is gone now, or somebody else's finalizer has the word
        status = self._status(kind, pooled, theirs)
        await replace_status(
            ctx.api, kind, pooled.obj, status.to_api(), manager=names.MANAGER_CONTROLLER
        )
        return Result(pooled.again)

    async def _pooled(self, kind: Resource, raw: Obj, owner: Key, theirs: Obj | None) -> Pooled:
        """Do what is due for an endpoint from a pool."""
        if pause_of(raw, theirs) is not None:
            return Pooled(raw)
        asks = "controlPlaneEndpointPool" in (raw.get("spec") or {})
        problem = (await self.services.keeper.standing()).problem if asks else None
        if problem is not None:
            return Pooled(raw, problem, pool.RETRY_SECONDS)
        if raw["metadata"].get("deletionTimestamp"):
            return await self._ending(kind, raw, owner)
        return await pool.settle(self.services, kind, raw, owner)

    async def _ending(self, kind: Resource, raw: Obj, owner: Key | None) -> Pooled:
        if not raw["metadata"].get("deletionTimestamp"):
            return Pooled(raw)
        return await pool.let_go(self.services, kind, raw, owner)

    def _status(self, kind: Resource, pooled: Pooled, owner: Obj | None) -> ClusterStatus:
        raw = pooled.obj
        cluster, now = InfraCluster.from_api(raw), self.services.ctx.clock.now()
        cluster.kind = kind.kind
        why = pause_of(raw, owner)
        if why is not None:
            return report.paused_status(cluster, why, now)
        if cluster.metadata.deletion_timestamp is not None:
            return report.deleting_status(cluster, now)
        classes = of_classes(self.services.ctx.cache)
        sites = self.services.sites(None, cluster.metadata.namespace or "")
        found = domains.members(cluster.spec, sites, kind.crd_name, classes)
        listed = domains.listing(cluster.spec, cluster.status.failure_domains, found.members)
        return report.living_status(
            cluster, owner, found, listed, now, waits=pooled.waits, note=pooled.note
        )
