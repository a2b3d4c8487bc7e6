"""Runs the phases of a reconciler: in order, until one has to wait."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from banlieue.sdk.outcome import CONTINUE, Continue, Outcome

S = TypeVar("S")
Phase = Callable[[S], Awaitable[Outcome]]


async def run_phases(phases: Iterable[Phase[S]], scope: S) -> Outcome:
    """The first answer that is not `Continue`, or `Continue` when all phases went through."""
    for phase in phases:
        outcome = await phase(scope)
        if not isinstance(outcome, Continue):
            return outcome
    return CONTINUE
