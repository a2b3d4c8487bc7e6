"""Drills and disasters over the real roles in memory: what they find, and what they leave alone."""

from collections.abc import Iterator
from functools import partial

import pytest

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, NAMESPACES, PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.plain import clone
from test.kit.controllerworld import restored
from test.kit.whole import Whole
from test.simulation import platform

CONFIG = Key(platform.SYSTEM, names.INSTALLATION_CONFIG_MAP)
SYSTEM_NAMESPACE = Key("", "kube-system")
EAST = platform.provider_key("east")


def _key(name: str) -> Key:
    return Key(platform.NAMESPACE, name)


# A drill: the backup of a cluster that lives on, in another one


@pytest.fixture
def drill() -> Iterator[Whole]:
    """Another cluster over the same backend, with the Provider read-only; nobody runs yet."""
    with Whole("east") as whole:
        for name in ("db-1", "db-2", "web-1"):
            whole.add_vm(name, onMissing="Recreate")
        whole.wait(lambda: whole.ready("db-1", "db-2", "web-1"), "VMs")
        whole.stop()
        saved = [
            (kind, clone(obj))
            for kind in (SIMULATED_MACHINES, VIRTUAL_MACHINES)
            for obj in whole.api.look(kind)
        ]
        for kind, obj in saved:
            whole.api.drop(kind, Key.of(obj), force=True)
        whole.api.edit(NAMESPACES, SYSTEM_NAMESPACE, lambda it: it["metadata"].update(uid="drill"))
        whole.edit(PROVIDERS, EAST, mode="ReadOnly")
        for kind, obj in saved:
            bare = restored(obj, uid=obj["metadata"]["uid"])
            whole.api.put(kind, bare)
        whole.changes.clear()
        yield whole


def _finalizers(whole: Whole) -> dict[str, list[str]]:
    return {
        obj["metadata"]["name"]: list(obj["metadata"].get("finalizers") or ())
        for obj in whole.api.look(SIMULATED_MACHINES)
    }


def _confirm(whole: Whole) -> None:
    annotations = {names.ANNOTATION_CONFIRMED_CLUSTER: "drill"}
    whole.api.edit(CONFIG_MAPS, CONFIG, lambda it: it["metadata"].update(annotations=annotations))


@pytest.mark.identity("12.6", "0.9", "6.1")
@pytest.mark.parametrize("confirmed", [True, False], ids=["confirmed", "unconfirmed"])
def test_a_drill_observes_everything_and_changes_nothing(drill: Whole, *, confirmed: bool) -> None:
    before, held = drill.vms(), _finalizers(drill)
    if confirmed:
        _confirm(drill)
    drill.start()
    if confirmed:
        drill.wait(lambda: drill.ready("db-1", "db-2", "web-1"), "VMs observed")
    drill.rest(30)
    for name in ("db-1", "db-2", "web-1"):
        assert drill.machine(name)["status"]["powerState"] == "PoweredOn"

    drill.edit(VIRTUAL_MACHINES, _key("db-1"), desiredPowerState="PoweredOff")
    drill.at_work(lambda: drill.api.drop(VIRTUAL_MACHINES, _key("db-2")), 1)
    drill.at_work(lambda: drill.api.drop(SIMULATED_MACHINES, _key("web-1")), 1)
    drill.add_vm("fresh")
    drill.rest(900)
    assert drill.changes == []
    assert drill.vms() == before
    assert {name: _finalizers(drill).get(name) for name in held} == held
    assert drill.vm("db-2"), "it is gone, and its machine is not"
    assert not drill.machine("fresh").get("spec", {}).get("instance"), "it got an identity"
    assert drill.condition("fresh", "Ready")[0] != "True"


@pytest.mark.identity("12.6", "4.4")
def test_a_vm_that_vanishes_during_a_drill_is_reported_and_not_made_again(drill: Whole) -> None:
    _confirm(drill)
    drill.start()
    drill.wait(lambda: drill.ready("db-1"), "a VM observed")
    vm_id = next(it.id for it in drill.world().state.vms.values() if it.name.startswith("db-1"))
    drill.at_work(lambda: drill.world().act("remove", vm=vm_id), 900)
    assert drill.condition("db-1", "InfrastructureReady") == ("False", "VMMissing")
    assert drill.machine("db-1")["status"]["missing"]
    assert drill.changes == []
    assert len(drill.vms()) == 2


# onMissing


@pytest.mark.identity("4.4", "4.3")
def test_a_vanished_vm_is_made_again_from_its_image_once_that_is_proved() -> None:
    with Whole("east") as whole:
        whole.add_vm("db-1", onMissing="Recreate")
        whole.add_vm("db-2")
        whole.wait(lambda: whole.ready("db-1", "db-2"), "VMs")
        old, uids = whole.vms(), {name: _uid(whole, name) for name in ("db-1", "db-2")}
        for vm in list(whole.world().state.vms):
            whole.at_work(partial(whole.world().act, "remove", vm=vm), 0.1)
        whole.rest(60)
        whole.wait(lambda: whole.ready("db-1"), "a new VM")
        (fresh,) = whole.vms().values()
        assert fresh[1] not in {it[1] for it in old.values()}
        assert whole.vm("db-1")["status"]["providerID"] == f"simulated://{fresh[1]}"
        assert _uid(whole, "db-1") != uids["db-1"]
        assert any("Recreated" in line for line in whole.cluster.lines)
        assert whole.condition("db-2", "Ready") == ("False", "VMMissing")
        assert _uid(whole, "db-2") == uids["db-2"]


@pytest.mark.identity("4.4", "5.4")
def test_what_is_only_hidden_is_never_made_again() -> None:
    with Whole("east") as whole:
        whole.add_vm("db-1", onMissing="Recreate")
        whole.wait(lambda: whole.ready("db-1"), "a VM")
        before = whole.vms()
        (vm,) = whole.world().state.vms
        whole.at_work(lambda: whole.world().act("hide", vm=vm), 900)
        assert whole.vms() == before
        assert whole.condition("db-1", "InfrastructureReady")[1] == "AbsenceUnproven"
        whole.at_work(lambda: whole.world().act("unhide", vm=vm), 60)
        whole.wait(lambda: whole.ready("db-1"), "it again")
        assert whole.vms() == before


def _uid(whole: Whole, name: str) -> str:
    uid: str = whole.machine(name)["metadata"]["uid"]
    return uid


# A rollback of etcd


@pytest.mark.identity("12.1", "12.2", "12.4")
@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "alive"])
def test_a_vm_younger_than_the_backup_is_found_when_its_object_is_made_again(
    *, restarted: bool
) -> None:
    """On the Provider that the scheduler would not choose any more."""
    with Whole("east", "west") as whole:
        whole.rest(20)
        backup = whole.cluster.backup()
        whole.add_vm("db-1")
        whole.wait(lambda: whole.ready("db-1"), "a VM")
        before = whole.vms()
        (place,) = before
        whole.changes.clear()
        whole.at_work(lambda: _roll_back(whole, backup, restarted=restarted), 0.1)
        if restarted:
            whole.start()
        here = place.partition("/")[0]
        whole.edit(PROVIDERS, platform.provider_key(here), cordoned=True)
        whole.add_vm("db-1")
        whole.wait(lambda: whole.ready("db-1"), "it to be found")
        assert whole.vms() == before
        assert whole.changes == []
        assert whole.vm("db-1")["status"]["scheduled"]["providerName"] == here


def _roll_back(whole: Whole, backup: object, *, restarted: bool) -> None:
    """If no process lives on, an admin says so before the controller starts."""
    if restarted:
        whole.stop()
    whole.cluster.roll_back(backup)  # type: ignore[arg-type]  # as `backup` gave it
    if restarted:
        whole.api.edit(CONFIG_MAPS, CONFIG, _in_recovery)


def _in_recovery(config_map: Obj) -> None:
    config_map["data"][names.INSTALLATION_RECOVERY] = "true"
