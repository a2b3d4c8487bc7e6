"""The objects that serve one Provider, as they should be. Pure.

Deployment, ServiceAccount, Role, RoleBinding, ClusterRoleBinding, all of one name, and a
NetworkPolicy where the class asks for it.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NETWORK_POLICIES,
    PROVIDERS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClassSpec
from banlieue.operator import deployment, network
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.connection import Source, sources

KINDS = (
    DEPLOYMENTS,
    CLUSTER_ROLE_BINDINGS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    NETWORK_POLICIES,
)
"""Kinds of what is made for a Provider, in the order in which it is taken away."""

MANAGED_BY = "banlieue-operator"
SELECTOR = f"{names.LABEL_MANAGED_BY}={MANAGED_BY},{names.LABEL_WORKLOAD_OF}"
"""Label selector of everything that was made for some Provider."""

_FOREGROUND = "foregroundDeletion"
_NAME = "banlieue-provider-"
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One object as it should be; `part` is what follows metadata, such as `spec`."""

    resource: Resource
    key: Key
    metadata: dict[str, Any]
    parts: dict[str, Any] = field(default_factory=dict)

    def body(self) -> Obj:
        """The object to create."""
        return {"metadata": dict(self.metadata), **self.parts}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the operator knows of itself: where banlieue is installed, and its own image."""

    namespace: str = names.SYSTEM_NAMESPACE
    image: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """Which objects serve a Provider, and in which namespace the pod runs.

    Args:
        provider: the Provider.
        spec: its ProviderClass.
        around: what the operator knows of itself.
        former: Secrets and ConfigMaps the Provider named before, which its process still has to
            let go.
    """

    provider: Provider
    spec: ProviderClassSpec
    around: Surroundings
    former: tuple[Source, ...] = ()

    @property
    def key(self) -> Key:
        """Namespace and name of the Provider."""
        return key_of(self.provider)

    @property
    def name(self) -> str:
        """Name of all the objects."""
        return names.provider_workload_name(
            self.spec.backend, self.key.name, self.key.namespace, self.around.namespace
        )

    @property
    def namespace(self) -> str:
        """Where the pod runs."""
        return self.spec.workload_namespace or self.key.namespace

    @property
    def image(self) -> str:
        """What the pod runs; empty when neither the class nor the operator says it."""
        return deployment.image(self.spec, self.around.image)

    def wanted(self) -> tuple[Wanted, ...]:
        """All objects, in the order in which they are made: what may be done before who does it."""
        return (
            self._account(),
            self._role(),
            self._role_binding(),
            self._cluster_role_binding(),
            *self._network_policy(),
            self._deployment(),
        )

    def _account(self) -> Wanted:
        return self._made(SERVICE_ACCOUNTS, self.namespace)

    def _role(self) -> Wanted:
        return self._made(
            ROLES, self.key.namespace, rules=role_rules(self.provider, former=self.former)
        )

    def _role_binding(self) -> Wanted:
        return self._made(
            ROLE_BINDINGS,
            self.key.namespace,
            roleRef={"apiGroup": _RBAC, "kind": "Role", "name": self.name},
            subjects=self._subjects(),
        )

    def _cluster_role_binding(self) -> Wanted:
        role = names.provider_cluster_role(self.spec.backend)
        return self._made(
            CLUSTER_ROLE_BINDINGS,
            "",
            roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            subjects=self._subjects(),
        )

    def _network_policy(self) -> Iterable[Wanted]:
        if self.spec.network_policy is None:
            return
        spec = network.policy(
            self.spec.network_policy, self.provider.spec.connection, self._selected()
        )
        yield self._made(NETWORK_POLICIES, self.namespace, spec=spec)

    def _deployment(self) -> Wanted:
        arguments = [
            "provider",
            self.spec.backend,
            f"--provider={self.key}",
            "--http-host=0.0.0.0",
            f"--http-port={deployment.PORT}",
            f"--system-namespace={self.around.namespace}",
            f"--log-level={self.spec.log_level.value}",
        ]
        spec = deployment.spec(
            self.spec,
            account=self.name,
            image=self.image,
            arguments=arguments,
            selected=self._selected(),
            labels=self._labels(),
        )
        return self._made(DEPLOYMENTS, self.namespace, spec=spec)

    def _selected(self) -> dict[str, str]:
        """Labels that only the pod of this Provider has."""
        return {
            names.LABEL_NAME: "banlieue",
            names.LABEL_COMPONENT: "provider",
            names.LABEL_INSTANCE: self.name,
        }

    def _labels(self) -> dict[str, str]:
        return {
            **self._selected(),
            names.LABEL_PART_OF: "banlieue",
            names.LABEL_MANAGED_BY: MANAGED_BY,
            names.LABEL_WORKLOAD_OF: names.provider_hash(self.key.namespace, self.key.name),
        }

    def _subjects(self) -> list[dict[str, str]]:
        return [{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}]

    def _made(self, resource: Resource, namespace: str, **parts: Any) -> Wanted:  # noqa: ANN401 - JSON
        metadata: dict[str, Any] = {"name": self.name}
        if resource.namespaced:
            metadata["namespace"] = namespace
        owner = self._owner(resource, namespace)
        if owner:
            metadata["ownerReferences"] = [owner]
        metadata["labels"] = self._labels()
        metadata["annotations"] = {
            names.ANNOTATION_WORKLOAD_OF: str(self.key),
            names.ANNOTATION_BACKEND: self.spec.backend,
            names.ANNOTATION_DESIRED: _digest(metadata, parts),
        }
        return Wanted(resource, Key(namespace, self.name), metadata, parts)

    def _owner(self, resource: Resource, namespace: str) -> dict[str, Any] | None:
        """The owner reference, where one is valid: the garbage collector deletes all others.

        None while the Provider is deleted in the foreground, for then the garbage collector takes
        away what it owns at once, and its machines still need their process.
        """
        meta = self.provider.metadata
        if not resource.namespaced or namespace != self.key.namespace:
            return None
        if _FOREGROUND in meta.finalizers:
            return None
        return {
            "apiVersion": PROVIDERS.api_version,
            "kind": PROVIDERS.kind,
            "name": meta.name,
            "uid": meta.uid,
            "controller": True,
        }


def key_of(provider: Provider) -> Key:
    """Namespace and name of a Provider."""
    return Key(provider.metadata.namespace or "", provider.metadata.name)


def role_rules(provider: Provider, *, former: Sequence[Source] = ()) -> list[dict[str, Any]]:
    """What the process of one Provider may do in the Provider's namespace, object by object."""
    name, named = provider.metadata.name, dict.fromkeys((*sources(provider).all(), *former))
    secrets = sorted({key.name for resource, key in named if resource == SECRETS})
    config_maps = sorted({key.name for resource, key in named if resource != SECRETS})
    rules = [
        _rule(names.GROUP, "providers", ["get", "list", "watch", "patch", "operate"], [name]),
        _rule(names.GROUP, "providers/status", ["patch"], [name]),
        # Credentials and certificate authorities; patched is only a finalizer.
        _rule("", "secrets", ["get", "patch"], secrets),
        _rule("", "configmaps", ["get", "patch"], config_maps),
        # A name cannot limit who may create.
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        _rule("coordination.k8s.io", "leases", ["get", "patch"], [provider.metadata.uid or ""]),
    ]
    return [rule for rule in rules if rule.get("resourceNames", [name])]


def named_in(role: Obj, namespace: str) -> set[Source]:
    """The Secrets and ConfigMaps a Role of `role_rules` names."""
    kinds = {"secrets": SECRETS, "configmaps": CONFIG_MAPS}
    return {
        (kinds[resource], Key(namespace, name))
        for rule in role.get("rules") or ()
        for resource in rule.get("resources") or ()
        if resource in kinds
        for name in rule.get("resourceNames") or ()
    }


def is_of(obj: Obj, provider: Key) -> bool:
    """Whether the operator made the object for that Provider."""
    return maker(obj) == provider


def maker(obj: Obj) -> Key | None:
    """The Provider an object was made for; None when it is none of ours.

    Whoever may write objects in some namespace can have one say this, too. So it is believed of the
    names alone that ours have, and nothing else that the object says before `is_trusted`.
    """
    meta = obj.get("metadata") or {}
    if not str(meta.get("name", "")).startswith(_NAME):
        return None
    annotations = meta.get("annotations") or {}
    namespace, _, name = annotations.get(names.ANNOTATION_WORKLOAD_OF, "").partition("/")
    return Key(namespace, name) if namespace and name else None


def is_trusted(obj: Obj, provider: Key) -> bool:
    """Whether an object is where nobody writes who may not write the Provider, too.

    A pod may run in another namespace, and whose objects are found there decide nothing.
    """
    return Key.of(obj).namespace in {"", provider.namespace}


def backend_of(obj: Obj) -> str:
    """The backend an object of ours serves."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_BACKEND, ""))


def selector_of(provider: Key) -> str:
    """Label selector of all that was made for one Provider."""
    return f"{names.LABEL_WORKLOAD_OF}={names.provider_hash(provider.namespace, provider.name)}"


def _rule(group: str, resource: str, verbs: list[str], named: list[str]) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "resources": [resource],
        "verbs": verbs,
        "resourceNames": named,
    }


def _digest(metadata: dict[str, Any], parts: dict[str, Any]) -> str:
    text = json.dumps([metadata, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
