"""Cluster API's side of machines, around the real controller and real provider processes.

    world = CapiWorld.with_cluster()
    world.add_machine("node-1", data="node-1-data")
    await world.settle()
    assert world.told("node-1") == ("True", "Ready")

What Cluster API's core does to its objects, tests do here: `add_machine` makes a Machine and the
machine object it owns, `delete_machine` ends both as core does.
"""

import base64
import copy
from collections.abc import Callable
from typing import Any, Final

from banlieue.api import names
from banlieue.api.resources import (
    CAPI_CLUSTERS,
    CAPI_MACHINES,
    PROVIDER_CLASSES,
    PROVIDERS,
    SECRETS,
)
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine import pausing
from banlieue.sdk.reconcile import Change
from banlieue.sdk.simulated.models import SIMULATED_CLUSTERS, SIMULATED_MACHINES
from test.kit import statusrules
from test.kit.controllerworld import NAMESPACE, SYSTEM, restored
from test.kit.movingworld import MovingWorld

CLUSTER: Final = "prod"
DATA: Final = "#cloud-config\n{}\n"
_READS: Final = frozenset(
    {"ping", "login", "logout", "about", "domains", "image", "find", "creating", "kept", "task"}
)
CORE_FINALIZER: Final = "machine.cluster.x-k8s.io"
_TEMPLATE: Final[dict[str, Any]] = {
    "imageRef": {"name": "ubuntu"},
    "cpus": 2,
    "memoryMiB": 2048,
    "disks": [{"name": "root", "storageClass": "gold"}],
    "networkInterfaces": [{"name": "eth0", "networkClass": "prod"}],
}


class CapiWorld(MovingWorld):
    """Providers `one` and `two` with failure domains `one-a` to `two-b`, and a Cluster."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        super().__init__()
        self.api.subscribe(self._judge)
        self.api.subscribe(self._wake)

    @classmethod
    def with_cluster(cls, *, provisioned: bool = True, **spec: object) -> "CapiWorld":
        """A world whose Cluster has its infrastructure; `spec` is that of its InfraCluster."""
        world = cls()
        world.add_image(
            sources=[{"providerClass": "simulated", "kind": "Template", "ref": "ubuntu-24.04"}]
        )
        for number, name in enumerate(("one", "two")):
            world._add_serving(name, number)
        spelled = {
            "apiGroup": SIMULATED_CLUSTERS.group,
            "version": SIMULATED_CLUSTERS.version,
            "kind": SIMULATED_CLUSTERS.kind,
        }
        world.api.edit(
            PROVIDER_CLASSES, Key("", "simulated"), lambda it: it["spec"].update(cluster=spelled)
        )
        world.restart()
        endpoint = {"host": "10.0.0.9", "port": 6443}
        owner = world.add_cluster_object(provisioned=provisioned)
        world.api.put(
            SIMULATED_CLUSTERS,
            {
                "metadata": {
                    "namespace": NAMESPACE,
                    "name": CLUSTER,
                    "ownerReferences": [_owner(owner, CAPI_CLUSTERS.kind)],
                },
                "spec": {"controlPlaneEndpoint": endpoint, **spec},
            },
        )
        return world

    async def settle(self, *, seconds: float = 60.0) -> None:
        """As ever, but that providers look at their backends again and again."""
        await super().settle(seconds=seconds)

    def stop_serving(self) -> None:
        """No provider does anything any more."""
        for process in self.serving.values():
            process.reconciler.providers = _Nobody()

    def add_cluster_object(self, *, provisioned: bool) -> Obj:
        """The Cluster, as core and the control plane left it."""
        done = {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
        return self.api.put(
            CAPI_CLUSTERS,
            {
                "metadata": {"namespace": NAMESPACE, "name": CLUSTER},
                "spec": {
                    "infrastructureRef": {
                        "apiGroup": SIMULATED_CLUSTERS.group,
                        "kind": SIMULATED_CLUSTERS.kind,
                        "name": CLUSTER,
                    }
                },
                **({"status": {"initialization": done}} if provisioned else {}),
            },
        )

    def add_machine(
        self,
        name: str = "node-1",
        *,
        data: str = "boot",
        domain: str = "",
        owned: bool = True,
        plane: bool = False,
        **spec: object,
    ) -> Key:
        """A Machine, its bootstrap data and the machine object that core makes for it."""
        labels = {names.CAPI_LABEL_CLUSTER_NAME: CLUSTER}
        roles = {names.CAPI_LABEL_CONTROL_PLANE: ""} if plane else {}
        owner = self.api.put(
            CAPI_MACHINES,
            {
                "metadata": {
                    "namespace": NAMESPACE,
                    "name": name,
                    "labels": labels | roles,
                    "finalizers": [CORE_FINALIZER],
                },
                "spec": {
                    "clusterName": CLUSTER,
                    "bootstrap": {"dataSecretName": data} if data else {},
                    "infrastructureRef": {
                        "apiGroup": SIMULATED_MACHINES.group,
                        "kind": SIMULATED_MACHINES.kind,
                        "name": name,
                    },
                    **({"failureDomain": domain} if domain else {}),
                },
            },
        )
        if data:
            self.add_data(data)
        references = [_owner(owner, CAPI_MACHINES.kind)] if owned else []
        self.api.put(
            SIMULATED_MACHINES,
            {
                "apiVersion": SIMULATED_MACHINES.api_version,
                "kind": SIMULATED_MACHINES.kind,
                "metadata": {
                    "namespace": NAMESPACE,
                    "name": name,
                    "labels": labels,
                    "ownerReferences": references,
                },
                "spec": {**copy.deepcopy(_TEMPLATE), **spec},
            },
        )
        return Key(NAMESPACE, name)

    def add_data(self, name: str = "boot", **more: str) -> None:
        """The Secret of a bootstrap provider."""
        data = {"value": DATA, **more}
        encoded = {key: base64.b64encode(it.encode()).decode() for key, it in data.items()}
        self.api.put(SECRETS, {"metadata": {"namespace": NAMESPACE, "name": name}, "data": encoded})

    def claim(self, name: str = "node-1") -> None:
        """Core makes the Machine the owner of the machine object."""
        owner = self.owner(name)
        self.edit(
            name, lambda it: it["metadata"].update(ownerReferences=[_owner(owner, "Machine")])
        )

    def pause(self, paused: bool = True) -> None:  # noqa: FBT001, FBT002 - a switch, told by its name
        """Pause the Cluster, or resume it."""
        self.api.edit(
            CAPI_CLUSTERS, Key(NAMESPACE, CLUSTER), lambda it: it["spec"].update(paused=paused)
        )

    def edit(self, name: str, change: Callable[[Obj], object]) -> None:
        """Change a machine object as somebody else would."""
        self.api.edit(SIMULATED_MACHINES, Key(NAMESPACE, name), lambda it: _ignore(change(it)))

    def edit_owner(self, name: str, change: Callable[[Obj], object]) -> None:
        """Change a Machine as somebody else would."""
        self.api.edit(CAPI_MACHINES, Key(NAMESPACE, name), lambda it: _ignore(change(it)))

    def edit_provider(self, name: str, change: Callable[[Obj], object]) -> None:
        """Change a Provider as its admin or its process would."""
        self.api.edit(PROVIDERS, Key(SYSTEM, name), lambda it: _ignore(change(it)))

    async def delete_machine(self, name: str = "node-1") -> None:
        """End a Machine as core does: the machine object first, then the rest."""
        key = Key(NAMESPACE, name)
        self.api.drop(CAPI_MACHINES, key)
        self.api.drop(SIMULATED_MACHINES, key)
        await self.settle()
        if self.api.peek(SIMULATED_MACHINES, key) is None:
            self.edit_owner(name, lambda it: it["metadata"].update(finalizers=[]))
            if self.api.peek(CAPI_MACHINES, key):
                self.api.drop(CAPI_MACHINES, key)

    def node(self, name: str = "node-1") -> Obj:
        """A machine object, empty when it is gone."""
        return self.api.peek(SIMULATED_MACHINES, Key(NAMESPACE, name)) or {}

    def owner(self, name: str = "node-1") -> Obj:
        """A Machine, empty when it is gone."""
        return self.api.peek(CAPI_MACHINES, Key(NAMESPACE, name)) or {}

    def told(self, name: str = "node-1", kind: str = "Ready") -> tuple[str, str]:
        """Status and reason of a condition of a machine object."""
        found = self.says(name, kind)
        return found.get("status", ""), found.get("reason", "")

    def says(self, name: str = "node-1", kind: str = "Ready") -> dict[str, Any]:
        """A condition of a machine object, empty without it."""
        for item in (self.node(name).get("status") or {}).get("conditions") or ():
            if item["type"] == kind:
                found: dict[str, Any] = item
                return found
        return {}

    def every_vm(self) -> list[str]:
        """UUIDs of all VMs on all backends."""
        return sorted(vm.uuid for name in self.serving for vm in self.vms_at(name))

    def place(self, name: str = "node-1") -> tuple[str, str]:
        """Provider and failure domain of a machine, as stamped."""
        spec = self.node(name).get("spec") or {}
        where = (spec.get("placement") or {}).get("failureDomain", "")
        return (spec.get("providerRef") or {}).get("name", ""), where

    def restore(self, obj: Obj, *, uid: str, status: bool = False) -> Obj:
        """Bring a machine object back as a backup or a move does: another uid."""
        return self.api.put(SIMULATED_MACHINES, restored(obj, uid=uid, status=status))

    def backend_changes(self) -> int:
        """How many calls that change something the backends were asked for."""
        found = 0
        for process in self.serving.values():
            calls: Any = process.backend.control("calls", {})
            found += sum(it for verb, it in calls.items() if verb not in _READS)
        return found

    def _judge(self, change: Change) -> None:
        if change.resource == SIMULATED_MACHINES and change.new is not None:
            self.faults += statusrules.faults_of(change.new, change.old)

    def _wake(self, change: Change) -> None:
        """Providers watch Clusters, too: a pause that ends changes no machine object."""
        if change.resource != CAPI_CLUSTERS:
            return
        for request in pausing.machines_of(self.api.cache, SIMULATED_MACHINES, change):
            provider, _ = self.place(request.key.name)
            if provider in self.serving:
                self.ask(self.serving[provider].controller, request)


class _Nobody:
    """No Provider is served."""

    def open(self, key: Key) -> None:
        """Not this one either."""
        del key

    def provider(self, key: Key) -> None:
        """Nor is it known."""
        del key

    def trouble(self, key: Key) -> None:
        """Nobody tells why."""
        del key


def _owner(obj: Obj, kind: str) -> dict[str, Any]:
    return {
        "apiVersion": CAPI_MACHINES.api_version,
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _ignore(_answer: object) -> None:
    """An edit changes its object in place; what it answers is of no use."""
