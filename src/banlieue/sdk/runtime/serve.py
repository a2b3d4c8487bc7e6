"""The provider role: everything one backend needs to serve Providers, put together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CAPI_CLUSTERS, NAMESPACES, PROVIDERS, VM_IMAGES
from banlieue.sdk.backend import Backend
from banlieue.sdk.calls import CallPool
from banlieue.sdk.image import reconciler as images
from banlieue.sdk.image.reconciler import ImageReconciler
from banlieue.sdk.kube import Key, Obj, ObjectReader
from banlieue.sdk.machine import pausing
from banlieue.sdk.machine import reconciler as machines
from banlieue.sdk.machine.reconciler import MachineReconciler
from banlieue.sdk.machine.shares import WORKERS, WORKERS_OF_MANY, Shares
from banlieue.sdk.mishaps import Mishaps, Subject
from banlieue.sdk.notices import Notices
from banlieue.sdk.powers import Changes
from banlieue.sdk.provider import in_use
from banlieue.sdk.provider import reconciler as providers
from banlieue.sdk.provider.leases import MakeCandidate, ProviderLeases
from banlieue.sdk.provider.reconciler import ProviderReconciler
from banlieue.sdk.provider.seams import Pool, StartThread, start_thread
from banlieue.sdk.provider.sessions import ProviderSessions
from banlieue.sdk.reconcile import (
    Change,
    Clock,
    Context,
    Controller,
    Enqueue,
    Priority,
    Request,
    Watch,
)
from banlieue.sdk.runtime.health import Health
from banlieue.sdk.runtime.process import Hook


@dataclass(frozen=True, slots=True)
class Scope:
    """Which Providers a process serves: one, those of a namespace, or (both empty) all."""

    only: Key | None = None
    namespace: str = ""
    installation_namespace: str = names.SYSTEM_NAMESPACE


class Host(Protocol):
    """What the role asks of the process it runs in; a simulator may have one of its own."""

    @property
    def context(self) -> Context:
        """The injected seams."""

    @property
    def cache(self) -> ObjectReader:
        """The cache of watched kinds."""

    @property
    def clock(self) -> Clock:
        """Time."""

    @property
    def rng(self) -> Random:
        """Jitter and identities."""

    @property
    def health(self) -> Health:
        """Where readiness is reported."""

    @property
    def candidate(self) -> MakeCandidate:
        """Makes the candidates for the Leases of Providers."""

    @property
    def enqueue(self) -> Enqueue:
        """Asks a controller for a pass."""

    def add_controller(self, controller: Controller) -> None:
        """Run a controller."""

    def on_stop(self, hook: Hook) -> None:
        """Call when no pass runs any more."""


class ProviderRole:
    """Adds the three controllers of a backend to a process.

    Args:
        process: runs them; nothing is started here.
        backend: what is served.
        scope: which Providers.
        make_pool: makes what runs the calls to the backend of one Provider; None means threads.
        start: starts the thread that listens to a change feed.
    """

    def __init__(
        self,
        process: Host,
        backend: Backend[Any],
        scope: Scope,
        *,
        make_pool: Callable[[Key], Pool] | None = None,
        start: StartThread = start_thread,
    ) -> None:
        self._process = process
        self._backend = backend
        context = process.context
        self._leases = ProviderLeases(process.candidate, self._lease_changed)
        self._sessions = ProviderSessions(
            backend,
            clock=process.clock,
            rng=process.rng,
            make_pool=make_pool or (lambda key: CallPool(f"{backend.name} {key}")),
            leased=self._leases.held,
            start=start,
        )
        self._provider_reconciler = ProviderReconciler(
            context,
            backend,
            self._sessions,
            self._leases,
            installation_namespace=scope.installation_namespace,
            only=scope.only,
        )
        # A process of one Provider needs no shares: nobody else waits in it.
        self._workers = WORKERS if scope.only is not None else WORKERS_OF_MANY
        self._machine_reconciler = MachineReconciler(
            context,
            backend,
            self._sessions,
            scope.installation_namespace,
            shares=Shares(self._workers),
        )
        self._image_reconciler = ImageReconciler(
            context, backend, self._sessions, scope.installation_namespace
        )
        self._sessions.on_changes(self._machine_reconciler.changed)
        self._sessions.on_changes(self._reached)
        controller = self._provider_reconciler.controller(namespace=scope.namespace)
        witness = Mishaps(context, controller.name, self._provider_subject)
        process.add_controller(replace(controller, witness=witness))
        process.add_controller(self._machine_controller(scope))
        process.add_controller(self._image_controller(scope))
        process.health.add_ready("leases", self._leases.check)
        if scope.only is not None:
            process.health.add_ready("backend", lambda: self._check_backend(scope.only))
        process.on_stop(self._close)

    def _machine_controller(self, scope: Scope) -> Controller:
        return Controller(
            machines.CONTROLLER,
            self._machine_reconciler,
            (
                Watch(
                    self._backend.machine,
                    _changed_machine,
                    field_selector=in_use.machine_selector(scope.only),
                    many=True,
                ),
                # Only looked up: passes begin when they are known.
                Watch(NAMESPACES, lambda _: ()),
                Watch(VM_IMAGES, lambda _: ()),
                Watch(CAPI_CLUSTERS, self._machines_of_cluster, optional=True),
                self._provider_watch(scope, self._machines_of),
            ),
            workers=self._workers,
            witness=Mishaps(self._process.context, machines.CONTROLLER, self._machine_subject),
        )

    def _machine_subject(self, key: Key) -> Subject | None:
        kind = self._backend.machine
        raw = self._process.cache.get(kind, key)
        ref = ((raw or {}).get("spec") or {}).get("providerRef") or {}
        provider = Key(ref.get("namespace") or "", ref.get("name") or "")
        return self._subject(kind, raw, provider)

    def _provider_subject(self, key: Key) -> Subject | None:
        return self._subject(PROVIDERS, self._process.cache.get(PROVIDERS, key), key)

    def _subject(self, kind: Resource, raw: Obj | None, provider: Key) -> Subject | None:
        """An object of a Provider that this process serves at this moment."""
        if raw is None or not self._leases.held(provider):
            return None
        manager = names.provider_manager(self._backend.name, provider.namespace, provider.name)
        return Subject(kind, raw, manager)

    def _image_controller(self, scope: Scope) -> Controller:
        return Controller(
            images.CONTROLLER,
            self._image_reconciler,
            (Watch(VM_IMAGES, _changed_image), self._provider_watch(scope, self._all_images)),
            workers=2,
            witness=Notices(
                self._process.context,
                images.CONTROLLER,
                partial(self._process.cache.get, VM_IMAGES),
            ),
        )

    def _provider_watch(self, scope: Scope, mapper: Any) -> Watch:  # noqa: ANN401 - a Mapper
        only = scope.only
        return Watch(
            PROVIDERS,
            mapper,
            field_selector=f"metadata.name={only.name}" if only else "",
            namespace=only.namespace if only else scope.namespace,
        )

    def _machines_of_cluster(self, change: Change) -> Iterable[Request]:
        for request in pausing.machines_of(self._process.cache, self._backend.machine, change):
            self._machine_reconciler.wake(request.key)
            yield request

    def _machines_of(self, change: Change) -> Iterable[Request]:
        """A Provider that was reached, lost or changed its mind concerns all its machines."""
        if not _matters(change):
            return
        for key in self._machine_reconciler.machines_of(change.key):
            self._machine_reconciler.wake(key)
            yield Request(key, priority=Priority.RESYNC)

    def _all_images(self, change: Change) -> Iterable[Request]:
        if not _matters(change):
            return
        for obj in self._process.cache.list(VM_IMAGES):
            yield Request(Key.of(obj), priority=Priority.RESYNC)

    def _reached(self, provider: Key, changes: Changes) -> None:
        """A Provider that was reached, or reached again, may have images it was not asked for."""
        del provider
        if changes.everything:
            for obj in self._process.cache.list(VM_IMAGES):
                request = Request(Key.of(obj), priority=Priority.RESYNC)
                self._process.enqueue(images.CONTROLLER, request)

    def _lease_changed(self, provider: Key) -> None:
        self._process.enqueue(providers.CONTROLLER, Request(provider))
        for key in self._machine_reconciler.machines_of(provider):
            self._process.enqueue(machines.CONTROLLER, Request(key))

    def _check_backend(self, provider: Key | None) -> str:
        """A process of one Provider is of use while the backend answers, and says so.

        One of many is not told by one of them.
        """
        session = self._sessions.find(provider) if provider is not None else None
        if session is None:
            return f"Provider {provider} is not served yet"
        if session.connected and not session.breaker.is_open:
            return ""
        trouble = self._sessions.trouble(session.key)
        return trouble.message if trouble is not None else "the endpoint was not reached yet"

    async def _close(self) -> None:
        await self._sessions.close()
        await self._leases.close()


def _changed_machine(change: Change) -> Iterable[Request]:
    """Everything but the status, which only we write."""
    if change.old is not None and change.new is not None and not change.replayed:
        old, new = ({**it, "status": None} for it in (change.old, change.new))
        for it in (old, new):
            it["metadata"] = {**it["metadata"], "resourceVersion": ""}
        if old == new and change.new.get("status"):
            return ()
    deleting = change.new is not None and change.new["metadata"].get("deletionTimestamp")
    return (Request(change.key, priority=Priority.DELETE if deleting else Priority.USER),)


def _changed_image(change: Change) -> Iterable[Request]:
    """Everything but the status: the finalizers say what may be imported, and what may go."""
    old, new = (_image(obj) for obj in (change.old, change.new))
    return () if old == new else (Request(change.key),)


def _image(obj: dict[str, Any] | None) -> tuple[object, ...] | None:
    if obj is None:
        return None
    meta = obj.get("metadata") or {}
    return obj.get("spec"), meta.get("deletionTimestamp"), meta.get("finalizers"), meta.get("uid")


def _matters(change: Change) -> bool:
    """Whether more than measurements changed: spec, marks, or what the Provider is good for."""
    old, new = change.old or {}, change.new or {}
    return _weighty(old) != _weighty(new)


def _weighty(obj: dict[str, Any]) -> tuple[object, ...]:
    meta, status = obj.get("metadata") or {}, obj.get("status") or {}
    domains = [
        (item.get("id"), item.get("name"), (item.get("attributes") or {}).get("raw"))
        for item in status.get("failureDomains") or []
    ]
    conditions = [
        (item.get("type"), item.get("status"), item.get("reason"))
        for item in status.get("conditions") or []
    ]
    gone = meta.get("deletionTimestamp")
    return obj.get("spec"), gone, status.get("backendIdentity"), domains, conditions
