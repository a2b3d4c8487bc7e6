"""The controller for machines of Cluster API: what it watches, and what wakes whom."""

from dataclasses import dataclass, field
from functools import partial

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.resources import (
    CAPI_CLUSTERS,
    CAPI_MACHINES,
    CONFIG_MAPS,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.controller.capi import machines, objects
from banlieue.controller.capi.waking import MachineWakes
from banlieue.controller.vm.scope import Services
from banlieue.controller.wakes import nobody
from banlieue.sdk.kube import Key
from banlieue.sdk.mishaps import Mishaps, Subject
from banlieue.sdk.reconcile import Controller, Watch


@dataclass(frozen=True, slots=True)
class ClusterMachines:
    """Machines of every backend that Cluster API made, in one namespace or in all.

    Cluster API may be installed later: its kinds are looked for until they are there.
    """

    services: Services
    namespace: str = ""
    system_namespace: str = names.SYSTEM_NAMESPACE
    _wakes: MachineWakes = field(init=False)

    def __post_init__(self) -> None:
        services = self.services
        found = MachineWakes(services.ctx.cache, services.kinds, services.cluster_machines)
        object.__setattr__(self, "_wakes", found)

    def controller(self) -> Controller:
        """The controller, without the kinds of machines, which are known at run time."""
        return Controller(
            machines.CONTROLLER,
            machines.ClusterMachineReconciler(self.services),
            (
                Watch(
                    CAPI_MACHINES,
                    self._wakes.owner,
                    namespace=self.namespace,
                    optional=True,
                    many=True,
                ),
                Watch(CAPI_CLUSTERS, self._wakes.cluster, namespace=self.namespace, optional=True),
                Watch(VM_IMAGES, self._wakes.image),
                Watch(PROVIDERS, self._wakes.provider),
                Watch(PROVIDER_CLASSES, self._wakes.provider_class),
                Watch(NAMESPACES, self._wakes.namespace),
                # Everybody counts from the first look on, whichever of the two schedulers has it.
                Watch(VIRTUAL_MACHINES, nobody, namespace=self.namespace, many=True),
                Watch(VM_CLASSES, nobody),
                Watch(
                    CONFIG_MAPS,
                    self._wakes.installation,
                    field_selector=f"metadata.name={names.INSTALLATION_CONFIG_MAP}",
                    namespace=self.system_namespace,
                ),
            ),
            workers=8,
            witness=Mishaps(self.services.ctx, machines.CONTROLLER, self._subject),
        )

    def _subject(self, key: Key) -> Subject | None:
        """A machine that is ours to write to: Cluster API claimed it, and no provider has it."""
        crd, _, name = key.name.partition("/")
        kind = next((it for it in self.services.kinds.named() if it.crd_name == crd), None)
        raw = self.services.ctx.cache.get(kind, Key(key.namespace, name)) if kind else None
        if kind is None or raw is None:
            return None
        machine = Machine.from_api(raw)
        if objects.is_stamped(machine) or objects.owner_reference(machine) is None:
            return None
        return Subject(kind, raw, names.MANAGER_CONTROLLER)

    def watch_class(self, spoken: ProviderClass) -> None:
        """Listen to the machines and clusters of a class; kinds not installed are waited for."""
        machine = spoken.spec.machine.to_resource()
        self.services.ctx.add_watch(
            machines.CONTROLLER,
            Watch(
                machine,
                partial(self._wakes.machine, machine),
                namespace=self.namespace,
                optional=True,
                many=True,
            ),
        )
        if spoken.spec.cluster is not None:
            self.services.ctx.add_watch(
                machines.CONTROLLER,
                Watch(
                    spoken.spec.cluster.to_resource(),
                    self._wakes.infra_cluster,
                    namespace=self.namespace,
                    optional=True,
                ),
            )
