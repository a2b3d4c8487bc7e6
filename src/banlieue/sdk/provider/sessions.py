"""All Providers one process serves, by key. Machine reconcilers find their Provider here."""

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import FailureDomain
from banlieue.sdk.errors import DriverError
from banlieue.sdk.kube import Key
from banlieue.sdk.powers import Changes
from banlieue.sdk.provider.seams import Pool, Seams, Served, StartThread, start_thread
from banlieue.sdk.provider.session import ProviderSession
from banlieue.sdk.reconcile import Clock

ChangeListener = Callable[[Key, Changes], None]
"""Gets the Provider's key and what moved on its backend; runs on the event loop, never waits."""

StateListener = Callable[[Key], None]
"""Gets the key of a Provider whose session was lost, refused or found again."""


class ProviderSessions:
    """Sessions by Provider.

    The machine reconciler uses `open`, `provider`, `failure_domain` and `on_changes`; the Provider
    reconciler fills the registry with `ensure`, `problem` and `forget`.
    """

    def __init__(
        self,
        backend: Backend[Any],
        *,
        clock: Clock,
        rng: Random,
        make_pool: Callable[[Key], Pool],
        leased: Callable[[Key], bool],
        start: StartThread = start_thread,
    ) -> None:
        """Serve Providers of `backend`.

        Args:
            backend: what is served.
            clock: time.
            rng: jitter of retries.
            make_pool: gives each Provider its own bounded threads.
            leased: whether this process holds the Lease of the Provider of that key now.
            start: starts the thread that listens to a change feed.
        """
        self._backend = backend
        self._clock = clock
        self._rng = rng
        self._make_pool = make_pool
        self._leased = leased
        self._start = start
        self._sessions: dict[Key, ProviderSession] = {}
        self._problems: dict[Key, DriverError] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._change_listeners: list[ChangeListener] = []
        self._state_listeners: list[StateListener] = []

    # What machine reconcilers ask.

    def open(self, key: Key) -> ProviderSession | None:
        """The Provider's session; None while it is not served here or was never reached.

        A session that was open once stays here through outages: its `call` says what is wrong.
        """
        session = self._sessions.get(key)
        return session if session is not None and session.reached else None

    def provider(self, key: Key) -> Provider | None:
        """The Provider object as last read, also while its backend was never reached."""
        session = self._sessions.get(key)
        return session.provider if session is not None else None

    def failure_domain(self, key: Key, name: str) -> tuple[FailureDomain, str] | None:
        """The domain a name stands for, and the name it is published under; None when unknown.

        The two names differ when an admin replaced the one a machine was placed by.
        """
        session = self.open(key)
        domain = session.domain(name) if session else None
        if session is None or domain is None:
            return None
        return domain, session.domain_name(domain.id) or name

    def trouble(self, key: Key) -> DriverError | None:
        """Why `open` has nothing to give, as far as it is known; to be shown on machines."""
        return self._problems.get(key)

    def on_changes(self, listener: ChangeListener) -> None:
        """Tell `listener` what moves on the backends, from now on."""
        self._change_listeners.append(listener)

    def keys(self) -> Iterator[Key]:
        """Providers served here, sorted."""
        return iter(sorted(self._sessions))

    # What the Provider reconciler does.

    def on_unsettled(self, listener: StateListener) -> None:
        """Tell `listener` which Provider wants a pass because of its session, from now on."""
        self._state_listeners.append(listener)

    def ensure(self, key: Key, provider: Provider) -> ProviderSession:
        """The session of a Provider, made now if it is new, not connected by that."""
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = ProviderSession(
                key,
                self._backend,
                Served(provider),
                Seams(
                    self._make_pool(key),
                    self._clock,
                    self._rng,
                    self,
                    lambda: self._leased(key),
                    self._start,
                ),
            )
        return session

    def find(self, key: Key) -> ProviderSession | None:
        """The session of a Provider, connected or not; None when it is not served here."""
        return self._sessions.get(key)

    def blame(self, key: Key, problem: DriverError | None) -> None:
        """Keep for machines why the Provider cannot be used; None when it can."""
        if problem is None:
            self._problems.pop(key, None)
        else:
            self._problems[key] = problem

    def forget(self, key: Key) -> None:
        """Stop serving a Provider: log out once its calls have ended."""
        self._problems.pop(key, None)
        session = self._sessions.pop(key, None)
        if session is not None:
            session.close()
            task = asyncio.get_running_loop().create_task(session.drained())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Log out everywhere and end all threads; for the end of the process."""
        for key in tuple(self._sessions):
            self.forget(key)
        while self._closing:
            await asyncio.wait(self._closing)

    # What sessions tell.

    def changed(self, provider: Key, changes: Changes) -> None:
        """Pass on what moved on a backend."""
        for listener in self._change_listeners:
            listener(provider, changes)

    def unsettled(self, provider: Key) -> None:
        """Pass on that a session was lost, refused or found again."""
        for listener in self._state_listeners:
            listener(provider)
