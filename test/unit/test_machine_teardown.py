"""What becomes of a VM whose machine object goes: destroyed or released, never by accident."""

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.errors import DriverError, NeedsOperator, Transient, Unreachable
from banlieue.sdk.kube import Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


@pytest.mark.identity("6.1")
async def test_a_restored_deletion_without_valid_intent_is_held(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.delete(mode=None)
    await bench.run()
    assert bench.condition("Ready") == ("False", "TeardownUndecided")
    assert len(bench.vms()) == 1

    bench.api.edit(
        SIMULATED_MACHINES,
        MACHINE,
        lambda obj: obj["spec"].update(teardown={"mode": "Destroy", "uid": "an-older-uid"}),
    )
    await bench.run()
    assert len(bench.vms()) == 1
    assert bench.machine()["metadata"]["finalizers"]


@pytest.mark.identity("6.3")
async def test_release_leaves_vm_and_mark_while_its_owner_lives(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    (before,) = (vm.model_dump() for vm in bench.vms())
    bench.delete(mode="Release")
    await bench.run()
    assert bench.machine() == {}
    assert [vm.model_dump() for vm in bench.vms()] == [before]


def _delete_owner(bench: MachineBench, policy: str | None = None) -> None:
    def change(obj: Obj) -> None:
        held = ["banlieue.io/virtualmachine"]
        obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=held)
        if policy:
            obj["spec"]["deletionPolicy"] = policy

    bench.api.edit(VIRTUAL_MACHINES, MACHINE, change)


@pytest.mark.identity("0.6")
async def test_release_of_an_orphan_takes_the_mark_off(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    _delete_owner(bench, "Orphan")
    bench.delete(mode="Release")
    await bench.run()
    bench.clock.advance(5)
    assert bench.machine() == {}
    (vm,) = bench.vms()
    assert vm.mark is None
    assert vm.power == "PoweredOn"


@pytest.mark.identity("0.6")
@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (Transient(Reason.BACKUP_IN_PROGRESS, "a backup runs"), True),
        (Unreachable("no answer"), False),
        (NeedsOperator(Reason.PROVIDER_PERMISSION_DENIED, "no right to do that"), False),
    ],
)
async def test_a_busy_orphan_keeps_its_object_until_its_mark_is_off(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch, error: DriverError, *, waits: bool
) -> None:
    """The next VirtualMachine of that name would take up the user's VM by the mark."""
    bench.make_machine()
    await bench.run()
    _delete_owner(bench, "Orphan")
    bench.delete(mode="Release")

    def refuse(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(type(bench.served.driver), "remove_mark", refuse)
        await bench.run()
    assert bool(bench.machine()) is waits
    if waits:
        assert bench.condition("Ready") == ("False", "BackupInProgress")
        await bench.run()
        assert bench.machine() == {}
        assert [vm.mark for vm in bench.vms()] == [None]


async def test_release_keeps_the_mark_of_a_vm_that_is_to_be_destroyed(bench: MachineBench) -> None:
    """The intent is from when its owner lived; the controller decides anew, and needs the mark."""
    bench.make_machine()
    await bench.run()
    before = bench.vms()[0].mark
    _delete_owner(bench)
    bench.delete(mode="Release")
    await bench.run()
    assert [vm.mark for vm in bench.vms()] == [before]


@pytest.mark.identity("6.7")
async def test_release_goes_through_when_the_backend_is_dead(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.control("inject", rule={"effect": "cut", "count": None})
    bench.delete(mode="Release")
    await bench.run()
    assert bench.machine() == {}
    assert len(bench.vms()) == 1


@pytest.mark.identity("6.6")
async def test_foreign_and_retained_disks_outlive_the_vm(bench: MachineBench) -> None:
    bench.make_machine(
        disks=[
            {"name": "root", "storageClass": "fast"},
            {"name": "data", "sizeGiB": 5, "storageClass": "fast", "reclaimPolicy": "Retain"},
            {"name": "scratch", "sizeGiB": 5, "storageClass": "fast"},
        ]
    )
    await bench.run()
    (vm,) = bench.vms()
    retained = next(disk.id for disk in vm.disks if disk.name == "data")
    bench.control("attach_disk", vm=vm.id, content="somebody's data")
    (foreign,) = (disk.id for disk in bench.vms()[0].disks if disk.name is None)
    bench.delete()
    await bench.run(passes=60)

    assert bench.vms() == []
    assert set(bench.world.state.detached) == {retained, foreign}


async def test_a_machine_is_released_while_its_provider_was_never_reached(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    bench.opened.clear()
    bench.delete(mode="Release")
    await bench.run()
    assert bench.machine() == {}
    assert len(bench.vms()) == 1


async def test_a_paused_provider_changes_no_finalizer(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(paused=True))
    bench.delete(mode="Release")
    await bench.run()
    assert bench.machine()["metadata"]["finalizers"]


async def test_a_machine_whose_end_was_decided_is_left_alone_until_it_is_deleted(
    bench: MachineBench,
) -> None:
    """Its controller deletes it next; a status in between would only be in the way."""
    bench.make_machine()
    await bench.run()
    before = bench.machine()["status"]

    def decide(obj: Obj) -> None:
        obj["spec"].update(teardown={"mode": "Destroy", "uid": obj["metadata"]["uid"]})
        obj["metadata"]["generation"] += 1

    bench.api.edit(SIMULATED_MACHINES, MACHINE, decide)
    result = await bench.reconciler.reconcile(MACHINE)
    assert result.requeue_after is not None
    assert result.requeue_after <= 2
    assert bench.machine()["status"] == before

    bench.clock.advance(result.requeue_after)
    await bench.run()
    generation = bench.machine()["metadata"]["generation"]
    assert bench.machine()["status"]["observedGeneration"] == generation, "not for ever"

    bench.api.drop(SIMULATED_MACHINES, MACHINE)
    await bench.run()
    assert bench.vms() == []
