"""`onMissing: Recreate`: a new VM by itself, only on proof and only where nothing can be lost."""

from collections.abc import Callable

import pytest

from banlieue.api.events import EventReason
from banlieue.api.resources import PROVIDERS
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import NAMESPACE, SYSTEM, THIS, ControllerWorld

VM = Key(NAMESPACE, "db-1")
PROVIDER = Key(SYSTEM, "one")
ROOT_RETAINED = [{"name": "root", "reclaimPolicy": "Retain"}]


async def _running(
    on_missing: str = "Recreate", disks: list[dict[str, str]] | None = None
) -> ControllerWorld:
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    pin = {"name": "one", "namespace": SYSTEM}
    world.add_vm(onMissing=on_missing, providerRef=pin, disks=disks or [])
    await world.settle()
    assert len(world.vms()) == 1
    return world


async def _vanish(world: ControllerWorld) -> str:
    """The VM is gone behind our back, and its provider looks at it; the UUID it had."""
    gone = world.providers[0].vms.pop()
    world.api.edit(THIS, VM, lambda obj: obj["metadata"].setdefault("annotations", {}))
    await world.settle()
    return gone.uuid


@pytest.mark.identity("4.4")
async def test_a_vanished_vm_is_made_again_as_a_new_one() -> None:
    world = await _running()
    before = world.machine() or {}
    gone = await _vanish(world)
    (vm,) = world.vms()
    assert vm.uuid != gone
    machine = world.machine() or {}
    assert machine["metadata"]["uid"] != before["metadata"]["uid"]
    assert machine["spec"]["providerRef"] == before["spec"]["providerRef"]
    assert "missing" not in machine["status"]
    assert world.condition("Ready")["status"] == "True"
    assert world.status()["providerID"] == f"fake://{vm.uuid}"
    assert world.recorder.reasons().count(EventReason.RECREATED) == 1


async def test_the_old_object_is_released_with_an_intent_so_that_a_vm_that_shows_up_lives() -> None:
    world = await _running()
    provider = world.providers[0]
    intents: list[object] = []
    # While the old object goes, the VM turns out to be there after all.
    gone = provider.vms[0]

    def look(obj: Obj) -> None:
        if obj["metadata"].get("deletionTimestamp") and not provider.vms:
            intents.append(obj["spec"].get("teardown"))
            provider.vms.append(gone)

    world.api.subscribe(lambda change: look(change.new) if change.new else None)
    await _vanish(world)
    assert [it["mode"] for it in intents if isinstance(it, dict)] == ["Release"]
    assert world.vms() == [gone]
    assert world.condition("Ready")["status"] == "True"
    assert world.status()["providerID"] == f"fake://{gone.uuid}"


async def test_report_is_the_default_and_makes_nothing() -> None:
    world = await _running("Report")
    before = world.machine() or {}
    await _vanish(world)
    assert world.vms() == []
    assert (world.machine() or {})["metadata"]["uid"] == before["metadata"]["uid"]
    assert world.condition("InfrastructureReady")["reason"] == "VMMissing"
    assert EventReason.RECREATED not in world.recorder.reasons()
    world.edit_vm(onMissing="Recreate")
    await world.settle()
    assert len(world.vms()) == 1
    assert world.condition("Ready")["status"] == "True"


async def test_a_condition_alone_makes_nothing() -> None:
    """Only what the provider writes on proof counts."""
    world = await _running()
    world.providers[0].proves = False
    await _vanish(world)
    assert world.condition("InfrastructureReady")["reason"] == "VMMissing"
    assert world.vms() == []


def _unready(obj: Obj) -> None:
    obj["status"]["conditions"] = [
        {**it, "status": "False", "reason": "ProviderUnreachable"}
        for it in obj["status"]["conditions"]
    ]


def _cordon(obj: Obj) -> None:
    obj["spec"]["cordoned"] = True


def _read_only(obj: Obj) -> None:
    obj["spec"]["mode"] = "ReadOnly"


def _pause(obj: Obj) -> None:
    obj["spec"]["paused"] = True


def _retire(obj: Obj) -> None:
    obj["status"]["failureDomains"][0]["schedulable"] = False


def _deny(obj: Obj) -> None:
    obj["spec"]["allowedNamespaces"] = {"from": "Same"}


@pytest.mark.identity("4.4")
@pytest.mark.parametrize(
    ("close", "told"),
    [
        (_unready, "is not Ready"),
        (_cordon, "is cordoned"),
        (_read_only, "is read-only"),
        (_pause, "is paused"),
        (_retire, "takes no new VMs"),
        (_deny, "may not be used"),
    ],
)
async def test_nothing_is_made_while_the_provider_takes_nothing(
    close: Callable[[Obj], None], told: str
) -> None:
    world = await _running()
    stored = world.api.peek(PROVIDERS, PROVIDER) or {}
    world.api.edit(PROVIDERS, PROVIDER, close)
    await _vanish(world)
    assert world.vms() == []
    assert (world.machine() or {})["metadata"].get("deletionTimestamp") is None
    found = world.condition("InfrastructureReady")
    assert found["reason"] == "VMMissing"
    assert told in found["message"]

    def reopen(obj: Obj) -> None:
        obj["spec"], obj["status"] = stored["spec"], stored["status"]

    world.api.edit(PROVIDERS, PROVIDER, reopen)
    await world.settle()
    assert len(world.vms()) == 1


@pytest.mark.identity("4.4")
async def test_a_vm_with_a_disk_to_be_retained_is_only_reported() -> None:
    world = await _running(disks=ROOT_RETAINED)
    await _vanish(world)
    assert world.vms() == []
    assert "root are to be retained" in world.condition("InfrastructureReady")["message"]
    world.edit_vm(disks=[{"name": "root", "reclaimPolicy": "Delete"}])
    await world.settle()
    assert len(world.vms()) == 1


@pytest.mark.parametrize("before_reply", [True, False])
@pytest.mark.parametrize("write", range(1, 7))
async def test_a_controller_killed_at_any_write_of_it_ends_in_one_new_vm(
    write: int, *, before_reply: bool
) -> None:
    world = await _running()
    world.crash_at(write, before_reply=before_reply)
    gone = await _vanish(world)
    await world.settle()
    (vm,) = world.vms()
    assert vm.uuid != gone
    assert len(world.machines()) == 1
    assert world.condition("Ready")["status"] == "True"
