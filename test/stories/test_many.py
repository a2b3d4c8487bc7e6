"""Many VMs, many tools and many tenants: each gets what is its own."""

from functools import partial
from typing import Any

import pytest

from test.kit.costs import counted, wait_out
from test.kit.kube import Kube, KubeError
from test.kit.stack import condition
from test.kit.story import Story
from test.kit.targets import REAL
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

CHANGING = {
    *("create", "power_on", "power_off", "shutdown", "suspend", "reboot", "reset"),
    *("destroy", "reconfigure", "detach", "remove_mark"),
    *("CloneVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "ShutdownGuest", "SuspendVM_Task"),
    *("RebootGuest", "ResetVM_Task", "Destroy_Task", "ReconfigVM_Task"),
}
"""What the backends call the calls that change something."""


def test_many_vms_of_one_template_come_at_once(story: Story) -> None:
    """Story 7: fifty at once."""
    fifty = story.registered.target.backend.name in REAL
    names = [f"many-{number}" for number in range(50 if fifty else 20)]
    for name in names:
        story.vm(name)

    wait_until(lambda: story.all_ready(names), 180, "all to be Ready")
    vms = {name: story.backend_vm(name) for name in names}
    assert len({vm.uuid for vm in vms.values()}) == len(names)
    assert len(story.backend_vms()) == len(names)
    for name in names:
        assert not {"ProvisioningFailed", "OwnershipConflict"} & set(story.events(name))


def test_a_tool_that_applies_the_same_again_changes_nothing(story: Story) -> None:
    """Story 8: GitOps."""
    powers = ["PoweredOff"] * 2 + ["PoweredOn"] * 8
    wanted = [(f"git-{number}", power) for number, power in enumerate(powers)]

    def sync() -> None:
        for name, power in wanted:
            story.vm(name, desiredPowerState=power)

    sync()
    story.ready(*(name for name, _ in wanted))
    wait_out(story.registered, 2)
    before = {name: story.status(name) for name, _ in wanted}
    with counted(story.registered) as costs:
        for _ in range(3):
            sync()
    assert not CHANGING & set(costs.calls)
    assert costs.objects(*before) == []
    assert {name: story.status(name) for name, _ in wanted} == before
    for name, power in wanted:
        status = before[name]
        assert status["observedPowerState"] == power
        kinds = {it["type"] for it in status["conditions"]}
        assert not {"Reconciling", "Stalled"} & kinds, "tools would wait or give up"


TENANTS = """
    apiVersion: v1
    kind: Namespace
    metadata: {name: team-b, labels: {team: b}}
    ---
    apiVersion: v1
    kind: Namespace
    metadata: {name: team-a, labels: {team: a}}
"""


def test_tenants_learn_nothing_of_each_other_and_never_share_a_vm(story: Story) -> None:
    """Story 16: tenant isolation."""
    story.given(TENANTS)
    story.vm("db", "team-a")
    story.vm("db", "team-b")
    story.ready("db")
    wait_until(
        lambda: condition(_in_b(story, "db"), "Ready")[0] == "True", 60, "the other to be Ready"
    )
    ids = {vm.uuid: vm.name for vm in story.backend_vms() if vm.name.startswith("db-")}
    assert len(ids) == len(set(ids.values())) == 2

    only_a = {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}
    story.edit_provider(allowedNamespaces=only_a)
    place = {"namespace": story.registered.stack.namespace}
    told = []
    for name, provider in (("hidden", story.registered.provider), ("nowhere", "no-such-provider")):
        story.vm(name, "team-b", providerRef={"name": provider, **place})
        wait_until(partial(_is_refused, story, name), 60, "to be refused")
        conditions = _in_b(story, name)["status"]["conditions"]
        (scheduled,) = [it for it in conditions if it["type"] == "Scheduled"]
        told.append((scheduled["reason"], scheduled["message"].replace(provider, "THE-PROVIDER")))
    assert told[0] == told[1]

    story.edit_provider(allowedNamespaces={"from": "All", "selector": None})
    for obj in story.kube.list("virtualmachines", "team-b"):
        story.kube.delete("virtualmachines", obj["metadata"]["name"], "team-b")
        story.kube.wait_gone("virtualmachines", obj["metadata"]["name"], "team-b")


def _in_b(story: Story, name: str) -> Any:  # noqa: ANN401 - JSON
    return story.kube.get("virtualmachines", name, "team-b")


def _is_refused(story: Story, name: str) -> bool:
    return condition(_in_b(story, name), "Scheduled")[0] == "False"


def test_a_user_who_may_edit_vms_can_read_no_credentials(story: Story) -> None:
    """Story 16: credentials stay with the platform."""
    plane = story.registered.stack.control_plane
    story.given("""
        apiVersion: rbac.authorization.k8s.io/v1
        kind: RoleBinding
        metadata: {name: editor, namespace: team-a}
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
        subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
    """)
    system = story.registered.stack.namespace
    with Kube(plane.kubeconfig_for_user("editor")) as editor:
        with pytest.raises(KubeError, match="forbidden") as refused:
            editor.get("secrets", f"{story.registered.provider}-creds", system)
        assert refused.value.status == 403
        with pytest.raises(KubeError, match="forbidden"):
            editor.list("secrets", system)
