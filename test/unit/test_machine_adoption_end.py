"""How an adoption ends: given up, released, its objects lost, its Provider read-only."""

import pytest

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner
from banlieue.sdk.kube import Key
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import ON
from test.kit.adoptbench import (
    ALLOWED,
    OTHER,
    accept,
    adopting,
    existing,
    hold_owner,
    policy,
    snapshot,
)
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench


@pytest.fixture
def bench() -> MachineBench:
    bench = MachineBench()
    policy(bench, ALLOWED)
    return bench


async def test_deleting_before_acceptance_needs_no_word_and_changes_nothing(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    before = snapshot(bench)
    adopting(bench, vm.uuid)
    await bench.run()
    bench.delete(mode=None)
    await bench.run()
    assert bench.machine() == {}
    assert snapshot(bench) == before


@pytest.mark.parametrize("mode", ["Destroy", "Release"])
async def test_what_was_claimed_and_never_marked_is_left_as_it_is(
    bench: MachineBench, mode: str
) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    bench.control("inject", rule={"effect": "cut", "method": "take_over", "count": None})
    await bench.reconciler.reconcile(MACHINE)
    assert bench.machine()["spec"]["instance"]["uuid"] == vm.uuid
    before = snapshot(bench)
    bench.delete(mode=mode)
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    await bench.run()
    assert bench.machine() == {}
    assert snapshot(bench) == before


async def test_a_mark_that_is_being_written_comes_off_when_the_object_goes(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    hold_owner(bench)
    bench.control("inject", rule={"effect": "slow-task", "method": "take_over", "seconds": 8.0})
    await bench.reconciler.reconcile(MACHINE)
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    bench.delete(mode="Release")
    bench.restart()
    await bench.run()
    assert bench.machine() == {}
    bench.clock.advance(60)
    assert bench.vms()[0].mark is None


async def test_an_orphan_is_released_with_its_mark_off_and_can_be_adopted_again(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    hold_owner(bench)
    await bench.run()
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    bench.delete(mode="Release")
    await bench.run()
    assert bench.machine() == {}
    (now,) = bench.vms()
    assert (now.id, now.mark, now.power) == (vm.id, None, ON)

    adopting(bench, vm.uuid, OTHER, accepted=True)
    await bench.run(OTHER)
    assert bench.condition("Ready", OTHER) == ("True", "Ready")


async def test_a_lost_machine_object_finds_its_vm_by_the_mark(bench: MachineBench) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    marked = snapshot(bench)
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj["metadata"].update(finalizers=[]))
    bench.api.drop(SIMULATED_MACHINES, MACHINE)
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    bench.restart()
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    assert bench.machine()["spec"]["instance"]["uuid"] == vm.uuid
    assert bench.condition("Ready") == ("True", "Ready")
    assert snapshot(bench) == marked


async def test_a_lost_object_finds_its_vm_even_while_the_provider_is_being_deleted(
    bench: MachineBench,
) -> None:
    """Nothing new is adopted then, and what was adopted is what the deletion waits for."""
    vm, other = existing(bench), existing(bench, "another")
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    bench.api.drop(SIMULATED_MACHINES, MACHINE, force=True)
    bench.api.drop(PROVIDERS, PROVIDER)
    bench.restart()
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    adopting(bench, other.uuid, OTHER, accepted=True)
    await bench.run(OTHER)
    assert bench.condition("Ready", OTHER) == ("False", "ProviderDeleting")


async def test_what_fails_again_and_again_for_one_reason_is_written_once(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    owner = Owner("installation-9", OWNER_VIRTUAL_MACHINE, "team-z", "secret-name")
    bench.control("set_mark", vm=vm.id, mark=Mark(owner, vm.uuid).encode())
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    written = bench.machine()["metadata"]["resourceVersion"]
    assert bench.condition("Ready") == ("False", "OwnershipConflict")
    for _ in range(5):
        await bench.run()
        bench.clock.advance(100)
    assert bench.machine()["metadata"]["resourceVersion"] == written


async def test_a_read_only_provider_tells_what_is_and_takes_nothing_over(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    before = snapshot(bench)
    bench.served.writable = False
    adopting(bench, vm.uuid)
    await bench.run()
    assert bench.condition("Ready") == ("False", "AdoptionPending")
    accept(bench)
    await bench.run()
    assert bench.condition("Ready") == ("False", "ProviderPaused")
    assert snapshot(bench) == before


async def test_a_disk_that_was_attached_after_the_adoption_is_foreign(bench: MachineBench) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    bench.control("attach_disk", vm=vm.id, content="somebody's volume")
    bench.delete(mode="Destroy")
    await bench.run()
    assert bench.vms() == []
    kept = bench.world.state.detached.values()
    assert [disk.content for disk in kept] == ["somebody's volume"]


async def test_a_vm_that_a_move_left_behind_is_let_go_with_its_mark_off(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    bench.edit(move={"epoch": 0, "role": "Previous"}, powerOffMode="Hard")
    await bench.run()
    owner = Key.of(bench.api.peek_all(VIRTUAL_MACHINES)[0])
    word = {"banlieue.io/release-previous": "true"}
    bench.api.edit(VIRTUAL_MACHINES, owner, lambda it: it["metadata"].update(annotations=word))
    bench.delete(mode="Release")
    await bench.run()
    assert bench.machine() == {}
    (left,) = bench.vms()
    assert (left.id, left.mark) == (vm.id, None)
