"""Says on each ProviderClass how many Providers use it, and whether its machines can be made."""

from collections.abc import Iterable

from pydantic import ValidationError

from banlieue.api.conditions import ConditionType
from banlieue.api.meta import Resource
from banlieue.api.names import MANAGER_OPERATOR
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.providerclass import ProviderClass, ProviderClassStatus
from banlieue.sdk.conditions import Finding, false, merge, true, unknown
from banlieue.sdk.kube import Forbidden, Key, NotFound, Obj
from banlieue.sdk.mishaps import Mishaps
from banlieue.sdk.reconcile import Change, Context, Controller, Request, Result, Watch
from banlieue.sdk.status import write_status

CONTROLLER = "class-status"
"""Name of the controller."""

_ABSENT_SECONDS = 60.0
_NOBODY = "metadata.name=none"
"""Selects nothing: only whether the kind is served is asked."""


class ClassStatusReconciler:
    """One pass looks at one class."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._served: set[Resource] = set()

    async def reconcile(self, key: Key) -> Result:
        """Count and ask, then say it. Raises `ApiError`."""
        raw = self._ctx.cache.get(PROVIDER_CLASSES, key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return Result()
        try:
            of_class = ProviderClass.from_api(raw)
        except ValidationError:
            return Result()  # each Provider of the class says so
        ready = await self._ready(of_class.spec.machine.to_resource())
        generation = of_class.metadata.generation
        status = ProviderClassStatus(
            provider_count=sum(_class_of(it) == key.name for it in self._ctx.cache.list(PROVIDERS)),
            observed_generation=generation,
            conditions=merge(
                of_class.status.conditions,
                [ready],
                generation=generation,
                now=self._ctx.clock.now(),
            ),
        )
        await write_status(
            self._ctx.api, PROVIDER_CLASSES, raw, status.to_api(), manager=MANAGER_OPERATOR
        )
        return Result(None if ready.reason == Reason.READY else _ABSENT_SECONDS)

    async def _ready(self, kind: Resource) -> Finding:
        if kind in self._served:
            return true(ConditionType.READY, Reason.READY)
        try:
            await self._ctx.api.list(kind, field_selector=_NOBODY)
        except NotFound:
            return false(
                ConditionType.READY,
                Reason.KIND_NOT_INSTALLED,
                f"{kind.crd_name} is not installed; apply the CustomResourceDefinitions of the "
                "backend",
            )
        except Forbidden:
            return unknown(ConditionType.READY, Reason.NOT_OBSERVED)
        self._served.add(kind)
        return true(ConditionType.READY, Reason.READY)

    def controller(self) -> Controller:
        """The reconciler with its watches."""
        watches = (Watch(PROVIDER_CLASSES, _map_class), Watch(PROVIDERS, _map_provider))
        witness = Mishaps.of_kind(self._ctx, CONTROLLER, PROVIDER_CLASSES, MANAGER_OPERATOR)
        return Controller(CONTROLLER, self, watches, workers=1, witness=witness)


def _class_of(provider: Obj) -> str:
    ref = (provider.get("spec") or {}).get("providerClassRef") or {}
    return str(ref.get("name") or "")


def _map_class(change: Change) -> Iterable[Request]:
    return (Request(change.key),) if change.new is not None else ()


def _map_provider(change: Change) -> Iterable[Request]:
    """The classes whose count moves."""
    before, after = (_class_of(it) if it else "" for it in (change.old, change.new))
    if before == after:
        return ()
    return [Request(Key("", name)) for name in (before, after) if name]
