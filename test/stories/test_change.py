"""Changes: some are asked for, some are made by others, and none costs a VM."""

from typing import Any

import pytest

from test.kit.installed import READY_SECONDS
from test.kit.running import VMS
from test.kit.stack import condition
from test.kit.story import STORAGE, Story
from test.kit.waiting import wait_until

_NEXT_LOOK = READY_SECONDS + 60.0
"""Seconds: a Provider at rest is looked at each minute."""

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


def test_a_disk_is_added_grows_and_outlives_its_vm(story: Story) -> None:
    """Story 9: grow. A disk that is retained is found again by the id that was told."""
    story.vm("ledger")
    story.ready("ledger")
    before = story.backend_vm("ledger")

    data = {"name": "data", "sizeGiB": 1, "storageClass": STORAGE, "reclaimPolicy": "Retain"}
    story.edit("ledger", disks=[data])
    story.sees("ledger", lambda vm: _disks(vm).get("data", {}).get("sizeGiB") == 1, told="added")
    story.edit("ledger", disks=[{**data, "sizeGiB": 2}])
    story.sees("ledger", lambda vm: _disks(vm)["data"]["sizeGiB"] == 2, told="grown")
    story.condition("ledger", "UpToDate", "True", "UpToDate")
    story.ready("ledger")
    story.hears("ledger", "DiskGrown")
    assert story.backend_vm("ledger").id == before.id
    told = _disks({"status": story.status("ledger")})["data"]["retainID"]

    story.kube.delete(VMS, "ledger", story.team)
    wait_until(
        lambda: [disk["id"] for disk in story.provider()["status"].get("retainedDisks", [])],
        _NEXT_LOOK,
        "the Provider lists the disk",
    )
    (listed,) = story.provider()["status"]["retainedDisks"]
    assert (listed["id"], listed["namespace"]) == (told, story.team)

    story.vm("audit", disks=[{"name": "old", "existing": told, "reclaimPolicy": "Delete"}])
    story.ready("audit")
    assert _disks({"status": story.status("audit")})["old"]["sizeGiB"] == 2
    story.edit("audit", disks=[])
    story.sees("audit", lambda vm: "old" not in _disks(vm), told="gone, as its policy says")
    story.ready("audit")


def _disks(vm: dict[str, Any]) -> dict[str, Any]:
    return {disk["name"]: disk for disk in vm["status"].get("resources", {}).get("disks", [])}


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
        story.hears(name, "DriftDetected")
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
    story.condition("lost", "PowerStateSynced", "False", "DriftDetected")
    story.registered.target.remove(vm.id)

    message = story.condition("lost", "Ready", "False", "VMMissing")
    assert "restore it" in message
    story.hears("lost", "VMMissing")
    assert story.status("lost")["phase"] == "Failed"
    story.running.poke("lost")
    assert story.registered.vms_of("lost") == []
