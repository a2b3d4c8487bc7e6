"""What our identities may do, by the tokens of the accounts they ship with.

There is no node: the accounts of Providers are made by an operator that runs, and used by the test,
as somebody would use them who broke into the pod.
"""

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from banlieue.api.meta import format_time
from test.kit import rights
from test.kit.controlplane import ControlPlane, KubectlError
from test.kit.kube import Kube, KubeError
from test.kit.namespaces import create_namespace
from test.kit.stack import Object, Stack, provider, virtual_machine
from test.kit.waiting import wait_until
from test.kit.walled import MACHINES, secret
from test.kit.watched import checked

pytestmark = pytest.mark.slow

TENANT = "identity-tenant"
INFRA = "identity-infra"
IN_USE = "banlieue.io/provider-in-use"
GRANTS = "banlieue.io/grant=true"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
PLANTED = tuple(f"nobody-asked-for-{number}" for number in range(5))


class Identities:
    """banlieue with an operator at work, two Providers, and VMs that were placed on both."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.kube: Kube = stack.kube
        self.namespace = stack.namespace
        self._clients: dict[str, Kube] = {}
        self._kubeconfigs: dict[tuple[str, str], Path] = {}

    def as_account(self, name: str, namespace: str = "") -> Kube:
        """A client with a token of an account."""
        if name not in self._clients:
            self._clients[name] = Kube(self.kubeconfig(name, namespace), user_agent=name)
        return self._clients[name]

    def kubeconfig(self, name: str, namespace: str = "") -> Path:
        """A file with a token of an account."""
        key = (namespace or self.namespace, name)
        if key not in self._kubeconfigs:
            plane = self.stack.control_plane
            self._kubeconfigs[key] = plane.kubeconfig_for_service_account(*key)
        return self._kubeconfigs[key]

    def user(self, name: str) -> str:
        return f"system:serviceaccount:{self.namespace}:{name}"

    def register(self, name: str, namespace: str = "") -> None:
        """A Provider whose login was stored; nobody is at its endpoint."""
        where = namespace or self.namespace
        self.kube.apply(secret(where, f"{name}-creds", username="u", password=f"of {name}"))
        self.kube.apply(
            provider(
                where,
                name,
                backend="simulated",
                connection={
                    "endpoint": "http://vcenter.invalid",
                    "caBundle": {"configMapRef": {"name": f"{name}-ca", "key": "ca.crt"}},
                },
                storage={"pool": "fast"},
                network={"network": "lan"},
            )
        )

    def place(self, name: str, on: str) -> None:
        """A VirtualMachine on a Provider, as the controller leaves it, with its user data."""
        self.kube.apply(secret(TENANT, f"{name}-data", **{"user-data": "x"}))
        made = virtual_machine(TENANT, name, userData={"secretRef": {"name": f"{name}-data"}})
        self.kube.apply(made)
        status = {
            "scheduled": {
                "providerName": on,
                "providerNamespace": self.namespace,
                "scheduledAt": format_time(datetime.now(UTC)),
            },
            "infrastructureRef": {
                "apiGroup": "infrastructure.banlieue.io",
                "kind": "SimulatedMachine",
                "name": name,
                "namespace": TENANT,
            },
        }
        self.kube.patch("virtualmachines", name, {"status": status}, TENANT, subresource="status")
        self.kube.apply(
            {
                "apiVersion": "infrastructure.banlieue.io/v1alpha1",
                "kind": "SimulatedMachine",
                "metadata": {"namespace": TENANT, "name": name},
                "spec": {
                    "providerRef": {"namespace": self.namespace, "name": on},
                    "imageRef": {"name": "ubuntu"},
                    "cpus": 1,
                    "memoryMiB": 512,
                    "userData": {"secretRef": {"name": f"{name}-data"}},
                },
            }
        )

    def readable(self, client: Kube) -> set[str]:
        """Every Secret of the cluster that a token reads, tried one by one."""
        found = set()
        for obj in self.kube.list("secrets"):
            meta = obj["metadata"]
            try:
                client.get("secrets", meta["name"], meta["namespace"])
            except KubeError as error:
                if error.status != 403:
                    raise
            else:
                found.add(f"{meta['namespace']}/{meta['name']}")
        return found

    def granted(self) -> set[str]:
        """Names in all grants."""
        return {
            name
            for role in self.kube.list("roles", TENANT, label_selector=GRANTS)
            for rule in role.get("rules") or ()
            for name in rule["resourceNames"]
        }

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@pytest.fixture(scope="module")
def identities(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Identities]:
    with Stack(control_plane, tmp_path_factory.mktemp("identities")) as stack:
        stack.install()
        found, kube = Identities(stack), stack.kube
        try:
            kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
            with checked(stack):
                stack.operator("--image", "registry.example.com/banlieue:v1").start()
                for name in ("mine", "theirs"):
                    found.register(name)
                    found.place(f"{name}-vm", name)
                for name in PLANTED:
                    kube.apply(secret(TENANT, name, x="y"))
                wait_until(
                    lambda: found.granted() == {"mine-vm-data", "theirs-vm-data"}, 60, "the grants"
                )
                wait_until(lambda: _bound(kube), 30, "the accounts of both Providers")
                yield found
        finally:
            found.close()
            stack.purge()
            for kind in (
                *("deployments", "serviceaccounts", "roles", "rolebindings"),
                "clusterrolebindings",
            ):
                for obj in kube.list(
                    kind, label_selector="app.kubernetes.io/managed-by=banlieue-operator"
                ):
                    meta = obj["metadata"]
                    kube.delete(kind, meta["name"], meta.get("namespace"), missing_ok=True)


def _bound(kube: Kube) -> bool:
    names = {it["metadata"]["name"] for it in kube.list("clusterrolebindings")}
    return {f"banlieue-provider-simulated-{name}" for name in ("mine", "theirs")} <= names


@pytest.fixture(scope="module")
def mine(identities: Identities) -> Kube:
    """The token of the process that serves Provider `mine`."""
    return identities.as_account("banlieue-provider-simulated-mine")


def refused(words: str) -> Any:  # noqa: ANN401 - a context manager of pytest
    return pytest.raises(KubeError, match=words)


# What each may do


def table(identities: Identities, identity: str) -> tuple[str, tuple[rights.Right, ...]]:
    """Account and rights of an identity."""
    if identity != "provider":
        known = {
            "controller": ("banlieue-controller", rights.CONTROLLER),
            "operator": ("banlieue-operator", rights.OPERATOR),
            "static provider": ("banlieue-provider-simulated", rights.STATIC),
        }
        return known[identity]
    uid = identities.kube.get("providers", "mine", identities.namespace)["metadata"]["uid"]
    return "banlieue-provider-simulated-mine", rights.provider("mine", uid, ["mine-vm-data"])


EACH = ("controller", "operator", "provider", "static provider")


@pytest.mark.security("1.1")
@pytest.mark.parametrize("identity", EACH)
def test_each_may_do_what_the_table_says_and_nothing_else(
    identities: Identities, identity: str
) -> None:
    """Shows the matrix with `pytest -s`."""
    account, allowed = table(identities, identity)
    client = identities.as_account(account)
    for where, namespace in (
        (rights.INSTALL, identities.namespace),
        (rights.TENANT, TENANT),
        ("elsewhere", "kube-system"),
    ):
        found = rights.asked(client, namespace)
        sys.stdout.write(f"\n{identity}, in {namespace}:\n{rights.matrix(found)}\n")
        assert sorted(found) == sorted(rights.told(allowed, where))


@pytest.mark.security("1.3")
@pytest.mark.parametrize("identity", EACH)
def test_nobody_lists_secrets_makes_pods_or_becomes_another(
    identities: Identities, identity: str
) -> None:
    account, _ = table(identities, identity)
    asked = {
        "/secrets": ("list", "watch", "create", "update", "delete", "deletecollection"),
        "/pods": ("create", "patch", "list", "watch"),
        "/pods/exec": ("create", "get"),
        "/serviceaccounts/token": ("create",),
        "/serviceaccounts": ("impersonate",),
        "/users": ("impersonate",),
        "/nodes": ("get", "list"),
        "/nodes/proxy": ("get",),
        "rbac.authorization.k8s.io/clusterroles": ("create", "update", "patch", "escalate"),
        "admissionregistration.k8s.io/validatingadmissionpolicies": ("patch", "delete"),
        "certificates.k8s.io/certificatesigningrequests": ("create",),
    }
    user = identities.user(account)
    granted = [
        f"{verb} {resource} in {namespace}"
        for namespace in (identities.namespace, TENANT, "kube-system")
        for resource, verbs in asked.items()
        for verb in verbs
        if rights.may(identities.kube, user, f"{verb} {resource}", namespace)
    ]
    assert granted == []


@pytest.mark.security("1.7")
@pytest.mark.parametrize("identity", EACH)
def test_kubectl_answers_each_token_what_the_page_says(
    identities: Identities, identity: str
) -> None:
    account, _ = table(identities, identity)
    plane, own = identities.stack.control_plane, identities.kubeconfig(account)

    def answer(words: str) -> str:
        try:
            return plane.kubectl("auth", "can-i", *words.split(), kubeconfig=own).strip()
        except KubectlError as error:
            # It ends with 1 and without a word of error where the answer is no.
            return str(error).partition(f"{words}: ")[2] or "no"

    promised = rights.can_i(PAGE.read_text(encoding="utf-8"))
    told = {words: answers[EACH.index(identity)] for words, answers in promised.items()}
    assert len(told) >= 14
    assert {words: answer(words) for words in told} == told


# A provider's token in the wrong hands


@pytest.mark.security("2.1", "2.2")
def test_a_provider_reads_its_login_and_what_is_granted_now(
    identities: Identities, mine: Kube
) -> None:
    where = identities.namespace
    login = f"{where}/mine-creds"
    assert len(identities.kube.list("secrets")) >= 9
    assert identities.readable(mine) == {login, f"{TENANT}/mine-vm-data"}
    identities.place("second", "mine")
    wait_until(lambda: "second-data" in identities.granted(), 30, "the grant")
    wait_until(
        lambda: (
            identities.readable(mine) == {login, f"{TENANT}/mine-vm-data", f"{TENANT}/second-data"}
        ),
        10,
        "what was granted to be readable",
    )
    done = {"status": {"initialization": {"provisioned": True}}}
    mine.patch(MACHINES, "second", done, TENANT, subresource="status")
    wait_until(lambda: "second-data" not in identities.granted(), 30, "the end of the grant")
    wait_until(
        lambda: identities.readable(mine) == {login, f"{TENANT}/mine-vm-data"},
        10,
        "what was taken back to be refused",
    )


@pytest.mark.security("2.1")
def test_controller_and_operator_read_no_secret(identities: Identities) -> None:
    for account in ("banlieue-controller", "banlieue-operator"):
        assert identities.readable(identities.as_account(account)) == set()


@pytest.mark.security("2.3")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/spec/userData/secretRef/name", PLANTED[0]),
        ("/spec/networkData", {"secretRef": {"name": PLANTED[0]}}),
        ("/spec/cpus", 64),
        ("/metadata/labels", {"x": "y"}),
    ],
)
def test_a_provider_rewrites_nothing_of_its_machines(
    identities: Identities, mine: Kube, path: str, value: object
) -> None:
    with refused("a provider may"):
        mine.patch(MACHINES, "mine-vm", [{"op": "add", "path": path, "value": value}], TENANT)
    assert PLANTED[0] not in identities.granted()


@pytest.mark.security("2.4")
def test_a_provider_does_not_touch_the_machines_of_another(
    identities: Identities, mine: Kube
) -> None:
    words = f"may not operate Provider {identities.namespace}/theirs"
    for change, subresource in (
        ({"spec": {"providerID": "simulated://x"}}, ""),
        ({"status": {"powerState": "PoweredOff"}}, "status"),
    ):
        with refused(words):
            mine.patch(MACHINES, "theirs-vm", change, TENANT, subresource=subresource)
    with refused("forbidden"):
        mine.delete(MACHINES, "theirs-vm", TENANT)
    with refused("forbidden"):
        mine.get("providers", "theirs", identities.namespace)
    with refused("forbidden"):
        mine.get("secrets", "theirs-creds", identities.namespace)


@pytest.mark.security("2.5")
def test_a_provider_that_never_gets_done_widens_nothing(identities: Identities, mine: Kube) -> None:
    before = identities.granted()
    for count in range(3):
        told = {"failures": {"count": count}, "initialization": {"provisioned": False}}
        mine.patch(MACHINES, "mine-vm", {"status": told}, TENANT, subresource="status")
    (role,) = [
        it
        for it in identities.kube.list("roles", TENANT, label_selector=GRANTS)
        if "mine-vm-data" in str(it.get("rules"))
    ]
    everything = {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    with refused("forbidden"):
        mine.patch("roles", role["metadata"]["name"], everything, TENANT)
    renewal = {"metadata": {"annotations": {"banlieue.io/renew-grant": "2100-01-01T00:00:00Z"}}}
    with refused("forbidden"):
        mine.patch("virtualmachines", "mine-vm", renewal, TENANT)
    assert identities.granted() == before


@pytest.mark.security("2.6")
def test_a_provider_gets_no_other_token_and_no_right(identities: Identities, mine: Kube) -> None:
    where = identities.namespace
    for account in (
        "banlieue-controller",
        "banlieue-operator",
        "banlieue-provider-simulated-theirs",
    ):
        path = mine.resource("serviceaccounts").path(where, account, "token")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        with refused("forbidden"):
            mine.request("POST", path, body=request)
    with refused("forbidden"):
        mine.patch("providers", "mine", {"spec": {"connection": {"endpoint": "http://x"}}}, where)
    with refused("the operator's"):
        told = {"status": {"workload": {"name": "banlieue-provider-simulated-theirs"}}}
        mine.patch("providers", "mine", told, where, subresource="status")


# A namespace that is needed


@pytest.mark.identity("7.2")
@pytest.mark.security("4.1")
def test_a_namespace_with_a_provider_in_use_is_not_deleted(identities: Identities) -> None:
    kube = identities.kube
    where = create_namespace(kube, INFRA)
    identities.register("elsewhere", where)
    name = identities.kube.wait_for(
        "providers",
        "elsewhere",
        where,
        until=lambda it: ((it.get("status") or {}).get("workload") or {}).get("name"),
        what="served",
    )["status"]["workload"]["name"]
    wait_until(lambda: kube.find("rolebindings", name, where), 30, "its rights")
    with closing(identities.as_account(name, where)) as server:
        held: Object = {"metadata": {"finalizers": [IN_USE, "banlieue.io/provider-workload"]}}
        server.patch("providers", "elsewhere", held, where)
        kube.wait_for(
            "namespaces",
            where,
            until=lambda it: "banlieue.io/in-use" in it["metadata"]["labels"],
            what="labelled",
        )
        with refused("holds a Provider that machines depend on"):
            kube.delete("namespaces", where)
        assert kube.get("namespaces", where)["status"]["phase"] == "Active"
        held["metadata"]["finalizers"].remove(IN_USE)
        server.patch("providers", "elsewhere", held, where)
    kube.wait_for(
        "namespaces",
        where,
        until=lambda it: "banlieue.io/in-use" not in it["metadata"]["labels"],
        what="without the label",
    )
    kube.delete("namespaces", where)
