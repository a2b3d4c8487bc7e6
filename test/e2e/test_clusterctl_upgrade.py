"""An upgrade by clusterctl, from a release that differs as an earlier one does."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from banlieue.sdk.simulated.world import USERNAME
from hack.cluster.clusterapi.clusterctl import Clusterctl
from hack.cluster.clusterapi.install import OUR_IMAGE
from hack.cluster.clusterapi.repository import PROVIDER, add_release
from hack.cluster.clusterapi.webhooks import cluster, infrastructure
from hack.images.catalog import archive_of
from hack.release import rename_image
from test.kit.earlierrelease import (
    EARLIER,
    EARLIER_IMAGE,
    KIND,
    ROLE,
    earlier_release,
    has_field,
    has_rule,
)
from test.kit.kube import Kube, Object
from test.kit.managementcluster import (
    INVENTORY,
    NAMESPACE,
    VERSION,
    Management,
    same,
    simulated_cluster,
    uids,
)
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import credentials, is_ready, provider, virtual_machine, vm_class, vm_image
from test.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
pytest_plugins = ["test.kit.fixtures_clusterctl"]

CLUSTERS: Final = "clusters.cluster.x-k8s.io"
PROVIDERS: Final = "providers.banlieue.io"
LABEL: Final = f"cluster.x-k8s.io/provider={PROVIDER}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A VirtualMachine and the hypervisor its VM is on."""

    kube: Kube
    tenant: str
    world: WorldProcess

    def ready(self) -> Object:
        """Wait until it is Ready."""
        return self.kube.wait_for(
            "virtualmachines", "old", self.tenant, until=is_ready, timeout=120, what="Ready"
        )

    def vms(self) -> list[object]:
        """All VMs there, in every detail."""
        return list(self.world.target().vms())


@pytest.fixture
def earlier(clusterctl: Clusterctl, management: Management, tmp_path: Path) -> Clusterctl:
    """The same cluster with the release before this tree's, which lacks some of what it has."""
    repository = Path(shutil.copytree(clusterctl.repository, tmp_path / "repository"))
    add_release(repository, earlier_release())
    archive = tmp_path / "earlier.tar"
    rename_image(archive_of(OUR_IMAGE), archive, EARLIER_IMAGE)
    management.cluster.load(archive)
    found = Clusterctl(repository, clusterctl.kubeconfig)
    found.run("delete", "--infrastructure=banlieue")
    found.init(infrastructure=[f"banlieue:{EARLIER}"])
    return found


@pytest.fixture
def machine(
    earlier: Clusterctl, management: Management, client: Kube, tenant: str, tmp_path: Path
) -> Iterator[Machine]:
    """A VirtualMachine made with that release, on a hypervisor outside of the cluster."""
    del earlier
    with ExitStack() as exits:
        world = WorldProcess(tmp_path, host=management.cluster.host_address)
        exits.callback(world.process.kill9)
        world.start()
        yield from _made_in(client, tenant, world)


def _made_in(client: Kube, tenant: str, world: WorldProcess) -> Iterator[Machine]:
    client.create(credentials(tenant, "lab-creds", USERNAME, PLANTED_PASSWORD))
    places = {"storage": {"pool": "fast"}, "network": {"network": "lan"}}
    connection = {"endpoint": world.endpoint}
    client.create(provider(tenant, "lab", backend="simulated", connection=connection, **places))
    client.create(vm_image({"simulated": "ubuntu-24.04"}, name=tenant))
    client.create(vm_class(tenant))
    pinned = {"providerRef": {"name": "lab", "namespace": tenant}}
    names = {"classRef": {"name": tenant}, "imageRef": {"name": tenant}}
    client.create(virtual_machine(tenant, "old", **names, **pinned))
    made = Machine(client, tenant, world)
    made.ready()
    yield made
    for kind, name in (("virtualmachines", "old"), (PROVIDERS, "lab")):
        client.delete(kind, name, tenant)
        client.wait_gone(kind, name, tenant, timeout=120)
    for kind in ("vmclasses", "vmimages"):
        client.delete(kind, tenant)
        client.wait_gone(kind, tenant)


def test_an_upgrade_brings_what_is_new_and_keeps_what_users_made(
    earlier: Clusterctl, client: Kube, tenant: str, machine: Machine
) -> None:
    reference = infrastructure("SimulatedCluster", "kept")
    owner = client.create(cluster("kept", tenant, infrastructureRef=reference))
    ours = client.create(simulated_cluster("kept"), tenant)
    definitions = uids(client, "customresourcedefinitions", LABEL)
    account = uids(client, "serviceaccounts", LABEL)
    before, vms = machine.ready(), machine.vms()
    assert len(vms) == 1
    runs(client, NAMESPACE, EARLIER_IMAGE)
    runs(client, tenant, EARLIER_IMAGE)
    assert not has_field(client.get("customresourcedefinitions", KIND))
    assert not has_rule(client.get("clusterroles", ROLE))

    plan = earlier.run("upgrade", "plan")
    row = next(line for line in plan.output.splitlines() if PROVIDER in line)
    assert row.split()[-2:] == [EARLIER, VERSION]
    earlier.run("upgrade", "apply", "--contract=v1beta2", "--wait-providers")

    assert client.get(INVENTORY, PROVIDER, NAMESPACE)["version"] == VERSION
    deployment = client.get("deployments.apps", "banlieue-controller", NAMESPACE)
    assert deployment["metadata"]["labels"]["app.kubernetes.io/version"] == VERSION
    assert deployment["status"]["availableReplicas"] == 1
    runs(client, NAMESPACE, OUR_IMAGE)
    assert has_field(client.get("customresourcedefinitions", KIND))
    assert has_rule(client.get("clusterroles", ROLE))
    assert uids(client, "customresourcedefinitions", LABEL) == definitions
    assert uids(client, "serviceaccounts", LABEL) != account
    assert same(client.get("simulatedclusters", "kept", tenant), ours)
    assert client.get(CLUSTERS, "kept", tenant)["metadata"]["uid"] == owner["metadata"]["uid"]
    # The operator of this release gives the Provider its pod of this release.
    runs(client, tenant, OUR_IMAGE)
    after = machine.ready()
    assert same(after, before)
    assert after["status"]["initialization"] == before["status"]["initialization"]
    assert machine.vms() == vms


def runs(client: Kube, namespace: str, image: str) -> None:
    """Wait until all pods of ours in a namespace run that image, and those of before are gone."""
    ours = {"label_selector": "app.kubernetes.io/part-of=banlieue"}

    def images() -> set[str]:
        pods = client.list("pods", namespace, **ours)
        return {it["image"] for pod in pods for it in pod["spec"]["containers"]}

    wait_until(lambda: images() == {image}, 120, f"{namespace} to run {image}")
