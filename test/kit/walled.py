"""banlieue installed with its admission policies, and accounts that may do anything by their roles.

What such an account is refused, the policies refuse: it holds every verb on every kind but
`operate`, which a Role of its own gives for one Provider.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube, KubeError
from test.kit.stack import Object, Stack, provider, provider_class
from test.kit.waiting import wait_until

RBAC: Final = "rbac.authorization.k8s.io"
MACHINES: Final = "simulatedmachines.infrastructure.banlieue.io"
TENANT: Final = "walled-tenant"
NAME: Final = "banlieue-provider-simulated-mine"
"""What the operator calls everything it makes for Provider `mine`."""

SELECTED: Final = {
    "app.kubernetes.io/component": "provider",
    "app.kubernetes.io/instance": NAME,
}
_EVERYTHING: Final = "walled-everything"
_VERBS: Final = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("bind", "escalate"),
)


@dataclass
class Walled:
    """An installation with two Providers, `mine` and `theirs`, and clients of accounts."""

    stack: Stack
    clients: dict[str, Kube] = field(default_factory=dict)

    @property
    def kube(self) -> Kube:
        """A client with all rights and no wall."""
        return self.stack.kube

    @property
    def namespace(self) -> str:
        """Where banlieue is installed."""
        return self.stack.namespace

    def as_account(self, name: str) -> Kube:
        """A client of an account of the install namespace, by a token of its own."""
        if name not in self.clients:
            path = self.stack.control_plane.kubeconfig_for_service_account(self.namespace, name)
            self.clients[name] = Kube(path, user_agent=name)
        return self.clients[name]

    def almighty(self, name: str) -> Kube:
        """The same for an account that is made here and may do everything by its roles."""
        if name in self.clients:
            return self.clients[name]
        self.kube.apply(account(self.namespace, name))
        self.kube.apply(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"walled-{name}"},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": _EVERYTHING},
                "subjects": [subject(self.namespace, name)],
            }
        )
        client = self.as_account(name)
        wait_until(lambda: client.list("secrets", TENANT), 10, "rights", retry_on=(KubeError,))
        return client

    def machine(self, name: str, on: str = "mine", **spec: object) -> Object:
        """A machine object of a Provider, made anew."""
        self.kube.delete(MACHINES, name, TENANT, missing_ok=True)
        return self.kube.create(
            {
                "apiVersion": "infrastructure.banlieue.io/v1alpha1",
                "kind": "SimulatedMachine",
                "metadata": {
                    "namespace": TENANT,
                    "name": name,
                    "labels": {"a": "b"},
                    "annotations": {"c": "d"},
                },
                "spec": {
                    "providerRef": {"namespace": self.namespace, "name": on},
                    "cpus": 2,
                    "memoryMiB": 512,
                    "imageRef": {"name": "ubuntu"},
                    "userData": {"secretRef": {"name": "theirs"}},
                    **spec,
                },
            }
        )

    def close(self) -> None:
        """Close the clients and take away what was made beside the installation."""
        for client in self.clients.values():
            client.close()
        for name in self.clients:
            self.kube.delete("clusterrolebindings", f"walled-{name}", missing_ok=True)
        self.kube.delete("clusterroles", _EVERYTHING, missing_ok=True)


@contextmanager
def walled(control_plane: ControlPlane, directory: Path) -> Iterator[Walled]:
    """The installation; its policies are in force."""
    with Stack(control_plane, directory) as stack:
        stack.install()
        found = Walled(stack)
        try:
            _register(found)
            yield found
        finally:
            found.close()
            stack.purge()


def _register(found: Walled) -> None:
    kube = found.kube
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    kube.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _EVERYTHING},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": list(_VERBS)}],
        }
    )
    kube.apply(provider_class("simulated", "Simulated"))
    for name in ("mine", "theirs"):
        kube.apply(secret(found.namespace, f"{name}-creds", username="u", password=f"of {name}"))
        kube.apply(
            provider(
                found.namespace,
                name,
                backend="simulated",
                connection={"endpoint": "simulated://127.0.0.1:1"},
                storage={"datastore": "one"},
                network={"network": "lan"},
            )
        )
        kube.apply(secret(TENANT, name, **{"user-data": f"of {name}"}))
    _await_policies(found)


def _await_policies(found: Walled) -> None:
    """Wait until all policies are in force.

    The API server takes up at once what it has been told of, in the order it was told: one that
    came after all others stands for them.
    """
    group, name = "admissionregistration.k8s.io/v1", f"last-of-{found.namespace}"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
        "resourceNames": [name],
    }
    policy: Object = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "the last one is in force"}],
        },
    }
    bound: Object = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}

    def refuses() -> bool:
        try:
            found.kube.create(probe, TENANT, dry_run=True)
        except KubeError as error:
            return "the last one is in force" in error.message
        return False

    found.kube.apply(policy)
    found.kube.apply(bound)
    wait_until(refuses, 30, "the policies to be in force")
    found.kube.delete("validatingadmissionpolicybindings", name)
    found.kube.delete("validatingadmissionpolicies", name)


def account(namespace: str, name: str) -> Object:
    """A ServiceAccount."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"namespace": namespace, "name": name},
    }


def subject(namespace: str, name: str) -> Object:
    """A ServiceAccount as bindings name it."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def secret(namespace: str, name: str, **data: str) -> Object:
    """A Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "stringData": data,
    }


def role(namespace: str, name: str, *rules: Object) -> Object:
    """A Role."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"namespace": namespace, "name": name},
        "rules": list(rules),
    }


def rule(group: str, resource: str, verbs: str, *names: str) -> Object:
    """A rule of a role; `verbs` are separated by blanks."""
    made: dict[str, Any] = {
        "apiGroups": [group],
        "resources": [resource],
        "verbs": verbs.split(),
    }
    return {**made, "resourceNames": list(names)} if names else made


def binding(namespace: str, name: str, to: str, *subjects: Object, kind: str = "Role") -> Object:
    """A RoleBinding, or a ClusterRoleBinding when the namespace is empty."""
    metadata = {"namespace": namespace, "name": name} if namespace else {"name": name}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": to},
        "subjects": list(subjects),
    }


def deployment(namespace: str) -> Object:
    """As the operator makes it for Provider `mine`, but for what no rule asks about."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": NAME},
        "spec": {
            "selector": {"matchLabels": dict(SELECTED)},
            "template": {
                "metadata": {"labels": dict(SELECTED)},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "volumes": [],
                    "initContainers": [],
                    "containers": [
                        {
                            "name": "manager",
                            "image": "localhost/banlieue:dev",
                            "env": [
                                {
                                    "name": "POD_NAME",
                                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                                }
                            ],
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                        }
                    ],
                },
            },
        },
    }


def workload_rules() -> list[Object]:
    """What the Role of Provider `mine` holds."""
    return [
        rule("banlieue.io", "providers", "get list watch patch operate", "mine"),
        rule("banlieue.io", "providers/status", "patch", "mine"),
        rule("", "secrets", "get patch", "mine-creds"),
        rule("", "configmaps", "get patch", "ca"),
        rule("coordination.k8s.io", "leases", "create"),
        rule("coordination.k8s.io", "leases", "get patch", "uid"),
    ]


def network_policy(namespace: str, selector: Object) -> Object:
    """One that lets everybody in to the pods it selects."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": NAME},
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [{}]},
    }
