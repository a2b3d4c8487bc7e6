"""A provider in a `ControllerWorld` that has VMs nobody of ours made, and lets them be adopted."""

from dataclasses import dataclass, field
from typing import Any

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import ControllerWorld
from test.kit.fakeprovider import SYSTEM, FakeProvider, Vm, conditions

POLICY = {"adoption": {"allowedNamespaces": {"from": "All"}}}


@dataclass(slots=True)
class AdoptingProvider(FakeProvider):
    """Serves machines that adopt the way a provider process does: look, persist, mark, record."""

    existing: dict[str, Vm] = field(default_factory=dict)

    async def step(self, key: Key) -> None:
        obj = self.api.peek(self.kind, key)
        spec = (obj or {}).get("spec", {})
        mine = spec.get("providerRef", {}).get("name") == self.key.name
        leaving = obj is not None and obj["metadata"].get("deletionTimestamp")
        if obj is None or not mine or leaving or "adopt" not in spec:
            await FakeProvider.step(self, key)
            return
        vm = self.existing.get(spec["adopt"]["id"])
        if vm is None:
            await self._status(
                key, obj, conditions(Ready=("False", "AdoptionNotFound", "no such VM"))
            )
        elif not spec["adopt"].get("accepted"):
            ready = ("False", "AdoptionPending", "only observed")
            body = conditions(Ready=ready, UpToDate=("True", "UpToDate"))
            await self._status(key, obj, {**self._seen(vm), **body})
        else:
            await self._take(key, obj, vm)

    async def _take(self, key: Key, obj: Obj, vm: Vm) -> None:
        made_by = obj["spec"]["virtualMachineRef"]["name"]
        config = self.api.peek(CONFIG_MAPS, Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)) or {}
        owner = Owner(config["data"]["id"], OWNER_VIRTUAL_MACHINE, key.namespace, made_by)
        if not obj["spec"].get("instance"):
            instance = {
                "uuid": vm.uuid,
                "name": "legacy",
                "installationID": owner.installation_id,
                "backendIdentity": f"backend-{self.key.name}",
            }
            finalizers = [*obj["metadata"].get("finalizers", []), self._finalizer]
            obj = await self._patch(
                key,
                obj,
                {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
                {"op": "add", "path": "/spec/instance", "value": instance},
            )
        vm.owner, vm.marked = owner, True
        if vm not in self.vms:
            self.vms.append(vm)
        if not obj["spec"].get("providerID"):
            op = {"op": "add", "path": "/spec/providerID", "value": f"fake://{vm.uuid}"}
            obj = await self._patch(key, obj, op)
        vm.power = obj["spec"].get("powerState") or vm.power
        await self._status(key, obj, {**self._ready(vm, obj["spec"]), "powerState": vm.power})

    def _seen(self, vm: Vm) -> dict[str, Any]:
        ready = self._ready(vm, {})
        kept = ("powerState", "failureDomain", "host", "addresses", "resources")
        nics = [{"name": "eth0", "connected": True, "macAddress": "02:00:00:00:00:01"}]
        return {**{name: ready[name] for name in kept}, "interfaces": nics}


def adopting_world(**providers: dict[str, Any]) -> ControllerWorld:
    """A world whose Providers let every namespace adopt, unless their options say otherwise."""
    world = ControllerWorld.ready(
        **{name: {"policy": POLICY, **options} for name, options in providers.items()}
    )
    for provider in world.providers:

        def upgrade(obj: Obj) -> None:
            features = obj["status"].setdefault("specFeatures", [])
            features.append("adopt")

        world.api.edit(PROVIDERS, provider.key, upgrade)
    world.providers = [
        AdoptingProvider(provider.api, provider.key, provider.kind) for provider in world.providers
    ]
    return world


def legacy(world: ControllerWorld, provider: int = 0, *, power: str = "PoweredOn") -> Vm:
    """A VM nobody of ours made, on one of the Providers; its UUID is the id to adopt it by."""
    serving = world.providers[provider]
    assert isinstance(serving, AdoptingProvider)
    uuid = f"00000000-0000-4000-8000-{len(serving.existing):012d}"
    nobody = Owner("nobody", OWNER_VIRTUAL_MACHINE, "none", "none")
    vm = Vm(nobody, 0, uuid, power, f"{serving.key.name}-a", marked=False)
    serving.existing[uuid] = vm
    return vm
