"""The operator's path on a cluster with a node: a Provider and a Secret are enough.

Installed by the path that `E2E_INSTALL` names. Hypervisors run on the host, outside of the cluster.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from banlieue.sdk.simulated.world import USERNAME
from hack.cluster.interface import Cluster
from hack.images.catalog import archive_of
from test.kit.installing import IMAGE, chosen_path, install
from test.kit.kube import Kube
from test.kit.namespaces import create_namespace
from test.kit.ports import free_port
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import (
    condition,
    credentials,
    is_ready,
    provider,
    virtual_machine,
    vm_class,
    vm_image,
)
from test.kit.vcsim import VCSim
from test.kit.waiting import wait_until

pytestmark = pytest.mark.e2e

SYSTEM: Final = "banlieue-system"
DEPLOYMENTS: Final = ("banlieue-controller", "banlieue-operator")
PROVIDERS: Final = "providers.banlieue.io"
KINDS: Final = ("deployments", "serviceaccounts", "roles", "rolebindings", "clusterrolebindings")
MINE: Final = "app.kubernetes.io/managed-by=banlieue-operator"
POD_SECONDS: Final = 120.0
VM_SECONDS: Final = 120.0

Object = dict[str, Any]
Kubectl = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Installed:
    """banlieue in a cluster: controller and operator, and not one provider."""

    kube: Kube
    kubectl: Kubectl
    host: str
    tenant: str

    def register(self, made: Object, username: str, password: str) -> None:
        """Apply a Provider and its Secret."""
        name = made["metadata"]["name"]
        self.kube.apply(credentials(SYSTEM, f"{name}-creds", username, password))
        self.kube.apply(made)

    def workload(self, name: str, what: str, until: Callable[[Object], object]) -> Object:
        """Wait until `status.workload` of a Provider is as asked for, and give it."""
        found = self.kube.wait_for(
            PROVIDERS,
            name,
            SYSTEM,
            until=lambda it: until((it.get("status") or {}).get("workload") or {}),
            timeout=POD_SECONDS,
            what=what,
        )
        workload: Object = found["status"]["workload"]
        return workload

    def served(self, name: str) -> Object:
        """Wait until a Provider's pod is ready and the Provider, too."""
        workload = self.workload(name, "served", lambda it: it.get("readyReplicas") == 1)
        self.kube.wait_for(
            PROVIDERS, name, SYSTEM, until=is_ready, timeout=VM_SECONDS, what="Ready"
        )
        return workload

    def ready(self, name: str) -> Object:
        """Wait until a VirtualMachine is Ready."""
        return self.kube.wait_for(
            "virtualmachines", name, self.tenant, until=is_ready, timeout=VM_SECONDS, what="Ready"
        )

    def remove(self, name: str) -> None:
        """Delete a Provider; all that was made for it is gone when it is."""
        self.kube.delete(PROVIDERS, name, SYSTEM)
        self.kube.wait_gone(PROVIDERS, name, SYSTEM, timeout=VM_SECONDS)
        left = [
            obj["metadata"]["name"]
            for kind in KINDS
            for obj in self.kube.list(kind, label_selector=MINE)
            if obj["metadata"]["name"].endswith(f"-{name}")
        ]
        assert left == []


@pytest.fixture(scope="module")
def installed(cluster: Cluster, kube: Kube, kubectl: Kubectl) -> Iterator[Installed]:
    """Installed by the chosen path; taken away in the order the documentation gives."""
    cluster.load(archive_of(IMAGE))
    text = install(cluster.kubeconfig, kubectl, chosen_path())
    kube.resources()
    made = Installed(kube, kubectl, cluster.host_address, create_namespace(kube, "tenant"))
    for deployment in DEPLOYMENTS:
        kube.wait_for(
            "deployments",
            deployment,
            SYSTEM,
            until=lambda it: (it.get("status") or {}).get("availableReplicas") == 1,
            timeout=POD_SECONDS,
            what="available",
        )
    yield made
    patience = f"--timeout={VM_SECONDS:.0f}s"
    for kind in ("virtualmachines", "vmimages", PROVIDERS):
        kubectl("delete", kind, "--all", "--all-namespaces", patience, timeout=300)
    kubectl("delete", "providerclasses", "--all", patience)
    kubectl("delete", "-f", "-", patience, stdin=text, timeout=300)
    kube.wait_gone("namespaces", SYSTEM, timeout=VM_SECONDS)
    kube.delete("namespaces", made.tenant)
    assert [it for kind in KINDS for it in kube.list(kind, label_selector=MINE)] == []


def test_a_simulated_provider_is_served_by_a_pod_of_its_own(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kube = installed.kube
    world = WorldProcess(tmp_path_factory.mktemp("world"), host=installed.host)
    world.start()
    try:
        made = provider(
            SYSTEM,
            "outside",
            backend="simulated",
            connection={"endpoint": world.endpoint},
            storage={"pool": "fast"},
            network={"network": "lan"},
        )
        installed.register(made, USERNAME, PLANTED_PASSWORD)
        workload = installed.served("outside")
        assert workload["image"] == IMAGE, "the operator's own, as no class says another"
        assert "reason" not in workload
        runs_restricted(installed, workload["name"])

        kube.apply(vm_class("plain"))
        kube.apply(vm_image({"simulated": "ubuntu-24.04"}))
        kube.create(virtual_machine(installed.tenant, "db", classRef={"name": "plain"}))
        vm = installed.ready("db")
        (raw,) = world.target().vms()
        assert vm["status"]["providerID"] == f"simulated://{raw.uuid}"

        # An upgrade is one edit of the class; the VM does not notice.
        level = {"spec": {"logLevel": "debug"}}
        kube.patch("providerclasses", "simulated", level)
        pods = pods_of(installed, workload["name"])
        wait_until(
            lambda: pods_of(installed, workload["name"]).isdisjoint(pods), POD_SECONDS, "a new pod"
        )
        installed.served("outside")
        assert installed.ready("db")["status"]["providerID"] == vm["status"]["providerID"]

        kube.delete(PROVIDERS, "outside", SYSTEM)
        installed.workload("outside", "held", lambda it: it.get("reason") == "ProviderInUse")
        kube.delete("virtualmachines", "db", installed.tenant)
        kube.wait_gone("virtualmachines", "db", installed.tenant, timeout=VM_SECONDS)
        kube.wait_gone(PROVIDERS, "outside", SYSTEM, timeout=VM_SECONDS)
        assert [it for kind in KINDS for it in kube.list(kind, label_selector=MINE)] == []
        assert world.target().vms() == []
    finally:
        world.process.kill9()


def runs_restricted(installed: Installed, workload: str) -> None:
    """The pod is as restricted as the one of a provider without an operator."""
    (pod,) = [
        it
        for it in installed.kube.list("pods", SYSTEM, label_selector=instance(workload))
        if "deletionTimestamp" not in it["metadata"]
    ]
    assert pod["spec"]["serviceAccountName"] == workload
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def instance(workload: str) -> str:
    return f"app.kubernetes.io/instance={workload}"


def pods_of(installed: Installed, workload: str) -> set[str]:
    found = installed.kube.list("pods", SYSTEM, label_selector=instance(workload))
    return {it["metadata"]["uid"] for it in found}


def test_a_vcenter_is_served_by_a_pod_of_its_own(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kube, port = installed.kube, free_port()
    listen = ("-l", f"{installed.host}:{port}")
    with VCSim(tmp_path_factory.mktemp("vcsim"), templates=["ubuntu"], arguments=listen) as vcsim:
        made = provider(
            SYSTEM,
            "vcenter",
            backend="vsphere",
            connection={
                "endpoint": f"https://{installed.host}:{port}/sdk",
                "thumbprints": [vcsim.thumbprint],
            },
            storage={"datastore": "LocalDS_0"},
            network={"portGroup": "DC0_DVPG0"},
        )
        installed.register(made, vcsim.username, vcsim.password)
        installed.served("vcenter")
        kube.apply(vm_class("plain"))
        kube.apply(vm_image({"vsphere": "ubuntu"}, name="of-vcenter"))
        wanted = {"classRef": {"name": "plain"}, "imageRef": {"name": "of-vcenter"}}
        kube.create(virtual_machine(installed.tenant, "web", **wanted))
        vm = installed.ready("web")
        assert vm["status"]["providerID"].startswith("vsphere://")
        kube.delete("virtualmachines", "web", installed.tenant)
        kube.wait_gone("virtualmachines", "web", installed.tenant, timeout=VM_SECONDS)
        installed.remove("vcenter")


def test_the_pod_of_a_vcenter_that_nobody_can_reach_is_not_ready(installed: Installed) -> None:
    made = provider(
        SYSTEM,
        "nowhere",
        backend="vsphere",
        connection={"endpoint": "https://vcenter.invalid/sdk"},
        storage={"datastore": "none"},
        network={"portGroup": "none"},
    )
    installed.register(made, USERNAME, PLANTED_PASSWORD)
    found = installed.kube.wait_for(
        PROVIDERS,
        "nowhere",
        SYSTEM,
        until=lambda it: condition(it, "Ready") == ("False", "ProviderUnreachable"),
        timeout=POD_SECONDS,
        what="unreachable",
    )
    workload = found["status"]["workload"]
    assert workload["readyReplicas"] == 0
    assert workload["replicas"] == 1
    assert workload["reason"] == "WorkloadNotReady"
    (pod,) = installed.kube.list("pods", SYSTEM, label_selector=instance(workload["name"]))
    assert pod["status"]["phase"] == "Running"
    assert not pod["status"]["containerStatuses"][0]["ready"]
    installed.remove("nowhere")
