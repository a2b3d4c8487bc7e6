"""A change feed, listened to in a thread of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from banlieue.sdk.errors import DriverError
from banlieue.sdk.powers import ChangeFeed, Changes
from test.kit.waiting import wait_until

PATIENCE = 30.0


class Feed:
    """Listens to a driver's changes, as the SDK does."""

    def __init__(self, driver: ChangeFeed, poll: float = 1.0) -> None:
        self._driver = driver
        self._poll = poll
        self._stopped = False
        self._lock = threading.Lock()
        self._told: list[Changes] = []
        self.errors: list[DriverError] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopped:
            try:
                changes = self._driver.changes(self._poll)
            except DriverError as error:
                self.errors.append(error)
                continue
            with self._lock:
                self._told.append(changes)

    def forget(self) -> None:
        """Drop what was told so far."""
        with self._lock:
            self._told.clear()

    def told(self, word: str) -> bool:
        """Whether a UUID, name or task was told."""
        with self._lock:
            return any(word in changes.uuids | changes.tasks for changes in self._told)

    def is_up(self) -> bool:
        """Whether the first answer came."""
        with self._lock:
            return any(changes.everything for changes in self._told)

    @contextmanager
    def running(self, *, awaited: bool = True) -> Iterator["Feed"]:
        """Listen while the block lasts, which begins after the first answer if it is awaited."""
        self._thread.start()
        try:
            if awaited:
                wait_until(self.is_up, PATIENCE, "the first answer of the feed")
            yield self
        finally:
            self._stopped = True
            self._thread.join(PATIENCE)
