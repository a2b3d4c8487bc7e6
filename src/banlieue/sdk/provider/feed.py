"""Listens to the change feed of one open session, in a thread of its own."""

import logging
import threading
from collections.abc import Callable

from banlieue.sdk.errors import DriverError, NeedsOperator
from banlieue.sdk.powers import ChangeFeed, Changes

POLL = 10.0
"""Seconds one call of the feed may block; about twice that shows that nobody answers any more."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
LOCKOUT_PAUSE = 180.0
"""Seconds to leave an endpoint alone that refused the account; accounts get locked otherwise."""

log = logging.getLogger(__name__)


class FeedLoop:
    """Calls `ChangeFeed.changes` until stopped.

    `deliver` gets every answer, `lost` every failure; both are called in the feed's thread. The
    first answer after a failure asks for everything, since changes may have been missed. A stopped
    loop ends when the call under way returns.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        deliver: Callable[[Changes], None],
        lost: Callable[[DriverError], None],
    ) -> None:
        self._feed = feed
        self._deliver = deliver
        self._lost = lost
        self._stopped = threading.Event()
        self._failures = 0

    def stop(self) -> None:
        """End at the next chance; answers that arrive afterwards are dropped."""
        self._stopped.set()

    def run(self) -> None:
        """The body of the thread."""
        while (pause := self.step()) is not None:
            self._stopped.wait(pause)

    def step(self) -> float | None:
        """Ask once, and say how many seconds to rest before the next time; None when stopped."""
        if self._stopped.is_set():
            return None
        try:
            changes = self._feed.changes(POLL)
        except DriverError as error:
            self._failures += 1
            if self._stopped.is_set():
                return None
            self._lost(error)
            return _pause(error, self._failures)
        # Top of the thread's loop: a defect in a driver must not end the feed unseen.
        except Exception as error:
            self._failures += 1
            log.exception("change feed failed")
            return _pause(error, self._failures)
        if self._stopped.is_set():
            return None
        if self._failures:
            self._failures = 0
            changes = Changes(changes.uuids, changes.tasks, everything=True)
        self._deliver(changes)
        return 0.0


def _pause(error: Exception, failures: int) -> float:
    if isinstance(error, NeedsOperator):
        return LOCKOUT_PAUSE
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10)))
