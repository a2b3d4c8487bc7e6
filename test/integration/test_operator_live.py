"""The operator on a real API server, with the account and the rights it ships with.

There is no node: what a Deployment would run is started here by the account that was made for it.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube, KubeError
from test.kit.namespaces import create_namespace, discard_namespace
from test.kit.operated import BINDING, OWNED, PROVIDERS, Operated
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import (
    Object,
    Role,
    Stack,
    credentials,
    is_ready,
    virtual_machine,
    vm_class,
    vm_image,
)
from test.kit.waiting import wait_until
from test.kit.watched import checked

pytestmark = pytest.mark.slow

IMAGE: Final = "registry.example.com/banlieue:v1"
MANAGER: Final = "banlieue.io/operator"
EVENTS: Final = "events.events.k8s.io"


@pytest.fixture(scope="module")
def operated(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operated]:
    """The operator makes the default classes itself."""
    with Stack(control_plane, tmp_path_factory.mktemp("operated")) as stack:
        stack.install()
        try:
            with checked(stack, PLANTED_PASSWORD):
                yield Operated(stack, stack.operator("--image", IMAGE).start())
        finally:
            stack.purge()
            for kind in (*OWNED, BINDING):
                for obj in stack.kube.list(
                    kind, label_selector="app.kubernetes.io/managed-by=banlieue-operator"
                ):
                    meta = obj["metadata"]
                    stack.kube.delete(kind, meta["name"], meta.get("namespace"), missing_ok=True)


@pytest.fixture
def elsewhere(kube: Kube) -> Iterator[str]:
    """A namespace that banlieue is not installed in."""
    name = create_namespace(kube, "infra")
    yield name
    discard_namespace(kube, name)


def test_default_classes_are_made_once(operated: Operated) -> None:
    classes = {obj["metadata"]["name"] for obj in operated.kube.list("providerclasses")}
    assert {"simulated", "vsphere"} <= classes
    made = operated.kube.get("providerclasses", "vsphere")
    assert made["spec"]["machine"]["kind"] == "VSphereMachine"
    operated.kube.wait_for("providerclasses", "vsphere", until=is_ready, what="Ready")


def test_a_provider_and_a_secret_are_enough(operated: Operated) -> None:
    namespace, kube = operated.stack.namespace, operated.kube
    name = "banlieue-provider-simulated-five"
    operated.register("five", namespace, endpoint="http://vcenter.invalid")
    told = operated.workload("five", namespace, name=name, namespace=namespace)
    assert told["image"] == IMAGE
    assert told["readyReplicas"] == 0
    found = operated.five(name, namespace)
    owner = kube.get(PROVIDERS, "five", namespace)
    for kind in OWNED:
        (reference,) = found[kind]["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["uid"]) == ("Provider", owner["metadata"]["uid"])
    assert "ownerReferences" not in found[BINDING]["metadata"]

    spec = found["deployments"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert spec["template"]["spec"]["serviceAccountName"] == name
    assert f"--provider={namespace}/five" in spec["template"]["spec"]["containers"][0]["args"]
    named = {
        resource: rule.get("resourceNames")
        for rule in found["roles"]["rules"]
        for resource in rule["resources"]
        if rule["verbs"] != ["create"]
    }
    assert named == {
        "providers": ["five"],
        "providers/status": ["five"],
        "secrets": ["five-creds"],
        "leases": [owner["metadata"]["uid"]],
    }
    assert found[BINDING]["roleRef"]["name"] == "banlieue-provider-simulated"
    assert a_pod_is_accepted(kube, namespace, found["deployments"])

    kube.delete(PROVIDERS, "five", namespace)
    operated.gone("five", namespace, name)


def a_pod_is_accepted(kube: Kube, namespace: str, deployment: Object) -> Object:
    """The pod of a Deployment where restricted pods only are taken."""
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    kube.patch("namespaces", namespace, level)
    template = deployment["spec"]["template"]
    meta = {**template["metadata"], "name": "tried", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
    return kube.create(pod, dry_run=True)


def test_the_operator_owns_the_workload_and_nothing_else_of_a_status(operated: Operated) -> None:
    namespace, kube = operated.stack.namespace, operated.kube
    operated.register("fields", namespace, endpoint="http://vcenter.invalid")
    operated.workload("fields", namespace, reason="WorkloadNotReady")
    found = kube.get(PROVIDERS, "fields", namespace)
    entries = [it for it in found["metadata"]["managedFields"] if it["manager"] == MANAGER]
    status = [it["fieldsV1"]["f:status"] for it in entries if it.get("subresource") == "status"]
    assert [list(it) for it in status] == [["f:workload"]]
    others = [it["fieldsV1"] for it in entries if it.get("subresource") != "status"]
    assert [list(it) for it in others] == [["f:metadata"]]
    assert list(others[0]["f:metadata"]) == ["f:finalizers"]
    assert "conditions" not in found["status"]
    kube.delete(PROVIDERS, "fields", namespace)
    operated.gone("fields", namespace, "banlieue-provider-simulated-fields")


def test_drift_is_put_right_and_a_class_edit_is_in_force_at_once(operated: Operated) -> None:
    namespace, kube = operated.stack.namespace, operated.kube
    machine = kube.get("providerclasses", "simulated")["spec"]["machine"]
    kube.apply(
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "ProviderClass",
            "metadata": {"name": "pinned"},
            "spec": {"backend": "simulated", "machine": machine, **everything_a_class_says()},
        }
    )
    operated.register("drift", namespace, endpoint="http://vcenter.invalid", of="pinned")
    name = "banlieue-provider-simulated-drift"
    told = operated.workload("drift", namespace, reason="WorkloadRefused")
    assert "its annotation banlieue.io/pod-labels has to have team=a" in told["message"]
    let_in = {"metadata": {"annotations": {"banlieue.io/pod-labels": "team=a"}}}
    kube.patch("namespaces", namespace, let_in)
    edited = kube.patch("providerclasses", "pinned", {"spec": {"logLevel": "info"}})
    generation = edited["metadata"]["generation"]
    operated.workload("drift", namespace, name=name, observedClassGeneration=generation)
    before = operated.five(name, namespace)
    policy = kube.get("networkpolicies", name, namespace)
    assert policy["spec"]["podSelector"] == before["deployments"]["spec"]["selector"]
    kube.delete("networkpolicies", name, namespace)
    kube.patch("deployments", name, {"spec": {"replicas": 0}}, namespace)
    kube.delete("roles", name, namespace)
    kube.patch(BINDING, name, {"subjects": []})
    wait_until(
        lambda: (
            operated.kube.find("roles", name, namespace)
            and essence(operated.five(name, namespace)) == essence(before)
        ),
        30,
        "everything to be as it was",
    )

    without_labels(operated, namespace, name)

    patch = {"spec": {"image": {"tag": "v0.2.0"}, "resources": odd_resources("2")}}
    kube.patch("providerclasses", "pinned", patch)
    operated.workload("drift", namespace, image="registry.example.com/banlieue:v0.2.0")
    since = operated.stack.control_plane.audit_position()
    kube.patch(PROVIDERS, "drift", {"metadata": {"labels": {"looked": "at"}}}, namespace)
    kube.patch("deployments", name, {"metadata": {"labels": {"looked": "at"}}}, namespace)
    operated.register("after", namespace, endpoint="http://vcenter.invalid", of="pinned")
    operated.workload("after", namespace, reason="WorkloadNotReady")
    written = operated.stack.control_plane.audit_writes(since, user=operated.operator.user)
    assert not [it for it in written if it.name in {"drift", name}], (
        "quantities are not fought over"
    )
    for provider_name in ("drift", "after"):
        kube.delete(PROVIDERS, provider_name, namespace)
        operated.gone(provider_name, namespace, f"banlieue-provider-simulated-{provider_name}")


def without_labels(operated: Operated, namespace: str, name: str) -> None:
    """The operator finds what it made by labels; without them by name, and labels it again."""
    kube = operated.kube
    kinds = (*OWNED, "networkpolicies", BINDING)
    for kind in kinds:
        where = None if kind == BINDING else namespace
        kube.patch(kind, name, {"metadata": {"labels": None}}, where)

    def found() -> bool:
        return all(len(kube.list(kind, label_selector=labelled(name))) == 1 for kind in kinds)

    wait_until(found, 30, "labels again")


def labelled(name: str) -> str:
    return f"app.kubernetes.io/managed-by=banlieue-operator,app.kubernetes.io/instance={name}"


def test_what_a_provider_leaves_behind_that_was_let_go_by_force_is_found(
    operated: Operated,
) -> None:
    """Somebody took the operator's finalizer off: the garbage collector leaves one object."""
    namespace, kube = operated.stack.namespace, operated.kube
    operated.register("forced", namespace, endpoint="http://vcenter.invalid")
    name = "banlieue-provider-simulated-forced"
    operated.workload("forced", namespace, reason="WorkloadNotReady")
    operated.operator.kill9()
    kube.patch(PROVIDERS, "forced", {"metadata": {"finalizers": None}}, namespace)
    kube.delete(PROVIDERS, "forced", namespace)
    kube.wait_gone(PROVIDERS, "forced", namespace)
    operated.operator.start()
    wait_until(lambda: operated.left(name) == [], 30, "everything to be gone")


def odd_resources(gib: str) -> Object:
    """Spelled as the API server does not."""
    return {"requests": {"cpu": "1000m", "memory": f"{gib}024Mi"}, "limits": {"cpu": "1.5"}}


def everything_a_class_says() -> Object:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    near = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "resources": odd_resources("1"),
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": near}
                ]
            },
        },
        "networkPolicy": {"backendAddresses": ["10.0.0.0/8"], "backendPorts": [902]},
        "imagePullSecrets": [{"name": "pull"}],
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "n"},
        "logLevel": "debug",
    }


def essence(found: dict[str, Object]) -> dict[str, Any]:
    return {
        kind: [obj.get(part) for part in ("rules", "subjects", "roleRef", "spec")]
        for kind, obj in found.items()
    }


def test_a_workload_in_another_namespace_leaves_nothing_behind(
    operated: Operated, elsewhere: str
) -> None:
    namespace, kube = operated.stack.namespace, operated.kube
    machine = kube.get("providerclasses", "simulated")["spec"]["machine"]
    of_class = {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "ProviderClass",
        "metadata": {"name": "apart"},
        "spec": {"backend": "simulated", "machine": machine, "workloadNamespace": elsewhere},
    }
    kube.apply(of_class)
    operated.register("apart", namespace, endpoint="http://vcenter.invalid", of="apart")
    name = "banlieue-provider-simulated-apart"
    operated.workload("apart", namespace, namespace=elsewhere)
    found = operated.five(name, namespace, elsewhere)
    for kind in ("deployments", "serviceaccounts"):
        assert "ownerReferences" not in found[kind]["metadata"]
    kube.patch("providerclasses", "apart", {"spec": {"workloadNamespace": None}})
    operated.workload("apart", namespace, namespace=namespace)
    operated.five(name, namespace)
    kube.patch("providerclasses", "apart", {"spec": {"workloadNamespace": elsewhere}})
    operated.workload("apart", namespace, namespace=elsewhere)
    assert sorted(operated.left(name)) == sorted(
        [
            f"deployments {elsewhere}",
            f"serviceaccounts {elsewhere}",
            f"roles {namespace}",
            f"rolebindings {namespace}",
            f"{BINDING} ",
        ]
    )
    kube.delete(PROVIDERS, "apart", namespace)
    operated.gone("apart", namespace, name)


def test_an_object_of_somebody_else_is_left_alone(operated: Operated) -> None:
    namespace, kube = operated.stack.namespace, operated.kube
    name = "banlieue-provider-simulated-taken"
    foreign = kube.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
        }
    )
    operated.register("taken", namespace, endpoint="http://vcenter.invalid")
    told = operated.workload("taken", namespace, reason="WorkloadConflict")
    assert BINDING[:-1] in told["message"].lower()
    wait_until(
        lambda: "WorkloadConflict" in {it.get("reason") for it in kube.list(EVENTS, namespace)},
        30,
        "an event",
    )
    assert kube.get(BINDING, name) == foreign
    kube.delete(PROVIDERS, "taken", namespace)
    kube.wait_gone(PROVIDERS, "taken", namespace)
    assert operated.left(name) == [f"{BINDING} "]
    kube.delete(BINDING, name)


def test_killed_and_started_again_it_writes_nothing(operated: Operated) -> None:
    namespace, kube = operated.stack.namespace, operated.kube
    operated.register("rest", namespace, endpoint="http://vcenter.invalid")
    operated.workload("rest", namespace, reason="WorkloadNotReady")
    wait_until(
        lambda: (
            ("rest", "WorkloadCreated")
            in {(it["regarding"]["name"], it.get("reason")) for it in kube.list(EVENTS, namespace)}
        ),
        30,
        "the event that goes out after the status",
    )
    since = operated.stack.control_plane.audit_position()
    operated.operator.kill9()
    operated.operator.start()
    assert operated.operator.probe("healthz")[0] == 200
    assert "controller_runtime_reconcile_total" in operated.operator.probe("metrics")[1]
    operated.register("news", namespace, endpoint="http://vcenter.invalid")
    operated.workload("news", namespace, reason="WorkloadNotReady")
    written = operated.stack.control_plane.audit_writes(since, user=operated.operator.user)
    about_rest = [it for it in written if "rest" in it.name]
    assert about_rest == []
    assert operated.operator.stop() == 0
    lease = operated.kube.get("leases", "banlieue-operator", namespace)
    assert not lease["spec"].get("holderIdentity"), "handed back"
    operated.operator.start()
    for name in ("rest", "news"):
        operated.kube.delete(PROVIDERS, name, namespace)
        operated.gone(name, namespace, f"banlieue-provider-simulated-{name}")


@pytest.fixture
def served(
    operated: Operated, elsewhere: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Role, WorldProcess]]:
    """A Provider `far` elsewhere with VirtualMachine `one`, served by the account made for it."""
    stack, kube = operated.stack, operated.kube
    world = WorldProcess(tmp_path_factory.mktemp("world"))
    world.start()
    controller = stack.controller().start()
    try:
        kube.apply(vm_class())
        kube.apply(vm_image({"simulated": "ubuntu-24.04"}))
        authority = {"configMapRef": {"name": "far-ca", "key": "ca.crt"}}
        kube.apply(authorities(elsewhere, "far-ca", stack.control_plane))
        operated.register("far", elsewhere, endpoint=world.endpoint, caBundle=authority)
        name = operated.workload("far", elsewhere, reason="WorkloadNotReady")["name"]
        assert name.startswith("banlieue-provider-simulated-far-")
        role = stack.served("simulated", "far", elsewhere, name)
        wait_until(lambda: may_start(role), 60, "the process of the Provider to be ready")
        kube.wait_for(PROVIDERS, "far", elsewhere, until=is_ready, timeout=60, what="Ready")
        kube.apply(credentials(elsewhere, "one-data", "unused", "#cloud-config"))
        user_data = {"secretRef": {"name": "one-data"}, "key": "password"}
        kube.create(virtual_machine(elsewhere, "one", userData=user_data))
        kube.wait_for("virtualmachines", "one", elsewhere, until=is_ready, timeout=60, what="Ready")
        yield role, world
    finally:
        controller.stop()
        for role in stack.roles:
            if role is not controller and role is not operated.operator:
                role.kill9()
        world.process.kill9()


def test_what_was_made_is_enough_to_serve_a_provider_in_any_namespace(
    operated: Operated, elsewhere: str, served: tuple[Role, WorldProcess]
) -> None:
    """And a deleted Provider is served until its last machine is gone."""
    kube, name = operated.kube, served[0].name
    held = kube.get("configmaps", "far-ca", elsewhere)["metadata"]["finalizers"]
    assert held == ["banlieue.io/provider-in-use"]
    wait_until(lambda: grants(kube, elsewhere) == [[]], 30, "its user data to be taken back")

    is_kept_until_given_up(kube, elsewhere)
    kube.delete(PROVIDERS, "far", elsewhere, propagation="Foreground")
    told = operated.workload("far", elsewhere, reason="ProviderInUse")
    assert "1 machines" in told["message"]
    wait_until(lambda: len(operated.left(name)) == 5, 30, "everything to be there again")
    kube.delete("virtualmachines", "one", elsewhere)
    kube.wait_gone("virtualmachines", "one", elsewhere, timeout=60)
    operated.gone("far", elsewhere, name)
    kube.wait_for(
        "namespaces",
        elsewhere,
        until=lambda it: "banlieue.io/in-use" not in it["metadata"]["labels"],
        what="without the label",
    )
    assert PLANTED_PASSWORD not in operated.stack.logs()


@pytest.mark.identity("6.2", "6.3", "7.2")
def test_a_tenants_namespace_takes_its_vms_along_as_their_policies_say(
    operated: Operated, elsewhere: str, served: tuple[Role, WorldProcess]
) -> None:
    """With what waits for its Secret, a disk to be kept, and one VM that is protected."""
    kube, (_, world), tenant = operated.kube, served, create_namespace(operated.kube, "tenant")
    data = {"name": "data", "sizeGiB": 1, "storageClass": "standard", "reclaimPolicy": "Retain"}
    kube.apply(credentials(tenant, "boot", "unused", "#cloud-config"))
    seeded = {"userData": {"secretRef": {"name": "boot"}, "key": "password"}}
    late = {"userData": {"secretRef": {"name": "never-made"}}}
    kube.create(virtual_machine(tenant, "goes", **seeded))
    kube.create(virtual_machine(tenant, "keeps", disks=[data]))
    kube.create(virtual_machine(tenant, "protected", deletionProtection=True, **seeded))
    for name in ("goes", "keeps", "protected"):
        kube.wait_for("virtualmachines", name, tenant, until=is_ready, timeout=60, what="Ready")
    kube.create(virtual_machine(tenant, "early", **late))
    wait_until(lambda: granted(kube, tenant) == {"never-made"}, 30, "a grant")
    (kept,) = (it for it in world.target().vms() if it.name.startswith("protected-"))

    with pytest.raises(KubeError, match="in-use"):
        kube.delete("namespaces", elsewhere)
    kube.delete("namespaces", tenant)
    for name in ("early", "goes", "keeps"):
        kube.wait_gone("virtualmachines", name, tenant, timeout=60)
        kube.wait_gone("simulatedmachines", name, tenant)
    told = kube.wait_for(
        "namespaces",
        tenant,
        until=lambda it: "protected: set spec.deletionProtection to false" in refusals(it),
        what="saying why it stays",
    )
    assert told["status"]["phase"] == "Terminating"
    assert kept in world.target().vms(), "it runs as it did"
    vm = kube.get("virtualmachines", "protected", tenant)
    (why,) = (it for it in vm["status"]["conditions"] if it["type"] == "InfrastructureReady")
    assert "left alone until this VirtualMachine is deleted" in why["message"]
    assert len(world.port.control("detached", {})) == 1
    assert kube.list("secrets", tenant) == kube.list("roles", tenant) == []

    kube.patch("virtualmachines", "protected", {"spec": {"deletionProtection": False}}, tenant)
    kube.delete("virtualmachines", "protected", tenant)
    kube.wait_gone("namespaces", tenant, timeout=120)
    assert [vm.name.partition("-")[0] for vm in world.target().vms()] == ["one"]
    (disk,) = world.port.control("detached", {}).values()
    assert disk["size_gib"] == 1


def granted(kube: Kube, namespace: str) -> set[str]:
    """The Secrets that may be read in a namespace."""
    rules = [rule for found in grants(kube, namespace) for rule in found]
    return {name for rule in rules for name in rule["resourceNames"]}


def refusals(namespace: Object) -> str:
    """What keeps a namespace, as it says itself."""
    found = (namespace.get("status") or {}).get("conditions") or ()
    return " ".join(it["message"] for it in found if it["status"] == "True")


@pytest.mark.identity("7.4")
def test_a_namespace_that_goes_by_force_waits_for_a_process_run_from_outside(
    operated: Operated, elsewhere: str, served: tuple[Role, WorldProcess]
) -> None:
    kube, (role, world) = operated.kube, served
    is_kept_until_given_up(kube, elsewhere)
    assert role.stop() == 0
    kube.delete("namespaces", elsewhere)
    wait_until(
        lambda: kube.find("serviceaccounts", role.name, elsewhere) is None, 60, "its account to go"
    )
    kube.wait_for(
        "simulatedmachines",
        "one",
        elsewhere,
        until=lambda it: (it["spec"].get("teardown") or {}).get("mode") == "Destroy",
        what="to be destroyed",
    )
    # Nothing of it is lost while nobody may serve it: neither the VM nor what leads to it.
    for kind, left in ((PROVIDERS, "far"), ("secrets", "far-creds"), ("configmaps", "far-ca")):
        kube.wait_for(
            kind,
            left,
            elsewhere,
            until=lambda it: "deletionTimestamp" in it["metadata"],
            what="Terminating",
        )
    assert len(world.target().vms()) == 1

    where = ["--system-namespace", operated.stack.namespace, "--namespace", elsewhere]
    operated.stack.outside("outside", "provider", "simulated", *where).start(ready=False)
    kube.wait_gone("namespaces", elsewhere, timeout=60)
    assert not world.target().vms()


def authorities(namespace: str, name: str, plane: ControlPlane) -> Object:
    """A ConfigMap with a certificate authority."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name},
        "data": {"ca.crt": plane.authority.decode()},
    }


def grants(kube: Kube, namespace: str) -> list[Any]:
    """The rules of every grant in a namespace."""
    roles = kube.list("roles", namespace, label_selector="banlieue.io/grant=true")
    return [role.get("rules") or [] for role in roles]


def is_kept_until_given_up(kube: Kube, namespace: str) -> None:
    """A namespace whose Provider has machines, while the operator labels it."""
    in_use = kube.wait_for(
        "namespaces",
        namespace,
        until=lambda it: "banlieue.io/in-use" in it["metadata"]["labels"],
        what="labelled",
    )
    assert in_use["metadata"]["labels"]["banlieue.io/in-use"] == "true"
    with pytest.raises(KubeError, match="in-use"):
        kube.delete("namespaces", namespace)
    kube.patch("namespaces", namespace, {"metadata": {"labels": {"banlieue.io/in-use": "false"}}})
    tried = kube.request("DELETE", f"/api/v1/namespaces/{namespace}", query={"dryRun": "All"})
    assert tried["metadata"]["name"] == namespace


def may_start(role: Role) -> bool:
    """Start it once, and ask whether it is ready."""
    if not role.process.running:
        role.start(ready=False)
    return role.ready()
