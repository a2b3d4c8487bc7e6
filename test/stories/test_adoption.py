"""Adoption: a VM that ran long before banlieue came is told of, taken over, and let go again."""

import subprocess
import sys
from typing import Any

import pytest

from banlieue.sdk.testing.conformance_target import RawVm
from test.kit.story import Story
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.slow


def test_an_existing_vm_is_told_of_then_taken_over_and_let_go_running(story: Story) -> None:
    """Story 13: adopt."""
    before = _existing(story, "legacy-1")
    story.edit_provider(policy={"adoption": {"allowedNamespaces": {"from": "All"}}})

    (manifest,) = _planned(story, "legacy-*")
    manifest["spec"]["desiredPowerState"] = "PoweredOff"
    story.kube.apply(manifest)
    story.sees("legacy-1", lambda vm: vm.get("status", {}).get("resources"), told="what is there")
    message = story.condition("legacy-1", "Ready", "False", "AdoptionPending")
    status = story.status("legacy-1")
    assert status["phase"] == "Pending"
    assert status["observedPowerState"] == "PoweredOn"
    assert status["pendingChanges"] == ["powerState"]
    assert "powerState from PoweredOn to PoweredOff" in message
    assert [disk["name"] for disk in status["resources"]["disks"]] == ["root"]
    assert [nic["name"] for nic in status["interfaces"]] == ["eth0"]
    assert "providerID" not in status
    assert _now(story, before) == before, "it is only observed"

    story.edit("legacy-1", desiredPowerState=None, adopt={"accepted": True})
    story.hears("legacy-1", "Adopted")
    story.ready("legacy-1")
    story.sees("legacy-1", lambda vm: vm["status"]["phase"] == "Running")
    status = story.status("legacy-1")
    assert status["deletionPolicy"] == "Orphan"
    assert status["scheduled"]["failureDomain"] == status["observedFailureDomain"]
    after = _now(story, before)
    assert (after.uuid, after.name) == (before.uuid, before.name)

    story.registered.delete("legacy-1")
    left = _now(story, before)
    assert "oweredOn" in left.fingerprint, "it was let go running"
    assert [it["metadata"]["name"] for it in _planned(story, "legacy-*")] == ["legacy-1"]
    story.registered.target.remove(before.id)


def test_nobody_adopts_where_the_provider_does_not_say_so(story: Story) -> None:
    """Story 13: adoption is off by default."""
    before = _existing(story, "legacy-2")
    story.edit_provider(policy={"adoption": None})
    story.given(f"""
        apiVersion: banlieue.io/v1alpha1
        kind: VirtualMachine
        metadata: {{name: legacy-2, namespace: team-a}}
        spec: {{adopt: {{id: {before.uuid}, accepted: true}}}}
    """)
    message = story.condition("legacy-2", "Scheduled", "False", "AdoptionNotAllowed")
    assert "policy.adoption.allowedNamespaces" in message
    assert _now(story, before) == before
    story.registered.delete("legacy-2")
    story.registered.target.remove(before.id)


def _existing(story: Story, name: str) -> RawVm:
    """A VM that somebody made long ago, and that runs."""
    target = story.registered.target
    with target.backend.connect(target.connection()) as driver:
        vm = target.make_existing(name, target.failure_domain(driver))
    settled: list[RawVm] = []

    def quiet() -> bool:
        settled.append(next(it for it in story.backend_vms() if it.id == vm))
        return len(settled) > 1 and settled[-1] == settled[-2]

    wait_until(quiet, 30, "the guest to have booted")
    return settled[-1]


def _now(story: Story, vm: RawVm) -> RawVm:
    return next(it for it in story.backend_vms() if it.id == vm.id)


def _planned(story: Story, selector: str) -> list[dict[str, Any]]:
    """What `banlieue adopt plan` prints."""
    provider = f"{story.registered.stack.namespace}/{story.registered.provider}"
    arguments = ["--provider", provider, "--namespace", story.team, "--selector", selector]
    kubeconfig = str(story.registered.stack.control_plane.kubeconfig)
    answer = subprocess.run(
        [sys.executable, "-m", "banlieue", "adopt", "plan", *arguments],
        env={"KUBECONFIG": kubeconfig},
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    return [it for it in yaml_documents(answer.stdout) if it]
