"""What a workload cluster can be managed by: pods of a cluster with a node, or bare processes."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.cluster.clusterapi.clusterctl import Clusterctl
from hack.cluster.clusterapi.install import kept_repository
from hack.cluster.clusterapi.repository import PROVIDER, Upstream
from test.kit.capimanagers import CapiManagers
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube
from test.kit.managementcluster import INVENTORY, NAMESPACE, VERSION, Management
from test.kit.patientkube import PatientKube
from test.kit.ports import LOOPBACK
from test.kit.stack import Stack
from test.kit.yaml_text import yaml_documents

VARIABLE: Final = "E2E_WORKLOAD"
"""`processes` take no node; else all are pods, on the cluster of the clusterctl tests."""

_GATES: Final = {"CLUSTER_TOPOLOGY": "true"}
_PROVIDERS: Final = "providers.banlieue.io"
_MOVED: Final = ("cluster.x-k8s.io", "infrastructure.banlieue.io")
_KUBEADM: Final = "capi-kubeadm"
_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True)
class Ground:
    """A management API with Cluster API and banlieue at work.

    Attributes:
        kube: An administrator of it.
        clusterctl: With the release of this tree in its repository.
        host: Address of this host that everybody at work there reaches.
        serve: Sees to it that a Provider that was made is served.
        pods: Whether they are pods.
        stack: Our roles, where all are processes.
        plane: The control plane, there.
        managers: The managers of Cluster API, there.
    """

    kube: Kube
    clusterctl: Clusterctl
    host: str
    serve: Callable[[str], None]
    pods: bool = True
    stack: Stack | None = None
    plane: ControlPlane | None = None
    managers: CapiManagers | None = None

    @property
    def kubeconfig(self) -> Path:
        """That of an administrator."""
        assert self.clusterctl.kubeconfig
        return self.clusterctl.kubeconfig


def of_pods() -> bool:
    """Whether nobody asked for processes."""
    return os.environ.get(VARIABLE) != "processes"


@contextmanager
def pods_ground(management: Management) -> Iterator[Ground]:
    """What `clusterctl init` left."""
    with PatientKube(management.cluster.kubeconfig) as kube:
        found = kube.find(INVENTORY, PROVIDER, NAMESPACE)
        if found and found["version"] != VERSION:
            management.clusterctl.run("delete", "--infrastructure=banlieue")
            found = None
        if not found:
            management.clusterctl.init()
        for name in ("banlieue-controller", "banlieue-operator"):
            kube.wait_for(
                "deployments.apps",
                name,
                NAMESPACE,
                until=lambda it: (it.get("status") or {}).get("availableReplicas") == 1,
                timeout=_SECONDS,
                what="available",
            )
        yield Ground(kube, management.clusterctl, management.cluster.host_address, lambda _: None)


@contextmanager
def processes_ground(directory: Path) -> Iterator[Ground]:
    """A bare control plane, the managers and our roles as processes, each with its own rights."""
    with ExitStack() as exits:
        plane = exits.enter_context(ControlPlane(directory / "plane"))
        managers = exits.enter_context(CapiManagers(plane, directory, _GATES))
        stack = exits.enter_context(Stack(plane, directory))
        stack.install()
        stack.controller().start()
        stack.operator("--image", "localhost/banlieue:dev").start()

        def serve(provider: str) -> None:
            found = plane.kube.wait_for(
                _PROVIDERS, provider, NAMESPACE, until=_workload, timeout=_SECONDS, what="manned"
            )
            stack.served("vsphere", provider, NAMESPACE, _workload(found)).start(ready=False)

        _record(plane)
        clusterctl = Clusterctl(kept_repository(), plane.kubeconfig)
        yield Ground(plane.kube, clusterctl, LOOPBACK, serve, False, stack, plane, managers)


def _record(plane: ControlPlane) -> None:
    """What `clusterctl init` notes of an installation: whose kinds it moves, and which versions."""
    upstream = Upstream.pinned()
    manifest = upstream.cluster_api / "cmd" / "clusterctl" / "config" / "manifest"
    text = (manifest / "clusterctl-api.yaml").read_text(encoding="utf-8")
    plane.install_crds(yaml_documents(text))
    for obj in plane.kube.list("customresourcedefinitions"):
        if obj["spec"]["group"].endswith(_MOVED):
            labels = {"metadata": {"labels": {"clusterctl.cluster.x-k8s.io": ""}}}
            plane.kube.patch("customresourcedefinitions", obj["metadata"]["name"], labels)
    theirs = upstream.cluster_api_version
    for label, kind, name, namespace, version in (
        ("cluster-api", "CoreProvider", "cluster-api", "capi-system", theirs),
        (
            "bootstrap-kubeadm",
            "BootstrapProvider",
            "kubeadm",
            f"{_KUBEADM}-bootstrap-system",
            theirs,
        ),
        (
            "control-plane-kubeadm",
            "ControlPlaneProvider",
            "kubeadm",
            f"{_KUBEADM}-control-plane-system",
            theirs,
        ),
        (PROVIDER, "InfrastructureProvider", "banlieue", NAMESPACE, VERSION),
    ):
        plane.kube.create(
            {
                "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
                "kind": "Provider",
                "metadata": {
                    "name": label,
                    "namespace": namespace,
                    "labels": {
                        "clusterctl.cluster.x-k8s.io": "",
                        "cluster.x-k8s.io/provider": label,
                        "clusterctl.cluster.x-k8s.io/core": "inventory",
                    },
                },
                "providerName": name,
                "type": kind,
                "version": version,
            }
        )


def _workload(provider: dict[str, Any]) -> str:
    status = provider.get("status") or {}
    return str((status.get("workload") or {}).get("name") or "")
