"""The controller role: which controllers there are, what they watch, and what wakes whom."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CONFIG_MAPS,
    IP_ADDRESS_CLAIMS,
    IP_ADDRESSES,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.controller import images, provider_classes, wakes
from banlieue.controller.addresses import reconciler as addresses
from banlieue.controller.addresses.reconciler import AddressReconciler
from banlieue.controller.capi.app import ClusterMachines
from banlieue.controller.clusters.app import ClusterControllers
from banlieue.controller.images import ImageSummaryReconciler
from banlieue.controller.infra import machines
from banlieue.controller.infra.kinds import MachineKinds, no_rights
from banlieue.controller.infra.machines import MachineTeardownReconciler
from banlieue.controller.infra.references import References
from banlieue.controller.installation import InstallationKeeper
from banlieue.controller.provider_classes import ProviderClassReconciler
from banlieue.controller.scheduling.assume import Ledger
from banlieue.controller.vm import virtualmachine
from banlieue.controller.vm.scope import Services
from banlieue.controller.vm.virtualmachine import VirtualMachineReconciler
from banlieue.controller.wakes import Wakes
from banlieue.sdk.kube import Key, NotFound, Obj
from banlieue.sdk.mishaps import Mishaps
from banlieue.sdk.notices import Notices
from banlieue.sdk.reconcile import Change, Context, Controller, Mapper, Request, Result, Watch
from banlieue.sdk.runtime.process import Process

INSTALLATION_CONTROLLER = "installation"
"""Name of the controller that makes the ConfigMap every owner's identity begins with."""

KINDS_CONTROLLER = "machine-kinds"
"""Name of the controller that adds watches for the kinds ProviderClasses name."""

_UNCONFIRMED_SECONDS = 300.0
_NO_RIGHTS_SECONDS = 30.0

log = logging.getLogger(__name__)


def build(
    process: Process, *, namespace: str = "", system_namespace: str = names.SYSTEM_NAMESPACE
) -> None:
    """Add the controllers of the controller role to a process.

    Args:
        process: runs them; nothing is started here.
        namespace: serve VirtualMachines of this namespace only; empty means all.
        system_namespace: where ConfigMap `banlieue-installation` lives.
    """
    role = ControllerRole.of(
        process.context, namespace=namespace, system_namespace=system_namespace
    )
    for controller in role.controllers():
        process.add_controller(controller)
    process.on_start(role.watch_known_kinds)


@dataclass(frozen=True, slots=True)
class ControllerRole:
    """The controllers over one context; a simulator may run them without a process."""

    ctx: Context
    services: Services
    wakes: Wakes
    clusters: ClusterControllers
    namespace: str = ""
    system_namespace: str = names.SYSTEM_NAMESPACE
    _references: References = field(default_factory=References)

    @classmethod
    def of(
        cls,
        ctx: Context,
        *,
        namespace: str = "",
        system_namespace: str = names.SYSTEM_NAMESPACE,
    ) -> "ControllerRole":
        """Put the services together."""
        kinds = MachineKinds(ctx.api, ctx.cache, ctx.clock, namespace)
        ledger = Ledger(ctx.clock)
        keeper = InstallationKeeper(ctx, kinds, system_namespace)
        services = Services(ctx, kinds, ledger, keeper)
        clusters = ClusterControllers(services, namespace)
        return cls(ctx, services, Wakes(ctx.cache, ledger), clusters, namespace, system_namespace)

    @property
    def cluster_machines(self) -> ClusterMachines:
        """What serves the machines of Cluster API."""
        return ClusterMachines(self.services, self.namespace, self.system_namespace)

    def controllers(self) -> tuple[Controller, ...]:
        """Everything the role runs."""
        return (
            *self.clusters.controllers(),
            self.cluster_machines.controller(),
            Controller(
                INSTALLATION_CONTROLLER,
                InstallationReconciler(self),
                (self._config_map_watch(self._installation), self._system_namespace_watch()),
                workers=1,
            ),
            Controller(
                virtualmachine.CONTROLLER,
                VirtualMachineReconciler(self.services),
                self._virtual_machine_watches(),
                workers=16,
                witness=self._witness(virtualmachine.CONTROLLER, VIRTUAL_MACHINES),
            ),
            Controller(
                machines.CONTROLLER,
                MachineTeardownReconciler(self.services),
                (
                    Watch(
                        VIRTUAL_MACHINES,
                        self._machines_left,
                        namespace=self.namespace,
                        many=True,
                    ),
                    Watch(PROVIDER_CLASSES, wakes.nobody),
                ),
                workers=4,
                witness=Notices(self.ctx, machines.CONTROLLER, self._spoken_of),
            ),
            Controller(
                images.CONTROLLER,
                ImageSummaryReconciler(self.ctx, self.services.kinds, self.namespace),
                (
                    Watch(
                        VIRTUAL_MACHINES,
                        partial(wakes.image_of_virtual_machine, self.ctx.cache),
                        namespace=self.namespace,
                        many=True,
                    ),
                    Watch(VM_IMAGES, wakes.image_itself),
                    Watch(PROVIDERS, partial(wakes.images_of_provider, self.ctx.cache)),
                    Watch(PROVIDER_CLASSES, partial(wakes.images_of_class, self.ctx.cache)),
                ),
                workers=2,
                witness=self._witness(images.CONTROLLER, VM_IMAGES),
            ),
            Controller(
                addresses.CONTROLLER,
                AddressReconciler(self.services),
                (
                    Watch(
                        IP_ADDRESS_CLAIMS,
                        partial(addresses.claim, self.services),
                        namespace=self.namespace,
                        optional=True,
                        many=True,
                    ),
                    Watch(
                        IP_ADDRESSES,
                        partial(addresses.address, self.services),
                        namespace=self.namespace,
                        optional=True,
                        many=True,
                    ),
                    Watch(VIRTUAL_MACHINES, wakes.nobody, namespace=self.namespace, many=True),
                    Watch(PROVIDERS, wakes.nobody),
                    Watch(PROVIDER_CLASSES, wakes.nobody),
                ),
                workers=4,
                witness=Notices(self.ctx, addresses.CONTROLLER, self._spoken_of),
            ),
            Controller(
                provider_classes.CONTROLLER,
                ProviderClassReconciler(self.ctx),
                (
                    Watch(PROVIDERS, provider_classes.of_provider),
                    Watch(PROVIDER_CLASSES, partial(provider_classes.of_class, self.ctx.cache)),
                ),
                workers=1,
            ),
            Controller(
                KINDS_CONTROLLER,
                MachineKindsReconciler(self),
                (Watch(PROVIDER_CLASSES, _itself),),
                workers=1,
            ),
        )

    async def watch_known_kinds(self) -> None:
        """Watch the kinds of the classes there are before anything starts.

        A VirtualMachine's first pass then finds its machine in the cache.
        """
        await self.clusters.watch_installed()
        try:
            classes = await self.ctx.api.list(PROVIDER_CLASSES)
        except NotFound:
            return
        for obj in classes:
            self.watch_class(ProviderClass.from_api(obj))

    def watch_class(self, spoken: ProviderClass) -> None:
        """Listen to every kind a class of Providers names."""
        self.watch_kind(spoken.spec.machine.to_resource())
        self.clusters.watch_class(spoken)
        self.cluster_machines.watch_class(spoken)

    def watch_kind(self, kind: Resource) -> None:
        """Listen to a machine kind; one that is not installed yet is waited for."""
        self.ctx.add_watch(
            virtualmachine.CONTROLLER,
            Watch(kind, self._machine, namespace=self.namespace, optional=True, many=True),
        )
        self.ctx.add_watch(
            machines.CONTROLLER,
            Watch(
                kind,
                partial(wakes.stray_machine, self._references, kind),
                namespace=self.namespace,
                optional=True,
                many=True,
            ),
        )

        self.ctx.add_watch(
            addresses.CONTROLLER,
            Watch(
                kind,
                partial(addresses.machine, kind),
                namespace=self.namespace,
                optional=True,
                many=True,
            ),
        )

    def _machines_left(self, change: Change) -> Iterable[Request]:
        self._references.note(change)
        return wakes.machines_left(self.services.kinds.of_reference, change)

    def _witness(self, controller: str, kind: Resource) -> Mishaps:
        return Mishaps.of_kind(self.ctx, controller, kind, names.MANAGER_CONTROLLER)

    def _spoken_of(self, key: Key) -> Obj | None:
        """What the user of a machine looks at: its VirtualMachine where it has one.

        Of a claim that no machine uses it is the claim.
        """
        crd, _, name = key.name.partition("/")
        if crd == IP_ADDRESS_CLAIMS.crd_name:
            return self.ctx.cache.get(IP_ADDRESS_CLAIMS, Key(key.namespace, name))
        kind = next((it for it in self.services.kinds.named() if it.crd_name == crd), None)
        machine = self.ctx.cache.get(kind, Key(key.namespace, name)) if kind else None
        made_for = ((machine or {}).get("spec") or {}).get("virtualMachineRef") or {}
        vm = self.ctx.cache.get(VIRTUAL_MACHINES, Key(key.namespace, made_for.get("name", "")))
        return vm or machine

    def _machine(self, change: Change) -> Iterable[Request]:
        self.services.traces.note(change)
        return self.wakes.machine(change)

    def _virtual_machine_watches(self) -> tuple[Watch, ...]:
        return (
            Watch(
                VIRTUAL_MACHINES,
                self.wakes.virtual_machine,
                namespace=self.namespace,
                many=True,
            ),
            Watch(VM_CLASSES, self.wakes.vm_class),
            Watch(VM_IMAGES, self.wakes.image),
            Watch(PROVIDERS, self.wakes.provider),
            Watch(PROVIDER_CLASSES, self.wakes.provider_class),
            Watch(NAMESPACES, self.wakes.namespace),
            Watch(
                IP_ADDRESS_CLAIMS,
                addresses.virtual_machines,
                namespace=self.namespace,
                optional=True,
                many=True,
            ),
            self._config_map_watch(self.wakes.installation),
        )

    def _config_map_watch(self, mapper: Mapper) -> Watch:
        return Watch(
            CONFIG_MAPS,
            mapper,
            field_selector=f"metadata.name={names.INSTALLATION_CONFIG_MAP}",
            namespace=self.system_namespace,
        )

    def _system_namespace_watch(self) -> Watch:
        """A namespace that is always there, so that the ConfigMap is made when the role starts."""
        return Watch(NAMESPACES, self._installation, field_selector="metadata.name=kube-system")

    def _installation(self, change: Change) -> Iterable[Request]:
        if change.resource == NAMESPACES and change.key.name != "kube-system":
            return ()
        return (Request(self.services.keeper.key),)


@dataclass(frozen=True, slots=True)
class InstallationReconciler:
    """Has ConfigMap `banlieue-installation` made when the role starts or it is gone."""

    role: ControllerRole

    async def reconcile(self, key: Key) -> Result:
        """Look who we are; `key` is that of the ConfigMap, the only one there is."""
        del key
        standing = await self.role.services.keeper.standing()
        if standing.problem is None:
            return Result()
        log.warning("nothing is changed until this is settled", extra={"why": standing.problem})
        return Result(_UNCONFIRMED_SECONDS)


@dataclass(frozen=True, slots=True)
class MachineKindsReconciler:
    """Adds a watch when a ProviderClass names a kind that is not watched yet.

    Says on the class when the controller has no rights on its kinds: they come with its backend.
    """

    role: ControllerRole
    _refused: set[Key] = field(default_factory=set)

    async def reconcile(self, key: Key) -> Result:
        """Look at one ProviderClass; a kind once watched stays watched."""
        obj = self.role.ctx.cache.get(PROVIDER_CLASSES, key)
        if obj is None:
            return Result()
        spoken = ProviderClass.from_api(obj)
        self.role.watch_class(spoken)
        named = [it.to_resource() for it in (spoken.spec.machine, spoken.spec.cluster) if it]
        refused = [it for it in named if await self.role.services.kinds.is_refused(it)]
        if refused:
            message = no_rights(*refused)
            self.role.ctx.recorder.event(obj, EventReason.KIND_FORBIDDEN, message, warning=True)
            self._refused.add(key)
            return Result(_NO_RIGHTS_SECONDS)
        if key in self._refused:
            self._refused.discard(key)
            log.info("rights on the kinds of a class have come", extra={"class": key.name})
            installation = Request(self.role.services.keeper.key)
            self.role.ctx.enqueue(INSTALLATION_CONTROLLER, installation)
        return Result()


def _itself(change: Change) -> Iterable[Request]:
    return (Request(change.key),)
