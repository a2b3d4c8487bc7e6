"""Passes that fail where the status is another process's to write are told by an event, once."""

from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.resources import IP_ADDRESS_CLAIMS, PROVIDERS, VM_IMAGES
from banlieue.controller.addresses import reconciler as addresses
from banlieue.controller.clusters import kinds, templates
from banlieue.controller.infra import machines as teardown
from banlieue.controller.infra.machines import request_key
from banlieue.operator import provider as workload
from banlieue.sdk.image import reconciler as images
from banlieue.sdk.kube import ApiError, Key, Obj
from banlieue.sdk.notices import Notices
from banlieue.sdk.reconcile import Controller, Witness
from banlieue.sdk.runtime.health import Health
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.serve import ProviderRole, Scope
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.fakes import FakeLeases, MemoryRecorder, context_for
from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.capiworld import CapiWorld
from test.kit.controllerworld import NAMESPACE, SYSTEM, ControllerWorld
from test.kit.operatorworld import OperatorWorld
from test.kit.providerbench import ProviderBench, no_thread

SECRET = "planted-in-an-error-text"
KEY = Key("team", "db")
OBJ: Obj = {"kind": "VirtualMachine", "metadata": {"namespace": "team", "name": "db"}}


def told(recorder: MemoryRecorder) -> list[str]:
    """What the events about our own faults say."""
    found = [it for it in recorder.events if it.reason is EventReason.INTERNAL_ERROR]
    assert all(it.warning for it in found)
    assert not [it for it in found if SECRET in it.message]
    return [f"{it.key}: {it.message}" for it in found]


class Bench:
    """A witness that finds one object, or none."""

    def __init__(self, obj: Obj | None = OBJ) -> None:
        self.recorder = MemoryRecorder()
        ctx = context_for(MemoryApi(), recorder=self.recorder)
        self.witness = Notices(ctx, "things", lambda _: obj)

    async def fail(self, error: Exception, times: int = 1) -> None:
        for _ in range(times):
            await self.witness.failed(KEY, error)


async def test_it_is_told_with_the_type_of_the_error_alone_and_once() -> None:
    bench = Bench()
    await bench.fail(ZeroDivisionError(SECRET))
    assert told(bench.recorder) == [], "what passes by itself is no news"
    await bench.fail(ZeroDivisionError(SECRET), 5)
    (said,) = told(bench.recorder)
    assert said.startswith("team/db: controller things failed at this object with ZeroDivisionErr")
    await bench.fail(KeyError(SECRET), 3)
    assert len(told(bench.recorder)) == 2, "another error is news"


async def test_after_a_pass_that_succeeds_it_is_news_again() -> None:
    bench = Bench()
    await bench.fail(KeyError("x"), 3)
    await bench.witness.passed(KEY)
    await bench.fail(KeyError("x"))
    assert len(told(bench.recorder)) == 1
    await bench.fail(KeyError("x"))
    assert len(told(bench.recorder)) == 2


async def test_what_the_api_server_refuses_is_told_after_more_patience() -> None:
    bench = Bench()
    await bench.fail(ApiError(422, "Invalid", SECRET), 4)
    assert told(bench.recorder) == []
    await bench.fail(ApiError(422, "Invalid", SECRET))
    assert len(told(bench.recorder)) == 1


async def test_without_an_object_nobody_is_told() -> None:
    bench = Bench(None)
    await bench.fail(KeyError("x"), 9)
    assert told(bench.recorder) == []


async def test_an_object_that_is_found_later_is_told_of_then() -> None:
    found: list[Obj] = []
    recorder = MemoryRecorder()
    ctx = context_for(MemoryApi(), recorder=recorder)
    witness = Notices(ctx, "things", lambda _: found[0] if found else None)
    for _ in range(4):
        await witness.failed(KEY, KeyError("x"))
    found.append(OBJ)
    for _ in range(4):
        await witness.failed(KEY, KeyError("x"))
    assert len(told(recorder)) == 1


async def failed(controller: Controller, key: Key) -> None:
    """Two passes of a controller that fail."""
    witness: Witness | None = controller.witness
    assert witness is not None
    for _ in range(2):
        await witness.failed(key, ZeroDivisionError(SECRET))


def by_name(found: Any, name: str) -> Controller:  # noqa: ANN401 - any role that has controllers
    (controller,) = [it for it in found.controllers() if it.name == name]
    return controller  # type: ignore[no-any-return] # as roles say it


async def test_of_a_claim_nobody_uses_the_claim_is_told() -> None:
    world = ControllerWorld.ready()
    claim = {"metadata": {"namespace": NAMESPACE, "name": "left"}, "spec": {}}
    world.api.put(IP_ADDRESS_CLAIMS, claim)
    await world.settle()
    key = Key(NAMESPACE, "left")
    await failed(by_name(world.role, addresses.CONTROLLER), request_key(IP_ADDRESS_CLAIMS, key))
    (said,) = told(world.recorder)
    assert said.startswith(f"{NAMESPACE}/left: ")


@pytest.mark.parametrize("name", [teardown.CONTROLLER, addresses.CONTROLLER])
async def test_who_looks_at_the_virtual_machine_is_told_of_its_machine(name: str) -> None:
    world = ControllerWorld.ready()
    key = world.add_vm()
    await world.settle()
    machine = world.machine() or {}
    (kind,) = world.role.services.kinds.named()
    await failed(by_name(world.role, name), request_key(kind, Key.of(machine)))
    (said,) = told(world.recorder)
    assert said.startswith(f"{key}: controller {name} failed")


async def test_a_machine_of_cluster_api_is_told_of_itself() -> None:
    world = CapiWorld.with_cluster()
    key = world.add_machine()
    await world.settle()
    controller = by_name(world.role, addresses.CONTROLLER)
    await failed(controller, request_key(SIMULATED_MACHINES, key))
    (said,) = told(world.recorder)
    assert said.startswith(f"{key}: ")


async def test_a_machine_template_is_told_of() -> None:
    world = CapiWorld.with_cluster()
    kind = SIMULATED_MACHINES
    name = f"{kind.kind.lower()}templates.{kind.group}/small"
    template = {
        "apiVersion": kind.api_version,
        "kind": f"{kind.kind}Template",
        "metadata": {"namespace": NAMESPACE, "name": "small"},
        "spec": {"template": {"spec": {"imageRef": {"name": "ubuntu"}}}},
    }
    world.api.put(kinds.template_of(kind), template)
    await world.settle()
    await world.role.watch_known_kinds()
    await failed(by_name(world.role, templates.CONTROLLER), Key(NAMESPACE, name))
    (said,) = told(world.recorder)
    assert said.startswith(f"{NAMESPACE}/small: ")


async def test_the_operator_tells_a_provider_whose_conditions_are_not_its_own() -> None:
    world = OperatorWorld()
    world.add_class()
    world.add_provider("prod")
    key = Key(SYSTEM, "prod")
    await world.settle()
    before = (world.api.peek(PROVIDERS, key) or {})["status"]
    await failed(by_name(world.operator, workload.CONTROLLER), key)
    (said,) = told(world.recorder)
    assert said.startswith(f"{key}: controller workload failed")
    assert (world.api.peek(PROVIDERS, key) or {})["status"] == before


async def test_a_provider_tells_an_image_of_which_it_writes_a_row() -> None:
    bench = ProviderBench()
    await bench.run()
    bench.api.put(VM_IMAGES, {"metadata": {"name": "ubuntu"}, "spec": {}})
    host = RoleHost(bench.api)
    ProviderRole(host, bench.backend, Scope(), start=no_thread)
    await failed(host.controllers[images.CONTROLLER], Key("", "ubuntu"))
    (said,) = told(host.recorder)
    assert said.startswith("ubuntu: controller ")


class RoleHost:
    """As much of a process as the provider role asks for, over a memory API."""

    def __init__(self, api: MemoryApi) -> None:
        self.recorder = MemoryRecorder()
        self.context = context_for(api, recorder=self.recorder)
        self.cache, self.clock, self.rng = api.cache, self.context.clock, self.context.rng
        self.controllers: dict[str, Controller] = {}
        self.enqueue = self.context.enqueue
        self.candidate = FakeLeases()
        self.health = Health(Metrics())

    def add_controller(self, controller: Controller) -> None:
        self.controllers[controller.name] = controller

    def on_stop(self, hook: object) -> None:
        """Nothing is stopped here."""
