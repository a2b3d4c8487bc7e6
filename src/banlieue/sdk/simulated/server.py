"""A simulated world in a process of its own: `python -m banlieue.sdk.simulated.server`.

Speaks JSON over HTTP: `POST /call` for accounts, `POST /control` for what happens behind their
back. The control part asks for no login, so listen on loopback unless nobody else is there.
Prints its address as the first line of its output.
"""

import argparse
import contextlib
import json
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from banlieue.sdk.simulated.clock import SystemClock
from banlieue.sdk.simulated.faults import Code, ConnectionLost, WorldFault
from banlieue.sdk.simulated.records import Account, default_state
from banlieue.sdk.simulated.statefile import StateFile
from banlieue.sdk.simulated.world import PASSWORD, USERNAME, World, account

_LARGEST_BODY = 16 * 1024 * 1024


class WorldServer(ThreadingHTTPServer):
    """Serves one world; `server_address` tells where."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], world: World) -> None:
        super().__init__(address, _Handler)
        self.world = world

    def handle_error(self, request: object, client_address: object) -> None:
        """Callers that hang up before the answer are none of our business; others are shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type] # as it came

    @property
    def url(self) -> str:
        """What `connection.endpoint` of a Provider names."""
        host, port = self.server_address[0], self.server_address[1]
        return f"http://{host!s}:{port}"


class _Handler(BaseHTTPRequestHandler):
    server: WorldServer

    def do_POST(self) -> None:
        try:
            answer = self._answer(self._body())
        except ConnectionLost:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        except WorldFault as fault:
            answer = {"fault": {"code": fault.code, "message": fault.message}}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        method, params = str(body.get("method")), dict(body.get("params") or {})
        if self.path == "/call":
            session = str(body.get("session") or "")
            return {"result": self.server.world.call(method, params, session=session)}
        if self.path == "/control":
            return {"result": self.server.world.control(method, params)}
        raise WorldFault(Code.INVALID_ARGUMENT, f"there is nothing at {self.path}")

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= _LARGEST_BODY:
            raise WorldFault(Code.INVALID_ARGUMENT, "the call has no body, or too large a one")
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError as error:
            raise WorldFault(Code.INVALID_ARGUMENT, "the call is no JSON") from error
        if not isinstance(body, dict):
            raise WorldFault(Code.INVALID_ARGUMENT, "the call is no JSON object")
        return body

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base names it
        """Say nothing: the counters of the control API tell what was called."""


def make_world(options: argparse.Namespace) -> World:
    """The world that the options describe: loaded from the state file, or new."""
    clock = SystemClock()
    rng = SystemRandom() if options.seed is None else Random(options.seed)  # noqa: S311 - replayable
    file = StateFile(options.state) if options.state else None
    state = file.load(clock.monotonic()) if file else None
    if state is None:
        state = default_state(options.identity or f"simulated-{rng.getrandbits(64):016x}")
        state.accounts.update(_accounts(options.credentials, rng))
        if file:
            state.saved_at = clock.monotonic()
            file.save(state)  # its identity must outlive a kill before the first change
    for name, seconds in options.latency:
        setattr(state.latencies, name, seconds)
    return World(state, clock=clock, rng=rng, save=file.save if file else None)


def _accounts(credentials: Path | None, rng: Random) -> dict[str, Account]:
    if credentials is None:
        return {USERNAME: account(PASSWORD, rng)}
    login = json.loads(credentials.read_text(encoding="utf-8"))
    return {str(login["username"]): account(str(login["password"]), rng)}


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


def _latency(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    return name, float(seconds)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="banlieue.sdk.simulated.server", description=__doc__)
    parser.add_argument("--listen", type=_address, default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--state", type=Path, help="file that keeps the world across restarts")
    parser.add_argument("--identity", help="lasting identity of a new world; default: random")
    parser.add_argument(
        "--credentials",
        type=Path,
        help="JSON file with username and password of a new world's account; "
        f"default: {USERNAME} and {PASSWORD}",
    )
    parser.add_argument(
        "--latency",
        type=_latency,
        action="append",
        default=[],
        metavar="STEP=SECONDS",
        help="how long create, power, shutdown, boot, delete or reconfigure take; repeatable",
    )
    parser.add_argument("--seed", type=int, help="make everything random repeatable")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Serve a world until SIGTERM or SIGINT."""
    options = _options(arguments)
    server = WorldServer(options.listen, make_world(options))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    server.serve_forever(poll_interval=0.1)
    server.server_close()


if __name__ == "__main__":
    main(sys.argv[1:])
