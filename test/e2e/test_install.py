"""An install without clusterctl and without the operator: what `config` builds, applied by kubectl,
runs VMs from pods, and no identity in the cluster may make workloads or hand out rights.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest
import yaml

import banlieue
from banlieue.sdk.testing.conformance_target import RawVm
from hack.cluster.interface import Cluster
from hack.components import CONFIG, ROOT, backends, build, semantic_version
from hack.images.catalog import archive_of
from test.kit.kube import Kube, KubeError
from test.kit.namespaces import create_namespace
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import (
    credentials,
    is_ready,
    provider,
    provider_class,
    virtual_machine,
    vm_class,
    vm_image,
)
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.e2e

SYSTEM: Final = "banlieue-system"
IMAGE: Final = "localhost/banlieue:dev"
CONTROLLER: Final = "banlieue-controller"
PROVIDER: Final = "banlieue-provider-simulated"
DEPLOYMENTS: Final = (CONTROLLER, PROVIDER)
POD_SECONDS: Final = 180.0
VM_SECONDS: Final = 120.0
CLASS: Final = "plain"  # the samples have a class of the kit's name

Object = dict[str, Any]
Kubectl = Callable[..., str]

FIGURES: Final = ROOT / "out" / "e2e" / "install-seconds.json"

each_deployment = pytest.mark.parametrize("deployment", DEPLOYMENTS)


@dataclass(frozen=True, slots=True)
class Installed:
    """banlieue in a cluster, with a hypervisor outside of it registered as a Provider."""

    kube: Kube
    kubectl: Kubectl
    world: WorldProcess
    tenant: str
    manifests: tuple[str, ...]
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def pod(self, deployment: str) -> Object:
        """The one pod of a Deployment that is not on its way out."""
        (found,) = [it for it in self.pods(deployment) if not gone(it)]
        return found

    def pods(self, deployment: str) -> list[Object]:
        """All pods of a Deployment, ending ones too."""
        component = deployment.removeprefix("banlieue-")
        selector = f"app.kubernetes.io/component={component}"
        return self.kube.list("pods", SYSTEM, label_selector=selector)

    def available(self, deployment: str) -> None:
        """Wait until the Deployment's pod is ready."""

        def ready(obj: Object) -> bool:
            status = obj.get("status") or {}
            return (
                status.get("observedGeneration") == obj["metadata"]["generation"]
                and status.get("availableReplicas") == 1
            )

        self.kube.wait_for(
            "deployments", deployment, SYSTEM, until=ready, timeout=POD_SECONDS, what="available"
        )

    def vms(self, name: str) -> list[RawVm]:
        """The VMs on the hypervisor whose name begins like a VirtualMachine's."""
        return [it for it in self.world.target().vms() if it.name.startswith(f"{name}-")]

    def create(self, name: str) -> None:
        """Ask for a VirtualMachine on the world outside; no other Provider has its classes."""
        self.kube.create(virtual_machine(self.tenant, name, classRef={"name": CLASS}))

    def ready(self, name: str) -> Object:
        """Wait until a VirtualMachine is Ready."""
        return self.kube.wait_for(
            "virtualmachines",
            name,
            self.tenant,
            until=is_ready,
            timeout=VM_SECONDS,
            what="Ready",
        )

    def delete(self, name: str) -> None:
        """Delete a VirtualMachine and wait until it is gone."""
        self.kube.delete("virtualmachines", name, self.tenant)
        self.kube.wait_gone("virtualmachines", name, self.tenant, timeout=VM_SECONDS)


def gone(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def objects(*texts: str) -> list[Object]:
    return [it for text in texts for it in yaml_documents(text) if it]


def without_operator(text: str) -> str:
    """The components with the operator's objects dropped."""
    return yaml.safe_dump_all(
        it for it in objects(text) if "operator" not in it["metadata"]["name"]
    )


@pytest.fixture(scope="module")
def installed(
    cluster: Cluster, kube: Kube, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Installed by kubectl, uninstalled in the order the documentation gives."""
    cluster.load(archive_of(IMAGE))
    version = semantic_version(banlieue.__version__)
    folders = (CONFIG / "default", backends()["simulated"])
    manifests = tuple(without_operator(build(folder, version, IMAGE)) for folder in folders)
    for text in manifests:
        kubectl("apply", "--server-side", "-f", "-", stdin=text)
    kube.resources()
    world = WorldProcess(tmp_path_factory.mktemp("world"), host=cluster.host_address)
    world.start()
    made = Installed(kube, kubectl, world, create_namespace(kube, "tenant"), manifests)
    try:
        for deployment in DEPLOYMENTS:
            made.available(deployment)
        register(made)
        yield made
        uninstall(made)
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(made.seconds, indent=1), encoding="utf-8")
    finally:
        world.process.kill9()


def register(installed: Installed) -> None:
    """Make the world outside known, with a class and an image that fit it."""
    kube, world = installed.kube, installed.world
    kube.apply(provider_class("simulated", "Simulated"))
    kube.apply(credentials(SYSTEM, "outside-creds", "simulated", PLANTED_PASSWORD))
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
    kube.apply(vm_class(CLASS))
    kube.apply(vm_image({"simulated": "ubuntu-24.04"}))
    kube.wait_for("providers", "outside", SYSTEM, until=is_ready, timeout=VM_SECONDS, what="Ready")


def uninstall(installed: Installed) -> None:
    """VirtualMachines, images, Providers, what they run in, the rest: nothing is left or stuck."""
    kube, kubectl = installed.kube, installed.kubectl
    patience = f"--timeout={VM_SECONDS:.0f}s"
    for kind in ("virtualmachines", "vmimages", "providers"):
        kubectl("delete", kind, "--all", "--all-namespaces", patience, timeout=300)
    for text in reversed(installed.manifests):
        kubectl("delete", "-f", "-", patience, stdin=text, timeout=300)
    kube.wait_gone("namespaces", SYSTEM, timeout=VM_SECONDS)
    kube.delete("namespaces", installed.tenant)
    left = [
        (it["kind"], it["metadata"]["name"])
        for it in objects(*installed.manifests)
        if kube.find(it["kind"], it["metadata"]["name"], it["metadata"].get("namespace"))
    ]
    assert left == []


@each_deployment
def test_a_pod_runs_as_restricted_as_it_is_shipped(installed: Installed, deployment: str) -> None:
    namespace = installed.kube.get("namespaces", SYSTEM)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = installed.pod(deployment)
    assert pod["status"]["phase"] == "Running"
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert pod["spec"]["serviceAccountName"] == deployment
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    (status,) = pod["status"]["containerStatuses"]
    assert status["ready"]
    kubectl, name = installed.kubectl, pod["metadata"]["name"]
    program = "import os; print(os.getuid(), os.access('/', os.W_OK), os.access('/tmp', os.W_OK))"
    told = kubectl("exec", "-n", SYSTEM, name, "--", "python3", "-c", program)
    assert told.split() == ["65532", "False", "False"]


def test_a_pod_with_more_rights_is_refused(installed: Installed) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": SYSTEM, "name": "greedy"},
        "spec": {"containers": [{"name": "one", "image": IMAGE}]},
    }
    with pytest.raises(KubeError, match="violates PodSecurity"):
        installed.kube.create(pod)


@each_deployment
def test_the_probes_are_green(installed: Installed, deployment: str) -> None:
    name = installed.pod(deployment)["metadata"]["name"]
    for path in ("healthz", "readyz", "metrics"):
        raw = f"/api/v1/namespaces/{SYSTEM}/pods/{name}:8080/proxy/{path}"
        told = installed.kubectl("get", "--raw", raw)
        if path == "metrics":
            assert "controller_runtime_reconcile_total" in told
        else:
            assert told.splitlines()[-1] == "ok"
            assert "[-]" not in told


@each_deployment
def test_an_account_has_the_shipped_rights_and_no_others(
    installed: Installed, deployment: str
) -> None:
    def bound(found: list[Object]) -> set[tuple[str, str, str]]:
        return {
            (it["kind"], it["metadata"]["name"], it["roleRef"]["name"])
            for it in found
            for subject in it.get("subjects") or ()
            if (subject["kind"], subject["name"]) == ("ServiceAccount", deployment)
        }

    kinds = ("ClusterRoleBinding", "RoleBinding")
    shipped = [it for it in objects(*installed.manifests) if it["kind"] in kinds]
    there = [it for kind in kinds for it in installed.kube.list(kind)]
    assert bound(there) == bound(shipped) != set()


def test_the_rights_are_enough_for_everything_that_was_logged(installed: Installed) -> None:
    installed.create("logged")
    installed.ready("logged")
    installed.delete("logged")
    for deployment in DEPLOYMENTS:
        text = installed.kubectl("logs", "-n", SYSTEM, f"deployment/{deployment}")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        assert lines
        assert [it for it in lines if it["level"] == "error"] == []
        assert "forbidden" not in text.lower()
        assert PLANTED_PASSWORD not in text


def test_the_samples_become_a_virtual_machine(installed: Installed) -> None:
    """The hypervisor of the samples is in the memory of the provider's pod."""
    kube = installed.kube
    paths = (CONFIG / "samples" / f"{name}.yaml" for name in ("simulated", "virtualmachine"))
    found = objects(*(path.read_text(encoding="utf-8") for path in paths))
    for obj in found:
        kube.apply(obj, installed.tenant, force=True)
    (vm,) = [it["metadata"]["name"] for it in found if it["kind"] == "VirtualMachine"]
    ready = installed.ready(vm)
    assert ready["status"]["scheduled"]["providerName"] == "sandbox"
    installed.delete(vm)
    kube.delete("providers", "sandbox", SYSTEM)
    kube.wait_gone("providers", "sandbox", SYSTEM, timeout=VM_SECONDS)


def test_a_virtual_machine_lives_and_dies_through_pods_alone(installed: Installed) -> None:
    installed.create("db")
    vm = installed.ready("db")
    (raw,) = installed.vms("db")
    assert vm["status"]["providerID"] == f"simulated://{raw.uuid}"
    installed.delete("db")
    assert installed.vms("db") == []


@each_deployment
@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_pod_that_is_replaced_leaves_the_virtual_machine_alone(
    installed: Installed, deployment: str, how: str
) -> None:
    name = f"kept-by-{deployment.removeprefix('banlieue-')}-{how}"
    installed.create(name)
    before = installed.ready(name)
    (raw,) = installed.vms(name)
    old = installed.pod(deployment)["metadata"]
    force = ("--force", "--grace-period=0") if how == "killed" else ()
    started = time.monotonic()
    installed.kubectl("delete", "pod", "-n", SYSTEM, old["name"], *force, timeout=120)
    seconds = {"pod gone": time.monotonic() - started}
    wait_until(partial(another_is_ready, installed, deployment, old["uid"]), POD_SECONDS, "a pod")
    seconds["another ready"] = time.monotonic() - started

    # Only who leads and serves again carries this out.
    off = {"spec": {"desiredPowerState": "PoweredOff"}}
    installed.kube.patch("virtualmachines", name, off, installed.tenant)
    is_off = partial(observes, "PoweredOff")
    installed.kube.wait_for(
        "virtualmachines", name, installed.tenant, until=is_off, timeout=VM_SECONDS, what="off"
    )
    seconds["at work"] = time.monotonic() - started
    installed.seconds[f"{deployment} {how}"] = {key: round(it, 1) for key, it in seconds.items()}
    on = {"spec": {"desiredPowerState": "PoweredOn"}}
    installed.kube.patch("virtualmachines", name, on, installed.tenant)
    after = installed.ready(name)
    assert after["status"]["providerID"] == before["status"]["providerID"]
    (same,) = installed.vms(name)
    assert (same.id, same.uuid) == (raw.id, raw.uuid)
    installed.delete(name)
    assert installed.vms(name) == []


def another_is_ready(installed: Installed, deployment: str, old: str) -> bool:
    return any(
        status["ready"]
        for pod in installed.pods(deployment)
        if pod["metadata"]["uid"] != old
        for status in pod["status"].get("containerStatuses") or ()
    )


def observes(power: str, vm: Object) -> bool:
    return bool((vm.get("status") or {}).get("observedPowerState") == power)


def test_a_pod_runs_the_version_that_the_manifests_say(installed: Installed) -> None:
    told = installed.kubectl(
        "exec", "-n", SYSTEM, f"deployment/{CONTROLLER}", "--", "banlieue", "--version"
    )
    assert told.split()[-1] == banlieue.__version__
