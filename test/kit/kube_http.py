"""HTTPS to an API server: connections kept per thread, errors as the server words them."""

import contextlib
import http.client
import json
import select
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from test.kit.kubeconfig import Access
from test.kit.waiting import wait_until

Query = Mapping[str, str | None]

_TOO_MANY_REQUESTS: Final = 429
_CHUNK: Final = 1 << 16


class KubeError(Exception):
    """The API server refused a request, or did not answer.

    Attributes:
        status: HTTP status; 0 when no answer came.
        reason: `reason` of the Status object, such as NotFound, AlreadyExists, Conflict, Forbidden,
            Invalid; `Unreachable` when no answer came.
        message: What the server said.
        details: `details` of the Status object, with `causes` naming the fields.
    """

    def __init__(
        self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}


class ApiConnection:
    """Requests to one API server as one user. May be shared by threads."""

    def __init__(self, access: Access, user_agent: str, timeout: float) -> None:
        parts = urlsplit(access.server)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._context = _tls_context(access)
        self._timeout = timeout
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if access.token:
            self._headers["Authorization"] = f"Bearer {access.token}"
        self._local = threading.local()
        self._all: list[http.client.HTTPSConnection] = []
        self._streams: set[http.client.HTTPSConnection] = set()

    def close(self) -> None:
        """Close the connections of all threads; the next request opens a new one.

        Streams end, as if the server had broken off.
        """
        for connection in self._all:
            connection.close()
        for connection in tuple(self._streams):
            _break_off(connection)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send one request and return the body of the answer.

        The server's "too many requests", which it also says while it makes ready the storage of a
        new kind, is waited out up to the timeout.

        Raises:
            KubeError: The answer is an error, or none came.
        """
        content = None if body is None else json.dumps(body).encode()
        return wait_until(
            lambda: self._attempt(method, _target(path, query), content, headers or {}),
            self._timeout,
            f"the API server to have time for {method} {path}",
        )[0]

    def stream(self, path: str, *, query: Query | None, timeout: float) -> Iterator[bytes]:
        """Send a GET and yield the lines of the answer as they come.

        The connection is its own and is closed when the iterator is.

        Raises:
            KubeError: The answer is an error, or the connection broke off.
        """
        connection = self._open(timeout)
        self._streams.add(connection)
        try:
            connection.request("GET", _target(path, query), headers=self._headers)
            answer = connection.getresponse()
            if answer.status >= http.client.BAD_REQUEST:
                raise error_of(answer.status, answer.read())
            yield from _lines(answer)
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable("GET", path, error) from error
        finally:
            self._streams.discard(connection)
            connection.close()

    def _attempt(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[bytes] | None:
        connection = self._connection()
        try:
            connection.request(method, target, content, {**self._headers, **headers})
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _unreachable(method, target, error) from error
        if answer.status == _TOO_MANY_REQUESTS:
            return None
        if answer.status >= http.client.BAD_REQUEST:
            raise error_of(answer.status, data)
        return (data,)

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._open(self._timeout)
            self._all.append(connection)
        elif connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            # Nothing is due, so this is the server closing: a write must not be lost to it.
            connection.close()
        return connection

    def _open(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout, context=self._context
        )


def error_of(status: int, data: bytes) -> KubeError:
    """The error that an answer's body, a Status object or plain text, describes."""
    text = data.decode(errors="replace").strip()
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return KubeError(status, http.client.responses.get(status, "Unknown"), text)
    return KubeError(
        status,
        document.get("reason") or "Unknown",
        document.get("message") or text,
        document.get("details"),
    )


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    # The answer's own readline takes a broken connection for the end.
    rest = b""
    while data := answer.read1(_CHUNK):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _break_off(connection: http.client.HTTPSConnection) -> None:
    """Wake whoever reads from it, in another thread; that one closes it."""
    sock: socket.socket | None = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown: that takes the TLS object from under the reading thread.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _unreachable(method: str, target: str, error: Exception) -> KubeError:
    return KubeError(0, "Unreachable", f"no answer to {method} {target}: {error!r}")


def _target(path: str, query: Query | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _tls_context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.authority.decode("ascii"))
    if access.identity:
        # The library takes a client certificate from files only.
        with tempfile.TemporaryDirectory() as directory:
            context.load_cert_chain(*access.identity.write(Path(directory), "client"))
    return context
