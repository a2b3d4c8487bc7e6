"""What one pass over a Cluster API machine knows that has no Provider yet."""

from dataclasses import dataclass, replace

from banlieue.api import names
from banlieue.api.infrastructure.cluster import InfraCluster
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import OwnerReference, Resource
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES, PROVIDER_CLASSES
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.controller.capi import berths, objects
from banlieue.controller.installation import Standing
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import Key, NotFound, Obj, ObjectReader
from banlieue.sdk.machine import pausing
from banlieue.sdk.reconcile import Context


@dataclass(slots=True)
class Scope:
    """One machine with its Machine and its Cluster.

    `reference` is the owner reference that makes it a machine of Cluster API. `live` tells that
    Machine and Cluster were read from the API server in this pass, as is due before a stamp.
    """

    services: Services
    kind: Resource
    raw: Obj
    machine: Machine
    reference: OwnerReference
    owner: Obj | None = None
    cluster: Obj | None = None
    standing: Standing | None = None
    live: bool = False

    @property
    def ctx(self) -> Context:
        """The injected seams."""
        return self.services.ctx

    @property
    def key(self) -> Key:
        """Key of the machine object."""
        return Key.of(self.raw)

    @property
    def berth(self) -> Key:
        """Its key in the ledger."""
        return berths.berth(self.kind, self.key)

    async def gathered(self, *, live: bool = False) -> "Scope":
        """The same machine with what Cluster API's objects say now.

        What the cache does not have is read live, as a process that has just begun knows little.
        """
        fresh = replace(self, live=live)
        fresh.owner = await fresh.read(CAPI_MACHINES, self.reference.name)
        cluster = objects.cluster_name(fresh.owner) if fresh.owner else ""
        fresh.cluster = await fresh.read(CAPI_CLUSTERS, cluster) if cluster else None
        return fresh

    async def read(self, resource: Resource, name: str) -> Obj | None:
        """An object beside the machine, from the cache unless it has to be live."""
        key = Key(self.key.namespace, name)
        found = None if self.live else self.ctx.cache.get(resource, key)
        if found is not None:
            return found
        try:
            return await self.ctx.api.get(resource, key)
        except NotFound:
            return None

    async def why_paused(self) -> str | None:
        """Why nothing may be done to the machine but to say so, None when something may."""

        async def cluster(key: Key) -> Obj | None:
            return await self.read(CAPI_CLUSTERS, key.name)

        return await pausing.why_paused(self.machine, cluster)

    def infra_cluster(self) -> tuple[InfraCluster, str] | None:
        """Its InfraCluster and the name of that one's CRD; None while it is not known.

        One of a kind that is not ours is told as an empty one without a CRD, and so is that of a
        Cluster without any: it restricts nothing. One of ours does, also while its class is gone.
        """
        reference = objects.infrastructure_reference(self.cluster or {})
        named = reference.get("apiGroup"), reference.get("kind")
        for kind in _cluster_kinds(self.ctx.cache):
            if (kind.group, kind.kind) == named:
                key = Key(self.key.namespace, str(reference.get("name") or ""))
                obj = self.ctx.cache.get(kind, key)
                return (InfraCluster.from_api(obj), kind.crd_name) if obj is not None else None
        return None if named[0] == names.INFRASTRUCTURE_GROUP else (InfraCluster(), "")


def _cluster_kinds(cache: ObjectReader) -> set[Resource]:
    """The cluster kinds ProviderClasses name."""
    found = set()
    for obj in cache.list(PROVIDER_CLASSES):
        named = ProviderClass.from_api(obj).spec.cluster
        if named is not None:
            found.add(named.to_resource())
    return found
