"""A gate in front of any TCP endpoint that can be shut without a sound, as a black hole is.

While it is shut connections are accepted, bytes are taken, and nothing comes back. When it opens
again everything goes on, so what was sent meanwhile arrives late, as it does on a network that
repeats lost packets, even when the sender has given up.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

from test.kit.ports import LOOPBACK

_CHUNK: Final = 1 << 16
_START_SECONDS: Final = 10.0


class Gate:
    """Forwards bytes to one endpoint; runs in a thread of its own while its block lasts.

    Attributes:
        url: The endpoint's URL by way of the gate.
    """

    def __init__(self, url: str) -> None:
        """Stand before the endpoint of a URL with a port."""
        self._parts = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open = asyncio.Event()
        self._open.set()
        self._ways: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_START_SECONDS)
        self.url = urlunsplit(self._parts._replace(netloc=f"{LOOPBACK}:{port}"))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_SECONDS)
        self._loop.close()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Let nothing through while the block lasts."""
        self._loop.call_soon_threadsafe(self._open.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._open.set)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for way in tuple(self._ways):
            way.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)
        # Transports close in a later turn of the loop.
        await asyncio.sleep(0)  # sleep-ok: lets other tasks run

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._ways.add(way)
        way.add_done_callback(self._ways.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            async with _closing(writer):
                await self._open.wait()
                back, there = await asyncio.open_connection(self._parts.hostname, self._parts.port)
                async with _closing(there):
                    await asyncio.gather(self._pump(reader, there), self._pump(back, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        await self._open.wait()
        with contextlib.suppress(OSError):
            sink.write_eof()


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Have a connection closed when the block ends: all sent, or at once when that is cut short."""
    try:
        yield
        writer.close()
        await writer.wait_closed()
    finally:
        writer.transport.abort()
