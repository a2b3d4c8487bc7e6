"""Controller and providers as they are, on an API and backends in memory, in virtual time.

    with Whole("east") as whole:
        whole.add_vm("db-1")
        whole.settle()
        assert whole.ready("db-1")

It is the cluster of the simulator without its faults: what takes minutes takes milliseconds.
"""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from banlieue.api.meta import Resource
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import Latencies
from banlieue.sdk.testing.memory_api import MemoryApi
from test.simulation import platform
from test.simulation.backend import SimWorld
from test.simulation.cluster import CONTROLLER, Cluster
from test.simulation.kinds import SIMULATED

PACE = Latencies(create=2.0, power=0.5, shutdown=1.0, boot=1.0, delete=0.5, reconfigure=0.5)
CHANGING = frozenset(
    {
        *("create", "destroy", "power_on", "power_off", "shutdown", "reboot", "reset", "suspend"),
        *("reconfigure", "detach", "remove_mark", "take_over", "write_mark", "import"),
    }
)
"""Calls of a driver after which something is not as it was."""


class Whole:
    """An installation at work; `changes` are the calls that were to change something."""

    def __init__(self, *providers: str, seed: int = 1) -> None:
        self.cluster = Cluster(seed, dict.fromkeys(providers or ("east",), SIMULATED))
        self.changes: list[tuple[str, str]] = []
        platform.set_up(self.cluster.api, self.cluster.classes)
        for name in self.cluster.names:
            state = platform.backend_state(name, PACE)
            self.cluster.add_world(name, state).on_call = self._called

    @property
    def api(self) -> MemoryApi:
        """The API server."""
        return self.cluster.api

    def __enter__(self) -> Self:
        self.start()
        self.rest(15.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.cluster.processes:
            process.kill()
        self.cluster.loop.close()

    # Processes and time.

    def start(self) -> None:
        """Start a controller, and a provider for every Provider; they live on between the rests."""

        def begin() -> None:
            for role in (CONTROLLER, *self.cluster.names):
                self.cluster.start(role)

        self.at_work(begin, 0.1)

    def stop(self) -> None:
        """End all processes where they stand."""
        for process in self.cluster.processes:
            if not process.dead:
                self.cluster.kill(process)

    def rest(self, seconds: float) -> None:
        """Let everybody work for so long."""
        self._run(self.cluster.rest(seconds))

    def at_work(self, act: Callable[[], object], rest: float = 30.0) -> None:
        """Do something while everybody is at work, and let them answer."""
        self._run(self._act(act, rest))

    async def _act(self, act: Callable[[], object], rest: float) -> None:
        act()
        await self.cluster.rest(rest)

    def wait(self, until: Callable[[], bool], what: str, seconds: float = 900.0) -> None:
        """Let everybody work until something holds.

        Raises:
            AssertionError: it does not within so many seconds.
        """
        end = self.cluster.loop.time() + seconds
        while not until():
            if self.cluster.loop.time() > end:
                raise AssertionError(f"no {what}:\n" + "\n".join(self.cluster.lines[-60:]))
            self.rest(1.0)

    def _run(self, what: Coroutine[Any, Any, None]) -> None:
        self.cluster.loop.run(what)
        failures = [process.failure for process in self.cluster.processes if process.failure]
        assert not failures + self.cluster.loop.errors, failures + self.cluster.loop.errors

    # Objects.

    def add_vm(self, name: str, **spec: object) -> None:
        """Let a user create a VirtualMachine."""
        self.at_work(lambda: self._put_vm(name, spec), 0.1)

    def _put_vm(self, name: str, spec: dict[str, object]) -> None:
        self.api.put(VIRTUAL_MACHINES, platform.virtual_machine(name, **spec))

    def edit(self, resource: Resource, key: Key, **spec: object) -> None:
        """Let somebody edit an object's spec."""
        self.at_work(
            lambda: self.api.edit(resource, key, lambda obj: obj["spec"].update(spec)), 0.1
        )

    def vm(self, name: str) -> Obj:
        """A VirtualMachine as stored; empty when there is none."""
        return self.cluster.virtual_machine(name) or {}

    def machine(self, name: str) -> Obj:
        """Its machine object; empty when there is none."""
        key = Key(platform.NAMESPACE, name)
        return self.api.look_at(SIMULATED_MACHINES, key) or {}

    def provider(self, name: str) -> Obj:
        """A Provider as stored; empty when there is none."""
        return self.api.look_at(PROVIDERS, platform.provider_key(name)) or {}

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Status and reason of a VirtualMachine's condition; empty strings without it."""
        for item in (self.vm(name).get("status") or {}).get("conditions") or ():
            if item["type"] == kind:
                return item["status"], item["reason"]
        return "", ""

    def ready(self, *names: str) -> bool:
        """Whether all of these are Ready and their machine objects know them."""
        return all(self._ready(name) for name in names)

    def _ready(self, name: str) -> bool:
        vm, machine = self.vm(name), self.machine(name)
        owners = (machine.get("metadata") or {}).get("ownerReferences") or [{}]
        leaving = (machine.get("metadata") or {}).get("deletionTimestamp")
        return (
            self.condition(name, "Ready")[0] == "True"
            and not leaving
            and owners[0].get("uid") == vm["metadata"]["uid"]
        )

    # Backends.

    def world(self, name: str = "east") -> SimWorld:
        """A backend."""
        return self.cluster.worlds[name]

    def vms(self) -> dict[str, tuple[object, ...]]:
        """All VMs there are, by Provider and id, with what is not to change."""
        return {
            f"{name}/{vm.id}": (vm.name, vm.uuid, vm.mark, vm.power, vm.cpus, vm.memory_mib)
            for name, world in self.cluster.worlds.items()
            for vm in world.state.vms.values()
        }

    def _called(self, world: SimWorld, method: str, _params: object) -> None:
        if method in CHANGING:
            self.changes.append((world.name, method))
