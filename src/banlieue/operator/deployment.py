"""The Deployment that runs the process of one Provider. Pure.

Shaped as `config/providers/base` shapes that of a provider without an operator.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from banlieue.api import names
from banlieue.api.v1alpha1.providerclass import ProviderClassSpec, PullPolicy

PORT = 8080
_USER = 65532
_PORT_NAME = "http"
_GRACE_SECONDS = 40
"""Running passes may end, Leases are handed back: 25 s, and some for the rest."""

_REQUESTS = {"cpu": "50m", "memory": "128Mi"}
_LIMITS = {"memory": "1Gi"}
_NO_PROFILES: dict[str, Any] = {"appArmorProfile": None, "seLinuxOptions": None}
_NOTHING_ELSE: dict[str, Any] = {
    "initContainers": [],
    "volumes": [],
    "resourceClaims": [],
    "hostAliases": [],
    "nodeName": "",
    "hostNetwork": False,
    "hostPID": False,
    "hostIPC": False,
    "shareProcessNamespace": False,
}
"""Spelled out, so that somebody's additions are seen and taken back. The admission policy lets the
operator write no pod that has them."""

_CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def image(spec: ProviderClassSpec, own: str) -> str:
    """The image of a class's pods, each part it leaves out as in the operator's own image.

    Args:
        spec: the class.
        own: the operator's image, `repository:tag` or `repository@digest`; empty if not known.

    Returns:
        The image; empty when nobody says which.
    """
    repository, mark, tag = split_image(own)
    given = spec.image
    if given is not None and given.tag:
        mark, tag = ("@" if _is_digest(given.tag) else ":"), given.tag
    if given is not None and given.repository:
        repository = given.repository
    if not repository:
        return ""
    return f"{repository}{mark}{tag}" if tag else repository


def split_image(text: str) -> tuple[str, str, str]:
    """Take an image apart: repository, `:` or `@` or nothing, tag or digest."""
    repository, at, digest = text.partition("@")
    if at:
        return repository, at, digest
    head, colon, tag = text.rpartition(":")
    # A colon before a slash belongs to the registry's port.
    return (head, colon, tag) if colon and "/" not in tag else (text, "", "")


def _is_digest(tag: str) -> bool:
    return ":" in tag


def spec(
    of_class: ProviderClassSpec,
    *,
    account: str,
    image: str,
    arguments: Sequence[str],
    selected: Mapping[str, str],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """The spec of the Deployment.

    Args:
        of_class: the class, for the shape of the pod.
        account: ServiceAccount of the pod.
        image: what the container runs.
        arguments: what it is told.
        selected: labels only this pod has.
        labels: all labels of ours, which win over the class's.
    """
    return {
        "replicas": 1,
        "revisionHistoryLimit": 3,
        # Two servers of one Provider never work side by side: its Lease keeps the second out.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": dict(selected)},
        "template": {
            "metadata": {
                "labels": {**of_class.pod_labels, **labels},
                "annotations": {
                    **of_class.pod_annotations,
                    "kubectl.kubernetes.io/default-container": names.MANAGER_CONTAINER,
                },
            },
            "spec": {
                **_placed(of_class),
                "serviceAccountName": account,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": _GRACE_SECONDS,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": _USER,
                    "runAsGroup": _USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                    "sysctls": [],
                    **_NO_PROFILES,
                },
                "containers": [_container(of_class, image, arguments)],
                **_NOTHING_ELSE,
            },
        },
    }


def _placed(of_class: ProviderClassSpec) -> dict[str, Any]:
    return {
        "nodeSelector": {"kubernetes.io/os": "linux", **of_class.node_selector},
        "tolerations": [it.to_api() for it in of_class.tolerations] or [dict(_CONTROL_PLANE)],
        "affinity": of_class.affinity.to_api() if of_class.affinity else {},
        "imagePullSecrets": [it.to_api() for it in of_class.image_pull_secrets],
        "priorityClassName": of_class.priority_class_name or "",
    }


def _container(of_class: ProviderClassSpec, image: str, arguments: Sequence[str]) -> dict[str, Any]:
    pull = of_class.image.pull_policy if of_class.image else PullPolicy.IF_NOT_PRESENT
    return {
        "name": names.MANAGER_CONTAINER,
        "image": image,
        "imagePullPolicy": pull.value,
        "args": list(arguments),
        # A container that is started again in the same pod goes on with the Leases it had.
        "env": [
            _from_field("POD_NAME", "metadata.name"),
            _from_field("POD_UID", "metadata.uid"),
            _from_field("POD_NAMESPACE", "metadata.namespace"),
        ],
        "ports": [{"name": _PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", period=2, failures=60),
        "livenessProbe": _probe("/healthz", period=10, failures=3),
        "readinessProbe": _probe("/readyz", period=5, failures=2),
        "resources": _resources(of_class),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": None,
            **_NO_PROFILES,
        },
        "lifecycle": None,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "command": [],
        "envFrom": [],
        "volumeMounts": [],
    }


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": _PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _resources(of_class: ProviderClassSpec) -> dict[str, Any]:
    given = of_class.resources.to_api()
    if not given:
        return {"requests": dict(_REQUESTS), "limits": dict(_LIMITS)}
    return {
        part: {name: str(quantity) for name, quantity in quantities.items()}
        for part, quantities in given.items()
    }
