"""`banlieue bootstrap` from nothing to nothing: the path that the rest of the suite is not on."""

import json
import time
from collections.abc import Callable

import pytest

from banlieue.sdk.simulated.world import USERNAME
from hack.cluster.interface import Cluster
from hack.components import ROOT
from hack.images.catalog import archive_of
from test.kit.installing import IMAGE, PATHS, bootstrap, chosen_path, install
from test.kit.kube import Kube
from test.kit.namespaces import create_namespace
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import credentials, is_ready, provider, virtual_machine, vm_class, vm_image

pytestmark = pytest.mark.e2e

SYSTEM = "banlieue-system"
SECONDS = 120.0
LABELLED = "app.kubernetes.io/part-of=banlieue"


FIGURES = ROOT / "out" / "e2e" / "bootstrap-seconds.json"


class Stopwatch:
    """How long each step took, for people; nothing is asserted of it."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._last, 1)
        self._last = now


def test_installed_used_and_taken_out_again(
    cluster: Cluster,
    kube: Kube,
    kubectl: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cluster.load(archive_of(IMAGE))
    seconds = Stopwatch()
    (other,) = {*PATHS} - {chosen_path()}
    install(cluster.kubeconfig, kubectl, other)
    kube.resources()
    seconds.lap(f"installed by {other}")
    tenant = create_namespace(kube, "tenant")
    world = WorldProcess(tmp_path_factory.mktemp("world"), host=cluster.host_address)
    world.start()
    try:
        kube.apply(credentials(SYSTEM, "outside-creds", USERNAME, PLANTED_PASSWORD))
        kube.apply(
            provider(
                SYSTEM,
                "outside",
                backend="simulated",
                connection={"endpoint": world.endpoint},
                storage={"pool": "fast"},
                network={"network": "lan"},
            )
        )
        kube.apply(vm_class())
        kube.apply(vm_image({"simulated": "ubuntu-24.04"}))
        kube.create(virtual_machine(tenant, "db"))
        kube.wait_for("virtualmachines", "db", tenant, until=is_ready, timeout=SECONDS)

        seconds.lap("first VM ready")

        # Nobody loses a VM by taking banlieue out, unless that was said; then it goes on running.
        refused = bootstrap(cluster.kubeconfig, "uninstall", check=False)
        assert refused.returncode == 1
        assert f"VirtualMachine {tenant}/db" in refused.stderr
        (before,) = world.target().vms()
        bootstrap(cluster.kubeconfig, "uninstall", "--orphan", "--include-namespace")
        seconds.lap("taken out")
        (after,) = world.target().vms()
        assert (after.id, after.uuid) == (before.id, before.uuid)
    finally:
        world.process.kill9()
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,roles,rolebindings"
    left = kubectl("get", kinds, "--all-namespaces", "-l", LABELLED, "-o", "name")
    definitions = kubectl("get", "customresourcedefinitions", "-o", "name")
    assert (left, "banlieue.io" in definitions) == ("", False)
    assert kube.find("namespaces", SYSTEM) is None
    kube.delete("namespaces", tenant)
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(seconds.laps, indent=1), encoding="utf-8")
