"""A proxy in front of a vCenter that loses, delays and falsifies, by SOAP method and at run time.

What a simulator cannot do by itself: a reply that is lost after the call was executed, half a
reply, a connection that is cut, an endpoint that accepts and never answers.

    with SoapProxy(vcenter.address, authority=vcenter.authority) as proxy:
        proxy.add(drop_reply("CloneVM_Task", count=1))
        ...proxy.url...
"""

import contextlib
import http.client
import socket
import socketserver
import ssl
import struct
import tempfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from test.kit.certificates import Authority, KeyPair
from test.kit.ports import LOOPBACK
from test.kit.soaprules import Action, Rule, rest_path, soap_method
from test.kit.waiting import wait_until

_HANDSHAKE_TIMEOUT: Final = 10.0
_IDLE_TIMEOUT: Final = 300.0
_STOP_TIMEOUT: Final = 10.0
_SESSION: Final = frozenset({"cookie", "vmware-api-session-id"})
"""Headers that a session of SOAP, and of REST, is known by."""

_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class SoapProxy:
    """TLS in, TLS out. All methods may be called from any thread at any time.

    Attributes:
        url: The SOAP endpoint that clients use.
        certificate: What new connections are shown.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        *,
        authority: Authority | None = None,
        certificate: KeyPair | None = None,
    ) -> None:
        """Describe it; the `with` block starts it.

        Args:
            upstream: Host and port of the vCenter. Its certificate is not looked at.
            authority: What issues the proxy's certificate; one of its own when None.
            certificate: The proxy's certificate; by default one that the authority issues.
        """
        self.authority = authority or Authority("banlieue test proxy CA")
        self.certificate = certificate or self.issue()
        self._upstream = upstream
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._arrived: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        self._silent = False
        self._released = threading.Event()
        self._connections: set[socket.socket] = set()
        # No authorities are read, which takes longer than all the rest.
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._trust.check_hostname = False
        self._trust.verify_mode = ssl.CERT_NONE
        self._context = _server_context(self.certificate)
        self._server = _Server(self)
        self._port: int = self._server.server_address[1]
        self._thread: threading.Thread | None = None
        self.url = f"https://{LOOPBACK}:{self._port}/sdk"

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()
        self.refuse()
        wait_until(lambda: not self._connections, _STOP_TIMEOUT, "the proxy's connections to end")

    @property
    def thumbprint(self) -> str:
        """SHA-256 of its certificate, in colon-separated upper-case hex."""
        return self.certificate.thumbprint

    @property
    def ca_pem(self) -> str:
        """The certificate of its authority."""
        return self.authority.certificate.decode()

    def issue(self) -> KeyPair:
        """One more certificate for its address."""
        return self.authority.issue("soap-proxy", hosts=[LOOPBACK, "localhost"])

    # Rules

    def add(self, rule: Rule) -> Rule:
        """Add a rule; the first that matches a call is used. Its `hits` tell how often."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Drop all rules and let go what they hold up."""
        with self._lock:
            self._rules.clear()
            self._release()

    @property
    def arrived(self) -> Counter[str]:
        """Calls that clients sent, by method."""
        with self._lock:
            return Counter(self._arrived)

    @property
    def passed(self) -> Counter[str]:
        """Calls that reached the vCenter, by method."""
        with self._lock:
            return Counter(self._passed)

    def reset_counts(self) -> None:
        """Count from zero again."""
        with self._lock:
            self._arrived.clear()
            self._passed.clear()

    # The whole endpoint

    def black_hole(self) -> None:
        """From now on accept connections and calls, and say nothing, not even in TLS.

        Calls that are under way are executed, but their replies are held back.
        """
        with self._lock:
            self._silent = True

    def refuse(self) -> None:
        """Close all connections and refuse new ones."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(_STOP_TIMEOUT)
            self._thread = None
            self._server.server_close()
        self.cut_all()

    def restore(self) -> None:
        """Work again. Connections that were kept waiting are closed."""
        with self._lock:
            self._silent = False
            self._release()
        if self._thread is None:
            self._server = _Server(self, self._port)
            self._listen()

    def cut_all(self) -> None:
        """Reset all connections."""
        with self._lock:
            connections = list(self._connections)
            self._release()
        for connection in connections:
            _reset(connection)

    def use_certificate(self, certificate: KeyPair) -> None:
        """Show another certificate, and close the connections that have seen the old one."""
        self.certificate = certificate
        self._context = _server_context(certificate)
        self.cut_all()

    def _listen(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
            )
            self._thread.start()

    def _release(self) -> None:
        released, self._released = self._released, threading.Event()
        released.set()

    # What the connections ask

    def opened(self, connection: socket.socket) -> ssl.SSLSocket | None:
        """Answer the TLS handshake of a new connection; None when it came to nothing."""
        self._know(connection)
        if self.held():
            self._forget(connection)
            return None
        connection.settimeout(_HANDSHAKE_TIMEOUT)
        secure = self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        self._forget(connection)
        self._know(secure)
        try:
            secure.do_handshake()
        except OSError:  # a client that does not like the certificate, or went away
            self.closed(secure)
            return None
        secure.settimeout(_IDLE_TIMEOUT)
        return secure

    def closed(self, connection: socket.socket) -> None:
        """Close a connection and forget it."""
        self._forget(connection)
        with contextlib.suppress(OSError):
            connection.close()

    def held(self) -> bool:
        """Wait while the endpoint is a black hole; True if it had to be waited for."""
        with self._lock:
            released, silent = self._released, self._silent
        if silent:
            released.wait()
        return silent

    def hold(self, seconds: float | None = None) -> None:
        """Wait until the rules are cleared or the connections are cut, or for some seconds."""
        with self._lock:
            released = self._released
        released.wait(seconds)

    def arrival(self, method: str) -> Rule | None:
        """Count a call and find its rule."""
        with self._lock:
            self._arrived[method] += 1
            return next((rule for rule in self._rules if rule.takes(method)), None)

    def forward(
        self, verb: str, path: str, headers: dict[str, str], body: bytes, method: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Have the vCenter execute a call; raises OSError when it is not there."""
        connection = http.client.HTTPSConnection(
            *self._upstream, context=self._trust, timeout=_IDLE_TIMEOUT
        )
        connection.connect()
        upstream: socket.socket = connection.sock
        self._know(upstream)
        try:
            connection.request(verb, path, body=body or None, headers=headers)
            with self._lock:
                self._passed[method] += 1
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()
            self._forget(upstream)

    def _know(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, proxy: SoapProxy, port: int = 0) -> None:
        self.proxy = proxy
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that breaks is what the proxy is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        """Answer the TLS handshake, in the thread of this connection and not in that of all."""
        self.secure = self.server.proxy.opened(self.request)
        if self.secure is not None:
            self.request = self.secure
        super().setup()

    def handle(self) -> None:
        """Serve one connection until somebody ends it."""
        if self.secure is not None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                super().handle()

    def finish(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            super().finish()
        if self.secure is not None:
            self.server.proxy.closed(self.secure)

    def do_GET(self) -> None:
        """Forward, unless a rule has other plans."""
        self._exchange()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        """No lines on standard error."""

    def _exchange(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self._cut()  # whoever called went away before all was said
            return
        method = soap_method(body) or f"{self.command} {rest_path(self.path)}"
        proxy = self.server.proxy
        rule = proxy.arrival(method)
        if proxy.held():
            self._cut()
        elif rule is None:
            self._pass(body, method)
        else:
            self._obey(rule, body, method)

    def _obey(self, rule: Rule, body: bytes, method: str) -> None:
        match rule.action:
            case Action.CUT:
                self._cut()
            case Action.BLACK_HOLE:
                self.server.proxy.hold()
                self._cut()
            case Action.ANSWER:
                self._reply(rule.status, {"Content-Type": rule.content_type}, rule.content)
            case Action.DROP_REPLY:
                self._forward(body, method)
                self._cut()
            case Action.HALF_BODY:
                self._pass(body, method, half=True)
            case Action.STRIP_COOKIE:
                self._pass(body, method, without=_SESSION)
            case Action.DELAY:
                self.server.proxy.hold(rule.seconds)
                self._pass(body, method)

    def _forward(
        self, body: bytes, method: str, without: frozenset[str] = frozenset()
    ) -> tuple[http.client.HTTPResponse, bytes] | None:
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _HOP_BY_HOP and name.lower() not in without
        }
        try:
            return self.server.proxy.forward(self.command, self.path, headers, body, method)
        except (OSError, http.client.HTTPException):
            return None

    def _pass(
        self,
        body: bytes,
        method: str,
        *,
        without: frozenset[str] = frozenset(),
        half: bool = False,
    ) -> None:
        answer = self._forward(body, method, without)
        if answer is None or self.server.proxy.held():
            self._cut()
            return
        response, content = answer
        headers = {
            name: value
            for name, value in response.getheaders()
            if name.lower() not in _HOP_BY_HOP and name.lower() != "date"
        }
        self._reply(response.status, headers, content, half=half)

    def _reply(
        self, status: int, headers: dict[str, str], content: bytes, *, half: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if half else content)
        if half:
            self._cut()

    def _cut(self) -> None:
        self.close_connection = True
        _reset(self.request)


def _server_context(certificate: KeyPair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The standard library loads keys from files only.
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(*certificate.write(Path(directory), "proxy"))
    return context


def _reset(connection: socket.socket) -> None:
    """End a connection with a reset, so that nobody takes it for a complete answer."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        # Not that of SSLSocket, which takes the TLS state from under the thread that reads.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
