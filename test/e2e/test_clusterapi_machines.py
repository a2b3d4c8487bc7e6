"""Machines of Cluster API, made and ended by its own core, on Providers served by pods.

The controllers run with the rights that were installed. The hypervisor runs on the host, so that
what a machine leaves behind there is seen.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from banlieue.api.types import IPFamily
from banlieue.api.v1alpha1.provider import PoolRef
from banlieue.sdk.pools import claim_name
from banlieue.sdk.simulated.world import USERNAME
from hack.cluster.clusterapi.clusterctl import Clusterctl
from hack.cluster.clusterapi.webhooks import cluster, infrastructure
from test.kit.kube import Kube, Object
from test.kit.managementcluster import Management
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import condition, credentials, is_ready, provider, vm_image
from test.kit.statuswatch import StatusWatch
from test.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
pytest_plugins = ["test.kit.fixtures_clusterctl"]

CLUSTERS: Final = "clusters.cluster.x-k8s.io"
MACHINES: Final = "machines.cluster.x-k8s.io"
NODES: Final = "simulatedmachines"
INFRASTRUCTURE: Final = "simulatedclusters"
CLAIMS: Final = "ipaddressclaims.ipam.cluster.x-k8s.io"
EXHAUSTED: Final = {
    "type": "Ready",
    "status": "False",
    "reason": "PoolExhausted",
    "message": "lab has no address left",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
PROVIDERS: Final = "providers.banlieue.io"
CLUSTER: Final = "prod"
FOREIGN: Final = "foreign"
PAUSED: Final = "cluster.x-k8s.io/paused"
MANAGED_BY: Final = "cluster.x-k8s.io/managed-by"
CONFIG: Final = {
    "apiGroup": "bootstrap.cluster.x-k8s.io",
    "kind": "KubeadmConfig",
    "name": "nobody-made-it",
}
"""A Machine names its configuration or its data; without one core refuses it."""
SECONDS: Final = 120.0
CROWD: Final = 50
CROWD_SECONDS: Final = 300.0

DATA: Final = "#cloud-config\nruncmd: [[touch, /run/cluster-api/bootstrap-success.complete]]\n"


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace with a Provider of its own, a Cluster, and the hypervisor behind them."""

    kube: Kube
    tenant: str
    world: WorldProcess

    def vms(self) -> list[str]:
        """UUIDs of all VMs on the hypervisor."""
        return sorted(vm.uuid for vm in self.world.target().vms())

    def add(
        self, name: str, nics: Sequence[object] = (), *, of: str = CLUSTER, **spec: object
    ) -> None:
        """A Machine, and the machine object it refers to, as a template's user makes them."""
        made, labels = ours("SimulatedMachine", name, **template()), labels_of(of)
        if nics:
            made["spec"]["networkInterfaces"] = list(nics)
        made["metadata"]["labels"] = labels
        self.kube.create(made, self.tenant)
        reference = infrastructure("SimulatedMachine", name)
        owner = {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "clusterName": of,
                "infrastructureRef": reference,
                "bootstrap": {"configRef": CONFIG},
                **spec,
            },
        }
        self.kube.create(owner, self.tenant)

    def remove(self, name: str) -> None:
        """Have a Machine end with all that is its own."""
        self.kube.delete(MACHINES, name, self.tenant)
        self.kube.wait_gone(MACHINES, name, self.tenant, timeout=SECONDS)
        assert self.kube.find(NODES, name, self.tenant) is None

    def provisioned(self, name: str) -> Object:
        """Wait until core knows of a Machine's VM and its addresses."""
        return self.kube.wait_for(
            MACHINES,
            name,
            self.tenant,
            until=lambda it: initialized(it) and it["status"].get("addresses"),
            timeout=SECONDS,
            what="provisioned, with addresses",
        )

    def node(self, name: str) -> Object:
        """A machine object of ours."""
        return self.kube.get(NODES, name, self.tenant)

    def wait(self, name: str, reason: str) -> Object:
        """Wait until a machine object says this of itself."""
        return self.kube.wait_for(
            NODES,
            name,
            self.tenant,
            until=lambda it: condition(it, "Ready")[1] == reason,
            timeout=SECONDS,
            what=reason,
        )


@pytest.fixture(scope="module")
def hypervisor(
    management: Management, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorldProcess]:
    """A world that pods reach."""
    host = management.cluster.host_address
    world = WorldProcess(tmp_path_factory.mktemp("world"), host=host)
    world.start()
    yield world
    world.process.kill9()


@pytest.fixture
def place(
    clusterctl: Clusterctl, client: Kube, tenant: str, hypervisor: WorldProcess
) -> Iterator[Place]:
    """A Cluster that has its infrastructure; all of it goes in the end, and the VMs with it."""
    del clusterctl
    client.create(credentials(tenant, "north-creds", USERNAME, PLANTED_PASSWORD))
    client.create(
        provider(
            tenant,
            "north",
            backend="simulated",
            connection={"endpoint": hypervisor.endpoint},
            storage={"pool": "fast"},
            network={"network": "lan"},
        )
    )
    client.apply(vm_image({"simulated": "ubuntu-24.04"}))
    reference = infrastructure("SimulatedCluster", CLUSTER)
    client.create(cluster(CLUSTER, tenant, infrastructureRef=reference))
    endpoint = {"host": "10.0.0.1", "port": 6443}
    client.create(ours("SimulatedCluster", CLUSTER, controlPlaneEndpoint=endpoint), tenant)
    made = Place(client, tenant, hypervisor)
    yield made
    client.delete(CLUSTERS, CLUSTER, tenant)
    client.wait_gone(CLUSTERS, CLUSTER, tenant, timeout=SECONDS)
    assert client.list(NODES, tenant) == []
    assert made.vms() == []
    client.delete(PROVIDERS, "north", tenant)
    client.wait_gone(PROVIDERS, "north", tenant, timeout=SECONDS)
    client.delete("vmimages", "ubuntu")
    client.wait_gone("vmimages", "ubuntu", timeout=SECONDS)


def test_a_machine_becomes_a_vm_and_takes_it_along_when_it_goes(place: Place) -> None:
    kube, tenant = place.kube, place.tenant
    kube.create(ours("SimulatedMachine", "stray", **template()), tenant)
    untouched = place.node("stray")
    kube.create(bootstrap_data("wrong-data", form="ignition"), tenant)
    place.add("node-1")
    place.add("lost", failureDomain="moon", bootstrap={"dataSecretName": "node-1-data"})
    place.add("wrong", bootstrap={"dataSecretName": "wrong-data"})
    # The Cluster has no control plane, which workers would wait for first.
    place.wait("node-1", "WaitingForControlPlaneInitialized")

    bootstrap = {"dataSecretName": "node-1-data", "configRef": None}
    data = {"spec": {"bootstrap": bootstrap}}
    kube.patch(MACHINES, "node-1", data, tenant)
    place.wait("node-1", "UserDataNotFound")
    kube.create(bootstrap_data("node-1-data"), tenant)
    found = place.provisioned("node-1")
    (uuid,) = place.vms()
    assert found["spec"]["providerID"] == f"simulated://{uuid}"
    node = kube.wait_for(NODES, "node-1", tenant, until=is_ready, timeout=SECONDS, what="Ready")
    assert found["status"]["addresses"] == node["status"]["addresses"]
    assert node["spec"]["providerRef"] == {"name": "north", "namespace": tenant}
    assert node["status"]["failureDomain"] == node["spec"]["placement"]["failureDomain"]
    assert node["spec"]["teardown"] == {"mode": "Destroy", "uid": node["metadata"]["uid"]}

    # A failure domain the cluster does not have, and data the image does not read: core shows it.
    refused_and_told(place, "lost", "FailureDomainNotFound")
    refused_and_told(place, "wrong", "UserDataInvalid")
    paused_by_presence(place, "node-1")

    # Paused, it stays, whoever deletes it; core goes on when it is resumed.
    kube.patch(CLUSTERS, CLUSTER, {"spec": {"paused": True}}, tenant)
    kube.wait_for(
        NODES,
        "node-1",
        tenant,
        until=lambda it: condition(it, "Paused")[0] == "True",
        timeout=SECONDS,
        what="Paused",
    )
    kube.delete(NODES, "node-1", tenant)
    assert place.vms() == [uuid]
    kube.patch(CLUSTERS, CLUSTER, {"spec": {"paused": False}}, tenant)
    kube.wait_gone(NODES, "node-1", tenant, timeout=SECONDS)
    assert place.vms() == []
    place.remove("node-1")

    served_though_its_cluster_is_not_ours(place)

    # A user's own object, with no Machine that owns it, was nobody's to touch.
    assert place.node("stray") == untouched
    kube.delete(NODES, "stray", tenant)
    kube.wait_gone(NODES, "stray", tenant, timeout=SECONDS)


def refused_and_told(place: Place, name: str, reason: str) -> None:
    """A Machine that cannot be made says why, has no VM, and ends."""
    place.wait(name, reason)
    told = place.kube.wait_for(
        MACHINES,
        name,
        place.tenant,
        until=lambda it: condition(it, "InfrastructureReady")[1] == reason,
        timeout=SECONDS,
        what="told",
    )
    assert not initialized(told)
    assert "providerID" not in place.node(name)["spec"]
    place.remove(name)


def paused_by_presence(place: Place, name: str) -> None:
    """The annotation pauses whatever its value, and only the condition tells of it."""
    before = place.node(name)

    def note(value: str | None) -> Object:
        change = {"metadata": {"annotations": {PAUSED: value}}}
        place.kube.patch(NODES, name, change, place.tenant)
        wanted = "False" if value is None else "True"
        return place.kube.wait_for(
            NODES,
            name,
            place.tenant,
            until=lambda it: condition(it, "Paused")[0] == wanted,
            timeout=SECONDS,
            what=f"Paused {wanted}",
        )

    for seen in (note("false"), note(None)):
        assert lasting(seen) == lasting(before)


def lasting(node: Object) -> Object:
    """All of an object that a pause leaves as it is."""
    meta, status = node["metadata"], node["status"]
    conditions = [it for it in status["conditions"] if it["type"] != "Paused"]
    return {
        "metadata": {key: meta[key] for key in ("uid", "labels", "ownerReferences", "finalizers")},
        "spec": node["spec"],
        "status": {**status, "conditions": conditions},
    }


def served_though_its_cluster_is_not_ours(place: Place) -> None:
    """Whoever manages the infrastructure of a Cluster writes its status; its machines are made."""
    kube, tenant = place.kube, place.tenant
    made = ours(
        "SimulatedCluster", FOREIGN, controlPlaneEndpoint={"host": "10.0.0.2", "port": 6443}
    )
    made["metadata"]["annotations"] = {MANAGED_BY: "somebody"}
    kube.create(made, tenant)
    reference = infrastructure("SimulatedCluster", FOREIGN)
    kube.create(cluster(FOREIGN, tenant, infrastructureRef=reference))
    status = {"initialization": {"provisioned": True}}
    kube.patch(INFRASTRUCTURE, FOREIGN, {"status": status}, tenant, subresource="status")
    kube.create(bootstrap_data("foreign-data", of=FOREIGN), tenant)
    place.add("guest", of=FOREIGN, bootstrap={"dataSecretName": "foreign-data"})
    place.provisioned("guest")
    found = kube.get(INFRASTRUCTURE, FOREIGN, tenant)
    assert found["status"] == status
    assert [it for it in found["metadata"].get("finalizers", ()) if "banlieue" in it] == []
    writers = {it["manager"] for it in found["metadata"]["managedFields"]}
    assert [it for it in writers if it.startswith("banlieue.io/")] == []
    place.remove("guest")
    kube.delete(CLUSTERS, FOREIGN, tenant)
    kube.wait_gone(CLUSTERS, FOREIGN, tenant, timeout=SECONDS)


def test_an_address_from_a_pool_comes_and_goes_by_the_contract_of_ipam(place: Place) -> None:
    """The pool's own controller is played here; core checks what it and we write."""
    kube, tenant = place.kube, place.tenant
    pool = {"apiGroup": "ipam.example.com", "kind": "LabPool", "name": "lab"}
    subnet = {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "pool": pool}
    network = {"name": "lan", "target": {"network": "lan"}, "subnets": [subnet]}
    kube.patch(
        PROVIDERS, "north", {"spec": {"capabilities": {"networkClasses": [network]}}}, tenant
    )
    kube.create(bootstrap_data("pooled-data"), tenant)
    wish = {"family": "IPv4", "source": "pool"}
    nic = {"name": "eth0", "networkClass": "lan", "ipam": [wish]}
    place.add("pooled", [nic], bootstrap={"dataSecretName": "pooled-data"})

    (claim,) = wait_until(lambda: kube.list(CLAIMS, tenant), SECONDS, "an address is claimed")
    name = claim["metadata"]["name"]
    assert claim["spec"] == {"clusterName": CLUSTER, "poolRef": pool}
    wanted = PoolRef(api_group=pool["apiGroup"], kind=pool["kind"], name=pool["name"])
    assert name == claim_name("pooled", "eth0", IPFamily.IPV4, wanted, of_cluster=True)
    assert claim["metadata"]["labels"].items() >= labels_of(CLUSTER).items()
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["name"], owner["controller"]) == ("pooled", True)
    told = place.wait("pooled", "AddressPending")
    assert name in json.dumps(told["status"]["conditions"])
    empty = {"status": {"conditions": [EXHAUSTED]}}
    kube.patch(CLAIMS, name, empty, tenant, subresource="status")
    wait_until(
        lambda: any(
            it["regarding"]["name"] == "pooled"
            and it.get("reason") == "AddressNotAssigned"
            and EXHAUSTED["message"] in (it.get("note") or "")
            for it in kube.list("events.events.k8s.io", tenant)
        ),
        SECONDS,
        "what the pool says",
    )
    assert place.vms() == []
    address = {"address": "10.0.0.77", "prefix": 24, "gateway": "10.0.0.1"}
    kube.create(
        {
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
            "kind": "IPAddress",
            "metadata": {"name": name},
            "spec": {"claimRef": {"name": name}, "poolRef": pool, **address},
        },
        tenant,
    )
    given = {"status": {"addressRef": {"name": name}, "conditions": []}}
    kube.patch(CLAIMS, name, given, tenant, subresource="status")
    node = kube.wait_for(NODES, "pooled", tenant, until=is_ready, timeout=SECONDS, what="Ready")
    assert node["spec"]["networkInterfaces"][0]["ipam"] == [{**wish, **address}]

    place.remove("pooled")
    assert (place.vms(), kube.list(CLAIMS, tenant)) == ([], [])


def test_fifty_machines_at_once_are_each_made_at_the_first_attempt(
    place: Place, management: Management
) -> None:
    """Core gives a machine object up that somebody writes to before it has cleaned it up itself."""
    with StatusWatch(management.cluster) as watch:
        crowd(place)
    seen = [it.object for it in watch.everything() if it.object["kind"] == "SimulatedMachine"]
    made = {it["metadata"]["uid"] for it in seen if it["metadata"]["namespace"] == place.tenant}
    assert len(made) == CROWD, "none was given up and made again"
    assert not watch.findings, watch.report()


def crowd(place: Place) -> None:
    """A MachineSet of so many is given to its Provider, which waits for data, and goes."""
    kube, tenant = place.kube, place.tenant
    kube.create(ours("SimulatedMachineTemplate", "crowd", template={"spec": template()}), tenant)
    machine = {
        "clusterName": CLUSTER,
        "infrastructureRef": infrastructure("SimulatedMachineTemplate", "crowd"),
        "bootstrap": {"dataSecretName": "nobody-made-it"},
    }
    labels = {"crowd": "", **labels_of(CLUSTER)}
    selected = {"selector": {"matchLabels": labels}}
    made = {"metadata": {"labels": labels}, "spec": machine}
    kube.create(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineSet",
            "metadata": {"name": "crowd", "labels": labels_of(CLUSTER)},
            "spec": {"clusterName": CLUSTER, "replicas": CROWD, "template": made, **selected},
        },
        tenant,
    )

    def all_placed() -> bool:
        found = kube.list(NODES, tenant)
        return len(found) == CROWD and all("teardown" in it["spec"] for it in found)

    wait_until(all_placed, CROWD_SECONDS, f"{CROWD} machines to have their Provider", apart=1.0)
    owners = {it["spec"]["infrastructureRef"]["name"] for it in kube.list(MACHINES, tenant)}
    assert {it["metadata"]["name"] for it in kube.list(NODES, tenant)} == owners
    kube.delete("machinesets", "crowd", tenant)
    wait_until(lambda: kube.list(MACHINES, tenant) == [], CROWD_SECONDS, "their end", apart=1.0)


def initialized(owner: Object) -> bool:
    status: dict[str, Any] = (owner.get("status") or {}).get("initialization") or {}
    return bool(status.get("infrastructureProvisioned"))


def ours(kind: str, name: str, **spec: object) -> Object:
    return {
        "apiVersion": "infrastructure.banlieue.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def template() -> dict[str, Any]:
    return {"imageRef": {"name": "ubuntu"}, "cpus": 1, "memoryMiB": 1024}


def labels_of(name: str) -> dict[str, str]:
    return {"cluster.x-k8s.io/cluster-name": name}


def bootstrap_data(name: str, *, of: str = CLUSTER, form: str = "cloud-config") -> Object:
    told = {"value": DATA, "format": form}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": name, "labels": labels_of(of)},
        "data": {key: base64.b64encode(it.encode()).decode() for key, it in told.items()},
    }
