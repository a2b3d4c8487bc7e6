"""One login, shared by many threads, logged out when the last of them is done with it."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import DriverError

T = TypeVar("T")


class Retired(Exception):
    """The login was replaced by another before the call began."""


class Opened:
    """An open driver with a count of the calls inside it. All methods block; all are thread-safe.

    `login` may be abandoned while it runs, when nobody waits for it any longer: what it opens is
    then closed at once, so that no session is left behind.

    Attributes:
        digest: Of the connection it was opened with.
        identity: The backend it leads to, once that was asked.
    """

    def __init__(self, context: AbstractContextManager[Driver[Any]], digest: str) -> None:
        self.digest = digest
        self.identity = ""
        self._context = context
        self._lock = threading.Lock()
        self._driver: Driver[Any] | None = None
        self._calls = 0
        self._retired = False
        self._closed = False

    @property
    def driver(self) -> Driver[Any]:
        """The driver; only after `login`."""
        if self._driver is None:
            raise Retired
        return self._driver

    def login(self) -> None:
        """Open the session; raises `DriverError`, and `Retired` when nobody wants it any more."""
        driver = self._context.__enter__()
        with self._lock:
            self._driver = driver
            unwanted = self._retired
        if unwanted:
            self._close()
            raise Retired

    def use(self, call: Callable[[Driver[Any]], T]) -> T:
        """Run a call inside the session; raises `Retired` when it was replaced before that."""
        with self._lock:
            if self._retired or self._driver is None:
                raise Retired
            self._calls += 1
            driver = self._driver
        try:
            return call(driver)
        finally:
            with self._lock:
                self._calls -= 1
                last = self._retired and self._calls == 0
            if last:
                self._close()

    def retire(self) -> None:
        """Take no more calls, and log out as soon as none is under way."""
        with self._lock:
            self._retired = True
            idle = self._calls == 0 and self._driver is not None
        if idle:
            self._close()

    def _close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._context.__exit__(None, None, None)
        except DriverError:
            # A logout that fails leaves a session that ends by itself; nobody can do more.
            return
