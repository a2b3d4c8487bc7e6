"""Disks of a VM that exists follow its machine; no data goes without a word about it."""

from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.driver import DiskState, MachineState
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine import disk_drift
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import Disk
from test.kit.machinebench import MACHINE, MachineBench

ROOT = {"name": "root", "storageClass": "fast"}
OTHER = Key(MACHINE.namespace, "other")


def data(size: int = 5, name: str = "data", **fields: object) -> dict[str, object]:
    return {"name": name, "sizeGiB": size, "storageClass": "fast", **fields}


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


def disks(bench: MachineBench, vm: int = 0) -> dict[str | None, Disk]:
    return {disk.name: disk for disk in bench.vms()[vm].disks}


def message(bench: MachineBench, kind: str, key: Key = MACHINE) -> str:
    found = bench.machine(key)["status"]["conditions"]
    return next(str(item["message"]) for item in found if item["type"] == kind)


def kept(bench: MachineBench) -> dict[str, Disk]:
    found = bench.world.state.detached.values()
    return {disk.kept: disk for disk in found if disk.kept is not None}


def observed(bench: MachineBench, key: Key = MACHINE) -> dict[str, Obj]:
    return {disk["name"]: disk for disk in bench.machine(key)["status"]["resources"]["disks"]}


def told_events(bench: MachineBench) -> list[str]:
    return [it.message for it in bench.recorder.events if it.reason is EventReason.DISK_RETAINED]


def removed(name: str, policy: str, **fields: object) -> dict[str, object]:
    return {"name": name, "reclaimPolicy": policy, **fields}


# Add and grow


async def test_a_disk_is_added_and_grows_while_the_vm_runs(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.edit(disks=[ROOT, data(5)])
    await bench.run()
    made = disks(bench)["data"]
    bench.edit(disks=[ROOT, data(8)])
    await bench.run()
    assert (disks(bench)["data"].id, disks(bench)["data"].size_gib) == (made.id, 8)
    assert disks(bench)["data"].content == made.content
    assert bench.vms()[0].power == "PoweredOn"
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    assert observed(bench)["data"]["sizeGiB"] == 8
    assert observed(bench)["data"]["guestPath"].startswith("/dev/disk/by-id/")


async def test_a_disk_that_is_larger_than_asked_for_is_left_and_told(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, data(5)])
    await bench.run()
    bench.control("resize_disk", vm=bench.vms()[0].id, disk=disks(bench)["data"].id, size_gib=9)
    bench.clock.advance(100)
    await bench.run()
    assert disks(bench)["data"].size_gib == 9
    assert bench.condition("UpToDate") == ("False", "InvalidConfiguration")
    assert "9 GiB and 5 are asked for" in message(bench, "UpToDate")
    assert bench.condition("Ready") == ("True", "Ready")
    bench.edit(disks=[ROOT, data(9)])
    await bench.run()
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_a_smaller_class_shrinks_nothing_and_holds_up_nothing_else(
    bench: MachineBench,
) -> None:
    """CEL refuses a smaller size in the spec; a class that is chosen anew comes past it."""

    def of_class(name: str, size: int, cpus: int) -> dict[str, Any]:
        hardware = {"cpus": cpus, "memoryMiB": 2048, "disks": [ROOT, data(size)]}
        return {"name": name, "hash": f"{size:016x}", "hardware": hardware}

    large: dict[str, Any] = {"class": of_class("large", 8, 1)}
    bench.make_machine(cpus=None, memoryMiB=None, disks=[], **large)
    await bench.run()
    small: dict[str, Any] = {"class": of_class("small", 5, 4)}
    bench.edit(**small)
    await bench.run()
    assert disks(bench)["data"].size_gib == 8
    assert bench.vms()[0].cpus == 4
    assert bench.condition("UpToDate") == ("False", "InvalidConfiguration")
    assert "never shrinks" in message(bench, "UpToDate")


async def test_a_snapshot_holds_a_disk_up_until_it_is_gone(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, data(5)], driftPolicy={"hardware": "Report"})
    await bench.run()
    vm = bench.vms()[0].id
    bench.control("snapshot", vm=vm, name="before")
    bench.edit(disks=[ROOT, data(8)])
    await bench.run()
    assert bench.condition("UpToDate") == ("False", "BlockedBySnapshot")
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.machine()["status"]["pendingChanges"] == ["disks"]
    await bench.run()
    assert disks(bench)["data"].size_gib == 5
    bench.control("drop_snapshots", vm=vm)
    await bench.run()
    assert disks(bench)["data"].size_gib == 8
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_a_disk_that_finds_no_room_makes_the_vm_no_worse(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, data(5)])
    await bench.run()
    full = {"effect": "fail-task", "method": "reconfigure", "code": "NoDiskSpace", "count": None}
    bench.control("inject", rule=full)
    bench.edit(disks=[ROOT, data(8)])
    await bench.run()
    assert bench.condition("UpToDate") == ("False", "InsufficientStorage")
    assert bench.condition("Ready") == ("True", "Ready")
    calls = bench.world.control("calls", {})["reconfigure"]
    assert calls < 5, "it is not tried again at once"
    bench.control("heal")
    bench.clock.advance(60)
    await bench.run()
    assert disks(bench)["data"].size_gib == 8
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_a_disk_that_somebody_took_off_is_told_and_never_made_anew(
    bench: MachineBench,
) -> None:
    bench.make_machine(disks=[ROOT, data(5)])
    await bench.run()
    lost = disks(bench)["data"]
    bench.control("take_off_disk", vm=bench.vms()[0].id, disk=lost.id)
    bench.clock.advance(100)
    await bench.run()
    assert disks(bench).keys() == {"root"}
    assert bench.condition("UpToDate") == ("False", "DriftDetected")
    assert "data" in message(bench, "UpToDate")
    bench.vms()[0].disks.append(lost)
    await bench.run()
    assert bench.condition("UpToDate") == ("True", "UpToDate")


# Remove


async def test_a_disk_that_goes_from_the_spec_is_destroyed_or_kept_as_it_was_told(
    bench: MachineBench,
) -> None:
    bench.make_machine(disks=[ROOT, data(5), data(5, "scratch")])
    await bench.run()
    content = disks(bench)["data"].content
    scratch = disks(bench)["scratch"].id
    bench.edit(disks=[ROOT], removedDisks=[removed("data", "Retain"), removed("scratch", "Delete")])
    await bench.run()
    assert disks(bench).keys() == {"root"}
    assert [disk.content for disk in kept(bench).values()] == [content]
    assert scratch not in bench.world.state.detached
    (told,) = kept(bench)
    assert len(told_events(bench)) == 1
    assert f"data as {told}" in told_events(bench)[0]
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    assert bench.vms()[0].power == "PoweredOn"


async def test_a_disk_that_is_listed_again_stays(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, data(5)])
    await bench.run()
    before = disks(bench)["data"]
    bench.edit(disks=[ROOT, data(5)], removedDisks=[removed("data", "Delete")])
    await bench.run()
    assert disks(bench)["data"] == before


async def test_a_disk_nobody_says_a_word_about_stays(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, data(5)])
    await bench.run()
    before = disks(bench)["data"]
    bench.edit(disks=[ROOT], cpus=4)
    await bench.run()
    assert bench.vms()[0].cpus == 4
    assert disks(bench)["data"] == before
    assert bench.condition("UpToDate") == ("True", "UpToDate")


# Retain and attach again


async def test_a_retained_disk_is_told_by_an_id_and_attached_again_with_its_data(
    bench: MachineBench,
) -> None:
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain")])
    await bench.run()
    content = disks(bench)["data"].content
    told = observed(bench)["data"]["retainID"]
    assert "retainID" not in observed(bench)["root"]
    bench.delete()
    await bench.run(passes=60)
    assert bench.vms() == []
    assert kept(bench)[told].content == content
    said = told_events(bench)
    assert len(said) == 1
    assert told in said[0]

    again = {"name": "old", "existing": told}
    bench.make_machine(OTHER, disks=[ROOT, again])
    await bench.run(OTHER)
    assert disks(bench)["old"].content == content
    assert bench.condition("Ready", OTHER) == ("True", "Ready")
    assert observed(bench, OTHER)["old"]["retainID"] == told, "it is kept again unless told"
    bench.delete(OTHER)
    await bench.run(OTHER, passes=60)
    assert bench.vms() == []
    assert kept(bench)[told].content == content


async def test_a_disk_of_an_object_that_was_lost_is_kept_as_nobody_knows_what_was_to_become_of_it(
    bench: MachineBench,
) -> None:
    """A restore lost the object that listed it, and its user made another one of the name."""
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain")])
    await bench.run()
    content = disks(bench)["data"].content
    bench.api.drop(SIMULATED_MACHINES, MACHINE, force=True)
    bench.restart()
    bench.make_machine(disks=[ROOT])
    await bench.run()
    bench.delete()
    await bench.run()
    assert bench.vms() == []
    assert [disk.content for disk in kept(bench).values()] == [content]
    assert told_events(bench)


async def test_a_disk_that_the_image_brought_goes_with_its_vm(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, data(5)])
    await bench.run()
    disks(bench)["data"].name = "image-1"
    bench.edit(disks=[ROOT])
    await bench.run()
    bench.delete()
    await bench.run()
    assert bench.vms() == []
    assert kept(bench) == {}


@pytest.mark.parametrize(("mode", "stopped"), [("Soft", "shutdown"), ("Hard", "power_off")])
async def test_a_guest_is_stopped_before_its_disk_is_taken_off(
    bench: MachineBench, mode: str, stopped: str
) -> None:
    retained = [ROOT, data(5, reclaimPolicy="Retain")]
    bench.make_machine(disks=retained, powerOffMode=mode, powerOffTimeoutSeconds=5)
    await bench.run()
    bench.control("hang_guest", vm=bench.vms()[0].id)
    bench.delete()
    order: list[str] = []
    for _ in range(60):
        before = bench.vms()
        if before and before[0].power == "PoweredOff" and "off" not in order:
            order.append("off")
        if before and "data" not in disks(bench) and "taken" not in order:
            order.append("taken")
        result = await bench.reconciler.reconcile(MACHINE)
        if not bench.machine():
            break
        bench.clock.advance(min(result.requeue_after or 1.0, 400.0))
    assert order == ["off", "taken"]
    assert bench.vms() == []
    assert bench.world.control("calls", {}).get(stopped)
    assert len(kept(bench)) == 1


async def test_an_attached_disk_is_destroyed_only_if_that_is_written(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain")])
    await bench.run()
    told = observed(bench)["data"]["retainID"]
    bench.delete()
    await bench.run(passes=60)
    again = {"name": "old", "existing": told, "reclaimPolicy": "Delete"}
    bench.make_machine(OTHER, disks=[ROOT, again])
    await bench.run(OTHER)
    bench.delete(OTHER)
    await bench.run(OTHER, passes=60)
    assert bench.vms() == []
    assert bench.world.state.detached == {}


async def test_a_machine_whose_disk_is_not_there_is_not_made(bench: MachineBench) -> None:
    bench.make_machine(disks=[ROOT, {"name": "old", "existing": "nobodys-data-1"}])
    await bench.run()
    assert bench.condition("Ready") == ("False", "DiskNotFound")
    assert "nobodys-data-1" in message(bench, "Ready")
    assert bench.vms() == []


async def test_another_namespace_gets_the_same_answer_as_for_a_disk_that_never_was(
    bench: MachineBench,
) -> None:
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain")])
    await bench.run()
    told = observed(bench)["data"]["retainID"]
    bench.delete()
    await bench.run(passes=60)
    (disk,) = kept(bench).values()
    disk.keeper = "installation-1/team-b"
    bench.make_machine(OTHER, disks=[ROOT, {"name": "old", "existing": told}])
    await bench.run(OTHER)
    theirs = message(bench, "Ready", OTHER)
    bench.world.state.detached.clear()
    await bench.run(OTHER)
    assert bench.condition("Ready", OTHER) == ("False", "DiskNotFound")
    assert message(bench, "Ready", OTHER) == theirs
    assert bench.vms() == []


async def test_of_two_machines_that_list_a_disk_the_older_one_gets_it(
    bench: MachineBench,
) -> None:
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain")])
    await bench.run()
    told = observed(bench)["data"]["retainID"]
    bench.delete()
    await bench.run(passes=60)
    later, older = Key(MACHINE.namespace, "a-later"), Key(MACHINE.namespace, "z-older")
    for key, created in ((later, "2026-02-02T00:00:00Z"), (older, "2026-02-01T00:00:00Z")):
        bench.make_machine(key, disks=[ROOT, {"name": "old", "existing": told}])

        def born(obj: Obj, at: str = created) -> None:
            obj["metadata"]["creationTimestamp"] = at

        bench.api.edit(SIMULATED_MACHINES, key, born)
    for key in (later, older, later):
        await bench.run(key)
    assert bench.condition("Ready", later) == ("False", "DiskInUse")
    assert "z-older" in message(bench, "Ready", later)
    assert bench.condition("Ready", older) == ("True", "Ready")
    assert len(bench.vms()) == 1


async def test_a_running_vm_waits_for_a_disk_without_being_any_worse(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.edit(disks=[ROOT, {"name": "old", "existing": "nobodys-data-1"}])
    await bench.run()
    assert bench.condition("UpToDate") == ("False", "DiskNotFound")
    assert bench.condition("Ready") == ("True", "Ready")


@pytest.mark.identity("6.6")
async def test_teardown_is_held_while_a_snapshot_holds_a_retained_disk(
    bench: MachineBench,
) -> None:
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain")])
    await bench.run()
    vm = bench.vms()[0].id
    bench.control("snapshot", vm=vm, name="before")
    bench.delete()
    await bench.run(passes=60)
    assert bench.condition("Ready") == ("False", "ForeignDiskAttached")
    assert "data" in message(bench, "Ready")
    assert len(bench.vms()) == 1
    bench.control("drop_snapshots", vm=vm)
    bench.clock.advance(400)
    await bench.run(passes=60)
    assert bench.vms() == []
    assert len(kept(bench)) == 1


@pytest.mark.parametrize("lost", range(8))
async def test_no_crash_on_the_way_to_destruction_costs_a_retained_disk(
    bench: MachineBench, lost: int
) -> None:
    """The process dies at any step: between detaching and destroying, too."""
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain"), data(5, "scratch")])
    await bench.run()
    content = disks(bench)["data"].content
    bench.delete()
    for number in range(60):
        if number == lost:
            bench.restart()
        result = await bench.reconciler.reconcile(MACHINE)
        if not bench.machine():
            break
        bench.clock.advance(min(result.requeue_after or 1.0, 20.0))
    assert bench.vms() == []
    assert [disk.content for disk in kept(bench).values()] == [content]
    assert len(bench.world.state.detached) == 1


async def test_a_machine_of_a_lost_virtual_machine_tells_the_machine_itself(
    bench: MachineBench,
) -> None:
    """Events about disks go to the VirtualMachine, by name, even when it is gone already."""
    bench.make_machine(disks=[ROOT, data(5, reclaimPolicy="Retain")])
    await bench.run()
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    bench.delete()
    await bench.run(passes=60)
    assert bench.vms() == []
    assert len(told_events(bench)) == 1


# What differs


def seen(*found: DiskState, lost: tuple[str, ...] = ()) -> MachineState:
    state: Any = type("State", (), {"disks": found, "lost_disks": lost})()
    return state  # type: ignore[no-any-return] # as much of a state as is looked at


def disk(name: str | None, size: int = 5) -> DiskState:
    return DiskState(f"id-{name}", name, size)


@pytest.mark.parametrize(
    ("want", "gone", "state", "differs"),
    [
        ({"root": None}, (), seen(disk("root")), False),
        ({"root": None, "data": 5}, (), seen(disk("root")), True),
        ({"data": 5}, (), seen(disk("data", 5)), False),
        ({"data": 6}, (), seen(disk("data", 5)), True),
        ({"data": 4}, (), seen(disk("data", 5)), False),
        ({"data": 5}, (), seen(disk("root"), lost=("data",)), False),
        ({"root": None}, ("data",), seen(disk("root"), disk("data")), True),
        ({"root": None}, ("data",), seen(disk("root"), disk(None)), False),
        ({"root": None, "data": 5}, ("data",), seen(disk("root"), disk("data")), False),
        ({"root": None}, (), seen(disk("root"), disk("image-1")), False),
        ({"data": 5}, (), seen(disk(None)), False),
    ],
)
def test_what_is_done_about_disks(
    *, want: dict[str, int | None], gone: tuple[str, ...], state: MachineState, differs: bool
) -> None:
    assert disk_drift.differ(want, gone, state) is differs
