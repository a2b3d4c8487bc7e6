"""Tells by an event that passes over an object fail, where the status of it is not ours to write.

As `banlieue.sdk.mishaps`, for controllers that write no conditions: those of the object are another
process's, or it has none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from banlieue.api.events import EventReason
from banlieue.sdk.kube import ApiError, Key, Obj
from banlieue.sdk.mishaps import PATIENCE, PATIENCE_WITH_API
from banlieue.sdk.reconcile import Context


@dataclass(frozen=True, slots=True)
class Notices:
    """Implements `banlieue.sdk.reconcile.Witness` for the controller of that name.

    Args:
        ctx: what the controller works with.
        controller: its name.
        find: from a queue key to the object people look at; None where there is none.
    """

    ctx: Context
    controller: str
    find: Callable[[Key], Obj | None]
    _failures: dict[Key, int] = field(default_factory=dict)
    _told: dict[Key, str] = field(default_factory=dict)

    async def failed(self, key: Key, error: Exception) -> None:
        """A pass raised what nobody foresaw: say so once, until it is another error or none."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        what = type(error).__name__
        patience = PATIENCE_WITH_API if isinstance(error, ApiError) else PATIENCE
        if failures < patience or self._told.get(key) == what:
            return
        obj = self.find(key)
        if obj is not None:
            self._told[key] = what
            # The text of the error may hold anything.
            message = (
                f"controller {self.controller} failed at this object with {what} and tries again; "
                "its log tells where, report it"
            )
            self.ctx.recorder.event(obj, EventReason.INTERNAL_ERROR, message, warning=True)

    async def passed(self, key: Key) -> None:
        """A pass went through: the next failure is news again."""
        self._failures.pop(key, None)
        self._told.pop(key, None)
