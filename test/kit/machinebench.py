"""A machine reconciler on a workbench: memory API, simulated world, one clock that tests move.

    bench = MachineBench()
    bench.make_machine()
    await bench.run()          # passes until nothing is left to do
    assert len(bench.vms()) == 1

`restart()` throws away everything a process would lose. The Provider is served without threads,
so a pass ends where its calls end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from pydantic import SecretStr

from banlieue.api import names
from banlieue.api.resources import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    PROVIDERS,
    SECRETS,
    VIRTUAL_MACHINES,
    VM_IMAGES,
)
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.driver import Connection, Driver, FailureDomain
from banlieue.sdk.errors import DriverError
from banlieue.sdk.kube import ApiError, Key, Obj, Unavailable
from banlieue.sdk.machine.reconciler import MachineReconciler
from banlieue.sdk.reconcile import Change
from banlieue.sdk.simulated.backend import simulated_backend
from banlieue.sdk.simulated.connect import Connector, Worlds
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import Vm, default_state
from banlieue.sdk.simulated.world import USERNAME, World, account
from banlieue.sdk.testing.fakes import FakeClock, MemoryRecorder, context_for
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from test.kit import kstatus

T = TypeVar("T")

NAMESPACE = "team-a"
MACHINE = Key(NAMESPACE, "db-1")
PROVIDER = Key(names.SYSTEM_NAMESPACE, "sim")
CLUSTER_UID = "cluster-uid"
PASSWORD = "planted-password"
ENDPOINT = "simulated://memory/bench"
DOMAINS = {"sim-a": "domain-a", "sim-b": "domain-b"}


@dataclass(slots=True)
class ServedProvider:
    """An open Provider whose calls run at once, in the caller's thread."""

    api: MemoryApi
    driver: Driver[Any]
    identity: str
    writable: bool = True
    reports_changes: bool = True

    @property
    def provider(self) -> Provider:
        """The Provider as stored now."""
        return Provider.from_api(self.api.peek(PROVIDERS, PROVIDER) or {})

    def is_backend(self, identity: str) -> bool:
        """Whether the named backend answers."""
        return identity == self.identity

    def domain(self, name: str) -> FailureDomain | None:
        """The failure domain of that name."""
        found = {domain.id: domain for domain in self.driver.failure_domains()}
        return found.get(DOMAINS.get(name, ""))

    def domain_name(self, domain_id: str) -> str | None:
        """The name of a failure domain."""
        return next((name for name, known in DOMAINS.items() if known == domain_id), None)

    async def call(self, call: Callable[[Driver[Any]], T], *, timeout: float = 30.0) -> T:
        """Run a verb."""
        del timeout
        await asyncio.sleep(0)  # sleep-ok: lets other passes run, as a real call would
        return call(self.driver)


def _check_status(change: Change) -> None:
    """A tool that follows kstatus must cope with every status of a machine."""
    if change.resource == SIMULATED_MACHINES and change.new is not None:
        assert not list(kstatus.faults_of(change.new)), change.new


@dataclass
class MachineBench:
    """Everything around one machine reconciler."""

    clock: FakeClock = field(default_factory=FakeClock)
    seed: int = 1

    def __post_init__(self) -> None:
        state = default_state("bench-identity")
        rng = Random(self.seed)
        state.accounts[USERNAME] = account(PASSWORD, rng)
        self.world = World(state, clock=self.clock, rng=rng, sleep=None)
        worlds = Worlds()
        worlds.put("bench", self.world)
        self.connector = Connector(worlds, monotonic=self.clock.monotonic)
        self.backend = simulated_backend(self.connector)
        self.api = MemoryApi(now=self.clock.now)
        self.recorder = MemoryRecorder()
        self.troubles: dict[Key, DriverError] = {}
        self.api.subscribe(_check_status)
        self._store_surroundings()
        self.restart()

    def restart(self) -> None:
        """Lose all memory of the process: a new session, a new reconciler."""
        connection = Connection(
            provider_namespace=PROVIDER.namespace,
            provider_name=PROVIDER.name,
            endpoints=(ENDPOINT,),
            credentials={"username": SecretStr(USERNAME), "password": SecretStr(PASSWORD)},
            capabilities=Provider.from_api(
                self.api.peek(PROVIDERS, PROVIDER) or {}
            ).spec.capabilities,
        )
        self.session = self.connector(connection)
        driver = self.session.__enter__()
        self.served = ServedProvider(self.api, driver, driver.about().identity)
        self.opened: dict[Key, ServedProvider] = {PROVIDER: self.served}
        self.seed += 1
        self.reconciler = MachineReconciler(
            context_for(self.api, clock=self.clock, recorder=self.recorder, seed=self.seed),
            self.backend,
            self,
        )

    def open(self, key: Key) -> ServedProvider | None:
        """The Provider, as the reconciler asks for it."""
        return self.opened.get(key)

    def provider(self, key: Key) -> Provider | None:
        """The Provider object, as the reconciler asks for it."""
        raw = self.api.peek(PROVIDERS, key)
        return Provider.from_api(raw) if raw else None

    def trouble(self, key: Key) -> DriverError | None:
        """Why the Provider was never reached."""
        return self.troubles.get(key)

    async def run(self, key: Key = MACHINE, passes: int = 30) -> None:
        """Passes over one machine, the clock moved on as each asks, until it waits for a change."""
        for _ in range(passes):
            result = await self.reconciler.reconcile(key)
            if result.requeue_after is None or result.requeue_after > 20:
                return
            self.clock.advance(result.requeue_after)

    def die_at_write(self, which: int, moment: Moment) -> None:
        """Lose the n-th write from now, or the reply to it, as a crash at that point would."""
        seen = 0

        def hook(call: Call, now: Moment) -> None:
            nonlocal seen
            if now is not moment or call.verb in {"get", "list"}:
                return
            seen += 1
            if seen == which + 1:
                raise Unavailable(0, "the process died here")

        self.api.intercept(hook)

    async def run_through_crashes(self, key: Key = MACHINE, passes: int = 60) -> None:
        """As `run`, but a pass that dies of a lost API call is followed by a restart."""
        for _ in range(passes):
            try:
                result = await self.reconciler.reconcile(key)
            except ApiError:
                self.restart()
                continue
            if result.requeue_after is None or result.requeue_after > 20:
                return
            self.clock.advance(result.requeue_after)

    def make_machine(self, key: Key = MACHINE, *, referred: bool = True, **spec: object) -> Obj:
        """A machine as the controller makes it, and the VirtualMachine that refers to it."""
        reference = {
            "apiGroup": SIMULATED_MACHINES.group,
            "kind": SIMULATED_MACHINES.kind,
            "name": key.name,
            "namespace": key.namespace,
        }
        owner = self.api.put(
            VIRTUAL_MACHINES,
            {
                "metadata": {"namespace": key.namespace, "name": key.name},
                "spec": {"imageRef": {"name": "ubuntu"}, "classRef": {"name": "small"}},
                "status": {"infrastructureRef": reference} if referred else {},
            },
        )
        uid = owner["metadata"]["uid"]
        return self.api.put(
            SIMULATED_MACHINES,
            {
                "apiVersion": SIMULATED_MACHINES.api_version,
                "kind": SIMULATED_MACHINES.kind,
                "metadata": {
                    "namespace": key.namespace,
                    "name": key.name,
                    "ownerReferences": [
                        {
                            "apiVersion": VIRTUAL_MACHINES.api_version,
                            "kind": VIRTUAL_MACHINES.kind,
                            "name": key.name,
                            "uid": uid,
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "providerRef": {"name": PROVIDER.name, "namespace": PROVIDER.namespace},
                    "placement": {"failureDomain": "sim-a"},
                    "virtualMachineRef": {"name": key.name, "uid": uid},
                    "imageRef": {"name": "ubuntu"},
                    "cpus": 2,
                    "memoryMiB": 2048,
                    "disks": [{"name": "root", "storageClass": "fast"}],
                    "networkInterfaces": [{"name": "eth0", "networkClass": "lan"}],
                    **spec,
                },
            },
        )

    def delete(self, key: Key = MACHINE, *, mode: str | None = "Destroy") -> None:
        """Delete the machine object, with the intent the controller would write first."""
        if mode is not None:
            self.api.edit(
                SIMULATED_MACHINES,
                key,
                lambda obj: obj["spec"].update(
                    teardown={"mode": mode, "uid": obj["metadata"]["uid"]}
                ),
            )
        self.api.drop(SIMULATED_MACHINES, key)

    def edit(self, key: Key = MACHINE, **spec: object) -> None:
        """Edit the machine's spec as the controller would; the generation moves on."""

        def change(obj: Obj) -> None:
            obj["spec"].update(spec)
            obj["metadata"]["generation"] += 1

        self.api.edit(SIMULATED_MACHINES, key, change)

    def machine(self, key: Key = MACHINE) -> Obj:
        """The machine object as stored; empty when it is gone."""
        return self.api.peek(SIMULATED_MACHINES, key) or {}

    def condition(self, kind: str, key: Key = MACHINE) -> tuple[str, str]:
        """Status and reason of a condition; empty strings when it is not there."""
        for item in (self.machine(key).get("status") or {}).get("conditions") or []:
            if item["type"] == kind:
                return item["status"], item["reason"]
        return "", ""

    def vms(self) -> list[Vm]:
        """All VMs of the world as of now, hidden ones too."""
        self.world.control("calls", {})
        return list(self.world.state.vms.values())

    def control(self, method: str, **params: object) -> object:
        """Act behind everybody's back; see the world's control calls."""
        return self.world.control(method, params)

    def _store_surroundings(self) -> None:
        self.api.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": CLUSTER_UID}})
        self.api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {"team": "a"}}})
        self.api.put(
            CONFIG_MAPS,
            {
                "metadata": {
                    "namespace": names.SYSTEM_NAMESPACE,
                    "name": names.INSTALLATION_CONFIG_MAP,
                },
                "data": {"id": "installation-1", "clusterUID": CLUSTER_UID},
            },
        )
        self.api.put(
            PROVIDERS,
            {
                "metadata": {
                    "namespace": PROVIDER.namespace,
                    "name": PROVIDER.name,
                    "uid": "provider-uid",
                },
                "spec": {
                    "providerClassRef": {"name": "simulated"},
                    "connection": {"endpoint": ENDPOINT, "credentialsRef": {"name": "creds"}},
                    "allowedNamespaces": {"from": "All"},
                    "capabilities": {
                        "storageClasses": [{"name": "fast", "target": {"pool": "fast"}}],
                        "networkClasses": [
                            {"name": "lan", "target": {"network": "lan"}},
                            {"name": "dmz", "target": {"network": "dmz"}},
                        ],
                    },
                },
            },
        )
        for resource, name in ((SECRETS, "creds"), (LEASES, "provider-uid")):
            self.api.put(resource, {"metadata": {"namespace": PROVIDER.namespace, "name": name}})
        self.api.put(
            VM_IMAGES,
            {
                "metadata": {"name": "ubuntu"},
                "spec": {
                    "sources": [
                        {"providerClass": "simulated", "kind": "Template", "ref": "ubuntu-24.04"}
                    ]
                },
            },
        )
