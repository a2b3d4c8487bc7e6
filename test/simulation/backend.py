"""A simulated hypervisor in the simulator: under virtual time, watched by the oracle."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from random import Random
from typing import Any

from banlieue.sdk.simulated.faults import ConnectionLost, NotConnected, WorldFault
from banlieue.sdk.simulated.records import State
from banlieue.sdk.simulated.world import Json, Params, World
from test.simulation import fibers
from test.simulation.loop import VirtualClock, VirtualLoop, die_before_the_answer

_AT_ONCE = frozenset({"login", "logout", "changes"})
_READS = frozenset({"login", "logout", "changes", "about", "domains", "image", "find", "task"})
_NO_CHANGE = _READS | {"creating", "kept", "ping"}


@dataclass(slots=True)
class Repeat:
    """Calls that are carried out twice, as a client library sends one again.

    Attributes:
        method: pattern of the calls; what only reads is never meant.
        answer: which answer arrives: of the `first`, of the `second`, or `none`.
        after: seconds until the second copy arrives when the first was answered.
        count: how many calls are left.
    """

    method: str
    answer: str
    after: float = 0.0
    count: int = 1


class SimWorld(World):
    """A world that calls nobody and tells the oracle whenever it moved."""

    def __init__(
        self,
        name: str,
        state: State,
        loop: VirtualLoop,
        *,
        rng: Random,
        log: Callable[[str], None],
    ) -> None:
        super().__init__(state, clock=VirtualClock(loop), rng=rng, sleep=None)
        self.name = name
        self.down = False
        self.deadly = ""
        self.repeat: Repeat | None = None
        self.by_admins: set[str] = set()
        self.on_call: Callable[[SimWorld, str, Params], None] = lambda *_: None
        self.on_move: Callable[[SimWorld], None] = lambda _: None
        self._loop = loop
        self._log_line = log
        self._seen = self._log.number
        self._listeners: list[asyncio.Future[None]] = []
        self._tick_at: float | None = None

    def call(
        self, method: str, params: Params, *, session: str = "", timeout: float = 60.0
    ) -> Json:
        """A call of a driver."""
        if method not in _AT_ONCE:
            fibers.pause()
        if self.down:
            raise NotConnected
        self.on_call(self, method, params)
        what = f"{self.name} <- {method} {params.get('name') or params.get('vm') or ''}"
        try:
            answer = super().call(method, params, session=session, timeout=timeout)
            if self.repeat is not None and self._repeats(method):
                again = partial(super().call, method, params, session=session, timeout=timeout)
                answer = self._again(what, again, answer)
        except (WorldFault, ConnectionLost) as error:
            self._log_line(f"{what}: {error!r}")
            raise
        finally:
            self._moved_on()
        if self.deadly and fnmatch(method, self.deadly):
            self.deadly = ""
            die_before_the_answer()
        if method not in _READS:
            self._log_line(what)
        return answer

    def _repeats(self, method: str) -> bool:
        """Whether this call is carried out twice."""
        repeat = self.repeat
        if repeat is None or method in _NO_CHANGE or not fnmatch(method, repeat.method):
            return False
        repeat.count -= 1
        return True

    def _again(self, what: str, call: Callable[[], Json], answer: Json) -> Json:
        """Carry a call out once more; the answer is what arrives of both."""
        repeat = self.repeat
        assert repeat is not None
        if repeat.count <= 0:
            self.repeat = None
        self._log_line(f"{what}: sent twice")
        self._moved_on()
        if repeat.answer == "second":
            return call()
        if repeat.answer == "first" and repeat.after:
            self._loop.call_later(repeat.after, self._arrive, what, call, context=Context())
            return answer
        with suppress(WorldFault):
            call()
        if repeat.answer == "none":
            raise ConnectionLost
        return answer

    def _arrive(self, what: str, call: Callable[[], Json]) -> None:
        """The second copy of a call that was answered already; nobody hears of it."""
        if self.down:
            return
        with suppress(WorldFault, ConnectionLost):
            call()
            self._log_line(f"{what}: done once more")
        self._moved_on()

    def act(self, method: str, **params: Any) -> Json:  # noqa: ANN401 - JSON
        """Something happens behind the account's back."""
        self._log_line(f"{self.name} !! {method} {params}")
        answer = self.control(method, params)
        if method in {"copy", "make_foreign"}:
            self.by_admins.add(answer["id"])
        self._moved_on()
        return answer

    async def moves(self, within: float = 10.0) -> None:
        """Wait until something moved."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._listeners.append(future)
        call = self._loop.call_later(within, _set, future)
        try:
            await future
        finally:
            call.cancel()

    def tick(self) -> None:
        """Catch up with the clock."""
        self._tick_at = None
        self.control("calls", {})
        self._moved_on()

    def _moved_on(self) -> None:
        if self._log.number != self._seen:
            self._seen = self._log.number
            self.on_move(self)
            listeners, self._listeners = self._listeners, []
            for future in listeners:
                _set(future)
        due = self.next_due()
        if due is not None and (self._tick_at is None or due < self._tick_at):
            self._tick_at = due
            self._loop.call_at(due, self.tick, context=Context())


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
