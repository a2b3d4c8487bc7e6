"""A machine of Cluster API on a real API server: our roles with the rights they ship with.

Cluster API's core is played: its kinds have no schema here, and the test writes what core writes.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from banlieue.api import names
from test.kit.barekinds import bare_kind
from test.kit.controlplane import ControlPlane
from test.kit.installed import GONE_SECONDS, READY_SECONDS, Registered
from test.kit.kube import Object
from test.kit.running import Running
from test.kit.stack import condition, is_ready
from test.kit.targets import new_target
from test.kit.watched import watched

pytestmark = pytest.mark.slow

NODES: Final = "simulatedmachines"
MACHINES: Final = "machines.cluster.x-k8s.io"
CLUSTERS: Final = "clusters.cluster.x-k8s.io"
LABELS: Final = {names.CAPI_LABEL_CLUSTER_NAME: "prod"}
SLOW_SECONDS: Final = 4.0
STAMPED: Final = {"f:providerRef", "f:placement", "f:userData", "f:teardown"}


@pytest.fixture
def cluster_api(control_plane: ControlPlane) -> Iterator[None]:
    """The two kinds of Cluster API that machines depend on."""
    kinds = [("Cluster", "clusters"), ("Machine", "machines")]
    definitions = [bare_kind(names.CAPI_GROUP, *kind) for kind in kinds]
    control_plane.install_crds(definitions)
    control_plane.kube.resources()
    yield
    for kind in (MACHINES, CLUSTERS):
        for obj in control_plane.kube.list(kind):
            meta = obj["metadata"]
            control_plane.kube.delete(kind, meta["name"], meta["namespace"])
    for definition in definitions:
        name = definition["metadata"]["name"]
        control_plane.kube.delete("customresourcedefinitions", name)
        control_plane.kube.wait_gone("customresourcedefinitions", name)


@pytest.fixture
def registered(
    request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path
) -> Iterator[Registered]:
    """banlieue installed with a simulated hypervisor, and a namespace with a Cluster."""
    request.getfixturevalue("cluster_api")
    with (
        new_target("simulated", tmp_path) as target,
        watched(control_plane, tmp_path, target) as found,
    ):
        made = found.registered
        made.kube.create(_object("Cluster", "prod", {"controlPlaneEndpoint": {}}), made.namespace)
        done = {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
        status = {"status": {"initialization": done}}
        made.kube.patch(CLUSTERS, "prod", status, made.namespace, subresource="status")
        yield made


def test_a_machine_of_cluster_api_lives_and_ends(registered: Registered) -> None:
    kube, tenant = registered.kube, registered.namespace
    grant(registered)
    kube.create(secret("boot"), tenant)
    running = Running.start(registered)

    # Nobody's yet: nothing is written to it.
    node = _object("SimulatedMachine", "node-1", template(registered), names.INFRASTRUCTURE_GROUP)
    created = kube.create(node, tenant)
    running.controller.kill9()
    running.controller.start()
    assert kube.get(NODES, "node-1", tenant) == created

    # Core claims it; there is no data yet.
    spec = {"clusterName": "prod", "bootstrap": {}, "infrastructureRef": _reference("node-1")}
    owner = kube.create(_object("Machine", "node-1", spec), tenant)
    claim = {"metadata": {"ownerReferences": [_owner(owner)]}}
    kube.patch(NODES, "node-1", claim, tenant)
    _wait(registered, "Ready", "WaitingForBootstrapData")
    assert kube.get(NODES, "node-1", tenant)["spec"] == created["spec"]

    # The data comes: it is placed, and moved away and back while its VM is being made.
    data = {"spec": {"bootstrap": {"dataSecretName": "boot"}}}
    with registered.target.slow_tasks(SLOW_SECONDS):
        kube.patch(MACHINES, "node-1", data, tenant)
        making = _wait(registered, "Ready", "Creating")
        assert _stamped(making) == STAMPED
        identity = making["spec"]["instance"]["uuid"]
        move(registered)

    # It is made once, and told.
    made = kube.wait_for(
        NODES, "node-1", tenant, until=is_ready, timeout=READY_SECONDS, what="Ready"
    )
    (vm,) = registered.target.vms()
    assert vm.uuid == identity == made["spec"]["instance"]["uuid"]
    assert made["spec"]["providerID"] == f"simulated://{vm.uuid}"
    assert made["status"]["initialization"] == {"provisioned": True}

    # Paused and deleted it waits; resumed, which its own object does not tell, it goes.
    kube.patch(CLUSTERS, "prod", {"spec": {"paused": True}}, tenant)
    _wait(registered, "Paused", "Paused")
    kube.delete(MACHINES, "node-1", tenant)
    kube.delete(NODES, "node-1", tenant)
    assert [it.uuid for it in registered.target.vms()] == [vm.uuid]
    kube.patch(CLUSTERS, "prod", {"spec": {"paused": False}}, tenant)
    kube.wait_gone(NODES, "node-1", tenant, timeout=GONE_SECONDS)
    assert registered.target.vms() == []


def move(registered: Registered) -> None:
    """All that `clusterctl move` does to a Machine whose VM is being made, with its own pause.

    It comes back where it was: paused, without status, with other uids.
    """
    kube, tenant = registered.kube, registered.namespace
    kube.patch(CLUSTERS, "prod", {"spec": {"paused": True}}, tenant)
    copied = {kind: kube.get(kind, "node-1", tenant) for kind in (MACHINES, NODES)}
    assert "providerID" not in copied[NODES]["spec"]
    for kind in (NODES, MACHINES):
        wiped = {names.CAPI_ANNOTATION_DELETE_FOR_MOVE: ""}
        wipe: list[Object] = [{"op": "add", "path": "/metadata/annotations", "value": wiped}]
        kube.patch(kind, "node-1", wipe, tenant)
        kube.delete(kind, "node-1", tenant)
        if kube.find(kind, "node-1", tenant):
            kube.patch(kind, "node-1", {"metadata": {"finalizers": None}}, tenant)
        kube.wait_gone(kind, "node-1", tenant)
    owner = kube.create(_fresh(copied[MACHINES]), tenant)
    node = _fresh(copied[NODES])
    node["metadata"]["ownerReferences"] = [_owner(owner)]
    kube.create(node, tenant)
    _wait(registered, "Paused", "Paused")
    kube.patch(CLUSTERS, "prod", {"spec": {"paused": False}}, tenant)


def grant(registered: Registered) -> None:
    """The right to read bootstrap data, as `banlieue bootstrap grant` gives it."""
    account = {
        "kind": "ServiceAccount",
        "name": "banlieue-provider-simulated",
        "namespace": registered.stack.namespace,
    }
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    group = "rbac.authorization.k8s.io"
    role: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": {"name": "boot"},
        "rules": [rule],
    }
    binding: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "boot"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "boot"},
        "subjects": [account],
    }
    for obj in (role, binding):
        obj["metadata"]["namespace"] = registered.namespace
        registered.kube.apply(obj)


def secret(name: str) -> Object:
    value = base64.b64encode(b"#cloud-config\n{}\n").decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {"value": value},
    }


def template(registered: Registered) -> dict[str, Any]:
    declared = registered.target.connection().capabilities
    return {
        "imageRef": {"name": "ubuntu"},
        "cpus": 1,
        "memoryMiB": 1024,
        "disks": [{"name": "root", "storageClass": declared.storage_classes[0].name}],
        "networkInterfaces": [{"name": "eth0", "networkClass": declared.network_classes[0].name}],
    }


def _fresh(obj: Object) -> Object:
    """An object as the mover makes it again."""
    kept = ("name", "labels", "annotations", "finalizers")
    metadata = {key: obj["metadata"][key] for key in kept if key in obj["metadata"]}
    rest = {key: it for key, it in obj.items() if key not in {"metadata", "status"}}
    return {**rest, "metadata": metadata}


def _wait(registered: Registered, kind: str, reason: str) -> Object:
    return registered.kube.wait_for(
        NODES,
        "node-1",
        registered.namespace,
        until=lambda it: condition(it, kind)[1] == reason,
        timeout=READY_SECONDS,
        what=reason,
    )


def _stamped(node: Object) -> set[str]:
    """The fields of the spec that the stamp owns."""
    found: set[str] = set()
    for entry in node["metadata"]["managedFields"]:
        if entry["manager"] == names.MANAGER_STAMP:
            found |= entry["fieldsV1"]["f:spec"].keys()
    return found


def _object(kind: str, name: str, spec: object, group: str = names.CAPI_GROUP) -> Object:
    version = "v1beta2" if group == names.CAPI_GROUP else names.VERSION
    return {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"name": name, "labels": LABELS},
        "spec": spec,
    }


def _reference(name: str) -> Object:
    return {"apiGroup": names.INFRASTRUCTURE_GROUP, "kind": "SimulatedMachine", "name": name}


def _owner(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": "Machine",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
