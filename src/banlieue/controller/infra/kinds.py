"""Which machine kinds exist: those ProviderClasses name, and those whose CRD says so."""

import logging
from dataclasses import dataclass, field

from banlieue.api import names
from banlieue.api.meta import KindRef, Resource
from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.sdk.kube import ApiClient, Forbidden, Key, NotFound, Obj, ObjectReader
from banlieue.sdk.machine_kinds import labelled_machine_kinds
from banlieue.sdk.reconcile import Clock

_CRD_SECONDS = 60.0
_NOBODY = "metadata.name=none"
"""Selects nothing: only whether the kind may be read is asked."""

STEADY_SECONDS = 10.0
"""How long a kind is refused before it counts as one we have no rights on.

An API server that just started refuses everybody until it has read its roles.
"""

log = logging.getLogger(__name__)


class Unreadable(Forbidden):
    """The controller has no rights on a kind of machines, of which there may be some."""

    def __init__(self, kind: Resource) -> None:
        super().__init__(403, "Forbidden", no_rights(kind))


def no_rights(*kinds: Resource) -> str:
    """What is wrong, and the remedy, where the controller may not read some kinds."""
    named = ", ".join(kind.crd_name for kind in kinds)
    return (
        f"the controller has no rights on {named}; apply the ClusterRole of the backend that "
        f"carries the label {names.LABEL_AGGREGATE_TO_CONTROLLER}"
    )


def named_kinds(reader: ObjectReader) -> tuple[Resource, ...]:
    """The machine kinds ProviderClasses name, by group and kind."""
    found = {
        ProviderClass.from_api(obj).spec.machine.to_resource()
        for obj in reader.list(PROVIDER_CLASSES)
    }
    return tuple(sorted(found, key=lambda kind: (kind.group, kind.kind, kind.version)))


@dataclass(slots=True)
class MachineKinds:
    """Finds kinds and lists machines over all of them. Knows no backend by name."""

    api: ApiClient
    cache: ObjectReader
    clock: Clock
    namespace: str = ""
    _labelled: tuple[Resource, ...] = ()
    _read_at: float | None = field(default=None)
    _refused_since: dict[Resource, float] = field(default_factory=dict)

    def of_class(self, name: str) -> Resource | None:
        """The machine kind of a ProviderClass, None when there is no such class."""
        obj = self.cache.get(PROVIDER_CLASSES, Key("", name))
        return ProviderClass.from_api(obj).spec.machine.to_resource() if obj else None

    def named(self) -> tuple[Resource, ...]:
        """The machine kinds ProviderClasses name, by group and kind."""
        return named_kinds(self.cache)

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

    async def is_refused(self, kind: Resource) -> bool:
        """Whether the kind is installed and the controller has no rights on it, read live."""
        try:
            await self._ask(kind, self.namespace, _NOBODY)
        except Unreadable:
            return True
        return False

    async def machines_of(self, vm: Key) -> "list[Found]":
        """All machines made for a VirtualMachine of that name, read live.

        Raises:
            Unreadable: there may be some of a kind we have no rights on.
        """
        selector = f"{names.FIELD_VIRTUAL_MACHINE_NAME}={vm.name}"
        return [
            Found(kind, obj)
            for kind in await self.all()
            for obj in await self.machines(kind, namespace=vm.namespace, field_selector=selector)
        ]

    async def every_machine(self) -> "tuple[list[Found], list[Resource]]":
        """All machines in the namespaces we serve, read live, and the kinds we have no rights on.

        Raises:
            Unreadable: a kind was refused only now, which may pass.
        """
        found, refused = list[Found](), list[Resource]()
        for kind in await self.all():
            try:
                found += [Found(kind, obj) for obj in await self._ask(kind, self.namespace, "")]
            except Unreadable:
                if not self._steadily_refused(kind):
                    raise
                refused.append(kind)
        return found, refused

    async def machines(
        self, kind: Resource, *, namespace: str = "", field_selector: str = ""
    ) -> list[Obj]:
        """All machines of a kind, read live; none where it is not installed.

        Raises:
            Unreadable: we have no rights on the kind, and there may be some.
        """
        try:
            return await self._ask(kind, namespace, field_selector)
        except Unreadable:
            if self.may_have_machines(kind) or not self._steadily_refused(kind):
                raise
            return []

    async def _ask(self, kind: Resource, namespace: str, field_selector: str) -> list[Obj]:
        try:
            found = await self.api.list(kind, namespace=namespace, field_selector=field_selector)
        except NotFound:
            found = []  # the class names a kind that is not installed
        except Forbidden as refused:
            self._refused_since.setdefault(kind, self.clock.monotonic())
            raise Unreadable(kind) from refused
        self._refused_since.pop(kind, None)
        return found

    def _steadily_refused(self, kind: Resource) -> bool:
        since = self._refused_since.get(kind)
        return since is not None and self.clock.monotonic() - since >= STEADY_SECONDS

    def may_have_machines(self, kind: Resource) -> bool:
        """Whether a machine of the kind may have a VM, as far as Providers tell.

        None has before a Provider took itself in use. A Provider whose class is gone may be of any
        kind.
        """
        if not self.cache.synced(PROVIDERS, PROVIDER_CLASSES):
            return True
        for obj in self.cache.list(PROVIDERS):
            if names.FINALIZER_PROVIDER_IN_USE not in (obj["metadata"].get("finalizers") or ()):
                continue
            name = ((obj.get("spec") or {}).get("providerClassRef") or {}).get("name") or ""
            served = self.of_class(name)
            if served is None or (served.group, served.kind) == (kind.group, kind.kind):
                return True
        return False

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
