"""`clusterctl move` of a workload cluster to another management cluster and back.

The other one is a bare API server with the kinds and clusterctl's record of what is installed, as
`clusterctl init` leaves them, and nobody who works there. What comes back is what `move
--to-directory` saved before; the way there is the real one, which deletes at the source.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hack.cluster.clusterapi.clusterctl import Clusterctl
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube
from test.kit.managementcluster import INVENTORY
from test.kit.vcsim_control import VCSimControl

Object = dict[str, Any]

CHANGES: Final = (
    "CloneVM_Task",
    "CreateVM_Task",
    "Destroy_Task",
    "PowerOffVM_Task",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
    "ResetVM_Task",
    "ShutdownGuest",
    "UnregisterVM",
)
"""Calls that change a VM."""

_CLUSTERCTL: Final = "clusterctl.cluster.x-k8s.io"


@contextmanager
def other_management(source: Kube, directory: Path) -> Iterator[ControlPlane]:
    """An API server that `clusterctl move` takes for another management cluster."""
    with ControlPlane(directory) as target:
        definitions = [
            _copied(it)
            for it in source.list("customresourcedefinitions")
            if _is_known(it) and "cert-manager" not in it["metadata"]["name"]
        ]
        for definition in definitions:
            # Nobody is there to convert; everything is of the stored version anyhow.
            definition["spec"].pop("conversion", None)
        target.install_crds(definitions)
        target.kube.resources()
        for record in source.list(INVENTORY):
            namespace = record["metadata"]["namespace"]
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            target.kube.apply(made)
            target.kube.create(_copied(record))
        yield target


def save(clusterctl: Clusterctl, namespace: str, directory: Path) -> None:
    """Save what belongs to the Clusters of a namespace, as it would be moved."""
    directory.mkdir()
    clusterctl.run("move", f"--to-directory={directory}", f"--namespace={namespace}")


def move(clusterctl: Clusterctl, namespace: str, target: ControlPlane) -> None:
    """Move the Clusters of a namespace."""
    clusterctl.run("move", f"--to-kubeconfig={target.kubeconfig}", f"--namespace={namespace}")


def bring_back(clusterctl: Clusterctl, directory: Path) -> None:
    """Make everything again that was saved, without status and with new uids."""
    # It takes only one kubeconfig here, the target's, which has to be reached without a proxy, too.
    hosts = {"NO_PROXY": clusterctl.environment()["NO_PROXY"]}
    replace(clusterctl, kubeconfig=None, variables=hosts).run(
        "move", f"--from-directory={directory}", f"--to-kubeconfig={clusterctl.kubeconfig}"
    )


def changes(vcenter: VCSimControl) -> dict[str, int]:
    """Calls since the counters were reset that changed a VM."""
    soap = vcenter.counters().soap
    return {method: soap[method] for method in CHANGES if soap.get(method)}


def _is_known(definition: Object) -> bool:
    """Whether clusterctl installed a kind, or keeps its record in it, which it does not label."""
    labels = definition["metadata"].get("labels") or {}
    return _CLUSTERCTL in labels or definition["spec"]["group"] == _CLUSTERCTL


def _copied(obj: Object) -> Object:
    meta = obj["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    rest = {key: it for key, it in obj.items() if key not in {"metadata", "status"}}
    return {**rest, "metadata": kept}
