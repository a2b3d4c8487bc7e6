"""One VM per machine object: identity from mint to seen, through crashes and restores."""

import pytest

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.errors import DriverError, NeedsOperator, Unreachable
from banlieue.sdk.identity import Mark
from banlieue.sdk.kube import Key
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.memory_api import Moment
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


async def test_a_machine_becomes_one_running_vm_with_uniform_status(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.clock.advance(5)
    await bench.run()

    (vm,) = bench.vms()
    machine = bench.machine()
    instance = machine["spec"]["instance"]
    assert vm.power == "PoweredOn"
    assert (vm.name, vm.uuid) == (instance["name"], instance["uuid"])
    assert machine["spec"]["providerID"] == f"simulated://{vm.uuid}"
    assert machine["status"]["initialization"] == {"provisioned": True}
    assert machine["status"]["failureDomain"] == "sim-a"
    assert machine["status"]["addresses"]
    assert machine["status"]["observedGeneration"] == machine["metadata"]["generation"]
    for kind in ("Ready", "Provisioned", "PowerStateSynced", "UpToDate", "AddressesAvailable"):
        assert bench.condition(kind)[0] == "True", kind
    assert bench.condition("Paused") == ("False", "NotPaused")


@pytest.mark.identity("2.5")
async def test_identity_stands_in_the_api_before_the_creating_call(bench: MachineBench) -> None:
    bench.make_machine()
    bench.control("inject", rule={"effect": "cut", "method": "create*", "count": None})
    await bench.reconciler.reconcile(MACHINE)

    spec = bench.machine()["spec"]
    assert bench.vms() == []
    assert spec["instance"]["installationID"] == "installation-1"
    assert spec["instance"]["backendIdentity"] == "bench-identity"
    assert "providerID" not in spec


@pytest.mark.identity("3.1")
async def test_the_mark_names_owner_uuid_and_epoch(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()

    (vm,) = bench.vms()
    mark = Mark.decode(vm.mark)
    assert mark is not None
    assert str(mark.owner) == "installation-1/VirtualMachine/team-a/db-1"
    assert (mark.uuid, mark.epoch) == (vm.uuid, 0)


async def test_a_second_pass_over_a_settled_machine_writes_and_calls_nothing(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    bench.clock.advance(5)
    await bench.run()
    writes = len(bench.api.writes())
    await bench.run()
    bench.clock.advance(600)
    await bench.run()
    assert len(bench.api.writes()) == writes


@pytest.mark.identity("3.3", "4.2")
@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("which", range(6))
async def test_a_create_killed_at_any_write_ends_in_one_vm(
    bench: MachineBench, which: int, moment: Moment
) -> None:
    bench.make_machine()
    bench.die_at_write(which, moment)
    await bench.run_through_crashes()
    bench.clock.advance(5)
    await bench.run_through_crashes()

    assert len(bench.vms()) == 1
    assert bench.condition("Ready") == ("True", "Ready")


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("which", range(4))
async def test_a_delete_killed_at_any_write_ends_in_no_vm(
    bench: MachineBench, which: int, moment: Moment
) -> None:
    bench.make_machine()
    await bench.run()
    bench.delete()
    bench.die_at_write(which, moment)
    await bench.run_through_crashes()

    assert bench.vms() == []
    assert bench.machine() == {}


@pytest.mark.identity("3.3")
async def test_a_lost_clone_reply_ends_in_the_same_vm(bench: MachineBench) -> None:
    bench.make_machine()
    bench.control("inject", rule={"effect": "lose-reply", "method": "create*"})
    await bench.run()
    bench.restart()
    bench.clock.advance(200)
    await bench.run()

    (vm,) = bench.vms()
    assert bench.machine()["spec"]["providerID"] == f"simulated://{vm.uuid}"


@pytest.mark.identity("3.3", "5.3")
async def test_a_create_that_arrives_late_ends_in_the_same_vm(bench: MachineBench) -> None:
    bench.make_machine()
    bench.control("inject", rule={"effect": "late", "method": "create*", "seconds": 50})
    for _ in range(6):
        await bench.run()
        bench.clock.advance(60)

    assert len(bench.vms()) == 1
    assert bench.condition("Ready") == ("True", "Ready")


@pytest.mark.identity("0.4", "2.4")
async def test_a_foreign_vm_of_the_name_is_never_touched(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    name = bench.vms()[0].name
    foreign = MachineBench()
    foreign.control("make_foreign", name=name, domain="domain-a")
    before = foreign.vms()[0].model_dump()
    foreign.make_machine()
    await foreign.run()

    assert [vm.model_dump() for vm in foreign.vms()] == [before]
    assert foreign.condition("Ready") == ("False", "OwnershipConflict")
    assert "instance" not in foreign.machine()["spec"]
    assert "addresses" not in foreign.machine()["status"]


@pytest.mark.identity("4.3")
async def test_a_vanished_vm_is_reported_and_never_made_again(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.control("remove", vm=bench.vms()[0].id)
    for _ in range(3):
        await bench.run()
        bench.clock.advance(400)

    assert bench.vms() == []
    assert bench.condition("Ready") == ("False", "VMMissing")
    assert bench.machine()["status"]["initialization"] == {"provisioned": True}


@pytest.mark.identity("5.2", "5.4")
async def test_a_hidden_vm_is_neither_missing_nor_made_again(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    vm = bench.vms()[0]
    bench.control("hide", vm=vm.id)
    await bench.run()
    assert bench.condition("Ready") == ("Unknown", "AbsenceUnproven")

    bench.delete()
    await bench.run()
    assert len(bench.vms()) == 1
    assert bench.machine()["metadata"]["finalizers"]
    bench.control("unhide", vm=vm.id)
    bench.clock.advance(300)
    await bench.run()
    assert bench.machine() == {}


@pytest.mark.identity("5.1")
async def test_another_backend_at_the_endpoint_is_noticed(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.control("set_identity", identity="another")
    bench.restart()
    await bench.run()
    assert bench.condition("Ready") == ("False", "BackendIdentityChanged")

    bench.served.writable = False  # as the Provider has it then
    bench.delete()
    await bench.run()
    assert bench.condition("Deleting") == ("True", "BackendIdentityChanged")
    assert len(bench.vms()) == 1


@pytest.mark.identity("5.1")
async def test_another_backend_that_answers_a_renewed_login_proves_nothing(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    bench.control("set_identity", identity="another")
    bench.control("remove", vm=bench.vms()[0].id)
    await bench.run()
    assert bench.condition("Ready") == ("False", "BackendIdentityChanged")
    bench.delete()
    await bench.run()
    assert bench.machine()["metadata"]["finalizers"]


@pytest.mark.identity("0.3", "0.4")
async def test_a_copy_carrying_our_mark_is_not_ours(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    original = bench.vms()[0]
    bench.control("copy", vm=original.id, name="a-copy")
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    bench.delete()
    await bench.run()
    assert [vm.name for vm in bench.vms()] == ["a-copy"]


@pytest.mark.identity("2.3")
async def test_a_machine_restored_without_identity_finds_its_vm(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    (before,) = bench.vms()
    bench.api.drop(SIMULATED_MACHINES, MACHINE, force=True)
    bench.make_machine()
    bench.restart()
    await bench.run()

    (after,) = bench.vms()
    assert after.uuid == before.uuid
    assert bench.machine()["spec"]["instance"]["uuid"] == before.uuid


@pytest.mark.identity("9.1")
async def test_status_wiped_comes_back_the_same(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.clock.advance(5)
    await bench.run()
    before = bench.machine()["status"]
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj.pop("status"))
    bench.restart()
    await bench.run()
    after = bench.machine()["status"]

    assert len(bench.vms()) == 1
    for status in (before, after):
        for item in status["conditions"]:
            item.pop("lastTransitionTime")
    assert after == before


@pytest.mark.identity("2.1")
async def test_a_machine_nobody_refers_to_makes_nothing(bench: MachineBench) -> None:
    bench.make_machine(referred=False)
    await bench.run()
    assert bench.vms() == []
    assert bench.condition("Ready") == ("False", "NotReferenced")


async def test_nothing_is_minted_for_a_namespace_that_may_not(bench: MachineBench) -> None:
    bench.api.edit(
        PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(allowedNamespaces={"from": "Same"})
    )
    bench.make_machine()
    await bench.run()
    assert bench.condition("Ready") == ("False", "ProviderNotAllowed")
    assert bench.vms() == []


@pytest.mark.identity("0.9")
async def test_nothing_is_minted_or_destroyed_in_another_cluster(bench: MachineBench) -> None:
    config = Key("banlieue-system", "banlieue-installation")
    bench.api.edit(CONFIG_MAPS, config, lambda obj: obj["data"].update(clusterUID="elsewhere"))
    bench.make_machine()
    await bench.run()
    assert bench.condition("Ready") == ("False", "InstallationUnconfirmed")
    assert bench.vms() == []


@pytest.mark.identity("0.9")
async def test_existing_vms_are_not_changed_or_destroyed_in_another_cluster(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    config = Key("banlieue-system", "banlieue-installation")
    bench.api.edit(CONFIG_MAPS, config, lambda obj: obj["data"].update(clusterUID="elsewhere"))
    bench.edit(powerState="PoweredOff", powerOffMode="Hard")
    bench.restart()
    await bench.run()
    assert bench.vms()[0].power == "PoweredOn"
    assert bench.condition("Ready") == ("False", "InstallationUnconfirmed")

    bench.delete()
    await bench.run()
    assert len(bench.vms()) == 1
    assert bench.machine()["metadata"]["finalizers"]


@pytest.mark.identity("5.5")
async def test_an_outage_keeps_the_status(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    before = bench.machine()["status"]
    bench.control("inject", rule={"effect": "cut", "count": None})
    for _ in range(5):
        await bench.run(passes=3)
    assert bench.machine()["status"] == before


@pytest.mark.parametrize(
    "trouble",
    [
        Unreachable("the endpoint does not answer"),
        NeedsOperator(Reason.PROVIDER_AUTH_FAILED, "the backend refused the credentials"),
        NeedsOperator(Reason.PROVIDER_TLS_INVALID, "the certificate is not trusted"),
    ],
    ids=lambda error: str(error.reason),
)
async def test_a_restart_that_cannot_log_in_keeps_the_status_of_what_was_seen(
    bench: MachineBench, trouble: DriverError
) -> None:
    bench.make_machine()
    await bench.run()
    before = bench.machine()["status"]
    bench.restart()
    bench.opened.clear()
    bench.troubles[PROVIDER] = trouble
    await bench.run()
    assert bench.machine()["status"] == before


async def test_a_paused_machine_is_left_alone_and_says_so(bench: MachineBench) -> None:
    bench.make_machine(paused=True)
    await bench.run()
    assert bench.vms() == []
    assert bench.condition("Paused") == ("True", "Paused")
    assert "finalizers" not in bench.machine()["metadata"]


async def test_power_follows_an_edit_at_once_and_drift_after_a_while(bench: MachineBench) -> None:
    bench.make_machine(powerOffMode="Hard")
    await bench.run()
    bench.edit(powerState="PoweredOff")
    await bench.run()
    assert bench.vms()[0].power == "PoweredOff"
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.condition("AddressesAvailable") == ("False", "AddressesNotExpected")

    bench.control("set_power", vm=bench.vms()[0].id, power="PoweredOn")
    await bench.reconciler.reconcile(MACHINE)
    assert bench.vms()[0].power == "PoweredOn"
    assert bench.condition("PowerStateSynced")[0] == "False"
    bench.clock.advance(31)
    await bench.run()
    assert bench.vms()[0].power == "PoweredOff"


async def test_drift_is_only_reported_when_the_policy_says_so(bench: MachineBench) -> None:
    bench.make_machine(driftPolicy={"power": "Report"})
    await bench.run()
    bench.control("set_power", vm=bench.vms()[0].id, power="PoweredOff")
    await bench.run()
    bench.clock.advance(100)
    await bench.run()
    assert bench.vms()[0].power == "PoweredOff"
    assert bench.condition("Ready") == ("False", "DriftDetected")
    assert bench.condition("PowerStateSynced") == ("False", "DriftDetected")


@pytest.mark.parametrize("policy", ["Correct", "Report"])
async def test_hardware_that_an_admin_changed_is_put_right_or_told(
    bench: MachineBench, policy: str
) -> None:
    bench.make_machine(driftPolicy={"hardware": policy}, powerState="PoweredOff")
    await bench.run()
    wanted = bench.vms()[0].cpus
    bench.control("set_cpus", vm=bench.vms()[0].id, cpus=wanted + 2)
    await bench.reconciler.reconcile(MACHINE)
    assert bench.vms()[0].cpus == wanted + 2, "somebody may be about to say why"
    assert bench.condition("UpToDate")[0] == "False"
    bench.clock.advance(31)
    await bench.run()
    if policy == "Correct":
        assert bench.vms()[0].cpus == wanted
        assert bench.condition("UpToDate") == ("True", "UpToDate")
    else:
        assert bench.vms()[0].cpus == wanted + 2
        assert bench.condition("UpToDate") == ("False", "DriftDetected")
        assert bench.machine()["status"]["resources"]["cpus"] == wanted + 2


async def test_processors_an_admin_added_to_a_vm_that_runs_are_told_until_it_is_off(
    bench: MachineBench,
) -> None:
    bench.make_machine(powerOffMode="Hard")
    await bench.run()
    wanted = bench.vms()[0].cpus
    bench.control("set_cpus", vm=bench.vms()[0].id, cpus=wanted + 2)
    await bench.run()
    assert bench.condition("UpToDate") == ("False", "DriftDetected")
    for _ in range(3):
        bench.clock.advance(40)
        await bench.run()
        assert bench.vms()[0].power == "PoweredOn"
        assert bench.vms()[0].cpus == wanted + 2
        assert bench.condition("UpToDate") == ("False", "RestartRequired")
    bench.edit(powerState="PoweredOff")
    await bench.run()
    assert bench.vms()[0].cpus == wanted
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_a_change_that_needs_a_restart_says_so(bench: MachineBench) -> None:
    bench.make_machine()
    await bench.run()
    bench.edit(memoryMiB=1024)
    await bench.run()
    for _ in range(3):
        assert bench.condition("UpToDate") == ("False", "RestartRequired")
        bench.clock.advance(20)
        await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.machine()["status"]["pendingChanges"] == ["memoryMiB"]
    assert bench.machine()["status"]["resources"]["memoryMiB"] == 2048


async def test_missing_image_and_missing_user_data_are_named(bench: MachineBench) -> None:
    bench.make_machine(imageRef={"name": "nothing"})
    await bench.run()
    assert bench.condition("Ready") == ("False", "ImageNotFound")

    other = MachineBench()
    other.make_machine(userData={"secretRef": {"name": "absent"}})
    await other.run()
    assert other.condition("Ready") == ("False", "UserDataNotFound")
    assert other.vms() == []


async def test_a_machine_of_a_cluster_waits_while_that_is_paused(bench: MachineBench) -> None:
    bench.make_machine()

    def made_by_capi(obj: dict) -> None:  # type: ignore[type-arg] # JSON
        obj["spec"].pop("virtualMachineRef")
        obj["metadata"]["ownerReferences"] = []

    bench.api.edit(SIMULATED_MACHINES, MACHINE, made_by_capi)
    await bench.run()
    assert bench.condition("Paused") == ("True", "Paused")
    assert bench.vms() == []


async def test_a_machine_that_lost_its_owner_reference_says_so_and_changes_nothing(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    before = bench.vms()

    def made_by_capi(obj: dict) -> None:  # type: ignore[type-arg] # JSON
        obj["spec"].pop("virtualMachineRef")
        obj["metadata"]["ownerReferences"] = []
        obj["metadata"]["labels"] = {names.CAPI_LABEL_CLUSTER_NAME: "c1"}

    bench.api.edit(SIMULATED_MACHINES, MACHINE, made_by_capi)
    await bench.run()
    assert bench.condition("Ready") == ("False", "NotReferenced")
    assert bench.vms() == before


async def test_a_provider_that_was_never_reached_says_why_on_its_machines(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    bench.opened.clear()
    bench.troubles[PROVIDER] = NeedsOperator(
        Reason.PROVIDER_AUTH_FAILED, "the backend refused the credentials; correct the Secret"
    )
    await bench.run()
    assert bench.condition("Ready") == ("False", "ProviderAuthFailed")
    assert bench.vms() == []


async def test_a_restart_says_nothing_before_the_provider_is_reached(bench: MachineBench) -> None:
    bench.make_machine(imageRef={"name": "nothing"})
    await bench.run()
    before = bench.machine()["status"]
    assert bench.condition("Ready") == ("False", "ImageNotFound")
    bench.restart()
    bench.opened.clear()
    await bench.run(passes=3)
    assert bench.machine()["status"] == before
    bench.troubles[PROVIDER] = Unreachable("the endpoint does not answer")
    await bench.run(passes=3)
    assert bench.condition("Ready") == ("Unknown", "ProviderUnreachable")


@pytest.mark.identity("2.1")
async def test_nothing_is_minted_for_an_owner_that_is_being_deleted(bench: MachineBench) -> None:
    bench.make_machine()
    bench.api.edit(
        VIRTUAL_MACHINES,
        MACHINE,
        lambda obj: obj["metadata"].update(
            deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["banlieue.io/virtualmachine"]
        ),
    )
    await bench.run()
    assert bench.vms() == []
    assert "instance" not in bench.machine()["spec"]


async def test_firmware_nobody_asked_for_is_what_the_image_was_installed_with(
    bench: MachineBench,
) -> None:
    bench.world.state.images["ubuntu-24.04"].firmware = "efi"
    bench.make_machine()
    bench.make_machine(Key("team-a", "db-2"), firmware="bios")
    await bench.run()
    await bench.run(Key("team-a", "db-2"))
    assert {vm.name.rpartition("-")[0]: vm.firmware for vm in bench.vms()} == {
        "db-1": "efi",
        "db-2": "bios",
    }


async def test_a_disk_that_is_added_or_grows_is_made_so_or_said_to_be_pending(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    bench.edit(
        disks=[
            {"name": "root", "storageClass": "fast", "sizeGiB": 20},
            {"name": "data", "storageClass": "fast", "sizeGiB": 5},
        ]
    )
    await bench.run()
    sizes = {disk.name: disk.size_gib for disk in bench.vms()[0].disks}
    assert sizes == {"root": 20, "data": 5}
    assert bench.condition("UpToDate") == ("True", "UpToDate")


async def test_what_is_asked_for_and_not_done_is_said(bench: MachineBench) -> None:
    bench.make_machine(tags={"team": "a"})
    await bench.run()
    assert bench.condition("UpToDate") == ("False", "UnsupportedByProvider")
    assert bench.machine()["status"]["pendingChanges"] == ["tags"]
    assert bench.condition("Ready") == ("True", "Ready")


async def test_a_backend_that_tells_no_changes_is_polled_ever_more_seldom(
    bench: MachineBench,
) -> None:
    bench.control("set_latencies", boot=20.0)
    bench.served.reports_changes = False
    bench.make_machine()
    await bench.run(passes=6)
    assert bench.condition("AddressesAvailable") == ("False", "AddressPending")
    pauses = []
    for _ in range(12):
        pause = (await bench.reconciler.reconcile(MACHINE)).requeue_after
        assert pause is not None
        pauses.append(pause)
        bench.clock.advance(pause)
    assert bench.condition("AddressesAvailable")[0] == "True"
    assert min(pauses) < 5
    assert 50 < pauses[-1] < 70
    bench.control("set_power", vm=bench.vms()[0].id, power="PoweredOff")
    await bench.reconciler.reconcile(MACHINE)
    assert bench.condition("PowerStateSynced")[0] == "False"
