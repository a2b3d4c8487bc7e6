"""Tags and groups of VMs on a vCenter: brought about once, and never what a VM waits for."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.sdk.driver import MachineState
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, seen
from banlieue.sdk.upkeep import GROUP, TAGS, Upkeep
from test.kit.vcsim import VCSim
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_rest import VSphereRest
from test.kit.vsphere_target import VSphereTarget, vsphere_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.fixture(scope="module")
def rest(vcenter: VSphereTarget) -> VSphereRest:
    return VSphereRest(vcenter.vcenter)


@pytest.fixture
def bench(vcenter: VSphereTarget) -> Iterator[Bench]:
    vcenter.proxy.clear()
    with _session(vcenter) as bench:
        yield bench


@contextmanager
def _session(vcenter: VSphereTarget) -> Iterator[Bench]:
    with vcenter.backend.connect(vcenter.connection()) as driver:
        yield Bench(vcenter, driver)


def _driver(bench: Bench) -> VSphereDriver:
    assert isinstance(bench.driver, VSphereDriver)
    return bench.driver


def _kept_up(bench: Bench, plan: AnyPlan, state: MachineState) -> Upkeep:
    """What is told once there is nothing left to wait for."""
    told: list[Upkeep] = []

    def settled() -> bool:
        told.append(_driver(bench).keep_up(plan, state))
        return told[-1].poll_after is None

    bench.until("tags and groups", settled)
    return told[-1]


def _tagged(bench: Bench, **tags: str) -> tuple[AnyPlan, MachineState]:
    plan = replace(bench.plan(), tags=tags)
    state = bench.ensure(plan)
    assert _kept_up(bench, plan, state).settled
    return plan, state


def _calls(vcenter: VSphereTarget) -> tuple[Counter[str], Counter[str]]:
    found = vcenter.vcenter.counters()
    return Counter(found.soap), Counter(found.rest)


def test_tags_come_with_one_call_for_a_vm_and_none_at_rest(
    bench: Bench, vcenter: VSphereTarget, rest: VSphereRest
) -> None:
    """CAPV #1340: tags by name; and once, not on every pass."""
    _tagged(bench, team="warm-up")
    plan = replace(bench.plan(), tags={"team": "warm-up"})
    state = bench.ensure(plan)
    soap, before = _calls(vcenter)
    assert _kept_up(bench, plan, state).settled
    soap_after, after = _calls(vcenter)
    action = "attach-multiple-tags-to-object"
    attach = f"POST /rest/com/vmware/cis/tagging/tag-association?~action={action}"
    assert after - before == {attach: 1}
    assert set(soap_after - soap) <= {"WaitForUpdatesEx"}
    for _ in range(5):
        assert _kept_up(bench, plan, state).settled
    assert _calls(vcenter)[1] == after
    assert rest.tags_on(state.backend_id) == {("team", "warm-up")}


def test_a_label_that_changes_takes_its_tag_along_and_leaves_those_of_others(
    bench: Bench, rest: VSphereRest
) -> None:
    plan, state = _tagged(bench, team="blue", tier="gold")
    foreign = rest.make_tag(rest.make_category("backup", single=False), "nightly")
    rest.attach(foreign, "VirtualMachine", state.backend_id)
    changed = replace(plan, tags={"team": "red"})
    assert _kept_up(bench, changed, state).settled
    assert rest.tags_on(state.backend_id) == {("backup", "nightly"), ("team", "red")}
    # An admin's tag that a label asks for, too, for a while, is his.
    assert _kept_up(bench, replace(plan, tags={"team": "red", "backup": "nightly"}), state).settled
    assert _kept_up(bench, replace(plan, tags={}), state).settled
    assert rest.tags_on(state.backend_id) == {("backup", "nightly")}


def test_a_restart_reads_the_tags_of_all_vms_in_two_calls(
    bench: Bench, vcenter: VSphereTarget, rest: VSphereRest
) -> None:
    made = [_tagged(bench, team="blue") for _ in range(4)]
    with _session(vcenter) as again:
        before = _calls(vcenter)[1]
        for plan, state in made:
            assert _kept_up(again, plan, state).settled
        spent = _calls(vcenter)[1] - before
        lists = [name for name in spent if "list-attached" in name]
        assert [spent[name] for name in lists] == [1]
        assert not any("attach-multiple" in name for name in spent)
        # What was asked for while nobody served is found by the note on the VM.
        plan, state = made[0]
        assert _kept_up(again, replace(plan, tags={"team": "green"}), state).settled
    assert rest.tags_on(made[0][1].backend_id) == {("team", "green")}


def test_tags_that_may_not_be_made_are_told_and_nothing_waits(vcenter: VSphereTarget) -> None:
    with vcenter.backend.connect(replace(vcenter.connection(), settings={})) as driver:
        bench = Bench(vcenter, driver)
        plan = replace(bench.plan(), tags={"nobody": "made-it"})
        state = bench.ensure(plan)
        told = _kept_up(bench, plan, state)
        assert [(it.field, it.reason) for it in told.shortfalls] == [
            (TAGS, Reason.INVALID_CONFIGURATION)
        ]
        assert "createTags" in told.shortfalls[0].message
        told = _kept_up(bench, replace(plan, tags={"team": ""}), state)
        assert "has no value" in told.shortfalls[0].message


def test_a_rest_session_that_was_ended_is_renewed(bench: Bench, rest: VSphereRest) -> None:
    _tagged(bench, team="blue")
    rest.end_sessions([_driver(bench)._rest._token or ""])
    _, state = _tagged(bench, team="violet")
    assert rest.tags_on(state.backend_id) == {("team", "violet")}


# Groups


def _cluster(vcenter: VCSim) -> tuple[dict[str, set[str]], dict[str, set[str]], list[object]]:
    """VM groups and anti-affinity rules, by name, and all rules."""
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        cluster = admin.at("DC0/host/DC0_C0")
        found = admin.read(cluster, "configurationEx.group", "configurationEx.rule")
        admin.content.sessionManager.Logout()
    groups = {
        str(it.name): _ids(it.vm)
        for it in found.get("configurationEx.group") or ()
        if isinstance(it, vim.cluster.VmGroup)
    }
    rules = list(found.get("configurationEx.rule") or ())
    apart = {
        str(it.name): _ids(it.vm)
        for it in rules
        if isinstance(it, vim.cluster.AntiAffinityRuleSpec)
    }
    return groups, apart, rules


def _ids(vms: Any) -> set[str]:  # noqa: ANN401 - a list of managed objects
    return {str(vm._moId) for vm in vms or ()}


def _grouped(bench: Bench, group: str, name: str, owner: AnyPlan | None = None) -> AnyPlan:
    plan = bench.plan(name)
    spec = plan.spec.model_copy(update={"anti_affinity_group": group})
    if owner is None:
        return replace(plan, spec=spec)
    ours = replace(plan.ref.owner, installation_id=owner.ref.owner.installation_id)
    ref = replace(plan.ref, owner=ours)
    return replace(plan, spec=spec, ref=ref, mark=replace(plan.mark, owner=ours))


def _start(bench: Bench, plan: AnyPlan) -> None:
    bench.run(plan, lambda: bench.driver.update(plan, bench.state(plan)))


def _with(named: Mapping[str, set[str]], vms: Collection[str]) -> list[set[str]]:
    """The members of those of our groups or rules that have any of the VMs."""
    ours = (members for name, members in named.items() if name.startswith("banlieue-"))
    return [members for members in ours if members & set(vms)]


def test_vms_of_a_group_are_kept_apart_before_they_start_and_leave_nothing(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    """CAPV #3575: a VM joins its group before it is started."""
    before = set(_cluster(vcenter.vcenter)[0])
    first = _grouped(bench, "etcd", "one")
    plans = [first, _grouped(bench, "etcd", "two", first), _grouped(bench, "etcd", "three", first)]
    states = [bench.ensure(plan) for plan in plans]
    assert {state.power for state in states} == {PowerState.POWERED_OFF}
    for plan in plans:
        _start(bench, plan)
    states = [bench.state(plan) for plan in plans]
    assert {state.power for state in states} == {PowerState.POWERED_ON}
    ids = {state.backend_id for state in states}
    groups, apart, _ = _cluster(vcenter.vcenter)
    assert _with(groups, ids) == [ids] == _with(apart, ids)
    for plan, state in zip(plans, states, strict=True):
        assert _kept_up(bench, plan, state).settled
    bench.delete(seen(plans[0], states[0]), plans[0])
    bench.delete(seen(plans[1], states[1]), plans[1])

    def alone() -> bool:
        groups, apart, _ = _cluster(vcenter.vcenter)
        return _with(groups, ids) == [{states[2].backend_id}] and not _with(apart, ids)

    bench.until("the rule to go", alone)
    bench.delete(seen(plans[2], states[2]), plans[2])

    def empty() -> bool:
        groups, _, _ = _cluster(vcenter.vcenter)
        return not _with(groups, ids) and set(groups) == before

    bench.until("the group to go", empty)


def test_an_edit_that_loses_members_is_made_again_and_an_admins_member_stays(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    """Lists that are written back whole lose members when two write at the same time."""
    stranger = vcenter.vcenter.create_foreign_vm("stranger").mo_ref
    first = _grouped(bench, "web", "one")
    second = _grouped(bench, "web", "two", first)
    states = [bench.ensure(plan) for plan in (first, second)]
    assert _kept_up(bench, first, states[0]).settled
    _admin_writes(vcenter.vcenter, states[0].backend_id, [stranger])  # and loses ours
    assert _kept_up(bench, second, states[1]).settled
    groups, apart, _ = _cluster(vcenter.vcenter)
    assert _with(groups, [stranger]) == [{stranger, states[1].backend_id}]
    with _session(vcenter) as again:
        assert _kept_up(again, first, states[0]).settled
    ids = {stranger, *(state.backend_id for state in states)}
    groups, apart, _ = _cluster(vcenter.vcenter)
    assert _with(groups, ids) == [ids] == _with(apart, ids)


def _admin_writes(vcenter: VCSim, member: str, members: list[str]) -> None:
    """An admin who writes another member list over that of a VM's group."""
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        cluster = admin.at("DC0/host/DC0_C0")
        (group,) = [
            it
            for it in admin.read(cluster, "configurationEx.group")["configurationEx.group"]
            if member in {vm._moId for vm in getattr(it, "vm", None) or ()}
        ]
        info = vim.cluster.VmGroup(
            name=group.name, vm=[admin.reference(vim.VirtualMachine, key) for key in members]
        )
        spec = vim.cluster.ConfigSpecEx(
            groupSpec=[vim.cluster.GroupSpec(operation="edit", info=info)]
        )
        admin.outcome(cluster.ReconfigureComputeResource_Task(spec, modify=True))
        admin.content.sessionManager.Logout()


def test_a_group_that_cannot_be_written_keeps_no_vm_from_running(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    account, cluster = vcenter.vcenter.username, "/DC0/host/DC0_C0"
    vcenter.vcenter.deny(account, cluster, ["Host.Inventory.EditCluster"])
    plan = _grouped(bench, "db", "one")
    state = bench.ensure(plan)
    _start(bench, plan)
    assert bench.state(plan).power is PowerState.POWERED_ON
    told = _kept_up(bench, plan, state)
    assert [(it.field, it.reason) for it in told.shortfalls] == [
        (GROUP, Reason.PROVIDER_PERMISSION_DENIED)
    ]
    assert "Host.Inventory.EditCluster" in told.shortfalls[0].message
    vcenter.vcenter.clear_permissions(account, cluster)
    assert _kept_up(bench, plan, state).settled


@pytest.mark.parametrize("by", ["us", "an admin"])
def test_a_vm_that_goes_before_it_is_in_its_group_holds_up_no_other(
    bench: Bench, vcenter: VSphereTarget, by: str
) -> None:
    """A vCenter refuses an edit whole that names a VM which is gone."""
    first = _grouped(bench, f"gone by {by}", "one")
    second = _grouped(bench, f"gone by {by}", "two", first)
    states = [bench.ensure(plan) for plan in (first, second)]
    assert not _driver(bench).keep_up(first, states[0]).settled, "it waits for others to join"
    if by == "us":
        bench.delete(seen(first, states[0]), first)
    else:
        vcenter.vcenter.destroy_vm(states[0].backend_id)

    def kept() -> bool:
        return _driver(bench).keep_up(second, states[1]).settled

    bench.until("the group of the other", kept)
    groups, _, _ = _cluster(vcenter.vcenter)
    assert _with(groups, [states[1].backend_id]) == [{states[1].backend_id}]


def test_vms_of_a_host_group_are_bound_to_it_before_they_start(vcenter: VSphereTarget) -> None:
    hosts = _make_host_group(vcenter.vcenter, "rack-a")
    settings = {"failureDomains": "HostGroup"}
    with vcenter.backend.connect(replace(vcenter.connection(), settings=settings)) as driver:
        bench = Bench(vcenter, driver)
        (where,) = [it for it in driver.failure_domains() if it.id.endswith("/rack-a")]
        assert where.bound
        plan = bench.plan()
        ref = replace(plan.ref, failure_domain=where.id)
        plan = replace(plan, ref=ref, failure_domain=where)
        state = bench.ensure(plan)
        assert state.power is PowerState.POWERED_OFF
        _start(bench, plan)
        assert bench.state(plan).power is PowerState.POWERED_ON
        groups, _, rules = _cluster(vcenter.vcenter)
        (name,) = [name for name, vms in groups.items() if state.backend_id in vms]
        (rule,) = [it for it in rules if getattr(it, "vmGroupName", None) == name]
        told: Any = rule
        assert (told.affineHostGroupName, told.mandatory, told.enabled) == ("rack-a", True, True)
        machine = next(vm for vm in vcenter.vcenter.vms() if vm.mo_ref == state.backend_id)
        assert machine.host in hosts
        assert _kept_up(bench, plan, state).settled


def _make_host_group(vcenter: VCSim, name: str) -> set[str]:
    """A host group with one host of the cluster; names of its hosts."""
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        cluster = admin.at("DC0/host/DC0_C0")
        host = admin.read(cluster, "host")["host"][0]
        group = vim.cluster.HostGroup(name=name, host=[host])
        spec = vim.cluster.ConfigSpecEx(
            groupSpec=[vim.cluster.GroupSpec(operation="add", info=group)]
        )
        admin.outcome(cluster.ReconfigureComputeResource_Task(spec, modify=True))
        found = admin.read(host, "name")["name"]
        admin.content.sessionManager.Logout()
    return {str(found), str(host._moId)}


def test_what_an_earlier_process_left_empty_is_taken_away(
    bench: Bench, vcenter: VSphereTarget
) -> None:
    first = _grouped(bench, "left", "one")
    state = bench.ensure(first)
    assert _kept_up(bench, first, state).settled
    vcenter.vcenter.destroy_vm(state.backend_id)  # and nobody of ours was there to tidy
    groups, _, _ = _cluster(vcenter.vcenter)
    empty = {name for name, vms in groups.items() if not vms and name.startswith("banlieue-")}
    assert empty
    with _session(vcenter) as later:
        other = _grouped(later, "right", "two", first)
        assert _kept_up(later, other, later.ensure(other)).settled

        def gone() -> bool:
            groups, _, _ = _cluster(vcenter.vcenter)
            return not empty & set(groups)

        later.until("the empty group to go", gone)
