import base64
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    SECRETS,
)
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.driver import MachineState
from banlieue.sdk.identity import Mark, Owner
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.leases import ProviderLeases
from banlieue.sdk.provider.reconciler import CONTROLLER, ProviderReconciler
from banlieue.sdk.provider.sessions import ProviderSessions
from banlieue.sdk.reconcile import Change, Request, Result
from banlieue.sdk.testing import scripted
from banlieue.sdk.testing.fakes import (
    FakeClock,
    FakeLease,
    FakeLeases,
    InlinePool,
    MemoryQueue,
    MemoryRecorder,
    context_for,
)
from banlieue.sdk.testing.memory_api import MemoryApi
from banlieue.sdk.testing.scripted import (
    MACHINES,
    ScriptedDriver,
    ScriptedEndpoint,
    scripted_backend,
)
from test.kit import kstatus

KEY = Key("ns", "prod")
CREDENTIALS = Key("ns", "creds")
PASSWORD = "right"


def _check_status(change: Change) -> None:
    """A tool that follows kstatus must cope with every status of a Provider."""
    if change.resource == PROVIDERS and change.new is not None:
        assert not list(kstatus.faults_of(change.new)), change.new


def no_thread(*_arguments: object, **_options: object) -> None:
    """The feed is not listened to; tests call what it would."""


class ProviderBench:
    """A Provider, its class and Secret in a memory API, and a reconciler for a scripted backend."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.api.subscribe(_check_status)
        self.clock = FakeClock()
        self.recorder = MemoryRecorder()
        self.queue = MemoryQueue()
        self.endpoint = ScriptedEndpoint()
        self.backend = scripted_backend(self.endpoint)
        self.candidates = FakeLeases()
        self.set_password(PASSWORD)
        self.api.put(
            PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": class_object("scripted")}
        )
        self.api.put(PROVIDERS, {"metadata": meta("prod"), "spec": provider_spec()})
        self.api.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": "cluster-1"}})
        self.api.put(
            CONFIG_MAPS,
            {
                "metadata": {"namespace": "system", "name": names.INSTALLATION_CONFIG_MAP},
                "data": {"id": "inst", "clusterUID": "cluster-1"},
            },
        )
        self.start()

    def start(self, only: Key | None = None) -> None:
        """A new process over the same API and backend."""
        context = context_for(self.api, clock=self.clock, recorder=self.recorder, queue=self.queue)
        self.leases = ProviderLeases(
            self.candidates, lambda key: self.queue.enqueue(CONTROLLER, Request(key))
        )
        self.sessions = ProviderSessions(
            self.backend,
            clock=self.clock,
            rng=Random(1),
            make_pool=lambda _key: InlinePool(),
            leased=self.leases.held,
            start=no_thread,
        )
        self.reconciler = ProviderReconciler(
            context,
            self.backend,
            self.sessions,
            self.leases,
            installation_namespace="system",
            only=only,
        )

    async def stop(self) -> None:
        await self.sessions.close()
        await self.leases.close()

    def set_password(self, password: str) -> None:
        data = {"password": base64.b64encode(password.encode()).decode()}
        self.api.put(SECRETS, {"metadata": meta("creds"), "data": data})

    def edit(self, **spec: Any) -> None:  # noqa: ANN401 - parts of a spec
        self.api.edit(PROVIDERS, KEY, lambda obj: obj["spec"].update(spec))

    def add_machine(self, name: str, **spec: Any) -> Obj:  # noqa: ANN401 - parts of a spec
        whole = {"providerRef": {"namespace": "ns", "name": "prod"}, **spec}
        return self.api.put(MACHINES, {"metadata": meta(name), "spec": whole})

    async def run(self, after: float = 0.0) -> Result:
        self.clock.advance(after)
        return await self.reconciler.reconcile(KEY)

    async def run_for(self, seconds: float) -> None:
        """Pass after pass, as the queue would make them."""
        end = self.clock.monotonic() + seconds
        while True:
            result = await self.run()
            pause = max(result.requeue_after or seconds, 0.1)
            if self.clock.monotonic() + pause > end:
                return
            self.clock.advance(pause)

    @property
    def raw(self) -> Obj:
        found = self.api.peek(PROVIDERS, KEY)
        assert found is not None
        return found

    @property
    def provider(self) -> Provider:
        return Provider.from_api(self.raw)

    def condition(self, kind: str = "Ready") -> tuple[str, str, str]:
        for condition in self.provider.status.conditions:
            if condition.type == kind:
                assert condition.observed_generation is not None
                return condition.status.value, condition.reason, condition.message
        return "absent", "", ""

    @property
    def ready(self) -> tuple[str, str]:
        return self.condition()[:2]

    @property
    def lease(self) -> FakeLease:
        return self.candidates.made[Key("ns", self.provider.metadata.uid or "")]


def meta(name: str) -> Obj:
    return {"namespace": "ns", "name": name}


def class_object(backend: str, **more: object) -> Obj:
    kind = {"apiGroup": MACHINES.group, "version": MACHINES.version, "kind": MACHINES.kind}
    return {"backend": backend, "machine": kind, **more}


def provider_spec(**more: object) -> Obj:
    to = {"endpoint": "https://vc/sdk", "credentialsRef": {"name": "creds"}}
    return {"providerClassRef": {"name": "c"}, "connection": to, **more}


def instance(uuid: str, identity: str = "backend-1") -> Obj:
    return {
        "uuid": uuid,
        "name": f"vm-{uuid}",
        "installationID": "inst",
        "backendIdentity": identity,
    }


def marked_vm(
    uuid: str, name: str = "db", *, installation: str = "inst", marked: str = ""
) -> MachineState:
    owner = Owner(installation, "VirtualMachine", "ns", name)
    mark = Mark(owner, marked or uuid)
    return MachineState(
        f"{name}-x", uuid, f"vm-{uuid}", mark, PowerState.POWERED_ON, failure_domain="d1"
    )


def able(monkeypatch: pytest.MonkeyPatch, **powers: Callable[..., object]) -> None:
    """Have scripted drivers opened from now on can more.

    A class of their own: what the class of all others once could is remembered of it for good by
    checks of protocols.
    """
    monkeypatch.setattr(scripted, "ScriptedDriver", type("Able", (ScriptedDriver,), powers))
