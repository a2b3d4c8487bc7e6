"""What happens in the middle of a step: processes that die, disks that fill, things that vanish.

Every test has the one vCenter, and machines, groups and rules of its own there.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from pyVmomi import vim

from test.kit.soapproxy import SoapProxy
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.vspherebench import VSphereBench

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.vcenter.guest(delay=0.0, shutdown_delay=0.0)
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
