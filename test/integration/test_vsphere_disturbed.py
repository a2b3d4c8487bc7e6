"""What happens in the middle of a step: processes that die, disks that fill, things that vanish.

Every test has the one vCenter, and machines, groups and rules of its own there.
"""

import asyncio
import base64
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from pyVmomi import vim

from banlieue.api.resources import PROVIDERS, SECRETS
from banlieue.providers.vsphere.models import VSPHERE_MACHINES
from banlieue.sdk.kube import Key
from test.kit import soaprules
from test.kit.soapproxy import SoapProxy
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.vspherebench import DOMAIN, NAMESPACE, PROVIDER, VSphereBench

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.vcenter.guest(delay=0.0, shutdown_delay=0.0, bootstrap="never")
        yield target


@pytest.fixture
def target(shared: VSphereTarget) -> Iterator[VSphereTarget]:
    """A proxy of its own, so that what a test leaves behind in it concerns no other."""
    with SoapProxy(shared.vcenter.address) as proxy:
        yield VSphereTarget(shared.vcenter, proxy)
    shared.vcenter.clear_faults()
    shared.vcenter.clear_delays()


@pytest.fixture
def bench(target: VSphereTarget) -> Iterator[VSphereBench]:
    with VSphereBench(target) as bench:
        yield bench


def _groups(bench: VSphereBench, vms: Collection[str]) -> tuple[list[set[str]], list[set[str]]]:
    """Members of the groups, and of the rules, that have any of the VMs."""
    vcenter = bench.target.vcenter
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        cluster = admin.at("DC0/host/DC0_C0")
        found = admin.read(cluster, "configurationEx.group", "configurationEx.rule")
        admin.content.sessionManager.Logout()
    kinds: tuple[tuple[str, type[Any]], ...] = (
        ("configurationEx.group", vim.cluster.VmGroup),
        ("configurationEx.rule", vim.cluster.AntiAffinityRuleSpec),
    )
    groups, rules = (
        [
            {str(vm._moId) for vm in item.vm or ()}
            for item in found.get(path) or ()
            if isinstance(item, kind)
        ]
        for path, kind in kinds
    )
    return [it for it in groups if it & set(vms)], [it for it in rules if it & set(vms)]


async def _make(bench: VSphereBench, name: str, **spec: object) -> str:
    bench.make_machine(name, **spec)
    await bench.until(f"{name} is Ready", lambda: bench.is_ready(name), name)
    return bench.vm(name).mo_ref


async def _told(bench: VSphereBench, name: str, reason: str) -> None:
    await bench.until(reason, lambda: bench.condition("Ready", name)[1] == reason, name)


# Groups


async def test_a_machine_whose_deletion_is_held_stays_in_its_group(bench: VSphereBench) -> None:
    """It left its group with the first look at its deletion, and ran beside its twin meanwhile."""
    group = {"antiAffinityGroup": "held"}
    first, second = await _make(bench, "held-1", **group), await _make(bench, "held-2", **group)
    bench.target.attach_foreign_disk(first)
    bench.target.snapshot(first)  # which keeps us from taking the disk off
    bench.delete("held-1")
    await _told(bench, "held-1", "ForeignDiskAttached")
    third = await _make(bench, "held-3", **group)
    ids = {first, second, third}
    await bench.until("the third joined", lambda: _groups(bench, ids)[0] == [ids], "held-3")
    assert _groups(bench, ids)[1] == [ids]
    assert bench.vm("held-1").power_state == "poweredOn"


async def test_the_last_of_a_group_takes_it_along(bench: VSphereBench) -> None:
    group = {"antiAffinityGroup": "last"}
    vms = {await _make(bench, f"last-{number}", **group) for number in (1, 2)}
    assert _groups(bench, vms) == ([vms], [vms])
    empty = len(_groups_without_members(bench))
    for name in ("last-1", "last-2"):
        bench.delete(name)
        await bench.until("gone", _is_gone(bench, name), name)
    assert _groups(bench, vms) == ([], [])
    assert len(_groups_without_members(bench)) == empty


def _is_gone(bench: VSphereBench, name: str) -> Callable[[], bool]:
    return lambda: not bench.machine(name)


def _groups_without_members(bench: VSphereBench) -> list[str]:
    vcenter = bench.target.vcenter
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        found = admin.read(admin.at("DC0/host/DC0_C0"), "configurationEx.group")
        admin.content.sessionManager.Logout()
    return [
        str(item.name)
        for item in found.get("configurationEx.group") or ()
        if isinstance(item, vim.cluster.VmGroup) and not item.vm
    ]


# Processes that are killed


async def _another_process(bench: VSphereBench) -> None:
    """The process is killed: its session stays, and nothing that it knew is left."""
    bench.target.proxy.add(soaprules.cut("Logout", count=1))
    await asyncio.to_thread(bench.restart)


async def test_a_process_killed_in_an_edit_of_groups_leaves_one_group(bench: VSphereBench) -> None:
    group = {"antiAffinityGroup": "killed"}
    first = await _make(bench, "killed-1", **group)
    vcenter = bench.target.vcenter
    vcenter.set_delay("ReconfigureComputeResource_Task", 0.5, of="task")
    rule = bench.target.proxy.add(soaprules.drop_reply("ReconfigureComputeResource_Task", count=1))
    bench.make_machine("killed-2", **group)
    await bench.until("the edit to be sent", lambda: rule.hits, "killed-2")
    await _another_process(bench)
    vcenter.clear_delays()
    await bench.until("it is Ready", lambda: bench.is_ready("killed-2"), "killed-2")
    ids = {first, bench.vm("killed-2").mo_ref}
    await bench.until("both joined", lambda: _groups(bench, ids) == ([ids], [ids]))


@pytest.mark.parametrize("moment", ["before the call", "after it"])
async def test_a_process_killed_while_it_redacts_leaves_no_secret(
    bench: VSphereBench, moment: str
) -> None:
    name, word = f"redacted-{moment[0]}", f"planted-4721-{moment[0]}"
    data = base64.b64encode(f"#cloud-config\n# {word}\n".encode()).decode()
    secret = {"metadata": {"namespace": NAMESPACE, "name": name}, "data": {"user-data": data}}
    bench.api.put(SECRETS, secret)
    vcenter = bench.target.vcenter
    vm = await _make(bench, name, userData={"secretRef": {"name": name}, "key": "user-data"})
    assert word.encode() in bench.target.first_boot_data(vm)
    make = soaprules.cut if moment == "before the call" else soaprules.drop_reply
    rule = bench.target.proxy.add(make("ReconfigVM_Task", count=1))
    vcenter.guest(machine=bench.vm(name).name, bootstrap="done", bootstrap_delay=0.0)
    await bench.until("the data to be cleared", lambda: rule.hits, name)
    await _another_process(bench)
    await bench.until(
        "it is told", lambda: bench.condition("SeedRedacted", name)[0] == "True", name
    )
    left = bench.target.first_boot_data(vm)
    assert word.encode() not in left
    assert b"instance-id" in left, "what the guest needs for life stays"


# What fills up, and what vanishes


async def test_a_full_datastore_is_told_with_the_domain_and_leaves_nothing(
    bench: VSphereBench,
) -> None:
    """The controller places it elsewhere by `createRefused`; here it is made once there is room."""
    vcenter = bench.target.vcenter
    full = {"datastore": "LocalDS_0", "file": "[LocalDS_0] full/full.vmdk"}
    vcenter.add_fault("CloneVM_Task", "NoDiskSpace", full, stage="task")
    bench.make_machine("full")
    await _told(bench, "full", "InsufficientStorage")
    status = bench.machine("full")["status"]
    assert status["createRefused"] == {"failureDomain": DOMAIN, "reason": "InsufficientStorage"}
    assert "provisioned" not in (status.get("initialization") or {})
    assert bench.vms("full") == []
    vcenter.clear_faults()
    await bench.until("it is Ready", lambda: bench.is_ready("full"), "full")
    assert "createRefused" not in bench.machine("full")["status"]


@pytest.mark.parametrize("moment", ["before the call", "while it clones"])
async def test_a_template_that_vanishes_is_told_and_its_successor_taken(
    bench: VSphereBench, moment: str
) -> None:
    name, golden = f"vanished-{moment[0]}", f"golden-{moment[0]}"
    vcenter = bench.target.vcenter
    policy = {"concreteFields": {"template": ["*"]}}
    bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(policy=policy))
    first = _template(bench, golden)
    await _make(bench, f"{name}-0", template=golden)  # so that the template is known
    bench.make_machine(name, template=golden)
    if moment == "while it clones":
        gone = {"obj": {"type": "VirtualMachine", "value": first}}
        rule = vcenter.add_fault("CloneVM_Task", "ManagedObjectNotFound", gone, stage="task")
        await bench.until("the clone to fail", lambda: vcenter.fault_hits(rule), name)
    vcenter.destroy_vm(first)
    await _told(bench, name, "ImageNotAvailable")
    assert bench.vms(name) == []
    vcenter.clear_faults()
    _template(bench, golden)
    await bench.until("it is Ready", lambda: bench.is_ready(name), name)


def _template(bench: VSphereBench, name: str) -> str:
    vcenter = bench.target.vcenter
    made = vcenter.create_foreign_vm(name, copy_of="ubuntu").mo_ref
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        admin.reference(vim.VirtualMachine, made).MarkAsTemplate()
        admin.content.sessionManager.Logout()
    return made


# MAC addresses


def _card(mac: str, name: str = "eth0") -> dict[str, str]:
    return {"name": name, "networkClass": "prod", "macAddress": mac}


def _with_mac(bench: VSphereBench, mac: str) -> list[str]:
    found = (vm for vm in bench.target.vcenter.vms() if not vm.template)
    return [vm.name for vm in found if mac in {card.mac for card in vm.cards}]


async def test_of_two_machines_with_one_mac_address_only_one_is_made(bench: VSphereBench) -> None:
    mac = "00:50:56:01:02:03"
    for name in ("mac-1", "mac-2"):
        bench.make_machine(name, networkInterfaces=[_card(mac)])

    def settled() -> bool:
        told = {bench.condition("Ready", name) for name in ("mac-1", "mac-2")}
        return told == {("True", "Ready"), ("False", "InvalidConfiguration")}

    await bench.until("one is made, one is refused", settled, "mac-1", "mac-2")
    (refused,) = (it for it in ("mac-1", "mac-2") if not bench.is_ready(it))
    made = "mac-1" if refused == "mac-2" else "mac-2"
    whose = f"interface eth0: VM {bench.vm(made).name}, on the same network, has"
    await bench.until("it names the VM", lambda: whose in bench.message("Ready", refused), refused)
    assert _with_mac(bench, mac) == [bench.vm(made).name]
    bench.delete(made)
    await bench.until("the one is gone", lambda: not bench.machine(made), made)
    await bench.until("the other is made", lambda: bench.is_ready(refused), refused)


async def test_a_mac_address_that_lives_on_the_network_is_refused(bench: VSphereBench) -> None:
    await _make(bench, "lives", networkInterfaces=[_card("00:50:56:01:02:04")])
    bench.api.edit(
        VSPHERE_MACHINES,
        Key(NAMESPACE, "lives"),
        lambda obj: obj["spec"]["networkInterfaces"][0].pop("macAddress"),
    )
    await _make(bench, "grows")
    cards = [{"name": "eth0", "networkClass": "prod"}, _card("00:50:56:01:02:04", "eth1")]
    bench.edit("grows", networkInterfaces=cards)
    await bench.until(
        "the card is refused",
        lambda: bench.condition("UpToDate", "grows") == ("False", "InvalidConfiguration"),
        "grows",
    )
    assert bench.vm("lives").name in bench.message("UpToDate", "grows")
    assert bench.condition("Ready", "grows") == ("True", "Ready")
    assert len(bench.vm("grows").cards) == 1
    bench.edit("grows", networkInterfaces=[cards[0], _card("00:50:56:01:02:05", "eth1")])
    await bench.until("a free one is taken", lambda: len(bench.vm("grows").cards) == 2, "grows")
