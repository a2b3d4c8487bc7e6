"""Namespaces for one test each."""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from test.kit.kube import Kube, KubeError

# Kinds that are not ours but carry our finalizers.
_BUILT_IN: Final = ("secrets", "configmaps", "leases.coordination.k8s.io")
_GONE: Final = 404


def create_namespace(kube: Kube, prefix: str = "test") -> str:
    """Create a namespace with a fresh name and return the name."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def discard_namespace(kube: Kube, namespace: str) -> None:
    """Delete a namespace whose controllers have ended, and at once all custom objects in it.

    Finalizers are taken off, since nobody is left to do so. The namespace itself vanishes some
    seconds later, which is not waited for.
    """
    remove_policies(kube, namespace)
    definitions = kube.list("customresourcedefinitions")
    custom = [
        definition["metadata"]["name"]
        for definition in definitions
        if definition["spec"]["scope"] == "Namespaced"
    ]
    for kind in (*custom, *_BUILT_IN):
        try:
            _discard_all(kube, kind, namespace)
        except KubeError as error:
            # The kind itself may have been deleted meanwhile.
            if error.status != _GONE:
                raise
    kube.delete("namespaces", namespace, missing_ok=True)


def unprotect(kube: Kube, kind: str, obj: Mapping[str, Any]) -> None:
    """Take `deletionProtection` off an object; an installed policy would keep it."""
    if not (obj.get("spec") or {}).get("deletionProtection"):
        return
    meta = obj["metadata"]
    kube.patch(kind, meta["name"], {"spec": {"deletionProtection": False}}, meta["namespace"])


def remove_policies(kube: Kube, namespace: str) -> None:
    """Remove the cluster-wide admission policies an installation in a namespace brought along."""
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        for obj in kube.list(kind):
            if obj["metadata"]["name"].startswith(f"{namespace}-"):
                kube.delete(kind, obj["metadata"]["name"], missing_ok=True)


def _discard_all(kube: Kube, kind: str, namespace: str) -> None:
    objects = kube.list(kind, namespace)
    if not objects:
        return
    for obj in objects:
        unprotect(kube, kind, obj)
    kube.delete_all(kind, namespace)
    for obj in objects:
        metadata = obj["metadata"]
        if metadata.get("finalizers"):
            free = {"metadata": {"finalizers": None}}
            try:
                kube.patch(kind, metadata["name"], free, namespace)
            except KubeError as error:
                if error.status != _GONE:
                    raise
