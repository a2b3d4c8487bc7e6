"""A login at a simulated world that renews itself, and what it remembers of lost calls."""

import threading
from collections.abc import Callable, Mapping

from pydantic import SecretStr

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.simulated.faults import Code, ConnectionLost, NotConnected, WorldFault
from banlieue.sdk.simulated.world import Json, Port

CALL_TIMEOUT = 10.0
_PATIENCE = 2.0
"""Times its timeout, until a call without an answer counts as never arrived."""


class UnresolvedCreates:
    """Names of VMs whose create call got no answer and may still arrive."""

    def __init__(self, monotonic: Callable[[], float], timeout: float) -> None:
        self._monotonic = monotonic
        self._patience = _PATIENCE * timeout
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def add(self, name: str) -> None:
        """Remember that a create call of this name got no answer."""
        with self._lock:
            self._until[name] = self._monotonic() + self._patience

    def __contains__(self, name: str) -> bool:
        """Whether a create call of this name may still arrive."""
        now = self._monotonic()
        with self._lock:
            self._until = {other: until for other, until in self._until.items() if until > now}
            return name in self._until


class Session:
    """Calls with a login that is renewed once when the world ended it. Thread-safe.

    Another world that answers at the endpoint is never asked anything: what it does not have
    proves nothing.
    """

    def __init__(
        self,
        port: Port,
        username: SecretStr,
        password: SecretStr,
        *,
        unresolved: UnresolvedCreates,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        self._port = port
        self._username = username
        self._password = password
        self._timeout = timeout
        self._lock = threading.Lock()
        self._token = ""
        self._identity = ""
        self.unresolved = unresolved

    def login(self) -> None:
        """Open the session; raises what the world answers."""
        answer = self._log_in()
        self._token, self._identity = answer["session"], answer["identity"]

    def logout(self) -> None:
        """End the session; raises what the world answers."""
        self._port.call(
            "logout", {"session": self._token}, session=self._token, timeout=self._timeout
        )

    def call(self, method: str, /, **params: object) -> Json:
        """One call of the world; raises `WorldFault` and `ConnectionLost`."""
        return self._call(method, params, self._timeout)

    def changes(self, cursor: str, patience: float) -> Json:
        """The long poll: what changed since the cursor, within `patience` seconds."""
        params = {"cursor": cursor, "timeout": patience}
        return self._call("changes", params, self._timeout + patience)

    def create(self, spec: Mapping[str, object]) -> Json:
        """The create call; one that gets no answer is remembered as unresolved."""
        name = str(spec["name"])
        try:
            return self._call("create", spec, self._timeout)
        except NotConnected:
            raise
        except ConnectionLost:
            self.unresolved.add(name)
            raise

    def _call(self, method: str, params: Mapping[str, object], timeout: float) -> Json:
        token = self._token
        try:
            return self._port.call(method, params, session=token, timeout=timeout)
        except WorldFault as fault:
            if fault.code != Code.NOT_AUTHENTICATED:
                raise
        self._renew(stale=token)
        return self._port.call(method, params, session=self._token, timeout=timeout)

    def _renew(self, stale: str) -> None:
        with self._lock:
            if self._token != stale:
                return  # another thread was faster
            answer = self._log_in()
            if answer["identity"] != self._identity:
                raise NeedsOperator(
                    Reason.BACKEND_IDENTITY_CHANGED,
                    "another backend answers at the Provider's endpoint; correct the endpoint",
                )
            self._token = answer["session"]

    def _log_in(self) -> Json:
        return self._port.call(
            "login",
            {
                "username": self._username.get_secret_value(),
                "password": self._password.get_secret_value(),
            },
            session="",
            timeout=self._timeout,
        )
