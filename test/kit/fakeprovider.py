"""A provider for tests of the controller: VMs in a list, machines served one step a time."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.memory_api import MemoryApi

NAMESPACE = "team-a"
SYSTEM = names.SYSTEM_NAMESPACE
CLUSTER_UID = "cluster-1"
THIS = Resource("infrastructure.example.com", "v1alpha1", "ThisMachine", "thismachines")
THAT = Resource("infrastructure.example.com", "v1alpha1", "ThatMachine", "thatmachines")
KINDS = {"this": THIS, "that": THAT, "simulated": SIMULATED_MACHINES}


@dataclass(slots=True)
class Vm:
    """A VM on a backend, with the mark it carries."""

    owner: Owner
    epoch: int
    uuid: str
    power: str = "PoweredOn"
    domain: str = ""
    marked: bool = True
    incoming: bool = False
    plugged: dict[str, bool] = field(default_factory=dict)
    data: str = ""
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether it runs and is on the network."""
        return self.power == "PoweredOn" and all(self.plugged.values())


@dataclass(slots=True)
class FakeProvider:
    """Serves one Provider the way a provider process does, one step of a machine at a time."""

    api: MemoryApi
    key: Key
    kind: Resource
    vms: list[Vm] = field(default_factory=list)
    full: set[str] = field(default_factory=set)
    down: bool = False
    reports: bool = True
    stepwise: bool = True
    proves: bool = True
    boots: bool = True
    trouble: Callable[[Vm], bool] = lambda _: False

    @property
    def manager(self) -> str:
        return names.provider_manager("fake", self.key.namespace, self.key.name)

    async def step(self, key: Key) -> None:
        """Take a machine as far as it goes; writes are what a real provider writes."""
        obj = self.api.peek(self.kind, key)
        reference = (obj or {}).get("spec", {}).get("providerRef", {})
        if obj is None or self.down or reference != _ref(self.key):
            return
        if obj["spec"].get("paused"):
            return
        if obj["metadata"].get("deletionTimestamp"):
            await self._leave(key, obj)
            return
        obj = await self._mint(key, obj)
        if obj is not None:
            await self._make(key, obj)

    def publish(self) -> None:
        """Tell which VMs have a mark and no machine object."""
        claimed = {
            obj["spec"].get("instance", {}).get("uuid") for obj in self.api.peek_all(self.kind)
        }
        owners = [
            {
                "hash": vm.owner.digest,
                "epoch": vm.epoch,
                **({"incoming": True} if vm.incoming else {}),
            }
            for vm in self.vms
            if vm.marked and vm.uuid not in claimed
        ]
        told = {"complete": True, "count": len(owners), "owners": owners}
        config = self.api.peek(CONFIG_MAPS, Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)) or {}
        if (config.get("data") or {}).get(names.INSTALLATION_RECOVERY):
            told["recovery"] = True

        def change(provider: Obj) -> None:
            provider["status"]["unclaimed"] = told

        stored = self.api.peek(PROVIDERS, self.key)
        if self.reports and stored and stored["status"].get("unclaimed") != told:
            self.api.edit(PROVIDERS, self.key, change)

    async def _mint(self, key: Key, obj: Obj) -> Obj | None:
        if obj["spec"].get("instance"):
            return obj
        made_by = obj["spec"].get("virtualMachineRef", {}).get("name", "")
        owner_key = Key(key.namespace, made_by)
        vm = self.api.peek(VIRTUAL_MACHINES, owner_key) or {}
        wanted = {
            "apiGroup": self.kind.group,
            "kind": self.kind.kind,
            "name": key.name,
            "namespace": key.namespace,
        }
        told = vm.get("status", {})
        if wanted not in (told.get("infrastructureRef"), told.get("incomingRef")):
            await self._status(key, obj, conditions(Ready=("False", "NotReferenced")))
            return None
        config = self.api.peek(CONFIG_MAPS, Key(SYSTEM, names.INSTALLATION_CONFIG_MAP))
        if config is None or config["data"].get("clusterUID") != CLUSTER_UID:
            return None
        owner = Owner(config["data"]["id"], OWNER_VIRTUAL_MACHINE, key.namespace, made_by)
        known = [it for it in self.vms if it.marked and it.owner == owner]
        move = obj["spec"].get("move", {"epoch": 0, "role": "Current"})
        later = [it for it in known if it.epoch > move["epoch"] and not it.incoming]
        if move["role"] == "Current" and later:
            await self._status(key, obj, conditions(Ready=("False", "RebindPending")))
            return None
        known = [it for it in known if it.epoch == move["epoch"]]
        if len(known) > 1:
            await self._status(key, obj, conditions(Ready=("False", "OwnershipConflict")))
            return None
        identity = known[0].uuid if known else str(uuid.uuid4())
        instance = {
            "uuid": identity,
            "name": made_by,
            "installationID": owner.installation_id,
            "backendIdentity": f"backend-{self.key.name}",
        }
        finalizers = [*obj["metadata"].get("finalizers", []), self._finalizer]
        return await self._patch(
            key,
            obj,
            {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
            {"op": "add", "path": "/spec/instance", "value": instance},
        )

    async def _make(self, key: Key, obj: Obj) -> None:
        spec = obj["spec"]
        vm = next((it for it in self.vms if it.uuid == spec["instance"]["uuid"]), None)
        domain = spec["placement"]["failureDomain"]
        hindered = self._hindered(obj, domain) if vm is None else None
        if hindered is not None:
            await self._status(key, obj, hindered)
            return
        if vm is None:
            owner = Owner(
                spec["instance"]["installationID"],
                OWNER_VIRTUAL_MACHINE,
                key.namespace,
                spec["virtualMachineRef"]["name"],
            )
            vm = Vm(owner, spec.get("move", {}).get("epoch", 0), spec["instance"]["uuid"])
            vm.domain = domain
            vm.incoming = spec.get("move", {}).get("role") == "Incoming"
            self.vms.append(vm)
            if self.stepwise:
                obj = await self._status(key, obj, conditions(Ready=("False", "Creating")))
        vm.addresses = _addresses(spec)
        if not spec.get("providerID"):
            value = f"fake://{vm.uuid}"
            obj = await self._patch(
                key, obj, {"op": "add", "path": "/spec/providerID", "value": value}
            )
        if vm.marked and not _remark(vm, spec.get("move", {"epoch": 0, "role": "Current"})):
            await self._status(key, obj, {**conditions(Ready=("False", "OwnershipConflict"))})
            return
        if spec.get("move", {}).get("role") != "Previous":
            vm.plugged = _plugged(spec)
        vm.power = obj["spec"].get("powerState", "PoweredOn") if self.boots else "PoweredOff"
        body = self._ready(vm, spec)
        if self.trouble(vm):
            body |= conditions(Ready=("False", "ProviderBusy", "the backend works on it"))
            body["powerState"] = "Suspended"
        if not self.boots:
            body |= conditions(Ready=("False", "ProvisioningFailed", "it does not start"))
        await self._status(key, obj, body)

    def _hindered(self, obj: Obj, domain: str) -> dict[str, Any] | None:
        """What the status says where no VM is made, None where one is."""
        spec = obj["spec"]
        if spec.get("providerID"):
            body = conditions(Ready=("False", "VMMissing", "it is gone"))
            since = (obj.get("status") or {}).get("missing") or {"since": "2026-01-01T00:00:00Z"}
            return {**body, "missing": since} if self.proves else body
        if _unclaimed(spec):
            return conditions(Ready=("False", "AddressPending"))
        if domain in self.full:
            body = conditions(Ready=("False", "InsufficientCapacity", "no room"))
            return {
                **body,
                "createRefused": {"failureDomain": domain, "reason": "InsufficientCapacity"},
            }
        return None

    def _ready(self, vm: Vm, spec: dict[str, Any]) -> dict[str, Any]:
        role = "Incoming" if vm.incoming else "Current"
        if spec.get("move", {}).get("role") == "Previous" and vm.power == "PoweredOff":
            role = "Previous"
        body = conditions(
            Ready=("True", "Ready"),
            Provisioned=("True", "Provisioned"),
            PowerStateSynced=("True", "PowerStateSynced"),
            UpToDate=("True", "UpToDate"),
            AddressesAvailable=("True", "AddressesAvailable"),
        )
        return {
            **body,
            "initialization": {"provisioned": True},
            "powerState": vm.power,
            "failureDomain": vm.domain,
            "host": "host-1",
            "move": {"epoch": vm.epoch, "role": role},
            "interfaces": [{"name": nic, "connected": on} for nic, on in vm.plugged.items()],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            "resources": {"cpus": 2, "memoryMiB": 4096},
        }

    async def _leave(self, key: Key, obj: Obj) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        if self._finalizer not in meta.get("finalizers", []):
            return
        teardown = spec.get("teardown") or {}
        if spec.get("instance") and teardown.get("uid") != meta["uid"]:
            await self._status(key, obj, conditions(Ready=("False", "TeardownUndecided")))
            return
        mine = [vm for vm in self.vms if vm.uuid == spec.get("instance", {}).get("uuid")]
        if teardown.get("mode") == "Destroy":
            self.vms = [vm for vm in self.vms if vm not in mine]
        owner = self.api.peek(
            VIRTUAL_MACHINES, Key(key.namespace, spec.get("virtualMachineRef", {}).get("name", ""))
        )
        for vm in mine:
            vm.marked = not (owner and owner["metadata"].get("deletionTimestamp"))
        kept = [name for name in meta["finalizers"] if name != self._finalizer]
        await self._patch(
            key, obj, {"op": "replace", "path": "/metadata/finalizers", "value": kept}
        )

    @property
    def _finalizer(self) -> str:
        return names.machine_finalizer(self.kind.kind)

    async def _patch(self, key: Key, obj: Obj, *ops: dict[str, Any]) -> Obj:
        test = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": obj["metadata"]["resourceVersion"],
        }
        return await self.api.json_patch(self.kind, key, [test, *ops], manager=self.manager)

    async def _status(self, key: Key, obj: Obj, status: dict[str, Any]) -> Obj:
        wanted = {**status, "observedGeneration": obj["metadata"]["generation"]}
        if obj.get("status") == wanted:
            return obj
        return await self.api.json_patch(
            self.kind,
            key,
            [{"op": "add", "path": "/status", "value": wanted}],
            manager=self.manager,
            subresource="status",
        )


def _plugged(spec: dict[str, Any]) -> dict[str, bool]:
    inherited = (spec.get("class") or {}).get("network", {}).get("interfaces", [])
    found = {nic["name"]: True for nic in inherited}
    own = spec.get("networkInterfaces", [])
    return found | {nic["name"]: nic.get("connected") is not False for nic in own}


def _unclaimed(spec: dict[str, Any]) -> bool:
    wishes = (it for nic in spec.get("networkInterfaces", ()) for it in nic.get("ipam", ()))
    return any(it["source"] == "pool" and not it.get("address") for it in wishes)


def _addresses(spec: dict[str, Any]) -> dict[str, str]:
    """What the guest is given, by interface and family."""
    return {
        f"{nic['name']}/{it['family']}": it["address"]
        for nic in spec.get("networkInterfaces", ())
        for it in nic.get("ipam", ())
        if it.get("address")
    }


def _remark(vm: Vm, move: dict[str, Any]) -> bool:
    """Write a VM's mark as its object says; False where that would not be ours to write."""
    epoch, incoming = move["epoch"], move["role"] == "Incoming"
    if vm.epoch > epoch or (vm.epoch == epoch and incoming and not vm.incoming):
        return False
    vm.epoch, vm.incoming = epoch, incoming
    return True


def _ref(key: Key) -> dict[str, str]:
    return {"name": key.name, "namespace": key.namespace}


def conditions(**found: tuple[str, ...]) -> dict[str, Any]:
    return {
        "conditions": [
            {
                "type": kind,
                "status": values[0],
                "reason": values[1],
                "message": values[2] if len(values) > 2 else "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, values in found.items()
        ]
    }
