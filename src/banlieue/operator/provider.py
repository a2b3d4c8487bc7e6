"""Has every Provider served by a workload of its own, and says how that stands."""

import logging
from collections.abc import Iterable
from functools import partial

from pydantic import ValidationError

from banlieue.api.events import EventReason
from banlieue.api.names import MANAGER_OPERATOR
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.operator import phases, report
from banlieue.operator.hands import Blocked
from banlieue.operator.objects import KINDS, SELECTOR
from banlieue.operator.scope import Problem, ProviderScope, Services
from banlieue.sdk.kube import STATUS, Key, NotFound, Obj
from banlieue.sdk.notices import Notices
from banlieue.sdk.outcome import Outcome, Stop, Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.reconcile import Change, Controller, Priority, Request, Result, Watch
from banlieue.sdk.status import write_status

CONTROLLER = "workload"
"""Name of the controller."""

_BLOCKED_SECONDS = 30.0
_ORPHANS_SECONDS = 5.0

_TOLD = {
    Reason.WORKLOAD_CONFLICT: EventReason.WORKLOAD_CONFLICT,
    Reason.WORKLOAD_REFUSED: EventReason.WORKLOAD_REFUSED,
    Reason.PROVIDER_IN_USE: EventReason.PROVIDER_IN_USE,
}

log = logging.getLogger(__name__)


class WorkloadReconciler:
    """One pass looks at one Provider, its class, and what was made for it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ctx = services.ctx

    async def reconcile(self, key: Key) -> Result:
        """Make, put right or take away; then say how it stands. Raises `ApiError`."""
        raw = self._ctx.cache.get(PROVIDERS, key)
        if raw is None:
            return await self._without_provider(key)
        scope = self._gather(raw)
        problem = await self._go(scope)
        if not scope.let_go:
            await self._write(scope, problem)
        self._tell(scope, problem)
        return Result(problem.after if problem else None)

    def _gather(self, raw: Obj) -> ProviderScope:
        provider, key = _read(raw), Key.of(raw)
        of_class, flaw = self._class(provider.spec.provider_class_ref.name)
        found = {(kind, Key.of(obj)): obj for kind, obj in self._services.index.of(key)}
        return ProviderScope(self._services, raw, provider, of_class, flaw, found)

    def _class(self, name: str) -> tuple[ProviderClass | None, str]:
        obj = self._ctx.cache.get(PROVIDER_CLASSES, Key("", name))
        if obj is None:
            return None, ""
        try:
            return ProviderClass.from_api(obj), ""
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            return None, f"ProviderClass {name!r} cannot be read: {where} is not valid"

    async def _go(self, scope: ProviderScope) -> Problem | None:
        try:
            steps = phases.DELETING if scope.deleting else phases.LIVING
            return _problem(await run_phases(steps, scope))
        except Blocked as error:
            return Problem(error.reason, error.message, _BLOCKED_SECONDS)

    async def _without_provider(self, key: Key) -> Result:
        """Nobody asked us before the Provider went: its finalizer was taken off by hand."""
        known = [(kind, Key.of(obj)) for kind, obj in self._services.index.of(key)]
        if not known:
            return Result()
        try:
            await self._ctx.api.get(PROVIDERS, key)
        except NotFound:
            removed = await phases.take_away(self._services, key, known)
            log.warning("took away what a Provider left behind", extra={"removed": removed})
            return Result()
        return Result(_ORPHANS_SECONDS)

    async def _write(self, scope: ProviderScope, problem: Problem | None) -> None:
        told = report.compose(scope, problem).to_api()
        foreign = [name for name in scope.raw.get(STATUS) or {} if name != "workload"]
        await write_status(
            self._ctx.api,
            PROVIDERS,
            scope.raw,
            {"workload": told},
            manager=MANAGER_OPERATOR,
            foreign=foreign,
        )

    def _tell(self, scope: ProviderScope, problem: Problem | None) -> None:
        told = (
            (EventReason.WORKLOAD_REMOVED, scope.removed),
            (EventReason.WORKLOAD_CREATED, scope.made),
            (EventReason.WORKLOAD_UPDATED, scope.changed),
        )
        for reason, what in told:
            if what:
                log.info("workload changed", extra={"reason": reason.value, "objects": what})
                self._ctx.recorder.event(scope.raw, reason, ", ".join(what))
        if problem is not None and (event := _TOLD.get(problem.reason)):
            self._ctx.recorder.event(scope.raw, event, problem.message, warning=True)

    # Wake-ups

    def controller(self, *, namespace: str = "", workers: int = 4) -> Controller:
        """The reconciler with its watches."""
        made = tuple(Watch(kind, self._map_made, label_selector=SELECTOR) for kind in KINDS)
        return Controller(
            CONTROLLER,
            self,
            (
                Watch(PROVIDERS, _map_provider, namespace=namespace),
                Watch(PROVIDER_CLASSES, self._map_class),
                *made,
            ),
            workers,
            witness=Notices(self._ctx, CONTROLLER, partial(self._ctx.cache.get, PROVIDERS)),
        )

    def _map_class(self, change: Change) -> Iterable[Request]:
        """Every Provider of the class, from the cache."""
        if change.old is not None and change.new is not None and not _differs(change):
            return
        for raw in self._ctx.cache.list(PROVIDERS):
            ref = (raw.get("spec") or {}).get("providerClassRef") or {}
            if ref.get("name") == change.key.name:
                yield Request(Key.of(raw))

    def _map_made(self, change: Change) -> Iterable[Request]:
        return [Request(key) for key in sorted(self._services.index.note(change))]


def _map_provider(change: Change) -> Iterable[Request]:
    """All but what the provider's process writes to status."""
    if change.old is not None and change.new is not None and not _differs(change):
        return ()
    return (Request(change.key, priority=Priority.USER),)


def _differs(change: Change) -> bool:
    return _asked(change.old or {}) != _asked(change.new or {})


def _asked(obj: Obj) -> tuple[object, ...]:
    meta, status = obj.get("metadata") or {}, obj.get(STATUS) or {}
    return (
        meta.get("uid"),
        meta.get("generation"),
        meta.get("deletionTimestamp"),
        meta.get("finalizers"),
        obj.get("spec"),
        status.get("workload"),
        status.get("observedGeneration"),
        status.get("machineCount") if meta.get("deletionTimestamp") else None,
    )


def _problem(outcome: Outcome) -> Problem | None:
    if isinstance(outcome, Wait):
        return Problem(outcome.reason, outcome.message, outcome.after)
    if isinstance(outcome, Stop):
        return Problem(outcome.reason, outcome.message)
    return None


def _read(raw: Obj) -> Provider:
    """The Provider; without its status where that cannot be read."""
    try:
        return Provider.from_api(raw)
    except ValidationError:
        return Provider.from_api({name: value for name, value in raw.items() if name != STATUS})
