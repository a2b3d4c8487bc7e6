import asyncio
import subprocess
import sys
import threading

import pytest

from banlieue.sdk.calls import CallPool, PoolClosedError


class Gate:
    """A blocking call that ends when the test says so."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self) -> str:
        self.entered.release()
        assert self.open.wait(20)
        return "through"


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.acquire, timeout=10)


async def test_gives_result_and_error() -> None:
    pool = CallPool("p")
    assert await pool(lambda: 42, timeout=5) == 42
    with pytest.raises(ZeroDivisionError):
        await pool(lambda: 1 // 0, timeout=5)
    pool.close()


async def test_runs_no_more_calls_at_once_than_its_size() -> None:
    pool, gate = CallPool("p", size=2), Gate()
    calls = [asyncio.create_task(pool(gate, timeout=20)) for _ in range(5)]
    await entered(gate)
    await entered(gate)
    assert pool.waiting == 3
    assert not gate.entered.acquire(timeout=0.05)
    gate.open.set()
    assert await asyncio.gather(*calls) == ["through"] * 5
    pool.close()


async def test_a_hung_call_times_out_and_its_thread_is_replaced() -> None:
    pool, gate = CallPool("p", size=1), Gate()
    with pytest.raises(TimeoutError):
        await pool(gate, timeout=0.05)
    assert pool.hanging == 1
    assert await pool(lambda: "next", timeout=5) == "next"
    gate.open.set()
    pool.close()


async def test_hung_calls_are_replaced_within_bounds_and_make_room_when_they_return() -> None:
    pool, gate = CallPool("p", size=1, spare=1), Gate()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await pool(gate, timeout=0.05)
    made: list[int] = []
    with pytest.raises(TimeoutError):
        await pool(lambda: made.append(1), timeout=0.05)
    gate.open.set()
    assert await pool(lambda: "again", timeout=10) == "again"
    assert not made, "a call that was given up before it began must never be made"
    pool.close()


async def test_a_cancelled_caller_gives_its_thread_back() -> None:
    pool, gate = CallPool("p", size=1), Gate()
    caller = asyncio.create_task(pool(gate, timeout=20))
    await entered(gate)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await pool(lambda: 1, timeout=5) == 1
    gate.open.set()
    pool.close()


async def test_closing_refuses_waiting_calls_and_lets_running_ones_end() -> None:
    pool, gate = CallPool("p", size=1), Gate()
    running = asyncio.create_task(pool(gate, timeout=20))
    await entered(gate)
    waiting = asyncio.create_task(pool(lambda: 1, timeout=20))
    await asyncio.sleep(0)  # sleep-ok: lets other tasks run
    pool.close()
    with pytest.raises(PoolClosedError):
        await waiting
    with pytest.raises(PoolClosedError):
        await pool(lambda: 1, timeout=5)
    gate.open.set()
    assert await running == "through"


async def test_stop_iteration_reaches_the_caller_as_an_error() -> None:
    pool = CallPool("p")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool(lambda: next(iter(())), timeout=5)
    pool.close()


@pytest.mark.slow
def test_a_hung_call_does_not_keep_the_interpreter_alive() -> None:
    code = (
        "import asyncio, threading\n"
        "from banlieue.sdk.calls import CallPool\n"
        "async def main():\n"
        "    pool = CallPool('p', size=1)\n"
        "    try:\n"
        "        await pool(lambda: threading.Event().wait(600), timeout=0.05)\n"
        "    except TimeoutError:\n"
        "        print('given up')\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=180, check=True
    )
    assert ended.stdout == b"given up\n"
