"""What is said of any object of an install: its resource, its key, its place in the order. Pure."""

from collections.abc import Iterable
from typing import Final

from banlieue.api.crd.render import to_yaml
from banlieue.api.meta import Resource
from banlieue.api.names import plural
from banlieue.sdk.kube import Key, Obj

_ORDER: Final = (
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "ServiceAccount",
    "ConfigMap",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "NetworkPolicy",
    "Service",
    "Deployment",
)
"""Who refers to another comes after it; what runs comes last, when it may do its work."""

_CLUSTER_SCOPED: Final = frozenset(
    {
        "Namespace",
        "CustomResourceDefinition",
        "PriorityClass",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)


def resource_of(obj: Obj) -> Resource:
    """Where an object of an install lives.

    Raises:
        KeyError: no install has objects of that kind.
    """
    kind = obj["kind"]
    if kind not in _ORDER:
        raise KeyError(kind)
    group, _, version = obj["apiVersion"].rpartition("/")
    return Resource(group, version, kind, plural(kind), namespaced=kind not in _CLUSTER_SCOPED)


def key_of(obj: Obj) -> Key:
    """Namespace and name; whatever lives in no namespace has none."""
    meta = obj["metadata"]
    scoped = obj["kind"] in _CLUSTER_SCOPED
    return Key("" if scoped else meta.get("namespace") or "", meta["name"])


def title(obj: Obj) -> str:
    """An object as people call it: `Deployment banlieue-system/banlieue-controller`."""
    return f"{obj['kind']} {key_of(obj)}"


def in_order(objects: Iterable[Obj]) -> list[Obj]:
    """Objects so that each comes after what it needs; otherwise as they were."""
    return sorted(objects, key=lambda obj: _ORDER.index(obj["kind"]))


def stream(objects: Iterable[Obj]) -> str:
    """Objects as one YAML stream for `kubectl apply -f -`."""
    return "".join(f"---\n{to_yaml(obj)}" for obj in objects)
