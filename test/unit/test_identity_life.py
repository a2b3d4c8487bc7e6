"""Rules of identity that no other test shows by itself."""

import pytest

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import NAMESPACE, THIS, ControllerWorld, restored
from test.kit.machinebench import MACHINE, MachineBench

CONFIG = Key(names.SYSTEM_NAMESPACE, names.INSTALLATION_CONFIG_MAP)


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


# The controller


@pytest.mark.identity("1.1")
async def test_the_status_names_the_object_before_it_is_posted_and_exactly_that_one() -> None:
    world = ControllerWorld.ready()
    named: list[object] = []

    def look(call: Call, moment: Moment) -> None:
        if call.verb == "create" and call.resource == THIS and moment is Moment.BEFORE:
            named.append(world.status().get("infrastructureRef"))

    world.api.intercept(look)
    world.add_vm()
    await world.settle()
    (machine,) = world.machines()
    reference = {"apiGroup": THIS.group, "kind": THIS.kind, "name": "db-1", "namespace": NAMESPACE}
    assert named == [reference]
    assert machine["metadata"]["name"] == "db-1"
    verbs = {it.verb for it in world.api.writes() if it.resource == THIS and not it.subresource}
    assert "apply" not in verbs


@pytest.mark.identity("2.1")
async def test_an_object_nobody_refers_to_is_removed_and_its_owner_keeps_the_other() -> None:
    world = ControllerWorld.ready()
    world.add_vm()
    await world.settle()
    before = world.vms()
    stray = restored(world.machine() or {})
    stray["metadata"]["name"] = "db-1-m7"
    stray["metadata"].pop("finalizers", None)
    for field in ("instance", "providerID"):
        stray["spec"].pop(field, None)
    world.api.put(THIS, stray)
    await world.settle()
    assert [it["metadata"]["name"] for it in world.machines()] == ["db-1"]
    assert world.vms() == before


# The provider


@pytest.mark.identity("0.10")
async def test_a_machine_of_another_installation_keeps_its_vm(bench: MachineBench) -> None:
    """As objects do that were moved into this cluster: their own id is what the mark says."""
    bench.make_machine()
    await bench.run()
    (before,) = bench.vms()
    moved, owner = bench.machine(), bench.api.peek(VIRTUAL_MACHINES, MACHINE) or {}
    other = MachineBench()
    other.world.state.vms.update(bench.world.state.vms)
    other.api.edit(CONFIG_MAPS, CONFIG, lambda obj: obj["data"].update(id="another"))
    other.api.put(VIRTUAL_MACHINES, restored(owner, uid=owner["metadata"]["uid"]))
    other.api.put(SIMULATED_MACHINES, restored(moved))
    await other.run()
    assert other.condition("Ready") == ("True", "Ready")
    assert other.vms() == [before]
    other.edit(powerState="PoweredOff")
    for _ in range(3):
        await other.run()
        other.clock.advance(60)
    assert [vm.power for vm in other.vms()] == ["PoweredOff"]


@pytest.mark.identity("2.2", "2.3")
async def test_a_vm_is_found_wherever_on_the_provider_it_is(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    (before,) = bench.vms()
    bench.api.drop(SIMULATED_MACHINES, MACHINE, force=True)
    bench.restart()
    bench.make_machine(placement={"failureDomain": "sim-b"})
    await bench.run()
    assert bench.vms() == [before]
    assert bench.machine()["spec"]["instance"]["uuid"] == before.uuid
    assert bench.machine()["status"]["failureDomain"] == "sim-a"


@pytest.mark.identity("4.1")
async def test_the_provider_id_waits_until_the_vm_was_seen(bench: MachineBench) -> None:
    bench.make_machine()
    bench.world.state.latencies.create = 50.0
    for _ in range(3):
        await bench.reconciler.reconcile(MACHINE)
        assert "instance" in bench.machine()["spec"]
        assert "providerID" not in bench.machine()["spec"]
    bench.clock.advance(100)
    await bench.run()
    assert bench.machine()["spec"]["providerID"] == f"simulated://{bench.vms()[0].uuid}"


@pytest.mark.identity("6.5", "0.4")
async def test_a_vm_whose_mark_was_changed_is_not_destroyed(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    (vm,) = bench.vms()
    mark = str(vm.mark).replace("team-a", "team-b")
    bench.control("set_mark", vm=vm.id, mark=mark)
    bench.delete()
    await bench.run()
    assert [it.id for it in bench.vms()] == [vm.id]
    assert bench.condition("Deleting") == ("True", "OwnershipConflict")
    assert bench.machine()["metadata"]["finalizers"]


@pytest.mark.identity("9.1", "3.3")
@pytest.mark.parametrize("lost", [True, False], ids=["hints lost", "hints kept"])
async def test_a_process_that_begins_in_the_middle_of_a_create_goes_on_with_it(
    bench: MachineBench, *, lost: bool
) -> None:
    bench.make_machine()
    bench.world.state.latencies.create = 30.0
    for _ in range(3):
        await bench.reconciler.reconcile(MACHINE)
    assert bench.vms() == [] or bench.machine()["spec"].get("providerID") is None
    bench.restart()
    if lost:
        bench.api.edit(SIMULATED_MACHINES, MACHINE, _lose_status)
    bench.clock.advance(200)
    await bench.run()
    assert len(bench.vms()) == 1
    assert bench.condition("Ready") == ("True", "Ready")


def _lose_status(machine: Obj) -> None:
    machine.pop("status", None)
