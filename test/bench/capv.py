"""Cluster API's own vSphere provider (CAPV) on a control plane and a vCenter of its own.

Only its manager runs. What Cluster API's core does before a machine of infrastructure is looked at
is played: owner references are there from the start, and the Cluster is told that its
infrastructure is provisioned. So core's waits, writes and processor time are not among the figures,
nor is what a user's install has besides: webhooks and a workload cluster.
"""

import base64
import contextlib
import os
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hack.tools.catalog import TOOLS_DIRECTORY, pinned_version
from hack.tools.modules import module_directory
from test.bench.installation import calls_at, without_polls
from test.bench.subject import Column, Subject, measure
from test.kit.certificates import Authority
from test.kit.controlplane import ControlPlane
from test.kit.kube import Object
from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process
from test.kit.tools import tool
from test.kit.vcsim import VCSim
from test.kit.vcsim_values import Machine
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

BINARY: Final = "peer-cluster-api-vsphere"
NAMESPACE: Final = "capv"

_FOLDER: Final = "cluster-api-vsphere"
_CORE: Final = "sigs.k8s.io/cluster-api"
_MODULE: Final = "sigs.k8s.io/cluster-api-provider-vsphere"
_CLUSTERS: Final = "clusters.cluster.x-k8s.io"
_INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
_VERSION: Final = "v1beta2"
_CONTRACT: Final = {"cluster.x-k8s.io/v1beta2": _VERSION}
_WATCHED: Final = (
    "cluster.x-k8s.io_clusters",
    "cluster.x-k8s.io_machines",
    "ipam.cluster.x-k8s.io_ipaddressclaims",
    "ipam.cluster.x-k8s.io_ipaddresses",
)
"""The kinds of Cluster API that it watches."""
_CLUSTER: Final = "bench"
_MINIMUM_CPUS: Final = 2
_USER_DATA: Final = "#cloud-config\nruncmd: [[touch, /run/cluster-api/bootstrap-success]]\n"


def name() -> str:
    """What a table calls it, with its version; raises ToolError when no version is pinned."""
    return f"CAPV {pinned_version(TOOLS_DIRECTORY / _FOLDER / 'go.mod', _MODULE)}"


class Capv(Subject):
    """CAPV with one cluster whose infrastructure is provisioned, ready to make machines."""

    kind = f"vspheremachines.{_INFRASTRUCTURE}"

    def __init__(
        self,
        plane: ControlPlane,
        vcenter: VCSim,
        manager: Process,
        *,
        health: str,
        like: Machine,
        patience: float,
    ) -> None:
        super().__init__(plane, vcenter, {"CAPV": manager}, NAMESPACE, patience)
        self._manager, self._health, self._like = manager, health, like

    @classmethod
    @contextlib.contextmanager
    def fresh(cls, like: Machine, directory: Path, patience: float) -> Iterator["Capv"]:
        """Set it up, and take it down in the end.

        Args:
            like: A VM that those to come resemble.
            directory: Where files go.
            patience: Seconds to wait for a step.

        Raises:
            ToolError: It is not built, or Go cannot fetch the modules its CRDs are in.
        """
        with contextlib.ExitStack() as stack:
            plane = stack.enter_context(ControlPlane(directory / "control-plane"))
            vcenter = stack.enter_context(VCSim(directory))
            plane.install_crds(_definitions())
            address = f"{LOOPBACK}:{free_port()}"
            manager = _manager(plane, directory, address)
            stack.callback(manager.kill9)
            health = f"http://{address}/readyz"
            capv = cls(plane, vcenter, manager, health=health, like=like, patience=patience)
            capv.begin()
            yield capv

    def begin(self) -> None:
        """Wait for the manager, and have the cluster's infrastructure provisioned."""
        self._manager.start(self._answers, self.patience)
        kube = self.plane.kube
        for namespace in (NAMESPACE, "capv-system"):
            kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        kube.create(_secret(_CLUSTER, _login(self.vcenter)))
        kube.create(_secret("bootstrap", {"format": "cloud-config", "value": _USER_DATA}))
        cluster = kube.create(_cluster())
        made = kube.create(_vsphere_cluster(cluster, self.vcenter))
        kube.wait_for(
            *(f"vsphereclusters.{_INFRASTRUCTURE}", made["metadata"]["name"], NAMESPACE),
            until=_provisioned,
            timeout=self.patience,
            what="provisioned",
        )
        told = {"status": {"initialization": {"infrastructureProvisioned": True}}}
        kube.patch(_CLUSTERS, _CLUSTER, told, NAMESPACE, subresource="status")

    def create(self, name: str) -> None:
        machine = self.plane.kube.apply(_machine(name))
        self.plane.kube.create(_vsphere_machine(machine, self._like))

    def is_ready(self, obj: Object) -> bool:
        return _provisioned(obj)

    def restart(self) -> None:
        self._manager.kill9()
        before = without_polls(calls_at(self.vcenter))
        self._manager.start(self._answers, self.patience)
        wait_until(
            lambda: without_polls(calls_at(self.vcenter)) > before,
            self.patience,
            "CAPV to look at its cluster",
        )

    def _answers(self) -> bool:
        with urllib.request.urlopen(self._health, timeout=5) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)


def measure_capv(
    vms: int, steady: float, like: Machine, directory: Path, patience: float
) -> Column:
    """Figures and details of CAPV; raises ToolError when it is not built."""
    with Capv.fresh(like, directory, patience) as capv:
        return measure(capv, vms, steady)[0]


def _definitions() -> list[Object]:
    """The kinds it needs, as their modules ship them before webhooks are patched in."""
    own = module_directory(_FOLDER, _MODULE) / "config" / "default" / "crd" / "bases"
    core = module_directory(_FOLDER, _CORE) / "config" / "crd" / "bases"
    paths = [*sorted(own.glob("*.yaml")), *(core / f"{kind}.yaml" for kind in _WATCHED)]
    found = []
    for path in paths:
        for definition in yaml_documents(path.read_text(encoding="utf-8")):
            labels = definition["metadata"].setdefault("labels", {})
            labels.update(_CONTRACT)
            found.append(definition)
    return found


def _manager(plane: ControlPlane, directory: Path, health: str) -> Process:
    """Its manager with its own settings, but for what its Deployment's surroundings give it."""
    certificates = directory / "capv-webhooks"
    certificates.mkdir()
    Authority("webhooks of CAPV").issue("webhooks", hosts=[LOOPBACK]).write(certificates, "tls")
    return Process(
        "CAPV",
        [
            tool(BINARY),
            f"--kubeconfig={plane.kubeconfig_for_user('CAPV', ['system:masters'])}",
            "--leader-elect=false",
            f"--webhook-port={free_port()}",
            f"--webhook-cert-dir={certificates}",
            f"--health-addr={health}",
            f"--diagnostics-address={LOOPBACK}:{free_port()}",
            "--insecure-diagnostics=true",
            f"--credentials-file={directory / 'no-credentials.yaml'}",
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
        ],
        log_file=directory / "capv.log",
        env={**os.environ, "POD_NAMESPACE": "capv-system", "TMPDIR": str(directory)},
        grace=1.0,
    )


def _login(vcenter: VCSim) -> Mapping[str, str]:
    return {"username": vcenter.username, "password": vcenter.password}


def _secret(called: str, content: Mapping[str, str]) -> Object:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(called), "data": data}


def _cluster() -> Object:
    return {
        "apiVersion": f"cluster.x-k8s.io/{_VERSION}",
        "kind": "Cluster",
        "metadata": _metadata(_CLUSTER),
        "spec": {"infrastructureRef": _reference("VSphereCluster", _CLUSTER)},
    }


def _vsphere_cluster(cluster: Object, vcenter: VCSim) -> Object:
    host, port = vcenter.address
    return {
        "apiVersion": f"{_INFRASTRUCTURE}/{_VERSION}",
        "kind": "VSphereCluster",
        "metadata": _metadata(_CLUSTER, owner=cluster),
        "spec": {
            "server": f"{host}:{port}",
            "identityRef": {"kind": "Secret", "name": _CLUSTER},
            "controlPlaneEndpoint": {"host": "192.0.2.10", "port": 6443},
        },
    }


def _machine(called: str) -> Object:
    return {
        "apiVersion": f"cluster.x-k8s.io/{_VERSION}",
        "kind": "Machine",
        "metadata": _metadata(called),
        "spec": {
            "clusterName": _CLUSTER,
            "bootstrap": {"dataSecretName": "bootstrap"},
            "infrastructureRef": _reference("VSphereMachine", called),
        },
    }


def _vsphere_machine(machine: Object, like: Machine) -> Object:
    """Full paths and a given datacenter: what costs it the fewest look-ups."""
    linked = bool(like.disks[0].parent)
    return {
        "apiVersion": f"{_INFRASTRUCTURE}/{_VERSION}",
        "kind": "VSphereMachine",
        "metadata": _metadata(machine["metadata"]["name"], owner=machine),
        "spec": {
            "cloneMode": "linkedClone" if linked else "fullClone",
            "datacenter": "DC0",
            "datastore": "/DC0/datastore/LocalDS_0",
            "folder": "/DC0/vm",
            "resourcePool": "/DC0/host/DC0_C0/Resources",
            "template": "/DC0/vm/templates/ubuntu",
            "numCPUs": max(like.cpus, _MINIMUM_CPUS),
            "memoryMiB": like.memory_mib,
            "os": "Linux",
            "powerOffMode": "hard",
            "network": {"devices": [{"networkName": "/DC0/network/DC0_DVPG0", "dhcp4": True}]},
        },
    }


def _metadata(called: str, owner: Object | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": called,
        "namespace": NAMESPACE,
        "labels": {"cluster.x-k8s.io/cluster-name": _CLUSTER},
    }
    if owner is not None:
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    return metadata


def _reference(kind: str, called: str) -> Object:
    return {"apiGroup": _INFRASTRUCTURE, "kind": kind, "name": called}


def _provisioned(obj: Object) -> bool:
    return bool(obj.get("status", {}).get("initialization", {}).get("provisioned"))
