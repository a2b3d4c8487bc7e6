"""What is in `config`, file by file; how kustomize builds it is seen on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from banlieue.api import names
from banlieue.cli import roles
from banlieue.sdk.registry import backend_names
from test.kit.yaml_text import yaml_documents

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
BACKENDS = sorted(path.parent.name for path in CONFIG.glob("providers/*/kustomization.yaml"))
BACKENDS.remove("base")

# Kinds an install may consist of; none of them is ours.
BUILT_IN = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Deployment",
    "Namespace",
    "Role",
    "RoleBinding",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
NAMESPACED = {"Deployment", "Role", "RoleBinding", "ServiceAccount"}

Object = dict[str, Any]


def load(path: Path) -> list[Object]:
    return [it for it in yaml_documents(path.read_text(encoding="utf-8")) if it]


def objects(folder: Path) -> Iterator[Object]:
    """Everything a kustomization takes in, before it changes anything."""
    (kustomization,) = load(folder / "kustomization.yaml")
    for resource in kustomization["resources"]:
        path = (folder / resource).resolve()
        yield from objects(path) if path.is_dir() else load(path)


COMPONENTS = list(objects(CONFIG / "default"))
ACCOUNTS = list(objects(CONFIG / "providers" / "base"))
PATCHER = list(objects(CONFIG / "node-patcher"))
EVERYTHING = (*COMPONENTS, *ACCOUNTS, *PATCHER)
DEPLOYMENTS = [it for it in EVERYTHING if it["kind"] == "Deployment"]


def named(kind: str, name: str) -> Object:
    (found,) = [it for it in COMPONENTS if it["kind"] == kind and it["metadata"]["name"] == name]
    return found


def rules_of(*roles: str) -> list[Object]:
    """The rules of roles, with those that they take in by labels."""
    return [
        rule
        for it in COMPONENTS
        if it["kind"] in {"ClusterRole", "Role"} and it["metadata"]["name"] in roles
        for role in (it, *taken_in(it))
        for rule in role.get("rules", ())
    ]


def taken_in(role: Object) -> Iterator[Object]:
    for selector in role.get("aggregationRule", {}).get("clusterRoleSelectors", ()):
        for it in COMPONENTS:
            labels = it["metadata"].get("labels", {})
            if it["kind"] == "ClusterRole" and selector["matchLabels"].items() <= labels.items():
                yield it


def container(deployment: Object) -> Object:
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


each_deployment = pytest.mark.parametrize(
    "deployment", DEPLOYMENTS, ids=lambda it: it["metadata"]["name"]
)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def test_every_definition_is_part_of_the_install() -> None:
    (kustomization,) = load(CONFIG / "crd" / "kustomization.yaml")
    made = sorted(f"bases/{path.name}" for path in (CONFIG / "crd" / "bases").glob("*.yaml"))
    assert kustomization["resources"] == made


@pytest.mark.parametrize("folder", ["admission", "rbac", "manager", "node-patcher"])
def test_no_file_is_left_out(folder: str) -> None:
    (kustomization,) = load(CONFIG / folder / "kustomization.yaml")
    there = {path.name for path in (CONFIG / folder).glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == there


@pytest.mark.identity("0.11")
def test_the_components_hold_no_custom_resource() -> None:
    """And no ConfigMap: the installation's id is made at run time."""
    assert {it["kind"] for it in COMPONENTS} == BUILT_IN
    assert {it["kind"] for it in (*ACCOUNTS, *PATCHER)} <= BUILT_IN


def test_there_is_one_namespace_and_everything_lives_in_it() -> None:
    (namespace,) = [it for it in COMPONENTS if it["kind"] == "Namespace"]
    assert namespace["metadata"]["name"] == names.SYSTEM_NAMESPACE
    for obj in EVERYTHING:
        lives_in = obj["metadata"].get("namespace")
        assert lives_in == (names.SYSTEM_NAMESPACE if obj["kind"] in NAMESPACED else None), obj


def test_the_namespace_enforces_restricted_pods() -> None:
    labels = named("Namespace", names.SYSTEM_NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_cluster_wide_names_begin_with_the_namespace() -> None:
    for obj in EVERYTHING:
        if obj["kind"] in NAMESPACED | {"Namespace", "CustomResourceDefinition"}:
            continue
        name = obj["metadata"]["name"]
        # What providers are bound to is called the same in every installation, for the operator.
        shared = obj["kind"] == "ClusterRole" and name.startswith("banlieue-provider-")
        assert shared or name.startswith(f"{names.SYSTEM_NAMESPACE}-"), obj


def test_no_name_is_used_twice() -> None:
    seen = [(it["kind"], it["metadata"]["name"]) for it in EVERYTHING]
    assert len(seen) == len(set(seen))


def test_nothing_looks_like_a_variable_of_clusterctl() -> None:
    for path in CONFIG.rglob("*.yaml"):
        assert "${" not in path.read_text(encoding="utf-8"), path


def test_the_components_say_whose_they_are() -> None:
    (kustomization,) = load(CONFIG / "default" / "kustomization.yaml")
    (labels,) = kustomization["labels"]
    assert labels["pairs"]["cluster.x-k8s.io/provider"] == "infrastructure-banlieue"


# Pods


@each_deployment
def test_a_pod_has_no_more_than_it_needs(deployment: Object) -> None:
    pod, process = deployment["spec"]["template"]["spec"], container(deployment)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert process["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod.get("hostNetwork")
    assert "volumes" not in pod


@each_deployment
def test_clusterctl_finds_its_container(deployment: Object) -> None:
    process = container(deployment)
    assert process["name"] == "manager"
    assert process["imagePullPolicy"] == "IfNotPresent"
    assert not process["image"].endswith(":latest")


@each_deployment
def test_two_of_a_kind_never_work_side_by_side(deployment: Object) -> None:
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


@each_deployment
def test_the_selector_finds_its_pods_only(deployment: Object) -> None:
    wanted = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert wanted.items() <= labels.items()
    assert wanted["app.kubernetes.io/component"] in {
        "controller",
        "operator",
        "provider",
        "node-patcher",
    }


@each_deployment
def test_the_probes_ask_where_the_process_answers(deployment: Object) -> None:
    process = container(deployment)
    (port,) = process["ports"]
    assert f"--http-port={port['containerPort']}" in process["args"]
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in paths.items():
        assert process[probe]["httpGet"] == {"path": path, "port": port["name"]}


@each_deployment
def test_a_pod_may_end_in_order(deployment: Object) -> None:
    from banlieue.sdk.runtime.process import Options

    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    # What comes after the passes: events, hooks, the Leases handed back.
    assert grace >= Options(role="any").grace + 10


@each_deployment
def test_a_restarted_container_keeps_its_leases(deployment: Object) -> None:
    fields = {
        it["name"]: it["valueFrom"]["fieldRef"]["fieldPath"] for it in container(deployment)["env"]
    }
    assert fields == {
        "POD_NAME": "metadata.name",
        "POD_UID": "metadata.uid",
        "POD_NAMESPACE": "metadata.namespace",
    }


def parsed(deployment: Object, backend: str = "simulated") -> tuple[str, dict[str, Any]]:
    """The role a Deployment runs, and its options as the command line reads them."""
    replaced = {"$(POD_NAMESPACE)": "elsewhere", "BACKEND": backend}
    arguments = []
    for argument in container(deployment)["args"]:
        for text, value in replaced.items():
            argument = argument.replace(text, value)  # noqa: PLW2901 - one value after the other
        arguments.append(argument)
    commands = {command.name: command for command in roles.COMMANDS}
    command = commands[arguments[0]]
    assert isinstance(command, click.Command)
    context = command.make_context(arguments[0], arguments[1:])
    return arguments[0], context.params


def test_the_controller_is_told_what_the_command_line_knows() -> None:
    role, options = parsed(named("Deployment", "banlieue-controller"))
    assert role == "controller"
    assert options["http_host"] == "0.0.0.0"  # noqa: S104 - in a pod
    assert options["system_namespace"] == "elsewhere"
    assert options["leader_elect"]
    assert options["namespace"] == "", "it serves all namespaces"


def test_the_operator_is_told_what_the_command_line_knows() -> None:
    role, options = parsed(named("Deployment", "banlieue-operator"))
    assert role == "operator"
    assert options["http_host"] == "0.0.0.0"  # noqa: S104 - in a pod
    assert options["system_namespace"] == "elsewhere"
    assert options["leader_elect"]
    assert not options["skip_provider_classes"]
    assert options["image"] == "", "providers run what the operator runs"


def test_the_node_patcher_is_told_what_the_command_line_knows() -> None:
    (deployment,) = [it for it in PATCHER if it["kind"] == "Deployment"]
    role, options = parsed(deployment)
    assert role == "node-patcher"
    assert options["http_host"] == "0.0.0.0"  # noqa: S104 - in a pod
    assert options["system_namespace"] == "elsewhere"
    assert options["leader_elect"]
    assert options["namespace"] == "", "it looks at all namespaces"


@each_backend
def test_a_provider_is_told_what_the_command_line_knows(backend: str) -> None:
    (deployment,) = [it for it in ACCOUNTS if it["kind"] == "Deployment"]
    role, options = parsed(deployment, backend)
    assert (role, options["backend"]) == ("provider", backend)
    assert options["namespace"] == options["system_namespace"] == "elsewhere"
    assert container(deployment)["args"][1] == "BACKEND", "the overlays put theirs there"


# Backends


def test_there_is_a_static_provider_for_every_backend() -> None:
    assert sorted(backend_names()) == BACKENDS


@each_backend
def test_a_backends_provider_is_set_up_for_that_backend(backend: str) -> None:
    (kustomization,) = load(CONFIG / "providers" / backend / "kustomization.yaml")
    assert kustomization["resources"] == ["../base"]
    assert kustomization["nameSuffix"] == f"-{backend}"
    (labels,) = kustomization["labels"]
    assert labels["pairs"] == {"app.kubernetes.io/component": f"provider-{backend}"}
    assert labels["includeSelectors"], "or one would take the pods of another"
    values = [yaml.safe_load(it["patch"])[0]["value"] for it in kustomization["patches"]]
    assert values == [backend, f"banlieue-provider-{backend}"]


# Rights


def machine_kinds() -> set[str]:
    return kinds_labelled(names.LABEL_MACHINE_KIND)


def kinds_labelled(label: str) -> set[str]:
    definitions = (it for it in COMPONENTS if it["kind"] == "CustomResourceDefinition")
    return {
        it["spec"]["names"]["plural"]
        for it in definitions
        if label in it["metadata"].get("labels", {})
    }


@pytest.mark.security("7.1")
def test_the_node_patcher_comes_without_any_right_on_secrets_and_beside_the_install() -> None:
    resources = {
        resource for it in PATCHER for rule in it.get("rules", ()) for resource in rule["resources"]
    }
    assert resources == {"clusters", "machines", "providerclasses", "events", "leases", "pods"}
    assert not {it["metadata"]["name"] for it in PATCHER} & {
        it["metadata"]["name"] for it in (*COMPONENTS, *ACCOUNTS)
    }


def test_the_controller_may_make_machines_of_every_backend() -> None:
    machines, waits, endpoints, claims, computed, statuses = rules_of(
        "banlieue-system-controller-backends"
    )
    clusters = kinds_labelled(names.LABEL_CLUSTER_KIND)
    assert set(machines["resources"]) == machine_kinds()
    assert set(waits["resources"]) == {f"{it}/status" for it in machine_kinds()}
    of_machines = {it.replace("machines", "machinetemplates") for it in machine_kinds()}
    assert (set(endpoints["resources"]), endpoints["verbs"]) == (clusters, ["patch"])
    owners = {f"{it}/finalizers" for it in machine_kinds() | clusters}
    assert (set(claims["resources"]), claims["verbs"]) == (owners, ["update"])
    assert set(computed["resources"]) == of_machines | clusters
    assert computed["verbs"] == ["list", "watch"]
    assert statuses["resources"] == [f"{it}/status" for it in computed["resources"]]
    assert statuses["verbs"] == ["patch"]


def test_the_operator_may_see_machines_of_every_backend_and_bind_its_providers() -> None:
    machines, binding = rules_of("banlieue-system-operator-backends")
    assert set(machines["resources"]) == machine_kinds()
    assert set(binding["resourceNames"]) == {f"banlieue-provider-{it}" for it in BACKENDS}
    assert binding["verbs"] == ["bind"]


@each_backend
def test_a_provider_may_write_no_machines_but_its_own(backend: str) -> None:
    touched = {
        resource
        for rule in rules_of(f"banlieue-provider-{backend}")
        if names.INFRASTRUCTURE_GROUP in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert touched == {f"{backend}machines", f"{backend}machines/status"}


def test_nobody_but_a_static_provider_reads_secrets_and_only_in_the_install_namespace() -> None:
    readers = [
        (it["kind"], it["metadata"]["name"])
        for it in (*COMPONENTS, *ACCOUNTS)
        for rule in it.get("rules", ())
        if {"secrets", "*"} & set(rule["resources"]) and {"", "*"} & set(rule["apiGroups"])
    ]
    assert readers == [("Role", "banlieue-provider")]


def test_only_cluster_api_has_rights_by_wildcard() -> None:
    wild = [
        it["metadata"]["name"]
        for it in COMPONENTS
        for rule in it.get("rules", ())
        if "*" in (*rule["resources"], *rule["apiGroups"], *rule["verbs"])
    ]
    assert wild == ["banlieue-system-cluster-api"]


def test_both_managers_of_cluster_api_get_their_rights() -> None:
    labels = named("ClusterRole", "banlieue-system-cluster-api")["metadata"]["labels"]
    assert labels == {
        "cluster.x-k8s.io/aggregate-to-manager": "true",
        "kubeadm.controlplane.cluster.x-k8s.io/aggregate-to-manager": "true",
    }


def test_people_may_see_all_of_our_kinds_and_write_no_machine() -> None:
    people = [f"banlieue-system-{role}" for role in ("view", "edit", "admin")]
    rules = [(name, rule) for name in people for rule in rules_of(name)]
    seen = {what for _, rule in rules if "list" in rule["verbs"] for what in rule["resources"]}
    written = {what for _, rule in rules if "create" in rule["verbs"] for what in rule["resources"]}
    definitions = (it for it in COMPONENTS if it["kind"] == "CustomResourceDefinition")
    plurals = {it["spec"]["names"]["plural"] for it in definitions}
    assert seen == plurals - {"providerclasses"}
    assert not written & machine_kinds()
    for name in people:
        labels = named("ClusterRole", name)["metadata"]["labels"]
        taken_in = [label.rpartition("-")[2] for label in labels]
        assert taken_in == ["view", "edit", "admin"][people.index(name) :]


def test_every_binding_is_of_an_account_and_a_role_that_exist() -> None:
    there = {(it["kind"], it["metadata"]["name"]) for it in (*COMPONENTS, *ACCOUNTS)}
    for obj in (*COMPONENTS, *ACCOUNTS):
        if obj["kind"] not in {"ClusterRoleBinding", "RoleBinding"}:
            continue
        role = obj["roleRef"]["name"].replace("BACKEND", "vsphere")
        assert (obj["roleRef"]["kind"], role) in there
        for subject in obj["subjects"]:
            assert (subject["kind"], subject["name"]) in there
