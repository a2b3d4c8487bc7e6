"""The node patcher as a process, with the account it ships with, on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hack.components import CONFIG
from test.kit.controlplane import ControlPlane, KubectlError
from test.kit.kube import Kube
from test.kit.kubeconfig import read_kubeconfig
from test.kit.namespaces import create_namespace, discard_namespace
from test.kit.stack import Role, Stack, shipped_kinds
from test.kit.waiting import wait_until
from test.kit.watched import checked
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.slow

UUID: Final = "420bcf8f-a2f2-d154-0f25-1d3a59f0c6e1"
SWAPPED: Final = "8FCF0B42-F2A2-54D1-0F25-1D3A59F0C6E1"
OTHER: Final = "4211d3b8-0f0e-4a68-9a13-5d3ad7f20f11"
SECONDS: Final = 60.0
CAPI: Final = "cluster.x-k8s.io"
ACCOUNT: Final = "banlieue-node-patcher"

Object = dict[str, Any]


def definition(kind: str) -> Object:
    """A kind of Cluster API, whatever its fields."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta2",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{CAPI}"},
        "spec": {
            "group": CAPI,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


@pytest.fixture
def tenant(kube: Kube) -> Iterator[str]:
    name = create_namespace(kube, "tenant")
    yield name
    discard_namespace(kube, name)


@pytest.fixture
def patcher(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> Iterator[tuple[Role, str]]:
    """The role, not started yet, and the namespace it is installed in."""
    control_plane.install_crds([*shipped_kinds(), definition("Cluster"), definition("Machine")])
    text = control_plane.kubectl("kustomize", str(CONFIG / "node-patcher"))
    rights = [
        it
        for it in yaml_documents(text.replace("banlieue-system", namespace))
        if it["kind"] != "Deployment"
    ]
    kube = control_plane.kube
    for obj in rights:
        kube.apply(obj)
    identity = read_kubeconfig(control_plane.kubeconfig).identity
    assert identity is not None
    key = max(identity.key.decode().splitlines(), key=len)
    with Stack(control_plane, tmp_path, namespace) as stack, checked(stack, key):
        yield stack.node_patcher(), namespace
    for obj in rights:
        if obj["kind"].startswith("ClusterRole"):
            kube.delete(obj["kind"], obj["metadata"]["name"])
    for kind in ("clusters", "machines"):
        kube.delete("customresourcedefinitions", f"{kind}.{CAPI}")


@pytest.fixture
def nodes(kube: Kube) -> Iterator[dict[str, str]]:
    """Nodes by name, with the system UUID each of them tells."""
    made = {"swapped": SWAPPED, "bystander": OTHER, "nameless": ""}
    for name, system_uuid in made.items():
        kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        info = {"nodeInfo": a_node_info(system_uuid)}
        kube.patch("nodes", name, {"status": info}, subresource="status")
    yield made
    for name in made:
        kube.delete("nodes", name)


def a_node_info(system_uuid: str) -> Object:
    words = (
        "architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion "
        "machineID operatingSystem osImage"
    )
    return {**dict.fromkeys(words.split(), "x"), "systemUUID": system_uuid}


def machine(name: str, uuid: str) -> Object:
    reference = {
        "apiGroup": "infrastructure.banlieue.io",
        "kind": "VSphereMachine",
        "name": name,
    }
    spec = {
        "clusterName": "prod",
        "providerID": f"vsphere://{uuid}",
        "infrastructureRef": reference,
    }
    return {
        "apiVersion": f"{CAPI}/v1beta2",
        "kind": "Machine",
        "metadata": {"name": name},
        "spec": spec,
    }


def grant(where: str, installed_in: str) -> list[Object]:
    """What the documentation has people apply for one cluster."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"namespace": where, "name": "node-patcher-prod"},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["prod-kubeconfig"],
                "verbs": ["get"],
            }
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"namespace": where, "name": "node-patcher-prod"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": "node-patcher-prod",
        },
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": installed_in}],
    }
    return [role, binding]


@pytest.mark.security("7.2")
@pytest.mark.usefixtures("nodes")
def test_a_node_gets_its_id_once_the_kubeconfig_may_be_read(
    control_plane: ControlPlane, patcher: tuple[Role, str], tenant: str
) -> None:
    kube, (role, installed_in) = control_plane.kube, patcher
    kube.create(
        {"apiVersion": f"{CAPI}/v1beta2", "kind": "Cluster", "metadata": {"name": "prod"}}, tenant
    )
    kube.create(machine("worker", UUID), tenant)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "prod-kubeconfig"},
        "stringData": {"value": control_plane.kubeconfig.read_text()},
    }
    kube.create(secret, tenant)
    before = control_plane.audit_position()
    role.start()

    def told(reason: str) -> list[Object]:
        events = kube.list("events.events.k8s.io", tenant)
        return [it for it in events if it["reason"] == reason]

    (refusal,) = wait_until(
        lambda: told("NodeNotIdentified"), SECONDS, "the Cluster to say who needs the kubeconfig"
    )
    assert f"ServiceAccount {ACCOUNT}" in refusal["note"]
    assert refusal["regarding"]["kind"] == "Cluster"
    for obj in grant(tenant, installed_in):
        kube.create(obj)
    wait_until(
        lambda: control_plane.kubectl(
            *("auth", "can-i", "get", "secret/prod-kubeconfig", "-n", tenant, "--as", role.user)
        ),
        SECONDS,
        "the right to be in force",
        retry_on=(KubectlError,),
    )
    # Whoever waits for the next look need not wait: a new Machine makes one.
    kube.create(machine("another", OTHER.replace("4211", "4212")), tenant)

    def provider_id() -> str:
        return str(kube.get("nodes", "swapped")["spec"].get("providerID", ""))

    assert wait_until(provider_id, SECONDS, "the Node to be told") == f"vsphere://{UUID}"
    (done,) = wait_until(lambda: told("NodeIdentified"), SECONDS, "the Machine to say so")
    assert (done["regarding"]["kind"], done["regarding"]["name"]) == ("Machine", "worker")
    for name in ("bystander", "nameless"):
        assert "providerID" not in kube.get("nodes", name)["spec"]
    role.stop()
    # As itself it wrote events and its Lease; the Node it wrote as whom the kubeconfig names.
    written = {it.resource for it in control_plane.audit_writes(before, user=role.user)}
    assert written <= {"events", "leases"}
