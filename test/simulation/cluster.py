"""Everything there is in one schedule: API server, backends, processes, and the log of it all."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextvars import Context
from random import Random
from typing import Any

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.identity import Mark
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.simulated.connect import Worlds
from banlieue.sdk.simulated.records import Latencies, State
from banlieue.sdk.testing.memory_api import Backup, MemoryApi
from test.simulation import host, platform, shortcuts
from test.simulation.backend import SimWorld
from test.simulation.host import Leases, SimProcess
from test.simulation.kinds import BY_NAME, MACHINE_KINDS
from test.simulation.loop import Handle, VirtualClock, VirtualLoop
from test.simulation.network import Network

CONTROLLER = "controller"
_WITH_OWNERS = frozenset({VIRTUAL_MACHINES, *MACHINE_KINDS})


class Cluster:
    """The simulated installation; `log` is the transcript."""

    def __init__(self, seed: int, providers: Mapping[str, str]) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.loop = VirtualLoop(Random(self.rng.getrandbits(64)), shuffle=self.rng.random() < 0.7)
        self.clock = VirtualClock(self.loop)
        self.api = MemoryApi(now=self.clock.now, share=True)
        self.api.schema = platform.what_does_not_fit
        shortcuts.watch_for_changes(self.api)
        self.lines: list[str] = []
        self.network = Network(
            self.api, self.loop, self.clock, Random(self.rng.getrandbits(64)), log=self.log
        )
        self.leases = Leases()
        self.classes = providers
        self.names = tuple(providers)
        self.worlds: dict[str, SimWorld] = {}
        self.registry = Worlds()
        self.processes: list[SimProcess] = []
        self._serial = 0
        self._sweeping = False
        self._plans: list[Handle] = []
        self.api.subscribe(self._watch_for_garbage)

    def log(self, line: str) -> None:
        """One line more in the transcript."""
        self.lines.append(f"{self.loop.time():10.3f} {line}")

    @property
    def digest(self) -> str:
        """Hash of the transcript."""
        text = "\n".join((*self.lines, f"steps {self.loop.steps}"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def later(self, seconds: float, act: Callable[..., object], *arguments: object) -> None:
        """Let something happen in a while, unless the schedule ends before."""
        self._plans.append(self.loop.call_later(seconds, act, *arguments, context=Context()))

    def drop_plans(self) -> None:
        """Nothing more happens."""
        for plan in self._plans:
            plan.cancel()
        self._plans.clear()

    def forget(self) -> None:
        """Begin a new transcript, and let go of what nobody needs any more."""
        self.lines.clear()
        self.processes = [it for it in self.processes if not it.dead]
        self.loop.forget()

    # Backends.

    def add_world(self, name: str, state: State) -> SimWorld:
        """A backend that answers at a Provider's endpoint."""
        rng = Random(self.rng.getrandbits(64))
        world = SimWorld(name, state, self.loop, rng=rng, log=self.log)
        self.worlds[name] = world
        self.registry.put(name, world)
        return world

    def being_made(self) -> dict[str, str]:
        """UUIDs of the VMs that are being made, with the names of those they are made for."""
        found = {}
        for world in self.worlds.values():
            for spec in (task.create for task in world.hypervisor.creating(None)):
                mark = Mark.decode(spec.mark) if spec is not None else None
                if spec is not None and mark is not None:
                    found[spec.uuid] = mark.owner.name
        return found

    def latencies(self) -> Latencies:
        """A backend's pace in this schedule."""
        pace = self.rng.choice((0.2, 1.0, 10.0))
        return Latencies(
            create=pace * self.rng.uniform(0.5, 3.0),
            power=pace * 0.3,
            shutdown=pace,
            boot=pace,
            delete=pace * self.rng.uniform(0.2, 1.0),
            reconfigure=pace * 0.3,
        )

    # Processes.

    def start(self, role: str) -> SimProcess:
        """Start a process of a role: `controller`, or the name of a Provider."""
        self._serial += 1
        process = SimProcess(f"{role}#{self._serial}", self.network, self.leases)
        process.on_fall = self._fell
        self.processes.append(process)
        self.log(f"start {process.name}")
        if role == CONTROLLER:
            process.start(host.controller)
        else:
            world = self.worlds[role]
            key, of_class = platform.provider_key(role), self.classes[role]
            process.start(host.provider(world, self.registry, key, of_class))
        return process

    def alive(self, role: str) -> list[SimProcess]:
        """The living processes of a role."""
        return [it for it in self.processes if it.name.startswith(f"{role}#") and not it.dead]

    def kill(self, process: SimProcess) -> None:
        """End a process where it stands."""
        self.log(f"kill {process.name} after {process.steps} steps")
        process.kill()

    def _fell(self, process: SimProcess) -> None:
        """What runs it starts it again after a while."""
        role = process.name.partition("#")[0]
        self.start_after(role, self.rng.choice((0.1, 3.0, 40.0)))

    def start_after(self, role: str, seconds: float) -> None:
        """Start a process in a while, unless there is one by then."""
        self.loop.call_later(seconds, self._again, role, context=Context())

    def _again(self, role: str) -> None:
        if not self.alive(role):
            self.start(role)

    async def tell_leases(self) -> None:
        """Let those who stand by notice."""
        await self.leases.tell()

    # The API server.

    def backup(self) -> Backup:
        """What an admin saves of etcd."""
        return self.api.backup()

    def roll_back(self, backup: Backup) -> None:
        """Restore etcd: every watch ends and is opened anew."""
        living = [it for it in self.processes if not it.dead]
        for process in living:
            process.source.break_off()
        self.api.roll_back(backup)
        for process in living:
            process.source.resume()

    def installation(self) -> str:
        """The installation's id; empty before there is one."""
        key = Key(platform.SYSTEM, names.INSTALLATION_CONFIG_MAP)
        found = self.api.look_at(CONFIG_MAPS, key) or {}
        return str((found.get("data") or {}).get(names.INSTALLATION_ID, ""))

    @property
    def recovers(self) -> bool:
        """Whether the cluster was rebuilt, and Providers still tell what they hold."""
        key = Key(platform.SYSTEM, names.INSTALLATION_CONFIG_MAP)
        found = self.api.look_at(CONFIG_MAPS, key) or {}
        return (found.get("data") or {}).get(names.INSTALLATION_RECOVERY) == "true"

    def end_recovery(self) -> None:
        """`banlieue recover --done`."""
        key = Key(platform.SYSTEM, names.INSTALLATION_CONFIG_MAP)
        if self.recovers:
            self.api.edit(CONFIG_MAPS, key, lambda it: it["data"].pop(names.INSTALLATION_RECOVERY))

    def forget_providers(self) -> None:
        """The Providers of a rebuilt cluster: as their admins wrote them, with new uids."""
        for name in self.names:
            key = platform.provider_key(name)
            found = self.api.look_at(PROVIDERS, key)
            if found is not None:
                self.api.drop(PROVIDERS, key, force=True)
            self.add_provider(name)

    def add_provider(self, name: str) -> None:
        """Register a Provider."""
        platform.add_provider(self.api, name, self.classes[name])

    def virtual_machine(self, name: str) -> Obj | None:
        """A VirtualMachine as it is stored; not to be changed."""
        return self.api.look_at(VIRTUAL_MACHINES, Key(platform.NAMESPACE, name))

    def virtual_machines(self) -> list[Obj]:
        """All VirtualMachines as they are stored; not to be changed."""
        return list(self.api.look(VIRTUAL_MACHINES))

    def machines(self) -> list[Obj]:
        """All machine objects as they are stored; not to be changed."""
        return [obj for kind in MACHINE_KINDS for obj in self.api.look(kind)]

    def machine_of(self, reference: Mapping[str, Any]) -> Obj | None:
        """The machine object a reference names; not to be changed."""
        key, kind = Key(platform.NAMESPACE, str(reference.get("name", ""))), reference.get("kind")
        return self.api.look_at(BY_NAME[kind], key) if kind in BY_NAME else None

    def _watch_for_garbage(self, change: Change) -> None:
        if change.resource not in _WITH_OWNERS or self._sweeping:
            return
        owners = change.new and change.new["metadata"].get("ownerReferences")
        if change.new is None or (change.old is None and owners):
            self._sweeping = True
            self.loop.call_later(self.rng.uniform(0.2, 3.0), self._collect, context=Context())

    def _collect(self) -> None:
        self._sweeping = False
        if self.api.collect_garbage():
            self.log("garbage collected")

    async def rest(self, seconds: float) -> None:
        """Let everybody work for a while."""
        await self.clock.sleep(seconds)


__all__ = ["CONTROLLER", "Cluster", "asyncio"]
