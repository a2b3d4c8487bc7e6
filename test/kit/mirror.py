"""A web server on loopback that images are imported from; tests hold it back and let it fail.

with Mirror({"ubuntu.img": content}) as mirror:
    mirror.hold(after=1024)
    ... import mirror.url("ubuntu.img") ...
    mirror.release()
"""

import base64
import hashlib
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

_PIECE: Final = 64 * 1024
_PATIENCE: Final = 30.0
_POLL: Final = 0.02


def checksum(content: bytes) -> str:
    """The digest of a content, as a VMImage's source gives it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Mirror:
    """Serves contents by name.

    Attributes:
        requests: Names that were asked for, in order.
        status: What is answered instead of a content; 200 for contents.
        login: What is asked for as `user:password`; empty for nobody.
        cut: After how many bytes the connection breaks; None for never.
    """

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = dict(contents)
        self.requests: list[str] = []
        self.status = 200
        self.login = ""
        self.cut: int | None = None
        self._held_after: int | None = None
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, name: str, *, login: str = "") -> str:
        """Where a content is found, with a login in the URL if one is given."""
        host = f"127.0.0.1:{self._server.server_address[1]}"
        return f"http://{login}@{host}/{name}" if login else f"http://{host}/{name}"

    def hold(self, *, after: int) -> None:
        """Send so many bytes of every content and then nothing, until `release`."""
        self._released.clear()
        self._held_after = after

    def release(self) -> None:
        """Send the rest, now and from now on."""
        self._held_after = None
        self._released.set()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Serve one request."""
        name = handler.path.lstrip("/")
        self.requests.append(name)
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and handler.headers.get("Authorization") != wanted:
            handler.send_error(401)
            return
        if self.status != 200 or name not in self.contents:
            handler.send_error(self.status if self.status != 200 else 404)
            return
        content = self.contents[name]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        self._send(handler, content)

    def _send(self, handler: BaseHTTPRequestHandler, content: bytes) -> None:
        sent = 0
        while sent < len(content):
            end = min(len(content), sent + _PIECE)
            held = self._held_after
            if held is not None:
                end = min(end, max(held, sent))
            if self.cut is not None and end >= self.cut:
                handler.close_connection = True
                return
            handler.wfile.write(content[sent:end])
            handler.wfile.flush()
            sent = end
            if held is not None and sent >= held:
                self._released.wait(_PATIENCE)


def _handler_of(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                mirror.answer(self)
            except ConnectionError:
                self.close_connection = True  # who asked has hung up

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base names it
            """Say nothing: `requests` tells."""

    return Handler
