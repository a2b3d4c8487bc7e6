"""Others on the Providers of a workload cluster, in its own namespace.

A user's VirtualMachine, and machine objects that a user wrote and that no Machine owns: one with
the label of the cluster and one without.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from test.kit.kube import Kube
from test.kit.managementcluster import NAMESPACE
from test.kit.stack import is_ready, virtual_machine, vm_class
from test.kit.vcsim_values import Machine
from test.kit.workloadvcenter import IMAGES, OLD
from test.kit.workloadworld import OURS, Workload

Object = dict[str, Any]

NAME: Final = "database"
LABELLED: Final = "with-the-label"
STRAYS: Final = (LABELLED, "without-a-label")

_MACHINES: Final = "virtualmachines.banlieue.io"
_SECONDS: Final = 180.0
_TOLD: Final = ("conditions", "initialization", "providerID", "resources", "addresses")
_CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"


@dataclass(frozen=True, slots=True)
class Seen:
    """What must not change while others come and go.

    Attributes:
        vms: By UUID.
        objects: What objects ask and say, by kind and name.
    """

    vms: Mapping[str, Machine]
    objects: Mapping[tuple[str, str], Object]


class Neighbours:
    """They move in beside a cluster whose Machines run, and move out again."""

    def __init__(self, made: Workload) -> None:
        """Remember how the cluster is."""
        self._made = made
        self._before = _of_cluster(made)
        self._strays: dict[str, Object] = {}
        self._own: Seen | None = None

    @property
    def _kube(self) -> Kube:
        return self._made.world.kube

    def move_in(self) -> None:
        """The VirtualMachine becomes Ready, and the cluster is as it was."""
        namespace, provider = self._made.namespace, next(iter(self._made.world.vcenters))
        spec = self._made.nodes()[0]["spec"]
        kept = ("imageRef", "cpus", "memoryMiB", "disks", "networkInterfaces")
        template = {key: spec[key] for key in kept}
        for name in STRAYS:
            labels = {_CLUSTER_NAME: self._made.name} if name == LABELLED else {}
            stray = {
                "apiVersion": "infrastructure.banlieue.io/v1alpha1",
                "kind": "VSphereMachine",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": template,
            }
            self._strays[name] = self._kube.create(stray)
        storage = {"storageClass": "standard"}
        disks = [{"name": "root", **storage}, {"name": "data", "sizeGiB": 1, **storage}]
        self._kube.create(vm_class(namespace, disks=disks))
        wanted: Object = {
            "classRef": {"name": namespace},
            "imageRef": {"name": IMAGES[OLD]},
            "providerRef": {"name": provider, "namespace": NAMESPACE},
        }
        self._kube.create(virtual_machine(namespace, NAME, **wanted))
        self._kube.wait_for(
            _MACHINES, NAME, namespace, until=is_ready, timeout=_SECONDS, what="Ready"
        )
        self._own = self._of_user()
        (vm,) = self._own.vms.values()
        assert len(vm.disks) == len(disks)
        assert _of_cluster(self._made) == self._before

    def unchanged(self) -> None:
        """Nothing of theirs changed, whatever became of the cluster's machines."""
        assert self._of_user() == self._own
        for name, stray in self._strays.items():
            assert self._kube.get(OURS, name, self._made.namespace) == stray

    def move_out(self) -> None:
        """All are gone with what was theirs, and the cluster is as it was."""
        assert self._own is not None
        namespace, before = self._made.namespace, _of_cluster(self._made)
        self._kube.delete(_MACHINES, NAME, namespace)
        self._kube.wait_gone(_MACHINES, NAME, namespace, timeout=_SECONDS)
        assert not self._own.vms.keys() & {it.uuid for it in self._made.world.vms()}
        # Nobody holds what nobody took: they go at once.
        for name in self._strays:
            self._kube.delete(OURS, name, namespace)
            assert self._kube.find(OURS, name, namespace) is None
        self._kube.delete("vmclasses", namespace)
        assert _of_cluster(self._made) == before

    def _of_user(self) -> Seen:
        machine = self._kube.get(_MACHINES, NAME, self._made.namespace)
        (node,) = [it for it in self._made.nodes() if not _is_of_cluster(it)]
        return _seen(self._made, [machine, node])


def _of_cluster(made: Workload) -> Seen:
    return _seen(made, [it for it in made.nodes() if _is_of_cluster(it)])


def _is_of_cluster(node: Object) -> bool:
    return _CLUSTER_NAME in (node["metadata"].get("labels") or {})


def _seen(made: Workload, objects: list[Object]) -> Seen:
    ids = {it["spec"].get("providerID", "").removeprefix("vsphere://") for it in objects}
    return Seen(
        {it.uuid: it for it in made.world.vms() if it.uuid in ids},
        {
            (it["kind"], it["metadata"]["name"]): {
                "uid": it["metadata"]["uid"],
                "spec": it["spec"],
                **{key: it["status"].get(key) for key in _TOLD},
            }
            for it in objects
        },
    )
