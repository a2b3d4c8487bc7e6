"""Groups and rules of a cluster: one edit from what was read, and nobody's members lost."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyVmomi import vim

from banlieue.providers.vsphere.client.soap import Found, moid
from banlieue.providers.vsphere.places import groups
from banlieue.providers.vsphere.places.groups import PATHS, Group, Groups
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner

OWNER = Owner("inst", OWNER_VIRTUAL_MACHINE, "team", "web")
ENDS = (groups.whose("inst", "ns/vc"),)
APART = groups.apart(OWNER, "ns/vc", "etcd")
BOUND = groups.bound(OWNER, "ns/vc", "rack-a")


def _vms(*keys: str) -> list[Any]:
    return [vim.VirtualMachine(key, None) for key in keys]


class _Cluster:
    """A cluster that carries edits out as a vCenter does: whole lists are replaced."""

    def __init__(self) -> None:
        self.groups: dict[str, Any] = {}
        self.rules: dict[int, Any] = {}
        self.keys = 0

    def read(self) -> Groups:
        values = {PATHS[0]: list(self.groups.values()), PATHS[1]: list(self.rules.values())}
        return Groups.parse(Found("ClusterComputeResource", "domain-c1", values))

    def edit(self, spec: Any) -> None:  # noqa: ANN401 - a ConfigSpecEx
        for change in spec.groupSpec:
            if change.operation == "remove":
                del self.groups[change.removeKey]
            else:
                assert (change.info.name in self.groups) == (change.operation == "edit")
                self.groups[change.info.name] = change.info
        for change in spec.rulesSpec:
            if change.operation == "remove":
                del self.rules[change.removeKey]
                continue
            if change.operation == "add":
                self.keys += 1
                change.info.key = self.keys
            assert change.operation == "add" or self.rules[change.info.key].name == change.info.name
            if isinstance(change.info, vim.cluster.AntiAffinityRuleSpec):
                assert len(change.info.vm) >= 2
            self.rules[change.info.key] = change.info

    def bring(self, wanted: dict[str, frozenset[Group]], *gone: str) -> None:
        """Edit until nothing is left to do, which takes one edit."""
        due = groups.changes(self.read(), wanted, gone, ENDS)
        if due:
            self.edit(groups.edit(due, None))
        assert groups.changes(self.read(), wanted, gone, ENDS) == ()

    def members(self, group: Group) -> set[str]:
        found = self.groups.get(group.name)
        return {moid(vm) for vm in found.vm} if found else set()

    def rule(self, group: Group) -> Any:  # noqa: ANN401 - a RuleInfo
        return next((it for it in self.rules.values() if it.name == group.name), None)


@pytest.fixture
def cluster() -> _Cluster:
    return _Cluster()


def test_a_rule_comes_with_the_second_member_and_goes_with_it(cluster: _Cluster) -> None:
    cluster.bring({"vm-1": frozenset({APART})})
    assert cluster.members(APART) == {"vm-1"}
    assert cluster.rules == {}, "a vCenter refuses rules about one VM"
    cluster.bring({"vm-2": frozenset({APART})})
    assert {moid(vm) for vm in cluster.rule(APART).vm} == {"vm-1", "vm-2"}
    cluster.bring({}, "vm-1")
    assert cluster.members(APART) == {"vm-2"}
    assert cluster.rules == {}
    cluster.bring({"vm-2": frozenset()})
    assert cluster.groups == {}


def test_whom_an_admin_added_stays_and_so_does_his_switch(cluster: _Cluster) -> None:
    cluster.bring({key: frozenset({APART}) for key in ("vm-1", "vm-2")})
    rule = cluster.rule(APART)
    rule.vm, rule.enabled = _vms("vm-1", "vm-2", "vm-77"), False
    cluster.groups["theirs"] = vim.cluster.VmGroup(name="theirs", vm=_vms("vm-1"))
    cluster.groups[APART.name].vm = _vms("vm-1", "vm-2", "vm-88")
    cluster.bring({"vm-3": frozenset({APART})})
    assert cluster.members(APART) == {"vm-1", "vm-2", "vm-3", "vm-88"}
    rule = cluster.rule(APART)
    assert {moid(vm) for vm in rule.vm} == {"vm-1", "vm-2", "vm-3", "vm-77", "vm-88"}
    assert rule.enabled is False
    assert [moid(vm) for vm in cluster.groups["theirs"].vm] == ["vm-1"]


def test_vms_are_bound_to_the_hosts_of_their_failure_domain(cluster: _Cluster) -> None:
    """CAPV #1217 and #3575: a zone is a group of hosts that VMs must run on."""
    cluster.bring({"vm-1": frozenset({APART, BOUND})})
    rule = cluster.rule(BOUND)
    assert isinstance(rule, vim.cluster.VmHostRuleInfo)
    told = (rule.vmGroupName, rule.affineHostGroupName, rule.mandatory, rule.enabled)
    assert told == (BOUND.name, "rack-a", True, True)
    cluster.bring({}, "vm-1")
    assert (cluster.groups, cluster.rules) == ({}, {})


def test_groups_of_another_provider_or_installation_are_not_touched(cluster: _Cluster) -> None:
    others = [
        groups.apart(OWNER, "ns/other", "etcd"),
        groups.apart(Owner("other", OWNER_VIRTUAL_MACHINE, "team", "web"), "ns/vc", "etcd"),
        groups.apart(Owner("inst", OWNER_VIRTUAL_MACHINE, "blue", "web"), "ns/vc", "etcd"),
    ]
    assert len({APART.name, *(group.name for group in others)}) == 4
    for group in others[:2]:
        cluster.groups[group.name] = vim.cluster.VmGroup(name=group.name, vm=[])
    cluster.groups[others[2].name] = vim.cluster.VmGroup(name=others[2].name, vm=[])
    cluster.bring({"vm-1": frozenset({APART})})
    left = set(cluster.groups) - {APART.name}
    assert left == {group.name for group in others[:2]}, "what is empty and ours is taken away"
    assert all(len(name) <= 80 for name in cluster.groups)


_VMS = [f"vm-{number}" for number in range(5)]
_STEP = st.one_of(
    st.tuples(
        st.just("want"), st.sampled_from(_VMS), st.frozensets(st.sampled_from([APART, BOUND]))
    ),
    st.tuples(st.just("gone"), st.sampled_from(_VMS), st.just(frozenset[Group]())),
    st.tuples(st.just("admin"), st.sampled_from(_VMS), st.just(frozenset[Group]())),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(_STEP, max_size=12))
def test_whatever_happens_one_edit_brings_it_about(
    steps: list[tuple[str, str, frozenset[Group]]],
) -> None:
    cluster, wanted = _Cluster(), dict[str, frozenset[Group]]()
    for what, vm, asked in steps:
        if what == "admin":  # writes an old list over ours
            for group in cluster.groups.values():
                group.vm = [it for it in group.vm if moid(it) == vm]
            cluster.bring(wanted)
        elif what == "gone":
            wanted.pop(vm, None)
            cluster.bring(wanted, vm)
            assert vm not in cluster.members(APART) | cluster.members(BOUND)
        else:
            wanted[vm] = asked
            cluster.bring(wanted)
        for key, names in wanted.items():
            assert {group for group in (APART, BOUND) if key in cluster.members(group)} == names
