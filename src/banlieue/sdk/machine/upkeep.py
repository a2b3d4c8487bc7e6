"""Tags and groups of a VM that is there: never what a machine waits for, and told when they lack.

What was brought into force is remembered, so that a machine at rest costs no call.
"""

from dataclasses import replace
from typing import Any

from banlieue.api.infrastructure.machine import MoveRole
from banlieue.api.reasons import Reason
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import DriverError, Unreachable
from banlieue.sdk.machine import permission, plan, tags
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome
from banlieue.sdk.phases import run_phases
from banlieue.sdk.upkeep import GROUP, TAGS, Kept, Shortfall, Upkeep, Upkeeper, Wanted

FIRST_PAUSE, LONGEST_PAUSE = 15.0, 900.0
"""Seconds until what lacks is tried again, and how far the pause grows."""


async def keep_up(scope: Scope) -> Outcome:
    """Have the VM's tags and group been brought into force?"""
    kept, wanted = scope.memory.kept, _wanted(scope)
    if wanted is None or (kept.wanted == wanted and kept.last.settled):
        return CONTINUE
    if not kept.able or not _is_asked(scope, kept, wanted):
        return CONTINUE
    now = scope.ctx.clock.monotonic()
    if kept.wanted == wanted and now < kept.due:
        _again(scope, kept.due - now)
        return CONTINUE
    place = scope.open.domain(scope.domain_name)
    if (
        place is None
        or await run_phases((permission.permitted, permission.may_change), scope) is not CONTINUE
    ):
        return CONTINUE
    if kept.wanted != wanted:
        kept.wanted, kept.failures, kept.last = wanted, 0, Upkeep(poll_after=0.0)
    await _step(scope, kept)
    return CONTINUE


def _is_asked(scope: Scope, kept: Kept, wanted: Wanted) -> bool:
    """Whether there is anything to bring about, or may be something to undo."""
    place = scope.open.domain(scope.domain_name)
    bound = place is not None and place.bound
    edited = scope.edited and scope.machine.status.observed_generation is not None
    edited = edited or tags.follow_labels(scope)
    return bool(wanted[1] or wanted[2]) or bound or kept.wanted is not None or edited


async def _step(scope: Scope, kept: Kept) -> None:
    seen, place = scope.seen, scope.open.domain(scope.domain_name)
    if seen is None or place is None:
        return
    try:
        # Classes are not looked up: one that is not offered any more says nothing about tags.
        made = replace(plan.power_plan(scope, seen), failure_domain=place, tags=tags.allowed(scope))

        def keep(driver: Driver[Any]) -> Upkeep | None:
            return driver.keep_up(made, seen) if isinstance(driver, Upkeeper) else None

        told = await scope.open.call(keep)
    except Unreachable:
        raise
    except DriverError as error:
        told = Upkeep(FIRST_PAUSE, tuple(_lacking(scope, error)))
    if told is None:
        kept.able, kept.last = False, Upkeep()
        scope.unsupported = (*scope.unsupported, *tags.unhonoured(scope))
        return
    refused = _refused(scope)
    if refused is not None:
        told = replace(told, shortfalls=(*told.shortfalls, refused))
    kept.last = _with_earlier(told, kept.last)
    if told.settled:
        kept.failures = 0
        return
    pause = told.poll_after or FIRST_PAUSE
    if told.shortfalls:
        kept.failures += 1
        pause = max(pause, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(kept.failures - 1, 9)))
        pause *= scope.ctx.rng.uniform(0.9, 1.1)
    kept.due = scope.ctx.clock.monotonic() + pause
    _again(scope, pause)


def _with_earlier(told: Upkeep, before: Upkeep) -> Upkeep:
    """While another attempt at a field is under way, what the last one told of it is still so."""
    if told.poll_after is None:
        return told
    open_yet = told.pending - {it.field for it in told.shortfalls}
    earlier = tuple(it for it in before.shortfalls if it.field in open_yet)
    return replace(told, shortfalls=(*told.shortfalls, *earlier))


def _refused(scope: Scope) -> Shortfall | None:
    others = tags.refused(scope)
    if not others:
        return None
    return Shortfall(
        TAGS,
        Reason.VALUE_NOT_ALLOWED,
        f"the Provider does not allow this namespace these tags: {', '.join(others)}; leave them "
        "out, or ask its admin for tagMapping",
    )


def _lacking(scope: Scope, error: DriverError) -> list[Shortfall]:
    asked = {TAGS: tags.asked(scope), GROUP: scope.machine.spec.anti_affinity_group}
    fields = [name for name, value in asked.items() if value] or [TAGS]
    return [Shortfall(name, error.reason, error.message) for name in fields]


def _wanted(scope: Scope) -> Wanted | None:
    """What is asked for now, None for a VM that is to be left as it is."""
    spec, seen = scope.machine.spec, scope.seen
    if seen is None or spec.role is MoveRole.PREVIOUS:
        return None
    if spec.adopt is not None and not spec.adopt.accepted:
        return None
    return seen.backend_id, tuple(sorted(tags.asked(scope).items())), spec.anti_affinity_group


def _again(scope: Scope, after: float) -> None:
    earlier = scope.again_after
    scope.again_after = after if earlier is None else min(earlier, after)


def shortfalls(scope: Scope) -> tuple[Shortfall, ...]:
    """What is not in force, as last told."""
    kept = scope.memory.kept.last.shortfalls if _wanted(scope) is not None else ()
    return (*scope.shortfalls, *kept)
