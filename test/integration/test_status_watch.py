"""The watch beside every test sees each version, over a restart of the API server as well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.kube import Object
from test.kit.stack import Stack, virtual_machine
from test.kit.statuswatch import StatusWatch
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

OURS = "banlieue.io/controller"


@pytest.fixture
def stack(control_plane: ControlPlane, tmp_path: Path, namespace: str) -> Iterator[Stack]:
    with Stack(control_plane, tmp_path, namespace) as stack:
        stack.install()
        yield stack
        stack.purge()


def report(stack: Stack, *, manager: str = OURS, **changes: object) -> None:
    """Write the status of a VirtualMachine as our controller would."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
        **changes,
    }
    stack.kube.apply(
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "VirtualMachine",
            "metadata": {"namespace": stack.namespace, "name": "vm"},
            "status": {
                "conditions": [ready],
                "initialization": {"provisioned": True},
                "observedGeneration": 1,
            },
        },
        subresource="status",
        field_manager=manager,
        force=True,
    )


def provisioned(obj: Object) -> object:
    return (obj.get("status") or {}).get("initialization")


def test_a_status_nobody_could_rely_on_is_told(stack: Stack) -> None:
    with StatusWatch(stack.control_plane) as watch:
        stack.kube.apply(virtual_machine(stack.namespace, "vm"))
        report(stack)
        report(stack, message="a reason to say more", status="False")
        report(stack, reason="ProbablyRestored", manager="an-admin")
        report(stack)
        wait_until(watch.caught_up, 10, "the watch")
        assert [finding.fault for finding in watch.findings] == []
        report(stack, lastTransitionTime="2026-01-01T00:00:01Z")
        report(stack, message="failed at 12:34:56", lastTransitionTime="2026-01-01T00:00:01Z")
    told = watch.report()
    assert len(watch.findings) == 2
    assert "lastTransitionTime moved" in told
    assert "12:34:56" in told
    assert f"VirtualMachine {stack.namespace}/vm" in told
    assert '+    "lastTransitionTime": "2026-01-01T00:00:01Z"' in told
    assert watch.values("VirtualMachine", "vm", provisioned) == [None, {"provisioned": True}]


def test_it_goes_on_after_the_api_server_restarted(stack: Stack) -> None:
    with StatusWatch(stack.control_plane) as watch:
        stack.kube.apply(virtual_machine(stack.namespace, "vm"))
        wait_until(watch.caught_up, 10, "the watch")
        stack.control_plane.stop_apiserver()
        stack.control_plane.start_apiserver()
        report(stack)
        wait_until(watch.caught_up, 10, "the watch")
        report(stack, message="50 % is done")
        stack.kube.delete("virtualmachines", "vm", stack.namespace)
        wait_until(lambda: _last(watch) == "DELETED", 10, "the watch to see the deletion")
    [finding] = watch.findings
    assert "50 % is done" in finding.fault


def _last(watch: StatusWatch) -> str:
    return watch.versions("VirtualMachine", "vm")[-1].type
