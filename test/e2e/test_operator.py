"""The operator's path on a cluster with a node: a Provider and a Secret are enough.

Installed by the path that `E2E_INSTALL` names. Hypervisors run on the host, outside of the cluster.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from banlieue.sdk.simulated.world import USERNAME
from hack.cluster.interface import Cluster
from hack.images.catalog import archive_of
from hack.release import rename_image
from test.kit.installing import IMAGE, chosen_path, install
from test.kit.kube import Kube
from test.kit.namespaces import create_namespace
from test.kit.pods import kill9
from test.kit.ports import free_port
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import (
    condition,
    credentials,
    is_ready,
    provider,
    virtual_machine,
    vm_class,
    vm_image,
)
from test.kit.vcsim import VCSim
from test.kit.waiting import wait_until

pytestmark = pytest.mark.e2e

SYSTEM: Final = "banlieue-system"
DEPLOYMENTS: Final = ("banlieue-controller", "banlieue-operator")
PROVIDERS: Final = "providers.banlieue.io"
KINDS: Final = ("deployments", "serviceaccounts", "roles", "rolebindings", "clusterrolebindings")
MINE: Final = "app.kubernetes.io/managed-by=banlieue-operator"
POD_SECONDS: Final = 120.0
VM_SECONDS: Final = 120.0
NEXT_IMAGE: Final = "localhost/banlieue:next"
CLONE_SECONDS: Final = 60.0
TAKEOVER_SECONDS: Final = 90.0
"""A Lease's duration of 60 s and attempts 10 s apart, were a holder waited for."""

Object = dict[str, Any]
Kubectl = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Installed:
    """banlieue in a cluster: controller and operator, and not one provider."""

    kube: Kube
    kubectl: Kubectl
    host: str
    tenant: str

    def register(self, made: Object, username: str, password: str) -> None:
        """Apply a Provider and its Secret."""
        name = made["metadata"]["name"]
        self.kube.apply(credentials(SYSTEM, f"{name}-creds", username, password))
        self.kube.apply(made)

    def workload(self, name: str, what: str, until: Callable[[Object], object]) -> Object:
        """Wait until `status.workload` of a Provider is as asked for, and give it."""
        found = self.kube.wait_for(
            PROVIDERS,
            name,
            SYSTEM,
            until=lambda it: until((it.get("status") or {}).get("workload") or {}),
            timeout=POD_SECONDS,
            what=what,
        )
        workload: Object = found["status"]["workload"]
        return workload

    def served(self, name: str) -> Object:
        """Wait until a Provider's pod is ready and the Provider, too."""
        workload = self.workload(name, "served", lambda it: it.get("readyReplicas") == 1)
        self.kube.wait_for(
            PROVIDERS, name, SYSTEM, until=is_ready, timeout=VM_SECONDS, what="Ready"
        )
        return workload

    def ready(self, name: str) -> Object:
        """Wait until a VirtualMachine is Ready."""
        return self.kube.wait_for(
            "virtualmachines", name, self.tenant, until=is_ready, timeout=VM_SECONDS, what="Ready"
        )

    def remove(self, name: str) -> None:
        """Delete a Provider; all that was made for it is gone when it is."""
        self.kube.delete(PROVIDERS, name, SYSTEM)
        self.kube.wait_gone(PROVIDERS, name, SYSTEM, timeout=VM_SECONDS)
        left = [
            obj["metadata"]["name"]
            for kind in KINDS
            for obj in self.kube.list(kind, label_selector=MINE)
            if obj["metadata"]["name"].endswith(f"-{name}")
        ]
        assert left == []


@pytest.fixture(scope="module")
def installed(cluster: Cluster, kube: Kube, kubectl: Kubectl) -> Iterator[Installed]:
    """Installed by the chosen path; taken away in the order the documentation gives."""
    cluster.load(archive_of(IMAGE))
    text = install(cluster.kubeconfig, kubectl, chosen_path())
    kube.resources()
    made = Installed(kube, kubectl, cluster.host_address, create_namespace(kube, "tenant"))
    for deployment in DEPLOYMENTS:
        kube.wait_for(
            "deployments",
            deployment,
            SYSTEM,
            until=lambda it: (it.get("status") or {}).get("availableReplicas") == 1,
            timeout=POD_SECONDS,
            what="available",
        )
    yield made
    patience = f"--timeout={VM_SECONDS:.0f}s"
    for kind in ("virtualmachines", "vmimages", PROVIDERS):
        kubectl("delete", kind, "--all", "--all-namespaces", patience, timeout=300)
    kubectl("delete", "providerclasses", "--all", patience)
    kubectl("delete", "-f", "-", patience, stdin=text, timeout=300)
    kube.wait_gone("namespaces", SYSTEM, timeout=VM_SECONDS)
    kube.delete("namespaces", made.tenant)
    assert [it for kind in KINDS for it in kube.list(kind, label_selector=MINE)] == []


def test_a_simulated_provider_is_served_by_a_pod_of_its_own(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kube = installed.kube
    world = WorldProcess(tmp_path_factory.mktemp("world"), host=installed.host)
    world.start()
    try:
        made = provider(
            SYSTEM,
            "outside",
            backend="simulated",
            connection={"endpoint": world.endpoint},
            storage={"pool": "fast"},
            network={"network": "lan"},
        )
        installed.register(made, USERNAME, PLANTED_PASSWORD)
        workload = installed.served("outside")
        assert workload["image"] == IMAGE, "the operator's own, as no class says another"
        assert "reason" not in workload
        runs_restricted(installed, workload["name"])

        kube.apply(vm_class("plain"))
        kube.apply(vm_image({"simulated": "ubuntu-24.04"}))
        kube.create(virtual_machine(installed.tenant, "db", classRef={"name": "plain"}))
        vm = installed.ready("db")
        (raw,) = world.target().vms()
        assert vm["status"]["providerID"] == f"simulated://{raw.uuid}"

        # An upgrade is one edit of the class; the VM does not notice.
        level = {"spec": {"logLevel": "debug"}}
        kube.patch("providerclasses", "simulated", level)
        pods = pods_of(installed, workload["name"])
        wait_until(
            lambda: pods_of(installed, workload["name"]).isdisjoint(pods), POD_SECONDS, "a new pod"
        )
        installed.served("outside")
        assert installed.ready("db")["status"]["providerID"] == vm["status"]["providerID"]

        kube.delete(PROVIDERS, "outside", SYSTEM)
        installed.workload("outside", "held", lambda it: it.get("reason") == "ProviderInUse")
        kube.delete("virtualmachines", "db", installed.tenant)
        kube.wait_gone("virtualmachines", "db", installed.tenant, timeout=VM_SECONDS)
        kube.wait_gone(PROVIDERS, "outside", SYSTEM, timeout=VM_SECONDS)
        assert [it for kind in KINDS for it in kube.list(kind, label_selector=MINE)] == []
        assert world.target().vms() == []
    finally:
        world.process.kill9()


def runs_restricted(installed: Installed, workload: str) -> None:
    """The pod is as restricted as the one of a provider without an operator."""
    (pod,) = [
        it
        for it in installed.kube.list("pods", SYSTEM, label_selector=instance(workload))
        if "deletionTimestamp" not in it["metadata"]
    ]
    assert pod["spec"]["serviceAccountName"] == workload
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def instance(workload: str) -> str:
    return f"app.kubernetes.io/instance={workload}"


def pods_of(installed: Installed, workload: str) -> set[str]:
    found = installed.kube.list("pods", SYSTEM, label_selector=instance(workload))
    return {it["metadata"]["uid"] for it in found}


def test_a_vcenter_is_served_by_a_pod_of_its_own(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kube, port = installed.kube, free_port()
    listen = ("-l", f"{installed.host}:{port}")
    with VCSim(tmp_path_factory.mktemp("vcsim"), templates=["ubuntu"], arguments=listen) as vcsim:
        made = provider(
            SYSTEM,
            "vcenter",
            backend="vsphere",
            connection={
                "endpoint": f"https://{installed.host}:{port}/sdk",
                "thumbprints": [vcsim.thumbprint],
            },
            storage={"datastore": "LocalDS_0"},
            network={"portGroup": "DC0_DVPG0"},
        )
        installed.register(made, vcsim.username, vcsim.password)
        installed.served("vcenter")
        kube.apply(vm_class("plain"))
        kube.apply(vm_image({"vsphere": "ubuntu"}, name="of-vcenter"))
        wanted = {"classRef": {"name": "plain"}, "imageRef": {"name": "of-vcenter"}}
        kube.create(virtual_machine(installed.tenant, "web", **wanted))
        vm = installed.ready("web")
        assert vm["status"]["providerID"].startswith("vsphere://")
        kube.delete("virtualmachines", "web", installed.tenant)
        kube.wait_gone("virtualmachines", "web", installed.tenant, timeout=VM_SECONDS)
        installed.remove("vcenter")


def test_the_pod_of_a_vcenter_that_nobody_can_reach_is_not_ready(installed: Installed) -> None:
    made = provider(
        SYSTEM,
        "nowhere",
        backend="vsphere",
        connection={"endpoint": "https://vcenter.invalid/sdk"},
        storage={"datastore": "none"},
        network={"portGroup": "none"},
    )
    installed.register(made, USERNAME, PLANTED_PASSWORD)
    found = installed.kube.wait_for(
        PROVIDERS,
        "nowhere",
        SYSTEM,
        until=lambda it: condition(it, "Ready") == ("False", "ProviderUnreachable"),
        timeout=POD_SECONDS,
        what="unreachable",
    )
    workload = found["status"]["workload"]
    assert workload["readyReplicas"] == 0
    assert workload["replicas"] == 1
    assert workload["reason"] == "WorkloadNotReady"
    (pod,) = installed.kube.list("pods", SYSTEM, label_selector=instance(workload["name"]))
    assert pod["status"]["phase"] == "Running"
    assert not pod["status"]["containerStatuses"][0]["ready"]
    installed.remove("nowhere")


@dataclass(frozen=True, slots=True)
class Served:
    """A Provider of a simulated world with a pod of its own."""

    installed: Installed
    world: WorldProcess
    name: str
    workload: str

    @property
    def port(self) -> Any:  # noqa: ANN401 - the control API
        return self.world.port

    def pod(self) -> Object:
        """Its only pod."""
        found = self.installed.kube.list("pods", SYSTEM, label_selector=instance(self.workload))
        (pod,) = [it for it in found if "deletionTimestamp" not in it["metadata"]]
        return pod

    def ready_pod(self, *, but: str = "") -> Object | None:
        """Its pod once it is ready, and another than that one."""
        pods = self.installed.kube.list("pods", SYSTEM, label_selector=instance(self.workload))
        ready = [it for it in pods if is_pod_ready(it)]
        return next((it for it in ready if it["metadata"]["uid"] != but), None)

    def holder(self) -> str:
        """Who serves the Provider, by its Lease."""
        kube = self.installed.kube
        uid = kube.get(PROVIDERS, self.name, SYSTEM)["metadata"]["uid"]
        return str(kube.get("leases", uid, SYSTEM)["spec"].get("holderIdentity", ""))

    def creates(self) -> int:
        """How often a VM was asked for."""
        return int(self.port.control("calls", {}).get("create", 0))


@pytest.fixture
def served(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """With class `plain` and an image, and no VM; all of it goes after the test."""
    kube, name = installed.kube, f"world-{abs(hash(request.node.name)) % 10_000}"
    world = WorldProcess(tmp_path_factory.mktemp("world"), host=installed.host)
    world.start()
    try:
        made = provider(
            SYSTEM,
            name,
            backend="simulated",
            connection={"endpoint": world.endpoint},
            storage={"pool": "fast"},
            network={"network": "lan"},
        )
        installed.register(made, USERNAME, PLANTED_PASSWORD)
        kube.apply(vm_class("plain"))
        kube.apply(vm_image({"simulated": "ubuntu-24.04"}))
        yield Served(installed, world, name, installed.served(name)["name"])
        kube.delete("virtualmachines", "db", installed.tenant, missing_ok=True)
        kube.wait_gone("virtualmachines", "db", installed.tenant, timeout=VM_SECONDS)
        assert world.target().vms() == []
        installed.remove(name)
    finally:
        world.process.kill9()


def virtual_machine_of(served: Served) -> None:
    made = virtual_machine(served.installed.tenant, "db", classRef={"name": "plain"})
    served.installed.kube.create(made)


def test_an_edit_of_the_class_amid_a_clone_ends_in_the_same_vm(
    served: Served, cluster: Cluster, tmp_path: Path
) -> None:
    """Another image and other arguments: the pod that began the clone is gone before it is done."""
    kube, installed = served.installed.kube, served.installed
    rename_image(archive_of(IMAGE), tmp_path / "next.tar", NEXT_IMAGE)
    cluster.load(tmp_path / "next.tar")
    served.port.control("set_latencies", {"create": CLONE_SECONDS})
    virtual_machine_of(served)
    wait_until(lambda: served.creates() == 1, VM_SECONDS, "the clone to begin")
    began = time.monotonic()
    machine = kube.get("simulatedmachines", "db", installed.tenant)
    before = served.pod()["metadata"]["uid"]
    tag = NEXT_IMAGE.rpartition(":")[2]
    kube.patch(
        "providerclasses", "simulated", {"spec": {"image": {"tag": tag}, "logLevel": "debug"}}
    )
    try:
        pod = wait_until(lambda: served.ready_pod(but=before), POD_SECONDS, "the next pod")
        rolled = time.monotonic() - began
        (container,) = pod["spec"]["containers"]
        assert container["image"] == NEXT_IMAGE
        assert "--log-level=debug" in container["args"]
        assert served.holder().endswith(pod["metadata"]["uid"])
        assert rolled < CLONE_SECONDS, "the clone was under way all the time"
        vm = installed.ready("db")
        told = f"rolled {rolled:.1f} s into a clone of {CLONE_SECONDS:.0f} s, VM Ready "
        say(told + f"{time.monotonic() - began:.1f} s after the clone began")
        (raw,) = served.world.target().vms()
        assert raw.uuid == machine["spec"]["instance"]["uuid"]
        assert vm["status"]["providerID"] == f"simulated://{raw.uuid}"
        assert served.creates() == 1, "neither process asked a second time"
    finally:
        undo = {"spec": {"image": None, "logLevel": "info"}}
        kube.patch("providerclasses", "simulated", undo)
        wait_until(
            lambda: served.pod()["spec"]["containers"][0]["image"] == IMAGE,
            POD_SECONDS,
            "as before",
            retry_on=(ValueError,),  # none, or two, while one follows the other
        )
    installed.served(served.name)


def test_a_killed_holder_is_replaced_in_time_and_the_vm_does_not_notice(served: Served) -> None:
    """Forced away, its pod is gone, and nobody waits for it; crashed, it goes on with its Lease."""
    installed = served.installed
    virtual_machine_of(served)
    vm = installed.ready("db")
    (raw,) = served.world.target().vms()
    first = served.pod()
    assert served.holder().endswith(first["metadata"]["uid"])

    began = time.monotonic()
    installed.kubectl(
        *("delete", "pod", "--namespace", SYSTEM, first["metadata"]["name"]),
        *("--force", "--grace-period=0"),
    )
    wait_until(
        lambda: first["metadata"]["uid"] not in served.holder(), TAKEOVER_SECONDS, "the next holder"
    )
    taken = time.monotonic() - began
    second = wait_until(
        lambda: served.ready_pod(but=first["metadata"]["uid"]), POD_SECONDS, "ready"
    )
    say(
        f"forced away: taken over after {taken:.1f} s, ready after {time.monotonic() - began:.1f} s"
    )
    assert served.holder().endswith(second["metadata"]["uid"])
    works(served, "PoweredOff")

    began = time.monotonic()
    kill9(second["metadata"]["uid"])
    wait_until(lambda: restarts_of(served.pod()) > restarts_of(second), POD_SECONDS, "a restart")
    wait_until(served.ready_pod, TAKEOVER_SECONDS, "ready again")
    say(f"killed: ready again after {time.monotonic() - began:.1f} s")
    assert served.holder().endswith(second["metadata"]["uid"]), "the same pod goes on"
    works(served, "PoweredOn")

    assert installed.ready("db")["status"]["providerID"] == vm["status"]["providerID"]
    (after,) = served.world.target().vms()
    assert (after.id, after.uuid) == (raw.id, raw.uuid)
    assert served.creates() == 1


def works(served: Served, power: str) -> None:
    """Whoever serves now does what is asked for."""
    installed, began = served.installed, time.monotonic()
    change = {"spec": {"desiredPowerState": power}}
    installed.kube.patch("virtualmachines", "db", change, installed.tenant)
    installed.kube.wait_for(
        "virtualmachines",
        "db",
        installed.tenant,
        until=lambda it: it["status"].get("observedPowerState") == power,
        timeout=VM_SECONDS,
        what=power,
    )
    say(f"{power} {time.monotonic() - began:.1f} s after it was asked for")


def is_pod_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    going = "deletionTimestamp" in pod["metadata"]
    return not going and any((it["type"], it["status"]) == ("Ready", "True") for it in conditions)


def restarts_of(pod: Object) -> int:
    (container,) = pod["status"]["containerStatuses"]
    return int(container["restartCount"])


def say(line: str) -> None:
    """A figure for people; `pytest -rP` and a failure show it."""
    sys.stdout.write(f"{line}\n")
