"""A REST service as vCenters have it, in either dialect, for tests of our client alone.

It speaks TLS with a certificate of its own and remembers every request.
"""

import base64
import contextlib
import functools
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from test.kit.certificates import Authority, KeyPair

LOGIN = "Basic " + base64.b64encode(b"admin:planted-4713-rest-password").decode()
PASSWORD = "planted-4713-rest-password"

Answer = tuple[int, Any]


@dataclass
class RestServer:
    """One service.

    Attributes:
        old: whether it knows only the older dialect.
        answers: what paths answer, by method, path and action.
        seen: method, path with query, and body of every request.
        tokens: sessions that are open.
        silent: whether it says nothing any more.
        half: whether its answers break off in the middle.
        hung: whether it takes requests and answers none, until it is let go.
    """

    old: bool = False
    answers: dict[tuple[str, str, str], Callable[[Any], Answer]] = field(default_factory=dict)
    seen: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    logins: int = 0
    port: int = 0
    thumbprint: str = ""
    silent: threading.Event = field(default_factory=threading.Event)
    half: threading.Event = field(default_factory=threading.Event)
    hung: threading.Event = field(default_factory=threading.Event)
    freed: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: Any) -> Answer:  # noqa: ANN401 - JSON
        """What a request is answered with."""
        self.seen.append((method, target, body))
        parts = urlsplit(target)
        action = parse_qs(parts.query)
        prefix = "/rest/" if self.old else "/api/"
        if not parts.path.startswith(prefix):
            return 404, None
        session = "com/vmware/cis/session" if self.old else "session"
        path = parts.path.removeprefix(prefix)
        if path == session:
            return self._session(method, headers)
        if headers.get("vmware-api-session-id") not in self.tokens:
            return 401, {"error_type": "UNAUTHENTICATED"}
        name = (action.get("~action" if self.old else "action") or [""])[0]
        found = self.answers.get((method, path, name))
        return found(body) if found else (404, {"error_type": "NOT_FOUND"})

    def _session(self, method: str, headers: Mapping[str, str]) -> Answer:
        if method == "DELETE":
            self.tokens.remove(headers.get("vmware-api-session-id") or "")
            return 204, None
        if headers.get("Authorization") != LOGIN:
            return 401, {"error_type": "UNAUTHENTICATED"}
        self.logins += 1
        self.tokens.append(f"token-{self.logins}")
        return 201, self.tokens[-1]


@functools.cache
def _pair() -> KeyPair:
    return Authority("banlieue test REST CA").issue("rest", hosts=["127.0.0.1"])


@contextlib.contextmanager
def rest_server(directory: Path, *, old: bool = False) -> Iterator[RestServer]:
    """A service that is up while the block runs."""
    state = RestServer(old=old)
    pair = _pair()
    pair.write(directory, "rest")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            if state.hung.is_set():
                state.freed.wait(30.0)
            if state.silent.is_set():
                self.close_connection = True
                return
            status, value = state.answer(
                self.command, self.path, dict(self.headers), json.loads(text) if text else None
            )
            if state.old and status < 300 and value is not None:
                value = {"value": value}
            content = b"" if value is None else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if state.half.is_set():
                content = content[: len(content) // 2]
                self.close_connection = True
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base names it
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "rest.crt", directory / "rest.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    state.port, state.thumbprint = server.server_address[1], pair.thumbprint
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.freed.set()
        server.shutdown()
        server.server_close()
        thread.join()
