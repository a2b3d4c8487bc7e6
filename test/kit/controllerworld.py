"""The controller role over a memory API, with providers that keep VMs in a dictionary.

    world = ControllerWorld()
    world.add_vm("db-1")
    await world.settle()
    assert world.condition("db-1", "Ready")["status"] == "True"
    assert len(world.backend.vms) == 1

`settle` runs passes until nothing is left to do; its clock jumps over delays. `crash_at(n)` ends
the controller right after its n-th write, whose reply is lost; a fresh one goes on.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
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
from banlieue.sdk.features import HONOURED
from banlieue.sdk.kube import ApiError, Key, NotFound, Obj
from banlieue.sdk.reconcile import Change, Context, Controller, Request, Watch
from banlieue.sdk.testing.fakes import FakeClock, MemoryRecorder
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from banlieue.sdk.testing.plain import clone
from test.kit import kstatus
from test.kit.fakeprovider import (
    CLUSTER_UID,
    KINDS,
    NAMESPACE,
    SYSTEM,
    THAT,
    THIS,
    FakeProvider,
    Vm,
    conditions,
)

_OURS = frozenset({VIRTUAL_MACHINES, VM_IMAGES})
"""Kinds whose status the controller writes; a tool that follows kstatus must cope with each."""

_WRITES = {"create", "apply", "json_patch", "delete"}
_MAX_PASSES = 3000


class ProcessKilled(BaseException):
    """The controller's process ended in the middle of a call."""


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
        self.others: list[Callable[[], bool]] = []
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
                    "specFeatures": [it for it in HONOURED if it != "adopt"],
                    **conditions(Ready=("True", "Ready")),
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

    def annotate(self, name: str = "db-1", **values: str) -> None:
        """Annotate a VirtualMachine; underscores of the names become dashes."""
        found = {f"{names.GROUP}/{word.replace('_', '-')}": it for word, it in values.items()}

        def change(obj: Obj) -> None:
            obj["metadata"].setdefault("annotations", {}).update(found)

        self.api.edit(VIRTUAL_MACHINES, Key(NAMESPACE, name), change)

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
        """A new process: it knows nothing but what the API says."""
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
        controllers = {it.name: it for it in self._begin(ctx)}
        self._engine = _Engine(controllers, watches)
        for controller in controllers.values():
            for watch in controller.watches:
                self._attach(watches, controller.name, watch)

    def _begin(self, ctx: Context) -> Iterable[Controller]:
        """Make the role anew."""
        self.role = ControllerRole.of(ctx)
        return self.role.controllers()

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
            self._fell(controller)
            return
        except ApiError:
            self._running = None
            self._enqueue(controller, Request(key, delay=0.1))
            return
        self._running = None
        if result.requeue_after is not None:
            self._enqueue(controller, Request(key, delay=result.requeue_after))

    def _fell(self, controller: str) -> None:
        """The process that runs this controller was killed."""
        del controller
        self.restarts += 1
        self.restart()

    async def _serve_machines(self) -> bool:
        due, self._machines_due = self._machines_due, set()
        for crd_name, key in sorted(due):
            for provider in self.providers:
                if provider.kind.crd_name == crd_name:
                    await provider.step(key)
        for provider in self.providers:
            provider.publish()
        done = [step() for step in self.others]
        return any(done) or bool(due)

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
        if self._running is not None and change.new is not None and change.resource in _OURS:
            assert not list(kstatus.faults_of(change.new)), change.new
        told = replace(change, old=clone(change.old), new=clone(change.new))
        for controller, watch in list(self._engine.watches):
            if watch.resource == change.resource:
                self._ask(controller, watch, told)
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


Hook = Callable[[Call, Moment], None]
__all__ = [
    "CLUSTER_UID",
    "KINDS",
    "NAMESPACE",
    "SYSTEM",
    "THAT",
    "THIS",
    "ControllerWorld",
    "FakeProvider",
    "NotFound",
    "Vm",
    "domain",
    "restored",
]
