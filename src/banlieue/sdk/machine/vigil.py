"""Sees within seconds that a Secret a machine waits for is there, or may be read.

Nothing tells a provider of either: it may watch no Secrets and no Roles. So between the passes over
a machine that waits, the Secret alone is asked for, which costs the API server next to nothing and
the backend nothing; and all machines of a process together ask twice a second at the most.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from banlieue.api.reasons import Reason
from banlieue.api.resources import SECRETS
from banlieue.sdk.errors import DriverError
from banlieue.sdk.kube import ApiError, Forbidden, Key, NotFound, Obj
from banlieue.sdk.outcome import Outcome, Wait
from banlieue.sdk.reconcile import Context, Priority, Request

log = logging.getLogger(__name__)

REFUSED: Final = "refused"
ABSENT: Final = "absent"

_WAITED_FOR: Final = frozenset(
    {
        Reason.USER_DATA_NOT_GRANTED,
        Reason.USER_DATA_NOT_FOUND,
        Reason.USER_DATA_INVALID,
        Reason.USER_DATA_TOO_LARGE,
    }
)

_PAUSE: Final = (3.0, 4.5)
_PAUSE_OF_CONTENT: Final = (20.0, 30.0)
"""Seconds between two looks at a Secret whose content is wrong: each brings all of it."""

_EARLY: Final = 0.05
"""Timers may be that much too early."""

_PER_SECOND: Final = 2.0
"""How often all machines of a process ask at the most."""


@dataclass(slots=True)
class _Waiter:
    """`answers` by name of the Secret; `next_look` and `next_pass` in monotonic seconds."""

    answers: dict[str, str]
    unchanged: tuple[Any, ...]
    next_look: float
    next_pass: float | None


@dataclass(slots=True)
class Vigil:
    """The machines of a process that wait for a Secret, and how each was answered last.

    Args:
        controller: name of the controller that passes over them.
    """

    controller: str
    _waiters: dict[Key, _Waiter] = field(default_factory=dict)

    def begin(
        self, ctx: Context, raw: Obj, answers: Mapping[str, str], ended: tuple[Outcome, object]
    ) -> float | None:
        """Note that a pass over a machine ended, and say when to come back to it.

        Args:
            ctx: clock and randomness.
            raw: the machine object.
            answers: what each of its Secrets was in this pass: `REFUSED`, `ABSENT`, or a version.
            ended: the outcome of the pass, and the error it ended with.

        Returns:
            Seconds until the next look or pass; None for neither.
        """
        outcome, error = ended
        after = outcome.after if isinstance(outcome, Wait) else None
        waits = isinstance(error, DriverError) and error.reason in _WAITED_FOR
        if not waits or not answers:
            return after
        now, key = ctx.clock.monotonic(), Key.of(raw)
        waiter = _Waiter(
            dict(answers), _unchanged(raw), now, None if after is None else now + after
        )
        self._waiters[key] = waiter
        return self._later(ctx, waiter)

    def forget(self, key: Key) -> None:
        """A machine waits no more, or is looked at as a whole."""
        self._waiters.pop(key, None)

    async def still_waiting(self, ctx: Context, key: Key, raw: Obj) -> float | None:
        """Whether a machine is as it was and so are its Secrets, so that no pass is due.

        Returns:
            Seconds until the next look; None when a pass is due.
        """
        waiter, now = self._waiters.get(key), ctx.clock.monotonic()
        if waiter is None:
            return None
        due = waiter.next_pass is not None and now >= waiter.next_pass
        # Whoever asks sooner than agreed has heard of something.
        if due or now < waiter.next_look - _EARLY or waiter.unchanged != _unchanged(raw):
            return None
        for name, before in waiter.answers.items():
            if await _answer(ctx, Key(key.namespace, name), before) != before:
                self._tell_neighbours(ctx, key)
                return None
        return self._later(ctx, waiter)

    def _tell_neighbours(self, ctx: Context, key: Key) -> None:
        """What one was granted may have been granted to all of its namespace."""
        for other in self._waiters:
            if other != key and other.namespace == key.namespace:
                ctx.enqueue(self.controller, Request(other, priority=Priority.CHANGE))

    def _later(self, ctx: Context, waiter: _Waiter) -> float:
        quick = not {REFUSED, ABSENT}.isdisjoint(waiter.answers.values())
        pause = ctx.rng.uniform(*(_PAUSE if quick else _PAUSE_OF_CONTENT))
        now = ctx.clock.monotonic()
        later = max(pause, len(self._waiters) / _PER_SECOND * ctx.rng.uniform(0.8, 1.2))
        if waiter.next_pass is not None:
            later = max(0.0, min(later, waiter.next_pass - now))
        waiter.next_look = now + later
        return later


async def _answer(ctx: Context, key: Key, before: str) -> str:
    try:
        found = await ctx.api.get(SECRETS, key)
    except Forbidden:
        return REFUSED
    except NotFound:
        return ABSENT
    except ApiError as error:
        log.debug("secret not asked for", extra={"secret": str(key), "error": str(error)})
        return before
    return version_of(found)


def version_of(secret: Obj) -> str:
    """What changes with a Secret's content."""
    return str(secret["metadata"].get("resourceVersion", ""))


def _unchanged(raw: Obj) -> tuple[Any, ...]:
    """What of a machine no write of its status changes."""
    meta = raw["metadata"]
    spec = meta.get("generation") or raw.get("spec")
    parts = ("uid", "annotations", "labels", "deletionTimestamp", "finalizers", "ownerReferences")
    return (spec, *(meta.get(part) for part in parts))
