"""Says on an object that passes over it fail by a fault of ours, which else only the log knows.

A failure that a driver or the API foresees has a reason and a place in the status. What nobody
foresaw ends a pass before its status is written: condition `Reconciling` with reason
`InternalError` then tells the type of the error, and nothing of its text, which may hold anything.
All else that the status says stays as it was, and the next pass that succeeds takes it back.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from banlieue.api.conditions import ConditionType
from banlieue.api.meta import Condition, ConditionStatus, Resource
from banlieue.api.reasons import Reason
from banlieue.sdk.conditions import Finding, merge, true, unknown
from banlieue.sdk.kube import STATUS, ApiError, Key, Obj
from banlieue.sdk.reconcile import Context

PATIENCE = 2
"""Failures in a row before one is told: what passes by itself is no news."""

PATIENCE_WITH_API = 5
"""The same for what the API server refused: often only an object in between has changed."""

_BURST = 50
_PER_SECOND = 5.0
"""What is told at once, and then: a fault that befalls everything must not drown the API server."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Allowance:
    """So many writes at once and so many per second."""

    left: float = _BURST
    at: float | None = None

    def take(self, now: float) -> bool:
        passed = now - self.at if self.at is not None else 0.0
        self.at, self.left = now, min(_BURST, self.left + passed * _PER_SECOND)
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


@dataclass(frozen=True, slots=True)
class Subject:
    """The object passes over a key are about, and the field manager its status is written as."""

    resource: Resource
    obj: Obj
    manager: str


Find = Callable[[Key], Subject | None]
"""From a queue key to what is known of its object; None where nothing may be written now."""


@dataclass(frozen=True, slots=True)
class Mishaps:
    """Implements `banlieue.sdk.reconcile.Witness` for the controller of that name."""

    ctx: Context
    controller: str
    find: Find
    _failures: dict[Key, int] = field(default_factory=dict)
    _told: dict[Key, str] = field(default_factory=dict)
    _allowance: _Allowance = field(default_factory=_Allowance)

    @classmethod
    def of_kind(cls, ctx: Context, controller: str, kind: Resource, manager: str) -> "Mishaps":
        """For a controller whose keys are those of objects of one kind."""

        def find(key: Key) -> Subject | None:
            obj = ctx.cache.get(kind, key)
            return Subject(kind, obj, manager) if obj is not None else None

        return cls(ctx, controller, find)

    async def failed(self, key: Key, error: Exception) -> None:
        """A pass raised what nobody foresaw: say so once, until it is another error or none.

        Where too many fail at once some are told later, as they fail again.
        """
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        what = type(error).__name__
        patience = PATIENCE_WITH_API if isinstance(error, ApiError) else PATIENCE
        news = failures >= patience and self._told.get(key) != what
        if news and self._allowance.take(self.ctx.clock.monotonic()):
            await self._guarded(self._tell, key, what)

    async def passed(self, key: Key) -> None:
        """A pass went through: take back what was told, where its status write has not."""
        if self._failures.pop(key, None) and self._told.pop(key, None):
            await self._guarded(self._take_back, key, "")

    async def _guarded(self, write: Callable[[Key, str], Any], key: Key, what: str) -> None:
        try:
            await write(key, what)
        except ApiError as e:
            log.debug("condition not written", extra={"error": str(e)})
        # What tells of failures must not become one: the pass is tried again either way.
        except Exception:
            log.exception("a failure could not be told")

    async def _tell(self, key: Key, what: str) -> None:
        subject = self._find(key)
        if subject is None:
            return
        before = _conditions(subject.obj)
        known = {it.get("type") for it in before if not self._is_ours(it)}
        message = f"{self._beginning} with {what} and tries again; its log tells where, report it"
        found = [true(ConditionType.RECONCILING, Reason.INTERNAL_ERROR, message)]
        if ConditionType.READY not in known:
            found.append(unknown(ConditionType.READY, Reason.INTERNAL_ERROR, message))
        # A tool that follows kstatus gives up where Stalled is told, and must not find both.
        replaced = {ConditionType.STALLED, *(it.type for it in found)}
        others = [it for it in before if it.get("type") not in replaced]
        told = [it.to_api() for it in self._merged(subject.obj, found, before)]
        await self._write(subject, sorted([*others, *told], key=_type))
        self._told[key] = what

    async def _take_back(self, key: Key, _what: str) -> None:
        subject = self._find(key)
        if subject is not None:
            before = _conditions(subject.obj)
            await self._write(subject, [it for it in before if not self._is_ours(it)])

    @property
    def _beginning(self) -> str:
        return f"controller {self.controller} fails at this object"

    def _is_ours(self, condition: dict[str, Any]) -> bool:
        """Whether we told it, and not another controller whose word is mirrored here."""
        return (
            condition.get("type") in {ConditionType.RECONCILING, ConditionType.READY}
            and condition.get("reason") == Reason.INTERNAL_ERROR
            and str(condition.get("message")).startswith(self._beginning)
        )

    def _find(self, key: Key) -> Subject | None:
        """The object, unless hands off were asked for: then nothing but that is said."""
        subject = self.find(key)
        if subject is None:
            return None
        paused = any(
            (it.get("type"), it.get("status")) == (ConditionType.PAUSED, ConditionStatus.TRUE)
            for it in _conditions(subject.obj)
        )
        return None if paused else subject

    def _merged(
        self, obj: Obj, found: list[Finding], before: list[dict[str, Any]]
    ) -> list[Condition]:
        ours = {it.type for it in found}
        return merge(
            [Condition.from_api(it) for it in before if it.get("type") in ours],
            found,
            generation=obj["metadata"].get("generation"),
            now=self.ctx.clock.now(),
        )

    async def _write(self, subject: Subject, conditions: list[dict[str, Any]]) -> None:
        """Replace the conditions of the very version that was read, if they differ at all."""
        obj = subject.obj
        if conditions == _conditions(obj):
            return
        change: dict[str, Any] = {"op": "add", "path": "/status/conditions", "value": conditions}
        if not obj.get(STATUS):
            change.update(path="/status", value={"conditions": conditions})
        version = obj["metadata"]["resourceVersion"]
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        await self.ctx.api.json_patch(
            subject.resource,
            Key.of(obj),
            [test, change],
            manager=subject.manager,
            subresource=STATUS,
        )


def _conditions(obj: Obj) -> list[dict[str, Any]]:
    return list((obj.get(STATUS) or {}).get("conditions") or ())


def _type(condition: dict[str, Any]) -> str:
    return str(condition.get("type"))
