"""Whether the webhooks of Cluster API's managers answer: each is asked what it must refuse.

A Deployment's conditions cannot tell that: they are stale after a cluster was resumed, and an
available manager still waits for cert-manager to put its authority into the configurations. All
requests are dry runs, so nothing is left of them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.cluster.clusterapi.kubectl import KubectlError, kubectl

Object = dict[str, Any]

_PAUSE_SECONDS: Final = 0.25
# The server waits up to 10 s for a webhook whose pod is gone; a new pod may answer long before.
_ANSWER_SECONDS: Final = 5
_CLUSTER_API: Final = "cluster.x-k8s.io/v1beta2"
_CONTROL_PLANE: Final = "controlplane.cluster.x-k8s.io/v1beta2"
_BOOTSTRAP: Final = "bootstrap.cluster.x-k8s.io/v1beta2"


class WebhookError(Exception):
    """A webhook does not answer as it must; the message says which and what was seen."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An object that a validating webhook refuses.

    Attributes:
        webhook: Name of the webhook.
        wrong: The object; nothing else, such as its schema, finds fault with it.
        message: Part of what the webhook says of it.
    """

    webhook: str
    wrong: Object
    message: str


@dataclass(frozen=True, slots=True)
class Defaulting:
    """An object that a mutating webhook completes.

    Attributes:
        webhook: Name of the webhook.
        given: The object.
        field: Path to the field in what is stored.
        value: What the field must be.
    """

    webhook: str
    given: Object
    field: tuple[str, ...]
    value: object


def cluster(name: str, namespace: str = "default", **spec: object) -> Object:
    """A Cluster with that spec, which must name a control plane, infrastructure or topology."""
    return _object(_CLUSTER_API, "Cluster", name, namespace, spec)


def topology(version: str) -> Object:
    """The topology of a Cluster whose class nobody has made; the webhooks only warn of that."""
    return {"classRef": {"name": "webhook-probe"}, "version": version}


def pods(cidr: str) -> Object:
    """The network of a Cluster, with that range of pod addresses."""
    return {"pods": {"cidrBlocks": [cidr]}}


def infrastructure(kind: str, name: str) -> Object:
    """A reference to an object of ours."""
    return {"apiGroup": "infrastructure.banlieue.io", "kind": kind, "name": name}


def control_plane(name: str, version: str, namespace: str = "default") -> Object:
    """A KubeadmControlPlane of that Kubernetes version."""
    reference = infrastructure("VSphereMachineTemplate", name)
    spec = {
        "replicas": 1,
        "version": version,
        "machineTemplate": {"spec": {"infrastructureRef": reference}},
        "kubeadmConfigSpec": {"format": "cloud-config"},
    }
    return _object(_CONTROL_PLANE, "KubeadmControlPlane", name, namespace, spec)


def _machine_deployment(name: str, version: str) -> Object:
    reference = infrastructure("VSphereMachineTemplate", name)
    machine = {
        "clusterName": name,
        "version": version,
        "bootstrap": {"dataSecretName": name},
        "infrastructureRef": reference,
    }
    spec = {"clusterName": name, "template": {"spec": machine}}
    return _object(_CLUSTER_API, "MachineDeployment", name, "default", spec)


def _object(api_version: str, kind: str, name: str, namespace: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


_PROBE: Final = "webhook-probe"
_TWO_SOURCES: Final = {
    "path": "/tmp/probe",  # noqa: S108 - a path in a guest that never comes to be
    "content": "x",
    "contentFrom": {"secret": {"name": "x", "key": "x"}},
}

REFUSALS: Final = (
    Refusal(
        "validation.cluster.cluster.x-k8s.io",
        cluster(
            _PROBE,
            infrastructureRef=infrastructure("VSphereCluster", _PROBE),
            clusterNetwork=pods("10.0.0.0/33"),
        ),
        "invalid CIDR address: 10.0.0.0/33",
    ),
    Refusal(
        "validation.kubeadmcontrolplane.controlplane.cluster.x-k8s.io",
        control_plane(_PROBE, "no-version"),
        "must be a valid semantic version",
    ),
    Refusal(
        "validation.kubeadmconfig.bootstrap.cluster.x-k8s.io",
        _object(_BOOTSTRAP, "KubeadmConfig", _PROBE, "default", {"files": [_TWO_SOURCES]}),
        "only one of content or contentFrom",
    ),
)
DEFAULTINGS: Final = (
    # Not a Cluster: the webhook waits 2 s for the class, whenever there is none.
    Defaulting(
        "default.machinedeployment.cluster.x-k8s.io",
        _machine_deployment(_PROBE, "1.34.0"),
        ("spec", "template", "spec", "version"),
        "v1.34.0",
    ),
    Defaulting(
        "default.kubeadmcontrolplane.controlplane.cluster.x-k8s.io",
        control_plane(_PROBE, "1.34.0"),
        ("spec", "version"),
        "v1.34.0",
    ),
)


def probe_webhooks(kubeconfig: Path) -> None:
    """Ask every webhook once.

    Raises:
        WebhookError: One cannot be reached, allows what it must refuse, or completes nothing.
    """
    for refusal in REFUSALS:
        _check_refusal(kubeconfig, refusal)
    for defaulting in DEFAULTINGS:
        _check_defaulting(kubeconfig, defaulting)


def await_webhooks(
    kubeconfig: Path, timeout: float, *, clock: Callable[[], float] = time.monotonic
) -> float:
    """Ask until every webhook answers as it must; returns the seconds that took.

    Args:
        kubeconfig: Whose cluster to ask; it may create Cluster API's objects.
        timeout: Seconds until giving up.
        clock: Seconds that only ever grow.

    Raises:
        WebhookError: They do not answer in time; the message says what was seen last.
    """
    started = clock()
    while True:
        try:
            probe_webhooks(kubeconfig)
        except WebhookError as error:
            if clock() - started > timeout:
                raise WebhookError(f"not after {timeout:g} s: {error}") from error
        else:
            return clock() - started
        time.sleep(_PAUSE_SECONDS)


def _check_refusal(kubeconfig: Path, refusal: Refusal) -> None:
    try:
        _dry_run(kubeconfig, refusal.wrong)
    except KubectlError as error:
        # A webhook that cannot be reached says something else. kubectl does not tell the name of
        # the one that refused.
        if refusal.message in str(error):
            return
        raise WebhookError(f"{refusal.webhook} does not answer: {error}") from error
    raise WebhookError(f"{refusal.webhook} allows what it must refuse")


def _check_defaulting(kubeconfig: Path, defaulting: Defaulting) -> None:
    try:
        stored: Any = _dry_run(kubeconfig, defaulting.given)
    except KubectlError as error:
        raise WebhookError(f"{defaulting.webhook} does not answer: {error}") from error
    for name in defaulting.field:
        stored = stored.get(name, {})
    if stored != defaulting.value:
        where = ".".join(defaulting.field)
        raise WebhookError(f"{defaulting.webhook} leaves {where} as {stored!r}")


def _dry_run(kubeconfig: Path, wanted: Object) -> Object:
    flags = ("--dry-run=server", "-o", "json", "-f", "-")
    answer: Object = json.loads(
        kubectl(kubeconfig, "create", *flags, input=wanted, request_seconds=_ANSWER_SECONDS)
    )
    return answer
