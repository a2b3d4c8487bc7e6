"""The controller role: which controllers there are, what they watch, and what wakes whom."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.controller import images, machines, virtualmachine, wakes
from banlieue.controller.assume import Ledger
from banlieue.controller.images import ImageSummaryReconciler
from banlieue.controller.installation import InstallationKeeper
from banlieue.controller.kinds import MachineKinds
from banlieue.controller.machines import MachineTeardownReconciler
from banlieue.controller.scope import Services
from banlieue.controller.virtualmachine import VirtualMachineReconciler
from banlieue.controller.wakes import Wakes
from banlieue.sdk.kube import Key, NotFound
from banlieue.sdk.reconcile import Change, Context, Controller, Request, Result, Watch
from banlieue.sdk.runtime.process import Process

KINDS_CONTROLLER = "machine-kinds"
"""Name of the controller that adds watches for the kinds ProviderClasses name."""


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
    namespace: str = ""
    system_namespace: str = names.SYSTEM_NAMESPACE

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
        return cls(ctx, services, Wakes(ctx.cache, ledger), namespace, system_namespace)

    def controllers(self) -> tuple[Controller, ...]:
        """Everything the role runs."""
        return (
            Controller(
                virtualmachine.CONTROLLER,
                VirtualMachineReconciler(self.services),
                self._virtual_machine_watches(),
                workers=16,
            ),
            Controller(
                machines.CONTROLLER, MachineTeardownReconciler(self.services), (), workers=4
            ),
            Controller(
                images.CONTROLLER,
                ImageSummaryReconciler(self.ctx),
                (
                    Watch(VM_IMAGES, wakes.image_itself),
                    Watch(PROVIDERS, partial(wakes.images_of_provider, self.ctx.cache)),
                    Watch(PROVIDER_CLASSES, partial(wakes.images_of_class, self.ctx.cache)),
                ),
                workers=2,
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
        try:
            classes = await self.ctx.api.list(PROVIDER_CLASSES)
        except NotFound:
            return
        for obj in classes:
            self.watch_kind(ProviderClass.from_api(obj).spec.machine.to_resource())

    def watch_kind(self, kind: Resource) -> None:
        """Listen to a machine kind; one that is not installed yet is waited for."""
        self.ctx.add_watch(
            virtualmachine.CONTROLLER,
            Watch(kind, self.wakes.machine, namespace=self.namespace, optional=True),
        )
        self.ctx.add_watch(
            machines.CONTROLLER,
            Watch(
                kind,
                partial(wakes.stray_machine, kind),
                namespace=self.namespace,
                optional=True,
            ),
        )

    def _virtual_machine_watches(self) -> tuple[Watch, ...]:
        return (
            Watch(VIRTUAL_MACHINES, self.wakes.virtual_machine, namespace=self.namespace),
            Watch(VM_CLASSES, self.wakes.vm_class),
            Watch(VM_IMAGES, self.wakes.image),
            Watch(PROVIDERS, self.wakes.provider),
            Watch(PROVIDER_CLASSES, self.wakes.provider_class),
            Watch(NAMESPACES, self.wakes.namespace),
            Watch(
                CONFIG_MAPS,
                self.wakes.installation,
                field_selector=f"metadata.name={names.INSTALLATION_CONFIG_MAP}",
                namespace=self.system_namespace,
            ),
        )


@dataclass(frozen=True, slots=True)
class MachineKindsReconciler:
    """Adds a watch when a ProviderClass names a kind that is not watched yet."""

    role: ControllerRole

    async def reconcile(self, key: Key) -> Result:
        """Look at one ProviderClass; a kind once watched stays watched."""
        obj = self.role.ctx.cache.get(PROVIDER_CLASSES, key)
        if obj is not None:
            self.role.watch_kind(ProviderClass.from_api(obj).spec.machine.to_resource())
        return Result()


def _itself(change: Change) -> Iterable[Request]:
    return (Request(change.key),)
