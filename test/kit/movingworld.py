"""A whole move in one process: the real controller, real machine reconcilers, simulated backends.

    world = MovingWorld.with_vm()
    world.kill_at(7, before_reply=True)      # whoever writes for the 7th time from now on dies
    world.move_to("two")
    await world.play(until=lambda: world.is_at("two"))

Each Provider has a backend and a process of its own. After every call of a backend, what must hold
at every moment of a move is checked; `world.gap` counts the seconds in which nothing ran.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from pydantic import SecretStr

from banlieue.api.resources import LEASES, PROVIDERS, SECRETS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.driver import Connection, Driver, FailureDomain
from banlieue.sdk.errors import DriverError
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine.reconciler import MachineReconciler
from banlieue.sdk.provider.inventory import unclaimed
from banlieue.sdk.reconcile import Change, Context, Controller, Request
from banlieue.sdk.simulated.backend import simulated_backend
from banlieue.sdk.simulated.connect import Connector, Worlds
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import ON, Latencies, Vm, default_state
from banlieue.sdk.simulated.world import USERNAME, Json, Params, World, account
from banlieue.sdk.testing.memory_api import Call, Moment
from banlieue.sdk.testing.plain import clone
from test.kit.controllerworld import ControllerWorld, ProcessKilled
from test.kit.fakeprovider import NAMESPACE, SYSTEM

T = TypeVar("T")

VM = Key(NAMESPACE, "db-1")
PASSWORD = "planted-password"
DOMAINS = {"a": "domain-a", "b": "domain-b"}
MARKER = "written by the guest"
_WRITES = frozenset({"create", "apply", "json_patch", "delete"})


class WatchedBackend(World):
    """A backend that has everything checked after each call."""

    check: Callable[[], None] = staticmethod(lambda: None)

    def call(
        self, method: str, params: Params, *, session: str = "", timeout: float = 60.0
    ) -> Json:
        """A call of a driver."""
        try:
            return super().call(method, params, session=session, timeout=timeout)
        finally:
            self.check()

    def running(self) -> list[Vm]:
        """The VMs that run as of now."""
        self.control("calls", {})
        return [vm for vm in self.state.vms.values() if vm.power == ON]


@dataclass(slots=True)
class Served:
    """A Provider that is open; its calls run at once."""

    world: "MovingWorld"
    key: Key
    driver: Driver[Any]
    identity: str
    writable: bool = True
    reports_changes: bool = False
    _read: tuple[Obj | None, Provider] | None = None

    @property
    def provider(self) -> Provider:
        """The Provider as stored now; read anew when another version is."""
        stored = self.world.api.look_at(PROVIDERS, self.key)
        if self._read is None or self._read[0] is not stored:
            self._read = (stored, Provider.from_api(clone(stored or {})))
        return self._read[1]

    def is_backend(self, identity: str) -> bool:
        """Whether the named backend answers."""
        return identity == self.identity

    def domain(self, name: str) -> FailureDomain | None:
        """The failure domain of that name."""
        known = {domain.id: domain for domain in self.driver.failure_domains()}
        return known.get(DOMAINS.get(name.removeprefix(f"{self.key.name}-"), ""))

    def domain_name(self, domain_id: str) -> str | None:
        """The name of a failure domain."""
        found = next((name for name, known in DOMAINS.items() if known == domain_id), None)
        return f"{self.key.name}-{found}" if found else None

    async def call(self, call: Callable[[Driver[Any]], T], *, timeout: float = 30.0) -> T:
        """Run a verb."""
        del timeout
        await asyncio.sleep(0)  # sleep-ok: lets other passes run, as a real call would
        return call(self.driver)


class ServingProcess:
    """The process of one Provider, and its backend."""

    kind = SIMULATED_MACHINES

    def __init__(self, world: "MovingWorld", name: str, seed: int) -> None:
        self.world, self.key = world, Key(SYSTEM, name)
        rng = self._rng = Random(seed)
        state = default_state(f"backend-{name}")
        state.accounts[USERNAME] = account(PASSWORD, rng)
        state.latencies = Latencies(create=3.0, power=1.0, shutdown=2.0, boot=4.0, delete=2.0)
        self.backend = WatchedBackend(state, clock=world.clock, rng=rng, sleep=None)
        self.backend.check = world.check
        worlds = Worlds()
        worlds.put(name, self.backend)
        self.connector = Connector(worlds, monotonic=world.clock.monotonic)
        self.controller = f"provider/{name}"
        self._told: object = None
        self.restart()

    def restart(self) -> None:
        """A new process with a session of its own."""
        spec = Provider.from_api(self.world.api.peek(PROVIDERS, self.key) or {}).spec
        self._session = self.connector(
            Connection(
                provider_namespace=SYSTEM,
                provider_name=self.key.name,
                endpoints=(f"simulated://memory/{self.key.name}",),
                credentials={"username": SecretStr(USERNAME), "password": SecretStr(PASSWORD)},
                capabilities=spec.capabilities,
            )
        )
        driver = self._session.__enter__()
        self.served = Served(self.world, self.key, driver, driver.about().identity)
        context = Context(
            api=self.world.api,
            cache=self.world.api.cache,
            clock=self.world.clock,
            rng=Random(self._rng.getrandbits(32)),
            recorder=self.world.recorder,
            enqueue=lambda _, request: self.world.ask(self.controller, request),
            add_watch=lambda *_: None,
        )
        self.reconciler = MachineReconciler(context, simulated_backend(self.connector), self)

    # What the reconciler asks for.

    def open(self, key: Key) -> Served | None:
        """The Provider it serves."""
        return self.served if key == self.key else None

    def provider(self, key: Key) -> Provider | None:
        """A Provider object."""
        raw = self.world.api.peek(PROVIDERS, key)
        return Provider.from_api(raw) if raw else None

    def trouble(self, key: Key) -> DriverError | None:
        """It was reached."""
        del key
        return None

    # What the world asks of it.

    async def step(self, key: Key) -> None:
        """Its machine changed."""
        machine = self.world.api.look_at(SIMULATED_MACHINES, key)
        reference = machine["spec"].get("providerRef") if machine else None
        if machine is None or reference == {"name": self.key.name, "namespace": SYSTEM}:
            self.world.ask(self.controller, Request(key))

    def publish(self) -> None:
        """Tell which VMs have a mark and no machine object."""
        claimed = {
            str((obj["spec"].get("instance") or {}).get("uuid", ""))
            for obj in self.world.api.look(SIMULATED_MACHINES)
        }
        marks = [(vm.uuid, vm.mark) for vm in self.backend.state.vms.values()]
        if self._told == (claimed, marks) or (installation := self.world.installation) is None:
            return
        self._told = (claimed, marks)
        marked: Any = self.served.driver
        found = unclaimed(
            marked.marked(), claimed, installation["data"]["id"], self.served.domain_name
        ).to_api()

        def change(provider: Obj) -> None:
            provider["status"]["unclaimed"] = found

        stored = self.world.api.peek(PROVIDERS, self.key)
        if stored and stored["status"].get("unclaimed") != found:
            self.world.api.edit(PROVIDERS, self.key, change)


class MovingWorld(ControllerWorld):
    """Two Providers, `one` and `two`, and a VirtualMachine that moves between them."""

    def __init__(self) -> None:
        self.serving: dict[str, ServingProcess] = {}
        self.gap = 0.0
        self.deaths = 0
        self.writes = 0
        self.was_ready = False
        self.fixed = False
        self._left: int | None = None
        self._lost = False
        self._each = False
        self._spared: set[object] = set()
        self._since: float | None = None
        super().__init__()
        self.api.intercept(self._strike)

    @classmethod
    async def with_vm(cls, nics: list[dict[str, Any]]) -> "MovingWorld":
        """A VirtualMachine with a data disk, Ready on Provider `one`; its guest wrote to it."""
        world = cls()
        world.add_class(network={"interfaces": [{"name": "eth0", "networkClass": "prod"}]})
        world.add_image(
            sources=[{"providerClass": "simulated", "kind": "Template", "ref": "ubuntu-24.04"}]
        )
        for number, name in enumerate(("one", "two")):
            world._add_serving(name, number)
        world.fixed = any(
            wish.get("source") == "static" for nic in nics for wish in nic.get("ipam", [])
        )
        world.add_vm(
            providerRef={"name": "one", "namespace": SYSTEM},
            disks=[{"name": "data", "sizeGiB": 1, "storageClass": "gold"}],
            networkInterfaces=nics,
        )
        world.annotate(accept_data_disk_loss="true")
        await world.play(until=lambda: world.is_at("one"))
        (old,) = world.vms_at("one")
        next(disk for disk in old.disks if disk.name == "data").content = MARKER
        world.was_ready = True
        return world

    def _add_serving(self, name: str, number: int) -> None:
        subnet = {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "allowStatic": ["10.0.0.0/25"]}
        self.add_provider(
            name,
            backend="simulated",
            domains=("a", "b"),
            connection={
                "endpoint": f"simulated://memory/{name}",
                "credentialsRef": {"name": f"{name}-creds"},
            },
            capabilities={
                "storageClasses": [{"name": "gold", "target": {"pool": "fast"}}],
                "networkClasses": [
                    {"name": "prod", "target": {"network": "lan"}, "subnets": [subnet]}
                ],
            },
        )
        self.providers.pop()
        stored = self.api.peek(PROVIDERS, Key(SYSTEM, name)) or {}
        for resource, called in ((SECRETS, f"{name}-creds"), (LEASES, stored["metadata"]["uid"])):
            self.api.put(resource, {"metadata": {"namespace": SYSTEM, "name": called}})
        process = ServingProcess(self, name, number)
        self.serving[name] = process
        self.providers.append(process)  # type: ignore[arg-type] # it serves as a fake one does
        self._hire()

    # What a test does and looks at.

    def move_to(self, provider: str) -> None:
        """The user pins the VirtualMachine to a Provider."""
        self.annotate(accept_data_disk_loss="true")
        self.edit_vm(providerRef={"name": provider, "namespace": SYSTEM})

    def kill_at(self, write: int, *, before_reply: bool) -> None:
        """Kill whoever writes then: executed and its reply lost, or never sent."""
        self._left, self._lost = write, before_reply

    def kill_at_each(self, *, before_reply: bool) -> None:
        """Kill whoever writes, again and again: every write once, before or after it is done."""
        self._each, self._lost = True, before_reply

    def vms_at(self, provider: str) -> list[Vm]:
        """The VMs of a Provider's backend."""
        backend = self.serving[provider].backend
        backend.control("calls", {})
        return list(backend.state.vms.values())

    def is_at(self, provider: str) -> bool:
        """Whether the VirtualMachine is Ready there, nothing moves, and what was left is off."""
        status = self.status()
        left = [it for it in self.machines() if _role(it["spec"]) == "Previous"]
        return all(_role(it["status"]) == "Previous" for it in left) and (
            (status.get("scheduled") or {}).get("providerName") == provider
            and self.condition("Ready").get("status") == "True"
            and "incomingRef" not in status
            and self.condition("PlacementValid").get("status") == "True"
        )

    async def play(self, until: Callable[[], bool], *, seconds: float = 3600.0) -> None:
        """Let everybody work until it is so."""
        end = self.clock.monotonic() + seconds
        while not until():
            assert self.clock.monotonic() < end, self.status()
            await self.settle(seconds=5.0)
            self.clock.advance(0.5)
            self.check()

    # What holds at every moment.

    def check(self) -> None:
        """What must hold at every moment of a move."""
        if not self.was_ready:
            return
        running = [vm for it in self.serving.values() for vm in it.backend.running()]
        uuids = [vm.uuid for vm in running]
        assert len(uuids) == len(set(uuids)), "two running VMs of one identity"
        if self.fixed:
            live = [vm.name for vm in running if any(nic.connected for nic in vm.nics)]
            assert len(live) <= 1, f"one address on the network twice: {live}"
        disks = [
            disk.content
            for it in self.serving.values()
            for vm in it.backend.state.vms.values()
            for disk in vm.disks
        ]
        assert MARKER in disks, "the data of the old machine is gone"
        self._measure(running)

    def _measure(self, running: list[Vm]) -> None:
        now = self.clock.monotonic()
        if self._since is not None:
            self.gap += now - self._since
        live = any(all(nic.connected for nic in vm.nics) for vm in running)
        self._since = None if live else now
        if live:
            return
        assert self.fixed, "nothing runs, and nothing had to stop for the move"
        move = self.status().get("move") or {}
        assert "switchedAt" in move or not self.status().get("incomingRef"), "off too early"

    # Processes.

    def ask(self, controller: str, request: Request) -> None:
        """Ask for a pass of a process."""
        self._enqueue(controller, request)

    def restart(self) -> None:
        """A new controller process."""
        due = dict(self._engine.due) if self.serving else {}
        super().restart()
        self._hire()
        for target, when in due.items():
            if target[0].startswith("provider/"):
                self._engine.due[target] = when

    def _hire(self) -> None:
        for process in self.serving.values():
            self._engine.controllers[process.controller] = Controller(
                process.controller, process.reconciler, ()
            )

    def _changed(self, change: Change) -> None:
        """What a provider's pass writes on its machine comes back without asking for another."""
        told = (change.resource.crd_name, change.key)
        before = told in self._machines_due
        super()._changed(change)
        running = self._running
        own = running is not None and running[0].startswith("provider/")
        if own and running is not None and running[1] == change.key and not before:
            self._machines_due.discard(told)

    def _fell(self, controller: str) -> None:
        process = self.serving.get(controller.removeprefix("provider/"))
        if process is None:
            super()._fell(controller)
            return
        process.restart()
        self._hire()
        for obj in self.api.look(SIMULATED_MACHINES):
            self.ask(controller, Request(Key.of(obj)))

    def _strike(self, call: Call, moment: Moment) -> None:
        if self._running is None or call.verb not in _WRITES:
            return
        if moment is Moment.BEFORE:
            self.writes += 1
            if self._left is not None:
                self._left -= 1
        if moment is not (Moment.AFTER if self._lost else Moment.BEFORE):
            return
        if self._each:
            stored = self.api.look_at(call.resource, call.key) or {"metadata": {}}
            write = (call.verb, call.resource, call.key, stored["metadata"].get("resourceVersion"))
            # A write that is never sent is tried again by a new process, which may send it.
            if call.changed if self._lost else write not in self._spared:
                self._spared.add(write)
                self._die()
        elif self._left == 0:
            self._left = None
            self._die()

    def _die(self) -> None:
        self.deaths += 1
        raise ProcessKilled


def _role(body: dict[str, Any]) -> str:
    return str((body.get("move") or {}).get("role", "Current"))


__all__ = ["MARKER", "VM", "MovingWorld"]
