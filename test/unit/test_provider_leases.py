import asyncio
from collections.abc import AsyncIterator

import pytest

from banlieue.sdk.kube import Key
from banlieue.sdk.provider.leases import OnChange, ProviderLeases
from banlieue.sdk.testing.fakes import FakeLease, FakeLeases

PROVIDER, LEASE = Key("ns", "p"), Key("ns", "uid-1")


class Bench:
    def __init__(self) -> None:
        self.made = FakeLeases()
        self.changed: list[Key] = []
        self.leases = ProviderLeases(self.made, self.changed.append)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.leases.close()


async def test_competing_twice_is_competing_once(bench: Bench) -> None:
    bench.leases.compete(PROVIDER, LEASE)
    first = bench.made.made[LEASE]
    bench.leases.compete(PROVIDER, LEASE)
    assert bench.made.made[LEASE] is first
    assert bench.leases.held(PROVIDER)
    assert bench.leases.check() == ""


async def test_who_does_not_compete_holds_nothing(bench: Bench) -> None:
    assert not bench.leases.held(PROVIDER)
    assert bench.leases.rival(PROVIDER) == ""


async def test_losing_it_is_told_with_the_rival(bench: Bench) -> None:
    bench.leases.compete(PROVIDER, LEASE)
    assert bench.leases.rival(PROVIDER) == ""
    await bench.made.made[LEASE].give("other")
    assert bench.changed == [PROVIDER]
    assert not bench.leases.held(PROVIDER)
    assert bench.leases.rival(PROVIDER) == "other"
    assert bench.leases.check() == "ns/p is served by other"


async def test_a_lease_that_nobody_holds_yet_is_not_ready(bench: Bench) -> None:
    bench.leases.compete(PROVIDER, LEASE)
    await bench.made.made[LEASE].give("")
    assert bench.leases.check() == "the Lease of ns/p is not held yet"
    await bench.made.made[LEASE].give("me")
    assert bench.leases.check() == ""


async def test_another_lease_replaces_the_former(bench: Bench) -> None:
    bench.leases.compete(PROVIDER, LEASE)
    bench.leases.compete(PROVIDER, Key("ns", "uid-2"))
    await bench.leases.close()
    assert not bench.made.made[LEASE].held


async def test_closing_hands_everything_over(bench: Bench) -> None:
    bench.leases.compete(PROVIDER, LEASE)
    await asyncio.sleep(0)  # sleep-ok: lets other tasks run
    await bench.leases.close()
    assert not bench.made.made[LEASE].held
    assert not bench.leases.held(PROVIDER)


async def test_a_failed_race_can_be_begun_anew() -> None:
    class Failing(FakeLease):
        async def run(self) -> None:
            raise ZeroDivisionError

    def make(lease: Key, on_change: OnChange) -> FakeLease:
        assert lease == LEASE
        return Failing(on_change)

    told = asyncio.Event()
    leases = ProviderLeases(make, lambda _key: told.set())
    leases.compete(PROVIDER, LEASE)
    async with asyncio.timeout(5):
        await told.wait()
    assert not leases.held(PROVIDER)
    await leases.close()
