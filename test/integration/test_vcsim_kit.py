"""The simulated vCenter of the kit behaves as its tests need it, and the proxy before it too."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

import pytest
from pyVmomi import vim, vmodl

from test.kit import soaprules
from test.kit.certificates import Authority
from test.kit.soapproxy import SoapProxy
from test.kit.vcsim import VCSim
from test.kit.vcsim_control import ControlError
from test.kit.vsphere_client import VSphereClient
from test.kit.waiting import wait_until

pytest_plugins = ["test.kit.fixtures_vcsim"]
pytestmark = pytest.mark.slow

PATIENCE = 30.0


def addressed(vcsim: VCSim, name: str) -> str:
    return wait_until(lambda: vcsim.vm(name).address, PATIENCE, f"an address of {name}")


@pytest.fixture
def behind(vcsim: VCSim, soap_proxy: SoapProxy) -> Iterator[VSphereClient]:
    """A session by way of the proxy, with little patience."""
    with VSphereClient(soap_proxy.url, ca_pem=soap_proxy.ca_pem, timeout=3.0) as client:
        yield client.login(vcsim.username, vcsim.password)


def test_clone_is_powered_on_and_gets_an_address(vcsim: VCSim, vsphere: VSphereClient) -> None:
    spec = vsphere.clone_spec(
        numCPUs=2,
        memoryMB=2048,
        annotation="ours",
        extraConfig=[vim.option.OptionValue(key="guestinfo.userdata", value="x")],
    )
    created = vsphere.outcome(vsphere.clone("web", spec=spec))
    address = addressed(vcsim, "web")
    seen = vsphere.read(
        created,
        "runtime.powerState",
        "config.instanceUuid",
        "config.firmware",
        "guest.hostName",
        "guest.ipAddress",
        "guest.toolsRunningStatus",
        "guest.toolsVersionStatus2",
        "guest.net",
    )
    assert seen["runtime.powerState"] == "poweredOn"
    assert seen["config.instanceUuid"] == spec.config.instanceUuid
    assert seen["config.firmware"] == "efi"
    assert seen["guest.hostName"] == "web"
    assert seen["guest.ipAddress"] == address
    assert seen["guest.toolsRunningStatus"] == "guestToolsRunning"
    machine = vcsim.vm("web")
    (card,), (nic,) = machine.cards, seen["guest.net"]
    assert (nic.deviceConfigId, nic.macAddress) == (card.key, card.mac)
    assert address in [found.ipAddress for found in nic.ipConfig.ipAddress]
    assert (machine.cpus, machine.memory_mib, machine.annotation) == (2, 2048, "ours")
    assert machine.extra_config["guestinfo.userdata"] == "x"
    assert 0 < machine.created <= machine.powered_on <= machine.addressed
    vcsim.power_vm("web", "off")
    wait_until(lambda: not vcsim.vm("web").tools_running, PATIENCE, "a guest that is gone")
    assert vcsim.vm("web").address == ""


def test_guests_can_be_off_slow_or_without_ipv4(vcsim: VCSim, vsphere: VSphereClient) -> None:
    vcsim.guest(machine="off", enabled=False)
    vcsim.guest(machine="six", ipv4=False, ipv6=True)
    vcsim.guest(machine="slow", delay=0.5)
    for task in [vsphere.clone(name) for name in ("off", "six", "slow")]:
        vsphere.outcome(task)
    assert ":" in addressed(vcsim, "six")
    assert addressed(vcsim, "slow")
    slow = vcsim.vm("slow")
    assert slow.addressed - slow.powered_on >= 0.5
    assert not vcsim.vm("off").tools_running
    with pytest.raises(vim.fault.ToolsUnavailable):
        vsphere.at("DC0/vm/off").ShutdownGuest()


def test_calls_are_counted_by_method_client_and_account(
    vcsim: VCSim, vsphere: VSphereClient
) -> None:
    vcsim.reset_counters()
    vsphere.at("DC0/vm")
    vsphere.by_uuid("none")
    vcsim.create_foreign_vm("foreign")
    vcsim.destroy_vm("foreign")
    counters = vcsim.counters()
    assert dict(counters.soap) == {"FindByInventoryPath": 1, "FindAllByUuid": 1}
    assert counters.total == 2
    assert counters.accounts[vcsim.username] == counters.soap
    assert list(counters.clients.values()) == [counters.soap]


def test_property_reads_need_a_session(vcsim: VCSim) -> None:
    with VSphereClient(vcsim.url) as client:
        folder = client.content.rootFolder
        with pytest.raises(vim.fault.NotAuthenticated):
            client.read(folder, "name")
        with pytest.raises(vim.fault.InvalidLogin):
            client.login(vcsim.username, "wrong")
        client.login(vcsim.username, vcsim.password)
        assert client.read(folder, "name") == {"name": "Datacenters"}
        assert vcsim.terminate_sessions(vcsim.username) == 1
        with pytest.raises(vim.fault.NotAuthenticated):
            client.read(folder, "name")


def test_hidden_machine_is_not_found_and_not_to_be_touched(
    vcsim: VCSim, vsphere: VSphereClient
) -> None:
    vcsim.set_account("tenant", "tenant-password")
    machine = vcsim.create_foreign_vm("web")
    vcsim.create_folder("/DC0/vm/secret/inner")
    with VSphereClient(vcsim.url).login("tenant", "tenant-password") as tenant:
        assert [vm._moId for vm in tenant.by_uuid(machine.instance_uuid)] == [machine.mo_ref]
        vcsim.hide("tenant", "/DC0/vm/secret")
        vcsim.move_vm("web", "/DC0/vm/secret/inner")
        assert tenant.by_uuid(machine.instance_uuid) == []
        assert tenant.at("DC0/vm/secret") is None
        secret = tenant.reference(vim.VirtualMachine, machine.mo_ref)
        with pytest.raises(vim.fault.NoPermission):
            tenant.read(secret, "name")
        with pytest.raises(vim.fault.NoPermission):
            secret.Destroy_Task()
        (answer,) = tenant.content.authorizationManager.HasPrivilegeOnEntities(
            [tenant.content.rootFolder], "session", ["System.Read", "No.Such"]
        )
        assert [each.isGranted for each in answer.privAvailability] == [True, False]
    assert [vm._moId for vm in vsphere.by_uuid(machine.instance_uuid)] == [machine.mo_ref]


def test_missing_privilege_is_named_with_its_object(vcsim: VCSim, vsphere: VSphereClient) -> None:
    vcsim.deny(vcsim.username, "", ["VirtualMachine.Inventory.CreateFromExisting"])
    with pytest.raises(vim.fault.NoPermission) as caught:
        vsphere.clone("web")
    assert caught.value.privilegeId == "VirtualMachine.Inventory.CreateFromExisting"
    vcsim.clear_permissions()
    vsphere.outcome(vsphere.clone("web"))


Spoil = Callable[[vim.vm.CloneSpec, VSphereClient], None]
Card = vim.vm.device.VirtualEthernetCard


def _add_card(spec: vim.vm.CloneSpec, backing: object) -> None:
    device = vim.vm.device.VirtualVmxnet3(key=-1, backing=backing)
    change = vim.vm.device.VirtualDeviceSpec(operation="add", device=device)
    spec.config = vim.vm.ConfigSpec(deviceChange=[change])


def _no_pool(spec: vim.vm.CloneSpec, client: VSphereClient) -> None:
    spec.location.pool = client.reference(vim.ResourcePool, "resgroup-7")


def _no_datastore(spec: vim.vm.CloneSpec, client: VSphereClient) -> None:
    spec.location.datastore = client.reference(vim.Datastore, "datastore-7")


def _no_host(spec: vim.vm.CloneSpec, client: VSphereClient) -> None:
    spec.location.host = client.reference(vim.HostSystem, "host-7")


def _no_network(spec: vim.vm.CloneSpec, client: VSphereClient) -> None:
    del client
    _add_card(spec, Card.NetworkBackingInfo(deviceName="nowhere"))


def _no_port_group(spec: vim.vm.CloneSpec, client: VSphereClient) -> None:
    del client
    port = vim.dvs.PortConnection(portgroupKey="dvportgroup-7", switchUuid="none")
    _add_card(spec, Card.DistributedVirtualPortBackingInfo(port=port))


def _no_snapshot(spec: vim.vm.CloneSpec, client: VSphereClient) -> None:
    del client
    spec.location.diskMoveType = "createNewChildDiskBacking"


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (_no_pool, vmodl.fault.ManagedObjectNotFound),
        (_no_datastore, vmodl.fault.ManagedObjectNotFound),
        (_no_host, vmodl.fault.ManagedObjectNotFound),
        (_no_network, vim.fault.InvalidDeviceSpec),
        (_no_port_group, vmodl.fault.InvalidArgument),
        (_no_snapshot, vmodl.fault.InvalidArgument),
    ],
)
def test_bad_clone_faults_and_leaves_nothing(
    vcsim: VCSim,
    vsphere: VSphereClient,
    spoil: Spoil,
    fault: type[Exception],
) -> None:
    before = vcsim.inventory()
    spec = vsphere.clone_spec()
    spoil(spec, vsphere)
    with pytest.raises(fault):
        vsphere.outcome(vsphere.clone("web", spec=spec))
    assert vcsim.inventory() == before
    vsphere.outcome(vsphere.clone("web"))


def test_cluster_without_drs_wants_a_host(vcsim: VCSim, vsphere: VSphereClient) -> None:
    vcsim.set_drs("DC0_C0", "off")
    with pytest.raises(vmodl.fault.InvalidArgument) as caught:
        vsphere.outcome(vsphere.clone("web"))
    assert caught.value.invalidProperty == "spec.location.host"
    spec = vsphere.clone_spec()
    spec.location.host = vsphere.at("DC0/host/DC0_C0/DC0_C0_H1")
    vsphere.outcome(vsphere.clone("web", spec=spec))
    assert vcsim.vm("web").host == "DC0_C0_H1"


def test_of_two_clones_of_one_name_one_is_a_duplicate(vcsim: VCSim, vsphere: VSphereClient) -> None:
    vcsim.set_delay("CloneVM_Task", 0.2, of="task")
    tasks = [vsphere.clone("web"), vsphere.clone("web")]
    faults = []
    for task in tasks:
        try:
            vsphere.outcome(task)
        except vim.fault.DuplicateName as fault:
            faults.append(fault)
    assert [fault.object._moId for fault in faults] == [vcsim.vm("web").mo_ref]


def test_clones_of_several_templates_into_one_folder(vcsim: VCSim, vsphere: VSphereClient) -> None:
    def clone(number: int) -> None:
        vsphere.outcome(vsphere.clone(f"vm-{number}", template=("ubuntu", "debian")[number % 2]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(clone, range(60)))
    machines = [machine for machine in vcsim.vms() if not machine.template]
    assert len(machines) == 60
    assert len({machine.uuid for machine in machines}) == 60
    assert len({card.mac for machine in machines for card in machine.cards}) == 60


def test_digest_is_the_same_after_create_and_destroy(vcsim: VCSim, vsphere: VSphereClient) -> None:
    before = vcsim.inventory()
    created = vsphere.outcome(vsphere.clone("web"))
    addressed(vcsim, "web")
    assert vcsim.inventory_digest() != before.digest
    with pytest.raises(vim.fault.InvalidPowerState):
        vsphere.outcome(created.Destroy_Task())
    vsphere.outcome(created.PowerOffVM_Task())
    vsphere.outcome(created.Destroy_Task())
    assert vcsim.inventory() == before


def test_faults_in_call_and_task(vcsim: VCSim, vsphere: VSphereClient) -> None:
    rule = vcsim.add_fault(
        "CloneVM_Task", "InsufficientResourcesFault", stage="task", name="web", skip=1, count=1
    )
    vsphere.outcome(vsphere.clone("other"))
    vsphere.outcome(vsphere.clone("web"))
    with pytest.raises(vim.fault.InsufficientResourcesFault):
        vsphere.outcome(vsphere.clone("web"))
    assert vcsim.fault_hits(rule) == 1
    vcsim.add_fault("FindByInventoryPath", "NoPermission", {"privilegeId": "System.Read"})
    with pytest.raises(vim.fault.NoPermission) as caught:
        vsphere.at("DC0")
    assert caught.value.privilegeId == "System.Read"
    vcsim.clear_faults()
    assert vsphere.at("DC0") is not None
    with pytest.raises(ControlError, match="NoSuchFault"):
        vcsim.add_fault("*", "NoSuchFault")


def test_restart_keeps_the_identity_and_loses_the_inventory(
    vcsim: VCSim, vsphere: VSphereClient
) -> None:
    created = vsphere.outcome(vsphere.clone("web"))
    vcsim.restart()
    with VSphereClient(vcsim.url, ca_pem=vcsim.ca_pem) as client:
        assert client.content.about.instanceUuid == vcsim.instance_uuid
        client.login(vcsim.username, vcsim.password)
        assert vcsim.find_vm("web") is None
        with pytest.raises(vmodl.fault.ManagedObjectNotFound):
            client.read(client.reference(vim.VirtualMachine, created._moId), "name")
    vcsim.set_instance_uuid("11111111-2222-3333-4444-555555555555")
    with VSphereClient(vcsim.url) as client:
        assert client.content.about.instanceUuid == "11111111-2222-3333-4444-555555555555"


def test_vcenters_have_no_reference_and_no_uuid_in_common(vcsim: VCSim, tmp_path: Path) -> None:
    with VCSim(tmp_path, templates=["ubuntu", "debian"]) as other:
        for field in ("mo_ref", "uuid", "instance_uuid"):
            ours = {getattr(machine, field) for machine in vcsim.vms()}
            theirs = {getattr(machine, field) for machine in other.vms()}
            assert not ours & theirs


def test_password_is_in_no_output(vcsim: VCSim, vsphere: VSphereClient) -> None:
    vsphere.outcome(vsphere.clone("web"))
    assert vcsim.password not in vcsim.process.logs()
    command_line = Path(f"/proc/{vcsim.process.pid}/cmdline").read_text(encoding="utf-8")
    assert vcsim.password not in command_line


@pytest.mark.parametrize("lose", [soaprules.drop_reply, soaprules.half_body])
def test_lost_reply_leaves_the_machine(
    vcsim: VCSim,
    soap_proxy: SoapProxy,
    behind: VSphereClient,
    lose: Callable[[str], soaprules.Rule],
) -> None:
    source, folder = behind.at("DC0/vm/templates/ubuntu"), behind.at("DC0/vm")
    spec = behind.clone_spec()
    rule = soap_proxy.add(lose("CloneVM_Task"))
    with pytest.raises((OSError, HTTPException, ExpatError)):
        source.CloneVM_Task(folder, "web", spec)
    assert rule.hits == 1
    wait_until(lambda: behind.by_uuid(spec.config.instanceUuid), PATIENCE, "the clone")
    assert vcsim.counters().soap["CloneVM_Task"] == soap_proxy.passed["CloneVM_Task"] == 1


def test_cut_call_is_never_executed(
    vcsim: VCSim, soap_proxy: SoapProxy, behind: VSphereClient
) -> None:
    spec = behind.clone_spec()
    soap_proxy.add(soaprules.cut("CloneVM_Task", count=1))
    with pytest.raises((OSError, HTTPException)):
        behind.clone("web", spec=spec)
    assert soap_proxy.arrived["CloneVM_Task"] == 1
    assert "CloneVM_Task" not in vcsim.counters().soap
    behind.outcome(behind.clone("web", spec=spec))


def test_black_hole_times_out_and_heals(
    vcsim: VCSim, soap_proxy: SoapProxy, behind: VSphereClient
) -> None:
    soap_proxy.black_hole()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        behind.at("DC0")
    assert time.monotonic() - started >= 3.0
    with pytest.raises(TimeoutError):
        VSphereClient(soap_proxy.url, timeout=0.5)
    soap_proxy.restore()
    assert behind.at("DC0") is not None
    assert vcsim.counters().soap["FindByInventoryPath"] == 1


def test_refused_connections(vcsim: VCSim, soap_proxy: SoapProxy, behind: VSphereClient) -> None:
    soap_proxy.refuse()
    with pytest.raises((OSError, HTTPException)):
        behind.at("DC0")
    with pytest.raises(ConnectionRefusedError):
        VSphereClient(soap_proxy.url)
    soap_proxy.restore()
    with VSphereClient(soap_proxy.url) as client:
        assert client.content.about.instanceUuid == vcsim.instance_uuid


def test_waiting_call_is_cut_off_by_a_black_hole_too(
    soap_proxy: SoapProxy, behind: VSphereClient
) -> None:
    soap_proxy.add(soaprules.delay("FindByInventoryPath", 60.0))
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            answer.set_result(behind.at("DC0"))
        # Whatever comes out is what the test looks at.
        except BaseException as error:  # noqa: BLE001 - handed on
            answer.set_exception(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: soap_proxy.arrived["FindByInventoryPath"], PATIENCE, "the call")
    soap_proxy.black_hole()
    assert isinstance(answer.exception(PATIENCE), TimeoutError)
    thread.join(PATIENCE)


def test_proxy_answers_with_faults_and_statuses(
    soap_proxy: SoapProxy, behind: VSphereClient
) -> None:
    soap_proxy.add(
        soaprules.fault(
            "FindByInventoryPath",
            "NoPermission",
            {"object": ("Folder", "group-1"), "privilegeId": "System.Read"},
            count=1,
        )
    )
    with pytest.raises(vim.fault.NoPermission) as caught:
        behind.at("DC0")
    assert caught.value.privilegeId == "System.Read"
    assert str(caught.value.object) == "'vim.Folder:group-1'"
    soap_proxy.add(soaprules.http_status("FindByInventoryPath", 503, count=1))
    with pytest.raises(HTTPException, match="503"):
        behind.at("DC0")
    soap_proxy.add(soaprules.strip_cookie("FindByInventoryPath", count=1))
    with pytest.raises(vim.fault.NotAuthenticated):
        behind.at("DC0")
    assert behind.at("DC0") is not None


def test_proxy_swaps_its_certificate(soap_proxy: SoapProxy, behind: VSphereClient) -> None:
    assert behind.at("DC0") is not None
    stranger = Authority("somebody else").issue("stranger", hosts=["127.0.0.1"])
    soap_proxy.use_certificate(stranger)
    with pytest.raises((OSError, HTTPException)):  # the connection that was open
        behind.at("DC0")
    with pytest.raises(ssl.SSLCertVerificationError):
        behind.at("DC0")
    soap_proxy.use_certificate(soap_proxy.issue())
    assert behind.at("DC0") is not None
