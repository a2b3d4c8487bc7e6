"""The cluster that is installed into, as this package needs it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.bootstrap.objects import key_of, resource_of
from banlieue.sdk.kube import ApiClient, Obj, Unavailable
from banlieue.sdk.kube import NotFound as NotFound  # noqa: PLC0414 - told by this module's calls
from banlieue.sdk.reconcile import Clock

T = TypeVar("T")
Say = Callable[[str], None]

MANAGER = f"{names.GROUP}/bootstrap"
"""Field manager of everything this package applies."""

MANAGER_IN_USE = f"{names.GROUP}/bootstrap-in-use"
"""Field manager of the label that marks a static provider's namespace: an upgrade of the rest knows
nothing of the label and must not take it off."""

_PAUSE = 1.0


class BootstrapError(Exception):
    """It cannot go on; the message says what to do about it."""


class Cluster(ApiClient, Protocol):
    """What the runtime's client can do."""

    async def offer(
        self,
        resource: Resource,
        obj: Obj,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Server-side apply; raises `Conflict` over another manager's field unless forced."""

    async def server_version(self) -> tuple[int, int]:
        """Major and minor version of the API server."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What every step needs.

    Attributes:
        cluster: where to.
        clock: for waiting.
        say: takes one line for people.
        deadline: monotonic time at which waiting ends.
    """

    cluster: Cluster
    clock: Clock
    say: Say
    deadline: float

    @property
    def seconds_left(self) -> float:
        """How long may still be waited."""
        return max(0.0, self.deadline - self.clock.monotonic())

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call again while the API server gives no answer, as long as there is time."""
        told = False
        while True:
            try:
                return await call()
            except Unavailable as error:
                pause = error.retry_after or _PAUSE
                if pause >= self.seconds_left:
                    raise
                if not told:
                    self.say(f"the API server does not answer ({error.message}); trying again")
                told = True
                await self.clock.sleep(pause)

    async def find(self, obj: Obj) -> Obj | None:
        """An object as it is in the cluster; None when it, or its kind, is not there."""
        try:
            return await self.patiently(lambda: self.cluster.get(resource_of(obj), key_of(obj)))
        except NotFound:
            return None

    async def until(self, done: Callable[[], Awaitable[bool]]) -> bool:
        """Ask every second until it is so; False when the time is over."""
        while not await done():
            if self.seconds_left <= 0:
                return False
            await self.clock.sleep(min(_PAUSE, self.seconds_left))
        return True
