import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from banlieue.sdk.runtime.clock import SystemClock
from banlieue.sdk.runtime.health import Health, LoopLag
from banlieue.sdk.runtime.metrics import Metrics
from test.kit.stepped_clock import SteppedClock


@pytest.fixture
async def health() -> AsyncIterator[Health]:
    made = Health(Metrics())
    await made.serve("127.0.0.1", 0)
    yield made
    await made.close()


async def fetch(health: Health, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{health.port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_readiness_names_what_is_missing(health: Health) -> None:
    why = "waiting for: things"
    health.add_ready("synced", lambda: why)
    health.add_ready("leader", lambda: "")
    status, text = await fetch(health, "/readyz")
    assert status == 503
    assert "[-] synced: waiting for: things" in text
    assert "[+] leader" in text
    why = ""
    assert (await fetch(health, "/readyz"))[0] == 200


async def test_liveness_is_apart_from_readiness(health: Health) -> None:
    health.add_ready("synced", lambda: "not yet")
    health.add_live("loop", lambda: "")
    assert (await fetch(health, "/healthz"))[0] == 200
    health.add_live("loop", lambda: "stuck")
    assert (await fetch(health, "/healthz"))[0] == 503


async def test_metrics_are_served_under_known_names(health: Health) -> None:
    health._metrics.passes.labels("things", "success").inc()
    status, text = await fetch(health, "/metrics")
    assert status == 200
    assert 'controller_runtime_reconcile_total{controller="things",result="success"} 1.0' in text


async def test_a_removed_check_no_longer_counts(health: Health) -> None:
    health.add_ready("provider", lambda: "not connected")
    health.remove_ready("provider")
    assert (await fetch(health, "/readyz"))[0] == 200


async def test_a_stuck_loop_is_noticed() -> None:
    class Stuck(SteppedClock):
        """Each sleep takes six seconds longer than asked."""

        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds + 6.0)

    clock = Stuck()
    lag = LoopLag(clock, Metrics())
    assert lag.check() == ""
    task = asyncio.ensure_future(lag.run())
    await clock.advance(7.0)
    assert "stuck for 6.0 s" in lag.check()
    task.cancel()


async def test_a_free_loop_is_healthy() -> None:
    lag = LoopLag(SystemClock(), Metrics())
    task = asyncio.ensure_future(lag.run())
    await asyncio.sleep(0)  # sleep-ok: lets other tasks run
    assert lag.check() == ""
    task.cancel()
