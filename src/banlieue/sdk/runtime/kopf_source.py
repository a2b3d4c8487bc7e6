"""kopf as the watch engine.

Each stream gets a kopf operator of its own, in a thread and loop of its own: kopf then neither
takes over the process's signal handlers nor cancels tasks that are not its own, streams of one
kind may differ in selectors, and one kind can vanish without the others noticing. The only
handlers are `on.event` ones; they hand the raw event over and return.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http import HTTPStatus
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf

from banlieue.sdk.kube import Obj
from banlieue.sdk.runtime.cache import EventType
from banlieue.sdk.runtime.client import CONNECT_TIMEOUT, PAGE, TIMEOUT
from banlieue.sdk.runtime.connection import Connection, NoConnectionError, close_connector
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.sources import KindGoneError, Sink, Stream

log = logging.getLogger(__name__)

_BATCH = 200
_STOP_WAIT = 15.0
_FIRST_BACKOFF = 0.2
_MAX_BACKOFF = 5.0
_READ_BUFFER = 2**21


class KopfSource:
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
        run = _Run(
            stream,
            _Mailbox(asyncio.get_running_loop(), sink),
            self._connection,
            user_agent=self._user_agent,
            metrics=self._metrics,
            rng=Random(self._rng.getrandbits(64)),  # noqa: S311 - jitter
        )
        await run.until_stopped()


class _Mailbox:
    """Carries a stream's events from kopf's thread to the process's loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        self.loop = loop
        self._sink = sink
        self._waiting: deque[tuple[EventType, Obj]] = deque()
        self._lock = threading.Lock()
        self._scheduled = False
        self._closed = False

    def close(self) -> None:
        """Deliver nothing more. On the process's loop."""
        self._closed = True

    def event(self, kind: EventType, obj: Obj) -> None:
        """Hand over an event. From kopf's thread; total."""
        with self._lock:
            self._waiting.append((kind, obj))
            if self._scheduled:
                return
            self._scheduled = True
        self.call(self._deliver)

    def listed(self) -> None:
        """Hand over that a list was answered. From kopf's thread; total."""
        self.call(self._tell, self._sink.listed)

    def watching(self) -> None:
        """Hand over that a watch is open. From kopf's thread; total."""
        self.call(self._tell, self._sink.watching)

    def trouble(self, what: str) -> None:
        """Hand over that a request failed. From kopf's thread; total."""
        self.call(self._tell, self._sink.trouble, what)

    def refused(self) -> None:
        """Hand over that rights are missing. From kopf's thread; total."""
        self.call(self._tell, self._sink.refused)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Run on the process's loop; silently nothing when that is gone."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            self._closed = True

    def _tell(self, function: Callable[..., object], *args: object) -> None:
        if not self._closed:
            function(*args)

    def _deliver(self) -> None:
        for _ in range(_BATCH):
            with self._lock:
                if not self._waiting:
                    self._scheduled = False
                    return
                kind, obj = self._waiting.popleft()
            if not self._closed:
                self._sink.event(kind, obj)
        # Let others run between batches of a long list.
        self.loop.call_soon(self._deliver)


class _Run:
    """One kopf operator in one thread, from start to end."""

    def __init__(
        self,
        stream: Stream,
        mailbox: _Mailbox,
        connection: Connection,
        *,
        user_agent: str,
        metrics: Metrics,
        rng: Random,
    ) -> None:
        self._stream = stream
        self._mailbox = mailbox
        self._connection = connection
        self._user_agent = user_agent
        self._metrics = metrics
        self._rng = rng
        self._kind_gone = False
        self._sessions: list[tuple[aiohttp.ClientSession, aiohttp.TCPConnector]] = []
        self._ended: asyncio.Future[None] = mailbox.loop.create_future()
        self._stop_lock = threading.Lock()
        self._stopping = False
        self._stop_in_thread: Callable[[], None] | None = None
        self._thread = threading.Thread(
            target=self._in_thread, name=f"kopf {stream.resource.plural}", daemon=True
        )

    async def until_stopped(self) -> None:
        """Run until cancelled or until kopf ends by itself, which is always an error."""
        self._thread.start()
        try:
            await asyncio.shield(self._ended)
        finally:
            self._mailbox.close()
            self._stop()
            await self._join()
        raise RuntimeError(f"kopf ended without an error while watching {self._stream}")

    def _stop(self) -> None:
        with self._stop_lock:
            self._stopping = True
            if self._stop_in_thread is not None:
                self._stop_in_thread()

    async def _join(self) -> None:
        done, _ = await asyncio.wait((self._ended,), timeout=_STOP_WAIT)
        if not done:
            log.warning("watch did not stop in time", extra={"stream": str(self._stream)})
            return
        self._ended.exception()
        self._thread.join(_STOP_WAIT)

    def _in_thread(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._operate())
        # The thread's top: whatever ends kopf is told to the process, which decides.
        except BaseException as e:  # noqa: BLE001 - told, not swallowed
            error = KindGoneError(str(self._stream)) if self._kind_gone else e
        with self._stop_lock:
            self._stop_in_thread = None
        self._mailbox.call(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    async def _operate(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        with self._stop_lock:
            if self._stopping:
                return
            self._stop_in_thread = lambda: _wake(loop, stop)
        namespace = self._stream.namespace
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=self._settings(),
                standalone=True,
                clusterwide=not namespace,
                namespaces=[namespace] if namespace else [],
                stop_flag=stop,
            )
        finally:
            # kopf closes its session only when it was asked to stop.
            for session, connector in self._sessions:
                await session.close()
                await close_connector(connector)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        resource, mailbox = self._stream.resource, self._mailbox

        async def login(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - kopf passes what it has
            return kopf.AiohttpSession(
                server=self._connection.host, aiohttp_session=self._session()
            )

        async def hand_over(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401 - as above
            mailbox.event(event["type"], event["object"])  # type: ignore[arg-type]  # its own types

        kopf.on.login(registry=registry)(login)
        kopf.on.event(
            group=resource.group,
            version=resource.version,
            plural=resource.plural,
            registry=registry,
            id="hand-over",
        )(hand_over)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        kind = (self._stream.resource.group, self._stream.resource.plural)
        if self._stream.field_selector:
            settings.watching.field_selectors[kind] = self._stream.field_selector
        if self._stream.label_selector:
            settings.watching.label_selectors[kind] = self._stream.label_selector
        settings.watching.chunk_size = PAGE
        settings.scanning.disabled = True
        settings.posting.enabled = False
        settings.queueing.idle_timeout = 0.2
        settings.networking.error_backoffs = _EndlessBackoffs(self._rng)
        settings.networking.enforce_retry_after = True
        settings.networking.request_timeout = TIMEOUT
        settings.networking.connect_timeout = CONNECT_TIMEOUT
        # It would kill the whole process; the drain has a deadline of its own.
        settings.process.ultimate_exiting_timeout = None
        settings.persistence.progress_storage = _NoProgress()
        settings.persistence.diffbase_storage = _NoDiffBase()
        return settings

    def _session(self) -> aiohttp.ClientSession:
        connector = self._connection.connector(limit=0)
        session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._user_agent},
            middlewares=(self._around_request,),
            read_bufsize=_READ_BUFFER,
            trust_env=True,
        )
        self._sessions.append((session, connector))
        return session

    async def _around_request(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Authorize, count, and keep answers that are no reason to end away from kopf."""
        response = await self._authorized(request, handler)
        if response.status == HTTPStatus.UNAUTHORIZED:
            response.release()
            await self._reload_credentials()
            response = await self._authorized(request, handler)
        url, status = urlsplit(str(request.url)), response.status
        of_kind = url.path.endswith(f"/{self._stream.resource.plural}")
        if status >= HTTPStatus.BAD_REQUEST:
            self._mailbox.trouble(f"{request.method} {url.path}: HTTP {status}")
        if status == HTTPStatus.FORBIDDEN and of_kind:
            self._mailbox.refused()
        if status == HTTPStatus.UNAUTHORIZED:
            # kopf would give up at once; as a lost connection it is tried again without end.
            response.release()
            raise aiohttp.ClientConnectionError("credentials refused")
        if status == HTTPStatus.GONE and of_kind:
            # An expired page of a list; kopf would give up at once instead of listing again.
            response.release()
            raise aiohttp.ClientPayloadError("the list expired while it was read")
        if status == HTTPStatus.NOT_FOUND and of_kind:
            self._kind_gone = True
        if status == HTTPStatus.OK and of_kind:
            watches = request.url.query.get("watch")
            (self._mailbox.watching if watches else self._mailbox.listed)()
        return response

    async def _authorized(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        token = await self._connection.authorization()
        if token:
            request.headers["Authorization"] = token
        try:
            response = await handler(request)
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            self._metrics.requests.labels("<error>", request.method).inc()
            self._mailbox.trouble(str(e) or type(e).__name__)
            raise
        self._metrics.requests.labels(str(response.status), request.method).inc()
        return response

    async def _reload_credentials(self) -> None:
        # The connection belongs to the process's loop.
        reloading = asyncio.run_coroutine_threadsafe(self._connection.reload(), self._mailbox.loop)
        try:
            await asyncio.wrap_future(reloading)
        except NoConnectionError as e:
            self._mailbox.trouble(str(e))


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    # The loop is closed when kopf has just ended by itself.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


class _EndlessBackoffs:
    """Delays between attempts of one request: doubling, jittered, without end."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def __iter__(self) -> Iterator[float]:
        ceiling = _FIRST_BACKOFF
        while True:
            yield self._rng.uniform(ceiling / 2, ceiling)
            ceiling = min(_MAX_BACKOFF, ceiling * 2)


class _NoProgress(kopf.ProgressStorage):
    """No change handlers, no progress: spares a look at the annotations per event."""

    def fetch(self, **_: Any) -> None:  # noqa: ANN401 - kopf's signature
        return None

    def store(self, **_: Any) -> None:  # noqa: ANN401 - kopf's signature
        return

    def purge(self, **_: Any) -> None:  # noqa: ANN401 - kopf's signature
        return

    def touch(self, **_: Any) -> None:  # noqa: ANN401 - kopf's signature
        return

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class _NoDiffBase(kopf.DiffBaseStorage):
    """No change handlers, no difference: spares a deep copy and a comparison per event."""

    def build(self, **_: Any) -> kopf.BodyEssence:  # noqa: ANN401 - kopf's signature
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:  # noqa: ANN401 - kopf's signature
        return None

    def store(self, **_: Any) -> None:  # noqa: ANN401 - kopf's signature
        return
