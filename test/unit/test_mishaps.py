"""Passes that fail by a fault nobody foresaw are told on the object, once, and taken back."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES, VM_IMAGES
from banlieue.controller import images
from banlieue.controller.capi import machines as capi_machines
from banlieue.controller.clusters import cluster as clusters
from banlieue.controller.infra.machines import request_key
from banlieue.controller.vm import virtualmachine
from banlieue.sdk.kube import Conflict, Forbidden, Key, Obj, Unavailable
from banlieue.sdk.machine import reconciler as machines
from banlieue.sdk.mishaps import PATIENCE_WITH_API, Mishaps
from banlieue.sdk.provider import reconciler as providers
from banlieue.sdk.reconcile import Change, Controller, Request, Result
from banlieue.sdk.runtime.health import Health
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.queue import WorkQueue
from banlieue.sdk.runtime.serve import ProviderRole, Scope
from banlieue.sdk.runtime.workers import Workers
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.fakes import FakeClock, FakeLeases, context_for
from banlieue.sdk.testing.memory_api import MemoryApi
from banlieue.sdk.testing.scripted import MACHINES
from test.kit import kstatus, statusrules
from test.kit.capiworld import CapiWorld
from test.kit.clusterworld import ENDPOINT, THIS_CLUSTER, ClusterWorld
from test.kit.controllerworld import NAMESPACE, THIS, ControllerWorld
from test.kit.providerbench import KEY, ProviderBench, no_thread
from test.kit.stepped_clock import SteppedClock

SECRET = "planted-in-an-error-text"
VM = Key("team", "db")
LATER = 30.0


class Bench:
    """A controller whose passes fail as the test says, over an object in a memory API."""

    def __init__(self, kind: Resource = VIRTUAL_MACHINES, key: Key = VM) -> None:
        self.kind, self.key = kind, key
        self.api = MemoryApi()
        self.ctx = context_for(self.api, clock=FakeClock())
        self.faults: list[str] = []
        self.error: Exception | None = None
        self.witness = Mishaps.of_kind(self.ctx, "things", kind, "banlieue.io/controller")
        self.api.subscribe(self._judge)

    def put(self, *conditions: dict[str, Any], **status: object) -> None:
        told = {"conditions": list(conditions), **status} if conditions else dict(status)
        obj: Obj = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": {"namespace": self.key.namespace, "name": self.key.name},
            "spec": {},
        }
        self.api.put(self.kind, {**obj, "status": told} if told else obj)

    async def reconcile(self, key: Key) -> Result:
        del key
        if self.error is not None:
            raise self.error
        return Result()

    async def run(self, error: Exception | None = None, passes: int = 1) -> None:
        """So many passes that end like this."""
        self.error = error
        controller = Controller("things", self, (), witness=self.witness)
        await run(controller, self.key, passes)

    @property
    def object(self) -> Obj:
        return self.api.peek(self.kind, self.key) or {}

    def says(self, kind: str) -> dict[str, Any]:
        return said(self.object, kind)

    def writes(self) -> int:
        return len(self.api.writes())

    def _judge(self, change: Change) -> None:
        if change.new is not None and change.old is not None:
            self.faults += statusrules.faults_of(change.new, change.old)
            self.faults += statusrules.faults_between(change.old, change.new)


async def run(controller: Controller, key: Key, passes: int) -> None:
    """Exactly so many passes of a controller over one key, by the workers every process has."""
    clock, left = SteppedClock(), passes

    class Counted:
        async def reconcile(self, key: Key) -> Result:
            nonlocal left
            left -= 1
            if not left:
                queue.close()
            return await controller.reconciler.reconcile(key)

    queue = WorkQueue(clock, random.Random(1))
    counted = Controller(controller.name, Counted(), (), 1, controller.witness)
    workers = Workers(counted, queue, clock=clock, rng=random.Random(2), metrics=Metrics())
    running = asyncio.ensure_future(workers.run())
    while left:
        queue.add(Request(key))
        await clock.advance(LATER)
    await clock.advance(0.0)
    assert await workers.drain(1.0)
    await running


def said(obj: Obj, kind: str) -> dict[str, Any]:
    found = [it for it in (obj.get("status") or {}).get("conditions", ()) if it["type"] == kind]
    return found[0] if found else {}


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "as it was",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


@pytest.fixture(autouse=True)
def only_the_planted_fails(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """What tells of failures swallows its own, which a test must notice."""
    yield
    if request.node.name != "test_telling_never_fails_a_pass":
        assert "could not be told" not in caplog.text


READY = condition("Ready", "True", "Ready")


async def test_it_is_told_with_the_type_of_the_error_alone() -> None:
    bench = Bench()
    bench.put(
        READY, condition("UpToDate", "True", "UpToDate"), observedGeneration=1, phase="Running"
    )
    before = bench.object["status"]
    await bench.run(KeyError(SECRET), passes=3)
    told = bench.says("Reconciling")
    assert (told["status"], told["reason"]) == ("True", "InternalError")
    assert "KeyError" in told["message"]
    assert "things" in told["message"]
    assert SECRET not in str(bench.object)
    # Whatever was known of the VM is still there, to the letter.
    rest = [it for it in bench.object["status"]["conditions"] if it["type"] != "Reconciling"]
    assert {**bench.object["status"], "conditions": rest} == before
    assert bench.faults == []
    assert kstatus.status_of(bench.object) is kstatus.Status.IN_PROGRESS


async def test_one_failure_that_passes_is_no_news() -> None:
    bench = Bench()
    bench.put(READY, observedGeneration=1)
    await bench.run(KeyError("x"))
    await bench.run()
    await bench.run(KeyError("x"))
    await bench.run()
    assert bench.writes() == 0


async def test_the_same_error_is_written_once_and_another_once_more() -> None:
    bench = Bench()
    bench.put(READY, observedGeneration=1)
    await bench.run(KeyError("x"), passes=8)
    assert bench.writes() == 1
    await bench.run(ValueError("y"), passes=8)
    assert bench.writes() == 2
    assert "ValueError" in bench.says("Reconciling")["message"]
    assert bench.faults == []


async def test_a_pass_that_succeeds_takes_it_back() -> None:
    bench = Bench()
    bench.put(READY, observedGeneration=1, phase="Running")
    before = bench.object["status"]
    await bench.run(KeyError("x"), passes=3)
    await bench.run(passes=3)
    assert bench.object["status"] == before
    assert bench.writes() == 2


async def test_an_object_that_says_nothing_yet_is_not_taken_for_done() -> None:
    """Without any status, tools that follow kstatus take an object for done."""
    bench = Bench()
    bench.put()
    await bench.run(KeyError("x"), passes=2)
    assert (bench.says("Ready")["status"], bench.says("Ready")["reason"]) == (
        "Unknown",
        "InternalError",
    )
    await bench.run(TypeError("x"), passes=2)
    assert "TypeError" in bench.says("Ready")["message"]
    await bench.run()
    assert bench.object["status"]["conditions"] == []


async def test_nobody_gives_up_because_it_was_stalled_before() -> None:
    bench = Bench()
    not_ready = condition("Ready", "False", "InvalidConfiguration")
    bench.put(not_ready, condition("Stalled", "True", "InvalidConfiguration"), observedGeneration=1)
    await bench.run(KeyError("x"), passes=2)
    assert bench.faults == []
    assert kstatus.status_of(bench.object) is kstatus.Status.IN_PROGRESS
    assert bench.says("Ready") == not_ready


async def test_hands_off_is_hands_off() -> None:
    bench = Bench()
    bench.put(READY, condition("Paused", "True", "Paused"), observedGeneration=1)
    await bench.run(KeyError("x"), passes=9)
    assert bench.writes() == 0


async def test_what_the_api_server_refuses_is_told_after_more_patience() -> None:
    bench = Bench()
    bench.put(READY, observedGeneration=1)
    refused = Forbidden(403, "Forbidden", SECRET)
    await bench.run(refused, passes=PATIENCE_WITH_API - 1)
    assert bench.writes() == 0
    await bench.run(refused)
    assert "Forbidden" in bench.says("Reconciling")["message"]
    assert SECRET not in str(bench.object)


@pytest.mark.parametrize(
    "error", [Conflict(409, "Conflict", "x"), Unavailable(503, "x")], ids=["conflict", "away"]
)
async def test_races_and_an_api_server_that_is_away_are_no_faults(error: Exception) -> None:
    bench = Bench()
    bench.put(READY, observedGeneration=1)
    await bench.run(error, passes=12)
    assert bench.writes() == 0


async def test_an_object_that_changed_meanwhile_is_told_by_a_later_pass() -> None:
    bench = Bench()
    bench.put(READY, observedGeneration=1)

    def refuse(_call: object, _moment: object) -> None:
        undo()
        raise Conflict(409, "Conflict", "changed")

    undo = bench.api.intercept(refuse)
    await bench.run(KeyError("x"), passes=2)
    assert not bench.says("Reconciling")
    await bench.run(KeyError("x"))
    assert bench.says("Reconciling")


async def test_telling_never_fails_a_pass(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    def broken(_key: Key) -> None:
        raise LookupError("no such thing")

    bench.witness = Mishaps(bench.ctx, "things", broken)
    await bench.run(KeyError("x"), passes=4)
    await bench.run()
    assert "a failure could not be told" in caplog.text


async def test_an_object_that_is_gone_leaves_nothing_behind() -> None:
    bench = Bench()
    await bench.run(KeyError("x"), passes=4)
    await bench.run()
    assert bench.writes() == 0


async def test_a_new_process_does_not_tell_the_same_again() -> None:
    bench = Bench()
    bench.put(READY, observedGeneration=1)
    await bench.run(KeyError("x"), passes=3)
    bench.witness = Mishaps.of_kind(bench.ctx, "things", bench.kind, "banlieue.io/controller")
    await bench.run(KeyError("x"), passes=3)
    assert bench.writes() == 1


async def test_a_fault_that_befalls_everything_does_not_drown_the_api_server() -> None:
    bench = Bench()
    clock = bench.ctx.clock
    assert isinstance(clock, FakeClock)
    keys = [Key("team", f"vm-{number}") for number in range(300)]
    for bench.key in keys:
        bench.put(READY, observedGeneration=1)

    async def fail_everywhere() -> int:
        for key in keys:
            for _ in range(2):
                await bench.witness.failed(key, KeyError("x"))
        return bench.writes()

    at_once = await fail_everywhere()
    assert 0 < at_once < 60
    clock.advance(10.0)
    assert at_once < await fail_everywhere() < 120
    for _ in range(4):
        clock.advance(60.0)
        told = await fail_everywhere()
    assert told == len(keys)
    assert bench.faults == []


# Every controller that writes the status of what users look at


def controllers(world: ControllerWorld) -> dict[str, Controller]:
    return {it.name: it for it in world.role.controllers()}


def fail(*_: object, **__: object) -> Any:  # noqa: ANN401 - never returns
    raise ZeroDivisionError(SECRET)


async def test_a_virtual_machine_says_it_and_gets_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerWorld.ready()
    key = world.add_vm()
    await world.settle()
    before = world.status()
    controller = controllers(world)[virtualmachine.CONTROLLER]
    with monkeypatch.context() as broken:
        broken.setattr(virtualmachine, "run_phases", fail)
        await run(controller, key, 3)
    told = world.condition("Reconciling")
    assert (told["reason"], "ZeroDivisionError" in told["message"]) == ("InternalError", True)
    assert world.condition("Ready")["status"] == "True"
    assert SECRET not in str(world.vm())
    assert world.status()["phase"] == before["phase"]
    await run(controller, key, 1)
    assert world.status() == before


async def test_one_that_was_never_looked_at_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerWorld.ready()
    key = world.add_vm()
    controller = controllers(world)[virtualmachine.CONTROLLER]
    with monkeypatch.context() as broken:
        broken.setattr(virtualmachine, "run_phases", fail)
        await run(controller, key, 2)
    assert world.condition("Ready")["reason"] == "InternalError"
    await world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert not world.condition("Reconciling")


async def test_what_is_told_of_a_machine_is_seen_on_its_virtual_machine() -> None:
    world = ControllerWorld.ready()
    world.add_vm()
    await world.settle()
    message = "controller machine fails at this object with KeyError"
    failing = {**condition("Reconciling", "True", "InternalError"), "message": message}
    world.api.edit(
        THIS, Key(NAMESPACE, "db-1"), lambda it: it["status"]["conditions"].append(failing)
    )
    # Not `settle`: there the machine's provider would write its status anew.
    await run(controllers(world)[virtualmachine.CONTROLLER], Key(NAMESPACE, "db-1"), 1)
    assert world.condition("Reconciling")["message"] == message
    assert world.status()["phase"] == "Running"
    assert world.condition("Ready")["status"] == "True"


async def test_an_image_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerWorld.ready()
    await world.settle()
    controller = controllers(world)[images.CONTROLLER]
    monkeypatch.setattr(images.ImageSummaryReconciler, "reconcile", fail)
    await run(controller, Key("", "ubuntu"), 2)
    (image,) = world.api.peek_all(VM_IMAGES)
    assert said(image, "Reconciling")["reason"] == "InternalError"


async def test_a_cluster_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterWorld.with_providers(one={})
    world.add_cluster("prod", controlPlaneEndpoint=ENDPOINT)
    world.add_cluster("unclaimed", owned=False, controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    controller = world._engine.controllers[clusters.CONTROLLER]
    monkeypatch.setattr(clusters.InfraClusterReconciler, "reconcile", fail)
    for name in ("prod", "unclaimed"):
        await run(controller, Key(NAMESPACE, f"{THIS_CLUSTER.crd_name}/{name}"), 3)
    assert world.told("Reconciling")[1] == "InternalError"
    assert world.is_ready()[0] == "True"
    assert not world.cluster("unclaimed").get("status")
    assert world.faults == []


async def test_a_machine_of_cluster_api_says_it_while_it_is_the_controllers_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = CapiWorld.with_cluster()
    world.add_machine("waits", data="")
    world.add_machine("unclaimed", owned=False)
    world.add_machine("stamped")
    await world.settle()
    before = world.node("stamped")["status"]
    controller = world._engine.controllers[capi_machines.CONTROLLER]
    monkeypatch.setattr(capi_machines.ClusterMachineReconciler, "reconcile", fail)
    for name in ("waits", "unclaimed", "stamped"):
        await run(controller, request_key(SIMULATED_MACHINES, Key(NAMESPACE, name)), 3)
    assert world.told("waits", "Reconciling")[1] == "InternalError"
    assert world.told("waits")[1] == "WaitingForBootstrapData"
    assert not world.node("unclaimed").get("status")
    assert world.node("stamped")["status"] == before
    assert world.faults == []


class RoleHost:
    """As much of a process as the provider role asks for, over a memory API."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self.context = context_for(api, clock=FakeClock())
        self.cache, self.clock, self.rng = api.cache, self.context.clock, self.context.rng
        self.controllers: dict[str, Controller] = {}
        self.enqueue = self.context.enqueue
        self.candidate = FakeLeases()
        self.health = Health(Metrics())

    def add_controller(self, controller: Controller) -> None:
        self.controllers[controller.name] = controller

    def on_stop(self, hook: object) -> None:
        """Nothing is stopped here."""


async def test_a_provider_and_its_machines_say_it_while_the_lease_is_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = ProviderBench()
    await bench.run()
    bench.add_machine("one")
    host = RoleHost(bench.api)
    role = ProviderRole(host, bench.backend, Scope(), start=no_thread)
    held = False
    monkeypatch.setattr(role._leases, "held", lambda _key: held)
    monkeypatch.setattr(machines.MachineReconciler, "reconcile", fail)
    monkeypatch.setattr(providers.ProviderReconciler, "reconcile", fail)

    async def fail_at_both() -> tuple[str, str]:
        await run(host.controllers[providers.CONTROLLER], KEY, 3)
        await run(host.controllers[machines.CONTROLLER], Key("ns", "one"), 3)
        provider = bench.api.peek(PROVIDERS, KEY) or {}
        machine = bench.api.peek(MACHINES, Key("ns", "one")) or {}
        found = (said(it, "Reconciling").get("reason", "") for it in (provider, machine))
        return next(found), next(found)

    assert await fail_at_both() == ("", "")
    held = True
    assert await fail_at_both() == ("InternalError", "InternalError")
    told = bench.provider.status
    assert (bench.ready[0], bool(told.failure_domains)) == ("True", True)


async def test_the_next_status_of_a_provider_takes_it_back() -> None:
    """Also in another process than the one that told it."""
    bench = ProviderBench()
    await bench.run()
    before = [it.type for it in bench.provider.status.conditions]
    witness = Mishaps.of_kind(bench.reconciler._ctx, "provider", PROVIDERS, "m")
    for _ in range(2):
        await witness.failed(KEY, KeyError("x"))
    assert bench.condition("Reconciling")[1] == "InternalError"
    bench.start()
    await bench.run()
    assert [it.type for it in bench.provider.status.conditions] == before
