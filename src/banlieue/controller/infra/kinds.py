"""Which machine kinds exist: those ProviderClasses name, and those whose CRD says so."""

import logging
from dataclasses import dataclass, field

from banlieue.api import names
from banlieue.api.meta import KindRef, Resource
from banlieue.api.resources import PROVIDER_CLASSES
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.sdk.kube import ApiClient, Forbidden, Key, NotFound, Obj, ObjectReader
from banlieue.sdk.machine_kinds import labelled_machine_kinds
from banlieue.sdk.reconcile import Clock

_CRD_SECONDS = 60.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class MachineKinds:
    """Finds kinds and lists machines over all of them. Knows no backend by name."""

    api: ApiClient
    cache: ObjectReader
    clock: Clock
    namespace: str = ""
    _labelled: tuple[Resource, ...] = ()
    _read_at: float | None = field(default=None)

    def of_class(self, name: str) -> Resource | None:
        """The machine kind of a ProviderClass, None when there is no such class."""
        obj = self.cache.get(PROVIDER_CLASSES, Key("", name))
        return ProviderClass.from_api(obj).spec.machine.to_resource() if obj else None

    def named(self) -> tuple[Resource, ...]:
        """The machine kinds ProviderClasses name, by group and kind."""
        found = {
            ProviderClass.from_api(obj).spec.machine.to_resource()
            for obj in self.cache.list(PROVIDER_CLASSES)
        }
        return tuple(sorted(found, key=lambda kind: (kind.group, kind.kind, kind.version)))

    def of_reference(self, reference: KindRef) -> Resource:
        """The kind a reference means; its version is a guess when no class names the kind."""
        for kind in (*self.named(), *self._labelled):
            if (kind.group, kind.kind) == (reference.api_group, reference.kind):
                return kind
        return Resource(
            reference.api_group, names.VERSION, reference.kind, names.plural(reference.kind)
        )

    async def all(self) -> tuple[Resource, ...]:
        """Every machine kind there is, by class or by the label on its CRD.

        A restore may bring machines of a kind back before the class that names it.
        """
        now = self.clock.monotonic()
        if self._read_at is None or now - self._read_at > _CRD_SECONDS:
            self._labelled = await self._read_labelled()
            self._read_at = now
        known = {(kind.group, kind.kind): kind for kind in (*self._labelled, *self.named())}
        return tuple(known[name] for name in sorted(known))

    async def machines_of(self, vm: Key) -> "list[Found]":
        """All machines made for a VirtualMachine of that name, read live."""
        selector = f"{names.FIELD_VIRTUAL_MACHINE_NAME}={vm.name}"
        return [
            Found(kind, obj)
            for kind in await self.all()
            for obj in await self._list(kind, vm.namespace, selector)
        ]

    async def every_machine(self) -> "list[Found]":
        """All machines of all kinds in the namespaces we serve, read live."""
        return [
            Found(kind, obj)
            for kind in await self.all()
            for obj in await self._list(kind, self.namespace, "")
        ]

    async def _list(self, kind: Resource, namespace: str, field_selector: str) -> list[Obj]:
        try:
            return await self.api.list(kind, namespace=namespace, field_selector=field_selector)
        except NotFound:
            return []  # the class names a kind that is not installed

    async def _read_labelled(self) -> tuple[Resource, ...]:
        try:
            return await labelled_machine_kinds(self.api)
        except Forbidden:
            log.warning("may not list CustomResourceDefinitions; machine kinds come from classes")
            return ()


@dataclass(frozen=True, slots=True)
class Found:
    """A machine object and its kind."""

    kind: Resource
    obj: Obj

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key.of(self.obj)


def reference_to(kind: Resource, key: Key) -> KindRef:
    """The reference a status keeps to a machine object."""
    return KindRef(api_group=kind.group, kind=kind.kind, name=key.name, namespace=key.namespace)
