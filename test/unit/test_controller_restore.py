"""Whatever was lost or brought back, the same one VM is found again and none is made beside it."""

import copy

import pytest

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, NAMESPACES, PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import (
    NAMESPACE,
    SYSTEM,
    THAT,
    THIS,
    ControllerWorld,
    restored,
)

VM = Key(NAMESPACE, "db-1")
CONFIG = Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)


async def _running() -> ControllerWorld:
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    world.add_vm(placement={"providerSelector": {}})
    await world.settle()
    assert len(world.vms()) == 1
    return world


def _backup(world: ControllerWorld) -> tuple[Obj, Obj, str]:
    vm, machine = world.vm(), world.machines()[0]
    assert vm is not None
    return vm, machine, world.vms()[0].uuid


def _lose_everything(world: ControllerWorld) -> None:
    for obj in world.machines():
        kind = THIS if obj["kind"] == THIS.kind else THAT
        world.api.drop(kind, VM, force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)


def _assert_same_vm(world: ControllerWorld, uuid: str) -> None:
    assert [vm.uuid for vm in world.vms()] == [uuid]
    assert len(world.machines()) == 1
    assert world.condition("Ready")["status"] == "True"
    assert world.status()["providerID"] == f"fake://{uuid}"


@pytest.mark.identity("1.3")
async def test_status_wiped() -> None:
    world = await _running()
    _, _, uuid = _backup(world)
    world.api.edit(VIRTUAL_MACHINES, VM, lambda obj: obj.pop("status"))
    await world.settle()
    _assert_same_vm(world, uuid)


async def test_status_wiped_while_the_controller_was_down_and_another_place_is_better() -> None:
    world = await _running()
    _, _, uuid = _backup(world)
    world.api.edit(VIRTUAL_MACHINES, VM, lambda obj: obj.pop("status"))
    world.api.edit(PROVIDERS, Key(SYSTEM, "one"), lambda obj: obj["spec"].update(cordoned=True))
    world.restart()
    await world.settle()
    _assert_same_vm(world, uuid)
    assert world.status()["scheduled"]["providerName"] == "one"


@pytest.mark.identity("6.3")
async def test_infra_object_deleted_by_hand() -> None:
    world = await _running()
    _, machine, uuid = _backup(world)
    world.api.drop(THIS, VM)
    await world.settle()
    _assert_same_vm(world, uuid)
    assert world.machines()[0]["metadata"]["uid"] != machine["metadata"]["uid"]


async def test_infra_object_torn_out_past_its_finalizer() -> None:
    world = await _running()
    _, _, uuid = _backup(world)
    world.api.drop(THIS, VM, force=True)
    await world.settle()
    _assert_same_vm(world, uuid)


@pytest.mark.parametrize("collected", [True, False])
async def test_infra_object_restored_with_a_stale_owner(*, collected: bool) -> None:
    world = await _running()
    vm, machine, uuid = _backup(world)
    _lose_everything(world)
    world.api.put(VIRTUAL_MACHINES, restored(vm, uid="new-vm-uid"))
    world.api.put(THIS, restored(machine))
    if collected:
        assert world.api.collect_garbage() == 1
    await world.settle()
    _assert_same_vm(world, uuid)
    owner = world.machines()[0]["metadata"]["ownerReferences"]
    assert [it["uid"] for it in owner] == ["new-vm-uid"]
    assert world.machines()[0]["spec"]["virtualMachineRef"]["uid"] == "new-vm-uid"
    assert world.api.collect_garbage() == 0


@pytest.mark.parametrize("status", [True, False], ids=["with status", "without status"])
async def test_virtual_machines_restored_before_infra_objects(*, status: bool) -> None:
    world = await _running()
    vm, machine, uuid = _backup(world)
    _lose_everything(world)
    world.api.put(VIRTUAL_MACHINES, restored(vm, uid="new-vm-uid", status=status))
    await world.settle()
    if world.machine() is None:
        world.api.put(THIS, restored(machine))
    await world.settle()
    _assert_same_vm(world, uuid)


async def test_infra_objects_restored_before_virtual_machines() -> None:
    world = await _running()
    vm, machine, uuid = _backup(world)
    _lose_everything(world)
    world.api.put(THIS, restored(machine))
    world.api.collect_garbage()
    await world.settle()
    world.api.put(VIRTUAL_MACHINES, restored(vm, uid="new-vm-uid", status=False))
    await world.settle()
    _assert_same_vm(world, uuid)


@pytest.mark.identity("0.7", "12.4")
async def test_only_manifests_reapplied_to_an_empty_cluster() -> None:
    world = await _running()
    vm, _, uuid = _backup(world)
    config = world.installation
    assert config is not None
    fresh = ControllerWorld.ready(zero={"backend": "that"}, one={})
    fresh.api.put(
        CONFIG_MAPS,
        {"metadata": config["metadata"], "data": {"id": config["data"]["id"], "recovery": "true"}},
    )
    for provider in fresh.providers:
        fresh.api.edit(PROVIDERS, provider.key, lambda obj: obj["status"].pop("unclaimed"))
        provider.reports = False
    fresh.providers[1].vms = world.vms()
    fresh.add_vm(**vm["spec"])
    await fresh.settle()
    assert fresh.condition("Scheduled")["reason"] == "RecoveryPending"
    assert "zero" in fresh.condition("Scheduled")["message"]
    assert not fresh.machines()
    fresh.providers[1].reports = True
    fresh.providers[1].publish()
    await fresh.settle()
    _assert_same_vm(fresh, uuid)
    assert fresh.status()["scheduled"]["providerName"] == "one"


@pytest.mark.identity("12.4")
async def test_a_new_owner_in_recovery_waits_for_every_provider() -> None:
    world = ControllerWorld.ready(one={}, two={})
    await world.settle()
    world.api.edit(CONFIG_MAPS, CONFIG, lambda obj: obj["data"].update(recovery="true"))
    world.providers[1].reports = False
    world.api.edit(PROVIDERS, Key(SYSTEM, "two"), lambda obj: obj["status"].pop("unclaimed"))
    world.add_vm()
    await world.settle()
    assert world.condition("Scheduled")["reason"] == "RecoveryPending"
    world.api.edit(CONFIG_MAPS, CONFIG, lambda obj: obj["data"].pop("recovery"))
    await world.settle()
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.identity("12.2")
async def test_two_providers_with_a_machine_of_the_owner_are_a_conflict() -> None:
    world = await _running()
    vm, _, uuid = _backup(world)
    twin = copy.copy(world.vms()[0])
    world.providers[1].vms.append(twin)
    _lose_everything(world)
    world.providers[0].publish()
    world.providers[1].publish()
    world.api.put(VIRTUAL_MACHINES, restored(vm, status=False))
    await world.settle()
    assert world.condition("Scheduled")["reason"] == "OwnershipConflict"
    assert not world.machines()
    world.providers[1].vms.clear()
    await world.settle()
    _assert_same_vm(world, uuid)


@pytest.mark.identity("1.4")
async def test_several_machine_objects_without_a_single_current_are_a_conflict() -> None:
    world = await _running()
    _, machine, uuid = _backup(world)
    second = restored(machine)
    second["metadata"]["name"] = "db-1-m1"
    world.api.put(THIS, second)
    world.api.edit(VIRTUAL_MACHINES, VM, lambda obj: obj.pop("status"))
    await world.settle()
    assert world.condition("InfrastructureReady")["reason"] == "OwnershipConflict"
    assert world.condition("Ready")["status"] != "True"
    assert [vm.uuid for vm in world.vms()] == [uuid]


@pytest.mark.identity("0.9")
async def test_a_backup_of_everything_in_another_cluster_changes_nothing() -> None:
    world = await _running()
    vm, machine, uuid = _backup(world)
    other = ControllerWorld.ready(one={})
    other.api.edit(
        NAMESPACES, Key("", "kube-system"), lambda obj: obj["metadata"].update(uid="cluster-2")
    )
    other.providers[0].vms = world.vms()
    other.api.put(CONFIG_MAPS, restored(world.installation or {}))
    other.api.put(VIRTUAL_MACHINES, restored(vm, uid=vm["metadata"]["uid"]))
    other.api.put(THIS, restored(machine))
    other.add_vm("fresh")
    other.restart()
    before = copy.deepcopy(other.machines())
    await other.settle()
    other.delete_vm()
    await other.settle()
    assert other.condition("Scheduled", "fresh")["reason"] == "InstallationUnconfirmed"
    assert other.condition("InfrastructureReady")["reason"] == "InstallationUnconfirmed"
    assert [it["spec"] for it in other.machines()] == [it["spec"] for it in before]
    assert [it.uuid for it in other.vms()] == [uuid]
    assert other.vm() is not None


@pytest.mark.identity("0.9")
async def test_confirmation_lets_a_restored_cluster_go_on() -> None:
    world = await _running()
    vm, machine, uuid = _backup(world)
    config = restored(world.installation or {})
    config["data"]["clusterUID"] = "another-cluster"
    other = ControllerWorld.ready(one={})
    other.providers[0].vms = world.vms()
    other.api.put(CONFIG_MAPS, config)
    other.api.put(VIRTUAL_MACHINES, restored(vm, uid=vm["metadata"]["uid"]))
    other.api.put(THIS, restored(machine))
    await other.settle()
    assert other.condition("Ready")["reason"] == "InstallationUnconfirmed"
    annotations = {names.ANNOTATION_CONFIRMED_CLUSTER: "cluster-1"}
    other.api.edit(CONFIG_MAPS, CONFIG, lambda obj: obj["metadata"].update(annotations=annotations))
    await other.settle()
    _assert_same_vm(other, uuid)
    assert (other.installation or {})["data"]["clusterUID"] == "cluster-1"


@pytest.mark.identity("0.8")
async def test_the_installation_is_made_again_from_what_machines_carry() -> None:
    world = await _running()
    _, _, uuid = _backup(world)
    before = (world.installation or {})["data"]["id"]
    world.api.drop(CONFIG_MAPS, CONFIG)
    world.restart()
    await world.settle()
    data = (world.installation or {})["data"]
    assert data["id"] == before
    assert data["recovery"] == "true"
    _assert_same_vm(world, uuid)


@pytest.mark.identity("0.9")
async def test_machines_of_two_installations_hold_everything() -> None:
    world = await _running()
    _, machine, _ = _backup(world)
    stranger = restored(machine)
    stranger["metadata"]["name"] = "db-2"
    stranger["spec"]["virtualMachineRef"] = {"name": "db-2"}
    stranger["spec"]["instance"]["installationID"] = "another"
    world.api.put(THIS, stranger)
    world.api.drop(CONFIG_MAPS, CONFIG)
    world.restart()
    world.add_vm("fresh")
    await world.settle()
    assert world.condition("Scheduled", "fresh")["reason"] == "InstallationUnconfirmed"
    assert world.installation is None


async def test_a_restore_into_another_namespace_does_not_touch_the_first() -> None:
    world = await _running()
    vm, machine, uuid = _backup(world)
    world.api.put(NAMESPACES, {"metadata": {"name": "team-b"}})
    copied = restored(vm)
    copied["metadata"]["namespace"] = "team-b"
    world.api.put(VIRTUAL_MACHINES, copied)
    await world.settle()
    assert [it["spec"] for it in world.machines() if it["metadata"]["namespace"] == NAMESPACE] == [
        machine["spec"]
    ]
    assert {vm.owner.namespace for vm in world.vms()} == {NAMESPACE, "team-b"}
    assert world.vms()[0].uuid == uuid


async def _moved() -> tuple[ControllerWorld, Obj, Obj]:
    """One that was moved to Provider two, its VirtualMachine and what the move left behind."""
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    world.add_vm(providerRef={"name": "one", "namespace": SYSTEM})
    await world.settle()
    world.edit_vm(providerRef={"name": "two", "namespace": SYSTEM})
    await world.settle()
    vm, left = world.vm(), world.machine()
    assert vm is not None
    assert left is not None
    assert left["spec"]["move"]["role"] == "Previous"
    return world, vm, left


@pytest.mark.identity("6.3")
@pytest.mark.parametrize("wanted", [True, False], ids=["lives", "is deleted at once"])
async def test_what_a_move_left_is_let_go_when_a_restore_forgot_the_move(*, wanted: bool) -> None:
    world, vm, left = await _moved()
    uuids = sorted(it.uuid for it in world.vms())
    for machine in world.machines():
        kind = THIS if machine["kind"] == THIS.kind else THAT
        world.api.drop(kind, Key.of(machine), force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    fresh = restored(vm, uid="new-vm-uid", status=False)
    fresh["spec"]["deletionPolicy"] = "Delete" if wanted else "Orphan"
    world.api.put(VIRTUAL_MACHINES, fresh)
    world.api.put(THIS, restored(left))
    assert world.api.collect_garbage() == 1
    if not wanted:
        world.delete_vm()
    await world.settle()
    assert sorted(it.uuid for it in world.vms()) == uuids
    assert [it["metadata"]["name"] for it in world.machines()] == (["db-1-m1"] if wanted else [])
    assert (world.condition("Ready").get("status") == "True") is wanted


async def test_a_machine_whose_paused_virtual_machine_was_torn_out_is_let_go() -> None:
    world = await _running()
    world.edit_vm(paused=True)
    await world.settle()
    world.api.drop(THIS, VM)
    await world.settle()
    assert "teardown" not in (world.machine() or {})["spec"]
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    await world.settle()
    assert not world.machines()
    assert len(world.vms()) == 1


async def test_what_a_move_left_is_known_again_though_only_its_object_came_back() -> None:
    world, vm, left = await _moved()
    uuids = {it.epoch: it.uuid for it in world.vms()}
    for machine in world.machines():
        kind = THIS if machine["kind"] == THIS.kind else THAT
        world.api.drop(kind, Key.of(machine), force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    await world.settle()
    world.api.put(VIRTUAL_MACHINES, restored(vm, uid="new-vm-uid", status=False))
    orphan = restored(left)
    del orphan["metadata"]["ownerReferences"]
    world.api.put(THIS, orphan)
    await world.settle()
    assert world.status()["infrastructureRef"]["name"] == "db-1-m1"
    assert world.status()["previous"]["infrastructureRef"]["name"] == "db-1"
    world.edit_vm(providerRef={"name": "one", "namespace": SYSTEM})
    await world.settle()
    assert world.status()["infrastructureRef"]["name"] == "db-1"
    assert {it.epoch: it.uuid for it in world.vms()} == {1: uuids[1], 2: uuids[0]}


@pytest.mark.parametrize("backend", ["this", "that"])
@pytest.mark.parametrize("status", [True, False], ids=["with status", "without status"])
@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "not pinned"])
async def test_a_backup_from_before_a_move_finds_the_machine_and_does_not_move_it_back(
    *, backend: str, status: bool, pinned: bool
) -> None:
    to_one, to_two = ({"name": name, "namespace": SYSTEM} for name in ("one", "two"))
    world = ControllerWorld.ready(one={}, two={"backend": backend})
    if pinned:
        world.add_vm(providerRef=to_one)
    else:
        world.add_vm()
    await world.settle()
    before = world.vm()
    assert before is not None
    world.edit_vm(providerRef=to_two)
    await world.settle()
    uuids = sorted(it.uuid for it in world.vms())
    (current,) = [it.uuid for it in world.vms() if it.epoch == 1]
    for machine in world.machines():
        kind = THIS if machine["kind"] == THIS.kind else THAT
        world.api.drop(kind, Key.of(machine), force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    await world.settle()
    world.api.put(VIRTUAL_MACHINES, restored(before, uid="new-vm-uid", status=status))
    await world.settle()
    assert world.status()["providerID"] == f"fake://{current}"
    assert world.status()["scheduled"]["providerName"] == "two"
    assert world.condition("Ready")["status"] == "True"
    assert sorted(it.uuid for it in world.vms()) == uuids
    if pinned:
        assert world.condition("PlacementValid")["reason"] == "MigrationFailed"
        assert "banlieue.io/migrate=true" in world.condition("PlacementValid")["message"]
        world.annotate(migrate="true")
        await world.settle()
        assert world.status()["scheduled"]["providerName"] == "one"


@pytest.mark.parametrize("later", [True, False], ids=["moved since", "of the same move"])
async def test_an_older_object_that_comes_back_late_is_let_go_before_it_starts_its_vm(
    *, later: bool
) -> None:
    world, _, left = await _moved()
    uuids = sorted(it.uuid for it in world.vms())
    world.api.edit(VIRTUAL_MACHINES, VM, lambda obj: obj["status"].pop("previous"))
    world.api.drop(THIS, VM, force=True)
    await world.settle()
    assert [it["metadata"]["name"] for it in world.machines()] == ["db-1-m1"]
    world.providers[0].down = True  # a provider waits longer before it corrects a power state
    orphan = restored(left)
    del orphan["metadata"]["ownerReferences"]
    orphan["spec"] |= {"powerState": "PoweredOn", "paused": True}
    orphan["spec"]["move"] = {"epoch": 0 if later else 1, "role": "Current"}
    world.api.put(THIS, orphan)
    await world.settle(seconds=20)
    world.providers[0].down = False
    await world.providers[0].step(VM)
    await world.settle()
    assert (world.machine() is None) is later
    assert sorted(it.uuid for it in world.vms()) == uuids
    assert [it.epoch for it in world.vms() if it.live] == [1]
    assert world.status()["infrastructureRef"]["name"] == "db-1-m1"


@pytest.mark.parametrize("lost", ["nothing", "the current object"])
async def test_a_virtual_machine_deleted_right_after_a_restore_takes_what_a_move_left_along(
    lost: str,
) -> None:
    world, vm, left = await _moved()
    machines = world.machines()
    for machine in machines:
        kind = THIS if machine["kind"] == THIS.kind else THAT
        world.api.drop(kind, Key.of(machine), force=True)
    world.api.drop(VIRTUAL_MACHINES, VM, force=True)
    world.api.put(VIRTUAL_MACHINES, restored(vm, uid="new-vm-uid", status=False))
    back = [left] if lost != "nothing" else machines
    for machine in back:
        orphan = restored(machine)
        del orphan["metadata"]["ownerReferences"]
        world.api.put(THIS if machine["kind"] == THIS.kind else THAT, orphan)
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert not world.machines()
    assert len(world.vms()) == 2 - len(back)
