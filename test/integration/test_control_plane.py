import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from test.kit.controlplane import ControlPlane, KubectlError
from test.kit.kube import Kube, KubeError, Object
from test.kit.kube_http import ApiConnection
from test.kit.kubeconfig import Access
from test.kit.namespaces import create_namespace, discard_namespace
from test.kit.stack import Stack, virtual_machine
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

GADGETS = yaml.safe_load(
    """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.kit.test}
spec:
  group: kit.test
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, properties: {ready: {type: boolean}}}
"""
)


def _config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _gadget(name: str, owner: Object | None = None) -> Object:
    metadata: Object = {"name": name}
    if owner:
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [reference]
    return {"apiVersion": "kit.test/v1", "kind": "Gadget", "metadata": metadata}


# The API server makes the first creation of a new kind wait for 2 s, so all tests share the kind.
@pytest.fixture(scope="module")
def gadgets(control_plane: ControlPlane) -> Iterator[Kube]:
    control_plane.install_crds([GADGETS])
    yield control_plane.kube
    control_plane.kube.delete("customresourcedefinitions", "gadgets.kit.test")
    control_plane.kube.wait_gone("customresourcedefinitions", "gadgets.kit.test")


@pytest.fixture
def as_service_account(control_plane: ControlPlane, namespace: str) -> Iterator[Kube]:
    """A client of ServiceAccount `worker`, which may read ConfigMaps in its namespace."""
    control_plane.kubectl("create", "serviceaccount", "worker", "-n", namespace)
    reader = ["create", "role", "reader", "--verb=get,list", "--resource=configmaps"]
    control_plane.kubectl(*reader, "-n", namespace)
    binding = ["create", "rolebinding", "reader", "--role=reader"]
    control_plane.kubectl(*binding, f"--serviceaccount={namespace}:worker", "-n", namespace)
    with Kube(control_plane.kubeconfig_for_service_account(namespace, "worker")) as client:
        yield client


def test_it_serves_the_pinned_version_to_kubectl_and_client(control_plane: ControlPlane) -> None:
    versions = json.loads(control_plane.kubectl("version", "--output=json"))
    names = [namespace["metadata"]["name"] for namespace in control_plane.kube.list("ns")]

    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]
    assert versions["serverVersion"]["minor"] == "36"
    assert {"default", "kube-system"} <= set(names)


def test_kubectl_takes_input_and_says_why_it_failed(
    control_plane: ControlPlane, namespace: str
) -> None:
    text = json.dumps(_config_map("piped", a="1"))
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=text)

    assert control_plane.kube.get("cm", "piped", namespace)["data"] == {"a": "1"}
    with pytest.raises(KubectlError, match=r"kubectl get nothing: .*resource type \"nothing\""):
        control_plane.kubectl("get", "nothing")


def test_nobody_without_a_name_gets_more_than_health(control_plane: ControlPlane) -> None:
    nobody = ApiConnection(Access(control_plane.url, control_plane.authority), "nobody", 10)

    for path in ("/livez", "/readyz", "/healthz"):
        assert nobody.request("GET", path) == b"ok"
    for path in ("/version", "/api/v1/namespaces"):
        with pytest.raises(KubeError, match="401 Unauthorized"):
            nobody.request("GET", path)
    nobody.close()


def test_audit_log_names_every_write(control_plane: ControlPlane, namespace: str) -> None:
    since = control_plane.audit_position()
    with Kube(control_plane.kubeconfig, user_agent="auditor") as client:
        client.create(_config_map("one", a="1"), namespace)
        client.apply(_config_map("two", a="1"), namespace)
        client.patch("configmaps", "one", {"data": {"b": "2"}}, namespace)
        client.get("configmaps", "one", namespace)
        with pytest.raises(KubeError, match="409 AlreadyExists"):
            client.create(_config_map("one"), namespace)
        client.delete("configmaps", "one", namespace)
        client.delete_all("configmaps", namespace)

    entries = [
        entry
        for entry in control_plane.audit_writes(since, user="admin")
        if entry.user_agent == "auditor"
    ]

    assert [(entry.verb, entry.name, entry.code) for entry in entries] == [
        ("create", "one", 201),
        ("patch", "two", 201),
        ("patch", "one", 200),
        ("create", "one", 409),
        ("delete", "one", 200),
        ("deletecollection", "", 200),
    ]
    assert {(entry.resource, entry.namespace) for entry in entries} == {("configmaps", namespace)}


def test_audit_log_tells_subresources_and_leaves_out_what_stores_nothing(
    gadgets: Kube, control_plane: ControlPlane, namespace: str
) -> None:
    gadgets.create(_gadget("one"), namespace)
    since = control_plane.audit_position()

    gadgets.patch("gadgets", "one", {"status": {"ready": True}}, namespace, subresource="status")
    gadgets.create(_gadget("dry"), namespace, dry_run=True)
    control_plane.kubeconfig_for_service_account("default", "default")
    control_plane.kubectl("auth", "can-i", "get", "pods")

    (entry,) = control_plane.audit_writes(since, user="admin")
    assert (entry.verb, entry.group, entry.resource) == ("patch", "kit.test", "gadgets")
    assert (entry.subresource, entry.name, entry.code) == ("status", "one", 200)


def test_audit_log_misses_nothing_that_many_clients_write_at_once(
    control_plane: ControlPlane, namespace: str
) -> None:
    since = control_plane.audit_position()

    def write(number: int) -> None:
        with Kube(control_plane.kubeconfig) as client:
            for index in range(20):
                client.create(_config_map(f"many-{number}-{index}"), namespace)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    names = [entry.name for entry in control_plane.audit_writes(since, user="admin")]
    assert sorted(names) == sorted(f"many-{n}-{i}" for n in range(5) for i in range(20))


def test_audit_log_tells_who_read_what(
    control_plane: ControlPlane, as_service_account: Kube, namespace: str
) -> None:
    user = f"system:serviceaccount:{namespace}:worker"
    since = control_plane.audit_position()
    as_service_account.list("configmaps", namespace)
    with pytest.raises(KubeError):
        as_service_account.get("secrets", "password", namespace)

    def seen() -> list[tuple[str, str, str, int | None]]:
        return [
            (entry.verb, entry.resource, entry.name, entry.code)
            for entry in control_plane.audit_reads(since, user=user)
            if entry.resource
        ]

    expected = [("list", "configmaps", "", 200), ("get", "secrets", "password", 403)]
    wait_until(lambda: seen() == expected, 5, f"{expected} in the audit log")


def test_a_service_account_may_do_what_its_role_says(
    as_service_account: Kube, kube: Kube, namespace: str
) -> None:
    kube.create(_config_map("readable", a="1"), namespace)

    assert as_service_account.get("configmaps", "readable", namespace)["data"] == {"a": "1"}
    with pytest.raises(KubeError, match=f"{namespace}:worker.* cannot delete") as caught:
        as_service_account.delete("configmaps", "readable", namespace)
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    with pytest.raises(KubeError, match="403 Forbidden"):
        as_service_account.list("configmaps", "default")


def test_a_user_has_the_rights_of_its_groups(control_plane: ControlPlane, namespace: str) -> None:
    rights = ["--clusterrole=view", "--group=readers", "-n", namespace]
    control_plane.kubectl("create", "rolebinding", "readers", *rights)

    kubeconfig = control_plane.kubeconfig_for_user("ada", ["readers"])
    with pytest.raises(KubectlError, match=r"User \"ada\" cannot list resource \"nodes\""):
        control_plane.kubectl("get", "nodes", kubeconfig=kubeconfig)
    with Kube(kubeconfig) as ada:
        assert ada.find("configmaps", "nothing", namespace) is None
        with pytest.raises(KubeError, match=r"403 Forbidden: .*User \"ada\" cannot create"):
            ada.create(_config_map("new"), namespace)


def test_kubeconfigs_are_for_their_owner_only(control_plane: ControlPlane) -> None:
    path = control_plane.kubeconfig_for_service_account("default", "default")

    assert path.stat().st_mode & 0o777 == 0o600
    assert path != control_plane.kubeconfig_for_service_account("default", "default")


def test_a_new_kind_is_served_and_garbage_collected_at_once(gadgets: Kube, namespace: str) -> None:
    owner = gadgets.create(_gadget("owner"), namespace)
    gadgets.create(_gadget("owned", owner), namespace)
    gadgets.create(_gadget("other"), namespace)

    gadgets.delete("gadgets", "owner", namespace)

    gadgets.wait_gone("gadgets", "owned", namespace, timeout=5)
    assert gadgets.find("gd", "other", namespace)


def test_admission_policies_are_enforced(kube: Kube, namespace: str) -> None:
    policy = f"kit-{namespace}"
    kube.apply_yaml(
        f"""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {policy}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}
  matchConditions: [{{name: here, expression: "request.namespace == '{namespace}'"}}]
  validations: [{{expression: "'a' in object.data", message: "a is missing"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {policy}}}
spec: {{policyName: {policy}, validationActions: [Deny]}}
"""
    )

    def refusal() -> str:
        try:
            kube.create(_config_map("bare", b="1"), namespace, dry_run=True)
        except KubeError as error:
            return error.message
        return ""

    try:
        assert "a is missing" in wait_until(refusal, 15, "the policy to be in force")
        kube.create(_config_map("good", a="1"), namespace)
    finally:
        kube.delete("validatingadmissionpolicybindings", policy)
        kube.delete("validatingadmissionpolicies", policy)


def test_the_api_server_comes_back_with_everything_on_the_same_address(
    control_plane: ControlPlane, namespace: str
) -> None:
    kube = control_plane.kube
    kube.create(_config_map("kept", a="1"), namespace)
    since = control_plane.audit_position()
    watch = kube.watch("configmaps", namespace, timeout=60)
    assert next(watch).type == "ADDED"

    control_plane.stop_apiserver()
    try:
        with pytest.raises(KubeError, match="no answer") as caught:
            list(watch)
        assert caught.value.reason == "Unreachable"
        with pytest.raises(KubeError, match="no answer to GET"):
            kube.get("configmaps", "kept", namespace)
    finally:
        control_plane.start_apiserver()

    assert kube.get("configmaps", "kept", namespace)["data"] == {"a": "1"}
    kube.delete("configmaps", "kept", namespace)
    deleted = [entry.name for entry in control_plane.audit_writes(since, user="admin")]
    assert deleted == ["kept"]


def test_a_paused_api_server_answers_late(control_plane: ControlPlane, namespace: str) -> None:
    with Kube(control_plane.kubeconfig, timeout=0.3) as impatient:
        impatient.resources()
        control_plane.pause_apiserver()
        try:
            with pytest.raises(KubeError, match=r"no answer to GET .*timed out"):
                impatient.list("configmaps", namespace)
        finally:
            control_plane.resume_apiserver()

    assert control_plane.kube.list("configmaps", namespace) is not None


def test_a_discarded_namespace_loses_its_objects_at_once(gadgets: Kube) -> None:
    name = create_namespace(gadgets)
    held = _gadget("held")
    held["metadata"]["finalizers"] = ["kit.test/held"]
    gadgets.create(held, name)

    discard_namespace(gadgets, name)

    assert gadgets.list("gadgets", name) == []
    assert gadgets.get("ns", name)["status"]["phase"] == "Terminating"
    gadgets.wait_gone("namespaces", name)


def test_nothing_is_left_after_stop(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as second:
        second.kube.create(_config_map("one"), "default")
        processes = (second.etcd, second.apiserver, second.controller_manager)
        pids = [process.pid for process in processes]
        assert all(process.running for process in processes)

    assert not any(process.running for process in processes)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not (tmp_path / "etcd").exists()
    assert (tmp_path / "logs" / "kube-apiserver.log").stat().st_size > 0


def test_a_directory_of_its_own_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    never_started = ControlPlane()
    assert never_started.directory.parent == tmp_path

    never_started.stop()

    assert list(tmp_path.iterdir()) == []


def test_flags_of_the_api_server_can_be_added(tmp_path: Path) -> None:
    plugins = {"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"}
    with ControlPlane(tmp_path, apiserver_flags=plugins) as second:
        command = Path(f"/proc/{second.apiserver.pid}/cmdline").read_text()

    assert "--enable-admission-plugins=OwnerReferencesPermissionEnforcement" in command.split("\0")


def test_what_is_protected_is_discarded_with_its_namespace(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """One test's installation must not keep another's objects from being cleaned up."""
    kube = control_plane.kube
    installed, tenant = create_namespace(kube), create_namespace(kube)
    with Stack(control_plane, tmp_path, installed) as stack:
        stack.install()
        protected = virtual_machine(tenant, "kept", deletionProtection=True)
        kube.apply(protected)

        def refused() -> bool:
            try:
                kube.delete("virtualmachines", "kept", tenant)
            except KubeError as error:
                return "set spec.deletionProtection to false" in error.message
            kube.apply(protected)
            return False

        wait_until(refused, 30, "the policy to be in force")
        discard_namespace(kube, tenant)
        kube.wait_gone("virtualmachines", "kept", tenant)
    discard_namespace(kube, installed)
    names = [it["metadata"]["name"] for it in kube.list("validatingadmissionpolicies")]
    assert [name for name in names if name.startswith(installed)] == []
