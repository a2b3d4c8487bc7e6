"""Every field of a VSphereMachine, by what reached the VM in a simulated vCenter."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.differing import differing
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.providers.vsphere.models import (
    CloneMode,
    CpuAllocation,
    FolderPolicy,
    MemoryAllocation,
    Shares,
    VSphereMachineSpec,
)
from banlieue.sdk.driver import DiskPlan, FailureDomain, NicPlan
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench
from test.kit.taps import calls_of
from test.kit.vsphere_target import VSphereTarget
from test.kit.vspherespec import (
    POLICY,
    Native,
    admin,
    devices,
    furnished,
    machine,
    made,
    planned,
    read,
    refused,
    stores,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with furnished(tmp_path_factory.mktemp("vcsim")) as target:
        target.use_the_role()
        yield target


@pytest.fixture
def bench(shared: VSphereTarget) -> Iterator[Bench]:
    with BACKEND.connect(shared.connection()) as driver:
        yield Bench(shared, driver)


# Where


def test_a_folder_is_made_when_asked_for_and_stays(bench: Bench) -> None:
    assert "folderPolicy Create" in refused(bench, planned(bench, folder="team/web")).message
    wanted = planned(bench, folder="team/web 50%", folder_policy=FolderPolicy.CREATE)
    made(bench, wanted)
    assert "/vm/team/web 50%" in machine(bench, wanted).path.replace("%25", "%")
    bench.delete(wanted.ref, wanted)
    assert isinstance(bench.target, VSphereTarget)
    folders = bench.target.vcenter.inventory().folders
    assert any(path.endswith("/team") for path in folders), "what is not ours may lie in it"


def test_many_at_once_make_a_folder_once(bench: Bench) -> None:
    """Failure: two creates make the folder, and one of them fails."""
    fields = {"folder": "crowd/deep/er", "folder_policy": FolderPolicy.CREATE}
    plans = [planned(bench, f"c{number}", **fields) for number in range(6)]
    with bench.connect() as other, ThreadPoolExecutor(6) as pool:
        drivers = (bench.driver, other)
        done = [
            pool.submit(bench.ensure, plan, drivers[number % 2])
            for number, plan in enumerate(plans)
        ]
        assert {it.result().name for it in done} == {plan.ref.name for plan in plans}
    assert {machine(bench, plan).path.rpartition("/")[0] for plan in plans} == {
        "/DC0/vm/crowd/deep/er"
    }


def test_a_pool_is_found_and_the_clusters_own_is_the_default(bench: Bench) -> None:
    """Failure: without a pool, several are found and none is taken."""
    own, plain = planned(bench, resource_pool="DC0_C0_RP2"), planned(bench, "plain")
    pools = {made(bench, plan).name: machine(bench, plan).pool for plan in (own, plain)}
    assert pools[own.ref.name] != pools[plain.ref.name]
    assert "'nowhere'" in refused(bench, planned(bench, resource_pool="nowhere")).message


def test_a_datastore_cluster_is_asked_and_its_word_taken(bench: Bench) -> None:
    """Failure: a datastore cluster is "not found"."""
    before = calls_of(bench.target)["RecommendDatastores"]
    wanted = planned(bench, datastore="DC0_POD0")
    made(bench, wanted)
    assert stores(bench, wanted)[0] in {"LocalDS_1", "LocalDS_2"}
    assert calls_of(bench.target)["RecommendDatastores"] == before + 1


def test_a_storage_policy_reaches_the_vm_and_its_disks(bench: Bench) -> None:
    """Failure: the policy is applied later, to a VM that stays on its template's datastore."""
    assert isinstance(bench.target, VSphereTarget)
    bench.target.vcenter.set_policy(POLICY, ["LocalDS_2"])
    wanted = planned(bench, storage_policy=POLICY)
    more = DiskPlan("data", 1, {})
    wanted = replace(wanted, disks=(replace(wanted.disks[0], storage={}), more))
    with bench.connect() as fresh:
        made(Bench(bench.target, fresh), wanted)
    given = machine(bench, wanted).policies
    assert set(given) == {"home", "Hard disk 1", "Hard disk 2"}
    assert len(set(given.values())) == 1
    assert set(stores(bench, wanted)) == {"LocalDS_2"}
    unknown = planned(bench, storage_policy="no such policy")
    assert "storagePolicy of the machine" in refused(bench, unknown).message


def test_the_copy_of_a_template_next_to_the_disk_is_cloned(bench: Bench) -> None:
    """Failure: two templates of one name are an error, or the far one is copied over."""
    assert isinstance(bench.target, VSphereTarget)
    bench.target.vcenter.create_foreign_vm("golden", copy_of="ubuntu")
    with admin(bench.target) as client:
        folder = client.at("DC0/vm").CreateFolder("copies")
        near = client.at("DC0/vm/golden")
        client.outcome(
            near.CloneVM_Task(
                folder,
                "golden",
                vim.vm.CloneSpec(
                    location=vim.vm.RelocateSpec(
                        pool=client.at("DC0/host/DC0_C0/Resources"),
                        datastore=client.at("DC0/datastore/DC0_POD0/LocalDS_1"),
                    ),
                    template=False,
                    powerOn=False,
                ),
            )
        )
    with bench.connect() as fresh:
        there = Bench(bench.target, fresh)
        wanted = planned(there, template="golden", datastore="LocalDS_1")
        task = fresh.create(replace(wanted, image=None))
        there.finish(task)
        assert isinstance(fresh, VSphereDriver)
        create = fresh._creates.get(wanted.ref.uuid or "")
        assert create is not None
        sent = create.template
    with admin(bench.target) as client:
        source = client.reference(vim.VirtualMachine, sent)
        path = client.read(source, "config.files.vmPathName")["config.files.vmPathName"]
    assert path.startswith("[LocalDS_1]")


def test_resource_pools_and_host_groups_are_failure_domains(shared: VSphereTarget) -> None:
    with admin(shared) as client:
        cluster = client.at("DC0/host/DC0_C0")
        hosts = [client.at(f"DC0/host/DC0_C0/DC0_C0_H{number}") for number in (0, 1)]
        group = vim.cluster.GroupSpec(
            operation="add", info=vim.cluster.HostGroup(name="row-a", host=hosts)
        )
        spec = vim.cluster.ConfigSpecEx(groupSpec=[group])
        client.outcome(cluster.ReconfigureComputeResource_Task(spec, modify=True))
    for kind, names in (("ResourcePool", {"DC0_C0_RP1", "DC0_C0_RP2"}), ("HostGroup", {"row-a"})):
        connection = replace(shared.connection(), settings={"failureDomains": kind})
        with BACKEND.connect(connection) as driver:
            domains = driver.failure_domains()
            assert {domain.path[-1] for domain in domains} == names
            here = _At(shared, driver, domains[0])
            wanted = planned(here)
            state = made(here, wanted)
            assert state.failure_domain == domains[0].id
            if kind == "HostGroup":
                assert machine(here, wanted).host in {"DC0_C0_H0", "DC0_C0_H1"}
            here.delete(wanted.ref, wanted)
    wrong = replace(shared.connection(), settings={"failureDomains": "Rack"})
    with pytest.raises(NeedsOperator) as refusal, BACKEND.connect(wrong):
        pass
    assert "settings.failureDomains" in refusal.value.message


class _At(Bench):
    """A bench whose plans are for a failure domain."""

    def __init__(self, target: VSphereTarget, driver: Native, where: FailureDomain) -> None:
        super().__init__(target, driver)
        object.__setattr__(self, "_where", where)

    def plan(self, name: str = "web", *, data_disk: bool = False) -> AnyPlan:
        where: FailureDomain = self._where  # type: ignore[attr-defined] # set above
        plain = super().plan(name, data_disk=data_disk)
        return replace(plain, failure_domain=where, ref=replace(plain.ref, failure_domain=where.id))


# How it is copied


def test_whether_a_clone_is_linked_is_decided_for_each_and_told(bench: Bench) -> None:
    """Failure: a size is ignored for a linked clone, or a clone is silently full."""
    linked, full = planned(bench, "linked"), planned(bench, "full", clone_mode=CloneMode.FULL)
    bigger = planned(bench, "bigger")
    size = (bigger.disks[0].size_gib or 0) + 3
    bigger = replace(bigger, disks=(replace(bigger.disks[0], size_gib=size),))
    told = {plan.ref.owner.name: made(bench, plan) for plan in (linked, full, bigger)}
    assert {name: state.facts["cloneMode"] for name, state in told.items()} == {
        "linked": "Linked",
        "full": "Full",
        "bigger": "Full",
    }
    assert told["bigger"].disks[0].size_gib == size
    assert machine(bench, linked).disks[0].parent
    with bench.connect() as fresh:
        again = fresh.observe(replace(linked.ref, seen=True))
        assert again is not None
        assert again.facts["cloneMode"] == "Linked", "from what is there, not from memory"


def test_a_missing_snapshot_is_an_error_and_not_a_full_clone(bench: Bench) -> None:
    """Failure: the snapshot is only logged as missing, and a full clone is made."""
    error = refused(bench, planned(bench, snapshot="yesterday"))
    assert (error.reason, "'yesterday'" in error.message) == (Reason.IMAGE_NOT_AVAILABLE, True)


@pytest.mark.parametrize(
    ("provisioning", "thin", "eager"),
    [("thin", True, False), ("thick", False, False), ("eager", False, True)],
)
def test_disks_are_provisioned_as_their_class_says(
    bench: Bench, provisioning: str, *, thin: bool, eager: bool
) -> None:
    wanted = planned(bench, provisioning)
    storage = {"datastore": "LocalDS_0", "provisioning": provisioning}
    root = replace(wanted.disks[0], storage=storage)
    wanted = replace(wanted, disks=(root, DiskPlan("data", 1, storage)))
    state = made(bench, wanted)
    backings = [disk.backing for disk in devices(bench, wanted, vim.vm.device.VirtualDisk)]
    new = backings[1]
    assert (bool(new.thinProvisioned), bool(new.eagerlyScrub)) == (thin, eager)
    if not thin:
        assert state.facts["cloneMode"] == "Full"
        assert (bool(backings[0].thinProvisioned), bool(backings[0].eagerlyScrub)) == (thin, eager)


def test_nvme_disks_and_more_than_a_controller_holds(bench: Bench) -> None:
    storage = {"datastore": "LocalDS_0", "controller": "nvme"}
    wanted = planned(bench, "nvme")
    many = tuple(DiskPlan(f"n{number}", 1, storage) for number in range(17))
    scsi = tuple(DiskPlan(f"s{number}", 1, {"datastore": "LocalDS_0"}) for number in range(3))
    wanted = replace(wanted, disks=(*wanted.disks, *many, *scsi))
    state = made(bench, wanted)
    assert {disk.name for disk in state.disks} == {disk.name for disk in wanted.disks}
    nvme = devices(bench, wanted, vim.vm.device.VirtualNVMEController)
    per = [
        sum(
            disk.controllerKey == it.key
            for disk in devices(bench, wanted, vim.vm.device.VirtualDisk)
        )
        for it in nvme
    ]
    assert sorted(per) == [2, 15]
    later = replace(wanted, disks=(*wanted.disks, DiskPlan("late", 1, storage)))
    bench.run(later, lambda: bench.driver.update(later, bench.state(later)))
    assert "late" in {disk.name for disk in bench.state(later).disks}


# What it is


def test_hardware_is_upgraded_before_the_first_start(bench: Bench) -> None:
    """Failure: devices that need the new hardware are added before the upgrade."""
    wanted = planned(bench, hardware_version="vmx-19", pci_device_labels=["gpu"])
    wanted = replace(wanted, features=("TPM",))
    state = made(bench, wanted)
    found = read(bench, wanted, "config.version", "config.memoryReservationLockedToMax")
    assert (found["config.version"], state.facts["hardwareVersion"]) == ("vmx-19", "vmx-19")
    assert found["config.memoryReservationLockedToMax"]
    (pci,) = devices(bench, wanted, vim.vm.device.VirtualPCIPassthrough)
    assert pci.backing.customLabel == "gpu"
    assert devices(bench, wanted, vim.vm.device.VirtualTPM)
    later = VSphereMachineSpec.model_construct(hardware_version="vmx-20")
    assert differing(later, state) == ("hardwareVersion",)
    with pytest.raises(NeedsOperator) as refusal:
        bench.driver.update(replace(wanted, spec=later), state)
    assert refusal.value.reason is Reason.RESTART_REQUIRED


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hardware_version": "vmx-99"}, "hardwareVersion vmx-99"),
        ({"pci_device_labels": ["tpu"]}, "pciDeviceLabels"),
        ({"num_cores_per_socket": 3}, "numCoresPerSocket 3"),
        ({"memory_allocation": MemoryAllocation(reservation_mib=4096)}, "memoryAllocation"),
        ({"extra_config": {"ethernet0.addressType": "static"}}, "ethernet0.addressType"),
        ({"datacenter": "DC9"}, "datacenter 'DC9'"),
        ({"cluster": "/DC0/host/other"}, "cluster '/DC0/host/other'"),
        ({"folder": "/DC9/vm/x", "folder_policy": FolderPolicy.CREATE}, "folder '/DC9/vm/x'"),
        ({"template": "nothing"}, "'nothing'"),
    ],
)
def test_what_cannot_be_is_refused_before_the_call_by_its_field(
    bench: Bench, fields: dict[str, Native], words: str
) -> None:
    before = calls_of(bench.target)["CloneVM_Task"]
    assert words in refused(bench, planned(bench, **fields)).message
    assert calls_of(bench.target)["CloneVM_Task"] == before


def test_the_shape_reaches_the_vm(bench: Bench) -> None:
    wanted = planned(
        bench,
        num_cores_per_socket=2,
        extra_config={"sched.cpu.latencySensitivity": "low"},
        cpu_allocation=CpuAllocation(reservation_mhz=100, limit_mhz=2000, shares=Shares.HIGH),
        memory_allocation=MemoryAllocation(reservation_mib=256),
        custom_attributes={"owner": "team-a", "cost": "42"},
    )
    wanted = replace(
        wanted, cpus=4, firmware="efi", features=("SecureBoot", "NestedVirtualization")
    )
    state = made(bench, wanted)
    found = read(
        bench,
        wanted,
        "config.hardware.numCoresPerSocket",
        "config.bootOptions",
        "config.nestedHVEnabled",
        "config.cpuAllocation",
        "config.memoryAllocation",
        "config.instanceUuid",
    )
    assert found["config.hardware.numCoresPerSocket"] == 2
    assert found["config.bootOptions"].efiSecureBootEnabled
    assert found["config.nestedHVEnabled"]
    cpu = found["config.cpuAllocation"]
    assert (cpu.reservation, cpu.limit, cpu.shares.level) == (100, 2000, "high")
    assert found["config.memoryAllocation"].reservation == 256
    options = machine(bench, wanted).extra_config
    assert options["sched.cpu.latencySensitivity"] == "low"
    assert options["disk.EnableUUID"] == "TRUE"
    assert not differing(wanted.spec, state)
    told = {key: value for key, value in state.facts.items() if key.startswith("custom")}
    assert told == {"customAttributes[owner]": "team-a", "customAttributes[cost]": "42"}
    other = replace(
        wanted, spec=VSphereMachineSpec.model_construct(custom_attributes={"cost": "7"})
    )
    assert differing(other.spec, state) == ("customAttributes",)
    bench.run(other, lambda: bench.driver.update(other, bench.state(other)))
    assert not differing(other.spec, bench.state(other))
    before = calls_of(bench.target)["SetField"]
    with bench.connect() as fresh:
        again = Bench(bench.target, fresh)
        assert differing(other.spec, again.state(other)), "it does not know the names yet"
        again.run(other, lambda: fresh.update(other, again.state(other)))
        assert not differing(other.spec, again.state(other))
    assert calls_of(bench.target)["SetField"] == before


def test_size_grows_while_it_runs_where_that_was_asked_for(bench: Bench) -> None:
    wanted = replace(planned(bench), features=("HotAddCPU", "HotAddMemory"))
    made(bench, wanted)
    bigger = replace(wanted, cpus=2, memory_mib=1024)
    bench.run(bigger, lambda: bench.driver.update(bigger, bench.state(bigger)))
    state = bench.state(bigger)
    assert (state.cpus, state.memory_mib, state.power.value) == (2, 1024, "PoweredOn")
    with pytest.raises(NeedsOperator) as refusal:
        bench.driver.update(wanted, state)
    assert refusal.value.reason is Reason.RESTART_REQUIRED, "it does not shrink while it runs"


def test_interfaces_reach_the_networks_and_kinds_they_name(bench: Bench) -> None:
    """Failure: with several interfaces, names and addresses are swapped."""
    targets = (
        {"portGroup": "VM Network"},
        {"portGroup": "DVS0/DC0_DVPG0", "adapter": "e1000e"},
        {"portGroup": "DC0_NSX0"},
        {"portGroup": "DC0_NSXPG0"},
    )
    nics = tuple(
        NicPlan(f"eth{number}", target, f"00:50:56:00:00:0{number}", connected=number != 3)
        for number, target in enumerate(targets)
    )
    wanted = replace(planned(bench), nics=nics)
    state = made(bench, wanted)
    cards = devices(bench, wanted, vim.vm.device.VirtualEthernetCard)
    assert [card.macAddress for card in cards] == [nic.mac_address for nic in nics]
    assert [type(card).__name__.rpartition(".")[2] for card in cards] == [
        "VirtualVmxnet3",
        "VirtualE1000e",
        "VirtualVmxnet3",
        "VirtualVmxnet3",
    ]
    assert [card.connectable.startConnected for card in cards] == [True, True, True, False]
    segment, same = (card.backing.port.portgroupKey for card in cards[2:])
    assert segment == same, "a vCenter has a port group for the opaque network"
    assert state.nics is not None
    by_name = {nic.name: nic for nic in state.nics}
    for nic in nics:
        assert nic.network["portGroup"] in (by_name[nic.name].plugged or {})["portGroup"]
    calls = calls_of(bench.target)["ReconfigVM_Task"]
    bench.run(wanted, lambda: bench.driver.update(wanted, state))
    assert calls_of(bench.target)["ReconfigVM_Task"] == calls, "nothing differs"
