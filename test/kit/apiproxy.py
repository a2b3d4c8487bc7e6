"""A proxy in front of the API server that sees every write of one role, and may lose it.

A role whose kubeconfig is `proxy.kubeconfig(...)` talks through it. `hook` is called around each
write that changes an object of ours (no Leases, no Events); what it answers decides what becomes
of the request. That is how tests kill a process at each write boundary.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Self

import aiohttp
from aiohttp import web

from test.kit.controlplane import ControlPlane
from test.kit.kubeconfig import Access, read_kubeconfig
from test.kit.waiting import wait_until_async

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_NOT_OURS: Final = ("/leases", "/events", "/selfsubject", "/tokenreviews")
_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host"}
)
_DISCONNECT_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 40.0


class Moment(Enum):
    """When the hook is asked."""

    BEFORE = "before the request is sent on"
    AFTER = "after it was executed, before the answer is given"


class Fate(Enum):
    """What becomes of a request."""

    PASS = "pass"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Write:
    """One write as it passes: its number from 0, method and path."""

    number: int
    method: str
    path: str


Hook = Callable[[Write, Moment], Fate]


def _pass(write: Write, moment: Moment) -> Fate:
    del write, moment
    return Fate.PASS


class ApiProxy:
    """Forwards to a control plane; `hook` may be replaced at any time, from any thread.

    The hook runs in a thread of the proxy, so it may block, kill processes and wait for them.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        self._upstream = control_plane.url
        self._trust = ssl.create_default_context(cadata=control_plane.authority.decode())
        self.hook: Hook = _pass
        self.writes: list[Write] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def kubeconfig(self, original: Path) -> Path:
        """A kubeconfig like `original`, by way of this proxy; written beside it."""
        access = read_kubeconfig(original)
        proxied = Access(self.url, b"", token=access.token, namespace=access.namespace)
        return proxied.write(original.with_suffix(".proxied.yaml"))

    def reset(self) -> None:
        """Count writes from 0 again, and let all pass."""
        with self._lock:
            self.hook = _pass
            self.writes = []

    async def _start(self) -> None:
        connector = aiohttp.TCPConnector(
            ssl=self._trust, limit=0, socket_factory=self._new_connection
        )
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        # Connections of roles that were killed, which the server no longer waits for.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        # Only now does nobody hold a connection any more, and all are closed.
        if self._session is not None:
            await self._session.close()
        closing = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*closing, return_exceptions=True)
        await self._disconnect()

    def _new_connection(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        self._connections.add(connection)
        return connection

    async def _disconnect(self) -> None:
        """End what still says goodbye to the API server, which its session does not wait for."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        await wait_until_async(
            lambda: all(connection.fileno() < 0 for connection in self._connections),
            _DISCONNECT_SECONDS,
            "the connections to the API server to end",
        )

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        write = self._noted(request)
        body = await request.read()
        if write is not None and await self._fate(write, Moment.BEFORE) is Fate.CUT:
            return self._cut(request)
        if self._session is None:
            raise web.HTTPServiceUnavailable
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        url = f"{self._upstream}{request.path_qs}"
        try:
            async with self._session.request(
                request.method,
                url,
                headers=headers,
                data=body or None,
                timeout=aiohttp.ClientTimeout(),
                skip_auto_headers=["Content-Type"],
            ) as upstream:
                return await self._answer(request, upstream, write)
        except aiohttp.ClientConnectionError:
            return self._cut(request)

    async def _answer(
        self, request: web.Request, upstream: aiohttp.ClientResponse, write: Write | None
    ) -> web.StreamResponse:
        if write is not None:
            content = await upstream.read()
            if await self._fate(write, Moment.AFTER) is Fate.CUT:
                return self._cut(request)
        answer = web.StreamResponse(status=upstream.status)
        for key, value in upstream.headers.items():
            if key.lower() not in _HOP - {"content-encoding"}:
                answer.headers[key] = value
        # A client that goes away ends its watch; that is no error of ours.
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            await answer.prepare(request)
            if write is not None:
                await answer.write(content)
            else:
                async for chunk in upstream.content.iter_any():
                    await answer.write(chunk)
            await answer.write_eof()
        return answer

    def _noted(self, request: web.Request) -> Write | None:
        if request.method not in _WRITES or any(part in request.path for part in _NOT_OURS):
            return None
        with self._lock:
            write = Write(len(self.writes), request.method, request.path)
            self.writes.append(write)
        return write

    async def _fate(self, write: Write, moment: Moment) -> Fate:
        return await asyncio.to_thread(self.hook, write, moment)

    @staticmethod
    def _cut(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=503)
