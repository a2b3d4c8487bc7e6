"""A cluster made anew, or a second one made from a backup, and the VMs that live on meanwhile."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from banlieue.sdk.testing.conformance_target import ConformanceTarget
from test.kit.backup import restore, saved
from test.kit.controlplane import ControlPlane
from test.kit.installed import READY_SECONDS, Registered
from test.kit.running import VMS, Running
from test.kit.stack import Object, Role, Stack, condition
from test.kit.watched import checked, watched

pytestmark = pytest.mark.slow

INSTALLATION = "banlieue-installation"


# Only the manifests are left


@pytest.mark.identity("0.7", "12.4")
def test_vms_are_found_where_they_are_when_only_manifests_are_left(
    control_plane: ControlPlane,
    tmp_path: Path,
    backend_target: ConformanceTarget,
    second_target: ConformanceTarget,
) -> None:
    """Two Providers, and the VM is on the one the scheduler would not choose."""
    with watched(control_plane, tmp_path, backend_target) as found:
        registered, stack = found.registered, found.stack
        running = Running.start(registered)
        known, identity = running.made("db"), running.installation()
        stack.purge()

        # An admin rebuilds: the id from a note, both Providers, the users' manifests.
        running.kube.apply(_config_map(stack, {"id": identity, "recovery": "true"}))
        registered.register()
        other = Registered(stack, second_target, provider="alpha")
        other.register()
        registered.create("db")
        registered.create("fresh")
        running.controller.start()
        for name in ("db", "fresh"):
            running.wait_condition(name, "Scheduled", "RecoveryPending", status="False")

        # The one that holds nothing tells first; that is no answer yet.
        _serve_only(other).start()
        _await_inventory(other)
        running.looked_at("db")
        vm = running.wait_condition("db", "Scheduled", "RecoveryPending", status="False")
        assert registered.provider in _message(vm, "Scheduled")
        assert second_target.vms() == []

        _serve_only(registered).start()
        running.same(known)
        assert _provider_of(registered, "db") == registered.provider
        registered.ready("fresh")
        assert _provider_of(registered, "fresh") == "alpha", "the scheduler would choose another"
        assert [vm.id for vm in backend_target.vms()] == [known.raw.id]

        _recover(stack, "--done")
        data = running.kube.get("configmaps", INSTALLATION, stack.namespace)["data"]
        assert data["id"] == identity
        assert "recovery" not in data
        registered.create("later")
        registered.ready("later")
        registered.delete("db")
        assert backend_target.vms() == []


def _serve_only(registered: Registered) -> Role:
    key = f"{registered.stack.namespace}/{registered.provider}"
    return registered.stack.provider(
        registered.target.backend.name, "--provider", key, name=f"provider-{registered.provider}"
    )


def _await_inventory(registered: Registered) -> None:
    registered.kube.wait_for(
        "providers",
        registered.provider,
        registered.stack.namespace,
        until=lambda obj: (obj.get("status", {}).get("unclaimed") or {}).get("complete"),
        timeout=READY_SECONDS,
        what="read",
    )


# A backup in another cluster


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A second cluster; its kube-system has another uid."""
    with ControlPlane(tmp_path_factory.mktemp("other-cluster")) as other:
        yield other


@pytest.mark.identity("0.9")
@pytest.mark.parametrize(
    ("status", "owners"), [(False, True), (True, False)], ids=["resources-only", "with-status"]
)
def test_a_backup_in_another_cluster_changes_nothing_until_it_is_confirmed(
    running: Running, other_cluster: ControlPlane, tmp_path: Path, *, status: bool, owners: bool
) -> None:
    target = running.registered.target
    (tmp_path / "other").mkdir()
    with Stack(other_cluster, tmp_path / "other") as stack:
        stack.install()
        with checked(stack, *target.secrets):
            _tried_out(running, Registered(stack, target), status=status, owners=owners)
        stack.purge()


def _tried_out(running: Running, copy: Registered, *, status: bool, owners: bool) -> None:
    registered, target, stack = running.registered, copy.target, copy.stack
    known, doomed = running.made("db"), running.made("doomed")
    _copy_everything(registered, copy, status=status, owners=owners)
    copied = Running.start(copy)
    before = {vm.id: vm for vm in target.vms()}

    copied.wait_condition("db", "Ready", "InstallationUnconfirmed")
    copy.kube.patch(VMS, "db", {"spec": {"desiredPowerState": "PoweredOff"}}, copy.namespace)
    copy.kube.delete(VMS, "doomed", copy.namespace)
    copy.create("fresh")
    copied.wait_condition("fresh", "Scheduled", "InstallationUnconfirmed", status="False")
    copied.wait_condition("doomed", "Ready", "InstallationUnconfirmed")
    for name in ("db", "doomed"):
        copied.poke(name)
        assert copy.machine(name)["metadata"]["finalizers"]
    copied.stop()
    copied.resume()
    copied.wait_condition("db", "Ready", "InstallationUnconfirmed")
    assert {vm.id: vm for vm in target.vms()} == before
    for name in ("db", "doomed"):
        assert condition(registered.find(name) or {}, "Ready")[0] == "True"

    # The first cluster is off for good.
    running.stop()
    copy.kube.patch(VMS, "db", {"spec": {"desiredPowerState": "PoweredOn"}}, copy.namespace)
    _recover(stack, "--confirm")
    copied.same(known)
    copy.ready("fresh")
    copy.gone("doomed")
    left = {vm.id for vm in target.vms()}
    assert known.raw.id in left
    assert doomed.raw.id not in left, "what a user deleted is destroyed once we may"
    assert len(left) == 2


def _copy_everything(source: Registered, copy: Registered, *, status: bool, owners: bool) -> None:
    """As a backup tool does, while nobody of ours runs where it is restored."""
    system, tenant = source.stack.namespace, source.namespace
    copy.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}})
    objects = [
        source.kube.get("secrets", f"{source.provider}-creds", system),
        source.kube.get("configmaps", INSTALLATION, system),
        *(
            obj
            for kind in ("providerclasses", "vmclasses", "vmimages", "providers")
            for obj in source.kube.list(kind)
        ),
        *(obj for kind in (VMS, source.plural) for obj in source.kube.list(kind, tenant)),
    ]
    for obj in objects:
        restore(copy.kube, saved(obj, status=status, owners=owners))


def _config_map(stack: Stack, data: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": stack.namespace, "name": INSTALLATION},
        "data": data,
    }


def _recover(stack: Stack, option: str) -> None:
    """What an admin types."""
    subprocess.run(
        [
            *(sys.executable, "-m", "banlieue", "recover", option),
            *("--kubeconfig", str(stack.control_plane.kubeconfig)),
            *("--system-namespace", stack.namespace),
        ],
        check=True,
        capture_output=True,
        timeout=180,
    )


def _message(vm: Object, kind: str) -> str:
    (message,) = (it["message"] for it in vm["status"]["conditions"] if it["type"] == kind)
    return str(message)


def _provider_of(registered: Registered, name: str) -> str:
    vm = registered.find(name) or {}
    provider: str = vm["status"]["scheduled"]["providerName"]
    return provider
