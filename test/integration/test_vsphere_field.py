"""What admins, vMotion and backup programs do to VMs: nothing is made anew, nothing is let go.

The machine reconciler runs in the test's process over a real driver and a simulated vCenter.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.watching.watcher import Watcher
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.vspherebench import DOMAIN, VSphereBench

pytestmark = pytest.mark.slow

TIMINGS = Timings(read=5.0, longest_poll=1.0, gather=0.1, stream=0.1, inventory=0.0)
CLUSTER, OTHER = "DC0_C0", "DC0_C1"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim"), ["-cluster", "2"]) as target:
        target.vcenter.guest(delay=0.0)
        yield target


@pytest.fixture
async def bench(target: VSphereTarget) -> AsyncIterator[VSphereBench]:
    with VSphereBench(target, TIMINGS) as bench:
        bench.make_machine("web")
        await bench.until("web is Ready", lambda: bench.is_ready("web"))
        yield bench
        target.proxy.clear()
        target.vcenter.clear_permissions()
        target.vcenter.clear_delays()
        for vm in bench.vms("web"):
            target.vcenter.destroy_vm(vm.mo_ref)


def admin(target: VSphereTarget) -> VSphereClient:
    client = VSphereClient(target.vcenter.url, ca_pem=target.vcenter.ca_pem)
    return client.login(target.vcenter.username, target.vcenter.password)


def relocate(target: VSphereTarget, vm: str, cluster: str, host: str) -> None:
    """What vMotion does."""
    with admin(target) as client:
        spec = vim.vm.RelocateSpec(
            pool=client.at(f"DC0/host/{cluster}/Resources"), host=client.at(host)
        )
        client.outcome(client.reference(vim.VirtualMachine, vm).RelocateVM_Task(spec))


async def it_is_taken_up(bench: VSphereBench, moid: str) -> None:
    """Wait until the machine has the VM of that reference and has started it."""
    await bench.until(
        "it is found and started",
        lambda: (
            bench.machine("web")["status"]["backendID"] == moid
            and bench.vm("web").power_state == "poweredOn"
            and bench.is_ready("web")
        ),
    )


async def test_a_vm_that_is_registered_again_is_found_by_its_uuid(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    before, provider_id = bench.vm("web"), bench.machine("web")["spec"]["providerID"]
    target.proxy.reset_counts()
    again = target.vcenter.register_again(before.mo_ref)
    assert again.mo_ref != before.mo_ref
    await it_is_taken_up(bench, again.mo_ref)
    assert bench.machine("web")["spec"]["providerID"] == provider_id
    assert not target.proxy.passed["CloneVM_Task"]
    assert Reason.VM_MISSING not in bench.reasons


async def test_a_vm_whose_leave_nobody_told_of_is_no_second_one(
    bench: VSphereBench, target: VSphereTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that goes before the watch first told of it is only doubted; the new one has its UUID."""
    told = Watcher._apply_vm

    def without_leaves(
        watcher: Watcher,
        key: str,
        update: Any,  # noqa: ANN401 - an ObjectUpdate
        words: set[str],
        tasks: set[str],
    ) -> None:
        if update.kind != "leave":
            told(watcher, key, update, words, tasks)

    monkeypatch.setattr(Watcher, "_apply_vm", without_leaves)
    before = bench.vm("web").mo_ref
    again = target.vcenter.register_again(before)
    bench.driver._records.doubt({before})
    await it_is_taken_up(bench, again.mo_ref)


async def test_a_vm_that_vmotion_moves_stays_the_same(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    vm = bench.vm("web")
    hosts = [f"DC0/host/{CLUSTER}/{CLUSTER}_H{number}" for number in range(3)]
    other = next(host for host in hosts if not host.endswith(vm.host))
    target.proxy.reset_counts()
    relocate(target, vm.mo_ref, CLUSTER, other)
    name = other.rpartition("/")[2]
    await bench.until("it moved", lambda: bench.machine("web")["status"]["host"] == name)
    assert bench.is_ready("web")
    relocate(target, vm.mo_ref, OTHER, f"DC0/host/{OTHER}/{OTHER}_H0")
    moved = f"{DOMAIN}-2"
    await bench.until(
        "the other cluster is told",
        lambda: bench.machine("web")["status"]["failureDomain"] == moved,
    )
    assert bench.machine("web")["spec"]["placement"]["failureDomain"] == DOMAIN
    assert bench.is_ready("web"), "a VM that runs elsewhere runs"
    changing = {"CloneVM_Task", "ReconfigVM_Task", "PowerOffVM_Task", "Destroy_Task"}
    assert not changing & {name for name, count in target.proxy.passed.items() if count}


async def test_a_cluster_that_is_renamed_is_the_same(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    ids = {name: domain.id for name, domain in bench.domains.items()}
    target.vcenter.rename(f"/DC0/host/{CLUSTER}", "renamed")
    try:
        found = bench.driver.failure_domains()
        assert {domain.id for domain in found} == set(ids.values())
        assert {domain.path[-1] for domain in found} == {"renamed", OTHER}
        await bench.run_pass("web")
        assert bench.is_ready("web")
        assert bench.machine("web")["status"]["failureDomain"] == DOMAIN
    finally:
        target.vcenter.rename("/DC0/host/renamed", CLUSTER)


async def test_a_vm_in_a_folder_that_may_not_be_read_is_neither_missing_nor_let_go(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    vm = bench.vm("web")
    target.vcenter.create_folder("/DC0/vm/vault")
    target.vcenter.move_vm(vm.mo_ref, "/DC0/vm/vault")
    target.vcenter.hide(target.vcenter.username, "/DC0/vm/vault")
    await bench.until(
        "it is told", lambda: bench.condition("Ready", "web") == ("Unknown", "AbsenceUnproven")
    )
    assert "give it back the right" in bench.message("Ready", "web")
    bench.delete("web")
    for _ in range(5):
        await bench.run_pass("web")
    machine = bench.machine("web")
    assert machine["metadata"]["finalizers"], "it was let go unproven"
    assert bench.condition("Deleting", "web")[1] == Reason.ABSENCE_UNPROVEN
    assert bench.vm("web").power_state == "poweredOn"
    target.vcenter.clear_permissions()
    await bench.until("it is gone", lambda: not bench.machine("web"))
    assert not bench.vms("web")


async def test_a_cluster_that_may_not_be_read_any_more_loses_no_vm(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    identity = bench.domains[DOMAIN].id
    target.vcenter.hide(target.vcenter.username, f"/DC0/host/{CLUSTER}")
    assert identity not in {domain.id for domain in bench.driver.failure_domains()}
    assert set(bench.driver.hidden_domains([identity, "domain-c1"])) == {identity}
    target.proxy.reset_counts()
    bench.edit("web", driftPolicy={"power": "Correct"})
    for _ in range(5):
        await bench.run_pass("web")
    assert bench.machine("web")["status"]["failureDomain"] == DOMAIN
    assert Reason.VM_MISSING not in bench.reasons
    assert bench.vm("web").power_state == "poweredOn"
    assert not target.proxy.passed["CloneVM_Task"]


async def test_a_question_is_told_and_never_answered(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    vm = bench.vm("web")
    target.vcenter.ask(vm.mo_ref, "msg.hbacommon.outofspace: there is no more space")
    await bench.until(
        "it is told", lambda: bench.condition("Ready", "web") == ("False", Reason.VM_PAUSED)
    )
    assert bench.condition("PowerStateSynced", "web") == ("False", Reason.VM_PAUSED)
    assert "there is no more space" in bench.message("Ready", "web")
    target.proxy.reset_counts()
    for _ in range(3):
        await bench.run_pass("web")
    assert not target.proxy.passed["AnswerVM"]
    target.vcenter.ask(vm.mo_ref, "")
    await bench.until("it goes on", lambda: bench.is_ready("web"))


async def test_a_snapshot_in_the_making_is_waited_for(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    vm = bench.vm("web").mo_ref
    target.vcenter.set_delay("CreateSnapshotEx_Task", 1.0, of="task")
    with admin(target) as client:
        machine = client.reference(vim.VirtualMachine, vm)
        task = machine.CreateSnapshot_Task("backup", "", False, False)
        bench.delete("web")
        await bench.until(
            "it is told",
            lambda: bench.condition("Deleting", "web")[1] == Reason.BACKUP_IN_PROGRESS,
        )
        assert bench.vms("web")
        client.outcome(task)
    await bench.until("it is gone", lambda: not bench.machine("web"))


async def test_a_disk_does_not_grow_while_a_backup_program_forbids_it(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    vm = bench.vm("web").mo_ref
    target.vcenter.disable_methods(vm, "ReconfigVM_Task")
    root = {"name": "root", "storageClass": "gold"}
    data = {"name": "data", "storageClass": "gold", "sizeGiB": 1}
    bench.edit("web", disks=[root, data])
    await bench.until(
        "it is told",
        lambda: bench.condition("UpToDate", "web") == ("False", Reason.BACKUP_IN_PROGRESS),
    )
    assert bench.condition("Ready", "web") == ("True", "Ready"), "it runs as it should"
    assert len(bench.vm("web").disks) == 1
    target.vcenter.disable_methods(vm)
    await bench.until("it is added", lambda: len(bench.vm("web").disks) == 2)


async def test_delete_removes_exactly_what_was_made(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    """With a foreign disk, a disk to retain and a snapshot that holds on to both of them."""
    data = {"name": "data", "storageClass": "gold", "sizeGiB": 1, "reclaimPolicy": "Retain"}
    bench.edit("web", disks=[{"name": "root", "storageClass": "gold"}, data])
    await bench.until("data is there", lambda: len(bench.vm("web").disks) == 2)
    vm = bench.vm("web").mo_ref
    root = bench.vm("web").disks[0].file
    foreign = target.attach_foreign_disk(vm)
    target.snapshot(vm)
    bench.delete("web")
    await bench.until(
        "it is held",
        lambda: bench.condition("Deleting", "web")[1] == Reason.FOREIGN_DISK_ATTACHED,
    )
    assert "snapshot" in bench.message("Deleting", "web")
    assert bench.vm("web").snapshots == 1, "a snapshot is not ours to delete"
    target.drop_snapshots(vm)
    await bench.until("it is gone", lambda: not bench.machine("web"))
    assert not bench.vms("web")
    files = target.vcenter.inventory().files
    kept = [file for file in files if "banlieue-retained/installation-1/team-a/" in file]
    assert kept, "the disk to retain is gone"
    assert target.disk_exists(foreign), "somebody else's disk is gone"
    assert not target.disk_exists(root)


async def test_a_vm_whose_host_is_away_is_neither_missing_nor_changed(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    vm = bench.vm("web").mo_ref
    target.vcenter.set_connection(vm, "inaccessible")
    bench.edit("web", powerState="PoweredOff")
    await bench.until("it is told", lambda: Reason.PROVIDER_UNREACHABLE in bench.told_reasons())
    assert Reason.VM_MISSING not in bench.reasons
    assert bench.vm("web").power_state == "poweredOn"
    target.vcenter.set_connection(vm, "connected")
    await bench.until(
        "it goes on", lambda: bench.is_ready("web") and bench.vm("web").power_state == "poweredOff"
    )


async def test_a_machine_whose_vm_is_gone_already_goes(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    target.vcenter.destroy_vm(bench.vm("web").mo_ref)
    await bench.until(
        "it is told", lambda: bench.condition("Ready", "web") == ("False", Reason.VM_MISSING)
    )
    target.proxy.reset_counts()
    bench.delete("web")
    await bench.until("it is gone", lambda: not bench.machine("web"))
    assert not target.proxy.passed["Destroy_Task"]


async def test_a_guest_without_an_address_is_told_as_such(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    target.vcenter.guest(machine="mute", ipv4=False, ipv6=False)
    target.vcenter.guest(ipv4=False)
    try:
        bench.make_machine("mute")
        await bench.until("it is Ready", lambda: bench.is_ready("mute"))
        await bench.until(
            "its agent runs", lambda: bench.machine("mute")["status"]["guest"]["agentConnected"]
        )
        assert bench.condition("AddressesAvailable", "mute") == ("False", Reason.ADDRESS_PENDING)
        bench.delete("mute")
        await bench.until("it is gone", lambda: not bench.machine("mute"))
    finally:
        target.vcenter.guest(ipv4=True)


async def test_several_interfaces_have_their_own_addresses_of_both_families(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    target.vcenter.guest(ipv6=True)
    try:
        both = [{"family": "IPv4", "source": "dhcp"}, {"family": "IPv6", "source": "slaac"}]
        nics = [
            {"name": "eth0", "networkClass": "prod", "ipam": both},
            {"name": "eth1", "networkClass": "test", "ipam": both},
        ]
        bench.make_machine("dual", networkInterfaces=nics)

        def told() -> list[str]:
            status = bench.machine("dual").get("status") or {}
            return [it["address"] for it in status.get("addresses", []) if "IP" in it["type"]]

        await bench.until("four addresses", lambda: len(told()) == 4)
        assert not [address for address in told() if address.startswith("fe80")]
        cards = {address for card in bench.vm("dual").cards for address in card.addresses}
        assert set(told()) <= cards
        status = bench.machine("dual")["status"]
        assert (status["host"], status["failureDomain"]) == (bench.vm("dual").host, DOMAIN)
        assert status["guest"]["agentConnected"]
        bench.delete("dual")
        await bench.until("it is gone", lambda: not bench.machine("dual"))
    finally:
        target.vcenter.guest(ipv6=False)


async def test_a_cluster_whose_hosts_are_all_in_maintenance_takes_no_new_vm_and_loses_none(
    bench: VSphereBench, target: VSphereTarget
) -> None:
    hosts = [f"{CLUSTER}_H{number}" for number in range(3)]
    for host in hosts:
        target.vcenter.set_host(host, maintenance=True)
    try:
        found = {domain.id: domain for domain in bench.driver.failure_domains()}
        assert not found[bench.domains[DOMAIN].id].schedulable
        await bench.run_pass("web")
        assert bench.is_ready("web")
    finally:
        for host in hosts:
            target.vcenter.set_host(host, maintenance=False)
