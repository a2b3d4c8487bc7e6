"""The REST service of a vCenter, as far as we use it: what SOAP has no word for.

It has sessions of its own, with the same login and the same trust. Newer vCenters serve it below
`/api`, older ones below `/rest` only, in another dialect; the first login finds out which.
"""

import base64
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any
from urllib.parse import quote

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.transport import CheckedConnection, StaleConnection
from banlieue.sdk.errors import DriverError, NeedsOperator, Transient, Unreachable

_TIMEOUT = 10.0
_PATIENCE = 2.0
"""Seconds a call waits for another one to end: a service that hangs must not take every thread."""

_FIRST_REST, _LONGEST_REST = 15.0, 240.0
"""How long a service that did not answer is left alone, and how far that grows."""

_REFUSED_REST = 240.0
"""Seconds until a login that was refused is tried again: one more of several in a few minutes locks
the account, for the vCenter and all its VMs as well.
"""

_TOKEN = "vmware-api-session-id"  # noqa: S105 - the name of a header
_OLD_SESSION = "/rest/com/vmware/cis/session"
_NEW_SESSION = "/api/session"

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _SERVER = 401, 403, 404, 500
_OK = 300
_MOST_BYTES = 32 * 1024 * 1024


class RestError(Exception):
    """The service refused a call; `kind` is its own word for why, in lower case."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__(f"{status} {kind}")
        self.status = status
        self.kind = kind

    @property
    def exists(self) -> bool:
        """What was to be made is there."""
        return "already_exists" in self.kind

    @property
    def missing(self) -> bool:
        """What was named is not there."""
        return self.status == _NOT_FOUND or self.kind.endswith("not_found")

    @property
    def denied(self) -> bool:
        """The account lacks a right."""
        return self.status == _FORBIDDEN or "unauthorized" in self.kind


class _Connection(CheckedConnection):
    """Gives every answer to the caller, whatever its status."""

    def getresponse(self) -> HTTPResponse:
        with self._stale_after_an_answer():
            response = HTTPSConnection.getresponse(self)
        self._answered = True
        return response


class Rest:
    """One session of the REST service, opened at the first call. Thread-safe; one call at a time.

    Every call may be sent twice: again within a new session when the old one was ended, and again
    when a resting connection turned out to be closed. All calls made here bear that.
    """

    def __init__(self, session: Session, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._token: str | None = None
        self._old = False
        self._closed = False
        self._left_alone: tuple[float, str] = (0.0, "")
        self._failures = 0
        self._refused_until: float | None = None
        self._calls: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Rest({self._session!r})"

    # Calling

    def get(self, path: str, identity: str = "") -> Any:  # noqa: ANN401 - JSON
        """What a path, or one thing below it, is.

        Raises:
            RestError: the service refused the call.
            DriverError: no answer, no trust, or refused credentials.
        """
        return self._call("GET", path, identity, "", None)

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        action: str = "",
        wrapped: str = "",
        identity: str = "",
    ) -> Any:  # noqa: ANN401 - JSON
        """Make something, or have an action carried out; raises like `get`.

        Args:
            path: such as `cis/tagging/tag`.
            body: what is sent.
            action: the action's name.
            wrapped: the name that the older dialect wraps the body in.
            identity: the one thing meant, where the older dialect names it in the path.
        """
        sent = {wrapped: dict(body)} if wrapped and self._speaks_old() else dict(body)
        return self._call("POST", path, identity if self._speaks_old() else "", action, sent)

    def _speaks_old(self) -> bool:
        with _translated(), self._turn():
            self._check_left_alone()
            with self._noting_silence():
                self._ensure()
            return self._old

    def _call(
        self, method: str, path: str, identity: str, action: str, body: Mapping[str, Any] | None
    ) -> Any:  # noqa: ANN401 - JSON
        with _translated(), self._turn():
            self._calls[f"{method} {path} {action}".rstrip()] += 1
            self._check_left_alone()
            with self._noting_silence():
                self._ensure()
                status, answer = self._send(method, self._url(path, identity, action), body)
                if status == _UNAUTHORIZED:
                    self._token = None
                    self._ensure()
                    status, answer = self._send(method, self._url(path, identity, action), body)
            return _value(status, answer, old=self._old)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """The right to speak; raises `Unreachable` while another call hangs."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise Unreachable("it is slow, and is asked again")
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _noting_silence(self) -> Iterator[None]:
        """Leave the service alone for a while when it gives no answer."""
        try:
            yield
        except (OSError, HTTPException) as error:
            self._hang_up()
            rest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** min(self._failures, 6))
            self._failures += 1
            self._left_alone = (self._monotonic() + rest, type(error).__name__)
            raise
        self._failures = 0

    def _check_left_alone(self) -> None:
        until, why = self._left_alone
        if self._monotonic() < until:
            raise Unreachable(f"it gave no answer ({why})")

    def _url(self, path: str, identity: str, action: str) -> str:
        name = quote(identity, safe=":")
        if not self._old:
            url = f"/api/{path}" + (f"/{name}" if identity else "")
            return f"{url}?action={action}" if action else url
        if path.startswith("vcenter/"):
            url = f"/rest/{path}" + (f"/{name}" if identity else "")
        else:
            url = f"/rest/com/vmware/{path}" + (f"/id:{name}" if identity else "")
        return f"{url}?~action={action}" if action else url

    # The session

    def _ensure(self) -> None:
        """Be logged in."""
        if self._closed:
            raise Unreachable("the session was closed")
        if self._token is not None:
            return
        if self._refused_until is not None and self._monotonic() < self._refused_until:
            raise _refused()
        username, password = self._session.credentials
        pair = f"{username.get_secret_value()}:{password.get_secret_value()}"
        headers = {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
        status, answer = self._send("POST", _NEW_SESSION, None, headers)
        self._old = status == _NOT_FOUND
        if self._old:
            status, answer = self._send("POST", _OLD_SESSION, None, headers)
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            self._refused_until = self._monotonic() + _REFUSED_REST
            raise _refused()
        token = _value(status, answer, old=self._old)
        if not isinstance(token, str):
            raise HTTPException("the answer to the login is no token")
        self._token = token

    def close(self) -> None:
        """Log out, as far as the service can be reached; never raises."""
        # A call that hangs is cut off, so that nobody waits for its end.
        waiting = self._connection
        if not self._lock.acquire(timeout=0.5):
            if waiting is not None:
                waiting.abort()
            self._lock.acquire()
        try:
            self._closed = True
            if self._token is not None:
                with contextlib.suppress(OSError, HTTPException, ValueError):
                    self._send("DELETE", _OLD_SESSION if self._old else _NEW_SESSION, None)
            self._token = None
            self._hang_up()
        finally:
            self._lock.release()

    # The wire

    def _send(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        try:
            return self._send_once(method, url, body, headers)
        except StaleConnection:
            self._hang_up()
            return self._send_once(method, url, body, headers)

    def _send_once(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[int, bytes]:
        if self._connection is None or self._connection.dropped:
            self._hang_up()
            endpoint, trust = self._session.login.ops.endpoint, self._session.trust
            self._connection = _Connection(
                endpoint.host, endpoint.port, timeout=_TIMEOUT, context=trust.context, trust=trust
            )
        content = None if body is None else json.dumps(body).encode()
        sent = {"Accept": "application/json", **(headers or {})}
        if content is not None:
            sent["Content-Type"] = "application/json"
        if self._token is not None:
            sent[_TOKEN] = self._token
        self._connection.request(method, url, body=content, headers=sent)
        answer = self._connection.getresponse()
        content = answer.read(_MOST_BYTES)
        if answer.length:
            # The library tells this only to those who name no limit.
            raise IncompleteRead(content, answer.length)
        return answer.status, content

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._lock.locked()

    # Counting

    def calls(self) -> Mapping[str, int]:
        """Calls made so far, but logins."""
        with self._lock:
            return dict(self._calls)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise uniform errors; a silent REST service is no outage of the vCenter and its VMs."""
    try:
        with faults.translated(Reason.INVENTORY_FAILED):
            yield
    except Unreachable as error:
        raise Transient(
            Reason.INVENTORY_FAILED,
            f"the vCenter's REST service cannot be used: {error.message}",
            native=error.native,
        ) from error


def _value(status: int, answer: bytes, *, old: bool) -> Any:  # noqa: ANN401 - JSON
    """What an answer says; raises `RestError` or `Unreachable`."""
    try:
        decoded = json.loads(answer) if answer.strip() else None
    except ValueError as error:
        if status < _OK:
            raise Unreachable("its answer cannot be read") from error
        decoded = None
    if status < _OK:
        return decoded.get("value") if old and isinstance(decoded, dict) else decoded
    if status >= _SERVER and not isinstance(decoded, dict):
        raise Unreachable(f"it answers with HTTP status {status}")
    kind = ""
    if isinstance(decoded, dict):
        kind = str(decoded.get("error_type") or decoded.get("type") or "")
    raise RestError(status, kind.rpartition(".")[2].lower())


def _refused() -> NeedsOperator:
    """No failed login of the Provider: SOAP has its own, and its VMs go on while that works."""
    return NeedsOperator(
        Reason.INVENTORY_FAILED,
        "the vCenter's REST service refused the credentials; correct the Secret, or let the "
        "account log in there",
    )


def refusal(error: RestError, what: str, *privileges: str) -> DriverError:
    """The uniform error of a refused call.

    Args:
        error: the service's answer, which names no privilege.
        what: in which matter.
        privileges: what the call takes.
    """
    if error.denied:
        named = f" ({' and '.join(privileges)})" if privileges else ""
        return NeedsOperator(
            Reason.PROVIDER_PERMISSION_DENIED,
            f"the account lacks a right for {what}{named}; grant it",
        )
    return NeedsOperator(
        Reason.INVENTORY_FAILED, f"the vCenter refused {what} ({error.kind or error.status})"
    )
