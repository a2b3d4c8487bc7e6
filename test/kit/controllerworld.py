"""The controller role over a memory API, with providers that keep VMs in a dictionary.

    world = ControllerWorld()
    world.add_vm("db-1")
    await world.settle()
    assert world.condition("db-1", "Ready")["status"] == "True"
    assert len(world.backend.vms) == 1

`settle` runs passes until nothing is left to do; its clock jumps over delays. `crash_at(n)` ends
the controller right after its n-th write, whose reply is lost; a fresh one goes on.
"""

import copy
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.controller.app import ControllerRole
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from banlieue.sdk.kube import ApiError, Key, NotFound, Obj
from banlieue.sdk.reconcile import Change, Context, Controller, Request, Watch
from banlieue.sdk.testing.fakes import FakeClock, MemoryRecorder
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment

NAMESPACE = "team-a"
SYSTEM = names.SYSTEM_NAMESPACE
CLUSTER_UID = "cluster-1"
THIS = Resource("infrastructure.example.com", "v1alpha1", "ThisMachine", "thismachines")
THAT = Resource("infrastructure.example.com", "v1alpha1", "ThatMachine", "thatmachines")
KINDS = {"this": THIS, "that": THAT}

_WRITES = {"create", "apply", "json_patch", "delete"}
_MAX_PASSES = 3000


class ProcessKilled(BaseException):
    """The controller's process ended in the middle of a call."""


@dataclass(slots=True)
class Vm:
    """A VM on a backend, with the mark it carries."""

    owner: Owner
    epoch: int
    uuid: str
    power: str = "PoweredOn"
    domain: str = ""
    marked: bool = True


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
            {"hash": vm.owner.digest, "epoch": vm.epoch}
            for vm in self.vms
            if vm.marked and vm.uuid not in claimed
        ]
        told = {"complete": True, "count": len(owners), "owners": owners}

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
        if vm.get("status", {}).get("infrastructureRef") != wanted:
            await self._status(key, obj, _conditions(Ready=("False", "NotReferenced")))
            return None
        config = self.api.peek(CONFIG_MAPS, Key(SYSTEM, names.INSTALLATION_CONFIG_MAP))
        if config is None or config["data"].get("clusterUID") != CLUSTER_UID:
            return None
        owner = Owner(config["data"]["id"], OWNER_VIRTUAL_MACHINE, key.namespace, made_by)
        known = [it for it in self.vms if it.marked and it.owner == owner]
        if len(known) > 1:
            await self._status(key, obj, _conditions(Ready=("False", "OwnershipConflict")))
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
        if vm is None and spec.get("providerID"):
            body = _conditions(Ready=("False", "VMMissing", "it is gone"))
            since = (obj.get("status") or {}).get("missing") or {"since": "2026-01-01T00:00:00Z"}
            await self._status(key, obj, {**body, "missing": since} if self.proves else body)
            return
        if vm is None and domain in self.full:
            body = _conditions(Ready=("False", "InsufficientCapacity", "no room"))
            body["createRefused"] = {"failureDomain": domain, "reason": "InsufficientCapacity"}
            await self._status(key, obj, body)
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
            self.vms.append(vm)
            if self.stepwise:
                obj = await self._status(key, obj, _conditions(Ready=("False", "Creating")))
        if not spec.get("providerID"):
            value = f"fake://{vm.uuid}"
            obj = await self._patch(
                key, obj, {"op": "add", "path": "/spec/providerID", "value": value}
            )
        vm.power = obj["spec"].get("powerState", "PoweredOn")
        await self._status(key, obj, self._ready(vm))

    def _ready(self, vm: Vm) -> dict[str, Any]:
        body = _conditions(
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
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            "resources": {"cpus": 2, "memoryMiB": 4096},
        }

    async def _leave(self, key: Key, obj: Obj) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        if self._finalizer not in meta.get("finalizers", []):
            return
        teardown = spec.get("teardown") or {}
        if spec.get("instance") and teardown.get("uid") != meta["uid"]:
            await self._status(key, obj, _conditions(Ready=("False", "TeardownUndecided")))
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


@dataclass(slots=True)
class _Engine:
    """Queues and watches of one controller process."""

    controllers: dict[str, Controller]
    watches: list[tuple[str, Watch]]
    due: dict[tuple[str, Key], float] = field(default_factory=dict)


class ControllerWorld:
    """Everything around a controller that tests need; see the module's text."""

    def __init__(self, *, seed: int = 0) -> None:
        self.clock = FakeClock()
        self.api = MemoryApi(now=self.clock.now)
        self.recorder = MemoryRecorder()
        self.providers: list[FakeProvider] = []
        self.restarts = 0
        self._rng = Random(seed)
        self._machines_due: set[tuple[str, Key]] = set()
        self._running: tuple[str, Key] | None = None
        self._writes_left: int | None = None
        self._before_reply = False
        self.api.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": CLUSTER_UID}})
        self.api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {"team": "a"}}})
        self.api.subscribe(self._changed)
        self.api.intercept(self._watch_writes)
        self.role: ControllerRole
        self._engine: _Engine
        self.restart()

    # The platform.

    def add_class(self, name: str = "small", **changes: object) -> None:
        spec = {
            "hardware": {
                "cpus": 2,
                "memoryMiB": 4096,
                "disks": [{"name": "root", "sizeGiB": 20, "storageClass": "gold"}],
            },
            "network": {"interfaces": [{"name": "eth0", "networkClass": "prod"}]},
            "firmware": "efi",
        }
        self.api.put(VM_CLASSES, {"metadata": {"name": name}, "spec": {**spec, **changes}})

    def add_image(self, name: str = "ubuntu", **changes: object) -> None:
        spec = {
            "agent": "present",
            "sources": [{"providerClass": it, "kind": "Template", "ref": "t"} for it in KINDS],
        }
        self.api.put(VM_IMAGES, {"metadata": {"name": name}, "spec": {**spec, **changes}})

    def add_provider(
        self,
        name: str,
        *,
        backend: str = "this",
        domains: Iterable[str] = ("a",),
        labels: dict[str, str] | None = None,
        namespace: str = SYSTEM,
        image: str = "ubuntu",
        **spec: object,
    ) -> FakeProvider:
        kind = KINDS[backend]
        self.api.put(
            PROVIDER_CLASSES,
            {
                "metadata": {"name": backend},
                "spec": {
                    "backend": backend,
                    "machine": {
                        "apiGroup": kind.group,
                        "version": kind.version,
                        "kind": kind.kind,
                    },
                },
            },
        )
        self.api.put(
            PROVIDERS,
            {
                "metadata": {"namespace": namespace, "name": name, "labels": labels or {}},
                "spec": {
                    "providerClassRef": {"name": backend},
                    "connection": {"endpoint": "https://example.com"},
                    "allowedNamespaces": {"from": "All"},
                    **spec,
                },
                "status": {
                    "failureDomains": [domain(f"{name}-{it}") for it in domains],
                    "unclaimed": {"complete": True, "count": 0},
                    **_conditions(Ready=("True", "Ready")),
                },
            },
        )
        provider = FakeProvider(self.api, Key(namespace, name), kind)
        self.providers.append(provider)
        if self.api.peek(VM_IMAGES, Key("", image)):
            self.image_ready_at(provider.key, image)
        return provider

    def image_ready_at(self, provider: Key, image: str = "ubuntu") -> None:
        row = {
            "providerNamespace": provider.namespace,
            "providerName": provider.name,
            "ready": True,
        }

        def change(obj: Obj) -> None:
            obj.setdefault("status", {}).setdefault("perProvider", []).append(row)

        self.api.edit(VM_IMAGES, Key("", image), change)

    @classmethod
    def ready(cls, **providers: dict[str, Any]) -> "ControllerWorld":
        """A world with class, image and one Provider `one` (or those given by name)."""
        world = cls()
        world.add_class()
        world.add_image()
        for name, options in (providers or {"one": {}}).items():
            world.add_provider(name, **options)
        return world

    # The user.

    def add_vm(
        self, name: str = "db-1", *, labels: dict[str, str] | None = None, **spec: object
    ) -> Key:
        key = Key(NAMESPACE, name)
        self.api.put(
            VIRTUAL_MACHINES,
            {
                "metadata": {"namespace": NAMESPACE, "name": name, "labels": labels or {}},
                "spec": {
                    "classRef": {"name": "small"},
                    "imageRef": {"name": "ubuntu"},
                    **spec,
                },
            },
        )
        return key

    def edit_vm(self, name: str = "db-1", **spec: object) -> None:
        def change(obj: Obj) -> None:
            obj["spec"].update(spec)

        self.api.edit(VIRTUAL_MACHINES, Key(NAMESPACE, name), change)

    def delete_vm(self, name: str = "db-1") -> None:
        self.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, name))

    # What there is.

    def vm(self, name: str = "db-1") -> Obj | None:
        return self.api.peek(VIRTUAL_MACHINES, Key(NAMESPACE, name))

    def status(self, name: str = "db-1") -> dict[str, Any]:
        return (self.vm(name) or {}).get("status") or {}

    def condition(self, kind: str, name: str = "db-1") -> dict[str, Any]:
        found = [it for it in self.status(name).get("conditions", []) if it["type"] == kind]
        return found[0] if found else {}

    def machine(self, name: str = "db-1", kind: Resource = THIS) -> Obj | None:
        return self.api.peek(kind, Key(NAMESPACE, name))

    def machines(self) -> list[Obj]:
        return [obj for kind in KINDS.values() for obj in self.api.peek_all(kind)]

    def vms(self) -> list[Vm]:
        return [vm for provider in self.providers for vm in provider.vms]

    @property
    def installation(self) -> Obj | None:
        return self.api.peek(CONFIG_MAPS, Key(SYSTEM, names.INSTALLATION_CONFIG_MAP))

    def controller_writes(self) -> Counter[str]:
        """How often the controller wrote what, as `verb kind[/status]`."""
        found: Counter[str] = Counter()
        for call in self.api.writes():
            if call.manager == names.MANAGER_CONTROLLER or call.verb == "delete":
                sub = f"/{call.subresource}" if call.subresource else ""
                found[f"{call.verb} {call.resource.kind}{sub}"] += 1
        return found

    # Time.

    def restart(self) -> None:
        """A new controller process: it knows nothing but what the API says."""
        watches: list[tuple[str, Watch]] = []
        ctx = Context(
            api=self.api,
            cache=self.api.cache,
            clock=self.clock,
            rng=self._rng,
            recorder=self.recorder,
            enqueue=self._enqueue,
            add_watch=lambda controller, watch: self._attach(watches, controller, watch),
        )
        self.role = ControllerRole.of(ctx)
        controllers = {it.name: it for it in self.role.controllers()}
        self._engine = _Engine(controllers, watches)
        for controller in controllers.values():
            for watch in controller.watches:
                self._attach(watches, controller.name, watch)

    def crash_at(self, write: int, *, before_reply: bool = True) -> None:
        """Kill the controller at its n-th write: executed and its reply lost, or never sent."""
        self._writes_left = write
        self._before_reply = before_reply

    @property
    def crashed(self) -> bool:
        """Whether the write `crash_at` named was reached."""
        return self._writes_left is None

    async def settle(self, *, seconds: float = 3600.0) -> None:
        """Run until nothing is left to do within so many seconds of the world's time."""
        end = self.clock.monotonic() + seconds
        for _ in range(_MAX_PASSES):
            if await self._serve_machines():
                continue
            if not self._engine.due:
                return
            target = min(self._engine.due, key=lambda it: (self._engine.due[it], it[0], it[1]))
            when = self._engine.due[target]
            if when > end:
                return
            if when > self.clock.monotonic():
                self.clock.advance(when - self.clock.monotonic())
            del self._engine.due[target]
            await self._pass(*target)
        raise AssertionError(f"no end after {_MAX_PASSES} passes: {self._engine.due}")

    async def _pass(self, controller: str, key: Key) -> None:
        self._running = (controller, key)
        try:
            reconciler = self._engine.controllers[controller].reconciler
            result = await reconciler.reconcile(key)
        except ProcessKilled:
            self._running = None
            self.restarts += 1
            self.restart()
            return
        except ApiError:
            self._running = None
            self._enqueue(controller, Request(key, delay=0.1))
            return
        self._running = None
        if result.requeue_after is not None:
            self._enqueue(controller, Request(key, delay=result.requeue_after))

    async def _serve_machines(self) -> bool:
        due, self._machines_due = self._machines_due, set()
        for crd_name, key in sorted(due):
            for provider in self.providers:
                if provider.kind.crd_name == crd_name:
                    await provider.step(key)
        for provider in self.providers:
            provider.publish()
        return bool(due)

    def _enqueue(self, controller: str, request: Request) -> None:
        target = (controller, request.key)
        when = self.clock.monotonic() + request.delay
        known = self._engine.due.get(target)
        self._engine.due[target] = when if known is None else min(known, when)

    def _attach(self, watches: list[tuple[str, Watch]], controller: str, watch: Watch) -> None:
        if any(it[0] == controller and it[1].resource == watch.resource for it in watches):
            return
        watches.append((controller, watch))
        for obj in self.api.cache.list(watch.resource):
            self._ask(controller, watch, Change(watch.resource, Key.of(obj), None, obj))

    def _ask(self, controller: str, watch: Watch, change: Change) -> None:
        # What a pass writes itself comes back without asking for another one.
        written = change.resource in {VIRTUAL_MACHINES, *KINDS.values()}
        for request in watch.map(change):
            if not written or self._running != (controller, request.key):
                self._enqueue(controller, request)

    def _changed(self, change: Change) -> None:
        for controller, watch in list(self._engine.watches):
            if watch.resource == change.resource:
                self._ask(controller, watch, copy.deepcopy(change))
        if change.resource in KINDS.values() and change.new is not None:
            self._machines_due.add((change.resource.crd_name, change.key))

    def _watch_writes(self, call: Call, moment: Moment) -> None:
        if self._running is None or self._writes_left is None or call.verb not in _WRITES:
            return
        if moment is Moment.BEFORE:
            self._writes_left -= 1
        wanted = Moment.AFTER if self._before_reply else Moment.BEFORE
        if self._writes_left == 0 and moment is wanted:
            self._writes_left = None
            raise ProcessKilled


def domain(name: str, **changes: object) -> dict[str, Any]:
    """A failure domain as a provider publishes it."""
    return {
        "name": name,
        "id": f"id-{name}",
        "schedulable": True,
        "attributes": {
            "availableStorageClasses": ["gold", "silver"],
            "availableNetworkClasses": ["prod"],
        },
        **changes,
    }


def restored(obj: Obj, *, uid: str | None = None, status: bool = True) -> Obj:
    """The object as a backup brings it back: new uid, its finalizers, with or without status."""
    fresh: Obj = json.loads(json.dumps(obj))
    meta = fresh["metadata"]
    for name in ("resourceVersion", "generation", "deletionTimestamp", "uid", "creationTimestamp"):
        meta.pop(name, None)
    meta.pop("deletionGracePeriodSeconds", None)
    if uid is not None:
        meta["uid"] = uid
    if not status:
        fresh.pop("status", None)
    return fresh


def _ref(key: Key) -> dict[str, str]:
    return {"name": key.name, "namespace": key.namespace}


def _conditions(**found: tuple[str, ...]) -> dict[str, Any]:
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


Hook = Callable[[Call, Moment], None]
__all__ = ["ControllerWorld", "FakeProvider", "NotFound", "domain", "restored"]
