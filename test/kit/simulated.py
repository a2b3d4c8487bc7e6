"""Simulated worlds for tests: in this process or in one of their own."""

import contextlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from banlieue.sdk.backend import Backend
from banlieue.sdk.simulated.backend import BACKEND, simulated_backend
from banlieue.sdk.simulated.connect import MEMORY, Connector, Worlds, new_world
from banlieue.sdk.simulated.faults import ConnectionLost
from banlieue.sdk.simulated.records import Host, default_state
from banlieue.sdk.simulated.remote import RemoteWorld
from banlieue.sdk.simulated.world import USERNAME
from banlieue.sdk.testing.simulated_target import SimulatedTarget
from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process

PLANTED_PASSWORD: Final = "planted-4711-password"
QUICK: Final = {"create": 0.05, "boot": 0.05, "power": 0.02, "shutdown": 0.02, "delete": 0.02}
CALL_TIMEOUT: Final = 1.0
"""Short, so that a call without an answer is settled within a test."""


class WorldProcess:
    """A world in a process of its own; its state outlives a kill -9.

    Attributes:
        process: The process; start and kill it at will.
        endpoint: What a Provider's `connection.endpoint` names; the same after a restart.
        port: The way to its control API.
        credentials: File with its username and password, as JSON.
    """

    def __init__(self, directory: Path, *arguments: str, host: str = LOOPBACK) -> None:
        number = free_port()
        self.credentials = directory / f"world-{number}-credentials.json"
        self.credentials.write_text(
            json.dumps({"username": USERNAME, "password": PLANTED_PASSWORD})
        )
        self.endpoint = f"http://{host}:{number}"
        self.port = RemoteWorld(self.endpoint)
        self._state = directory / f"world-{number}.json"
        self.process = Process(
            f"simulated-world-{number}",
            [
                sys.executable,
                *("-m", "banlieue.sdk.simulated.server"),
                *("--listen", f"{host}:{number}"),
                *("--state", self._state),
                *("--credentials", self.credentials),
                *(f"--latency={step}={seconds}" for step, seconds in QUICK.items()),
                *arguments,
            ],
            log_file=directory / f"world-{number}.log",
            warm=True,
        )

    def start(self) -> None:
        """Start it, also again, and wait until it answers."""
        self.process.start(ready=self.answers)

    def answers(self) -> bool:
        """Whether it answers now."""
        with contextlib.suppress(ConnectionLost):
            self.port.call("ping", {}, timeout=1.0)
            return True
        return False

    def add_domain(self, letter: str) -> None:
        """Add a failure domain like those there are, or make that one anew."""
        domain = default_state("any").domains[0]
        fields = {
            "id": f"domain-{letter}",
            "path": ("sim", letter),
            "hosts": [Host(name=f"host-{letter}{number}") for number in (1, 2)],
        }
        made = domain.model_copy(update=fields)
        self.port.control("set_domain", {"domain": made.model_dump(mode="json")})

    @contextmanager
    def another(self) -> Iterator[None]:
        """While it lasts another world, an empty one, answers at the endpoint."""
        aside = self._state.with_suffix(".aside")
        self.process.kill9()
        self._state.rename(aside)
        self.start()
        try:
            yield
        finally:
            self.process.kill9()
            aside.replace(self._state)
            self.start()

    def target(self) -> SimulatedTarget:
        """This world under the conformance kit."""
        return SimulatedTarget(quick_backend(), self.endpoint, self.port, PLANTED_PASSWORD)


class WorldTarget(SimulatedTarget):
    """A world in a process of its own, as Providers reach it.

    Attributes:
        world: The process.
    """

    def __init__(self, world: WorldProcess) -> None:
        super().__init__(BACKEND, world.endpoint, world.port, PLANTED_PASSWORD)
        self.world = world

    @contextlib.contextmanager
    def other_identity(self) -> Iterator[None]:
        """Another world in place of this one: it knows neither its sessions nor its VMs."""
        with self.world.another():
            yield


def memory_target(identity: str) -> SimulatedTarget:
    """A fresh world in this process, and a backend that finds it, under the conformance kit."""
    worlds = Worlds()
    world = new_world(identity, PLANTED_PASSWORD)
    world.control("set_latencies", QUICK)
    worlds.put(identity, world)
    backend = quick_backend(worlds)
    return SimulatedTarget(backend, f"{MEMORY}{identity}", world, PLANTED_PASSWORD)


def quick_backend(worlds: Worlds | None = None) -> Backend[Any]:
    """The simulated backend with little patience for calls without an answer."""
    return simulated_backend(Connector(worlds or Worlds(), call_timeout=CALL_TIMEOUT))
