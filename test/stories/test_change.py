"""Changes: some are asked for, some are made by others, and none costs a VM."""

import pytest

from test.kit.stack import condition
from test.kit.story import Story

pytestmark = pytest.mark.slow

LARGE = """
    apiVersion: banlieue.io/v1alpha1
    kind: VMClass
    metadata: {name: large}
    spec:
      hardware:
        cpus: 2
        memoryMiB: 1024
        disks: [{name: root, storageClass: standard}]
      network: {interfaces: [{name: eth0, networkClass: lan}]}
"""


def test_a_vm_grows_into_a_larger_class(story: Story) -> None:
    """Story 9: grow. What takes a power cycle says so, and is there after it."""
    story.given(LARGE)
    story.vm("db")
    story.ready("db")
    before = story.backend_vm("db")

    story.edit("db", classRef={"name": "large"})
    story.sees("db", lambda vm: vm["status"]["observedGeneration"] == vm["metadata"]["generation"])
    story.sees("db", _is_grown_or_says_what_it_waits_for, told="grown, or waiting for a restart")
    story.edit("db", desiredPowerState="PoweredOff")
    story.sees("db", lambda vm: vm["status"]["phase"] == "Stopped")
    story.edit("db", desiredPowerState="PoweredOn")
    story.sees("db", lambda vm: _size(vm) == (2, 1024))
    story.condition("db", "UpToDate", "True", "UpToDate")
    story.ready("db")
    assert story.backend_vm("db").uuid == before.uuid


def _size(vm: dict[str, object]) -> tuple[object, object]:
    status = vm["status"]
    assert isinstance(status, dict)
    resources = status["resources"]
    return resources["cpus"], resources["memoryMiB"]


def _is_grown_or_says_what_it_waits_for(vm: dict[str, object]) -> bool:
    waits = condition(vm, "UpToDate")[0] == "False"
    return waits or (_size(vm) == (2, 1024) and condition(vm, "UpToDate")[0] == "True")


def test_a_vm_that_was_taken_to_another_host_is_left_there(story: Story) -> None:
    """Story 11: HA, vMotion or an admin moved it."""
    story.vm("web")
    story.ready("web")
    before = story.backend_vm("web")
    was = story.status("web")["host"]

    host = story.admin.move(before.id)

    assert host != was
    story.sees("web", lambda vm: vm["status"]["host"] == host, told=f"on {host}")
    story.ready("web")
    after = story.backend_vm("web")
    assert (after.id, after.uuid) == (before.id, before.uuid)
    assert story.status("web")["scheduled"]["providerName"] == story.registered.provider


def test_what_an_admin_changes_is_put_right_or_told_as_the_policy_says(story: Story) -> None:
    """Story 14: somebody changes it behind our back."""
    story.vm("strict")
    story.vm("lenient", driftPolicy={"power": "Report"})
    story.ready("strict", "lenient")

    for name in ("strict", "lenient"):
        story.admin.power_off(story.backend_vm(name).id)
    for name in ("strict", "lenient"):
        story.condition(name, "PowerStateSynced", "False", "DriftDetected")
    story.sees(
        "strict",
        lambda vm: vm["status"]["observedPowerState"] == "PoweredOn",
        90,
        told="started again after half a minute",
    )
    story.ready("strict")
    assert story.status("lenient")["observedPowerState"] == "PoweredOff"
    story.condition("lenient", "Ready", "False", "DriftDetected")


def test_a_vm_that_was_destroyed_behind_our_back_is_missed_and_not_made_again(
    story: Story,
) -> None:
    """Story 14: somebody destroys it."""
    story.vm("lost")
    story.ready("lost")
    vm = story.backend_vm("lost")
    story.admin.power_off(vm.id)
    story.registered.target.remove(vm.id)

    message = story.condition("lost", "Ready", "False", "VMMissing")
    assert "restore it" in message
    story.hears("lost", "VMMissing")
    assert story.status("lost")["phase"] == "Failed"
    story.running.poke("lost")
    assert story.registered.vms_of("lost") == []
