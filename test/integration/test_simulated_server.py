"""A simulated world in a process of its own: its VMs outlive it, and its faults cross the wire."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import Unreachable
from banlieue.sdk.simulated.faults import Code, Effect, WorldFault
from banlieue.sdk.simulated.models import SimulatedMachineSpec
from banlieue.sdk.testing.conformance_target import Bench, seen
from banlieue.sdk.testing.simulated_target import SimulatedTarget
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[WorldProcess]:
    world = WorldProcess(tmp_path)
    world.start()
    with world.process:
        yield world


@pytest.fixture
def target(world: WorldProcess) -> SimulatedTarget:
    return world.target()


@pytest.fixture
def driver(target: SimulatedTarget) -> Iterator[Driver[SimulatedMachineSpec]]:
    with target.backend.connect(target.connection()) as driver:
        yield driver


@pytest.fixture
def bench(target: SimulatedTarget, driver: Driver[SimulatedMachineSpec]) -> Bench:
    return Bench(target, driver)


def test_vms_outlive_the_process(world: WorldProcess, bench: Bench) -> None:
    plan = bench.plan(data_disk=True)
    before = bench.ensure(plan)
    identity = bench.driver.about().identity
    world.process.kill9()
    with pytest.raises(Unreachable):
        bench.driver.observe(plan.ref)
    world.start()
    after = bench.look(seen(plan, before))
    assert after is not None
    assert (after.backend_id, after.disks, after.mark) == (
        before.backend_id,
        before.disks,
        before.mark,
    )
    assert bench.driver.about().identity == identity


def test_work_under_way_goes_on_after_a_kill(world: WorldProcess, bench: Bench) -> None:
    plan = bench.plan()
    with bench.target.slow_tasks(1.0):
        task = bench.driver.create(plan)
    world.process.kill9()
    world.start()
    bench.finish(task)
    assert bench.ensure(plan).uuid == plan.ref.uuid
    assert len(bench.named(plan)) == 1


def test_no_file_of_the_world_holds_the_password(world: WorldProcess, bench: Bench) -> None:
    bench.ensure(bench.plan())
    folder = world.process.log_file.parent
    files = [path for path in folder.iterdir() if "credentials" not in path.name]
    assert any(path.suffix == ".json" for path in files)
    assert not any(PLANTED_PASSWORD in path.read_text() for path in files)


def test_a_hanging_world_is_unreachable_and_not_waited_for(
    world: WorldProcess, bench: Bench
) -> None:
    rule = {"effect": Effect.HANG, "method": "about", "seconds": 5.0}
    world.port.control("inject", {"rule": rule})
    with pytest.raises(Unreachable):
        bench.driver.about()
    assert bench.driver.about().identity


def test_a_listener_is_woken_by_what_happens(world: WorldProcess, bench: Bench) -> None:
    session = world.port.call(
        "login", {"username": "simulated", "password": PLANTED_PASSWORD}, timeout=5.0
    )["session"]

    def changes(cursor: str, timeout: float) -> dict[str, Any]:
        params = {"cursor": cursor, "timeout": timeout}
        answer: dict[str, Any] = world.port.call("changes", params, session=session)
        return answer

    cursor = str(changes("", 0.0)["cursor"])
    plan = bench.plan()
    bench.driver.create(plan)
    told = wait_until(lambda: changes(cursor, 10.0)["vms"], 20.0, "the change")
    assert plan.ref.uuid in told


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"method": "nothing"}'])
def test_nonsense_is_answered_with_a_fault(world: WorldProcess, body: bytes) -> None:
    host, port = world.endpoint.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        connection.request("POST", "/call", body)
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    assert answer["fault"]["code"] in {Code.INVALID_ARGUMENT, Code.NOT_AUTHENTICATED}


def test_there_is_no_call_without_login(world: WorldProcess) -> None:
    with pytest.raises(WorldFault) as refusal:
        world.port.call("find", {})
    assert refusal.value.code == Code.NOT_AUTHENTICATED


def test_the_server_ends_when_asked(world: WorldProcess) -> None:
    assert world.process.stop(grace=5.0) == 0
