"""`banlieue dev`: every role in one process, in the order its help text names and in another."""

import subprocess
import sys
from pathlib import Path

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.stack import ROOT, Stack, is_ready
from test.kit.watched import checked
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.slow

SYSTEM = "banlieue-system"


@pytest.mark.parametrize("order", ["samples-first", "dev-first"])
def test_the_samples_become_a_vm_with_one_process(
    control_plane: ControlPlane, tmp_path: Path, order: str
) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "banlieue", "crds"], capture_output=True, text=True, check=True
    ).stdout
    control_plane.install_crds(yaml_documents(printed))
    with Stack(control_plane, tmp_path) as stack:
        with checked(stack):
            _live_once(stack, order)
        stack.purge()


def _live_once(stack: Stack, order: str) -> None:
    kube, control_plane = stack.kube, stack.control_plane
    if order == "samples-first":
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        _apply_samples(control_plane)
    dev = stack.outside("dev", "dev").start(ready=False)
    if order == "dev-first":
        kube.wait_for("namespaces", SYSTEM, until=bool, timeout=30)
        _apply_samples(control_plane)
    made = _virtual_machine(ROOT / "config" / "samples" / "virtualmachine.yaml")
    kube.wait_for("virtualmachines", *made, until=is_ready, timeout=60, what="Ready")
    kube.delete("virtualmachines", *made)
    kube.wait_gone("virtualmachines", *made, timeout=60)
    assert dev.stop() == 0


def _apply_samples(control_plane: ControlPlane) -> None:
    for name in ("simulated", "virtualmachine"):
        text = (ROOT / "config" / "samples" / f"{name}.yaml").read_text(encoding="utf-8")
        control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)


def _virtual_machine(sample: Path) -> tuple[str, str]:
    for document in yaml_documents(sample.read_text(encoding="utf-8")):
        if document["kind"] == "VirtualMachine":
            return document["metadata"]["name"], document["metadata"].get("namespace", "default")
    raise AssertionError("the sample has no VirtualMachine")
