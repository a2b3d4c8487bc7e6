"""The wire to a vCenter: TLS trust, connections that are checked one by one, and SOAP calls.

pyVmomi gives the wire types and SOAP; policy is ours. `SmartConnect` and `SessionOrientedStub` are
never used: the first ignores timeouts and compares a pin only after verification failed, the second
replays a clone whose reply was lost.
"""

import hashlib
import hmac
import itertools
import select
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit
from xml.parsers.expat import ExpatError

from pyVmomi import VmomiSupport
from pyVmomi.SoapAdapter import SoapStubAdapter

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import Connection
from banlieue.sdk.errors import NeedsOperator

IDLE_SECONDS = 60
"""How long a pooled connection may rest; below the idle cut of common load balancers."""

POOL_SIZE = 8

# Not the further pages of a read: asking for a page takes it away, so a second time is an error.
_READS = frozenset(
    {
        "RetrieveServiceContent",
        "RetrievePropertiesEx",
        "FindAllByUuid",
        "HasPrivilegeOnEntities",
    }
)
_UNREADABLE = (ExpatError, KeyError, AttributeError, TypeError, ValueError)


class Untrusted(OSError):
    """The endpoint's certificate is not one of those pinned."""

    def __init__(self, thumbprint: str) -> None:
        super().__init__(f"certificate with SHA-256 thumbprint {thumbprint} is not pinned")
        self.thumbprint = thumbprint


class HttpStatus(HTTPException):
    """The endpoint, or a proxy before it, answered with a status that carries no SOAP reply."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status} {words}")
        self.status = status


class StaleConnection(ConnectionError):
    """A pooled connection was closed by the other side before a byte of the reply came."""


class Unreadable(Exception):
    """A reply arrived that cannot be decoded; the call may have been carried out."""


class Untold(Unreadable):
    """A reply leaves out an object that was asked for, which proves nothing.

    It may be going at this moment, or the account may not see it.
    """


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the SOAP service of a vCenter is."""

    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """The endpoint of `https://host[:port][/sdk]`.

        Raises:
            NeedsOperator: the URL is not https, since a login must not cross the network in clear.
        """
        try:
            parts = urlsplit(url if "://" in url else f"https://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme != "https":
            raise NeedsOperator(
                Reason.CAPABILITY_INVALID,
                f"endpoint {url!r} is not an https URL such as https://vcenter.example.com/sdk",
            )
        path = parts.path if parts.path.strip("/") else "/sdk"
        return cls(host, port or 443, path)


@dataclass(frozen=True, slots=True)
class Trust:
    """Which certificates are accepted: one context for all connections, and pins if there are any.

    With pins and no CA bundle the pins alone decide, so self-signed certificates work; with both,
    both must hold. Without either the system's certificates decide.
    """

    context: ssl.SSLContext
    pins: frozenset[bytes]

    @classmethod
    def of(cls, to: Connection) -> "Trust":
        """What the Provider's connection trusts.

        Raises:
            NeedsOperator: the CA bundle holds no readable certificate.
        """
        try:
            context = ssl.create_default_context(cadata=to.ca_bundle or None)
        except (ssl.SSLError, ValueError) as error:
            raise NeedsOperator(
                Reason.PROVIDER_TLS_INVALID,
                "caBundle holds no readable PEM certificate; correct it",
            ) from error
        pins = frozenset(bytes.fromhex(pin.replace(":", "")) for pin in to.thumbprints)
        if to.insecure_skip_tls_verify or (pins and not to.ca_bundle):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return cls(context, pins)

    def check(self, certificate: bytes) -> None:
        """Compare a certificate in DER with the pins, in constant time; raises `Untrusted`."""
        if not self.pins:
            return
        digest = hashlib.sha256(certificate).digest()
        if not any([hmac.compare_digest(digest, pin) for pin in self.pins]):  # noqa: C419 - constant time
            raise Untrusted(digest.hex(":").upper())


class CheckedConnection(HTTPSConnection):
    """A connection whose certificate is compared with the pins each time it is opened."""

    def __init__(
        self, host: str, port: int, *, timeout: float, context: ssl.SSLContext, trust: Trust
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._trust = trust
        self._answered = False

    def connect(self) -> None:
        """Open and check; also runs when http.client opens a closed connection again."""
        self._answered = False
        try:
            super().connect()
            self._trust.check(self.sock.getpeercert(binary_form=True) or b"")
        # Whatever ended the handshake, the socket is closed; raised again.
        except BaseException:
            self.close()
            raise

    def request(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - http.client's signature
        """Send, and tell a stale pooled connection from a failing endpoint."""
        with self._stale_after_an_answer():
            super().request(*args, **kwargs)

    def getresponse(self) -> HTTPResponse:
        """Receive; statuses that carry no SOAP reply are raised as `HttpStatus`."""
        with self._stale_after_an_answer():
            response = super().getresponse()
        self._answered = True
        if response.status not in {200, 500}:
            raise HttpStatus(response.status, response.reason)
        return response

    @contextmanager
    def _stale_after_an_answer(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            if self._answered:
                raise StaleConnection(str(error)) from error
            raise

    @property
    def dropped(self) -> bool:
        """Whether the other side closed the connection while it rested."""
        if self.sock is None:
            return False
        try:
            return bool(select.select([self.sock], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def abort(self) -> None:
        """End whatever waits on this connection, from another thread."""
        sock = self.sock
        if sock is not None:
            try:
                # Not SSLSocket.shutdown: that takes the TLS object from under the reading thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                return


class _CallContext(threading.local):
    name: str = "banlieue"
    activation: str | None = None
    encoded: bool = False
    connected: bool = False


_context = _CallContext()
_serial = itertools.count(1)


@contextmanager
def operation(name: str, *, activation: str | None = None) -> Iterator[None]:
    """Name the calls made inside, so that the server's logs and tasks can be matched with ours.

    Args:
        name: becomes the `operationID` of every call, with a running number.
        activation: becomes the `activationId` of the tasks the calls start.
    """
    before = (_context.name, _context.activation)
    _context.name, _context.activation = f"banlieue-{name}", activation or before[1]
    try:
        yield
    finally:
        _context.name, _context.activation = before


def may_have_arrived() -> bool:
    """Whether the call this thread made last got as far as a connection."""
    return _context.connected


class Stub(SoapStubAdapter):
    """Sends SOAP calls over checked connections. Thread-safe."""

    def __init__(self, endpoint: Endpoint, trust: Trust, *, version: str, timeout: float) -> None:
        super().__init__(  # type: ignore[no-untyped-call] # pyVmomi
            host=endpoint.host,
            port=endpoint.port,
            path=endpoint.path,
            version=version,
            sslContext=trust.context,
            httpConnectionTimeout=timeout,
            connectionPoolTimeout=IDLE_SECONDS,
            poolSize=POOL_SIZE,
        )
        self.endpoint = endpoint
        self.scheme = CheckedConnection  # type: ignore[assignment] # inferred too narrowly
        self.schemeArgs["trust"] = trust
        self.calls: Counter[str] = Counter()
        self._calls_lock = threading.Lock()
        self._open: set[CheckedConnection] = set()
        self._aborted = False

    def InvokeMethod(self, mo: Any, info: Any, args: Any, outerStub: Any = None) -> Any:  # noqa: ANN401, N802, N803 - pyVmomi's seam
        """One call. A read is sent again once when a pooled connection turned out to be closed."""
        _context.encoded = _context.connected = False
        try:
            return super().InvokeMethod(mo, info, args, outerStub)  # type: ignore[no-untyped-call] # pyVmomi
        except StaleConnection:
            if info.wsdlName not in _READS:
                raise
            return super().InvokeMethod(mo, info, args, outerStub)  # type: ignore[no-untyped-call] # pyVmomi
        except (OSError, HTTPException):
            raise  # a certificate that fails verification is a ValueError too
        except _UNREADABLE as error:
            if _context.encoded:
                raise Unreadable(f"reply to {info.wsdlName} cannot be decoded") from error
            raise

    def InvokeAccessor(self, mo: Any, info: Any) -> Any:  # noqa: ANN401, N802 - pyVmomi's seam
        """Refuse: attributes cost a call each and hide errors; read leaf properties in one call."""
        raise TypeError(f"{type(mo).__name__}.{info.name} is read as an attribute")

    def SerializeRequest(self, mo: Any, info: Any, args: Any) -> bytes:  # noqa: ANN401, N802 - pyVmomi's seam
        """Count the call and give it an `operationID`."""
        with self._calls_lock:
            self.calls[info.wsdlName] += 1
        headers = VmomiSupport.GetRequestContext()
        headers["operationID"] = f"{_context.name}-{next(_serial)}"
        if _context.activation:
            headers["activationId"] = _context.activation
        try:
            request: bytes = super().SerializeRequest(mo, info, args)  # type: ignore[no-untyped-call] # pyVmomi
        finally:
            headers.clear()
        _context.encoded = True
        return request

    def GetConnection(self) -> CheckedConnection:  # noqa: N802 - pyVmomi's seam
        """A connection that is open as far as can be told, so that idling loses no write."""
        while True:
            if self._aborted:
                raise ConnectionAbortedError("the session was ended")
            connection: CheckedConnection = super().GetConnection()  # type: ignore[no-untyped-call] # pyVmomi
            with self._calls_lock:
                reused = connection in self._open
                self._open.add(connection)
            if not (reused and connection.dropped):
                _context.connected = True
                return connection
            self._forget(connection)
            connection.close()

    def ReturnConnection(self, conn: CheckedConnection) -> None:  # noqa: N802 - pyVmomi's seam
        """Keep the connection for the next call, or close it when there are enough."""
        super().ReturnConnection(conn)  # type: ignore[no-untyped-call] # pyVmomi
        if self._aborted:
            self.DropConnections()
        with self._calls_lock:
            self._open = {other for other in self._open if other.sock is not None}

    def _forget(self, connection: CheckedConnection) -> None:
        with self._calls_lock:
            self._open.discard(connection)

    def abort(self) -> None:
        """End the stub: calls that wait fail as if the connection had broken, others at once."""
        self._aborted = True
        with self._calls_lock:
            waiting = tuple(self._open)
        for connection in waiting:
            connection.abort()
        self.DropConnections()

    def count(self) -> Mapping[str, int]:
        """Calls sent so far, by method."""
        with self._calls_lock:
            return dict(self.calls)
