"""A management cluster with Cluster API and banlieue: its names, and what tests do with it."""

from dataclasses import dataclass
from typing import Final

import banlieue
from hack.cluster.clusterapi.clusterctl import Clusterctl
from hack.cluster.clusterapi.kubectl import kubectl
from hack.cluster.interface import Cluster
from hack.components import semantic_version, templates
from test.kit.kube import Kube, Object

NAMESPACE: Final = "banlieue-system"
VERSION: Final = semantic_version(banlieue.__version__)
FLAVORS: Final = tuple(
    path.stem.removeprefix("cluster-template").removeprefix("-")
    for path in templates()
    if path.stem.startswith("cluster-template")
)
"""Of the cluster templates; the first is called by the empty string."""
TEMPLATE_VALUES: Final = {
    "CONTROL_PLANE_ENDPOINT_HOST": "10.0.0.9",
    "BANLIEUE_IMAGE": "ubuntu",
    "BANLIEUE_NETWORK_CLASS": "fast",
    "BANLIEUE_STORAGE_CLASS": "solid",
}
"""What every template has to be given."""
FLAVOR_VALUES: Final = {
    "two-vcenters": {
        "BANLIEUE_PROVIDER_1": "vc-1",
        "BANLIEUE_PROVIDER_2": "vc-2",
        "BANLIEUE_FAILURE_DOMAIN_1": "vc-1-dc0-c0",
        "BANLIEUE_FAILURE_DOMAIN_2": "vc-2-dc0-c0",
    }
}
"""What a flavor has to be given besides."""
INVENTORY: Final = "providers.clusterctl.cluster.x-k8s.io"


def template_values(flavor: str) -> dict[str, str]:
    """Everything a flavor has to be given."""
    return {**TEMPLATE_VALUES, **FLAVOR_VALUES.get(flavor, {})}


@dataclass(frozen=True, slots=True)
class Management:
    """The cluster, and clusterctl with a repository that holds the release of this tree."""

    cluster: Cluster
    clusterctl: Clusterctl


def delete_provider(clusterctl: Clusterctl) -> None:
    """Delete banlieue with its kinds and its namespace; nobody may use them any more.

    The classes the operator made when it started go first, as objects of ours do.

    The namespace holds clusterctl's record of the installation: before it is gone, the next `init`
    takes the provider for installed.
    """
    assert clusterctl.kubeconfig
    kubectl(clusterctl.kubeconfig, "delete", "providerclasses.banlieue.io", "--all")
    flags = ("--include-crd", "--include-namespace")
    clusterctl.run("delete", "--infrastructure=banlieue", *flags)
    kubectl(clusterctl.kubeconfig, "wait", "--for=delete", f"ns/{NAMESPACE}", "--timeout=120s")


def simulated_cluster(name: str) -> Object:
    """A cluster of the simulated backend with an endpoint."""
    return {
        "apiVersion": "infrastructure.banlieue.io/v1alpha1",
        "kind": "SimulatedCluster",
        "metadata": {"name": name},
        "spec": {"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}},
    }


def uids(client: Kube, kind: str, selector: str | None = None) -> dict[str, str]:
    """The uid of each object of a kind, by name."""
    found = client.list(kind, label_selector=selector)
    return {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in found}


def same(one: Object, other: Object) -> bool:
    """Whether one is the other as it was: the object, and what it asks for."""
    return bool(one["metadata"]["uid"] == other["metadata"]["uid"] and one["spec"] == other["spec"])
