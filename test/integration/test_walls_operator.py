"""What the admission policies refuse the operator's account, whatever its roles let it do."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from banlieue.api.v1alpha1.providerclass import ProviderClassSpec
from banlieue.operator import deployment as deployments
from banlieue.operator import grants
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube, KubeError
from test.kit.stack import Object
from test.kit.waiting import wait_until
from test.kit.walled import (
    MACHINES,
    NAME,
    SELECTED,
    TENANT,
    Walled,
    account,
    binding,
    deployment,
    network_policy,
    role,
    rule,
    secret,
    subject,
    walled,
    workload_rules,
)

pytestmark = pytest.mark.slow

GRANT = "banlieue-provider-grant-0123456789abcdef-0"


@pytest.fixture(scope="module")
def walls(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Walled]:
    with walled(control_plane, tmp_path_factory.mktemp("walls")) as found:
        yield found


@pytest.fixture(scope="module")
def me(walls: Walled) -> Kube:
    return walls.almighty("banlieue-operator")


def refused(words: str) -> Any:  # noqa: ANN401 - a context manager of pytest
    return pytest.raises(KubeError, match=words)


def test_it_makes_and_removes_what_serves_a_provider(walls: Walled, me: Kube) -> None:
    where, it = walls.namespace, subject(walls.namespace, NAME)
    made = [
        account(where, NAME),
        role(where, NAME, *workload_rules()),
        binding(where, NAME, NAME, it),
        binding("", NAME, "banlieue-provider-simulated", it, kind="ClusterRole"),
        deployment(where),
        role(TENANT, GRANT, rule("", "secrets", "get", "mine", "network")),
        binding(TENANT, GRANT, GRANT, it),
    ]
    for obj in made:
        me.apply(obj)
    me.patch("roles", GRANT, {"rules": []}, TENANT)
    for obj in made:
        me.delete(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace"))


@pytest.mark.parametrize(
    "given",
    [
        rule("", "secrets", "get"),
        rule("", "secrets", "get", ""),
        rule("", "secrets", "list", "mine"),
        rule("", "secrets", "watch", "mine"),
        rule("", "secrets", "update", "mine"),
        rule("", "secrets", "*", "mine"),
        rule("", "*", "get", "mine"),
        rule("*", "secrets", "get", "mine"),
        rule("", "serviceaccounts/token", "create", "banlieue-controller"),
        rule("", "pods", "get", "x"),
        rule("", "configmaps", "delete", "mine"),
        rule("banlieue.io", "providers", "operate"),
        rule("banlieue.io", "providers", "delete", "mine"),
        rule("banlieue.io", "providers", "update", "mine"),
        rule("banlieue.io", "virtualmachines", "get", "mine"),
        rule("coordination.k8s.io", "leases", "get patch"),
        rule("coordination.k8s.io", "leases", "create delete"),
        rule("rbac.authorization.k8s.io", "roles", "bind", "mine"),
    ],
    ids=str,
)
@pytest.mark.security("3.2")
def test_a_role_beyond_the_list_is_refused(walls: Walled, me: Kube, given: Object) -> None:
    for extra in ([], workload_rules()):
        with refused("a provider's Role may hold"):
            me.create(role(walls.namespace, NAME, *extra, given), dry_run=True)
    with refused("a grant may hold"):
        me.create(role(TENANT, GRANT, given), dry_run=True)


@pytest.mark.security("3.2")
def test_a_grant_holds_nothing_a_workload_needs(me: Kube) -> None:
    for given in workload_rules():
        with refused("a grant may hold"):
            me.create(role(TENANT, GRANT, given), dry_run=True)


@pytest.mark.security("3.3")
def test_only_roles_of_providers_are_bound_and_only_to_their_accounts(
    walls: Walled, me: Kube
) -> None:
    where, it = walls.namespace, subject(walls.namespace, NAME)
    people = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    group = {"kind": "Group", "name": "system:authenticated", "apiGroup": people["apiGroup"]}
    cluster = "banlieue-provider-simulated"
    for obj in (
        binding("", NAME, "cluster-admin", it, kind="ClusterRole"),
        binding("", NAME, cluster, subject(where, "banlieue-operator"), kind="ClusterRole"),
        binding("", NAME, cluster, people, kind="ClusterRole"),
        binding("", NAME, cluster, it, group, kind="ClusterRole"),
        binding(where, NAME, "cluster-admin", it, kind="ClusterRole"),
        binding(where, NAME, cluster, it, kind="ClusterRole"),
        binding(where, NAME, "banlieue-controller", it),
        binding(TENANT, GRANT, GRANT, subject(TENANT, "default")),
    ):
        with refused("may bind roles banlieue-provider-"):
            me.create(obj, dry_run=True)


@pytest.mark.security("3.1")
def test_nothing_is_called_otherwise(walls: Walled, me: Kube) -> None:
    where, it = walls.namespace, subject(walls.namespace, NAME)
    for obj in (
        account(where, "default-too"),
        role("kube-system", "extra", rule("", "secrets", "get", "x")),
        binding(where, "extra", NAME, it),
        binding("", "extra", "banlieue-provider-simulated", it, kind="ClusterRole"),
    ):
        with refused("called banlieue-provider-"):
            me.create(obj, dry_run=True)
    with refused("called banlieue-provider-"):
        me.delete("serviceaccounts", "banlieue-controller", where)
    with refused("called banlieue-provider-"):
        me.delete("clusterrolebindings", "cluster-admin")


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod.update(serviceAccountName="banlieue-controller"),
        lambda pod: pod.pop("serviceAccountName"),
        lambda pod: pod.update(volumes=[{"name": "x", "secret": {"secretName": "mine"}}]),
        lambda pod: pod.update(volumes=[{"name": "x", "hostPath": {"path": "/"}}]),
        lambda pod: pod.update(
            volumes=[
                {
                    "name": "x",
                    "projected": {"sources": [{"secret": {"name": "mine"}}]},
                }
            ]
        ),
        lambda pod: pod.update(initContainers=copy.deepcopy(pod["containers"])),
        lambda pod: pod.update(hostNetwork=True),
        lambda pod: pod.update(hostPID=True),
        lambda pod: pod.update(hostIPC=True),
        lambda pod: pod.update(securityContext={}),
    ],
    ids=(
        "account",
        "no account",
        "secret",
        "host",
        "projected",
        "init",
        "net",
        "pid",
        "ipc",
        "root",
    ),
)
@pytest.mark.security("3.4")
def test_a_pod_gets_at_nothing_but_its_account(
    walls: Walled, me: Kube, change: Callable[[Object], None]
) -> None:
    obj = deployment(walls.namespace)
    change(obj["spec"]["template"]["spec"])
    if "initContainers" in str(obj) and obj["spec"]["template"]["spec"]["initContainers"]:
        obj["spec"]["template"]["spec"]["initContainers"][0]["name"] = "first"
    with refused("a provider's pod runs as the account of its own name"):
        me.create(obj, dry_run=True)


@pytest.mark.parametrize(
    "given",
    [
        {"envFrom": [{"secretRef": {"name": "mine"}}]},
        {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "k"}}}]},
        {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "mine", "key": "k"}}}]},
        {"securityContext": {"privileged": True, "allowPrivilegeEscalation": None}},
        {"securityContext": {"allowPrivilegeEscalation": True}},
        {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}},
        {"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}},
        {"securityContext": {"capabilities": None}},
        {"securityContext": None},
        {"securityContext": {"runAsNonRoot": False}},
        {"securityContext": {"runAsUser": 0}},
        {"ports": [{"containerPort": 8080, "hostPort": 8080}]},
    ],
    ids=str,
)
@pytest.mark.security("3.4")
def test_a_container_takes_nothing_from_secrets_and_has_no_privileges(
    walls: Walled, me: Kube, given: Object
) -> None:
    obj = deployment(walls.namespace)
    in_container(obj, given)
    with refused("a provider's container takes nothing"):
        me.create(obj, dry_run=True)


def in_container(obj: Object, given: Object) -> None:
    """Change the container, and within its securityContext only what is given."""
    (container,) = obj["spec"]["template"]["spec"]["containers"]
    before, context = container["securityContext"], given.get("securityContext")
    container.update(given)
    if context:
        container["securityContext"] = {**before, **context}


UNCONFINED = {"type": "Unconfined"}
APPARMOR = "container.apparmor.security.beta.kubernetes.io/manager"


@pytest.mark.parametrize(
    ("words", "pod", "container"),
    [
        ("pod is confined by", {"securityContext": {"seccompProfile": UNCONFINED}}, {}),
        ("pod is confined by", {"securityContext": {"seccompProfile": None}}, {}),
        ("pod is confined by", {"securityContext": {"appArmorProfile": UNCONFINED}}, {}),
        ("pod is confined by", {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, {}),
        ("pod is confined by", {"securityContext": {"seLinuxOptions": {"user": "root"}}}, {}),
        ("pod is confined by", {"securityContext": {"seLinuxOptions": {"role": "system_r"}}}, {}),
        (
            "pod is confined by",
            {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "9"}]}},
            {},
        ),
        ("pod runs as the account", {"securityContext": {"runAsUser": 0}}, {}),
        ("pod runs as the account", {"serviceAccount": "banlieue-controller"}, {}),
        (
            "pod runs as the account",
            {
                "volumes": [
                    {
                        "name": "x",
                        "ephemeral": {
                            "volumeClaimTemplate": {
                                "spec": {
                                    "accessModes": ["ReadWriteOnce"],
                                    "resources": {"requests": {"storage": "1Gi"}},
                                }
                            }
                        },
                    }
                ]
            },
            {},
        ),
        (
            "pod runs as the account",
            {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "theirs"}}]},
            {},
        ),
        (
            "pod runs as the account",
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "theirs"}]},
            {},
        ),
        ("pod names no node", {"nodeName": "control-plane-1"}, {}),
        ("pod names no node", {"priorityClassName": "system-node-critical"}, {}),
        ("pod names no node", {"priorityClassName": "system-cluster-critical"}, {}),
        (
            "pod names no node",
            {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["vcenter"]}]},
            {},
        ),
        ("pod names no node", {"shareProcessNamespace": True}, {}),
        (
            "container is confined by",
            {},
            {"securityContext": {"seccompProfile": UNCONFINED}},
        ),
        (
            "container is confined by",
            {},
            {"securityContext": {"appArmorProfile": UNCONFINED}},
        ),
        (
            "container is confined by",
            {},
            {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
        ),
        ("container takes nothing", {}, {"securityContext": {"procMount": "Unmasked"}}),
        (
            "no lifecycle hooks",
            {},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
        ),
        (
            "no lifecycle hooks",
            {},
            {"livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}},
        ),
        (
            "no lifecycle hooks",
            {},
            {"readinessProbe": {"tcpSocket": {"port": 80, "host": "192.0.2.1"}}},
        ),
        (
            "no lifecycle hooks",
            {},
            {"startupProbe": {"tcpSocket": {"port": 80, "host": "192.0.2.1"}}},
        ),
        ("pod is confined by", {"annotations": {APPARMOR: "unconfined"}}, {}),
    ],
    ids=str,
)
@pytest.mark.security("3.4")
def test_a_pod_is_as_restricted_as_pod_security_says_and_more(
    walls: Walled, me: Kube, words: str, pod: Object, container: Object
) -> None:
    obj = deployment(walls.namespace)
    template = obj["spec"]["template"]
    changed = {**pod}
    if annotations := changed.pop("annotations", None):
        template["metadata"]["annotations"] = annotations
    if "serviceAccount" in changed:
        del template["spec"]["serviceAccountName"]
    if context := changed.pop("securityContext", None):
        template["spec"]["securityContext"].update(context)
    template["spec"].update(changed)
    in_container(obj, container)
    if "procMount" in str(container):
        template["spec"]["hostUsers"] = False  # else the API server wants it no other way
    with refused(words):
        me.create(obj, dry_run=True)


@pytest.mark.security("3.4")
def test_a_deployment_takes_over_no_pods_of_others(walls: Walled, me: Kube) -> None:
    """Pods without an owner that a selector finds belong to the Deployment from then on."""
    for labels in ({"app": "web"}, {**SELECTED, "app.kubernetes.io/instance": "web"}):
        obj = deployment(walls.namespace)
        obj["spec"]["selector"]["matchLabels"] = labels
        obj["spec"]["template"]["metadata"]["labels"] = labels
        with refused("selects the pods of the provider it is called by"):
            me.create(obj, dry_run=True)
    obj = deployment(walls.namespace)
    obj["spec"]["replicas"] = 1000
    with refused("has one at the most"):
        me.create(obj, dry_run=True)


@pytest.mark.security("3.4")
def test_no_service_of_a_tenant_finds_a_pod_that_its_namespace_did_not_let_in(
    walls: Walled, me: Kube
) -> None:
    """The word of who may write the namespace, which the operator may not say itself."""
    obj = deployment(TENANT)
    labels = obj["spec"]["template"]["metadata"]["labels"]
    words = "banlieue.io/pod-labels has to have"
    for forged in (
        {"app": "web"},
        {"app.kubernetes.io/name": "web"},
        {"app.kubernetes.io/part-of": "web", "app.kubernetes.io/managed-by": "Helm"},
        {"cluster.example.com/role": ""},
    ):
        obj["spec"]["template"]["metadata"]["labels"] = {**labels, **forged}
        with refused(words):
            me.create(obj, dry_run=True)
    own = {
        "app.kubernetes.io/name": "banlieue",
        "app.kubernetes.io/part-of": "banlieue",
        "app.kubernetes.io/managed-by": "banlieue-operator",
        "banlieue.io/workload-of": "0123456789abcdef",
    }
    template = obj["spec"]["template"]["metadata"]
    template["labels"] = {**labels, **own}
    me.create(obj, dry_run=True)

    template["labels"] = {**labels, **own, "team": "a", "example.com/tier": ""}
    let_in: Object = {
        "metadata": {"annotations": {"banlieue.io/pod-labels": "team=a, example.com/tier="}}
    }
    with refused("label banlieue.io/in-use only"):
        me.patch("namespaces", TENANT, let_in)
    walls.kube.patch("namespaces", TENANT, let_in)
    try:
        wait_until(lambda: me.create(obj, dry_run=True), 10, "the word", retry_on=(KubeError,))
        me.create(obj)
        template["labels"]["team"] = "b"
        with refused(words):
            me.patch("deployments", NAME, {"spec": obj["spec"]}, TENANT)
        template["labels"]["team"] = "a"
        let_in["metadata"]["annotations"]["banlieue.io/pod-labels"] = None
        walls.kube.patch("namespaces", TENANT, let_in)
        image = {"spec": {"template": {"metadata": {"annotations": {"x": "y"}}}}}
        me.patch("deployments", NAME, image, TENANT)  # what is there may stay
    finally:
        walls.kube.delete("deployments", NAME, TENANT, missing_ok=True)


@pytest.mark.security("3.4")
def test_a_process_of_a_windows_node_is_refused(walls: Walled, me: Kube) -> None:
    """The API server takes one only with the host's network, which the policy refuses."""
    windows = {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}
    for place in ("pod", "container"):
        obj = deployment(walls.namespace)
        spec = obj["spec"]["template"]["spec"]
        spec.update(os={"name": "windows"}, hostNetwork=True)
        spec["securityContext"] = {"runAsNonRoot": True}
        spec["containers"][0]["securityContext"] = {}
        within = spec if place == "pod" else spec["containers"][0]
        within["securityContext"]["windowsOptions"] = windows
        with refused("a provider's pod runs as the account"):
            me.create(obj, dry_run=True)


@pytest.mark.security("3.4")
def test_what_the_operator_builds_passes(walls: Walled, me: Kube) -> None:
    """Every field a class shapes a pod by, but a priority that is the system's."""
    spec = ProviderClassSpec.from_api(
        {
            "backend": "simulated",
            "machine": {"apiGroup": "example.com", "version": "v1", "kind": "Machine"},
            "priorityClassName": "important",
            "imagePullSecrets": [{"name": "mirror"}],
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"disk": "fast"},
            "podAnnotations": {"a": "b"},
        }
    )
    obj = deployment(walls.namespace)
    obj["spec"] = deployments.spec(
        spec, account=NAME, image="x:1", arguments=["a"], selected=SELECTED, labels=SELECTED
    )
    me.create(obj, dry_run=True)


@pytest.mark.security("3.4")
def test_a_network_policy_opens_nothing_for_the_pods_of_others(me: Kube) -> None:
    own = {"app.kubernetes.io/component": "provider", "app.kubernetes.io/instance": NAME}
    me.create(network_policy(TENANT, {"matchLabels": own}), dry_run=True)
    for selector in (
        {},
        {"matchLabels": {"app": "web"}},
        {"matchLabels": {**own, "app.kubernetes.io/instance": "web"}},
        {"matchLabels": {"app.kubernetes.io/instance": NAME}},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    ):
        with refused("for the pods of the provider it is called by"):
            me.create(network_policy(TENANT, selector), dry_run=True)


@pytest.mark.security("3.1")
def test_it_neither_reads_nor_writes_what_is_not_its_own(walls: Walled, me: Kube) -> None:
    where = walls.namespace
    walls.machine("kept")
    with refused("may not write infrastructure.banlieue.io/simulatedmachines"):
        me.delete(MACHINES, "kept", TENANT)
    with refused("may not write /secrets"):
        me.patch("secrets", "mine-creds", {"metadata": {"labels": {"x": "y"}}}, where)
    with refused("may not write /serviceaccounts/token"):
        path = me.resource("serviceaccounts").path(where, "banlieue-controller", "token")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        me.request("POST", path, body=request)
    with refused("may not write rbac.authorization.k8s.io/clusterroles"):
        me.patch("clusterroles", "banlieue-provider-simulated", {"rules": []})
    policy = "validatingadmissionpolicies"
    for obj in (secret(TENANT, "new"), account("kube-system", "new")):
        with refused("the operator may"):
            me.create(obj, dry_run=True)
    assert walls.kube.list(policy), "the API server lets no policy watch over policies: see docs"


@pytest.mark.security("3.5")
def test_of_a_provider_it_writes_finalizer_and_workload(walls: Walled, me: Kube) -> None:
    where = walls.namespace
    held = {"metadata": {"finalizers": ["banlieue.io/provider-workload"]}}
    me.patch("providers", "mine", held, where)
    me.patch(
        "providers", "mine", {"status": {"workload": {"name": NAME}}}, where, subresource="status"
    )
    for change in (
        {"spec": {"cordoned": True}},
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"annotations": {"x": "y"}}},
        {"metadata": {"finalizers": ["banlieue.io/provider-in-use"]}},
    ):
        with refused("finalizer banlieue.io/provider-workload only"):
            me.patch("providers", "mine", change, where)
    for forged in ({"machineCount": 9}, {"backendIdentity": "forged"}):
        with refused("workload only"):
            me.patch("providers", "mine", {"status": forged}, where, subresource="status")
    me.patch("providers", "mine", {"metadata": {"finalizers": None}}, where)
    with refused("provider-workload only"):
        me.delete("providers", "mine", where)


def test_the_largest_status_and_grant_are_compared_within_what_the_server_allows(
    walls: Walled, me: Kube
) -> None:
    where = walls.namespace
    owners = [{"hash": f"{number:016x}", "epoch": 0} for number in range(8192)]
    domains = [
        {"name": f"domain-{number}", "id": f"id-{number}", "schedulable": True}
        for number in range(256)
    ]
    status = {
        "failureDomains": domains,
        "unclaimed": {"complete": True, "count": 8192, "owners": owners},
    }
    walls.kube.patch("providers", "theirs", {"status": status}, where, subresource="status")
    workload = {"status": {"workload": {"name": NAME}}}
    me.patch("providers", "theirs", workload, where, subresource="status")
    names = [f"secret-{number}" for number in range(grants.MOST)]
    me.create(role(TENANT, GRANT, rule("", "secrets", "get", *names)), dry_run=True)


@pytest.mark.security("3.5")
def test_it_makes_classes_and_changes_none(walls: Walled, me: Kube) -> None:
    found = walls.kube.get("providerclasses", "simulated")
    made = {
        "apiVersion": found["apiVersion"],
        "kind": found["kind"],
        "metadata": {"name": "another"},
        "spec": found["spec"],
    }
    me.create(made, dry_run=True)
    image = {"spec": {"image": {"repository": "evil.example/banlieue"}}}
    with refused("changes none"):
        me.patch("providerclasses", "simulated", image)
    with refused("changes none"):
        me.delete("providerclasses", "simulated")


@pytest.mark.security("3.5")
def test_of_a_namespace_it_writes_one_label(me: Kube) -> None:
    me.patch("namespaces", TENANT, {"metadata": {"labels": {"banlieue.io/in-use": "true"}}})
    me.patch("namespaces", TENANT, {"metadata": {"labels": {"banlieue.io/in-use": None}}})
    for change in (
        {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        {"annotations": {"x": "y"}},
        {"finalizers": ["example.com/x"]},
    ):
        with refused("label banlieue.io/in-use only"):
            me.patch("namespaces", TENANT, {"metadata": change})
    with refused("label banlieue.io/in-use only"):
        me.delete("namespaces", TENANT)


def test_it_writes_no_lease_but_its_own(walls: Walled, me: Kube) -> None:
    def lease(name: str) -> Object:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": walls.namespace, "name": name},
            "spec": {"holderIdentity": "me"},
        }

    me.create(lease("banlieue-operator"), dry_run=True)
    with refused("its own Lease only"):
        me.create(lease("banlieue-controller"), dry_run=True)


@pytest.mark.security("3.6")
def test_what_was_refused_stands_in_the_audit_log(walls: Walled, me: Kube) -> None:
    control_plane = walls.stack.control_plane
    since = control_plane.audit_position()
    it = subject(walls.namespace, NAME)
    with refused("may bind roles banlieue-provider-"):
        me.create(binding("", NAME, "cluster-admin", it, kind="ClusterRole"))
    user = f"system:serviceaccount:{walls.namespace}:banlieue-operator"
    (entry,) = control_plane.audit_writes(since, user=user)
    assert (entry.resource, entry.code) == ("clusterrolebindings", 403)
    log = (control_plane.directory / "audit.log").read_text(encoding="utf-8")
    assert "the operator may bind roles banlieue-provider-* to accounts banlieue-provider-*" in log
