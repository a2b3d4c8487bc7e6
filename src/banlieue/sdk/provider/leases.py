"""One Lease per Provider: whoever holds it serves the Provider, everybody else keeps off."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from banlieue.sdk.kube import Key

log = logging.getLogger(__name__)

OnChange = Callable[[], Awaitable[None]]


class Candidate(Protocol):
    """Competes for one Lease while `run` runs."""

    holder: str
    """Who holds it, as last seen; empty when nobody does."""

    identity: str
    """Who we are."""

    @property
    def held(self) -> bool:
        """Whether the Lease is ours right now."""

    async def run(self) -> None:
        """Acquire and renew until cancelled."""

    async def release(self) -> None:
        """Let others have it at once."""


class MakeCandidate(Protocol):
    """Makes the candidate for a Lease; `on_change` is awaited whenever it was won or lost."""

    def __call__(self, lease: Key, on_change: OnChange) -> Candidate:
        """A candidate that does not run yet."""


@dataclass(slots=True)
class _Race:
    lease: Key
    candidate: Candidate
    task: asyncio.Task[None]


class ProviderLeases:
    """The Leases of all Providers this process serves or wants to serve."""

    def __init__(self, make: MakeCandidate, changed: Callable[[Key], None]) -> None:
        """`changed` gets the Provider's key whenever its Lease was won or lost."""
        self._make = make
        self._changed = changed
        self._races: dict[Key, _Race] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def compete(self, provider: Key, lease: Key) -> None:
        """Compete for the Provider's Lease from now on; another Lease replaces the former."""
        race = self._races.get(provider)
        if race is not None and race.lease == lease:
            return
        self.leave(provider)

        async def on_change() -> None:
            self._changed(provider)

        candidate = self._make(lease, on_change)
        task = asyncio.get_running_loop().create_task(candidate.run(), name=f"lease {lease}")
        self._races[provider] = _Race(lease, candidate, task)
        task.add_done_callback(lambda ended: self._ended(provider, ended))

    def held(self, provider: Key) -> bool:
        """Whether this process may serve the Provider at this moment."""
        race = self._races.get(provider)
        return race is not None and race.candidate.held

    def rival(self, provider: Key) -> str:
        """Who else holds the Lease, as last seen; empty when nobody else is known to."""
        race = self._races.get(provider)
        if race is None or race.candidate.holder == race.candidate.identity:
            return ""
        return race.candidate.holder

    def check(self) -> str:
        """Which Providers are not served here, for readiness; empty when all are."""
        return "; ".join(
            f"{key} is served by {rival}" if rival else f"the Lease of {key} is not held yet"
            for key, race in sorted(self._races.items())
            if (rival := self.rival(key)) or not race.candidate.held
        )

    def leave(self, provider: Key) -> None:
        """Stop competing, and hand the Lease over if it is ours."""
        race = self._races.pop(provider, None)
        if race is not None:
            task = asyncio.get_running_loop().create_task(_leave(race))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def _ended(self, provider: Key, task: asyncio.Task[None]) -> None:
        """A race ends by `leave` only; one that failed is begun anew by the next pass."""
        race = self._races.get(provider)
        if race is not None and race.task is task and not task.cancelled():
            del self._races[provider]
            log.error("competing for a lease failed", exc_info=task.exception())
            self._changed(provider)

    async def close(self) -> None:
        """Leave all, and wait until they are handed over; after the last call to a backend."""
        for provider in tuple(self._races):
            self.leave(provider)
        while self._leaving:
            await asyncio.wait(self._leaving)


async def _leave(race: _Race) -> None:
    race.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await race.task
    await race.candidate.release()
