"""Hundreds of VMs in one process under a virtual clock: hours of theirs are seconds of ours.

The real engine, queues, caches and roles of a controller and a provider run over an API in memory
and a simulated hypervisor. Nothing fails here by chance, unlike in the simulator of schedules.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import Latencies, Vm
from test.kit.stack import condition, is_ready
from test.simulation import platform
from test.simulation.backend import SimWorld
from test.simulation.cluster import CONTROLLER, Cluster
from test.simulation.host import SimProcess
from test.simulation.kinds import SIMULATED

PROVIDER = "east"
_QUICK = Latencies(create=1.0, power=0.3, shutdown=1.0, boot=1.0, delete=0.5, reconfigure=0.3)
_LOOK_EVERY = 1.0
_SLICE = 0.25


@dataclass
class ManyVms:
    """A controller, a Provider and its backend, all at work.

    Attributes:
        cluster: Everything there is.
        world: The backend.
        controller: The controller's process.
        provider: The process of the Provider.
    """

    seed: int = 1
    cluster: Cluster = field(init=False)
    world: SimWorld = field(init=False)
    controller: SimProcess = field(init=False)
    provider: SimProcess = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.seed, {PROVIDER: SIMULATED})
        platform.set_up(self.cluster.api, self.cluster.classes)
        state = platform.backend_state(PROVIDER, _QUICK)
        self.world = self.cluster.add_world(PROVIDER, state)

    def play(self, story: Callable[["ManyVms"], Awaitable[None]]) -> None:
        """Let a story happen; what goes wrong in the background fails it, too."""

        async def whole() -> None:
            self.controller = self.cluster.start(CONTROLLER)
            self.provider = self.cluster.start(PROVIDER)
            self.provider.pools.interleaved = 0.0
            await story(self)

        try:
            self.cluster.loop.run(whole())
            troubles = [it.failure for it in self.cluster.processes if it.failure]
            assert not [*troubles, *self.cluster.loop.errors]
        finally:
            for process in self.cluster.processes:
                process.kill()
            self.cluster.loop.close()

    async def pass_time(self, seconds: float) -> None:
        """Let everybody work."""
        clock = self.cluster.clock
        end = clock.monotonic() + seconds
        while clock.monotonic() < end:
            # The loop's limit is meant for a handful of VMs.
            self.cluster.loop.steps = 0
            await clock.sleep(min(_SLICE, max(0.0, end - clock.monotonic())))

    async def until(self, holds: Callable[[], bool], within: float, what: str) -> float:
        """Wait for something; how many seconds it took, as far as they were looked at."""
        began = self.cluster.clock.monotonic()
        while not holds():
            waited = self.cluster.clock.monotonic() - began
            assert waited < within, f"{what} takes longer than {within} s"
            await self.pass_time(_LOOK_EVERY)
        return self.cluster.clock.monotonic() - began

    # The backend.

    def go_away(self, *, silent: bool) -> None:
        """From now on the backend refuses connections, or (silent) no call to it ends in time."""
        self.world.down = True
        self.provider.pools.hanging = 1.0 if silent else 0.0

    def come_back(self) -> None:
        """The backend answers again."""
        self.world.down = False
        self.provider.pools.hanging = 0.0

    def vms(self) -> list[Vm]:
        """All VMs of the backend."""
        return list(self.world.state.vms.values())

    # The user.

    def create(self, name: str, **spec: Any) -> None:  # noqa: ANN401 - parts of a spec
        """Store a VirtualMachine."""
        self.cluster.api.put(VIRTUAL_MACHINES, platform.virtual_machine(name, **spec))

    def edit(self, name: str, **spec: Any) -> None:  # noqa: ANN401 - parts of a spec
        """Change a VirtualMachine."""

        def change(obj: Obj) -> None:
            obj["spec"].update(spec)
            obj["metadata"]["generation"] += 1

        self.cluster.api.edit(VIRTUAL_MACHINES, vm_key(name), change)

    def delete(self, name: str) -> None:
        """Delete a VirtualMachine."""
        self.cluster.api.drop(VIRTUAL_MACHINES, vm_key(name))

    # What there is.

    def vm(self, name: str) -> Obj:
        """A VirtualMachine as it is stored, empty when it is gone; not to be changed."""
        return self.cluster.virtual_machine(name) or {}

    def machine(self, name: str) -> Obj:
        """Its machine object as it is stored, empty when it is gone; not to be changed."""
        return self.cluster.api.look_at(SIMULATED_MACHINES, vm_key(name)) or {}

    def all_ready(self, names: Iterable[str]) -> bool:
        """Whether these VirtualMachines are Ready."""
        return all((vm := self.vm(name)) and is_ready(vm) for name in names)

    def provider_ready(self) -> tuple[str, str]:
        """Status and reason of the Provider's Ready condition."""
        found = self.cluster.api.look_at(PROVIDERS, platform.provider_key(PROVIDER))
        return condition(found or {}, "Ready")

    def positions(self) -> tuple[int, int]:
        """How much was written and told so far, for `writes` and `events`."""
        return len(self.cluster.api.writes()), len(self.cluster.lines)

    def writes(self, since: int) -> dict[str, Counter[str]]:
        """Writes to VirtualMachines and machines by name, after so many writes of all."""
        found: dict[str, Counter[str]] = {}
        for call in self.cluster.api.writes()[since:]:
            if call.resource in {VIRTUAL_MACHINES, SIMULATED_MACHINES}:
                what = f"{call.verb} {call.resource.kind} {call.subresource}".strip()
                found.setdefault(call.key.name, Counter())[what] += 1
        return found

    def events(self, since: int) -> dict[str, list[str]]:
        """Events about each object, by its name, after so many lines of the transcript."""
        found: dict[str, list[str]] = {}
        for line in self.cluster.lines[since:]:
            _, told, rest = line.partition(" event ")
            if told:
                key, _, what = rest.partition(" ")
                found.setdefault(key.rpartition("/")[2], []).append(what)
        return found


def vm_key(name: str) -> Key:
    """Where a VirtualMachine and its machine are."""
    return Key(platform.NAMESPACE, name)
