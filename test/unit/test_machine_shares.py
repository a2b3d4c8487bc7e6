"""Machines of a backend that says nothing leave workers to those of others."""

from contextlib import ExitStack

from banlieue.api.resources import PROVIDERS
from banlieue.sdk.kube import Key
from banlieue.sdk.machine.shares import WORKERS_OF_MANY, Shares
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench

ONE, TWO = Key("ns", "one"), Key("ns", "two")


def test_a_provider_that_is_alone_has_all_workers() -> None:
    shares = Shares()
    with ExitStack() as passes:
        for _ in range(100):
            passes.enter_context(shares.taken(ONE))
        assert shares.has_room(ONE, 1)


def test_of_several_none_takes_all_and_each_has_a_few() -> None:
    for providers in (2, 3, 10, 1000):
        shares, took = Shares(WORKERS_OF_MANY), 0
        with ExitStack() as passes:
            while shares.has_room(ONE, providers):
                passes.enter_context(shares.taken(ONE))
                took += 1
            assert 4 <= took <= WORKERS_OF_MANY // 2
            assert shares.has_room(TWO, providers)


def test_a_pass_that_ended_makes_room() -> None:
    shares = Shares(WORKERS_OF_MANY)
    with ExitStack() as passes:
        while shares.has_room(ONE, 1000):
            passes.enter_context(shares.taken(ONE))
        assert not shares.has_room(ONE, 1000)
    assert shares.has_room(ONE, 1000)


async def test_a_machine_without_room_is_looked_at_soon_and_nothing_is_written() -> None:
    bench = MachineBench()
    bench.make_machine()
    other = {"metadata": {"namespace": "ns", "name": "other"}, "spec": {}}
    bench.api.put(PROVIDERS, other)
    before = bench.machine()
    with ExitStack() as passes:
        while bench.reconciler.shares.has_room(PROVIDER, 2):
            passes.enter_context(bench.reconciler.shares.taken(PROVIDER))
        result = await bench.reconciler.reconcile(MACHINE)
    assert result.requeue_after is not None
    assert 0 < result.requeue_after < 1
    assert bench.machine() == before
