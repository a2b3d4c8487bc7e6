"""Clusters and machine templates, by the controller's process and with the rights it ships with.

Cluster API itself is not there: its kind Cluster stands in the API server without any meaning.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from test.kit.barekinds import bare_kind
from test.kit.installed import Registered
from test.kit.kube import KubeError
from test.kit.playedpool import CLAIMS, REFERENCE, PlayedPool
from test.kit.playedpool import GROUP as IPAM
from test.kit.running import Running
from test.kit.stack import condition
from test.kit.waiting import wait_until
from test.kit.watched import Watched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend_kind", ["simulated"], indirect=True),
]

CLUSTERS: Final = "clusters.cluster.x-k8s.io"
INFRA: Final = "simulatedclusters"
TEMPLATES: Final = "simulatedmachinetemplates"
SECONDS: Final = 60.0
ENDPOINT: Final = {"host": "10.0.0.9", "port": 6443}
GROUP: Final = "infrastructure.banlieue.io/v1alpha1"

Object = dict[str, Any]


def definition() -> Object:
    """The kind Cluster with its own name and version, and whatever fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CLUSTERS},
        "spec": {
            "group": "cluster.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
            "versions": [
                {
                    "name": "v1beta2",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


@pytest.fixture
def with_clusters(watched_install: Watched) -> Iterator[Registered]:
    """banlieue at work in an API server that has the kind Cluster and those of IPAM, too."""
    registered = watched_install.registered
    kinds = (("IPAddressClaim", "ipaddressclaims"), ("IPAddress", "ipaddresses"))
    definitions = [definition(), *(bare_kind(IPAM, *kind) for kind in kinds)]
    registered.kube.apply_crds(definitions)
    running: list[Running] = []
    try:
        running.append(Running.start(registered))
        yield registered
    finally:
        for it in running:
            it.stop()
        for made in definitions:
            registered.kube.delete("customresourcedefinitions", made["metadata"]["name"])


def owned(
    registered: Registered, name: str, kind: str = "SimulatedCluster", **spec: object
) -> Object:
    """An infrastructure cluster that its Cluster owns, as Cluster API leaves it."""
    made = registered.kube.create(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": {"namespace": registered.namespace, "name": name},
            "spec": {"paused": False},
        }
    )
    reference = {key: made[key] for key in ("apiVersion", "kind")}
    reference |= {key: made["metadata"][key] for key in ("name", "uid")}
    return registered.kube.create(
        {
            "apiVersion": GROUP,
            "kind": kind,
            "metadata": {
                "namespace": registered.namespace,
                "name": name,
                "ownerReferences": [reference],
            },
            "spec": spec,
        }
    )


def test_a_cluster_lists_its_domains_and_heeds_its_owner(with_clusters: Registered) -> None:
    registered, kube = with_clusters, with_clusters.kube
    namespace = registered.namespace
    owned(registered, "prod")
    waits = kube.wait_for(
        INFRA,
        "prod",
        namespace,
        until=lambda it: condition(it, "Ready") == ("False", "WaitingForControlPlaneEndpoint"),
        timeout=SECONDS,
    )
    provider = kube.get("providers", registered.provider, registered.stack.namespace)
    offered = {it["name"] for it in provider["status"]["failureDomains"]}
    assert {it["name"] for it in waits["status"]["failureDomains"]} == offered
    assert "finalizers" not in waits["metadata"]

    kube.patch(CLUSTERS, "prod", {"spec": {"controlPlaneEndpoint": ENDPOINT}}, namespace)
    found = kube.wait_for(INFRA, "prod", namespace, until=provisioned, timeout=SECONDS)
    assert condition(found, "Ready") == ("True", "Ready")
    assert "controlPlaneEndpoint" not in found["spec"]

    kube.patch(CLUSTERS, "prod", {"spec": {"paused": True}}, namespace)
    kube.wait_for(
        INFRA,
        "prod",
        namespace,
        until=lambda it: condition(it, "Paused") == ("True", "Paused"),
        timeout=SECONDS,
    )

    kube.create(template(namespace))
    small = kube.wait_for(
        TEMPLATES, "small", namespace, until=lambda it: it.get("status"), timeout=SECONDS
    )
    assert small["status"]["capacity"] == {
        "cpu": "2",
        "memory": "4096Mi",
        "ephemeral-storage": "20Gi",
    }

    set_endpoint = {"spec": {"controlPlaneEndpoint": ENDPOINT}}
    kube.patch(INFRA, "prod", set_endpoint, namespace)
    other = {"spec": {"controlPlaneEndpoint": {"host": "10.0.0.10", "port": 6443}}}
    with pytest.raises(KubeError, match="never changes once the cluster is provisioned"):
        kube.patch(INFRA, "prod", other, namespace)

    kube.delete(INFRA, "prod", namespace)
    wait_until(lambda: kube.find(INFRA, "prod", namespace) is None, SECONDS, "the cluster to go")


def test_an_endpoint_from_a_pool_is_kept_until_the_cluster_goes(with_clusters: Registered) -> None:
    registered, kube = with_clusters, with_clusters.kube
    namespace = registered.namespace
    pool = PlayedPool(kube, namespace, ["10.0.0.77", "10.0.0.78"])
    wish = {**REFERENCE, "port": 6443}
    owned(registered, "prod", controlPlaneEndpointPool=wish)
    # Of a backend without a Provider here: its address is claimed all the same.
    owned(registered, "other", "VSphereCluster", controlPlaneEndpointPool=wish)

    def endpoints() -> list[Object]:
        pool.step()
        found = (kube.get(*it, namespace) for it in both)
        return [it["spec"].get("controlPlaneEndpoint") for it in found]

    both = ((INFRA, "prod"), ("vsphereclusters", "other"))
    wait_until(lambda: all(endpoints()), SECONDS, "the endpoints")
    assert {it["host"] for it in endpoints()} == {"10.0.0.77", "10.0.0.78"}
    assert {it["port"] for it in endpoints()} == {6443}
    kube.wait_for(INFRA, "prod", namespace, until=provisioned, timeout=SECONDS)
    for it in both:
        kube.delete(*it, namespace)
        kube.wait_gone(*it, namespace, timeout=SECONDS)
    assert kube.list(CLAIMS, namespace) == []


def provisioned(obj: Object) -> bool:
    status = obj.get("status") or {}
    return bool((status.get("initialization") or {}).get("provisioned"))


def template(namespace: str) -> Object:
    machine = {
        "imageRef": {"name": "ubuntu"},
        "cpus": 2,
        "memoryMiB": 4096,
        "disks": [{"name": "root", "sizeGiB": 20}],
    }
    return {
        "apiVersion": GROUP,
        "kind": "SimulatedMachineTemplate",
        "metadata": {"namespace": namespace, "name": "small"},
        "spec": {"template": {"spec": machine}},
    }
