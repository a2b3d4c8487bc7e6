"""The probes and metrics endpoint: /healthz, /readyz, /metrics."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable

from aiohttp import web

from banlieue.sdk.reconcile import Clock
from banlieue.sdk.runtime.metrics import Metrics

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""Gives an empty string when all is well, else what is wrong in a few words. Total and quick."""

MAX_LAG = 5.0
_BEAT = 0.5
_REMEMBERED_BEATS = 20


class LoopLag:
    """Measures how late the event loop runs."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._lags: deque[float] = deque(maxlen=_REMEMBERED_BEATS)

    @property
    def worst(self) -> float:
        """The longest recent delay in seconds."""
        return max(self._lags, default=0.0)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(_BEAT)
            self._lags.append(max(0.0, self._clock.monotonic() - before - _BEAT))
            self._metrics.loop_lag.set(self.worst)

    def check(self) -> str:
        """Fail when the loop was stuck for longer than `MAX_LAG`."""
        lag = self.worst
        return f"the event loop was stuck for {lag:.1f} s" if lag > MAX_LAG else ""


class CannotListenError(Exception):
    """Probes and metrics cannot be served; the message says where and what to do."""


class Health:
    """Liveness and readiness checks by name, and the server that answers for them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    def add_live(self, name: str, check: Check) -> None:
        """Add a reason to be restarted."""
        self._live[name] = check

    def add_ready(self, name: str, check: Check) -> None:
        """Add a reason not to be ready."""
        self._ready[name] = check

    def remove_ready(self, name: str) -> None:
        """Take a readiness check away, if it is there."""
        self._ready.pop(name, None)

    def live(self) -> dict[str, str]:
        """Answers of all liveness checks by name."""
        return {name: check() for name, check in self._live.items()}

    def ready(self) -> dict[str, str]:
        """Answers of all readiness checks by name."""
        return {name: check() for name, check in self._ready.items()}

    async def serve(self, host: str, port: int) -> None:
        """Listen; port 0 picks a free one, which `port` then tells.

        Raises:
            CannotListenError: the port is taken, or not ours to take.
        """
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/livez", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._render_metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise CannotListenError(
                f"cannot listen on {host}:{port}: {why}; choose another with --http-port, 0 is any"
            ) from None
        self.port = self._runner.addresses[0][1]
        log.info("serving probes and metrics", extra={"host": host, "port": self.port})

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self.live())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self.ready())

    async def _render_metrics(self, _: web.Request) -> web.Response:
        body = await asyncio.to_thread(self._metrics.render)
        return web.Response(
            body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


def _answer(found: dict[str, str]) -> web.Response:
    lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in found.items()]
    bad = any(found.values())
    lines.append("not ok" if bad else "ok")
    return web.Response(text="\n".join(lines) + "\n", status=503 if bad else 200)
