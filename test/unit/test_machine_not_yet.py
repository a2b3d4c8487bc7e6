"""A driver whose change feed is about to tell everything: nothing is said, nothing is let go."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import NotYet
from test.kit.machinebench import MACHINE, MachineBench

T = TypeVar("T")


@pytest.fixture
async def bench() -> MachineBench:
    bench = MachineBench()
    bench.make_machine()
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    return bench


def be_silent(bench: MachineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every call end with the word that the feed is about to tell."""

    async def call(_: Callable[[Driver[Any]], T], *, timeout: float = 30.0) -> T:
        del timeout
        raise NotYet

    silent = type("Silent", (type(bench.served),), {"__slots__": (), "call": staticmethod(call)})
    served = bench.served
    monkeypatch.setitem(
        bench.opened, next(iter(bench.opened)), silent(served.api, served.driver, served.identity)
    )


async def test_the_status_stays_and_the_machine_is_looked_at_again_soon(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.machine()["status"]
    with monkeypatch.context() as patch:
        be_silent(bench, patch)
        for _ in range(5):
            result = await bench.reconciler.reconcile(MACHINE)
            assert result.requeue_after is not None
            assert 1 <= result.requeue_after <= 3
    assert bench.machine()["status"] == before
    await bench.run()
    assert bench.machine()["status"] == before


async def test_a_deletion_goes_on_when_the_feed_told(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.delete()
    before = bench.machine().get("status")
    with monkeypatch.context() as patch:
        be_silent(bench, patch)
        await bench.run(passes=5)
    assert bench.machine().get("status") == before
    assert len(bench.vms()) == 1
    await bench.run()
    assert not bench.machine()
    assert bench.vms() == []


async def test_an_orphan_is_not_released_with_its_mark_on(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.api.edit(
        VIRTUAL_MACHINES, MACHINE, lambda obj: obj["spec"].update(deletionPolicy="Orphan")
    )
    bench.api.edit(
        VIRTUAL_MACHINES, MACHINE, lambda obj: obj["metadata"].update(finalizers=["test/hold"])
    )
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    bench.delete(mode="Release")
    with monkeypatch.context() as patch:
        be_silent(bench, patch)
        await bench.run(passes=5)
    assert bench.machine()["metadata"]["finalizers"]
    await bench.run()
    assert not bench.machine()
    assert [vm.mark for vm in bench.vms()] == [None]
