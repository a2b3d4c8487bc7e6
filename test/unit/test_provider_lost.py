"""Machine objects that vanish: who owns their VMs is told at once, and while it is true."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS
from banlieue.api.v1alpha1.provider import Unclaimed
from banlieue.sdk.errors import DriverError, Unreachable
from banlieue.sdk.identity import Owner
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing.scripted import MACHINES
from test.kit.providerbench import KEY, ProviderBench, instance, marked_vm

DOWN: dict[str, DriverError] = {
    verb: Unreachable("it is down") for verb in ("login", "about", "domains", "marked")
}
CONFIG = Key("system", names.INSTALLATION_CONFIG_MAP)


@pytest.fixture
async def bench() -> AsyncIterator[ProviderBench]:
    made = ProviderBench()
    yield made
    await made.stop()


def _digest(name: str) -> str:
    return Owner("inst", "VirtualMachine", "ns", name).digest


def _add(bench: ProviderBench, name: str, **spec: Any) -> Obj:  # noqa: ANN401 - parts of a spec
    return bench.add_machine(
        name,
        virtualMachineRef={"name": name},
        instance=instance(f"u-{name}"),
        **{"providerID": f"x://u-{name}", **spec},
    )


def _told(bench: ProviderBench) -> Unclaimed:
    found = bench.provider.status.unclaimed
    assert found is not None
    return found


def _owners(bench: ProviderBench) -> list[tuple[str, int]]:
    return [(owner.hash, owner.epoch) for owner in _told(bench).owners]


@pytest.mark.identity("12.1")
async def test_the_owner_of_a_vm_younger_than_the_last_read_is_told_when_its_object_vanishes(
    bench: ProviderBench,
) -> None:
    await bench.run()
    _add(bench, "db")
    bench.endpoint.marked = (marked_vm("u-db", "db"),)
    await bench.run_for(30)
    assert _owners(bench) == []
    bench.api.drop(MACHINES, Key("ns", "db"), force=True)
    await bench.run(10)
    assert _owners(bench) == [(_digest("db"), 0)]
    assert _told(bench).count == 1


@pytest.mark.identity("12.1")
async def test_it_is_told_without_the_backend_and_at_most_every_ten_seconds(
    bench: ProviderBench,
) -> None:
    _add(bench, "db", move={"epoch": 2, "role": "Incoming"})
    _add(bench, "web")
    await bench.run()
    bench.endpoint.fail = DOWN
    bench.api.drop(MACHINES, Key("ns", "db"), force=True)
    result = await bench.run(1)
    assert result.requeue_after is not None
    assert result.requeue_after <= 10
    await bench.run_for(40)
    assert _owners(bench) == [(_digest("db"), 2)]
    assert _told(bench).owners[0].incoming is True
    bench.api.drop(MACHINES, Key("ns", "web"), force=True)
    await bench.run_for(30)
    assert _owners(bench) == sorted([(_digest("db"), 2), (_digest("web"), 0)])


async def test_the_next_read_tells_whether_the_vm_is_there(bench: ProviderBench) -> None:
    _add(bench, "db")
    await bench.run()
    bench.api.drop(MACHINES, Key("ns", "db"), force=True)
    await bench.run_for(30)
    assert _owners(bench) == []
    assert bench.endpoint.calls["marked"] == 2


async def test_one_that_was_never_seen_may_still_be_coming(bench: ProviderBench) -> None:
    _add(bench, "db", providerID=None)
    await bench.run()
    bench.api.drop(MACHINES, Key("ns", "db"), force=True)
    await bench.run_for(120)
    assert _owners(bench) == [(_digest("db"), 0)]
    await bench.run_for(900)
    assert _owners(bench) == []


async def test_one_that_was_destroyed_is_not_told(bench: ProviderBench) -> None:
    bench.endpoint.marked = (marked_vm("u-db", "db"),)
    made = _add(bench, "db")
    since = "2026-01-01T00:00:00Z"
    meta = {**made["metadata"], "deletionTimestamp": since, "finalizers": ["example.com/held"]}
    intent = {"mode": "Destroy", "uid": made["metadata"]["uid"]}
    spec = {**made["spec"], "teardown": intent}
    bench.api.put(MACHINES, {**made, "metadata": meta, "spec": spec})
    await bench.run()
    bench.endpoint.marked = ()
    bench.api.drop(MACHINES, Key("ns", "db"), force=True)
    await bench.run(11)
    assert _owners(bench) == []


async def test_an_object_that_is_back_claims_its_vm_again(bench: ProviderBench) -> None:
    bench.endpoint.marked = (marked_vm("u-db", "db"),)
    _add(bench, "db")
    await bench.run()
    bench.api.drop(MACHINES, Key("ns", "db"), force=True)
    await bench.run(11)
    assert _owners(bench) == [(_digest("db"), 0)]
    _add(bench, "db")
    await bench.run(11)
    assert _owners(bench) == []


async def test_a_vm_that_another_provider_claims_is_not_lost(bench: ProviderBench) -> None:
    _add(bench, "db")
    await bench.run()
    bench.api.drop(MACHINES, Key("ns", "db"), force=True)
    other = {"namespace": "ns", "name": "second"}
    bench.add_machine("db", virtualMachineRef={"name": "db"}, instance=instance("u-db"))
    bench.api.edit(MACHINES, Key("ns", "db"), lambda it: it["spec"].update(providerRef=other))
    await bench.run(11)
    assert _owners(bench) == []


async def test_a_restored_status_is_put_right(bench: ProviderBench) -> None:
    await bench.run()
    before = bench.raw["status"]["unclaimed"]
    bench.endpoint.marked = (marked_vm("u-db", "db"),)
    await bench.run(301)
    assert _owners(bench) == [(_digest("db"), 0)]
    old = bench.raw
    bench.api.edit(PROVIDERS, KEY, lambda it: it["status"].update(unclaimed=before))
    watch = bench.reconciler.controller().watches[0]
    assert [it.key for it in watch.map(Change(PROVIDERS, KEY, old, bench.raw))] == [KEY]
    assert watch.map(Change(PROVIDERS, KEY, bench.raw, old)) == ()
    await bench.run()
    assert _owners(bench) == [(_digest("db"), 0)]


async def test_two_that_believe_to_lead_do_not_write_over_each_other_without_a_pause(
    bench: ProviderBench,
) -> None:
    await bench.run()
    mine = bench.raw
    theirs = bench.api.edit(
        PROVIDERS, KEY, lambda it: it["status"].update(unclaimed={"complete": False, "count": 7})
    )
    watch, asked = bench.reconciler.controller().watches[0], Change(PROVIDERS, KEY, mine, theirs)
    first, second = list(watch.map(asked)), list(watch.map(asked))
    assert [it.delay for it in first] == [0.0]
    assert [it.delay for it in second] == [pytest.approx(10.0)]


@pytest.mark.identity("12.3")
async def test_a_process_that_begins_takes_nothing_for_complete_that_another_told(
    bench: ProviderBench,
) -> None:
    """What stands there may come from a backup; it says so before it asks the backend anything."""
    await bench.run()
    assert _told(bench).complete
    bench.start()
    bench.endpoint.fail = DOWN
    await bench.run()
    assert not _told(bench).complete
    bench.endpoint.fail = {}
    await bench.run_for(60)
    assert _told(bench).complete


async def test_what_was_read_in_recovery_says_so(bench: ProviderBench) -> None:
    await bench.run()
    assert _told(bench).recovery is None
    bench.api.edit(CONFIG_MAPS, CONFIG, lambda it: it["data"].update(recovery="true"))
    await bench.run_for(310)
    assert _told(bench).recovery is True
    bench.api.edit(CONFIG_MAPS, CONFIG, lambda it: it["data"].pop("recovery"))
    await bench.run_for(310)
    assert _told(bench).recovery is None
