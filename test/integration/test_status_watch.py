"""The watches beside every test see each version, over a restart of the API server as well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from test.kit.barekinds import bare_kind
from test.kit.clusterwatch import ClusterWatch
from test.kit.controlplane import ControlPlane
from test.kit.kube import Object
from test.kit.stack import Stack, credentials, virtual_machine
from test.kit.statuswatch import StatusWatch
from test.kit.waiting import wait_until
from test.kit.watched import CheckError

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


def test_it_sees_each_version_from_its_beginning(stack: Stack) -> None:
    stack.kube.apply(virtual_machine(stack.namespace, "before"))
    with StatusWatch(stack.control_plane) as watch:
        stack.kube.apply(virtual_machine(stack.namespace, "vm"))
        report(stack)
        stack.kube.delete("virtualmachines", "vm", stack.namespace)
        stack.kube.wait_gone("virtualmachines", "vm", stack.namespace)
    assert [it.type for it in watch.versions("VirtualMachine", "before")] == ["ADDED"]
    assert [it.type for it in watch.versions("VirtualMachine", "vm")] == [
        "ADDED",
        "MODIFIED",
        "DELETED",
    ]


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


# On a cluster with a node: what only such a one has, logs of pods, stands in `test/e2e`

PASSWORD = "planted-4731-password"


def told(watch: ClusterWatch, *words: str) -> str:
    """Wait until checks have told all of that; all they told."""
    heard: list[str] = []

    def hear() -> bool:
        try:
            watch.check()
        except CheckError as found:
            heard.append(str(found))
        return all(word in "\n".join(heard) for word in words)

    wait_until(hear, 20, f"{words} to be told")
    return "\n".join(heard)


def newcomer(stack: Stack, message: str) -> None:
    """An object of a kind that came while the watch ran, as one of our processes has it."""
    obj = {
        "apiVersion": "later.banlieue.io/v1beta2",
        "kind": "Newcomer",
        "metadata": {"namespace": stack.namespace, "name": "late"},
    }
    stack.kube.apply(obj)
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": message}
    stack.kube.apply(
        {**obj, "status": {"conditions": [ready]}},
        subresource="status",
        field_manager=OURS,
        force=True,
    )


def test_a_cluster_is_watched_whatever_comes_and_goes(stack: Stack) -> None:
    kube, where = stack.kube, stack.namespace
    kind = bare_kind("later.banlieue.io", "Newcomer", "newcomers")
    with ClusterWatch(stack.control_plane) as watch:
        kube.apply(virtual_machine(where, "vm"))
        kube.apply(credentials(where, "creds", "user", PASSWORD))
        report(stack)
        watch.check()
        report(stack, message="50 % is done")
        told(watch, "50 % is done")
        report(stack, message=f"login with {PASSWORD}")
        assert PASSWORD not in told(watch, "VirtualMachine vm", "planted secret")
        report(stack)
        kube.apply_crds([kind])
        newcomer(stack, "")
        told(watch, "Newcomer", "lastTransitionTime")
        kube.delete("customresourcedefinitions", kind["metadata"]["name"])
        kube.wait_gone("customresourcedefinitions", kind["metadata"]["name"])
        watch.check()


def test_no_event_and_no_pod_shows_a_secret(stack: Stack) -> None:
    kube, where = stack.kube, stack.namespace
    with ClusterWatch(stack.control_plane) as watch:
        kube.apply(credentials(where, "creds", "user", PASSWORD))
        kube.create(event(where, "refused"))
        watch.check()
        kube.create(event(where, f"refused {PASSWORD}"))
        told(watch, f"event in {where}", "planted secret")
        kube.create(pod(where, f"--password={PASSWORD}"))
        told(watch, f"pod {where}/provider", "planted secret")


def event(namespace: str, note: str) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "generateName": "told-"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "Told",
        "action": "Tell",
        "note": note,
        "reportingController": "banlieue-provider",
        "reportingInstance": "one",
        "regarding": {"kind": "Namespace", "name": namespace, "namespace": namespace},
    }


def pod(namespace: str, argument: str) -> Object:
    labels = {"app.kubernetes.io/part-of": "banlieue"}
    container = {"name": "manager", "image": "localhost/banlieue:dev", "args": [argument]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": "provider", "labels": labels},
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }
