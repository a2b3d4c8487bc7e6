"""One pass over one cluster of any backend: gather, look, write its status.

The controller aggregates what Providers tell and talks to no backend. It makes nothing that would
have to be cleared away, so it holds no cluster by a finalizer.
"""

from dataclasses import dataclass

from banlieue.api import names
from banlieue.api.infrastructure.cluster import ClusterStatus, InfraCluster
from banlieue.api.meta import Resource
from banlieue.controller.clusters import domains, report
from banlieue.controller.clusters.kinds import Kinds, of_classes
from banlieue.controller.clusters.owner import is_others, owner_of, pause_of, read_cluster
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
        if found is None or raw is None or is_others(raw):
            return Result()
        owner = owner_of(raw)
        if owner is None:
            return Result()  # Cluster API is about to claim it, and must find it as it left it
        kind, _ = found
        status = self._status(kind, raw, await read_cluster(ctx, owner))
        await replace_status(ctx.api, kind, raw, status.to_api(), manager=names.MANAGER_CONTROLLER)
        return Result()

    def _status(self, kind: Resource, raw: Obj, owner: Obj | None) -> ClusterStatus:
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
        return report.living_status(cluster, owner, found, listed, now)
