"""clusterctl against a real management cluster: install, look, upgrade, delete, install again."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from banlieue.sdk.simulated.world import PASSWORD, USERNAME
from hack.cluster.clusterapi.clusterctl import Clusterctl, ClusterctlError
from hack.cluster.clusterapi.install import OUR_IMAGE, release
from hack.cluster.clusterapi.repository import PROVIDER, add_release
from hack.cluster.clusterapi.webhooks import (
    await_webhooks,
    cluster,
    control_plane,
    infrastructure,
    pods,
    probe_webhooks,
    topology,
)
from hack.cluster.interface import Leave
from test.kit.kube import Kube, KubeError, Object, Objects
from test.kit.managementcluster import (
    FLAVORS,
    INVENTORY,
    NAMESPACE,
    VERSION,
    Management,
    delete_provider,
    same,
    simulated_cluster,
    template_values,
    uids,
)
from test.kit.stack import credentials, provider
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
pytest_plugins = ["test.kit.fixtures_clusterctl"]

CLUSTERS: Final = "clusters.cluster.x-k8s.io"
PROVIDERS: Final = "providers.banlieue.io"
LABEL: Final = f"cluster.x-k8s.io/provider={PROVIDER}"
NEXT: Final = f"{VERSION.rpartition('.')[0]}.{int(VERSION.rpartition('.')[2]) + 1}"
KEPT_KINDS: Final = {"CustomResourceDefinition", "Namespace"}
INSTALLED: Final = (
    ("cert-manager", "cert-manager"),
    ("cert-manager", "cert-manager-cainjector"),
    ("cert-manager", "cert-manager-webhook"),
    ("capi-system", "capi-controller-manager"),
    ("capi-kubeadm-bootstrap-system", "capi-kubeadm-bootstrap-controller-manager"),
    ("capi-kubeadm-control-plane-system", "capi-kubeadm-control-plane-controller-manager"),
    (NAMESPACE, "banlieue-controller"),
    (NAMESPACE, "banlieue-operator"),
)
SURVIVORS: Final = ["banlieue-provider-simulated", "banlieue-provider-vsphere"]
"""What providers are bound to is called the same in every installation; clusterctl leaves it."""
TOPOLOGY: Final = topology("v1.34.0")


@pytest.fixture
def next_release(clusterctl: Clusterctl, tmp_path: Path) -> Clusterctl:
    """The same cluster, as a user sees it who has the next release, too."""
    repository = Path(shutil.copytree(clusterctl.repository, tmp_path / "repository"))
    add_release(repository, release(NEXT))
    return Clusterctl(repository, clusterctl.kubeconfig)


@pytest.fixture
def vm_class(client: Kube, clusterctl: Clusterctl, tenant: str) -> Iterator[Object]:
    """Something a user made, of a kind of ours."""
    assert clusterctl.kubeconfig
    made = {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "VMClass",
        "metadata": {"name": tenant},
        "spec": {"hardware": {"cpus": 1, "memoryMiB": 1024}},
    }
    yield client.create(made)
    if client.find("customresourcedefinitions", "vmclasses.banlieue.io"):
        client.delete("vmclasses", tenant, missing_ok=True)


def test_everything_that_is_installed_is_available(clusterctl: Clusterctl, client: Kube) -> None:
    for namespace, name in INSTALLED:
        deployment = client.get("deployments.apps", name, namespace)
        conditions = {it["type"]: it["status"] for it in deployment["status"]["conditions"]}
        assert conditions["Available"] == "True", name
    assert clusterctl.kubeconfig
    probe_webhooks(clusterctl.kubeconfig)


@pytest.mark.usefixtures("clusterctl")
def test_our_controller_works_with_the_rights_it_got(client: Kube) -> None:
    """Its first write takes the shipped roles and nothing else."""
    client.wait_for("configmaps", "banlieue-installation", NAMESPACE, until=bool, timeout=60)


@pytest.mark.usefixtures("clusterctl")
def test_a_valid_cluster_is_completed(client: Kube, tenant: str) -> None:
    created = client.create(cluster("valid", tenant, topology=topology("1.34.0")))
    assert created["spec"]["topology"]["version"] == "v1.34.0"
    plane = client.create(control_plane("valid", "1.34.0", tenant))
    assert plane["spec"]["version"] == "v1.34.0"
    assert plane["spec"]["rollout"]["strategy"]["type"] == "RollingUpdate"


@pytest.mark.usefixtures("clusterctl")
def test_an_invalid_cluster_is_refused(client: Kube, tenant: str) -> None:
    wrong = cluster("wrong", tenant, topology=TOPOLOGY, clusterNetwork=pods("10.0.0.0/33"))
    with pytest.raises(KubeError, match=r"validation\.cluster\.cluster\.x-k8s\.io.*denied"):
        client.create(wrong)
    assert client.list("clusters.cluster.x-k8s.io", tenant) == []


@pytest.mark.usefixtures("clusterctl")
def test_clusters_are_converted_between_versions(client: Kube, tenant: str) -> None:
    network = pods("10.0.0.0/16")
    client.create(cluster("old", tenant, topology=TOPOLOGY, clusterNetwork=network))
    path = f"/apis/cluster.x-k8s.io/v1beta1/namespaces/{tenant}/clusters/old"
    seen = client.request("GET", path)
    assert seen["apiVersion"] == "cluster.x-k8s.io/v1beta1"
    assert seen["spec"]["clusterNetwork"] == network
    assert seen["spec"]["topology"]["class"] == TOPOLOGY["classRef"]["name"]


def test_a_second_init_changes_nothing(clusterctl: Clusterctl, client: Kube) -> None:
    """The third one meets the namespace of the second one's check still terminating."""
    before = uids(client, "deployments.apps")
    clusterctl.init()
    answer = clusterctl.init()
    assert "Skipping installing cert-manager" in answer.messages
    assert uids(client, "deployments.apps") == before


def test_another_version_takes_an_upgrade(next_release: Clusterctl) -> None:
    with pytest.raises(ClusterctlError, match="already an instance"):
        next_release.init(infrastructure=[f"banlieue:{NEXT}"])


def test_images_are_listed(clusterctl: Clusterctl) -> None:
    answer = clusterctl.run("init", "list-images", "--infrastructure=banlieue")
    assert OUR_IMAGE in answer.output.splitlines()


def test_nothing_newer_means_nothing_to_upgrade(clusterctl: Clusterctl) -> None:
    answer = clusterctl.run("upgrade", "plan")
    assert "Cert-Manager is already up to date" in answer.output
    assert "You are already up to date!" in answer.output


@pytest.mark.usefixtures("vm_class")
def test_delete_leaves_kinds_and_namespace_alone(clusterctl: Clusterctl, client: Kube) -> None:
    clusterctl.run("delete", "--infrastructure=banlieue")
    wait_until(lambda: {kind for kind, _ in labelled(client)} == KEPT_KINDS, 90, "the rest to go")
    assert ("Namespace", NAMESPACE) in labelled(client)
    assert cluster_wide(client) == SURVIVORS
    assert client.find(INVENTORY, PROVIDER, NAMESPACE) is None


def test_objects_outlive_a_new_installation(
    clusterctl: Clusterctl, client: Kube, vm_class: Object
) -> None:
    clusterctl.run("delete", "--infrastructure=banlieue")
    clusterctl.init()
    assert same(client.get("vmclasses", vm_class["metadata"]["name"]), vm_class)


def test_kinds_are_only_deleted_when_nobody_uses_them(
    clusterctl: Clusterctl, client: Kube, tenant: str, vm_class: Object
) -> None:
    client.create(simulated_cluster("left"), tenant)
    with pytest.raises(ClusterctlError, match="found existing objects for provider CRDs"):
        delete_provider(clusterctl)
    assert client.find("customresourcedefinitions", "vmclasses.banlieue.io")
    client.delete("vmclasses", vm_class["metadata"]["name"])
    client.wait_gone("vmclasses", vm_class["metadata"]["name"])
    with pytest.raises(ClusterctlError, match="found existing objects for provider CRDs"):
        delete_provider(clusterctl)
    assert client.find("simulatedclusters", "left", tenant), (
        "the infrastructure of a cluster counts"
    )
    client.delete("simulatedclusters", "left", tenant)
    delete_provider(clusterctl)
    wait_until(lambda: labelled(client) == set(), 90, "everything labelled to be gone")
    assert cluster_wide(client) == SURVIVORS
    clusterctl.init()
    assert client.get("deployments.apps", "banlieue-controller", NAMESPACE)


@pytest.mark.usefixtures("clusterctl")
def test_our_cluster_is_described(clusterctl: Clusterctl, client: Kube, tenant: str) -> None:
    reference = infrastructure("SimulatedCluster", "shown")
    client.create(cluster("shown", tenant, infrastructureRef=reference))
    client.create(simulated_cluster("shown"), tenant)
    # Cluster API reads our kind by the role that came with it.
    client.wait_for(
        CLUSTERS,
        "shown",
        tenant,
        until=lambda obj: reason(obj, "InfrastructureReady") == "NoFailureDomains",
        timeout=60,
    )
    answer = clusterctl.run("describe", "cluster", "shown", f"--namespace={tenant}")
    # The row of the Cluster names the kind too, in the message of its Available condition.
    ours = f"SimulatedCluster {tenant}/shown"
    row = next(line for line in answer.output.splitlines() if ours in line)
    assert "NoFailureDomains" in row
    assert f"no Provider for a SimulatedCluster is offered to namespace {tenant}" in row


@pytest.fixture
def two_providers(clusterctl: Clusterctl, client: Kube, tenant: str) -> Iterator[list[str]]:
    """Simulated ones, each in a pod of its own, for one namespace and nobody else."""
    del clusterctl
    made = ["north", "south"]
    for name in made:
        client.create(credentials(tenant, f"{name}-creds", USERNAME, PASSWORD))
        client.create(
            provider(
                tenant,
                name,
                backend="simulated",
                connection={"endpoint": f"simulated://memory/{name}"},
                storage={"pool": "fast"},
                network={"network": "lan"},
            )
        )
    yield made
    for name in made:
        client.delete(PROVIDERS, name, tenant)
    for name in made:
        client.wait_gone(PROVIDERS, name, tenant)


def test_a_cluster_gets_the_failure_domains_of_two_providers(
    client: Kube, tenant: str, two_providers: list[str]
) -> None:
    """By the rights that were installed, and Cluster API takes over what it is told."""
    reference = infrastructure("SimulatedCluster", "spread")
    client.create(cluster("spread", tenant, infrastructureRef=reference))
    made = simulated_cluster("spread")
    made["spec"]["providerRefs"] = [{"name": it, "namespace": tenant} for it in two_providers]
    client.create(made, tenant)
    client.create(machine_template("small"), tenant)
    found = client.wait_for(
        CLUSTERS,
        "spread",
        tenant,
        until=lambda obj: (
            reason(obj, "InfrastructureReady") == "Ready" and obj["status"].get("failureDomains")
        ),
        timeout=120,
    )
    assert found["status"]["initialization"]["infrastructureProvisioned"]
    assert found["spec"]["controlPlaneEndpoint"] == made["spec"]["controlPlaneEndpoint"]
    listed = {it["name"]: it for it in found["status"]["failureDomains"]}
    assert set(listed) == {f"{name}-sim-{it}" for name in two_providers for it in "ab"}
    assert {it["controlPlane"] for it in listed.values()} == {True}
    assert {it["attributes"]["provider"] for it in listed.values()} == set(two_providers)
    client.patch(PROVIDERS, "south", {"spec": {"cordoned": True}}, tenant)
    client.wait_for(
        CLUSTERS,
        "spread",
        tenant,
        until=lambda obj: control_plane_domains(obj) == {"north-sim-a", "north-sim-b"},
        timeout=60,
    )
    small = client.wait_for("simulatedmachinetemplates", "small", tenant, until=has_capacity)
    assert small["status"]["capacity"] == {"cpu": "2", "memory": "4096Mi"}
    client.delete(CLUSTERS, "spread", tenant)
    client.wait_gone(CLUSTERS, "spread", tenant)
    assert client.find("simulatedclusters", "spread", tenant) is None


@pytest.mark.parametrize("flavor", FLAVORS)
def test_what_is_generated_is_accepted(
    clusterctl: Clusterctl, client: Kube, tenant: str, flavor: str
) -> None:
    """By the schemas and webhooks of everybody, that is: nothing is stored."""
    flags = [f"--target-namespace={tenant}", "--kubernetes-version=v1.34.0"]
    flags += [f"--flavor={flavor}"] if flavor else []
    made = replace(clusterctl, variables=template_values(flavor)).run(
        "generate", "cluster", "made", "--infrastructure=banlieue", *flags
    )
    for found in yaml_documents(made.output):
        client.create(found, dry_run=True)


@pytest.mark.usefixtures("clusterctl")
def test_a_kept_cluster_goes_on_where_it_was(management: Management, tenant: str) -> None:
    """Conditions are stale for some seconds then; what the webhooks answer is not."""
    kept = management.cluster
    kept.down(Leave.EVERYTHING)
    kept.up()
    await_webhooks(kept.kubeconfig, 120)
    with Kube(kept.kubeconfig) as client:
        assert client.get("namespaces", tenant)
        assert client.get(INVENTORY, PROVIDER, NAMESPACE)


def reason(obj: Object, condition: str) -> str | None:
    conditions = obj.get("status", {}).get("conditions", [])
    return next((found["reason"] for found in conditions if found["type"] == condition), None)


def machine_template(name: str) -> Object:
    machine = {"imageRef": {"name": "ubuntu"}, "cpus": 2, "memoryMiB": 4096}
    return {
        "apiVersion": "infrastructure.banlieue.io/v1alpha1",
        "kind": "SimulatedMachineTemplate",
        "metadata": {"name": name},
        "spec": {"template": {"spec": machine}},
    }


def has_capacity(obj: Object) -> bool:
    return bool((obj.get("status") or {}).get("capacity"))


def control_plane_domains(obj: Object) -> set[str]:
    found = obj["status"].get("failureDomains") or ()
    return {it["name"] for it in found if it["controlPlane"]}


def labelled(client: Kube) -> set[tuple[str, str]]:
    """Kind and name of everything that carries our provider label and is clusterctl's to delete."""
    found: Objects = []
    for resource in client.resources():
        if "list" in resource.verbs:
            query = {"labelSelector": LABEL}
            items = client.request("GET", resource.path(None), query=query)["items"]
            found += [{**item, "kind": resource.kind} for item in items]
    named = {(obj["kind"], obj["metadata"]["name"]) for obj in found}
    return named - {("ClusterRole", name) for name in SURVIVORS}


def cluster_wide(client: Kube) -> list[str]:
    """What is left cluster-wide under our name, labelled or not."""
    kinds = (
        "clusterroles",
        "clusterrolebindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
    names = [obj["metadata"]["name"] for kind in kinds for obj in client.list(kind)]
    return sorted(name for name in names if name.startswith("banlieue"))
