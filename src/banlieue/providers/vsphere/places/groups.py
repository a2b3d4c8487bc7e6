"""VM groups and rules of a cluster: what is there, and one edit that brings ours up to date. Pure.

A VM group holds the machines that are to be kept apart, however few; a rule of the same name keeps
them apart once there are two. Where failure domains are host groups, a VM group is bound to its
host group by a rule. An edit replaces whole member lists, so it is made from what was just read,
and whoever is a member and not ours stays one.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim

from banlieue.providers.vsphere.client.soap import Found, moid
from banlieue.sdk.identity import Owner

PREFIX = "banlieue-"
PATHS = ("configurationEx.group", "configurationEx.rule")

_DIGEST, _WHOSE = 12, 8
_LONGEST_WORD = 24
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Group:
    """A group a machine is to be in; `hosts` is the host group it is bound to, if it is."""

    name: str
    hosts: str | None = None


def whose(installation: str, provider: str) -> str:
    """The end of the names of one Provider's groups, so that two never write the same one."""
    return _digest(installation, provider)[:_WHOSE]


def apart(owner: Owner, provider: str, group: str) -> Group:
    """The group that keeps machines of an anti-affinity group apart."""
    digest = _digest(owner.installation_id, provider, owner.namespace, group)[:_DIGEST]
    word = owner.namespace[:_LONGEST_WORD].rstrip("-")
    return Group(f"{PREFIX}{word}-{digest}-{whose(owner.installation_id, provider)}")


def bound(owner: Owner, provider: str, hosts: str) -> Group:
    """The group that keeps machines on the hosts of a host group."""
    digest = _digest(owner.installation_id, provider, hosts)[:_DIGEST]
    return Group(f"{PREFIX}hosts-{digest}-{whose(owner.installation_id, provider)}", hosts)


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ours, by its key; `vms` of one that keeps VMs apart, `native` as it was read."""

    key: int
    vms: frozenset[str]
    native: Any = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Groups:
    """VM groups and rules of a cluster that are named as ours."""

    members: Mapping[str, frozenset[str]]
    rules: Mapping[str, Rule]

    def of(self, vm: str) -> frozenset[str]:
        """Names of the groups a VM is in."""
        return frozenset(name for name, vms in self.members.items() if vm in vms)

    @classmethod
    def parse(cls, found: Found) -> "Groups":
        """From the reply that tells them."""
        groups = {
            item.name: frozenset(moid(vm) for vm in item.vm or ())
            for item in found.get(PATHS[0]) or ()
            if isinstance(item, vim.cluster.VmGroup) and item.name.startswith(PREFIX)
        }
        rules = {
            item.name: Rule(item.key, frozenset(map(moid, getattr(item, "vm", None) or ())), item)
            for item in found.get(PATHS[1]) or ()
            if (item.name or "").startswith(PREFIX)
        }
        return cls(groups, rules)


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one group.

    `exists` tells that it is there. `ruled` are the VMs its rule keeps apart: its members, and
    whoever somebody else put into the rule. `hosts` is the host group it is bound to, if it is.
    """

    name: str
    members: frozenset[str]
    exists: bool
    ruled: frozenset[str]
    hosts: str | None
    rule: Rule | None

    @property
    def needs_rule(self) -> bool:
        """Whether there is anything to rule."""
        fewest = 1 if self.hosts else _FEWEST
        return bool(self.members) and len(self.ruled) >= fewest

    @property
    def rule_is_right(self) -> bool:
        """Whether the rule is there if it is needed, and says what it should."""
        if self.rule is None or not self.needs_rule:
            return self.rule is None and not self.needs_rule
        return self.hosts is not None or self.rule.vms == self.ruled


def changes(
    there: Groups,
    wanted: Mapping[str, Collection[Group]],
    gone: Collection[str],
    ends: Collection[str],
) -> tuple[Change, ...]:
    """The groups that are not as they should be.

    Args:
        there: what was just read.
        wanted: the groups of every VM that asks for any; of another VM nothing is changed.
        gone: VMs that are being destroyed.
        ends: ends of names that are ours (`whose`): what is empty of those is taken away.
    """
    named: dict[str, str | None] = {
        group.name: group.hosts for groups in wanted.values() for group in groups
    }
    ours = {name for name in there.members if name.endswith(tuple(ends))} if ends else set()
    return tuple(
        change
        for name in sorted(named.keys() | ours)
        if (change := _change(there, name, named.get(name), wanted, gone)) is not None
    )


def _change(
    there: Groups,
    name: str,
    hosts: str | None,
    wanted: Mapping[str, Collection[Group]],
    gone: Collection[str],
) -> Change | None:
    before, rule = there.members.get(name), there.rules.get(name)
    joins = {vm for vm, groups in wanted.items() if any(group.name == name for group in groups)}
    leaves = {vm for vm in wanted if vm not in joins}
    off = leaves | set(gone)
    known = before or frozenset()
    members = frozenset((known | joins) - off)
    if rule is not None and isinstance(rule.native, vim.cluster.VmHostRuleInfo):
        hosts = hosts or rule.native.affineHostGroupName
    foreign = rule.vms - known - off if rule is not None else frozenset()
    change = Change(name, members, before is not None, members | foreign, hosts, rule)
    same = members == known and (before is None) == (not members)
    return None if same and change.rule_is_right else change


def edit(wanted: Collection[Change], stub: Any) -> Any:  # noqa: ANN401 - a Stub and a ConfigSpecEx
    """The one edit that makes the changes."""
    groups = [_group_spec(change, stub) for change in wanted if change.members or change.exists]
    return vim.cluster.ConfigSpecEx(
        groupSpec=groups,
        rulesSpec=[spec for change in wanted for spec in _rule_specs(change, stub)],
    )


def _group_spec(change: Change, stub: Any) -> Any:  # noqa: ANN401 - a Stub and a GroupSpec
    if not change.members:
        return vim.cluster.GroupSpec(operation="remove", removeKey=change.name)
    group = vim.cluster.VmGroup(
        name=change.name, vm=[vim.VirtualMachine(vm, stub) for vm in sorted(change.members)]
    )
    return vim.cluster.GroupSpec(operation="edit" if change.exists else "add", info=group)


def _rule_specs(change: Change, stub: Any) -> Iterator[Any]:  # noqa: ANN401 - a Stub and RuleSpecs
    rule = change.rule
    if change.rule_is_right:
        return
    if not change.needs_rule:
        if rule is not None:
            yield vim.cluster.RuleSpec(operation="remove", removeKey=rule.key)
        return
    info = _rule(change, stub)
    # Whether an admin switched the rule off is for him to say.
    info.enabled = True if rule is None else rule.native.enabled
    if rule is not None:
        info.key = rule.key
    yield vim.cluster.RuleSpec(operation="add" if rule is None else "edit", info=info)


def _rule(change: Change, stub: Any) -> Any:  # noqa: ANN401 - a Stub and a RuleInfo
    if change.hosts is not None:
        return vim.cluster.VmHostRuleInfo(
            name=change.name,
            mandatory=True,
            vmGroupName=change.name,
            affineHostGroupName=change.hosts,
        )
    return vim.cluster.AntiAffinityRuleSpec(
        name=change.name, vm=[vim.VirtualMachine(vm, stub) for vm in sorted(change.ruled)]
    )
