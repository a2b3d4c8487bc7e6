"""A watch engine of our own, for kinds of which there may be tens of thousands of objects.

It lists page by page and watches, on the process's loop, and does nothing else with an object than
hand it over: kopf would need half a millisecond more for each. Kinds of which there are few stay
with kopf; see `banlieue.sdk.runtime.routing`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from random import Random
from typing import Any

import aiohttp

from banlieue.sdk.kube import Obj
from banlieue.sdk.runtime import wire
from banlieue.sdk.runtime.client import CONNECT_TIMEOUT, TIMEOUT
from banlieue.sdk.runtime.connection import Connection, NoConnectionError, close_connector
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.sources import KindGoneError, Sink, Stream

_PAGE = 200
"""Objects of one page: all of them are in memory at once, and parsing them stops the loop."""

_AT_ONCE = 50
_SILENCE = 75.0
"""Seconds without any event after which a watch counts as dead; bookmarks come every minute."""

_READ_BUFFER = 2**21
_FIRST_BACKOFF = 0.2
_MAX_BACKOFF = 5.0
_ENDED_PAUSE = 0.1
_PATIENCE = 3
"""Refusals in a row after which a watch no longer goes on where it was."""


class Reflector:
    """Implements `banlieue.sdk.runtime.sources.EventSource`."""

    def __init__(
        self, connection: Connection, *, user_agent: str, metrics: Metrics, rng: Random
    ) -> None:
        self._connection = connection
        self._user_agent = user_agent
        self._metrics = metrics
        self._rng = rng

    async def watch(self, stream: Stream, sink: Sink) -> None:
        """Deliver until cancelled; see `EventSource.watch`."""
        connector = self._connection.connector(limit=0)
        session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._user_agent, "Accept": "application/json"},
            read_bufsize=_READ_BUFFER,
            trust_env=True,
        )
        asking = _Asking(self._connection, session, self._metrics)
        try:
            await _Run(stream, sink, asking, Random(self._rng.getrandbits(64))).forever()  # noqa: S311 - jitter
        finally:
            await session.close()
            await close_connector(connector)


class _Expired(Exception):
    """The API server does not know the version any more: list again."""


class _Refused(Exception):
    """An answer that is none; `retry_after` is in seconds, `rights` are what is missing."""

    def __init__(self, what: str, retry_after: float = 0.0, *, rights: bool = False) -> None:
        super().__init__(what)
        self.retry_after = retry_after
        self.rights = rights


class _Asking:
    """GET requests with fresh credentials, counted."""

    def __init__(
        self, connection: Connection, session: aiohttp.ClientSession, metrics: Metrics
    ) -> None:
        self._connection = connection
        self._session = session
        self._metrics = metrics

    @asynccontextmanager
    async def get(
        self, path: str, query: dict[str, str], *, total: float | None, silence: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer with status 200; credentials that were refused are read again once."""
        timeout = aiohttp.ClientTimeout(
            total=total, sock_connect=CONNECT_TIMEOUT, sock_read=silence
        )
        response = await self._send(path, query, timeout)
        try:
            if response.status == HTTPStatus.UNAUTHORIZED:
                response.release()
                await self._reload()
                response = await self._send(path, query, timeout)
            _check(path, response)
            yield response
        finally:
            response.close()

    async def _send(
        self, path: str, query: dict[str, str], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        token = await self._connection.authorization()
        headers = {"Authorization": token} if token else {}
        try:
            response = await self._session.get(
                f"{self._connection.host}{path}", params=query, headers=headers, timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._metrics.requests.labels("<error>", "GET").inc()
            raise
        self._metrics.requests.labels(str(response.status), "GET").inc()
        return response

    async def _reload(self) -> None:
        try:
            await self._connection.reload()
        except NoConnectionError as e:
            raise _Refused(str(e)) from e


class _Run:
    """One stream: list, watch, and again."""

    def __init__(self, stream: Stream, sink: Sink, asking: _Asking, rng: Random) -> None:
        self._stream = stream
        self._sink = sink
        self._asking = asking
        self._rng = rng
        self._path = wire.path(stream.resource, stream.namespace)
        self._selected = wire.selectors(stream.label_selector, stream.field_selector)
        self._version = ""
        self._failures = 0

    async def forever(self) -> None:
        """List where there is no version to go on from, watch, and live through everything else.

        Raises:
            KindGoneError: the kind is not served.
        """
        while True:
            try:
                if not self._version:
                    self._version = await self._list()
                    self._failures = 0
                await self._watch()
            except _Expired:
                self._version = ""
            except _Refused as e:
                if self._failures >= _PATIENCE:
                    # The version itself may be refused: a restored server never had it.
                    self._version = ""
                if e.rights:
                    self._sink.refused()
                await self._pause(str(e), e.retry_after)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
                await self._pause(str(e) or type(e).__name__)
            await asyncio.sleep(self._rng.uniform(0.0, _ENDED_PAUSE))

    async def _list(self) -> str:
        """Hand over everything there is; the version the list was taken at."""
        version, token = "", ""
        while True:
            query = {**self._selected, "limit": str(_PAGE)}
            if token:
                query["continue"] = token
            async with self._asking.get(self._path, query, total=TIMEOUT) as response:
                page = json.loads(await response.read())
            meta = page.get("metadata") or {}
            version = meta.get("resourceVersion") or version
            await self._hand_over(page.get("items") or [])
            token = meta.get("continue") or ""
            if not token:
                self._sink.listed()
                return str(version)

    async def _hand_over(self, items: list[Obj]) -> None:
        resource = self._stream.resource
        for number, obj in enumerate(items):
            if number % _AT_ONCE == 0:
                # Let others run in between.
                await asyncio.sleep(0)
            obj.setdefault("apiVersion", resource.api_version)
            obj.setdefault("kind", resource.kind)
            self._sink.event(None, obj)

    async def _watch(self) -> None:
        """Hand over events until the API server ends the watch, as it does after a while.

        A connection that breaks off is no trouble before a new one does not come about.
        """
        query = {
            **self._selected,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
        }
        answer = self._asking.get(self._path, query, total=None, silence=_SILENCE)
        async with answer as response:
            self._failures = 0
            self._sink.watching()
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async for line in response.content:
                    if line.strip():
                        self._take(line)

    def _take(self, line: bytes) -> None:
        event: dict[str, Any] = json.loads(line)
        kind, obj = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            if obj.get("code") == HTTPStatus.GONE:
                raise _Expired
            # What it means for the version is not known.
            self._version = ""
            raise _Refused(f"watch of {self._path}: {obj.get('message') or obj.get('reason')}")
        self._version = (obj.get("metadata") or {}).get("resourceVersion") or self._version
        if kind in {"ADDED", "MODIFIED", "DELETED"}:
            self._sink.event(kind, obj)

    async def _pause(self, why: str, at_least: float = 0.0) -> None:
        self._sink.trouble(why)
        ceiling = min(_MAX_BACKOFF, _FIRST_BACKOFF * 2 ** min(self._failures, 10))
        self._failures += 1
        await asyncio.sleep(at_least + self._rng.uniform(ceiling / 2, ceiling))


def _check(path: str, response: aiohttp.ClientResponse) -> None:
    """Raises what an answer other than 200 means."""
    if response.status == HTTPStatus.OK:
        return
    if response.status == HTTPStatus.NOT_FOUND:
        raise KindGoneError(path)
    if response.status == HTTPStatus.GONE:
        raise _Expired
    retry_after = wire.retry_after(response.headers.get("Retry-After"))
    raise _Refused(
        f"GET {path}: HTTP {response.status}",
        retry_after or 0.0,
        rights=response.status == HTTPStatus.FORBIDDEN,
    )
