"""A machine reconciler over a real vSphere driver and a simulated vCenter, without any process.

    with VSphereBench(target) as bench:
        bench.make_machine("web")
        await bench.until("web is Ready", lambda: bench.is_ready("web"))

The API is in memory and time between passes is skipped, so a whole life takes as long as the
vCenter's answers. What went wrong on the way is kept in `told`.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    PROVIDERS,
    SECRETS,
    VM_IMAGES,
)
from banlieue.api.v1alpha1.provider import Provider
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.client.creates import Creates
from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.driver import VSphereDriver, open_driver
from banlieue.providers.vsphere.models import VSPHERE_MACHINES
from banlieue.sdk.driver import Driver, FailureDomain
from banlieue.sdk.errors import DriverError
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.machine.reconciler import MachineReconciler
from banlieue.sdk.testing.fakes import FakeClock, MemoryRecorder, context_for
from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.feed import Feed
from test.kit.vcsim_values import Machine
from test.kit.vsphere_machines import put_machine
from test.kit.vsphere_target import VSphereTarget
from test.kit.waiting import WaitTimeoutError, wait_until_async

T = TypeVar("T")

NAMESPACE: Final = "team-a"
PROVIDER: Final = Key(names.SYSTEM_NAMESPACE, "vc")
DOMAIN: Final = "vc-dc0"
QUICK: Final = Timings(read=10.0, longest_poll=1.0, poll_slack=9.0, gather=0.1, stream=0.1)
IMPATIENT: Final = Timings(read=1.0, longest_poll=1.0, poll_slack=0.5, gather=0.1, stream=0.1)
"""For calls that are to time out."""
LOST_SECONDS: Final = 3.0
"""How long a create without an answer may take to arrive."""
PATIENCE: Final = 90.0
CONCRETE: Final = (
    *("folder", "folderPolicy", "hardwareVersion", "customAttributes", "pciDeviceLabels"),
)
"""Fields of the backend that machines of the bench may use."""


@dataclass(slots=True)
class _Served:
    """The Provider as the reconciler sees it; calls run in threads, as in a process."""

    bench: "VSphereBench"
    writable: bool = True
    reports_changes: bool = True

    @property
    def identity(self) -> str:
        return self.bench.identity

    @property
    def provider(self) -> Provider:
        return Provider.from_api(self.bench.api.peek(PROVIDERS, PROVIDER) or {})

    def is_backend(self, identity: str) -> bool:
        return identity == self.identity

    def domain(self, name: str) -> FailureDomain | None:
        return self.bench.domains.get(name)

    def domain_name(self, domain_id: str) -> str | None:
        found = self.bench.domains.items()
        return next((name for name, domain in found if domain.id == domain_id), None)

    async def call(self, call: Callable[[Driver[Any]], T], *, timeout: float = 30.0) -> T:
        del timeout
        try:
            return await asyncio.to_thread(call, self.bench.driver)
        except DriverError as error:
            self.bench.told.append(error)
            raise


@dataclass
class VSphereBench:
    """Everything around one machine reconciler of one vCenter.

    Attributes:
        target: the vCenter, and the proxy the driver reaches it through.
        timings: of the driver.
        told: errors of calls, opening the session and the feed, in order.
        reasons: reasons that a machine's Ready condition had, in order.
        shown: reasons of all conditions of machines that were not True, in order.
    """

    target: VSphereTarget
    timings: Timings = QUICK
    feeding: bool = True
    clock: FakeClock = field(default_factory=lambda: FakeClock(datetime.now(UTC)))
    told: list[DriverError] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    domains: dict[str, FailureDomain] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.api = MemoryApi(now=self.clock.now)
        self.recorder = MemoryRecorder()
        self.creates = Creates(monotonic, LOST_SECONDS)
        self.identity = self.target.vcenter.instance_uuid
        self._open = contextlib.ExitStack()
        self._seed = random.getrandbits(48)  # the vCenter is shared: no two mint one UUID
        self._minted: dict[str, str] = {}
        self._store_surroundings()

    # The process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Open a session, again and again as a process does; the feed is listened to."""
        until = monotonic() + PATIENCE
        while True:
            try:
                self.driver = self._open.enter_context(self._opened())
                found = dict(zip(self._names(), self._read(), strict=False))
                break
            except DriverError as error:
                self.told.append(error)
                self._open.close()
                if monotonic() > until:
                    raise
        self.domains = found or self.domains
        self._seed += 1
        self.reconciler = MachineReconciler(
            context_for(self.api, clock=self.clock, recorder=self.recorder, seed=self._seed),
            BACKEND,
            self,
        )
        if self.feeding:
            feed = Feed(self.driver, 0.5)
            feed.errors = self.told
            self._open.enter_context(feed.running())

    def stop(self) -> None:
        """End the session as a process that is asked to stop does."""
        self._open.close()

    def restart(self, *, forget: bool = True) -> None:
        """Another process takes over, which knows nothing of what the first one sent."""
        self.stop()
        if forget:
            self.creates = Creates(monotonic, LOST_SECONDS)
        self.start()

    def _opened(self) -> contextlib.AbstractContextManager[VSphereDriver]:
        return open_driver(self.target.connection(), self.creates, self.timings, monotonic)

    def _read(self) -> list[FailureDomain]:
        return sorted(self.driver.failure_domains(), key=lambda it: it.path)

    @staticmethod
    def _names() -> Iterator[str]:
        yield DOMAIN
        number = 1
        while True:
            number += 1
            yield f"{DOMAIN}-{number}"

    # What the reconciler asks for

    def open(self, key: Key) -> _Served | None:
        return self.open_one() if key == PROVIDER else None

    def open_one(self) -> _Served:
        """The Provider; calls of its driver run in threads, and their errors are kept."""
        return _Served(self)

    def provider(self, key: Key) -> Provider | None:
        raw = self.api.peek(PROVIDERS, key)
        return Provider.from_api(raw) if raw else None

    def trouble(self, key: Key) -> DriverError | None:
        del key
        return None

    # Machines

    async def run_pass(self, name: str) -> None:
        """One pass over a machine; the clock moves on as far as it asks to be left alone."""
        key = Key(NAMESPACE, name)
        with contextlib.suppress(Conflict):
            result = await self.reconciler.reconcile(key)
            self.clock.advance(result.requeue_after or 0.0)
        instance = (self.machine(name).get("spec") or {}).get("instance")
        if instance:
            self._minted[name] = instance["name"]
        status, reason = self.condition("Ready", name)
        if status and (not self.reasons or self.reasons[-1] != reason):
            self.reasons.append(reason)
        for item in (self.machine(name).get("status") or {}).get("conditions") or []:
            if item["status"] != "True" and item["reason"] not in self.shown:
                self.shown.append(item["reason"])

    async def until(
        self, what: str, done: Callable[[], object], *names: str, timeout: float = PATIENCE
    ) -> None:
        """Pass after pass over machines (all of them by default) until something is so."""

        async def try_once() -> bool:
            for key in names or tuple(self.machines()):
                await self.run_pass(key)
            return bool(done())

        try:
            await wait_until_async(try_once, timeout, what)
        except WaitTimeoutError as error:
            error.add_note(f"told {self.told[-3:]}")
            raise

    def machines(self) -> list[str]:
        """Names of all machine objects."""
        return [str(obj["metadata"]["name"]) for obj in self.api.peek_all(VSPHERE_MACHINES)]

    def machine(self, name: str) -> Obj:
        """The machine object; empty when it is gone."""
        return self.api.peek(VSPHERE_MACHINES, Key(NAMESPACE, name)) or {}

    def condition(self, kind: str, name: str) -> tuple[str, str]:
        """Status and reason of a condition; empty strings when it is not there."""
        for item in (self.machine(name).get("status") or {}).get("conditions") or []:
            if item["type"] == kind:
                return item["status"], item["reason"]
        return "", ""

    def message(self, kind: str, name: str) -> str:
        """Message of a condition."""
        for item in (self.machine(name).get("status") or {}).get("conditions") or []:
            if item["type"] == kind:
                return str(item.get("message") or "")
        return ""

    def is_ready(self, name: str) -> bool:
        """Whether the machine is Ready, and observed as its spec is now."""
        machine = self.machine(name)
        current = (machine.get("status") or {}).get("observedGeneration")
        return (
            self.condition("Ready", name) == ("True", "Ready")
            and current == machine["metadata"]["generation"]
        )

    def vms(self, name: str) -> list[Machine]:
        """VMs of a machine on the vCenter, by the name they were minted with."""
        return [vm for vm in self.target.vcenter.vms() if vm.name == self._minted.get(name)]

    def vm(self, name: str) -> Machine:
        """The one VM of a machine."""
        (found,) = self.vms(name)
        return found

    def make_machine(self, name: str, **spec: object) -> Obj:
        """A machine as the controller makes it, and the VirtualMachine that refers to it."""
        return put_machine(self.api, Key(NAMESPACE, name), PROVIDER, DOMAIN, **spec)

    def edit(self, name: str, **spec: object) -> None:
        """Edit a machine's spec as the controller would; the generation moves on."""

        def change(obj: Obj) -> None:
            obj["spec"].update(spec)
            obj["metadata"]["generation"] += 1

        self.api.edit(VSPHERE_MACHINES, Key(NAMESPACE, name), change)

    def delete(self, name: str) -> None:
        """Delete a machine with the intent to destroy its VM."""
        key = Key(NAMESPACE, name)
        self.api.edit(
            VSPHERE_MACHINES,
            key,
            lambda obj: obj["spec"].update(
                teardown={"mode": "Destroy", "uid": obj["metadata"]["uid"]}
            ),
        )
        self.api.drop(VSPHERE_MACHINES, key)

    def told_reasons(self) -> frozenset[Reason]:
        """Reasons of all errors so far."""
        return frozenset(error.reason for error in self.told)

    def _store_surroundings(self) -> None:
        self.api.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": "cluster-uid"}})
        self.api.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        config = {"namespace": PROVIDER.namespace, "name": names.INSTALLATION_CONFIG_MAP}
        self.api.put(
            CONFIG_MAPS,
            {"metadata": config, "data": {"id": "installation-1", "clusterUID": "cluster-uid"}},
        )
        meta = {"namespace": PROVIDER.namespace, "name": PROVIDER.name, "uid": "provider-uid"}
        connection = {"endpoint": self.target.proxy.url, "credentialsRef": {"name": "creds"}}
        self.api.put(
            PROVIDERS,
            {
                "metadata": meta,
                "spec": {
                    "providerClassRef": {"name": "vsphere"},
                    "connection": connection,
                    "allowedNamespaces": {"from": "All"},
                    "capabilities": self.target.capabilities.to_api(),
                    "policy": {"concreteFields": {name: ["*"] for name in CONCRETE}},
                },
            },
        )
        for resource, name in ((SECRETS, "creds"), (LEASES, "provider-uid")):
            self.api.put(resource, {"metadata": {"namespace": PROVIDER.namespace, "name": name}})
        source = {"providerClass": "vsphere", "kind": "Template", "ref": "ubuntu"}
        self.api.put(VM_IMAGES, {"metadata": {"name": "ubuntu"}, "spec": {"sources": [source]}})
