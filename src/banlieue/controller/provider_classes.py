"""Says on a Provider that its ProviderClass does not exist, where no process serves it yet.

Without a class nothing is started for a Provider, so nobody else would tell. A process that serves
it says all there is to say, this too, and what it says is left alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.meta import Condition
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.conditions import false, merge
from banlieue.sdk.kube import STATUS, Key, Obj, ObjectReader
from banlieue.sdk.reconcile import Change, Context, Priority, Request, Result

CONTROLLER = "provider-classes"
"""Name of the controller in queues, logs and metrics."""

DELAY = 2.0
"""Seconds for what is applied together, a Provider and its class, to arrive together."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ProviderClassReconciler:
    """Keeps Ready of a Provider that nobody serves on whether its class is there."""

    ctx: Context

    async def reconcile(self, key: Key) -> Result:
        """Look at one Provider once."""
        raw = self.ctx.cache.get(PROVIDERS, key)
        if raw is None or raw["metadata"].get("deletionTimestamp") or _is_served(raw):
            return Result()
        if not self.ctx.cache.synced(PROVIDER_CLASSES):
            return Result(DELAY)
        provider = Provider.from_api(raw)
        name = provider.spec.provider_class_ref.name
        if self.ctx.cache.get(PROVIDER_CLASSES, Key("", name)) is None:
            await self._tell(raw, provider)
        elif _told(provider) is not None:
            await self._apply(raw, [])  # what nobody else says goes with that
        return Result()

    async def _tell(self, raw: Obj, provider: Provider) -> None:
        finding = false(ConditionType.READY, Reason.PROVIDER_CLASS_NOT_FOUND, self._why(provider))
        before = provider.status.conditions
        (ready,) = merge(
            before,
            [finding],
            generation=provider.metadata.generation,
            now=self.ctx.clock.now(),
        )
        if ready not in before:
            await self._apply(raw, [ready])

    def _why(self, provider: Provider) -> str:
        name = provider.spec.provider_class_ref.name
        there = sorted(obj["metadata"]["name"] for obj in self.ctx.cache.list(PROVIDER_CLASSES))
        more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
        known = f"; there are {', '.join(there[:_SHOWN])}{more}" if there else "; there is none"
        return (
            f"ProviderClass {name!r} of spec.providerClassRef does not exist: correct the name or "
            f"create it{known}"
        )

    async def _apply(self, raw: Obj, conditions: Iterable[Condition]) -> None:
        """Apply what we say of the Provider, all of it, to the version that was read."""
        meta = raw["metadata"]
        told = [condition.to_api() for condition in conditions]
        body = {
            "apiVersion": PROVIDERS.api_version,
            "kind": PROVIDERS.kind,
            "metadata": {name: meta[name] for name in ("namespace", "name", "resourceVersion")},
            "status": {"conditions": told} if told else {},
        }
        await self.ctx.api.apply(
            PROVIDERS, body, manager=names.MANAGER_CONTROLLER, subresource=STATUS
        )


def _is_served(raw: Obj) -> bool:
    """Whether a process ever served it: each says of the endpoint what it knows, if nothing."""
    told = (raw.get("status") or {}).get("conditions") or ()
    return any(it.get("type") == ConditionType.PROVIDER_REACHABLE for it in told)


def _told(provider: Provider) -> Condition | None:
    """What we said ourselves, to be taken back; nobody else says that without an endpoint."""
    for it in provider.status.conditions:
        if (it.type, it.reason) == (ConditionType.READY, Reason.PROVIDER_CLASS_NOT_FOUND):
            return it
    return None


def of_provider(change: Change) -> Iterable[Request]:
    """A Provider that nobody serves came or was edited."""
    if change.new is not None and not _is_served(change.new):
        yield Request(change.key, delay=DELAY, priority=Priority.RESYNC)


def of_class(cache: ObjectReader, change: Change) -> Iterable[Request]:
    """A ProviderClass came or went."""
    if change.old is not None and change.new is not None:
        return
    for obj in cache.list(PROVIDERS):
        ref = (obj.get("spec") or {}).get("providerClassRef") or {}
        if ref.get("name") == change.key.name:
            yield Request(Key.of(obj), delay=DELAY, priority=Priority.RESYNC)
