"""What a VM is given beside itself, as its plan tells: groups it joins, tags it is noted for.

Pure, so that the creating call and what follows it agree.
"""

import json
from collections.abc import Iterable, Mapping

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.places import groups
from banlieue.providers.vsphere.places.groups import Group
from banlieue.providers.vsphere.places.inventory import Cluster
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.sdk.errors import InvalidSpec

TAGS_KEY = "banlieue.tags"
"""Extra configuration: which tags we put on a VM, by category and name."""

Named = tuple[str, str]
"""Category and name of a tag."""


def encode(tags: Iterable[Named]) -> str:
    """What is written on a VM about the tags we put on it; empty for none."""
    listed = sorted(map(list, tags))
    return json.dumps(listed, separators=(",", ":")) if listed else ""


def decode(text: str | None) -> frozenset[Named]:
    """Tags from what is written on a VM; none when there is nothing or it is damaged."""
    try:
        found = json.loads(text or "[]")
        return frozenset((str(category), str(name)) for category, name in found)
    except (ValueError, TypeError):
        return frozenset()


def note(tags: Mapping[str, str]) -> dict[str, str]:
    """The extra configuration of a VM that will get these tags."""
    text = encode(tags.items())
    return {TAGS_KEY: text} if text else {}


def tags_of(tags: Mapping[str, str]) -> frozenset[Named]:
    """The tags that a plan asks for.

    Raises:
        InvalidSpec: a label has no value, and so no tag its name.
    """
    for category, name in tags.items():
        if not name:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION,
                f"the label that is mapped to category {category!r} has no value, which would be "
                "the tag's name; give it one",
            )
    return frozenset(tags.items())


def host_group(plan: Plan) -> str | None:
    """The host group that is the plan's failure domain, if it is one."""
    return plan.failure_domain.id.partition("/")[2] or None


def groups_of(plan: Plan, provider: str, cluster: Cluster, host: str | None) -> frozenset[Group]:
    """The groups a VM is to be in.

    A VM that was moved out of its host group is not bound to it: that would move it back.
    """
    owner, found = plan.ref.owner, set[Group]()
    if plan.spec.anti_affinity_group:
        found.add(groups.apart(owner, provider, plan.spec.anti_affinity_group))
    hosts = host_group(plan)
    if hosts is not None and (host is None or host in cluster.groups.get(hosts, ())):
        found.add(groups.bound(owner, provider, hosts))
    return frozenset(found)


def joins_first(plan: Plan, cluster: Cluster) -> bool:
    """Whether the VM joins its groups before its first start.

    Where the cluster chooses the host when the VM is started, it has to know its rules by then.
    """
    return host_group(plan) is not None or (
        plan.spec.anti_affinity_group is not None and cluster.places_vms
    )
