"""What runs the calls to a backend in the simulator: no threads that run at the same time."""

import asyncio
from collections.abc import Callable
from contextvars import Context

from banlieue.sdk.calls import PoolClosedError
from test.simulation.fibers import Fiber
from test.simulation.loop import Mortal
from test.simulation.network import Network


class Pools:
    """The pools of one process."""

    def __init__(self, network: Network, owner: Mortal) -> None:
        self.network = network
        self.owner = owner
        self.fibers: list[Fiber] = []
        self.broken_calls = 0.0
        self.interleaved = 0.3
        self.hanging = 0.0

    def make(self) -> "SimPool":
        """One more pool."""
        return SimPool(self)

    def abandon(self) -> None:
        """End the calls under way where they stand."""
        for fiber in self.fibers:
            fiber.abandon()
        self.fibers.clear()


class SimPool:
    """Runs a call at once, or in pieces between which others run."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._closed = False

    async def __call__(self, call: Callable[[], object], *, timeout: float) -> object:
        """Run the call; one that takes too long goes on by itself."""
        pools, network = self._pools, self._pools.network
        if self._closed:
            raise PoolClosedError("the pool is closed")
        await network.travel()
        if network.chance(pools.hanging):
            return await self._hang(call, timeout)
        if not network.chance(pools.interleaved):
            answer = call()
            await network.travel()
            return answer
        return await self._in_pieces(call, timeout)

    def close(self) -> None:
        """Take no more calls."""
        self._closed = True

    async def _in_pieces(self, call: Callable[[], object], timeout: float) -> object:
        pools, network = self._pools, self._pools.network
        fiber = Fiber(call)
        deadline = network.loop.time() + timeout
        pools.fibers.append(fiber)
        fiber.resume()
        while not fiber.done:
            await network.travel()
            if network.loop.time() >= deadline:
                network.loop.call_soon(_finish, fiber, context=Context())
                raise TimeoutError("no answer in time")
            fiber.resume()
        pools.fibers.remove(fiber)
        if fiber.error is not None:
            raise fiber.error
        return fiber.result

    async def _hang(self, call: Callable[[], object], timeout: float) -> object:
        """The answer comes too late, or the call was never made."""
        network = self._pools.network
        if network.rng.random() < 0.5:
            late = network.rng.random() * 2 * timeout
            network.loop.call_later(late, _quietly, call, context=Context())
        await network.clock.sleep(timeout)
        raise TimeoutError("no answer in time")


def _finish(fiber: Fiber) -> None:
    while not fiber.done:
        fiber.resume()


def _quietly(call: Callable[[], object]) -> None:
    fiber = Fiber(call)
    fiber.resume()
    _finish(fiber)


__all__ = ["Pools", "SimPool", "asyncio"]
