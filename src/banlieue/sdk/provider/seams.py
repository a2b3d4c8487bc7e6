"""What the session of a Provider needs from outside, and what it is told of the Provider."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.kube import Key
from banlieue.sdk.powers import Changes
from banlieue.sdk.provider.domains import Domains
from banlieue.sdk.provider.feed import FeedLoop
from banlieue.sdk.reconcile import Clock, RunInThread


class Pool(RunInThread, Protocol):
    """The bounded executor of one endpoint, 8 workers by default."""

    def close(self) -> None:
        """Take no more calls; those under way end by themselves."""


class StartThread(Protocol):
    """Starts the thread of a feed; injected so that a simulator can step the feed instead."""

    def __call__(self, feed: FeedLoop, *, name: str) -> None:
        """Run the feed in a daemon thread of that name."""


class Listener(Protocol):
    """Who is told what happens to a session. Called on the event loop, total, await-free."""

    def changed(self, provider: Key, changes: Changes) -> None:
        """Something moved on the backend."""

    def unsettled(self, provider: Key) -> None:
        """The session was lost, refused or found again; its Provider wants a pass."""


def start_thread(feed: FeedLoop, *, name: str) -> None:
    """The `StartThread` of a real process."""
    threading.Thread(target=feed.run, name=name, daemon=True).start()


@dataclass(frozen=True, slots=True)
class Served:
    """What the Provider reconciler last found out; replaced whole.

    `trusted` tells that the backend that answers is the recorded one, or an accepted one;
    `suspended` that the whole class is paused or the Provider may not be served as it is written.
    """

    provider: Provider
    identity: str = ""
    trusted: bool = False
    suspended: bool = False
    domains: Domains = field(default_factory=Domains)


@dataclass(frozen=True, slots=True)
class Seams:
    """What a session needs from outside; `leased` tells whether the Provider's Lease is ours."""

    pool: Pool
    clock: Clock
    rng: Random
    listener: Listener
    leased: Callable[[], bool]
    start: StartThread = start_thread
