"""The machine object follows the VirtualMachine, the status follows the machine."""

import asyncio
from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES, VM_CLASSES, VM_IMAGES
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import NAMESPACE, SYSTEM, THAT, THIS, ControllerWorld, domain

VM = Key(NAMESPACE, "db-1")


async def _running(**spec: Any) -> ControllerWorld:  # noqa: ANN401 - spec as users write it
    world = ControllerWorld.ready()
    world.add_vm(**spec)
    await world.settle()
    return world


def _spec(world: ControllerWorld) -> dict[str, Any]:
    machine = world.machine()
    assert machine is not None
    spec: dict[str, Any] = machine["spec"]
    return spec


def _say(world: ControllerWorld, kind: str, status: str, reason: str, message: str = "") -> None:
    """Let the provider report a condition of the machine."""

    def change(obj: Obj) -> None:
        kept = [it for it in obj["status"]["conditions"] if it["type"] != kind]
        told = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        obj["status"]["conditions"] = [*kept, told]

    for provider in world.providers:
        provider.down = True
    world.api.edit(THIS, VM, change)


async def test_only_what_changed_is_written() -> None:
    world = await _running()
    world.api.calls.clear()
    world.edit_vm(desiredPowerState="PoweredOff")
    await world.settle()
    patches = [
        call for call in world.api.writes() if call.resource == THIS and not call.subresource
    ]
    assert len(patches) == 1
    assert _spec(world)["powerState"] == "PoweredOff"
    assert world.status()["phase"] == "Stopped"
    assert world.condition("Ready")["status"] == "True"
    assert EventReason.POWERED_OFF in world.recorder.reasons()


async def test_class_edits_do_not_touch_machines_but_another_class_does() -> None:
    world = await _running()
    before = _spec(world)["class"]
    world.api.edit(VM_CLASSES, Key("", "small"), lambda it: it["spec"]["hardware"].update(cpus=64))
    world.restart()
    await world.settle()
    assert _spec(world)["class"] == before
    world.add_class("large", hardware={"cpus": 8, "memoryMiB": 8192, "disks": []})
    world.edit_vm(classRef={"name": "large"})
    await world.settle()
    assert _spec(world)["class"]["hardware"] == {"cpus": 8, "memoryMiB": 8192}
    assert world.status()["scheduled"]["class"]["name"] == "large"


async def test_a_resize_to_a_missing_class_waits_for_it() -> None:
    world = await _running()
    world.edit_vm(classRef={"name": "large"})
    await world.settle()
    assert world.condition("UpToDate")["reason"] == "ClassNotFound"
    assert world.condition("Ready")["status"] == "True"
    assert _spec(world)["class"]["name"] == "small"
    world.add_class("large")
    await world.settle()
    assert _spec(world)["class"]["name"] == "large"
    assert world.condition("UpToDate")["status"] == "True"


async def test_a_machine_made_again_keeps_the_size_it_has() -> None:
    world = await _running()
    old = _spec(world)["class"]["hash"]
    world.api.edit(VM_CLASSES, Key("", "small"), lambda it: it["spec"]["hardware"].update(cpus=64))
    world.api.drop(THIS, VM)
    await world.settle()
    assert _spec(world)["class"]["hardware"]["cpus"] == 2
    assert _spec(world)["class"]["hash"] == old
    assert len(world.vms()) == 1


async def test_labels_are_copied() -> None:
    world = await _running()
    world.api.edit(VIRTUAL_MACHINES, VM, lambda it: it["metadata"].update(labels={"app": "db"}))
    await world.settle()
    machine = world.machine()
    assert machine is not None
    assert machine["metadata"]["labels"] == {
        "app": "db",
        "banlieue.io/owned-by": "db-1",
        "banlieue.io/provider": "one",
    }


async def test_first_boot_data_follows_until_the_machine_was_seen() -> None:
    world = ControllerWorld.ready()
    world.providers[0].down = True
    world.add_vm(userData={"secretRef": {"name": "wrong"}})
    await world.settle()
    world.edit_vm(userData={"secretRef": {"name": "right"}})
    await world.settle()
    assert _spec(world)["userData"]["secretRef"]["name"] == "right"
    world.providers[0].down = False
    await world.providers[0].step(VM)
    await world.settle()
    world.edit_vm(userData={"secretRef": {"name": "late"}})
    await world.settle()
    assert _spec(world)["userData"]["secretRef"]["name"] == "right"


async def test_pause_reaches_the_provider_and_nothing_else_does() -> None:
    world = await _running()
    world.edit_vm(paused=True, desiredPowerState="PoweredOff")
    await world.settle()
    assert _spec(world)["paused"] is True
    assert _spec(world)["powerState"] == "PoweredOn"
    assert world.condition("Paused")["status"] == "True"
    assert world.condition("Ready")["status"] == "True"
    world.edit_vm(paused=False)
    await world.settle()
    assert "paused" not in _spec(world)
    assert world.condition("Paused") == {}
    assert world.status()["phase"] == "Stopped"


async def test_a_refused_machine_is_placed_anew_at_the_same_provider() -> None:
    world = ControllerWorld.ready(one={"domains": ["a", "b"]})
    world.providers[0].full = {"one-a"}
    world.add_vm()
    await world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.status()["scheduled"]["failureDomain"] == "one-b"
    assert [vm.domain for vm in world.vms()] == ["one-b"]


@pytest.mark.parametrize("backend", ["this", "that"])
@pytest.mark.parametrize("write", [None, *range(1, 12)])
async def test_a_refused_machine_goes_to_another_provider(backend: str, write: int | None) -> None:
    world = ControllerWorld.ready(one={}, two={"backend": backend})
    world.providers[0].full = {"one-a"}
    if write is not None:
        world.crash_at(write)
    world.add_vm()
    await world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.status()["scheduled"]["providerName"] == "two"
    assert len(world.machines()) == len(world.vms()) == 1
    kind = THAT if backend == "that" else THIS
    assert world.machine(kind=kind) is not None


async def test_a_refused_machine_waits_where_nobody_has_room() -> None:
    world = ControllerWorld.ready()
    world.providers[0].full = {"one-a"}
    world.add_vm()
    await world.settle(seconds=300)
    assert world.condition("InfrastructureReady")["reason"] == "InsufficientCapacity"
    assert world.condition("Stalled") == {}
    world.providers[0].full = set()
    await world.providers[0].step(VM)
    await world.settle()
    assert world.condition("Ready")["status"] == "True"


async def test_nothing_is_placed_anew_once_it_exists() -> None:
    world = ControllerWorld.ready(one={"domains": ["a", "b"]})
    world.add_vm()
    await world.settle()
    before = _spec(world)["placement"]

    def refuse(obj: Obj) -> None:
        name = obj["spec"]["placement"]["failureDomain"]
        obj["status"]["createRefused"] = {"failureDomain": name, "reason": "InsufficientCapacity"}

    world.providers[0].down = True
    world.api.edit(THIS, VM, refuse)
    await world.settle()
    assert _spec(world)["placement"] == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metadata": {"labels": {}}}, "ProviderChanged"),
        ({"spec": {"allowedNamespaces": {"from": "Same"}}}, "ProviderNotAllowed"),
        ({"status": {"failureDomains": [domain("one-z")]}}, "FailureDomainNotFound"),
    ],
)
async def test_a_placement_that_became_invalid_only_says_so(
    change: dict[str, Any], reason: str
) -> None:
    world = ControllerWorld.ready(one={"labels": {"env": "prod"}}, two={"labels": {"env": "prod"}})
    world.add_vm(placement={"providerSelector": {"matchLabels": {"env": "prod"}}})
    await world.settle()
    spec = _spec(world)

    def apply(obj: Obj) -> None:
        for part, values in change.items():
            obj[part].update(values)

    world.api.edit(PROVIDERS, Key(SYSTEM, "one"), apply)
    await world.settle()
    assert world.condition("PlacementValid")["status"] == "False"
    assert world.condition("PlacementValid")["reason"] == reason
    assert world.condition("Ready")["status"] == "True"
    assert _spec(world) == spec


async def test_a_move_by_the_backend_is_only_reported() -> None:
    world = ControllerWorld.ready(one={"domains": ["a", "b"]})
    world.add_vm()
    await world.settle()
    world.vms()[0].domain = "one-b"
    await world.providers[0].step(VM)
    await world.settle()
    assert world.status()["observedFailureDomain"] == "one-b"
    assert world.status()["scheduled"]["failureDomain"] == "one-a"
    assert world.condition("PlacementValid")["status"] == "True"
    assert world.condition("PlacementValid")["reason"] == "MovedByBackend"
    await world.settle()
    assert world.recorder.reasons().count(EventReason.MOVED_BY_BACKEND) == 1


async def test_a_vanished_machine_is_reported_and_not_made_again() -> None:
    world = await _running()
    world.providers[0].vms.clear()
    await world.providers[0].step(VM)
    await world.settle()
    assert world.condition("Ready")["reason"] == "VMMissing"
    assert world.status()["phase"] == "Failed"
    assert EventReason.VM_MISSING in world.recorder.reasons()
    assert not world.vms()


async def test_an_outage_keeps_the_status_and_tells_once() -> None:
    world = await _running()
    before = world.status()
    _say(world, "Ready", "Unknown", "ProviderUnreachable", "the endpoint does not answer")
    await world.settle()
    during = world.status()
    assert during["phase"] == "Unknown"
    assert {name: during[name] for name in ("addresses", "scheduled", "observedPowerState")} == {
        name: before[name] for name in ("addresses", "scheduled", "observedPowerState")
    }
    assert world.condition("Stalled") == {}
    _say(world, "Ready", "True", "Ready")
    await world.settle()
    assert world.status()["phase"] == "Running"
    reasons = world.recorder.reasons()
    assert reasons.count(EventReason.PROVIDER_UNREACHABLE) == 1
    assert reasons.count(EventReason.PROVIDER_RECOVERED) == 1


@pytest.mark.parametrize(
    ("reason", "stalled"),
    [
        ("InvalidConfiguration", True),
        ("ProviderPermissionDenied", True),
        ("InsufficientCapacity", False),
        ("ProviderUnreachable", False),
        ("AbsenceUnproven", False),
    ],
)
async def test_stalled_only_where_waiting_cannot_help(reason: str, *, stalled: bool) -> None:
    world = await _running()
    _say(world, "Ready", "False", reason, "what to do")
    await world.settle()
    assert bool(world.condition("Stalled")) == stalled
    assert world.condition("Ready")["reason"] == reason
    assert world.condition("Ready")["message"] == "what to do"


async def test_reconciling_is_there_only_while_work_goes_on() -> None:
    world = ControllerWorld.ready()
    world.providers[0].down = True
    world.add_vm()
    await world.settle()
    assert world.status()["phase"] == "Provisioning"
    assert world.condition("Reconciling")["status"] == "True"
    world.providers[0].down = False
    await world.providers[0].step(VM)
    await world.settle()
    assert world.condition("Reconciling") == {}
    world.providers[0].down = True
    world.edit_vm(desiredPowerState="PoweredOff")
    await world.settle()
    assert world.status()["phase"] == "Updating"
    assert world.condition("PowerStateSynced")["reason"] == "PoweringOff"
    assert world.condition("UpToDate")["reason"] == "Updating"
    assert world.status()["observedGeneration"] == (world.vm() or {})["metadata"]["generation"]


async def test_a_machine_without_an_agent_is_ready_without_addresses() -> None:
    world = ControllerWorld.ready()
    world.add_image("bare", agent="absent")
    world.image_ready_at(world.providers[0].key, "bare")
    world.add_vm(imageRef={"name": "bare"})
    await world.settle()
    _say(world, "AddressesAvailable", "False", "AddressPending")
    await world.settle()
    assert "readinessGates" in world.status()
    assert world.status()["readinessGates"] == []
    assert world.condition("Ready")["status"] == "True"
    world.edit_vm(readinessGates=["AddressesAvailable"])
    await world.settle()
    assert world.condition("Ready")["reason"] == "AddressPending"


async def test_what_is_waited_for_wakes_without_polling() -> None:
    world = ControllerWorld()
    world.add_vm()
    await world.settle()
    assert world.condition("Ready")["reason"] == "ClassNotFound"
    world.add_class()
    await world.settle()
    assert world.condition("Ready")["reason"] == "ImageNotFound"
    world.add_image()
    await world.settle()
    assert world.condition("Ready")["reason"] == "NoProviderMatched"
    provider = world.add_provider("one", image="none")
    await world.settle()
    assert world.condition("Ready")["reason"] == "ImageNotReady"
    world.image_ready_at(provider.key)
    await world.settle()
    assert world.condition("Ready")["status"] == "True"


async def test_a_contradiction_of_class_and_image_is_stalled() -> None:
    world = ControllerWorld.ready()
    world.api.edit(VM_IMAGES, Key("", "ubuntu"), lambda it: it["spec"].update(minDiskGiB=500))
    world.add_vm()
    await world.settle()
    assert world.condition("Ready")["reason"] == "ImageTooLarge"
    assert world.condition("Stalled")["status"] == "True"
    assert world.status()["phase"] == "Failed"
    assert "sizeGiB" in world.condition("Ready")["message"]


async def test_a_disk_without_a_size_is_refused_before_anything_is_made() -> None:
    world = ControllerWorld.ready()
    world.add_vm(disks=[{"name": "data"}])
    await world.settle()
    assert world.condition("Ready")["reason"] == "InvalidConfiguration"
    assert not world.machines()


async def test_an_object_nobody_refers_to_is_removed_unless_something_was_made_for_it() -> None:
    world = await _running()
    stray: dict[str, Any] = {
        "metadata": {"namespace": NAMESPACE, "name": "db-1"},
        "spec": {"virtualMachineRef": {"name": "db-1", "uid": "old"}},
    }
    world.add_provider("two", backend="that")
    world.api.put(THAT, stray)
    await world.settle()
    assert world.machine(kind=THAT) is None
    instance = {
        "uuid": "00000000-0000-4000-8000-000000000001",
        "name": "db-1",
        "installationID": "i",
        "backendIdentity": "b",
    }
    with_instance = {**stray, "spec": {**stray["spec"], "instance": instance}}
    world.api.put(THAT, with_instance)
    await world.settle()
    assert world.machine(kind=THAT) is not None
    assert world.condition("Ready")["status"] == "True"


async def test_machines_of_cluster_api_are_left_alone() -> None:
    world = await _running()
    capi = {"metadata": {"namespace": NAMESPACE, "name": "node-1", "finalizers": ["x"]}, "spec": {}}
    world.api.put(THIS, capi)
    world.api.drop(THIS, Key(NAMESPACE, "node-1"))
    before = world.machine("node-1")
    await world.settle()
    assert world.machine("node-1") == before


async def test_placements_decided_at_once_see_each_other() -> None:
    world = ControllerWorld.ready(one={"domains": ["a", "b", "c"]})
    await world.settle()
    apart = [
        {
            "topologyKey": "banlieue.io/failure-domain",
            "labelSelector": {"matchLabels": {"app": "db"}},
            "mode": "required",
        }
    ]
    keys = [
        world.add_vm(f"db-{number}", labels={"app": "db"}, placement={"antiAffinity": apart})
        for number in range(5)
    ]
    reconciler = next(
        it.reconciler for it in world.role.controllers() if it.name == "virtualmachine"
    )
    await asyncio.gather(*(reconciler.reconcile(key) for key in keys))
    placed = [it["spec"]["placement"]["failureDomain"] for it in world.machines()]
    assert sorted(placed) == ["one-a", "one-b", "one-c"]
    reasons = [world.condition("Scheduled", key.name)["reason"] for key in keys]
    assert reasons.count("AntiAffinityUnsatisfied") == 2


async def test_room_that_a_deleted_machine_leaves_is_taken() -> None:
    world = ControllerWorld.ready()
    apart = [
        {
            "topologyKey": "banlieue.io/failure-domain",
            "labelSelector": {},
            "mode": "required",
        }
    ]
    world.add_vm("db-1", placement={"antiAffinity": apart})
    await world.settle()
    world.add_vm("db-2", placement={"antiAffinity": apart})
    await world.settle()
    assert world.condition("Ready", "db-2")["reason"] == "AntiAffinityUnsatisfied"
    world.delete_vm("db-1")
    await world.settle()
    assert world.condition("Ready", "db-2")["status"] == "True"
