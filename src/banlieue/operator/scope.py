"""What one pass over a Provider knows, and what it did."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from banlieue.api.meta import Resource
from banlieue.api.names import FINALIZER_PROVIDER_IN_USE, FINALIZER_PROVIDER_WORKLOAD
from banlieue.api.reasons import Reason
from banlieue.api.resources import DEPLOYMENTS, ROLES
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.operator import objects
from banlieue.operator.hands import Hands
from banlieue.operator.index import Index
from banlieue.operator.objects import Surroundings, Workload
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.connection import Source, sources
from banlieue.sdk.reconcile import Context

Found = Mapping[tuple[Resource, Key], Obj]


@dataclass(slots=True)
class Services:
    """What all passes share; `around` is known from the start of the process on."""

    ctx: Context
    hands: Hands
    index: Index
    around: Surroundings


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the workload is not as it should be. `after` is when to look again, in seconds."""

    reason: Reason
    message: str
    after: float | None = None


@dataclass(slots=True)
class ProviderScope:
    """Gathered once per pass; phases fill the second half."""

    services: Services
    raw: Obj
    provider: Provider
    provider_class: ProviderClass | None
    class_flaw: str
    found: Found
    made: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    deployment: Obj | None = None
    settled: bool = False
    let_go: bool = False

    @property
    def key(self) -> Key:
        """Namespace and name of the Provider."""
        return Key.of(self.raw)

    @property
    def uid(self) -> str:
        """The Provider's uid."""
        return self.provider.metadata.uid or ""

    @property
    def deleting(self) -> bool:
        """Whether the Provider is being deleted."""
        return self.provider.metadata.deletion_timestamp is not None

    @property
    def in_use(self) -> bool:
        """Whether the Provider's process holds it for its machines."""
        return FINALIZER_PROVIDER_IN_USE in self.provider.metadata.finalizers

    @property
    def holds(self) -> bool:
        """Whether the operator's finalizer is on the Provider: without it nothing is made."""
        return FINALIZER_PROVIDER_WORKLOAD in self.provider.metadata.finalizers

    @property
    def backend(self) -> str:
        """The backend the Provider is served by now; empty when nothing was made yet."""
        for obj in self.found.values():
            if objects.is_trusted(obj, self.key) and (backend := objects.backend_of(obj)):
                return backend
        return self.services.index.backend(self.key, self.uid)

    @property
    def workload(self) -> Workload | None:
        """The objects as the class wants them; None without a class."""
        if self.provider_class is None:
            return None
        return Workload(
            self.provider, self.provider_class.spec, self.services.around, self._former()
        )

    def serving(self) -> Obj | None:
        """The Deployment, as it was last seen where it was told to be, is to be, or nobody else is.

        Others may have made what looks like it, elsewhere.
        """
        if self.deployment is not None:
            return self.deployment
        told, workload = self.provider.status.workload, self.workload
        known = [Key(told.namespace or "", told.name or "")] if told else []
        known += [Key(workload.namespace, workload.name)] if workload else []
        there = {key: obj for (kind, key), obj in self.found.items() if kind == DEPLOYMENTS}
        own = (obj for obj in there.values() if objects.is_trusted(obj, self.key))
        return next((there[key] for key in known if key in there), next(own, None))

    def _former(self) -> tuple[Source, ...]:
        """What the Provider named before, until its process has seen that it no longer does.

        The process takes its finalizer off them, for which it needs its rights.
        """
        seen = self.provider.status.observed_generation or 0
        if not self.in_use or seen >= (self.provider.metadata.generation or 0):
            return ()
        roles = [
            obj
            for (kind, _), obj in self.found.items()
            if kind == ROLES and objects.is_trusted(obj, self.key)
        ]
        named = {it for role in roles for it in objects.named_in(role, self.key.namespace)}
        return tuple(sorted(named - set(sources(self.provider).all()), key=lambda it: it[1]))
