"""Machine objects that vanish: their VMs may live on, and their owners are told of."""

from collections.abc import AsyncIterator

import pytest

from banlieue.api import names
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.claims import Claims
from banlieue.sdk.provider.scope import KnownMachine
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing.scripted import MACHINES
from test.kit.providerbench import ProviderBench, instance

UUID = "5e7f3c1a-0000-4000-8000-000000000001"
HELD = names.machine_finalizer(MACHINES.kind)
DOOMED = KnownMachine(Key("ns", "m"), "", uuid=UUID, owner="digest", doomed=True)


@pytest.fixture
async def bench() -> AsyncIterator[ProviderBench]:
    made = ProviderBench()
    yield made
    await made.stop()


def test_what_went_with_its_vm_leaves_nothing() -> None:
    claims = Claims()
    claims.follow([DOOMED], 1.0)
    assert claims.follow([], 2.0) == {UUID}
    assert not claims.lost
    assert not claims.unchecked


def test_what_was_torn_out_in_the_middle_of_its_deletion_may_have_left_its_vm() -> None:
    claims = Claims()
    claims.follow([DOOMED], 1.0)
    claims.torn_out(UUID.upper())
    assert claims.follow([], 2.0) == frozenset()
    assert claims.lost == claims.unchecked == {UUID}


def test_what_was_torn_out_and_came_back_counts_as_before() -> None:
    claims = Claims()
    claims.follow([DOOMED], 1.0)
    claims.torn_out(UUID)
    claims.follow([], 2.0)
    claims.follow([DOOMED], 3.0)
    assert claims.follow([], 4.0) == {UUID}
    assert not claims.lost


@pytest.mark.parametrize(("finalizers", "told"), [([HELD], 1), ([], 0)])
async def test_a_restore_in_the_middle_of_a_deletion_has_the_owner_told(
    bench: ProviderBench, finalizers: list[str], told: int
) -> None:
    """The backup knows nothing of the object, so nobody destroys the VM any more."""
    machine = bench.add_machine("m", virtualMachineRef={"name": "db"}, instance=instance(UUID))

    def doom(obj: Obj) -> None:
        meta = obj["metadata"]
        meta |= {"finalizers": [HELD], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        obj["spec"]["teardown"] = {"mode": "Destroy", "uid": meta["uid"]}

    key = Key.of(machine)
    bench.api.edit(MACHINES, key, doom)
    await bench.run()
    last = bench.api.peek(MACHINES, key) or {}
    bench.api.drop(MACHINES, key, force=True)
    last["metadata"]["finalizers"] = finalizers
    [watch] = [w for w in bench.reconciler.controller().watches if w.resource == MACHINES]
    assert list(watch.map(Change(MACHINES, key, last, None)))
    await bench.run_for(60)
    unclaimed = bench.provider.status.unclaimed
    assert len(unclaimed.owners if unclaimed else ()) == told
