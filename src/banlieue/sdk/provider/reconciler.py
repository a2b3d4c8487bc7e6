"""The generic Provider reconciler: connects, verifies, publishes; the same for every backend.

It is registered under the name `provider`; its queue's keys are Provider keys.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.resources import NAMESPACES, PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.provider import Provider, ProviderStatus
from banlieue.sdk.backend import Backend
from banlieue.sdk.errors import DriverError, NeedsOperator, Transient, Unreachable
from banlieue.sdk.kube import STATUS, Key, Obj
from banlieue.sdk.phases import run_phases
from banlieue.sdk.powers import Changes
from banlieue.sdk.provider import changes, in_use, retained
from banlieue.sdk.provider.connection import ConnectionInvalid
from banlieue.sdk.provider.endpoints import located
from banlieue.sdk.provider.leases import ProviderLeases
from banlieue.sdk.provider.news import news
from banlieue.sdk.provider.phases import COUNTS_PAUSE, PHASES, REFRESH, SECRET_CHECK
from banlieue.sdk.provider.scope import KnownMachine, Memory, Problem, ProviderScope
from banlieue.sdk.provider.sessions import ProviderSessions
from banlieue.sdk.provider.status import body, compose, problem_in, problem_of
from banlieue.sdk.reconcile import Change, Context, Controller, Priority, Request, Result, Watch
from banlieue.sdk.status import write_status

CONTROLLER = "provider"

LOST_PAUSE = 0.5
"""Seconds in which machine objects that vanish together are gathered before they are told of."""

SILENCE = 15.0
"""Seconds without an answer after which a Provider that was reachable says so in its status."""

LEASE_CHECK = 2.0
"""Seconds until another look while nobody is known to hold the Lease."""

LONGEST_PAUSE = 30.0
"""Most seconds between two passes that fail for no lasting cause, but for the breaker's pause."""

log = logging.getLogger(__name__)


class ProviderReconciler:
    """Serves Providers of one backend.

    Args:
        ctx: the injected world.
        backend: the backend this process serves.
        sessions: filled here, used by machine reconcilers.
        leases: says which Providers are ours to serve.
        installation_namespace: where ConfigMap `banlieue-installation` is.
        only: the one Provider to serve; None serves all of the backend that are watched.
    """

    def __init__(
        self,
        ctx: Context,
        backend: Backend[Any],
        sessions: ProviderSessions,
        leases: ProviderLeases,
        *,
        installation_namespace: str,
        only: Key | None = None,
    ) -> None:
        self._ctx = ctx
        self._backend = backend
        self._sessions = sessions
        self._leases = leases
        self._installation_namespace = installation_namespace
        self._only = only
        self._finalizer = names.machine_finalizer(backend.machine.kind)
        self._memories: dict[Key, Memory] = {}
        sessions.on_changes(self._changed)
        sessions.on_unsettled(self._unsettled)

    async def reconcile(self, key: Key) -> Result:
        """One pass over one Provider. Raises `ApiError`; failures of the backend end in status."""
        if not self._ctx.cache.synced(PROVIDERS, PROVIDER_CLASSES):
            return Result(requeue_after=1.0)
        raw = self._ctx.cache.get(PROVIDERS, key)
        if raw is None or self._only not in {None, key}:
            self._forget(key)
            return Result()
        scope = self._gather(raw)
        if scope is None:
            return Result()
        self._leases.compete(key, in_use.lease_key(scope.provider))
        if not self._leases.held(key):
            return self._stand_by(scope)
        return await self._serve(scope)

    async def _serve(self, scope: ProviderScope) -> Result:
        if scope.deleting and await self._let_go(scope):
            return Result()
        await self._doubt(scope)
        await self._look(scope)
        self._tell_lost(scope)
        if not self._is_blip(scope):
            await self._write(scope)
        return Result(requeue_after=self._next(scope))

    # Gathering

    def _gather(self, raw: Obj) -> ProviderScope | None:
        provider, key = _read(raw), Key.of(raw)
        machines = list(self._machines(key))
        memory = self._memories.setdefault(key, Memory(uid=provider.metadata.uid or ""))
        if memory.uid != provider.metadata.uid:
            self._forget(key)  # another Provider of the same name
            memory = self._memories[key] = Memory(uid=provider.metadata.uid or "")
        if not self._is_ours(provider, machines):
            self._forget(key)
            return None
        self._follow(memory, machines)
        session = self._sessions.ensure(key, provider)
        session.served = replace(session.served, provider=provider)
        return ProviderScope(
            self._ctx,
            self._backend,
            self._installation_namespace,
            raw,
            provider,
            session,
            memory,
            machines,
        )

    def _follow(self, memory: Memory, machines: list[KnownMachine]) -> None:
        """Note which machine objects came and went, whether or not the backend can be asked."""
        if not self._ctx.cache.synced(self._backend.machine):
            return
        destroyed = memory.claims.follow(machines, self._ctx.clock.monotonic())
        if destroyed and memory.inventory is not None:
            memory.pending |= destroyed
            memory.inventory = [
                state for state in memory.inventory if state.uuid.lower() not in destroyed
            ]

    def _is_ours(self, provider: Provider, machines: list[KnownMachine]) -> bool:
        """Ours by order, by class, or because its machines are of our kind whatever the class."""
        name = provider.spec.provider_class_ref.name
        found = self._ctx.cache.get(PROVIDER_CLASSES, Key("", name)) or {}
        backend = (found.get("spec") or {}).get("backend")
        return self._only is not None or backend == self._backend.name or bool(machines)

    def _machines(self, key: Key) -> Iterable[KnownMachine]:
        for raw in self._ctx.cache.list(self._backend.machine):
            if changes.provider_of(raw) == key:
                yield KnownMachine.of(raw)

    # Steps

    def _forget(self, key: Key) -> None:
        self._memories.pop(key, None)
        self._sessions.forget(key)
        self._leases.leave(key)

    def _stand_by(self, scope: ProviderScope) -> Result:
        """Keep off while the Lease is not ours; give the session up when somebody else has it."""
        rival = self._leases.rival(scope.key)
        if not rival:
            return Result(requeue_after=LEASE_CHECK)
        message = f"another process serves this Provider: {rival}"
        self._sessions.forget(scope.key)
        self._sessions.blame(scope.key, NeedsOperator(Reason.SERVED_ELSEWHERE, message))
        self._ctx.recorder.event(scope.raw, EventReason.SERVED_ELSEWHERE, message, warning=True)
        return Result(requeue_after=SECRET_CHECK)

    async def _let_go(self, scope: ProviderScope) -> bool:
        """Let a deleted Provider go once its last machine is gone."""
        if scope.machines or scope.paused or not in_use.is_in_use(scope.provider):
            return False
        return await in_use.let_go(
            self._ctx.api, self._backend, scope.provider, manager=scope.manager
        )

    async def _look(self, scope: ProviderScope) -> None:
        try:
            scope.problem = problem_in(await run_phases(PHASES, scope))
        except (DriverError, ConnectionInvalid) as error:
            scope.problem = problem_of(error, scope.session.breaker.wait)
        mismatch = scope.problem and scope.problem.reason == Reason.PROVIDER_CLASS_MISMATCH
        scope.session.served = replace(
            scope.session.served, suspended=scope.class_paused or bool(mismatch)
        )
        self._sessions.blame(scope.key, _blame(scope.problem))
        if scope.problem:  # the machines' own conditions, which tenants read, name no host
            scope.problem = located(scope.problem, scope.provider)

    async def _doubt(self, scope: ProviderScope) -> None:
        """Say once, before anything else, that what an earlier process told may be out of date.

        It may come from a backup: whoever has to know of all VMs waits until we looked ourselves.
        """
        memory, told = scope.memory, scope.provider.status.unclaimed
        if memory.doubted or told is None or not told.complete:
            memory.doubted = True
            return
        doubtful = scope.provider.status.model_copy(deep=True)
        doubtful.unclaimed = told.model_copy(update={"complete": False})
        written = await self._write_status(scope, doubtful)
        memory.doubted = True
        if written is not None:
            scope.replace(written)

    def _tell_lost(self, scope: ProviderScope) -> None:
        """Name the owners of machine objects that vanished, though the backend was not read."""
        memory, known = scope.memory, scope.memory.told
        if scope.unclaimed is not None or known is None or not memory.claims.unchecked:
            return
        told = memory.claims.add_to(known, ())
        if told.owners == known.owners:
            return
        if scope.due(memory.counts_written, COUNTS_PAUSE):
            scope.unclaimed, memory.counts_written = told, self._ctx.clock.monotonic()
        else:
            scope.counts_due = COUNTS_PAUSE

    def _is_blip(self, scope: ProviderScope) -> bool:
        """Whether an endpoint that counts as reachable failed only just now: status waits."""
        problem, memory, now = scope.problem, scope.memory, self._ctx.clock.monotonic()
        if problem is None or problem.lasting:
            memory.outage_since = None
            return False
        if memory.outage_since is None:
            memory.outage_since = now
        lasted = max(now - memory.outage_since, scope.session.breaker.silence)
        scope.problem = replace(problem, after=max(problem.after, min(LONGEST_PAUSE, lasted / 2)))
        if problem.reason == Reason.PROVIDER_UNREACHABLE and scope.session.breaker.is_open:
            return False
        return scope.was_reachable and lasted < SILENCE

    async def _write(self, scope: ProviderScope) -> None:
        before, after = scope.provider.status, compose(scope, self._ctx.clock.now())
        if scope.unclaimed is not None:
            scope.memory.told = scope.unclaimed
        if await self._write_status(scope, after) is not None:
            self._tell(scope, before, after)

    async def _write_status(self, scope: ProviderScope, status: ProviderStatus) -> Obj | None:
        return await write_status(
            self._ctx.api,
            PROVIDERS,
            scope.raw,
            body(status),
            manager=scope.manager,
            foreign=("workload",),
        )

    def _tell(self, scope: ProviderScope, before: ProviderStatus, after: ProviderStatus) -> None:
        for it in news(before, after, scope.problem):
            self._ctx.recorder.event(scope.raw, it.reason, it.message, warning=it.warning)

    def _next(self, scope: ProviderScope) -> float:
        after = scope.problem.after if scope.problem else min(REFRESH, SECRET_CHECK)
        if scope.memory.retained_asked:
            after = min(after, retained.AGAIN)
        elif scope.memory.retained_wanted and scope.problem is None:
            after = min(after, retained.due_in(scope.memory, self._ctx.clock.monotonic()))
        return min(after, scope.counts_due) if scope.counts_due else after

    # Wake-ups

    def _changed(self, key: Key, changes: Changes) -> None:
        """VMs moved that may be nobody's; a pass will tell, one for many changes."""
        memory = self._memories.get(key)
        if memory is None or not (changes.everything or changes.uuids):
            return
        if changes.everything:
            memory.inventory_read = None
        memory.pending |= changes.uuids
        request = Request(key, delay=COUNTS_PAUSE, priority=Priority.RESYNC)
        self._ctx.enqueue(CONTROLLER, request)

    def _unsettled(self, key: Key) -> None:
        memory = self._memories.get(key)
        if memory is not None:
            memory.about_read = None
            self._ctx.enqueue(CONTROLLER, Request(key))

    def controller(self, *, namespace: str = "", workers: int = 4) -> Controller:
        """The reconciler with its watches; `namespace` limits which Providers are seen."""
        field = f"metadata.name={self._only.name}" if self._only else ""
        namespace = self._only.namespace if self._only else namespace
        return Controller(
            CONTROLLER,
            self,
            (
                Watch(PROVIDERS, self._map_provider, field_selector=field, namespace=namespace),
                Watch(PROVIDER_CLASSES, self._map_class),
                Watch(NAMESPACES, self._map_namespace),
                Watch(
                    self._backend.machine,
                    self._map_machine,
                    field_selector=in_use.machine_selector(self._only),
                    many=True,
                ),
            ),
            workers,
        )

    def _map_provider(self, change: Change) -> Iterable[Request]:
        if (
            change.old is not None
            and change.new is not None
            and changes.asked(change.old) == changes.asked(change.new)
        ):
            return self._map_status(change.key, change.new)
        return (Request(change.key, priority=Priority.USER),)

    def _map_status(self, key: Key, raw: Obj) -> Iterable[Request]:
        """A status as we wrote it says nothing; a restored one is put right at once.

        But not again and again: two processes that both believe to lead would never come to rest.
        """
        if not self._is_restored(key, raw):
            return ()
        memory, now = self._memories[key], self._ctx.clock.monotonic()
        last = memory.told_again
        if last is not None and now - last < COUNTS_PAUSE:
            return (Request(key, delay=last + COUNTS_PAUSE - now),)
        memory.told_again = now
        return (Request(key, priority=Priority.USER),)

    def _is_restored(self, key: Key, raw: Obj) -> bool:
        """Whether the status tells of unclaimed machines what somebody else told, or we before."""
        memory = self._memories.get(key)
        return (
            memory is not None
            and memory.told is not None
            and _read(raw).status.unclaimed != memory.told
        )

    def _map_class(self, change: Change) -> Iterable[Request]:
        for raw in self._ctx.cache.list(PROVIDERS):
            ref = (raw.get("spec") or {}).get("providerClassRef") or {}
            if ref.get("name") == change.key.name:
                yield Request(Key.of(raw))

    def _map_namespace(self, change: Change) -> Iterable[Request]:
        """Labels decide who is refused."""
        if changes.labels(change.old) == changes.labels(change.new):
            return
        for key in self._memories:
            yield Request(key, COUNTS_PAUSE, Priority.RESYNC)

    def _map_machine(self, change: Change) -> Iterable[Request]:
        """Only what counts and claims: that a machine is there, that it has an identity, its disks.

        A disk that a machine let go of may be kept, and is listed soon.
        """
        old, new = change.old, change.new
        keys = {changes.provider_of(obj) for obj in (old, new) if obj is not None}
        if changes.let_go_of_disk(old, new):
            yield from self._list_retained(keys)
        if changes.counts_alike(old, new):
            return
        gone = old if new is None else None
        lost = gone is not None and changes.is_lost(gone, self._finalizer)
        for key in keys:
            if lost and gone is not None and key in self._memories:
                self._memories[key].claims.torn_out(str(KnownMachine.of(gone).uuid))
            provider = self._ctx.cache.get(PROVIDERS, key) if key else None
            if key and provider:
                deleting = provider["metadata"].get("deletionTimestamp")
                pause = LOST_PAUSE if lost else 1.0 if deleting else COUNTS_PAUSE
                yield Request(key, pause, Priority.CHANGE if lost else Priority.RESYNC)

    def _list_retained(self, keys: Iterable[Key | None]) -> Iterable[Request]:
        for key in keys:
            memory = self._memories.get(key) if key else None
            if key and memory:
                memory.retained_wanted = True
                delay = retained.due_in(memory, self._ctx.clock.monotonic())
                yield Request(key, delay, Priority.RESYNC)


def _read(raw: Obj) -> Provider:
    """The Provider; without its status where that is damaged, for it is written anew."""
    try:
        return Provider.from_api(raw)
    except ValidationError:
        return Provider.from_api({k: v for k, v in raw.items() if k != STATUS})


def _blame(problem: Problem | None) -> DriverError | None:
    if problem is None:
        return None
    if problem.reason == Reason.PROVIDER_UNREACHABLE:
        return Unreachable(problem.message)
    kind = NeedsOperator if problem.lasting else Transient
    return kind(problem.reason, problem.message)
