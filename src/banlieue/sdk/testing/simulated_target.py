"""A simulated world under the conformance kit, for our own tests and for backends that wrap one."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pydantic import SecretStr

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import Connection, FailureDomain
from banlieue.sdk.simulated.faults import Effect
from banlieue.sdk.simulated.records import OFF, ON
from banlieue.sdk.simulated.world import USERNAME, Port
from banlieue.sdk.testing.conformance_target import USER_DATA, ConformanceTarget, RawVm

WRONG_PASSWORD: Final = "wrong-0815-password"  # noqa: S105 - planted, to be looked for
NOBODY: Final = "http://127.0.0.1:1"
"""An endpoint where nobody listens."""

_GUEST_FIELDS: Final = ("guest_due", "guest_up", "first_boot", "read_digest")


class SimulatedTarget(ConformanceTarget):
    """A simulated world that answers the backend at `endpoint`; `port` leads to its control API.

    A backend that wraps a simulated world changes what its plans look like: `capabilities`,
    `image_source` and `machine_spec`.
    """

    promptness = 1.0
    capabilities = Capabilities.from_api(
        {
            "storageClasses": [{"name": "gold", "target": {"pool": "fast"}}],
            "networkClasses": [
                {"name": "prod", "target": {"network": "lan"}},
                {"name": "test", "target": {"network": "dmz"}},
            ],
        }
    )

    def __init__(self, backend: Backend[Any], endpoint: str, port: Port, password: str) -> None:
        self.backend = backend
        self.secrets = (password, WRONG_PASSWORD)
        self._endpoint = endpoint
        self._port = port
        self._password = password

    def connection(self) -> Connection:
        return self._connection(self._endpoint, self._password)

    def wrong_login(self) -> Connection:
        return self._connection(self._endpoint, WRONG_PASSWORD)

    def unreachable(self) -> Connection:
        return self._connection(NOBODY, self._password)

    def _connection(self, endpoint: str, password: str) -> Connection:
        return Connection(
            provider_namespace="tests",
            provider_name=self.backend.name,
            endpoints=(endpoint,),
            credentials={"username": SecretStr(USERNAME), "password": SecretStr(password)},
            capabilities=self.capabilities,
        )

    def image_source(self) -> ImageSource:
        return ImageSource(
            provider_class=self.backend.name, kind=SourceKind.TEMPLATE, ref="debian-12"
        )

    def machine_spec(self) -> MachineSpec:
        spec: MachineSpec = self.backend.machine_spec()
        return spec

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

    def take_off_disk(self, vm: str, disk: str) -> None:
        self._control("take_off_disk", vm=vm, disk=disk)

    def snapshot(self, vm: str) -> None:
        self._control("snapshot", vm=vm, name="before")

    def drop_snapshots(self, vm: str) -> None:
        self._control("drop_snapshots", vm=vm)

    def attach_foreign_interface(self, vm: str) -> str:
        return str(self._control("attach_nic", vm=vm)["mac"])

    def unplug(self, vm: str, nic: str) -> None:
        self._control("unplug", vm=vm, mac=nic)

    def first_boot_data(self, vm: str) -> bytes:
        # A world keeps a digest only: the conformance kit's own data is what can have it.
        (digest,) = [found["seed_digest"] for found in self._control("vms") if found["id"] == vm]
        data = USER_DATA.encode()
        return data if digest == hashlib.sha256(data).hexdigest() else b""

    def hold(self, vm: str, *, held: bool) -> None:
        self._control("hold", vm=vm, held=held)

    @contextmanager
    def hidden(self, vm: str) -> Iterator[None]:
        self._control("hide", vm=vm)
        try:
            yield
        finally:
            self._control("unhide", vm=vm)

    @contextmanager
    def other_identity(self) -> Iterator[None]:
        identity = self.identity()
        self._control("set_identity", identity="another-installation")
        try:
            yield
        finally:
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
        try:
            yield
        finally:
            self._control("heal")

    def _control(self, method: str, **params: object) -> Any:  # noqa: ANN401 - JSON
        return self._port.control(method, params)
