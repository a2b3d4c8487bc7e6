"""Several vCenters served by one process, in memory: sessions, threads and breakers are real.

Passes run in as many workers as in a provider's process, so whoever holds them up holds up others.
"""

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Self

from banlieue.api import names
from banlieue.api.resources import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    SECRETS,
    VM_IMAGES,
)
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.models import VSPHERE_MACHINES
from banlieue.sdk.calls import CallPool
from banlieue.sdk.kube import ApiError, Key
from banlieue.sdk.machine.reconciler import MachineReconciler
from banlieue.sdk.machine.shares import WORKERS_OF_MANY, Shares
from banlieue.sdk.provider.leases import ProviderLeases
from banlieue.sdk.provider.reconciler import ProviderReconciler
from banlieue.sdk.provider.sessions import ProviderSessions
from banlieue.sdk.reconcile import Context, Request, Result
from banlieue.sdk.runtime.clock import SystemClock
from banlieue.sdk.testing.fakes import FakeLeases, MemoryRecorder
from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.vsphere_machines import put_machine
from test.kit.vsphere_target import VSphereTarget
from test.kit.waiting import wait_until_async

NAMESPACE: Final = "team-a"
SYSTEM: Final = names.SYSTEM_NAMESPACE
WORKERS: Final = {"provider": 4, "machine": WORKERS_OF_MANY}
_SHORTEST: Final = 0.02


@dataclass(slots=True)
class _Line:
    """One object in line for passes: woken by `call`, by time, never passed over by two."""

    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Fleet:
    """Providers by name, each with its vCenter; enter it to serve them."""

    def __init__(self, targets: Mapping[str, VSphereTarget]) -> None:
        self.api = MemoryApi()
        self._targets = targets
        self._lines: dict[tuple[str, Key], _Line] = {}
        self._workers = {name: asyncio.Semaphore(count) for name, count in WORKERS.items()}
        self._ready_at: dict[str, float] = {}
        context = Context(
            api=self.api,
            cache=self.api.cache,
            clock=SystemClock(),
            rng=random.Random(),
            recorder=MemoryRecorder(),
            enqueue=self._enqueue,
            add_watch=lambda *_: None,
            settings={},
        )
        leases = ProviderLeases(FakeLeases(), lambda key: self._enqueue("provider", Request(key)))
        self.sessions = ProviderSessions(
            BACKEND,
            clock=context.clock,
            rng=context.rng,
            make_pool=lambda key: CallPool(str(key)),
            leased=leases.held,
        )
        self._leases = leases
        providers = ProviderReconciler(
            context, BACKEND, self.sessions, leases, installation_namespace=SYSTEM
        )
        machines = MachineReconciler(
            context, BACKEND, self.sessions, SYSTEM, shares=Shares(WORKERS_OF_MANY)
        )
        self.sessions.on_changes(machines.changed)
        self._passes: dict[str, Callable[[Key], Awaitable[Result]]] = {
            "provider": providers.reconcile,
            "machine": machines.reconcile,
        }
        self._store()

    async def __aenter__(self) -> Self:
        for name in self._targets:
            self._enqueue("provider", Request(Key(SYSTEM, name)))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [line.task for line in self._lines.values() if line.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for target in self._targets.values():
            target.proxy.restore()
        await self.sessions.close()
        await self._leases.close()

    # Passes

    def _enqueue(self, controller: str, request: Request) -> None:
        line = self._lines.setdefault((controller, request.key), _Line())
        line.woken.set()
        if line.task is None:
            line.task = asyncio.get_running_loop().create_task(self._serve(controller, request.key))

    async def _serve(self, controller: str, key: Key) -> None:
        line = self._lines[controller, key]
        while True:
            line.woken.clear()
            async with self._workers[controller]:
                try:
                    result = await self._passes[controller](key)
                except ApiError:
                    result = Result(0.1)
            self._note(key)
            pause = result.requeue_after
            try:
                await asyncio.wait_for(line.woken.wait(), max(_SHORTEST, pause) if pause else None)
            except TimeoutError:
                continue

    def _note(self, key: Key) -> None:
        if key.name not in self._ready_at and self.is_ready(key.name):
            self._ready_at[key.name] = monotonic()

    # What is asked for and seen

    async def providers_ready(self, *wanted: str, timeout: float = 60.0) -> None:
        """Wait until Providers publish failure domains."""
        await wait_until_async(
            lambda: all(self.domain(name) for name in wanted), timeout, f"{wanted} to be reached"
        )

    def domain(self, provider: str) -> str:
        """Name of a Provider's failure domain; empty while it was not reached."""
        found = self.api.peek(PROVIDERS, Key(SYSTEM, provider)) or {}
        domains = (found.get("status") or {}).get("failureDomains") or []
        return str(domains[0]["name"]) if domains else ""

    def condition(self, provider: str, kind: str) -> tuple[str, str]:
        """Status and reason of a Provider's condition."""
        found = self.api.peek(PROVIDERS, Key(SYSTEM, provider)) or {}
        for item in (found.get("status") or {}).get("conditions") or []:
            if item["type"] == kind:
                return item["status"], item["reason"]
        return "", ""

    def make(self, provider: str, machines: Sequence[str]) -> None:
        """Have machines made on a Provider, all at once."""
        for name in machines:
            key = Key(NAMESPACE, name)
            domain = self.domain(provider) or "not-known-yet"
            put_machine(self.api, key, Key(SYSTEM, provider), domain)
            self._enqueue("machine", Request(key))

    async def times(self, machines: Sequence[str], timeout: float) -> list[float]:
        """Wait until all are Ready; seconds each took since now, in order."""
        began = monotonic()
        await wait_until_async(
            lambda: all(name in self._ready_at for name in machines), timeout, "all to be Ready"
        )
        return sorted(self._ready_at[name] - began for name in machines)

    def is_ready(self, machine: str) -> bool:
        """Whether a machine is Ready."""
        found = self.api.peek(VSPHERE_MACHINES, Key(NAMESPACE, machine)) or {}
        conditions = (found.get("status") or {}).get("conditions") or []
        return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    def _store(self) -> None:
        api = self.api
        api.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": "cluster-uid"}})
        api.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        config = {"namespace": SYSTEM, "name": names.INSTALLATION_CONFIG_MAP}
        data = {"id": "installation-1", "clusterUID": "cluster-uid"}
        api.put(CONFIG_MAPS, {"metadata": config, "data": data})
        machine = VSPHERE_MACHINES
        kind = {"apiGroup": machine.group, "version": machine.version, "kind": machine.kind}
        spec = {"backend": "vsphere", "machine": kind}
        api.put(PROVIDER_CLASSES, {"metadata": {"name": "vsphere"}, "spec": spec})
        source = {"providerClass": "vsphere", "kind": "Template", "ref": "ubuntu"}
        api.put(VM_IMAGES, {"metadata": {"name": "ubuntu"}, "spec": {"sources": [source]}})
        for name, target in self._targets.items():
            login = {"username": target.vcenter.username, "password": target.vcenter.password}
            secret = {key: base64.b64encode(text.encode()).decode() for key, text in login.items()}
            api.put(SECRETS, {"metadata": {"namespace": SYSTEM, "name": name}, "data": secret})
            connection = {
                "endpoint": target.proxy.url,
                "credentialsRef": {"name": name},
                "thumbprints": [target.proxy.thumbprint],
            }
            uid = f"provider-{name}"
            api.put(LEASES, {"metadata": {"namespace": SYSTEM, "name": uid}})
            api.put(
                PROVIDERS,
                {
                    "metadata": {"namespace": SYSTEM, "name": name, "uid": uid},
                    "spec": {
                        "providerClassRef": {"name": "vsphere"},
                        "connection": connection,
                        "allowedNamespaces": {"from": "All"},
                        "capabilities": target.capabilities.to_api(),
                    },
                },
            )
