"""Which objects an install is made of: decided without a cluster."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import banlieue
from banlieue.api import names
from banlieue.bootstrap import packed
from banlieue.bootstrap.objects import in_order, key_of, resource_of, stream, title
from banlieue.bootstrap.plan import (
    PlanError,
    Target,
    controller_plan,
    grant_name,
    grant_plan,
    operator_plan,
    provider_plan,
)
from banlieue.bootstrap.release import Release, VersionError, semantic_version
from banlieue.cli import roles
from banlieue.sdk.registry import own_backend_names
from hack.images.own import MANIFESTS, ROOT
from test.kit.yaml_text import yaml_documents

Object = dict[str, Any]
OWN = own_backend_names()
CRD = "CustomResourceDefinition"
each_backend = pytest.mark.parametrize("backend", OWN)


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [it for it in objects if it["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [it for it in of_kind(objects, kind) if it["metadata"]["name"] == name]
    return found


def every_plan(target: Target) -> list[list[Object]]:
    plans = [operator_plan(target), controller_plan(target)]
    return [*plans, *(provider_plan(backend, target) for backend in OWN)]


def text_of(objects: list[Object]) -> str:
    return stream(it for it in objects if it["kind"] != "CustomResourceDefinition")


# Order


def test_an_install_begins_with_its_namespace_and_ends_with_what_runs() -> None:
    for plan in every_plan(Target()):
        assert plan[0]["kind"] == "Namespace"
        assert plan[-1]["kind"] == "Deployment"


def test_each_object_comes_after_what_it_refers_to() -> None:
    for plan in every_plan(Target()):
        there: set[tuple[str, str]] = set()
        for obj in plan:
            wanted = [obj["roleRef"]] if "roleRef" in obj else []
            wanted += obj.get("subjects") or []
            needed = {(str(it["kind"]), str(it["name"])) for it in wanted}
            if obj["kind"] == "Deployment":
                account = obj["spec"]["template"]["spec"]["serviceAccountName"]
                needed.add(("ServiceAccount", account))
            if obj["kind"] == "ValidatingAdmissionPolicyBinding":
                needed.add(("ValidatingAdmissionPolicy", obj["spec"]["policyName"]))
            if namespace := obj["metadata"].get("namespace"):
                needed.add(("Namespace", namespace))
            assert needed <= there, title(obj)
            there.add((obj["kind"], obj["metadata"]["name"]))


def test_order_is_the_same_whatever_it_was_before() -> None:
    plan = operator_plan(Target())
    kinds = [it["kind"] for it in plan]
    assert [it["kind"] for it in in_order(reversed(plan))] == kinds


def test_nothing_is_there_twice_and_everything_has_a_place() -> None:
    for plan in every_plan(Target()):
        assert len({(resource_of(it), key_of(it)) for it in plan}) == len(plan)
        for obj in plan:
            assert resource_of(obj).namespaced == bool(obj["metadata"].get("namespace"))


def test_there_is_no_object_of_a_kind_of_ours() -> None:
    """It could not be applied in one go, and clusterctl could not delete the kinds."""
    for plan in every_plan(Target()):
        assert not [it for it in plan if "banlieue.io" in it["apiVersion"]]


@pytest.mark.identity("0.11")
def test_an_install_brings_nobody_an_id() -> None:
    for plan in every_plan(Target()):
        assert not of_kind(plan, "ConfigMap")


# What is in it


def test_every_kind_of_every_backend_of_ours_is_installed() -> None:
    found = {it["spec"]["names"]["kind"] for it in of_kind(operator_plan(Target()), CRD)}
    assert {"VirtualMachine", "Provider", "SimulatedMachine", "VSphereMachine"} <= found


def test_a_plan_is_made_anew_each_time() -> None:
    one = operator_plan(Target("elsewhere", Release("v9", "x/banlieue:v9")))
    for obj in one:
        obj["metadata"]["labels"] = {"spoilt": "true"}
    assert "spoilt" not in stream(operator_plan(Target()))


@each_backend
def test_the_operator_path_brings_the_role_that_providers_are_bound_to(backend: str) -> None:
    role = named(operator_plan(Target()), "ClusterRole", f"banlieue-provider-{backend}")
    assert role["aggregationRule"]


@each_backend
def test_a_static_provider_comes_with_everything_it_is_bound_to(backend: str) -> None:
    plan = provider_plan(backend, Target())
    (account,) = of_kind(plan, "ServiceAccount")
    assert account["metadata"]["name"] == f"banlieue-provider-{backend}"
    roles = {(it["kind"], it["metadata"]["name"]) for it in of_kind(plan, "ClusterRole", "Role")}
    bindings = of_kind(plan, "ClusterRoleBinding", "RoleBinding")
    assert {(it["roleRef"]["kind"], it["roleRef"]["name"]) for it in bindings} <= roles
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (
            account["metadata"]["name"],
            names.SYSTEM_NAMESPACE,
        )


@each_backend
def test_a_static_provider_serves_its_namespace_and_no_other(backend: str) -> None:
    (deployment,) = of_kind(provider_plan(backend, Target("team-b")), "Deployment")
    assert deployment["metadata"]["namespace"] == "team-b"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["provider", backend]
    assert "--namespace=$(POD_NAMESPACE)" in container["args"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector["app.kubernetes.io/component"] == f"provider-{backend}"
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_a_static_providers_namespace_is_marked_as_in_use_and_stays_restricted() -> None:
    (namespace,) = of_kind(provider_plan("simulated", Target("team-b")), "Namespace")
    labels = namespace["metadata"]["labels"]
    assert labels[names.LABEL_IN_USE] == "true"
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    (without,) = of_kind(operator_plan(Target()), "Namespace")
    assert names.LABEL_IN_USE not in without["metadata"]["labels"]


def test_a_third_partys_provider_gets_no_roles_of_ours() -> None:
    plan = provider_plan("acme", Target())
    assert of_kind(plan, "ClusterRole") == []
    (binding,) = of_kind(plan, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "banlieue-provider-acme"


def test_a_provider_beside_another_installation_learns_which_one_it_is_and_no_more() -> None:
    plan = provider_plan("vsphere", Target("team-b"), system_namespace="platform")
    (deployment,) = of_kind(plan, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    told = [it for it in container["args"] if it.startswith("--system-namespace")]
    assert told == ["--system-namespace=platform"]
    there = [it for it in plan if it["metadata"].get("namespace") == "platform"]
    assert [it["kind"] for it in there] == ["Role", "RoleBinding"]
    assert there[0]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["banlieue-installation"],
            "verbs": ["get"],
        }
    ]
    assert there[1]["subjects"][0]["namespace"] == "team-b"
    assert there[1]["subjects"][0]["name"] == "banlieue-provider-vsphere"


@pytest.mark.parametrize("name", ["", "Simulated", "a b", "x" * 60])
def test_what_is_no_backend_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="no name of a backend"):
        provider_plan(name, Target())


@pytest.mark.parametrize("namespace", ["banlieue-system", "operator"])
def test_without_the_operator_nobody_makes_workloads_or_hands_out_rights(namespace: str) -> None:
    whole, less = operator_plan(Target(namespace)), controller_plan(Target(namespace))
    gone = [it for it in whole if it not in less]
    assert [it for it in whole if it in less] == less, "the rest is the same"
    assert {it["kind"] for it in gone} >= {"Deployment", "ServiceAccount", "ClusterRoleBinding"}
    writers = [
        title(obj)
        for obj in less
        for rule in obj.get("rules") or ()
        if {"create", "patch", "update", "escalate", "bind", "*"} & set(rule["verbs"])
        and {"deployments", "roles", "clusterroles", "rolebindings", "clusterrolebindings"}
        & set(rule["resources"])
    ]
    assert writers == []
    assert [it["metadata"]["name"] for it in of_kind(less, "Deployment")] == ["banlieue-controller"]


def test_the_operator_can_be_told_to_make_no_classes() -> None:
    whole, skipping = operator_plan(Target()), operator_plan(Target(), default_classes=False)
    differing = [it for it in skipping if it not in whole]
    assert [title(it) for it in differing] == ["Deployment banlieue-system/banlieue-operator"]
    (container,) = differing[0]["spec"]["template"]["spec"]["containers"]
    command = next(it for it in roles.COMMANDS if it.name == "operator")
    context = command.make_context("operator", list(container["args"][1:]))
    assert context.params["skip_provider_classes"]


# Where


def test_another_namespace_leaves_no_trace_of_the_default() -> None:
    for plan in every_plan(Target("platform")):
        assert names.SYSTEM_NAMESPACE not in text_of(plan)
        assert {it["metadata"].get("namespace") for it in plan} == {None, "platform"}
        (namespace,) = of_kind(plan, "Namespace")
        assert namespace["metadata"]["name"] == "platform"


@pytest.mark.parametrize("namespace", ["banlieue", "my-banlieue-system", "banlieue-system-2"])
def test_a_namespace_whose_name_is_like_the_default_is_rewritten_to_once(namespace: str) -> None:
    plan = operator_plan(Target(namespace))
    named(plan, "ClusterRole", f"{namespace}-controller")
    binding = named(plan, "ClusterRoleBinding", f"{namespace}-controller")
    assert binding["subjects"][0]["namespace"] == namespace
    named(plan, "Deployment", "banlieue-controller")


def test_the_kinds_are_the_same_wherever_banlieue_is() -> None:
    here, there = (of_kind(operator_plan(Target(it)), CRD) for it in ("banlieue-system", "there"))
    assert here == there


@pytest.mark.parametrize("name", ["", "Upper", "a.b", "-a", "a-", "x" * 64, "a/b", "a\nb"])
def test_what_is_no_namespace_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="no name of a namespace"):
        Target(name)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_clusters_own_namespaces_are_not_restricted(name: str) -> None:
    with pytest.raises(PlanError, match="is the cluster's"):
        Target(name)
    grant_plan("default", ["simulated"])


# Which version


def test_every_pod_runs_the_image_of_the_release_and_says_so() -> None:
    release = Release.of("v1.2.3", "mirror.example:5000/team")
    for plan in every_plan(Target(release=release)):
        for obj in plan:
            assert obj["metadata"]["labels"]["app.kubernetes.io/version"] == "v1.2.3"
        for obj in of_kind(plan, "Deployment"):
            (container,) = obj["spec"]["template"]["spec"]["containers"]
            assert container["image"] == "mirror.example:5000/team/banlieue:v1.2.3"
        assert "banlieue:dev" not in text_of(plan)


def test_the_default_is_our_own_version_as_it_is_loaded_onto_nodes() -> None:
    version = semantic_version(banlieue.__version__)
    assert Release.of() == Release(version, f"localhost/banlieue:{version}")
    assert Release.of("v1", "mirror.example/").image == "mirror.example/banlieue:v1"


@pytest.mark.parametrize("version", ["latest", "v1/2", "a b", "-v1", "x" * 64, "v1\n", "sha256:ab"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(VersionError, match="is no version"):
        Release.of(version)


@pytest.mark.parametrize("registry", ["https://x", "Upper.example", "a b", "x//y", "x:y", " "])
def test_what_is_no_registry_is_refused(registry: str) -> None:
    with pytest.raises(VersionError, match="is no registry"):
        Release.of("v1", registry)


# Grants


def test_a_grant_lets_the_chosen_providers_read_secrets_there() -> None:
    plan = grant_plan("team-a", ["vsphere", "simulated", "vsphere"], system_namespace="platform")
    assert [it["kind"] for it in plan] == ["Role", "RoleBinding"] * 2
    for backend, (role, binding) in zip(
        ("simulated", "vsphere"), (plan[:2], plan[2:]), strict=True
    ):
        assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "team-a"
        assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
        assert binding["roleRef"]["name"] == role["metadata"]["name"] == grant_name(backend)
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (
            f"banlieue-provider-{backend}",
            "platform",
        )


def test_a_grant_to_one_backend_takes_nothing_from_another() -> None:
    one, other = (grant_plan("team-a", [backend]) for backend in ("vsphere", "simulated"))
    assert {key_of(it) for it in one}.isdisjoint({key_of(it) for it in other})


def test_a_grant_can_name_its_secrets() -> None:
    role, _ = grant_plan("team-a", ["vsphere"], secrets=["b", "a", "b"])
    assert role["rules"][0]["resourceNames"] == ["a", "b"]


def test_a_grant_needs_a_namespace_and_a_backend() -> None:
    with pytest.raises(PlanError, match="namespace"):
        grant_plan("", ["vsphere"])
    with pytest.raises(PlanError, match="at least one"):
        grant_plan("team-a", [])
    with pytest.raises(PlanError, match="backend"):
        grant_plan("team-a", ["../x"])


# The stream


def test_the_stream_reads_back_as_the_plan() -> None:
    target = Target("platform")
    for plan in (operator_plan(target), provider_plan("simulated", target)):
        assert yaml_documents(stream(plan)) == plan


# What the distribution carries


def test_the_wheel_and_the_image_carry_every_folder_that_is_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert packed == {f"config/{it}": f"banlieue/bootstrap/manifests/{it}" for it in MANIFESTS}
    text = (ROOT / "config/default/kustomization.yaml").read_text(encoding="utf-8")
    folders = {it.removeprefix("../") for it in yaml.safe_load(text)["resources"]}
    assert folders | {"default", "providers/base"} == {*MANIFESTS, "crd"}


def test_what_kustomize_can_and_we_cannot_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "folder", lambda: tmp_path)
    for text in ("namePrefix: x-", "labels: [{pairs: {a: b}, fields: []}]\nresources: [one.yaml]"):
        (tmp_path / "one.yaml").write_text("kind: ConfigMap\nmetadata: {name: one}\n")
        (tmp_path / "kustomization.yaml").write_text(text)
        packed._read.cache_clear()
        with pytest.raises(packed.ManifestError, match="use"):
            packed.read(".")
    (tmp_path / "kustomization.yaml").write_text("resources: [two.yaml]")
    packed._read.cache_clear()
    with pytest.raises(packed.ManifestError, match=r"missing: .*two\.yaml"):
        packed.read(".")
    packed._read.cache_clear()
