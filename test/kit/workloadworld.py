"""Two vCenters, the Providers that serve them, and the guests of a workload cluster over both.

The endpoint of its control plane is given by hand: the address of this host that pods reach, and a
port that is free on it.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hack.cluster.clusterapi.clusterctl import Clusterctl
from test.kit.guestplayer import Choice, GuestPlayer, everybody, nobody
from test.kit.kube import Kube
from test.kit.managementcluster import NAMESPACE, VERSION
from test.kit.ports import free_port
from test.kit.stack import condition, credentials, is_ready, vm_image
from test.kit.vcsim import VCSim
from test.kit.vcsim_values import Machine
from test.kit.waiting import wait_until
from test.kit.workloadapi import WorkloadApi
from test.kit.workloadground import Ground
from test.kit.workloadvcenter import IMAGES, OLD, node_provider, node_vcenter
from test.kit.yaml_text import yaml_documents

Object = dict[str, Any]

MACHINES: Final = "machines.cluster.x-k8s.io"
CLUSTERS: Final = "clusters.cluster.x-k8s.io"
PLANES: Final = "kubeadmcontrolplanes"
SETS: Final = "machinedeployments"
OURS: Final = "vspheremachines"

OF_TEMPLATE: Final = {"test.banlieue.io/of-template": "kept"}
"""Labels in the metadata of machine templates, which their machines have, too."""

_PROVIDERS: Final = "providers.banlieue.io"
_READY_SECONDS: Final = 180.0
_APART_SECONDS: Final = 1.0
_LOOKED_AT: Final = "test.banlieue.io/looked-at"


@dataclass(slots=True)
class WorkloadWorld:
    """What a workload cluster is made on.

    Attributes:
        kube: An administrator of the management cluster.
        vcenters: By the name of their Provider.
        domains: The failure domain of each Provider.
        workload: Serves the APIs of workload clusters.
        seconds: What each step took.
    """

    kube: Kube
    vcenters: Mapping[str, VCSim]
    domains: Mapping[str, str]
    workload: WorkloadApi
    seconds: dict[str, float] = field(default_factory=dict)

    def vms(self) -> list[Machine]:
        """All VMs of both vCenters that are no templates."""
        return [it for vcenter in self.vcenters.values() for it in vcenter.vms() if not it.template]

    def digests(self) -> list[str]:
        """What the vCenters hold, in short."""
        return [it.inventory_digest() for it in self.vcenters.values()]

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Measure a step of a test."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = time.monotonic() - started
            sys.stderr.write(f"{what}: {self.seconds[what]:.1f} s\n")


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload cluster in a namespace of the management cluster.

    Attributes:
        player: Its guests.
    """

    world: WorkloadWorld
    name: str
    namespace: str
    endpoint: str
    player: GuestPlayer

    def machines(self) -> list[Object]:
        """Its Machines."""
        return self.world.kube.list(MACHINES, self.namespace)

    def await_running(self, planes: int, workers: int, version: str, timeout: float) -> None:
        """Wait until exactly so many Machines run that version, and the control plane is whole."""
        wanted = (planes, workers)

        def state() -> bool:
            self._hurry()
            found = self.machines()
            running = [it for it in found if status_of(it).get("phase") == "Running"]
            right = [it for it in running if it["spec"].get("version") == version]
            mine = sum(is_plane(it) for it in right), sum(not is_plane(it) for it in right)
            (plane,) = self.world.kube.list(PLANES, self.namespace)
            status = status_of(plane)
            whole = condition(plane, "Available")[0] == "True"
            return (
                mine == wanted
                and len(found) == planes + workers
                and whole
                and status.get("readyReplicas") == planes
                and status.get("upToDateReplicas") == planes
            )

        try:
            what = f"{planes} control planes and {workers} workers to run"
            wait_until(state, timeout, what, apart=_APART_SECONDS)
        except TimeoutError as error:
            error.add_note(self.told())
            raise

    def _hurry(self) -> None:
        """Have the control plane looked at again: its controller waits 15 s after each refusal.

        A note on it wakes nothing but that controller, which would look by itself later.
        """
        note = {"metadata": {"annotations": {_LOOKED_AT: str(time.monotonic())}}}
        for plane in self.world.kube.list(PLANES, self.namespace):
            self.world.kube.patch(PLANES, plane["metadata"]["name"], note, self.namespace)

    def told(self) -> str:
        """What everything says of itself, for a test that fails."""
        return "\n".join(
            f"{kind} {obj['metadata']['name']}: {_short(obj)}"
            for kind in (CLUSTERS, "vsphereclusters", PLANES, SETS, MACHINES, OURS)
            for obj in self.world.kube.list(kind, self.namespace)
        )

    def managed_by(self, kube: Kube) -> "Workload":
        """The same cluster as another management cluster has it."""
        return replace(self, world=replace(self.world, kube=kube))

    def nodes(self) -> list[Object]:
        """The machine objects that somebody owns: its own, and those of VirtualMachines."""
        found = self.world.kube.list(OURS, self.namespace)
        return [it for it in found if it["metadata"].get("ownerReferences")]

    def await_vms(self, timeout: float = 60.0) -> None:
        """Wait until each machine object has its VM, and each VM its machine object.

        The check that none was lost and none was doubled.
        """

        def same() -> bool:
            ids = sorted(it["spec"].get("providerID", "") for it in self.nodes())
            return ids == sorted(f"vsphere://{it.uuid}" for it in self.world.vms())

        wait_until(same, timeout, "VMs and machine objects to be the same")

    def await_told(self, timeout: float = 60.0) -> None:
        """Wait until every guest's word was heard and its secrets are gone from its VM."""

        def redacted() -> bool:
            found = [it for it in self.nodes() if it["spec"].get("userData")]
            return all((status_of(it).get("seed") or {}).get("redactedAt") for it in found)

        wait_until(redacted, timeout, "seeds to be redacted")

    def domains_of(self, wanted: Callable[[Object], bool]) -> list[str]:
        """Failure domains of those Machines whose VM really is in that vCenter."""
        found = []
        for machine in self.machines():
            if not wanted(machine):
                continue
            uuid = machine["spec"]["providerID"].removeprefix("vsphere://")
            (where,) = [
                name
                for name, vcenter in self.world.vcenters.items()
                if any(it.uuid == uuid for it in vcenter.vms())
            ]
            assert machine["spec"]["failureDomain"] == self.world.domains[where]
            found.append(where)
        return sorted(found)

    def scale(self, planes: int, workers: Sequence[int]) -> None:
        """Ask for so many machines; workers by MachineDeployment."""
        kube = self.world.kube
        (plane,) = kube.list(PLANES, self.namespace)
        kube.patch(
            PLANES, plane["metadata"]["name"], {"spec": {"replicas": planes}}, self.namespace
        )
        for obj, count in zip(self.sets(), workers, strict=True):
            kube.patch(SETS, obj["metadata"]["name"], {"spec": {"replicas": count}}, self.namespace)

    def sets(self) -> list[Object]:
        """Its MachineDeployments by name."""
        found = self.world.kube.list(SETS, self.namespace)
        return sorted(found, key=lambda it: str(it["metadata"]["name"]))

    def upgrade(self, version: str) -> None:
        """Ask for another version, by new machine templates as people write them."""
        kube = self.world.kube
        renamed = {}
        for template in kube.list("vspheremachinetemplates", self.namespace):
            spec = template["spec"]
            spec["template"]["spec"]["imageRef"]["name"] = IMAGES[version]
            name = template["metadata"]["name"]
            renamed[name] = f"{name}-new"
            kube.create(
                {
                    "apiVersion": template["apiVersion"],
                    "kind": template["kind"],
                    "metadata": {"name": renamed[name], "namespace": self.namespace},
                    "spec": spec,
                }
            )
        (plane,) = kube.list(PLANES, self.namespace)
        reference = plane["spec"]["machineTemplate"]["spec"]["infrastructureRef"]
        reference = {**reference, "name": renamed[reference["name"]]}
        wanted: Object = {
            "version": version,
            "machineTemplate": {"spec": {"infrastructureRef": reference}},
        }
        kube.patch(PLANES, plane["metadata"]["name"], {"spec": wanted}, self.namespace)
        for obj in self.sets():
            reference = obj["spec"]["template"]["spec"]["infrastructureRef"]
            reference = {**reference, "name": renamed[reference["name"]]}
            spec = {"version": version, "infrastructureRef": reference}
            wanted = {"template": {"spec": spec}}
            kube.patch(SETS, obj["metadata"]["name"], {"spec": wanted}, self.namespace)

    def delete(self, timeout: float) -> None:
        """Delete the Cluster and wait until nothing of it is left."""
        kube = self.world.kube
        kube.delete(CLUSTERS, self.name, self.namespace)
        try:
            kube.wait_gone(CLUSTERS, self.name, self.namespace, timeout=timeout)
        except TimeoutError as error:
            error.add_note(self.told())
            raise
        assert kube.list(OURS, self.namespace) == []


@contextmanager
def workload_world(
    ground: Ground, directory: Path, providers: Sequence[str] = ("east", "west")
) -> Iterator[WorkloadWorld]:
    """Bring up the vCenters and register them; everything is gone when the block ends.

    Args:
        ground: Where they are managed.
        directory: Where logs go.
        providers: Names of the Providers.
    """
    kube, host = ground.kube, ground.host
    with ExitStack() as stack:
        vcenters = {
            name: stack.enter_context(node_vcenter(directory / name, host)) for name in providers
        }
        workload = stack.enter_context(WorkloadApi(directory, host))
        stack.callback(_unregister, kube, providers)
        domains = register(ground, vcenters, host)
        yield WorkloadWorld(kube, vcenters, domains, workload)


def register(ground: Ground, vcenters: Mapping[str, VCSim], host: str) -> dict[str, str]:
    """Make what machines on vCenters take: Providers with their Secrets, and images.

    Args:
        ground: Where.
        vcenters: By the name of their Provider.
        host: The address they are reached at.

    Returns:
        The failure domain of each Provider.
    """
    kube = ground.kube
    for name, vcenter in vcenters.items():
        login = vcenter.username, vcenter.password
        kube.apply(credentials(NAMESPACE, f"{name}-creds", *login))
        kube.apply(node_provider(name, vcenter, host))
        ground.serve(name)
    for image in IMAGES.values():
        kube.apply(vm_image({"vsphere": image}, name=image))
    return {name: _domain(kube, name) for name in vcenters}


@contextmanager
def workload_cluster(
    world: WorkloadWorld,
    clusterctl: Clusterctl,
    namespace: str,
    *,
    planes: int,
    workers: int,
    flavor: str = "two-vcenters",
    says_provider_id: Choice = everybody,
    held: Choice = nobody,
) -> Iterator[Workload]:
    """Apply what `clusterctl generate cluster` prints of a flavor, and play its guests.

    Args:
        world: Where it is made.
        clusterctl: With the release of this tree in its repository.
        namespace: Where its objects go.
        planes: Control plane machines.
        workers: Workers in each MachineDeployment.
        flavor: `two-vcenters`, which has one for each vCenter, or `topology`, which has one.
        says_provider_id: Whose kubelets take the provider ID they are given, at first.
        held: Whose kubeadm waits, at first.
    """
    port, name = free_port(), "made"
    endpoint = f"{world.workload.host}:{port}"
    counts = [f"--control-plane-machine-count={planes}", f"--worker-machine-count={workers}"]
    text = replace(clusterctl, variables=_values(world, port)).run(
        *("generate", "cluster", name, f"--infrastructure=banlieue:{VERSION}"),
        *(f"--flavor={flavor}", f"--target-namespace={namespace}"),
        *(f"--kubernetes-version={OLD}", *counts),
    )
    vcenters = list(world.vcenters.values())
    with GuestPlayer(
        vcenters, world.workload, says_provider_id=says_provider_id, held=held
    ) as player:
        _create(world.kube, yaml_documents(text.output), namespace)
        yield Workload(world, name, namespace, endpoint, player)
        assert player.errors == []
        for guest in player.guests.values():
            if guest.told:
                assert guest.told.kubelet["provider-id"] == f"vsphere://{guest.machine.uuid}"
    if endpoint in world.workload.clusters():
        world.workload.remove(endpoint)


def _values(world: WorkloadWorld, port: int) -> dict[str, str]:
    """What the flavors have to be given."""
    first, second = world.vcenters
    references = [{"name": it, "namespace": NAMESPACE} for it in world.vcenters]
    return {
        "BANLIEUE_PROVIDER_1": first,
        "BANLIEUE_PROVIDER_2": second,
        "BANLIEUE_FAILURE_DOMAIN_1": world.domains[first],
        "BANLIEUE_FAILURE_DOMAIN_2": world.domains[second],
        "BANLIEUE_PROVIDER_REFS": json.dumps(references),
        "BANLIEUE_IMAGE": IMAGES[OLD],
        "BANLIEUE_NETWORK_CLASS": "lan",
        "BANLIEUE_STORAGE_CLASS": "standard",
        "CONTROL_PLANE_ENDPOINT_HOST": world.workload.host,
        "CONTROL_PLANE_ENDPOINT_PORT": str(port),
    }


def _create(kube: Kube, objects: Sequence[Object], namespace: str) -> None:
    """Create what was generated; a ClusterClass, which core has to look at, before its Cluster."""
    for obj in (it for it in objects if it["kind"] != "Cluster"):
        if obj["kind"].endswith("MachineTemplate"):
            obj["spec"]["template"].setdefault("metadata", {})["labels"] = OF_TEMPLATE
        kube.create(obj, namespace)
        if obj["kind"] == "ClusterClass":
            kube.wait_for(
                "clusterclasses",
                obj["metadata"]["name"],
                namespace,
                until=lambda it: condition(it, "VariablesReady")[0] == "True",
                timeout=_READY_SECONDS,
                what="looked at",
            )
    for cluster in (it for it in objects if it["kind"] == "Cluster"):
        variables = cluster["spec"].get("topology", {}).get("variables", [])
        # Its image says nothing to guests that are played: the endpoint is there already.
        variables[:] = [it for it in variables if it["name"] != "kubeVip"]
        kube.create(cluster)


def status_of(obj: Object) -> Object:
    """The status of an object, which one that was just made has none of."""
    found: Object = obj.get("status") or {}
    return found


def is_plane(machine: Object) -> bool:
    """Whether a Machine is one of the control plane."""
    return "cluster.x-k8s.io/control-plane" in machine["metadata"]["labels"]


def _domain(kube: Kube, name: str) -> str:
    """The one failure domain of a Provider, once it is Ready."""
    found = kube.wait_for(
        _PROVIDERS,
        name,
        NAMESPACE,
        until=lambda it: is_ready(it) and it["status"].get("failureDomains"),
        timeout=_READY_SECONDS,
        what="Ready with a failure domain",
    )
    (domain,) = found["status"]["failureDomains"]
    return str(domain["name"])


def _unregister(kube: Kube, providers: Sequence[str]) -> None:
    for image in IMAGES.values():
        kube.delete("vmimages", image, missing_ok=True)
    for name in providers:
        kube.delete(_PROVIDERS, name, NAMESPACE, missing_ok=True)
    for name in providers:
        kube.wait_gone(_PROVIDERS, name, NAMESPACE, timeout=_READY_SECONDS)


def _short(obj: Object) -> str:
    status = status_of(obj)
    told = [
        f"{it['type']}={it['status']}/{it['reason']}({it.get('message', '')[:200]})"
        for it in status.get("conditions") or ()
        if it["status"] != "True"
    ]
    return f"{status.get('phase', '')} {' '.join(told)}"
