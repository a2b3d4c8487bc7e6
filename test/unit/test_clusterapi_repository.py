import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cluster.clusterapi import repository
from hack.cluster.clusterapi.repository import (
    CONFIGURATION,
    PROVIDER,
    RepositoryError,
    Upstream,
    add_release,
    cached_repository,
    with_image,
)
from hack.images import catalog
from hack.tools.catalog import ToolError
from test.kit.yaml_text import yaml_documents

Object = dict[str, Any]

RENDERED = """\
kind: CustomResourceDefinition
spec:
  properties:
    imagePullPolicy:
      description: the image:name to pull
---
kind: Deployment
spec:
  containers:
  - args:
    - --address=${ADDRESS:=:8443}
    image: somewhere.example/controller:main
    imagePullPolicy: Always
"""
DEFINITION = "---\nkind: CustomResourceDefinition\nmetadata: {name: certificates.cert-manager.io}\n"


class Kustomize:
    """Renders every folder alike, and counts."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.rendered = RENDERED

    def __call__(self, folder: Path) -> str:
        self.folders.append(folder)
        return self.rendered


@pytest.fixture
def kustomize() -> Kustomize:
    return Kustomize()


@pytest.fixture
def upstream(tmp_path: Path, kustomize: Kustomize) -> Upstream:
    capi = tmp_path / "cluster-api"
    capi.mkdir()
    (capi / "metadata.yaml").write_text("kind: Metadata\n")
    definitions = tmp_path / "cert-manager" / "deploy" / "crds"
    definitions.mkdir(parents=True)
    (definitions / "certificates.yaml").write_text(DEFINITION)
    return Upstream(capi, "v1.14.2", tmp_path / "cert-manager", "v1.21.1", kustomize)


def release(
    version: str = "v0.1.0", components: str = "kind: Namespace\n"
) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        (folder / "infrastructure-components.yaml").write_text(components)
        (folder / "metadata.yaml").write_text("kind: Metadata\n")
        (folder / "cluster-template.yaml").write_text("kind: Cluster\n")
        return version

    return write


def test_every_url_of_the_configuration_leads_to_a_file(upstream: Upstream, tmp_path: Path) -> None:
    found = cached_repository(upstream, release(), tmp_path / "cache")
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    for provider in configuration["providers"]:
        label, version, file = provider["url"].removeprefix("file://${REPO}/").split("/")
        assert version == "latest"
        (folder,) = (found / label).iterdir()
        assert (folder / file).is_file(), provider
        assert (folder / "metadata.yaml").is_file()
    cert_manager = configuration["cert-manager"]["url"].removeprefix("file://${REPO}/")
    assert (found / cert_manager).is_file()


def test_the_configuration_names_the_pinned_cert_manager() -> None:
    configuration = yaml.safe_load(CONFIGURATION.read_text())["cert-manager"]
    pinned = Upstream.pinned().cert_manager_version
    assert configuration["version"] == pinned
    assert f"/cert-manager/{pinned}/" in configuration["url"]


def test_the_components_name_the_images_that_can_be_made() -> None:
    known = {image.name for image in catalog.IMAGES}
    assert set(Upstream.pinned().images()) <= known


def test_our_image_takes_the_place_of_theirs(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write(tmp_path / "repository")
    components = tmp_path / "repository" / "cluster-api" / "v1.14.2" / "core-components.yaml"
    definition, deployment = yaml_documents(components.read_text())
    assert deployment["spec"]["containers"] == [
        {
            "args": ["--address=${ADDRESS:=:8443}"],
            "image": "localhost/cluster-api-core:v1.14.2",
            "imagePullPolicy": "IfNotPresent",
        }
    ]
    assert definition == yaml_documents(RENDERED)[0]


def test_each_manager_runs_its_own_image(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write(tmp_path / "repository")
    for path in (tmp_path / "repository").rglob("*-components.yaml"):
        named = [line for line in path.read_text().splitlines() if " image: " in line]
        assert len(named) == 1
        assert named[0].split()[-1] in upstream.images()
    assert len(set(upstream.images())) == 4


@pytest.mark.parametrize("rendered", ["kind: Namespace\n", RENDERED + RENDERED])
def test_components_without_exactly_one_container_are_refused(rendered: str) -> None:
    with pytest.raises(RepositoryError, match="one of each is expected"):
        with_image(rendered, "localhost/x:1")


def test_a_repository_is_rendered_once(
    upstream: Upstream, kustomize: Kustomize, tmp_path: Path
) -> None:
    first = cached_repository(upstream, release(), tmp_path / "cache")
    folders = len(kustomize.folders)
    assert folders == 3
    assert cached_repository(upstream, release(), tmp_path / "cache") == first
    assert len(kustomize.folders) == folders


def test_another_release_is_another_repository_with_the_same_components(
    upstream: Upstream, kustomize: Kustomize, tmp_path: Path
) -> None:
    first = cached_repository(upstream, release(), tmp_path / "cache")
    second = cached_repository(upstream, release(components="kind: Role\n"), tmp_path / "cache")
    third = cached_repository(upstream, release("v0.1.1"), tmp_path / "cache")
    assert len({first, second, third}) == 3
    assert len(kustomize.folders) == 3
    components = second / PROVIDER / "v0.1.0" / "infrastructure-components.yaml"
    assert components.read_text() == "kind: Role\n"
    assert [path.name for path in (third / PROVIDER).iterdir()] == ["v0.1.1"]


def test_a_failure_leaves_nothing_to_be_taken_for_a_repository(
    upstream: Upstream, kustomize: Kustomize, tmp_path: Path
) -> None:
    kustomize.rendered = "kind: Namespace\n"
    with pytest.raises(RepositoryError):
        cached_repository(upstream, release(), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_repositories_of_long_ago_are_removed(upstream: Upstream, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    old = cached_repository(upstream, release(), cache)
    long_ago = time.time() - 31 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    new = cached_repository(upstream, release("v0.1.1"), cache)
    assert not old.exists()
    assert new.is_dir()


def test_releases_of_ours_stand_side_by_side(tmp_path: Path) -> None:
    assert add_release(tmp_path, release("v0.1.0")) == "v0.1.0"
    assert add_release(tmp_path, release("v0.1.1")) == "v0.1.1"
    versions = {path.name for path in (tmp_path / PROVIDER).iterdir()}
    assert versions == {"v0.1.0", "v0.1.1"}
    with pytest.raises(RepositoryError, match="there already"):
        add_release(tmp_path, release("v0.1.1"))


def test_a_release_without_metadata_is_refused(tmp_path: Path) -> None:
    def write(folder: Path) -> str:
        (folder / "infrastructure-components.yaml").write_text("kind: Namespace\n")
        return "v0.1.0"

    with pytest.raises(RepositoryError, match=r"no metadata\.yaml"):
        add_release(tmp_path, write)
    assert list((tmp_path / PROVIDER).iterdir()) == []


def test_a_missing_kubectl_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find_tool(name: str) -> Path:
        raise ToolError(f"{name} is not built yet; run: make tools")

    monkeypatch.setattr(repository, "find_tool", find_tool)
    with pytest.raises(ToolError, match="make tools"):
        repository.kubectl_kustomize(tmp_path)


@pytest.fixture
def cert_manager(upstream: Upstream, tmp_path: Path) -> list[Object]:
    upstream.write(tmp_path / "repository")
    path = tmp_path / "repository" / "cert-manager" / "v1.21.1" / "cert-manager.yaml"
    return [found for found in yaml_documents(path.read_text()) if found]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def test_cert_manager_comes_with_its_definitions(cert_manager: list[Object]) -> None:
    (definition,) = of_kind(cert_manager, "CustomResourceDefinition")
    assert definition["metadata"]["name"] == "certificates.cert-manager.io"


def test_a_cert_manager_without_definitions_is_refused(upstream: Upstream, tmp_path: Path) -> None:
    (upstream.cert_manager / "deploy" / "crds" / "certificates.yaml").unlink()
    with pytest.raises(RepositoryError, match="no CustomResourceDefinitions"):
        upstream.write(tmp_path / "repository")


def test_cert_manager_stays_where_clusterctl_counts_it(cert_manager: list[Object]) -> None:
    (namespace,) = of_kind(cert_manager, "Namespace")
    assert namespace["metadata"]["name"] == "cert-manager"
    places = {found["metadata"].get("namespace", "cert-manager") for found in cert_manager}
    assert places == {"cert-manager"}


def test_each_role_of_cert_manager_has_rights_of_its_own(cert_manager: list[Object]) -> None:
    accounts = {account["metadata"]["name"] for account in of_kind(cert_manager, "ServiceAccount")}
    used = [
        deployment["spec"]["template"]["spec"]["serviceAccountName"]
        for deployment in of_kind(cert_manager, "Deployment")
    ]
    assert len(used) == 3
    assert set(used) == accounts
    roles = of_kind(cert_manager, "ClusterRole") + of_kind(cert_manager, "Role")
    rules = [rule for role in roles for rule in role["rules"]]
    assert rules
    for rule in rules:
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
    names = {(role["kind"], role["metadata"]["name"]) for role in roles}
    for binding in of_kind(cert_manager, "ClusterRoleBinding") + of_kind(
        cert_manager, "RoleBinding"
    ):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in names
        assert {subject["name"] for subject in binding["subjects"]} <= accounts


def test_cert_manager_runs_restricted_from_our_image(cert_manager: list[Object]) -> None:
    for deployment in of_kind(cert_manager, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == "localhost/cert-manager:v1.21.1"
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
