"""What clusterctl makes of our release before any cluster is asked."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.cluster.clusterapi.clusterctl import Clusterctl, ClusterctlError
from hack.cluster.clusterapi.install import OUR_IMAGE, kept_repository, release
from hack.cluster.clusterapi.repository import CONFIGURATION, PROVIDER, add_release
from test.kit.managementcluster import FLAVORS, NAMESPACE, VERSION, template_values
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.e2e

Object = dict[str, Any]

# Of these, clusterctl knows that they have no namespace; the last two it leaves in peace, too.
CLUSTER_WIDE: Final = frozenset(
    {
        "Namespace",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)
NAMESPACED: Final = frozenset({"ServiceAccount", "Role", "RoleBinding", "Deployment"})


@pytest.fixture(scope="session")
def kept() -> Path:
    return kept_repository()


@pytest.fixture
def repository(kept: Path, tmp_path: Path) -> Path:
    """A repository of one's own, for adding releases."""
    return Path(shutil.copytree(kept, tmp_path / "repository"))


@pytest.fixture
def clusterctl(repository: Path) -> Clusterctl:
    return Clusterctl(repository)


def generated(clusterctl: Clusterctl, *flags: str) -> list[Object]:
    answer = clusterctl.run("generate", "provider", "--infrastructure=banlieue", *flags)
    return yaml_documents(answer.output)


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def release_folder(repository: Path, version: str = VERSION) -> Path:
    return repository / PROVIDER / version


def test_our_release_is_taken_as_it_is(clusterctl: Clusterctl) -> None:
    text = (release_folder(clusterctl.repository) / "infrastructure-components.yaml").read_text()
    shipped = [(found["kind"], found["metadata"]["name"]) for found in yaml_documents(text)]
    made = [(found["kind"], found["metadata"]["name"]) for found in generated(clusterctl)]
    assert made == shipped
    assert made[0] == ("Namespace", NAMESPACE)


def test_everything_is_labelled_as_ours(clusterctl: Clusterctl) -> None:
    for found in generated(clusterctl):
        labels = found["metadata"]["labels"]
        assert labels["cluster.x-k8s.io/provider"] == PROVIDER
        assert labels["clusterctl.cluster.x-k8s.io"] == ""


def test_only_kinds_whose_scope_clusterctl_knows_are_shipped(clusterctl: Clusterctl) -> None:
    """A custom resource above all would keep `delete --include-crd` from ever ending."""
    kinds = {found["kind"] for found in generated(clusterctl)}
    assert kinds <= CLUSTER_WIDE | NAMESPACED


def test_everything_with_a_namespace_is_in_ours(clusterctl: Clusterctl) -> None:
    for found in generated(clusterctl):
        if found["kind"] in NAMESPACED:
            assert found["metadata"]["namespace"] == NAMESPACE, found["metadata"]["name"]


def test_delete_and_upgrade_will_know_what_is_ours_cluster_wide(clusterctl: Clusterctl) -> None:
    """Roles of the cluster whose names do not begin with the namespace survive both."""
    objects = generated(clusterctl)
    roles = of_kind(objects, "ClusterRole") + of_kind(objects, "ClusterRoleBinding")
    assert roles
    for role in roles:
        name = role["metadata"]["name"]
        # What providers are bound to: one role per backend, whatever the installation is called.
        assert name.startswith((f"{NAMESPACE}-", "banlieue-provider-"))


def test_nothing_has_to_be_set_for_an_installation(clusterctl: Clusterctl) -> None:
    answer = clusterctl.run("generate", "provider", "--infrastructure=banlieue", "--describe")
    assert f"Version:            {VERSION}" in answer.output
    assert f"TargetNamespace:    {NAMESPACE}" in answer.output
    variables = answer.output.partition("Variables:")[2].partition("Images:")[0]
    assert variables.split() == []
    assert set(answer.output.partition("Images:")[2].split()) == {"-", OUR_IMAGE}


def test_waiting_for_us_means_something(clusterctl: Clusterctl) -> None:
    """`--wait-providers` looks at Deployments with a container `manager`, and only there."""
    deployments = of_kind(generated(clusterctl), "Deployment")
    assert deployments
    for deployment in deployments:
        containers = deployment["spec"]["template"]["spec"]["containers"]
        manager = next(container for container in containers if container["name"] == "manager")
        assert manager["readinessProbe"]
        assert manager["imagePullPolicy"] == "IfNotPresent"


def test_cluster_api_may_use_our_kinds_at_once(clusterctl: Clusterctl) -> None:
    roles = of_kind(generated(clusterctl), "ClusterRole")
    label = "cluster.x-k8s.io/aggregate-to-manager"
    (role,) = [role for role in roles if role["metadata"]["labels"].get(label) == "true"]
    (rule,) = role["rules"]
    assert rule["apiGroups"] == ["infrastructure.banlieue.io"]


def test_another_namespace_can_be_chosen(clusterctl: Clusterctl) -> None:
    objects = generated(clusterctl, "--target-namespace=elsewhere")
    (namespace,) = of_kind(objects, "Namespace")
    assert namespace["metadata"]["name"] == "elsewhere"
    for found in objects:
        if found["kind"] in NAMESPACED:
            assert found["metadata"]["namespace"] == "elsewhere"
        for subject in found.get("subjects", ()):
            assert subject["namespace"] == "elsewhere"


def test_the_image_can_come_from_another_registry(clusterctl: Clusterctl, tmp_path: Path) -> None:
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    mirror = {"repository": "mirror.example/banlieue", "tag": "v9"}
    configuration["images"] = {PROVIDER: mirror}
    path = tmp_path / "clusterctl.yaml"
    path.write_text(yaml.safe_dump(configuration))
    mirrored = Clusterctl(clusterctl.repository, configuration=path)
    for deployment in of_kind(generated(mirrored), "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "mirror.example/banlieue/banlieue:v9"


def test_the_highest_version_is_the_latest(clusterctl: Clusterctl) -> None:
    higher = bumped(VERSION)
    add_release(clusterctl.repository, release(higher))
    latest = clusterctl.run("generate", "provider", "--infrastructure=banlieue", "--describe")
    assert f"Version:            {higher}" in latest.output
    pinned = generated(clusterctl, f"--infrastructure=banlieue:{VERSION}")
    assert pinned


def test_a_prerelease_is_only_taken_when_it_is_asked_for(clusterctl: Clusterctl) -> None:
    early = f"{bumped(VERSION)}-rc.1"
    add_release(clusterctl.repository, release(early))
    latest = clusterctl.run("generate", "provider", "--infrastructure=banlieue", "--describe")
    assert f"Version:            {VERSION}" in latest.output
    asked = clusterctl.run(
        "generate", "provider", f"--infrastructure=banlieue:{early}", "--describe"
    )
    assert f"Version:            {early}" in asked.output


def test_a_series_without_a_release_would_break_every_installation(clusterctl: Clusterctl) -> None:
    path = release_folder(clusterctl.repository) / "metadata.yaml"
    metadata = yaml.safe_load(path.read_text())
    newest = metadata["releaseSeries"][0]
    metadata["releaseSeries"].insert(0, {**newest, "minor": newest["minor"] + 1})
    path.write_text(yaml.safe_dump(metadata))
    with pytest.raises(ClusterctlError, match="failed to find releases"):
        generated(clusterctl)


def test_users_without_our_entry_are_told_so(clusterctl: Clusterctl, tmp_path: Path) -> None:
    path = tmp_path / "clusterctl.yaml"
    path.write_text("providers: []\n")
    bare = Clusterctl(clusterctl.repository, configuration=path)
    with pytest.raises(ClusterctlError, match="add configuration for new providers"):
        generated(bare)


def test_nothing_is_left_to_be_substituted(clusterctl: Clusterctl) -> None:
    """A `${` in a description or a policy would be taken for a variable."""
    text = (release_folder(clusterctl.repository) / "infrastructure-components.yaml").read_text()
    assert re.findall(r".*\$\{.*", text) == []


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_cluster_is_made_of_what_the_template_asks_for(repository: Path, flavor: str) -> None:
    objects = yaml_documents(template(repository, flavor))
    (cluster,) = of_kind(objects, "Cluster")
    assert cluster["metadata"]["name"] == "made"
    assert {found["metadata"]["namespace"] for found in objects} == {"tenant"}
    assert of_kind(objects, "Namespace") == []


@pytest.mark.parametrize(
    ("flavor", "left_out"),
    [(flavor, name) for flavor in FLAVORS for name in template_values(flavor)],
)
def test_what_a_template_needs_is_asked_for(repository: Path, flavor: str, left_out: str) -> None:
    rest = {name: it for name, it in template_values(flavor).items() if name != left_out}
    with pytest.raises(ClusterctlError, match=rf"value for variables \[{left_out}\] is not set"):
        template(repository, flavor, rest)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_the_variables_of_a_template_are_listed_with_their_defaults(
    repository: Path, flavor: str
) -> None:
    listed = template(repository, flavor, {}, "--list-variables")
    required, _, optional = listed.partition("Required Variables:")[2].partition("Optional")
    # What clusterctl gets by its own flags counts as required, too, and is no variable of ours.
    ours = {name for name in re.findall(r"- (\S+)", required) if name != "KUBERNETES_VERSION"}
    assert ours - {"CLUSTER_NAME"} == template_values(flavor).keys()
    defaults = dict(re.findall(r"- (\S+)\s+\(defaults to (.*)\)", optional))
    assert defaults["BANLIEUE_SSH_AUTHORIZED_KEYS"] == '"[]"'
    assert defaults["BANLIEUE_DISK_GIB"] == '"40"'


@pytest.mark.parametrize("flavor", FLAVORS)
def test_lists_are_given_as_yaml(repository: Path, flavor: str) -> None:
    keys = ["ssh-ed25519 AAAA a: 'b'", "ssh-rsa AAAB c"]
    references = [{"namespace": "vcenters", "name": "vc-a"}]
    given = {
        "BANLIEUE_SSH_AUTHORIZED_KEYS": json.dumps(keys),
        "BANLIEUE_PROVIDER_REFS": "[{namespace: vcenters, name: vc-a}]",
    }
    text = template(repository, flavor, {**template_values(flavor), **given})
    objects = yaml_documents(text)
    (cluster,) = of_kind(objects, "Cluster")
    if "topology" in cluster["spec"]:
        variables = {it["name"]: it["value"] for it in cluster["spec"]["topology"]["variables"]}
        assert variables["sshAuthorizedKeys"] == keys
        assert variables["providerRefs"] == references
        return
    templates = [it for it in objects if it["kind"].endswith("MachineTemplate")]
    assert len(templates) == 2
    for found in templates:
        assert found["spec"]["template"]["spec"]["sshAuthorizedKeys"] == keys
    (infrastructure,) = [
        it for it in objects if it["kind"] in {"VSphereCluster", "SimulatedCluster"}
    ]
    if flavor != "two-vcenters":
        assert infrastructure["spec"]["providerRefs"] == references


def test_a_class_comes_with_the_cluster_that_uses_it(repository: Path) -> None:
    objects = yaml_documents(template(repository, "topology"))
    (cluster,) = of_kind(objects, "Cluster")
    names = [found["metadata"]["name"] for found in of_kind(objects, "ClusterClass")]
    assert names == [cluster["spec"]["topology"]["classRef"]["name"]]


def template(
    repository: Path, flavor: str, values: Mapping[str, str] | None = None, *more: str
) -> str:
    given = template_values(flavor) if values is None else values
    flags = ["--target-namespace=tenant", "--kubernetes-version=v1.34.0", *more]
    flags += [f"--flavor={flavor}"] if flavor else []
    infrastructure = f"--infrastructure=banlieue:{VERSION}"
    clusterctl = Clusterctl(repository, variables=given)
    return clusterctl.run("generate", "cluster", "made", infrastructure, *flags).output


def bumped(version: str) -> str:
    """The next patch version."""
    head, _, patch = version.rpartition(".")
    return f"{head}.{int(patch) + 1}"
