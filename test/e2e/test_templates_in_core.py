"""What Cluster API's own webhooks and topology controller say of the templates, without a node."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from test.kit.capimanagers import CapiManagers
from test.kit.controlplane import ControlPlane
from test.kit.envsubst import substitute
from test.kit.kube import Kube
from test.kit.managementcluster import FLAVORS, template_values
from test.kit.namespaces import create_namespace, discard_namespace
from test.kit.stack import Stack
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TEMPLATES: Final = Path(__file__).resolve().parents[2] / "templates"
SECONDS: Final = 120.0
KINDS: Final = (
    "vsphereclusters",
    "vspheremachinetemplates",
    "kubeadmcontrolplanes",
    "kubeadmconfigtemplates",
    "machinedeployments",
)
"""What the topology controller makes of a class."""

Object = dict[str, Any]
_ENDED: Final = re.compile(
    r'^controller_runtime_reconcile_total\{controller="topology/cluster",result="[a-z_]+"\} (\S+)$',
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapiManagers]:
    """Cluster API beside an API server that has our kinds and policies; nothing of ours runs."""
    directory = tmp_path_factory.mktemp("core")
    gates = {"CLUSTER_TOPOLOGY": "true", "EXP_KUBEADM_BOOTSTRAP_FORMAT_IGNITION": "true"}
    with (
        ControlPlane(directory / "plane") as plane,
        Stack(plane, directory) as stack,
        CapiManagers(plane, directory, gates) as found,
    ):
        stack.install()
        yield found


@pytest.fixture
def kube(core: CapiManagers) -> Kube:
    """An administrator of that API server, and not of a cluster with a node."""
    return core.kube


def passes(core: CapiManagers) -> float:
    """How many passes the topology controller has ended so far."""
    url = core.metrics["cluster-api-core"]
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - one of our own
        text = answer.read().decode()
    return sum(float(it[1]) for it in _ENDED.finditer(text))


@pytest.fixture
def tenant(kube: Kube) -> Iterator[str]:
    name = create_namespace(kube)
    yield name
    discard_namespace(kube, name)


def made(name: str, tenant: str, **more: str) -> list[Object]:
    flavor = name.removeprefix("cluster-template").removeprefix("-")
    values = {
        **template_values(flavor),
        "CLUSTER_NAME": "made",
        "NAMESPACE": tenant,
        "KUBERNETES_VERSION": "v1.34.0",
        **more,
    }
    text = (TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml_documents(substitute(text, values))


@pytest.mark.parametrize("flavor", [it for it in FLAVORS if it != "topology"])
def test_a_flavor_is_accepted_by_everybody(kube: Kube, tenant: str, flavor: str) -> None:
    name = f"cluster-template-{flavor}" if flavor else "cluster-template"
    for obj in made(name, tenant):
        answer = kube.create(obj, dry_run=True)
        ours = obj["apiVersion"].startswith("infrastructure.banlieue.io/")
        assert not ours or answer["spec"] == obj["spec"]


def with_class(kube: Kube, tenant: str) -> None:
    """The shipped ClusterClass, looked at by Cluster API."""
    for obj in made("clusterclass-banlieue-vsphere", tenant):
        kube.create(obj, tenant)
    kube.wait_for(
        "clusterclasses",
        "banlieue-vsphere",
        tenant,
        until=lambda it: is_true(it, "VariablesReady") and is_true(it, "RefVersionsUpToDate"),
        timeout=SECONDS,
        what="reconciled",
    )


@pytest.fixture
def topology(kube: Kube, tenant: str) -> Iterator[Object]:
    """A cluster of the class, with everything the topology controller makes of it."""
    with_class(kube, tenant)
    (cluster,) = made("cluster-template-topology", tenant, WORKER_MACHINE_COUNT="2")
    kube.create(cluster)
    wait_until(lambda: kube.list("machinedeployments", tenant), SECONDS, "the workers")
    wait_until(
        lambda: is_true(
            kube.get("clusters.cluster.x-k8s.io", "made", tenant), "TopologyReconciled"
        ),
        SECONDS,
        "the topology",
    )
    yield cluster
    kube.delete("clusters.cluster.x-k8s.io", "made", tenant)
    kube.wait_gone("clusters.cluster.x-k8s.io", "made", tenant, timeout=SECONDS)


def is_true(obj: Object, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any((it["type"], it["status"]) == (kind, "True") for it in conditions)


def versions(kube: Kube, tenant: str) -> dict[tuple[str, str], int]:
    """The generation of everything made: a write of the same is none."""
    return {
        (kind, it["metadata"]["name"]): it["metadata"].get("generation", 0)
        for kind in KINDS
        for it in kube.list(kind, tenant)
        if "topology.cluster.x-k8s.io/owned" in it["metadata"].get("labels", {})
    }


def poked(core: CapiManagers, kube: Kube, tenant: str) -> None:
    """The topology controller has looked again, at what it made, too."""
    for number in range(3):
        before = passes(core)
        change = {"metadata": {"annotations": {"test/poke": f"{before}-{number}"}}}
        kube.patch("clusters.cluster.x-k8s.io", "made", change, tenant)
        wait_until(
            lambda seen=before: passes(core) > seen,  # type: ignore[misc]
            SECONDS,
            "another pass",
        )


def set_machine(cluster: Object, **values: object) -> Object:
    """The change that gives the control plane another size."""
    plane = cluster["spec"]["topology"]["controlPlane"]
    (override,) = plane["variables"]["overrides"]
    value = {**override["value"], **values}
    overrides = [{"name": "machine", "value": value}]
    return {"spec": {"topology": {"controlPlane": {"variables": {"overrides": overrides}}}}}


def plane_template(kube: Kube, tenant: str) -> Object:
    """What the control plane's machines are made from now."""
    (plane,) = kube.list("kubeadmcontrolplanes", tenant)
    reference = plane["spec"]["machineTemplate"]["spec"]["infrastructureRef"]
    return kube.get("vspheremachinetemplates", reference["name"], tenant)


def cpus(template: Object) -> int:
    found: int = template["spec"]["template"]["spec"]["cpus"]
    return found


def test_a_topology_rests_and_changes_roll_out_once(
    core: CapiManagers, kube: Kube, tenant: str, topology: Object
) -> None:
    poked(core, kube, tenant)
    first = versions(kube, tenant)
    assert {kind for kind, _ in first} == set(KINDS)
    assert sum(kind == "vspheremachinetemplates" for kind, _ in first) == 2
    poked(core, kube, tenant)
    assert versions(kube, tenant) == first, "looking again changes nothing"

    change = set_machine(topology, cpus=16)
    kube.patch("clusters.cluster.x-k8s.io", "made", change, tenant, dry_run=True)
    poked(core, kube, tenant)
    assert versions(kube, tenant) == first, "a dry run changes nothing"

    before = plane_template(kube, tenant)
    for count in (4, 6, 8):
        change = set_machine(topology, cpus=count)
        kube.patch("clusters.cluster.x-k8s.io", "made", change, tenant)
    wait_until(lambda: cpus(plane_template(kube, tenant)) == 8, SECONDS, "the last edit")
    poked(core, kube, tenant)
    after = plane_template(kube, tenant)
    assert after["metadata"]["name"] != before["metadata"]["name"], "it is replaced, not changed"
    left = [kind for kind, _ in versions(kube, tenant)].count("vspheremachinetemplates")
    assert left == 2, "one for the control plane and one for the workers"
    others = versions(kube, tenant)
    same = {key: it for key, it in first.items() if key[0] != "vspheremachinetemplates"}
    moved = {key for key, it in same.items() if others.get(key) != it}
    assert {kind for kind, _ in moved} == {"kubeadmcontrolplanes"}, "workers stay as they are"


def test_another_template_in_the_class_is_one_rollout(
    core: CapiManagers, kube: Kube, tenant: str, topology: Object
) -> None:
    del topology
    poked(core, kube, tenant)
    before, first = plane_template(kube, tenant), versions(kube, tenant)
    old = kube.get("vspheremachinetemplates", "banlieue-vsphere-control-plane", tenant)
    spec = {**old["spec"]["template"]["spec"], "folder": "k8s"}
    new = {
        "apiVersion": old["apiVersion"],
        "kind": old["kind"],
        "metadata": {"name": "banlieue-vsphere-control-plane-2"},
        "spec": {"template": {"spec": spec}},
    }
    kube.create(new, tenant)
    reference = {
        "apiVersion": old["apiVersion"],
        "kind": old["kind"],
        "name": "banlieue-vsphere-control-plane-2",
    }
    change = {"spec": {"controlPlane": {"machineInfrastructure": {"templateRef": reference}}}}
    kube.patch("clusterclasses", "banlieue-vsphere", change, tenant)

    def folder() -> bool:
        spec = plane_template(kube, tenant)["spec"]["template"]["spec"]
        return bool(spec.get("folder") == "k8s")

    wait_until(folder, SECONDS, "the new template")
    after = plane_template(kube, tenant)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    poked(core, kube, tenant)
    assert plane_template(kube, tenant)["metadata"]["name"] == after["metadata"]["name"]
    (plane,) = [key for key in first if key[0] == "kubeadmcontrolplanes"]
    templates = "vspheremachinetemplates"
    others = {key: it for key, it in versions(kube, tenant).items() if key[0] != templates}
    expected = {key: it for key, it in first.items() if key[0] != templates}
    assert others == {**expected, plane: expected[plane] + 1}, "told once, and nobody else"


def test_variables_reach_what_they_are_for(core: CapiManagers, kube: Kube, tenant: str) -> None:
    del core
    with_class(kube, tenant)
    (cluster,) = made(
        "cluster-template-topology",
        tenant,
        BANLIEUE_PROVIDER_REFS="[{namespace: vcenters, name: vc-1}]",
        BANLIEUE_SSH_AUTHORIZED_KEYS='["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA me"]',
    )
    variables = cluster["spec"]["topology"]["variables"]
    variables.append(
        {"name": "controlPlaneFailureDomains", "value": {"topology.kubernetes.io/region": "x"}}
    )
    variables[:] = [it for it in variables if it["name"] != "kubeVip"]
    kube.create(cluster)
    wait_until(lambda: kube.list("machinedeployments", tenant), SECONDS, "the workers")
    (infrastructure,) = kube.list("vsphereclusters", tenant)
    assert infrastructure["spec"]["providerRefs"] == [{"namespace": "vcenters", "name": "vc-1"}]
    selector = infrastructure["spec"]["controlPlaneFailureDomainSelector"]
    assert selector == {"matchLabels": {"topology.kubernetes.io/region": "x"}}
    machine = plane_template(kube, tenant)["spec"]["template"]["spec"]
    assert machine["sshAuthorizedKeys"] == ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA me"]
    (plane,) = kube.list("kubeadmcontrolplanes", tenant)
    assert "files" not in plane["spec"]["kubeadmConfigSpec"], "without kubeVip there is no pod"
    kube.delete("clusters.cluster.x-k8s.io", "made", tenant)
    kube.wait_gone("clusters.cluster.x-k8s.io", "made", tenant, timeout=SECONDS)
