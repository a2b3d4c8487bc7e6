"""The controllers for the kinds of Cluster API: what they watch, and what wakes whom."""

from dataclasses import dataclass, field
from functools import partial

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CAPI_CLUSTERS,
    IP_ADDRESS_CLAIMS,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    VM_IMAGES,
)
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.controller.clusters import cluster, kinds, templates
from banlieue.controller.clusters.kinds import Kinds
from banlieue.controller.clusters.owner import is_others, owner_of
from banlieue.controller.clusters.wakes import Wakes
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.mishaps import Mishaps, Subject
from banlieue.sdk.notices import Notices
from banlieue.sdk.reconcile import Controller, Mapper, Watch


@dataclass(frozen=True, slots=True)
class ClusterControllers:
    """Clusters and machine templates of every backend, in one namespace or in all."""

    services: Services
    namespace: str = ""
    _clusters: Kinds = field(default_factory=Kinds)
    _templates: Kinds = field(default_factory=Kinds)

    def controllers(self) -> tuple[Controller, ...]:
        """Both, without the kinds themselves, which are known at run time."""
        of_clusters = self._wakes(self._clusters)
        of_templates = self._wakes(self._templates)
        return (
            Controller(
                cluster.CONTROLLER,
                cluster.InfraClusterReconciler(self.services, self._clusters),
                (
                    self._optional(CAPI_CLUSTERS, of_clusters.owner),
                    self._optional(IP_ADDRESS_CLAIMS, of_clusters.claim, many=True),
                    Watch(PROVIDERS, of_clusters.provider),
                    Watch(PROVIDER_CLASSES, of_clusters.provider_class),
                    Watch(NAMESPACES, of_clusters.namespace),
                ),
                workers=4,
                witness=Mishaps(self.services.ctx, cluster.CONTROLLER, self._subject),
            ),
            Controller(
                templates.CONTROLLER,
                templates.MachineTemplateReconciler(self.services, self._templates),
                (
                    self._optional(CAPI_CLUSTERS, of_templates.owner),
                    Watch(VM_IMAGES, of_templates.image),
                ),
                workers=2,
                witness=Notices(self.services.ctx, templates.CONTROLLER, self._template),
            ),
        )

    async def watch_installed(self) -> None:
        """Watch the kinds that are there, by the labels on their CRDs."""
        clusters, machines = await kinds.installed(self.services.ctx.api)
        for kind in clusters:
            self._watch(cluster.CONTROLLER, self._clusters, kind)
        for kind in machines:
            self._watch(templates.CONTROLLER, self._templates, kinds.template_of(kind))

    def watch_class(self, spoken: ProviderClass) -> None:
        """Watch the kinds a class names; those that are not installed yet are waited for."""
        if spoken.spec.cluster is not None:
            self._watch(cluster.CONTROLLER, self._clusters, spoken.spec.cluster.to_resource())
        template = kinds.template_of(spoken.spec.machine.to_resource())
        self._watch(templates.CONTROLLER, self._templates, template)

    def _watch(self, controller: str, known: Kinds, kind: Resource) -> None:
        known.add(kind)
        mapper = partial(self._wakes(known).itself, kind)
        self.services.ctx.add_watch(controller, self._optional(kind, mapper))

    def _subject(self, key: Key) -> Subject | None:
        """A cluster that is ours to write to: nobody else's, and claimed by Cluster API."""
        found = self._clusters.find(key)
        raw = self.services.ctx.cache.get(*found) if found else None
        if found is None or raw is None or is_others(raw) or owner_of(raw) is None:
            return None
        return Subject(found[0], raw, names.MANAGER_CONTROLLER)

    def _template(self, key: Key) -> Obj | None:
        found = self._templates.find(key)
        return self.services.ctx.cache.get(*found) if found else None

    def _wakes(self, known: Kinds) -> Wakes:
        return Wakes(self.services.ctx.cache, known)

    def _optional(self, kind: Resource, mapper: Mapper, *, many: bool = False) -> Watch:
        return Watch(kind, mapper, namespace=self.namespace, optional=True, many=many)
