"""The cluster templates: variables, references, and that our models read what they hold."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from banlieue.api.meta import ResourceObject
from banlieue.providers.vsphere.models import KINDS as VSPHERE_KINDS
from banlieue.sdk.seed import files
from banlieue.sdk.simulated.models import KINDS as SIMULATED_KINDS
from test.kit.envsubst import substitute, variables
from test.kit.yaml_text import yaml_documents

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted(ROOT.glob("templates/cluster-template*.yaml"))
CLASSES = sorted(ROOT.glob("templates/clusterclass-*.yaml"))
KINDS: dict[str, type[ResourceObject]] = {
    kind.resource.kind: kind for kind in (*VSPHERE_KINDS, *SIMULATED_KINDS)
}

# Given by clusterctl itself, from its command line.
BY_CLUSTERCTL = {"CLUSTER_NAME", "NAMESPACE", "KUBERNETES_VERSION"}
VALUES = {
    "CLUSTER_NAME": "prod",
    "NAMESPACE": "team-a",
    "KUBERNETES_VERSION": "v1.36.3",
    "CONTROL_PLANE_ENDPOINT_HOST": "10.20.0.10",
    "BANLIEUE_IMAGE": "ubuntu-24.04-kube",
    "BANLIEUE_NETWORK_CLASS": "prod",
    "BANLIEUE_STORAGE_CLASS": "gold",
    "BANLIEUE_PROVIDER_1": "vc-1",
    "BANLIEUE_PROVIDER_2": "vc-2",
    "BANLIEUE_FAILURE_DOMAIN_1": "vc-1-dc0-c0",
    "BANLIEUE_FAILURE_DOMAIN_2": "vc-2-dc0-c0",
}

Object = dict[str, Any]


def objects(path: Path) -> list[Object]:
    return yaml_documents(substitute(path.read_text(encoding="utf-8"), VALUES))


def references(node: object) -> Iterator[tuple[str, str]]:
    """Kind and name of everything an object refers to."""
    if isinstance(node, dict):
        if {"kind", "name"} <= node.keys() and {"apiGroup", "apiVersion"} & node.keys():
            yield node["kind"], node["name"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


each_template = pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
each_file = pytest.mark.parametrize("path", [*TEMPLATES, *CLASSES], ids=lambda path: path.stem)


def test_the_files_are_named_as_clusterctl_looks_for_them() -> None:
    there = {path.name for path in (ROOT / "templates").iterdir()}
    assert "cluster-template.yaml" in there
    for name in there:
        assert re.fullmatch(r"(cluster-template(-[a-z-]+)?|clusterclass-[a-z-]+)\.yaml", name)


@each_template
def test_its_variables_are_the_ones_it_explains(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    given, _, rest = text.partition("# To be given:")[2].partition("# With a default:")
    explained = {
        name: default
        for part, default in ((given, False), (rest, True))
        for name in re.findall(r"^#   ([A-Z0-9_]+)  ", part, re.MULTILINE)
    }
    used = {name: it is not None for name, it in variables(text).items()}
    for name in BY_CLUSTERCTL & used.keys():
        assert not used.pop(name), f"clusterctl gives {name} always"
    assert explained == used


@each_template
def test_a_default_is_told_as_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name, default in variables(text).items():
        if default:
            (told,) = re.findall(rf"^#   {name}  .*\((.*)\)$", text, re.MULTILINE)
            assert told == default


@each_file
def test_its_own_objects_are_valid_to_our_models(path: Path) -> None:
    read = [KINDS[it["kind"]].from_api(it) for it in objects(path) if it["kind"] in KINDS]
    assert len(read) >= (0 if "topology" in path.stem else 3)


@each_file
def test_it_refers_to_what_it_holds(path: Path) -> None:
    found = objects(path)
    there = {(it["kind"], it["metadata"]["name"]) for it in found}
    for obj in found:
        # A patch of a class selects by kind, and is no reference.
        body = {key: it for key, it in obj["spec"].items() if key != "patches"}
        assert set(references(body)) <= there


@each_template
def test_everything_is_in_the_namespace_and_named_for_the_cluster(path: Path) -> None:
    for obj in objects(path):
        assert obj["metadata"]["namespace"] == "team-a"
        assert re.fullmatch("prod(-.*)?", obj["metadata"]["name"])


def test_a_topology_finds_its_class() -> None:
    (cluster,) = objects(ROOT / "templates/cluster-template-topology.yaml")
    name = cluster["spec"]["topology"]["classRef"]["name"]
    found = objects(ROOT / f"templates/clusterclass-{name}.yaml")
    (made,) = [it for it in found if it["kind"] == "ClusterClass"]
    assert made["metadata"]["name"] == name
    known = {it["name"]: it["required"] for it in made["spec"]["variables"]}
    given = {it["name"] for it in cluster["spec"]["topology"]["variables"]}
    assert given <= known.keys()
    assert {name for name, required in known.items() if required} <= given


@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_a_class_needs_no_variable_of_clusterctl(path: Path) -> None:
    assert variables(path.read_text(encoding="utf-8")) == {}
    for obj in objects(path):
        assert "namespace" not in obj["metadata"], "clusterctl puts it where the cluster is"


def test_with_an_endpoint_of_ones_own_only_kube_vip_is_missing() -> None:
    def without_kube_vip(name: str) -> list[Object]:
        found = objects(ROOT / "templates" / f"{name}.yaml")
        for obj in found:
            if obj["kind"] == "KubeadmControlPlane":
                config = obj["spec"]["kubeadmConfigSpec"]
                for part in ("files", "preKubeadmCommands", "postKubeadmCommands"):
                    config.pop(part, None)
        return found

    default = without_kube_vip("cluster-template")
    assert default == without_kube_vip("cluster-template-external-endpoint")
    assert default != objects(ROOT / "templates/cluster-template.yaml")


def test_a_cluster_over_two_vcenters_has_workers_in_both() -> None:
    found = objects(ROOT / "templates/cluster-template-two-vcenters.yaml")
    (cluster,) = [it for it in found if it["kind"] == "VSphereCluster"]
    assert cluster["spec"]["providerRefs"] == [
        {"namespace": "banlieue-system", "name": VALUES["BANLIEUE_PROVIDER_1"]},
        {"namespace": "banlieue-system", "name": VALUES["BANLIEUE_PROVIDER_2"]},
    ]
    workers = [it["spec"] for it in found if it["kind"] == "MachineDeployment"]
    domains = [it["template"]["spec"]["failureDomain"] for it in workers]
    assert domains == [VALUES["BANLIEUE_FAILURE_DOMAIN_1"], VALUES["BANLIEUE_FAILURE_DOMAIN_2"]]
    without = [{**it, "template": {**it["template"], "spec": {}}} for it in workers]
    assert without[0] == without[1]


def test_beside_its_vcenters_it_is_a_cluster_with_an_endpoint_of_its_own() -> None:
    def others(name: str) -> list[Object]:
        found = objects(ROOT / "templates" / f"{name}.yaml")
        return [it for it in found if it["kind"] not in {"VSphereCluster", "MachineDeployment"}]

    assert others("cluster-template-two-vcenters") == others("cluster-template-external-endpoint")


def test_with_addresses_from_a_pool_only_its_interfaces_differ() -> None:
    def interfaces(found: list[Object]) -> list[Object]:
        """Taken out of the templates they are in."""
        return [
            one
            for obj in found
            if obj["kind"] == "VSphereMachineTemplate"
            for one in obj["spec"]["template"]["spec"].pop("networkInterfaces")
        ]

    default = objects(ROOT / "templates/cluster-template.yaml")
    pooled = objects(ROOT / "templates/cluster-template-ipam.yaml")
    plain, addressed = interfaces(default), interfaces(pooled)
    assert default == pooled
    assert [it.pop("ipam") for it in addressed] == [[{"family": "IPv4", "source": "pool"}]] * 2
    assert plain == addressed


@each_file
def test_every_kubelet_is_told_the_id_of_its_machine(path: Path) -> None:
    asked = [
        registration for obj in objects(path) for registration in found_at(obj, "nodeRegistration")
    ]
    assert asked or "topology" in path.stem
    ignition = "ignition" in path.stem
    for registration in asked:
        (argument,) = registration["kubeletExtraArgs"]
        value = "BANLIEUE_PROVIDER_ID" if ignition else "{{ ds.meta_data.provider_id }}"
        assert argument == {"name": "provider-id", "value": value}
    formats = [it for obj in objects(path) for it in found_at(obj, "format")]
    assert formats == (["ignition"] * 2 if ignition else [])


def found_at(node: object, key: str) -> Iterator[Any]:
    """The values of a key, wherever it is."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from found_at(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from found_at(value, key)


KUBEADM = """---
apiVersion: kubeadm.k8s.io/v1beta4
kind: {kind}
nodeRegistration:
  kubeletExtraArgs:
  - name: provider-id
    value: BANLIEUE_PROVIDER_ID
  name: BANLIEUE_HOSTNAME
"""


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """The root of a guest, as Ignition left it."""
    (tmp_path / "etc/kubernetes/manifests").mkdir(parents=True)
    (tmp_path / "etc/banlieue").mkdir()
    facts = {"BANLIEUE_PROVIDER_ID": "vsphere://421f-07", "BANLIEUE_HOSTNAME": "prod-x7k2p"}
    (tmp_path / "etc/banlieue/instance.env").write_text(files.environment(facts))
    return tmp_path


def run_in(guest: Path, commands: list[str]) -> None:
    """As the unit of Cluster API's bootstrap provider runs them, one after the other."""
    script = "\n".join(["set -e", *commands]).replace("/etc/", f"{guest}/etc/")
    # The manifest itself says where the guest has its files.
    script = script.replace(f"path: {guest}/etc/", "path: /etc/")
    subprocess.run(["/bin/bash", "-c", script], check=True, timeout=120)


def planes(found: list[Object]) -> Object:
    (plane,) = [it for it in found if it["kind"] == "KubeadmControlPlane"]
    config = plane["spec"]["kubeadmConfigSpec"]
    assert isinstance(config, dict)
    return config


@pytest.mark.parametrize("kind", ["InitConfiguration", "JoinConfiguration"])
def test_a_guest_with_ignition_fills_in_what_it_is_called(kind: str, guest: Path) -> None:
    config = planes(objects(ROOT / "templates/cluster-template-ignition.yaml"))
    manifest = guest / "etc/kubernetes/manifests/kube-vip.yaml"
    manifest.write_text(config["files"][0]["content"])
    (guest / "etc/kubeadm.yml").write_text(KUBEADM.format(kind=kind))
    run_in(guest, config["preKubeadmCommands"])
    told = yaml.safe_load((guest / "etc/kubeadm.yml").read_text())["nodeRegistration"]
    assert told["name"] == "prod-x7k2p"
    assert told["kubeletExtraArgs"] == [{"name": "provider-id", "value": "vsphere://421f-07"}]

    def mounted() -> str:
        volumes = yaml.safe_load(manifest.read_text())["spec"]["volumes"]
        return str(volumes[0]["hostPath"]["path"])

    first = "super-admin.conf" if kind == "InitConfiguration" else "admin.conf"
    assert mounted() == f"/etc/kubernetes/{first}"
    (guest / "etc/kubeadm.yml").unlink()
    run_in(guest, config["postKubeadmCommands"])
    assert mounted() == "/etc/kubernetes/admin.conf"


def test_a_worker_with_ignition_does_so_too(guest: Path) -> None:
    found = objects(ROOT / "templates/cluster-template-ignition.yaml")
    (config,) = [it for it in found if it["kind"] == "KubeadmConfigTemplate"]
    (guest / "etc/kubeadm.yml").write_text(KUBEADM.format(kind="JoinConfiguration"))
    run_in(guest, config["spec"]["template"]["spec"]["preKubeadmCommands"])
    assert "BANLIEUE" not in (guest / "etc/kubeadm.yml").read_text()


def kube_vip(text: str) -> Object:
    pod = yaml.safe_load(text)
    assert isinstance(pod, dict)
    return pod


def test_kube_vip_announces_the_endpoint_of_the_cluster() -> None:
    found = objects(ROOT / "templates/cluster-template.yaml")
    (plane,) = [it for it in found if it["kind"] == "KubeadmControlPlane"]
    (cluster,) = [it for it in found if it["kind"] == "VSphereCluster"]
    (file,) = plane["spec"]["kubeadmConfigSpec"]["files"]
    assert file["path"].startswith("/etc/kubernetes/manifests/")
    pod = kube_vip(file["content"])
    environment = {it["name"]: it["value"] for it in pod["spec"]["containers"][0]["env"]}
    endpoint = cluster["spec"]["controlPlaneEndpoint"]
    assert environment["address"] == endpoint["host"]
    assert environment["port"] == str(endpoint["port"])
    config = plane["spec"]["kubeadmConfigSpec"]
    first = config["initConfiguration"]["localAPIEndpoint"]
    later = config["joinConfiguration"]["controlPlane"]["localAPIEndpoint"]
    assert first == later == {"bindPort": endpoint["port"]}
    for command in (*config["preKubeadmCommands"], *config["postKubeadmCommands"]):
        assert file["path"] in command
        assert pod["spec"]["volumes"][0]["hostPath"]["path"] in command


def test_the_class_has_the_same_kube_vip_as_the_template() -> None:
    values = {
        "{{ .kubeVip.image }}": "ghcr.io/kube-vip/kube-vip:v1.0.3",
        "{{ .kubeVip.interface }}": "",
        "{{ .controlPlaneEndpoint.host }}": VALUES["CONTROL_PLANE_ENDPOINT_HOST"],
        "{{ .controlPlaneEndpoint.port }}": "6443",
    }
    (path,) = CLASSES
    (made,) = [it for it in objects(path) if it["kind"] == "ClusterClass"]
    (patch,) = [it for it in made["spec"]["patches"] if it["name"] == "kubeVip"]
    files, before, after = patch["definitions"][0]["jsonPatches"]
    text = files["valueFrom"]["template"]
    for variable, value in values.items():
        text = text.replace(variable, value)
    found = objects(ROOT / "templates/cluster-template.yaml")
    (plane,) = [it for it in found if it["kind"] == "KubeadmControlPlane"]
    config = plane["spec"]["kubeadmConfigSpec"]
    assert yaml.safe_load(text) == config["files"]
    assert before["value"] == config["preKubeadmCommands"]
    assert after["value"] == config["postKubeadmCommands"]


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(KeyError, match="BANLIEUE_IMAGE"):
        substitute("name: ${BANLIEUE_IMAGE}", {})
    with pytest.raises(ValueError, match="no variable"):
        variables("${not-one}")
