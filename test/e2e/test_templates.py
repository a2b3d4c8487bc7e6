"""The ClusterClass, at work: Cluster API makes of it what the plain template holds."""

from typing import Any, Final

import pytest

from hack.cluster.clusterapi.clusterctl import Clusterctl
from test.kit.kube import Kube
from test.kit.managementcluster import TEMPLATE_VALUES, VERSION, Management
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
pytest_plugins = ["test.kit.fixtures_clusterctl"]

Object = dict[str, Any]

GIVEN: Final = {
    **TEMPLATE_VALUES,
    "BANLIEUE_CONTROL_PLANE_CPUS": "4",
    "WORKER_MACHINE_COUNT": "2",
}
SECONDS: Final = 90.0


@pytest.fixture
def generate(management: Management, clusterctl: Clusterctl) -> Clusterctl:
    """clusterctl, with every variable of the templates set."""
    return Clusterctl(clusterctl.repository, management.cluster.kubeconfig, variables=GIVEN)


def generated(clusterctl: Clusterctl, namespace: str, flavor: str) -> list[Object]:
    flags = [f"--target-namespace={namespace}", "--kubernetes-version=v1.34.0"]
    flags += [f"--flavor={flavor}"] if flavor else []
    infrastructure = f"--infrastructure=banlieue:{VERSION}"
    text = clusterctl.run("generate", "cluster", "made", infrastructure, *flags).output
    return yaml_documents(text)


def test_a_topology_becomes_what_the_template_holds(
    generate: Clusterctl, client: Kube, tenant: str
) -> None:
    wanted = {it["kind"]: it for it in generated(generate, tenant, "")}
    found = generated(generate, tenant, "topology")
    (cluster,) = [it for it in found if it["kind"] == "Cluster"]
    for obj in found:
        if obj is not cluster:
            client.create(obj, tenant)
    client.wait_for(
        "clusterclasses",
        "banlieue-vsphere",
        tenant,
        until=lambda it: is_true(it, "VariablesReady") and is_true(it, "RefVersionsUpToDate"),
        timeout=SECONDS,
        what="reconciled",
    )
    client.create(cluster)
    try:
        plane = only(client, "kubeadmcontrolplanes", tenant)
        config = wanted["KubeadmControlPlane"]["spec"]["kubeadmConfigSpec"]
        for part in ("files", "preKubeadmCommands", "postKubeadmCommands"):
            assert plane["spec"]["kubeadmConfigSpec"][part] == config[part]
        for part in ("initConfiguration", "joinConfiguration"):
            assert plane["spec"]["kubeadmConfigSpec"][part] == config[part]
        infrastructure = only(client, "vsphereclusters", tenant)
        assert infrastructure["spec"] == wanted["VSphereCluster"]["spec"]
        reference = plane["spec"]["machineTemplate"]["spec"]["infrastructureRef"]["name"]
        machine = client.get("vspheremachinetemplates", reference, tenant)
        spec = machine["spec"]["template"]["spec"]
        assert spec["cpus"] == int(GIVEN["BANLIEUE_CONTROL_PLANE_CPUS"])
        rest = {key: it for key, it in spec.items() if key != "cpus"}
        same = wanted["VSphereMachineTemplate"]["spec"]["template"]["spec"]
        assert rest == {key: it for key, it in same.items() if key != "cpus"}
        assert only(client, "machinedeployments", tenant)["spec"]["replicas"] == 2
    finally:
        client.delete("clusters.cluster.x-k8s.io", "made", tenant)
        client.wait_gone("clusters.cluster.x-k8s.io", "made", tenant, timeout=SECONDS)


def is_true(obj: Object, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any((it["type"], it["status"]) == (kind, "True") for it in conditions)


def only(client: Kube, kind: str, namespace: str) -> Object:
    """The one object of a kind, once it is there."""
    found: list[Object] = wait_until(
        lambda: client.list(kind, namespace), SECONDS, f"a {kind} of the topology"
    )
    (one,) = found
    return one
