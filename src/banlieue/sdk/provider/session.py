"""The open session of one Provider: calls with limits, change feed, login gate, breaker.

`ProviderSession` is what machine reconcilers get from `ProviderSessions.open`. They use `call`,
`provider`, `identity`, `is_backend`, `writable`, `domain`, `domain_name`; the rest is the Provider
reconciler's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Provider, ProviderMode
from banlieue.sdk.backend import Backend
from banlieue.sdk.calls import PoolClosedError
from banlieue.sdk.driver import About, Connection, Driver, FailureDomain
from banlieue.sdk.errors import DriverError, NeedsOperator, NotYet, Unreachable
from banlieue.sdk.kube import Key
from banlieue.sdk.powers import ChangeFeed, Changes
from banlieue.sdk.provider.breaker import Breaker, Permit
from banlieue.sdk.provider.connection import login_digest, session_digest
from banlieue.sdk.provider.feed import LOCKOUT_PAUSE, POLL, FeedLoop
from banlieue.sdk.provider.opened import Opened, Retired
from banlieue.sdk.provider.seams import Seams, Served

T = TypeVar("T")

CALL_TIMEOUT = 30.0
"""Seconds a call of the driver may take."""

DOUBT_AFTER = 10.0
"""Seconds of silence of a call after which the endpoint is asked whether it answers at all."""

LOGIN_TIMEOUT = 60.0
LOGOUT_TIMEOUT = 5.0

_REFUSALS = {Reason.PROVIDER_AUTH_FAILED: LOCKOUT_PAUSE, Reason.PROVIDER_TLS_INVALID: 30.0}
"""Seconds without a login after a refusal: accounts get locked, certificates do not."""


class _LeaseLost(Exception):
    """The Lease went to somebody else while a call waited for its thread."""


class _Elsewhere(Exception):
    """The login leads to another backend than the one a call was meant for."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: DriverError
    digest: str
    until: float


class ProviderSession:
    """One Provider's endpoint. Used on the event loop only; `call` does the threading."""

    def __init__(self, key: Key, backend: Backend[Any], served: Served, seams: Seams) -> None:
        self.key = key
        self.served = served
        self.breaker = Breaker(seams.clock, seams.rng)
        self._backend = backend
        self._pool = seams.pool
        self._clock = seams.clock
        self._listener = seams.listener
        self._leased = seams.leased
        self._start = seams.start
        self._opened: Opened | None = None
        self._login: str = ""
        self._feed: FeedLoop | None = None
        self._gate: _Refusal | None = None
        self._refused: DriverError | None = None
        self._awaited: list[float] = []
        self._retiring: set[asyncio.Future[None]] = set()

    # What machine reconcilers ask.

    @property
    def provider(self) -> Provider:
        """The Provider object, as last read."""
        return self.served.provider

    @property
    def identity(self) -> str:
        """Identity of the backend that answers."""
        return self.served.identity

    @property
    def writable(self) -> bool:
        """Whether this process may change anything on the backend.

        False while the Lease is not ours, the Provider is paused or ReadOnly, or the backend that
        answers is not the one that was recorded.
        """
        spec = self.provider.spec
        return (
            self._leased()
            and self.served.trusted
            and not self.served.suspended
            and not spec.paused
            and spec.mode == ProviderMode.READ_WRITE
        )

    @property
    def reports_changes(self) -> bool:
        """Whether the backend tells what moved; else machines have to be looked at again."""
        return self._feed is not None

    def is_backend(self, identity: str) -> bool:
        """Whether the backend that answers is the named one, or accepted in its place."""
        accepted = self.provider.spec.connection.accepted_identities
        return self.served.trusted and (identity == self.identity or identity in accepted)

    def domain(self, name: str) -> FailureDomain | None:
        """The failure domain that has or ever had that name, None when it is not there."""
        return self.served.domains.named(name)

    def domain_name(self, domain_id: str) -> str | None:
        """The name a failure domain is published under."""
        return self.served.domains.names.get(domain_id)

    async def call(self, call: Callable[[Driver[Any]], T], *, timeout: float = CALL_TIMEOUT) -> T:
        """Run a verb of the driver in the Provider's own threads.

        It is carried out on the backend that is known and trusted now, or not at all: a login that
        is replaced while the call waits for its thread may lead to another one.

        Args:
            call: gets the open driver; runs in a thread and may block.
            timeout: seconds to wait for the answer, the wait for a free thread included. A call
                that is given up may still be executed: its outcome counts as unknown.

        Raises:
            Unreachable: no answer in time, or none lately and it is not yet time to ask again.
            NeedsOperator: the endpoint refused the account or is not trusted; not asked again
                until the credentials change or 180 s have passed.
            DriverError: what the driver raised.
        """
        if not self.served.trusted:
            raise _changed()
        return await self._ask(call, timeout, self.identity)

    # What the Provider reconciler does.

    async def ask_about(self, timeout: float = CALL_TIMEOUT) -> About:
        """Who answers now, trusted or not; raises like `call`."""
        return await self._ask(_ask_about, timeout)

    @property
    def connected(self) -> bool:
        """Whether a login succeeded and was not refused since."""
        return self._opened is not None and self._refused is None

    @property
    def reached(self) -> bool:
        """Whether this process ever read from the backend: its identity is known."""
        return bool(self.served.identity)

    async def connect(self, to: Connection) -> About | None:
        """Have a session that was opened with exactly `to`.

        A changed connection is logged in anew first; then the old login is given up. Nothing is
        asked of a backend before it is known which one it is: one that is not the backend known so
        far is distrusted until `identified` says otherwise.

        Returns:
            Who answers, when the session is a new one; None when it was there already.

        Raises:
            DriverError: as the driver's login does. A refused login is not repeated until
                something about it changes or 180 s have passed.
        """
        login, digest = login_digest(to), session_digest(to)
        if self._opened is not None and self._opened.digest == digest and self._refused is None:
            return None
        gate = self._gate
        if gate and gate.digest == login and self._clock.monotonic() < gate.until:
            raise _again(gate.error)
        changed = login != self._login
        self._login = login
        if not changed and self.breaker.ask() is Permit.REFUSED:
            raise Unreachable("the endpoint does not answer; it is asked again after a pause")
        opened = Opened(self._backend.connect(to), digest)
        try:
            await self._guarded(opened.login, LOGIN_TIMEOUT)
            about = await self._guarded(lambda: opened.use(_ask_about), LOGIN_TIMEOUT)
        except DriverError as error:
            self._shut_gate(error)
            self._retire(opened)
            raise
        # A cancelled or broken login leaves no session behind; raised again.
        except BaseException:
            self._retire(opened)
            raise
        opened.identity = about.identity
        if self.identity not in {"", about.identity}:
            self.served = replace(self.served, trusted=False)
        self._gate = self._refused = None
        old, self._opened = self._opened, opened
        self._listen(opened.driver)
        if old is not None:
            self._retire(old)
        if self.served.trusted:
            self._listener.changed(self.key, Changes(everything=True))
        return about

    def identified(self, identity: str, *, trusted: bool) -> None:
        """Take in who answers, and whether that is the backend the machines are on."""
        served = replace(self.served, identity=identity, trusted=trusted)
        if served != self.served:
            self.served = served
            self._listener.changed(self.key, Changes(everything=True))
        if self._opened is not None and self._opened.identity != identity:
            self._give_up()  # it was a login at the one before
            self._listener.unsettled(self.key)

    def close(self) -> None:
        """Take no more calls and log out behind the caller's back; `drained` waits for that."""
        self._give_up()

    def _give_up(self) -> None:
        if self._feed:
            self._feed.stop()
            self._feed = None
        opened, self._opened = self._opened, None
        if opened is not None:
            self._retire(opened)

    async def drained(self) -> None:
        """Wait until every login that was given up is logged out, then end the threads."""
        while self._retiring:
            await asyncio.wait(self._retiring)
        self._pool.close()

    # Inside.

    async def _ask(
        self, call: Callable[[Driver[Any]], T], timeout: float, identity: str | None = None
    ) -> T:
        self._check_open()
        permit = self.breaker.ask()
        if permit is Permit.REFUSED:
            raise Unreachable("the endpoint does not answer; it is asked again after a pause")
        if permit is Permit.PROBE:
            await self._run(_ask_about, CALL_TIMEOUT)
        return await self._run(call, timeout, identity)

    async def _run(
        self, call: Callable[[Driver[Any]], T], timeout: float, identity: str | None = None
    ) -> T:
        def use() -> T:
            if not self._leased():
                raise _LeaseLost
            while (opened := self._opened) is not None:
                if identity not in {None, opened.identity}:
                    raise _Elsewhere
                try:
                    return opened.use(call)
                except Retired:
                    if self._opened is opened:
                        break
            raise Unreachable("the session was closed")

        try:
            return await self._guarded(use, timeout)
        except _Elsewhere:
            raise _changed() from None
        except DriverError as error:
            self._note(error)
            raise

    async def _guarded(self, blocking: Callable[[], T], timeout: float) -> T:
        """Run in a thread; learn from the answer, or its absence, what state the endpoint is in."""
        began = self._clock.monotonic()
        self._awaited.append(began)
        doubt = asyncio.get_running_loop().call_later(
            DOUBT_AFTER, self._listener.unsettled, self.key
        )
        try:
            answer = await cast("Awaitable[T]", self._pool(blocking, timeout=timeout))
        except PoolClosedError:
            raise Unreachable("the Provider is no longer served by this process") from None
        except _LeaseLost:
            self.breaker.abandoned()
            raise NeedsOperator(
                Reason.SERVED_ELSEWHERE, "another process serves this Provider now"
            ) from None
        except TimeoutError:
            self._silent(began)
            raise Unreachable(f"the endpoint gave no answer within {timeout:.0f} s") from None
        except Unreachable:
            self._silent(began)
            raise
        except NotYet:
            self.breaker.abandoned()  # nobody was asked
            raise
        except DriverError:
            self._answered()
            raise
        except BaseException:
            self.breaker.abandoned()  # given up, or a defect
            raise
        finally:
            doubt.cancel()
            self._awaited.remove(began)
        self._answered()
        return answer

    def _answered(self) -> None:
        if self.breaker.answered():
            self._listener.unsettled(self.key)
            self._listener.changed(self.key, Changes(everything=True))

    def _silent(self, since: float) -> None:
        # Who still waits began to wait earlier than whoever gave up first.
        last = self.breaker.answered_at
        if self.breaker.silent(min([since, *(it for it in self._awaited if it >= last)])):
            self._listener.unsettled(self.key)

    def _note(self, error: DriverError) -> None:
        """Ask no more on this login when the endpoint refused it: insisting locks accounts.

        A login that led to another backend is given up: a new one tells who is there now.
        """
        if error.reason is Reason.BACKEND_IDENTITY_CHANGED:
            self._give_up()
            self._listener.unsettled(self.key)
        elif self._shut_gate(error):
            self._refused = error
            self._listener.unsettled(self.key)

    def _shut_gate(self, error: DriverError) -> bool:
        if error.reason not in _REFUSALS:
            return False
        until = self._clock.monotonic() + _REFUSALS[error.reason]
        self._gate = _Refusal(error, self._login, until)
        return True

    def _check_open(self) -> None:
        if self._refused is not None:
            raise _again(self._refused)
        if self._opened is None:
            raise _again(self._gate.error) if self._gate else Unreachable("not connected yet")

    def _listen(self, driver: Driver[Any]) -> None:
        if self._feed:
            self._feed.stop()
            self._feed = None
        if isinstance(driver, ChangeFeed):
            loop = asyncio.get_running_loop()

            def deliver(changes: Changes) -> None:
                _into(loop, self._feed_answered, feed, changes)

            def lost(error: DriverError) -> None:
                _into(loop, self._feed_lost, feed, error)

            self._feed = feed = FeedLoop(driver, deliver, lost)
            self._start(feed, name=f"changes-{self.key.name}")

    def _feed_answered(self, feed: FeedLoop, changes: Changes) -> None:
        if feed is self._feed:
            self._answered()
            if changes != Changes():
                self._listener.changed(self.key, changes)

    def _feed_lost(self, feed: FeedLoop, error: DriverError) -> None:
        if feed is not self._feed:
            return
        if isinstance(error, Unreachable):
            # A poll may rest that long before silence means anything.
            self._silent(min(self._clock.monotonic(), self.breaker.answered_at + POLL))
        else:
            self._note(error)
        self._listener.unsettled(self.key)

    def _retire(self, opened: Opened) -> None:
        async def logout() -> None:
            try:
                await self._pool(opened.retire, timeout=LOGOUT_TIMEOUT)
            except (TimeoutError, DriverError, PoolClosedError):
                return  # the backend ends an abandoned session by itself

        task = asyncio.ensure_future(logout())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def _changed() -> DriverError:
    return NeedsOperator(
        Reason.BACKEND_IDENTITY_CHANGED,
        "another backend answers at the Provider's endpoint; correct the endpoint, or list the "
        "former identity in connection.acceptedIdentities",
    )


def _ask_about(driver: Driver[Any]) -> About:
    return driver.about()


def _again(error: DriverError) -> DriverError:
    """The same error anew, so that its traceback does not grow with every caller."""
    if isinstance(error, NeedsOperator):
        return NeedsOperator(error.reason, error.message, native=error.native)
    return error


def _into(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return  # the loop ended before the thread did
