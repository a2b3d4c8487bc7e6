"""Taking over VMs that exist: seen first, marked when that is accepted, and then like any other."""

from dataclasses import replace
from typing import Any

import pytest

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner
from banlieue.sdk.powers import Candidate
from banlieue.sdk.simulated.driver import SimulatedDriver
from banlieue.sdk.simulated.records import OFF, ON
from banlieue.sdk.testing.memory_api import Moment
from test.kit.adoptbench import (
    ALLOWED,
    OTHER,
    accept,
    adopting,
    existing,
    policy,
    ready_message,
    snapshot,
)
from test.kit.machinebench import MACHINE, NAMESPACE, MachineBench


@pytest.fixture
def bench() -> MachineBench:
    bench = MachineBench()
    policy(bench, ALLOWED)
    return bench


@pytest.mark.identity("10.3", "10.4")
@pytest.mark.identity("10.3")
@pytest.mark.identity("10.4")
async def test_until_it_is_accepted_the_vm_is_told_and_not_changed(bench: MachineBench) -> None:
    vm = existing(bench)
    before = snapshot(bench)
    adopting(bench, vm.uuid)
    await bench.run()
    bench.clock.advance(1000)
    await bench.run()

    assert snapshot(bench) == before
    status = bench.machine()["status"]
    assert bench.condition("Ready") == ("False", "AdoptionPending")
    assert "nothing but its mark" in ready_message(bench)
    assert status["resources"] == {
        "cpus": 1,
        "memoryMiB": 1024,
        "disks": [
            {
                "name": "root",
                "sizeGiB": 1,
                "guestPath": status["resources"]["disks"][0]["guestPath"],
            }
        ],
    }
    assert status["interfaces"] == [
        {"name": "eth0", "connected": True, "macAddress": vm.nics[0].mac}
    ]
    assert (status["powerState"], status["failureDomain"]) == (ON, "sim-a")
    assert status["addresses"]
    assert "pendingChanges" not in status
    spec = bench.machine()["spec"]
    assert "instance" not in spec
    assert "providerID" not in spec
    assert "initialization" not in status
    assert not bench.machine()["metadata"].get("finalizers")


@pytest.mark.identity("10.4")
async def test_what_accepting_would_change_is_told_with_both_values(bench: MachineBench) -> None:
    vm = existing(bench, power=OFF)
    adopting(
        bench,
        vm.uuid,
        cpus=4,
        powerState=ON,
        disks=[{"name": "root", "sizeGiB": 30}, {"name": "data", "sizeGiB": 5}],
        networkInterfaces=[{"name": "eth1", "networkClass": "lan"}],
    )
    await bench.run()

    status = bench.machine()["status"]
    assert status["pendingChanges"] == ["cpus", "disks", "networkInterfaces", "powerState"]
    message = ready_message(bench)
    assert "cpus from 1 to 4" in message
    assert "powerState from PoweredOff to PoweredOn" in message
    assert "networkInterfaces (eth1)" in message
    assert bench.condition("UpToDate") == ("False", "AdoptionPending")


@pytest.mark.identity("0.6", "10.2")
@pytest.mark.identity("10.2")
async def test_an_accepted_vm_is_marked_and_else_stays_as_it_is(bench: MachineBench) -> None:
    vm = existing(bench, power=OFF)
    before = snapshot(bench)[0]
    adopting(bench, vm.uuid)
    await bench.run()
    accept(bench)
    await bench.run()

    (after,) = snapshot(bench)
    mark = Mark.decode(after["mark"])
    assert mark is not None
    assert str(mark.owner) == "installation-1/VirtualMachine/team-a/db-1"
    assert (mark.uuid, mark.epoch, mark.incoming) == (vm.uuid, 0, False)
    assert [disk["name"] for disk in after["disks"]] == ["root"]
    assert [nic["name"] for nic in after["nics"]] == ["eth0"]
    same = ("uuid", "name", "power", "cpus", "memory_mib", "host", "domain", "id")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    spec = bench.machine()["spec"]
    assert spec["providerID"] == f"simulated://{vm.uuid}"
    assert spec["instance"]["uuid"] == vm.uuid
    assert spec["instance"]["name"] == "legacy"
    assert spec["instance"]["reserved"]["macAddresses"] == [
        {"nic": "eth0", "address": vm.nics[0].mac}
    ]
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.condition("UpToDate") == ("True", "UpToDate")
    assert [it.reason for it in bench.recorder.events if it.reason == "Adopted"] == ["Adopted"]


@pytest.mark.identity("10.2")
async def test_the_provider_id_is_made_of_the_uuid_the_guest_sees(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = existing(bench)
    bios = "11111111-2222-4333-8444-555555555555"
    driver = bench.served.driver
    assert isinstance(driver, SimulatedDriver)
    find = driver.find

    def with_another_bios(id_: str) -> Candidate | None:
        found = find(id_)
        return replace(found, hardware_uuid=bios) if found else None

    monkeypatch.setattr(driver, "find", with_another_bios)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    spec = bench.machine()["spec"]
    assert spec["providerID"] == f"simulated://{bios}"
    assert spec["instance"]["uuid"] == vm.uuid
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.vms()[0].uuid == vm.uuid


@pytest.mark.identity("10.2")
async def test_an_adopted_vm_is_looked_for_by_its_uuid_and_never_by_its_name(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    bench.control("rename", vm=vm.id, name="renamed-by-its-admin")
    bench.control("make_foreign", name="legacy", domain="domain-a")
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")

    bench.control("remove", vm=vm.id)
    bench.restart()
    await bench.run()
    assert bench.condition("Ready") == ("False", "VMMissing")
    assert len(bench.vms()) == 1


async def test_normal_life_follows(bench: MachineBench) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    nic = {"name": "eth1", "networkClass": "lan"}
    disks = [{"name": "root", "sizeGiB": 7}, {"name": "data", "sizeGiB": 2, "storageClass": "fast"}]
    bench.edit(networkInterfaces=[nic], disks=disks, cpus=2)
    await bench.run()
    (now,) = bench.vms()
    assert now.cpus == 2
    assert [(disk.name, disk.size_gib) for disk in now.disks] == [("root", 7), ("data", 2)]
    assert [it.name for it in now.nics] == ["eth0", "eth1"]
    assert now.nics[0] == vm.nics[0].model_copy(update={"name": "eth0"})

    bench.edit(networkInterfaces=[], powerState=OFF, powerOffMode="Hard")
    await bench.run()
    (now,) = bench.vms()
    assert [it.name for it in now.nics] == ["eth0"], "what it came along with stays, ours goes"
    assert now.power == OFF
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_power_that_nobody_asks_for_is_no_drift(bench: MachineBench) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    bench.control("set_power", vm=vm.id, power=OFF)
    await bench.run()
    bench.clock.advance(120)
    await bench.run()
    assert bench.vms()[0].power == OFF
    assert bench.condition("PowerStateSynced") == ("True", "PowerStateSynced")
    assert bench.condition("Ready") == ("True", "Ready")


@pytest.mark.identity("10.1")
@pytest.mark.identity("10.1")
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"adoption": {}},
        {"adoption": {"allowedNamespaces": {"from": "Same"}}},
        {
            "adoption": {
                "allowedNamespaces": {
                    "from": "Selector",
                    "selector": {"matchLabels": {"team": "b"}},
                }
            }
        },
    ],
)
async def test_without_the_providers_leave_nothing_is_even_told(
    bench: MachineBench, value: dict[str, Any]
) -> None:
    vm = existing(bench)
    before = snapshot(bench)
    policy(bench, value)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    assert bench.condition("Ready") == ("False", "AdoptionNotAllowed")
    assert "resources" not in bench.machine()["status"]
    assert snapshot(bench) == before

    selector = {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}
    policy(bench, {"adoption": {"allowedNamespaces": selector}})
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")


async def test_an_id_nobody_has_is_told_and_nothing_is_made(bench: MachineBench) -> None:
    adopting(bench, "3f1c8a1e-0000-4000-8000-000000000000", accepted=True)
    await bench.run()
    assert bench.condition("Ready") == ("False", "AdoptionNotFound")
    assert bench.vms() == []


async def test_somebody_elses_vm_is_not_told_of_and_not_touched(bench: MachineBench) -> None:
    vm = existing(bench)
    owner = Owner("installation-9", OWNER_VIRTUAL_MACHINE, "team-z", "secret-name")
    bench.control("set_mark", vm=vm.id, mark=Mark(owner, vm.uuid).encode())
    before = snapshot(bench)
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    assert bench.condition("Ready") == ("False", "OwnershipConflict")
    assert "secret-name" not in str(bench.machine())
    assert "resources" not in bench.machine()["status"]
    assert snapshot(bench) == before


async def test_a_mark_that_was_copied_along_with_a_vm_is_nobodys(bench: MachineBench) -> None:
    vm = existing(bench)
    owner = Owner("installation-9", OWNER_VIRTUAL_MACHINE, "team-z", "original")
    bench.control("set_mark", vm=vm.id, mark=Mark(owner, "another-uuid").encode())
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")


async def test_a_machine_whose_owner_has_a_vm_already_gets_no_second_one(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    other = existing(bench, "other")
    owner = Owner("installation-1", OWNER_VIRTUAL_MACHINE, NAMESPACE, MACHINE.name)
    bench.control("set_mark", vm=other.id, mark=Mark(owner, other.uuid).encode())
    adopting(bench, vm.uuid, accepted=True)
    await bench.run()
    assert bench.condition("Ready") == ("False", "OwnershipConflict")
    assert next(it for it in bench.vms() if it.id == vm.id).mark is None


async def test_of_two_objects_that_want_one_vm_one_gets_it(bench: MachineBench) -> None:
    vm = existing(bench)
    for key in (MACHINE, OTHER):
        adopting(bench, vm.uuid, key, accepted=True)
    for _ in range(12):
        for key in (MACHINE, OTHER):
            result = await bench.reconciler.reconcile(key)
            bench.clock.advance(min(result.requeue_after or 0.0, 1.0))
    told = {key: bench.condition("Ready", key) for key in (MACHINE, OTHER)}
    assert sorted(told.values()) == [("False", "OwnershipConflict"), ("True", "Ready")]
    (winner,) = [key for key, said in told.items() if said[0] == "True"]
    mark = Mark.decode(bench.vms()[0].mark)
    assert mark is not None
    assert mark.owner.name == winner.name


async def test_of_two_that_persisted_the_same_identity_one_gets_it_and_keeps_it(
    bench: MachineBench,
) -> None:
    vm = existing(bench)
    for key in (MACHINE, OTHER):
        adopting(bench, vm.uuid, key, accepted=True)
    instance = {
        "uuid": vm.uuid,
        "name": "legacy",
        "installationID": "installation-1",
        "backendIdentity": "bench-identity",
    }
    for key in (MACHINE, OTHER):
        bench.edit(key, instance=instance)
    for key in (OTHER, MACHINE):
        await bench.run(key)
    assert bench.condition("Ready", OTHER) == ("True", "Ready")
    assert bench.condition("Ready", MACHINE) == ("False", "OwnershipConflict")

    bench.delete(MACHINE, mode="Release")
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    await bench.run(MACHINE)
    await bench.run(OTHER)
    assert bench.machine(MACHINE) == {}
    assert bench.condition("Ready", OTHER) == ("True", "Ready")


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("which", range(7))
async def test_an_adoption_killed_at_any_write_ends_in_the_same_state(
    bench: MachineBench, which: int, moment: Moment
) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    bench.die_at_write(which, moment)
    await bench.run_through_crashes()
    bench.clock.advance(5)
    await bench.run_through_crashes()
    (now,) = bench.vms()
    mark = Mark.decode(now.mark)
    assert mark is not None
    assert (mark.uuid, now.uuid, now.name) == (vm.uuid, vm.uuid, "legacy")
    assert bench.machine()["spec"]["providerID"] == f"simulated://{vm.uuid}"
    assert bench.condition("Ready") == ("True", "Ready")


@pytest.mark.parametrize("effect", ["lose-reply", "late", "cut", "fail-task", "refuse"])
async def test_a_lost_or_late_mark_ends_in_the_same_state(bench: MachineBench, effect: str) -> None:
    vm = existing(bench)
    adopting(bench, vm.uuid, accepted=True)
    rule = {"effect": effect, "method": "take_over", "seconds": 30.0}
    bench.control("inject", rule=rule)
    for _ in range(6):
        await bench.run()
        bench.restart()
        bench.clock.advance(40)
    await bench.run()
    mark = Mark.decode(bench.vms()[0].mark)
    assert mark is not None
    assert mark.uuid == vm.uuid
    assert bench.condition("Ready") == ("True", "Ready")


async def test_a_late_mark_does_not_take_the_vm_from_whoever_has_it(bench: MachineBench) -> None:
    vm = existing(bench)
    for key in (MACHINE, OTHER):
        adopting(bench, vm.uuid, key, accepted=True)
    rule = {"effect": "late", "method": "take_over", "seconds": 500.0}
    bench.control("inject", rule=rule)
    await bench.reconciler.reconcile(MACHINE)
    assert bench.machine()["spec"]["instance"]["uuid"] == vm.uuid
    bench.delete(mode="Release")
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    await bench.run()
    assert bench.machine() == {}
    await bench.run(OTHER)
    assert bench.condition("Ready", OTHER) == ("True", "Ready")
    bench.clock.advance(1000)
    await bench.run(OTHER)
    mark = Mark.decode(bench.vms()[0].mark)
    assert mark is not None
    assert mark.owner.name == OTHER.name


@pytest.mark.identity("10.3")
async def test_a_spoiled_mark_gives_the_vm_to_nobody_who_waits_for_it(bench: MachineBench) -> None:
    vm = existing(bench)
    for key in (MACHINE, OTHER):
        adopting(bench, vm.uuid, key, accepted=True)
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    instance = bench.machine()["spec"]["instance"]
    # A restored backup of somebody who claimed it at the same moment, and lost.
    bench.edit(OTHER, instance=instance)
    (marked,) = bench.vms()
    bench.control("set_mark", vm=marked.id, mark="rubbish")
    await bench.run(OTHER)
    assert bench.condition("Ready", OTHER) == ("False", "OwnershipConflict")
    assert bench.vms()[0].mark == "rubbish"
