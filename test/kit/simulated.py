"""Simulated worlds for tests: in this process or in one of their own, and as conformance target."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.sdk.driver import Backend, Connection, FailureDomain
from banlieue.sdk.simulated.backend import simulated_backend
from banlieue.sdk.simulated.connect import MEMORY, Connector, Worlds, new_world
from banlieue.sdk.simulated.faults import ConnectionLost, Effect
from banlieue.sdk.simulated.models import SimulatedMachineSpec
from banlieue.sdk.simulated.records import OFF, ON
from banlieue.sdk.simulated.remote import RemoteWorld
from banlieue.sdk.simulated.world import USERNAME, Port, World
from banlieue.sdk.testing.conformance_target import ConformanceTarget, RawVm
from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process

_GUEST_FIELDS: Final = ("guest_due", "guest_up")

CAPABILITIES: Final = Capabilities.from_api(
    {
        "storageClasses": [{"name": "gold", "target": {"pool": "fast"}}],
        "networkClasses": [{"name": "prod", "target": {"network": "lan"}}],
    }
)
PLANTED_PASSWORD: Final = "planted-4711-password"
WRONG_PASSWORD: Final = "wrong-0815-password"
QUICK: Final = {"create": 0.05, "boot": 0.05, "power": 0.02, "shutdown": 0.02, "delete": 0.02}
CALL_TIMEOUT: Final = 1.0
"""Short, so that a call without an answer is settled within a test."""


class WorldProcess:
    """A world in a process of its own; its state outlives a kill -9.

    Attributes:
        process: The process; start and kill it at will.
        endpoint: What a Provider's `connection.endpoint` names; the same after a restart.
        port: The way to its control API.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        number = free_port()
        credentials = directory / f"world-{number}-credentials.json"
        credentials.write_text(json.dumps({"username": USERNAME, "password": PLANTED_PASSWORD}))
        self.endpoint = f"http://{LOOPBACK}:{number}"
        self.port = RemoteWorld(self.endpoint)
        self.process = Process(
            f"simulated-world-{number}",
            [
                sys.executable,
                *("-m", "banlieue.sdk.simulated.server"),
                *("--listen", f"{LOOPBACK}:{number}"),
                *("--state", directory / f"world-{number}.json"),
                *("--credentials", credentials),
                *(f"--latency={step}={seconds}" for step, seconds in QUICK.items()),
                *arguments,
            ],
            log_file=directory / f"world-{number}.log",
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


def memory_world(identity: str) -> tuple[Backend[Any], str, World]:
    """A world in this process: a backend that finds it, its endpoint, and the world."""
    worlds = Worlds()
    world = new_world(identity, PLANTED_PASSWORD)
    world.control("set_latencies", QUICK)
    worlds.put(identity, world)
    return quick_backend(worlds), f"{MEMORY}{identity}", world


def quick_backend(worlds: Worlds | None = None) -> Backend[Any]:
    """The simulated backend with little patience for calls without an answer."""
    return simulated_backend(Connector(worlds or Worlds(), call_timeout=CALL_TIMEOUT))


class SimulatedTarget(ConformanceTarget):
    """A simulated world under the conformance kit; `port` is the way to its control API."""

    promptness = 1.0
    secrets = (PLANTED_PASSWORD, WRONG_PASSWORD)

    def __init__(self, backend: Backend[Any], endpoint: str, port: Port) -> None:
        self.backend = backend
        self._endpoint = endpoint
        self._port = port

    def connection(self) -> Connection:
        return self._connection(self._endpoint, PLANTED_PASSWORD)

    def wrong_login(self) -> Connection:
        return self._connection(self._endpoint, WRONG_PASSWORD)

    def unreachable(self) -> Connection:
        return self._connection(f"http://{LOOPBACK}:{free_port()}", PLANTED_PASSWORD)

    def _connection(self, endpoint: str, password: str) -> Connection:
        return Connection(
            provider_namespace="tests",
            provider_name="simulated",
            endpoints=(endpoint,),
            credentials={"username": SecretStr(USERNAME), "password": SecretStr(password)},
            capabilities=CAPABILITIES,
        )

    def image_source(self) -> ImageSource:
        return ImageSource(
            provider_class=self.backend.name, kind=SourceKind.TEMPLATE, ref="debian-12"
        )

    def machine_spec(self) -> MachineSpec:
        return SimulatedMachineSpec()

    def vms(self) -> Sequence[RawVm]:
        return [
            RawVm(
                id=vm["id"],
                name=vm["name"],
                uuid=vm["uuid"],
                fingerprint=json.dumps(vm | dict.fromkeys(_GUEST_FIELDS)),
            )
            for vm in self._control("vms")
        ]

    def disk_exists(self, disk: str) -> bool:
        attached = {found["id"] for vm in self._control("vms") for found in vm["disks"]}
        return disk in attached | set(self._control("detached"))

    def make_foreign(self, name: str, where: FailureDomain) -> str:
        return str(self._control("make_foreign", name=name, domain=where.id)["id"])

    def copy(self, vm: str, name: str) -> str:
        return str(self._control("copy", vm=vm, name=name)["id"])

    def remove(self, vm: str) -> None:
        self._control("remove", vm=vm)

    def toggle_power(self, vm: str) -> None:
        (power,) = [found["power"] for found in self._control("vms") if found["id"] == vm]
        self._control("set_power", vm=vm, power=OFF if power == ON else ON)

    def attach_foreign_disk(self, vm: str) -> str:
        return str(self._control("attach_disk", vm=vm)["id"])

    @contextmanager
    def hidden(self, vm: str) -> Iterator[None]:
        self._control("hide", vm=vm)
        yield
        self._control("unhide", vm=vm)

    @contextmanager
    def other_identity(self) -> Iterator[None]:
        identity = self.identity()
        self._control("set_identity", identity="another-installation")
        yield
        self._control("set_identity", identity=identity)

    def identity(self) -> str:
        with self.backend.connect(self.connection()) as driver:
            return driver.about().identity

    def lose_next_create_reply(self) -> None:
        self._control("inject", rule={"effect": Effect.LOSE_REPLY, "method": "create"})

    @contextmanager
    def slow_tasks(self, seconds: float) -> Iterator[None]:
        rule = {"effect": Effect.SLOW_TASK, "seconds": seconds, "count": None}
        self._control("inject", rule=rule)
        yield
        self._control("heal")

    def _control(self, method: str, **params: object) -> Any:  # noqa: ANN401 - JSON
        return self._port.control(method, params)
