"""The node patcher over an API server in memory: whom it asks, whom it tells, and when it waits."""

import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretBytes

from banlieue.api.events import EventReason
from banlieue.api.meta import format_time
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES, SECRETS
from banlieue.controller.nodes import app
from banlieue.controller.nodes.patcher import NodePatcher
from banlieue.sdk import kube
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Request, Result
from banlieue.sdk.testing.fakes import START, FakeClock, MemoryRecorder, context_for
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from banlieue.sdk.workload import KubeconfigError, Node

UUID = "420bcf8f-a2f2-d154-0f25-1d3a59f0c6e1"
CLUSTER = Key("team-a", "prod")
SECRET = Key("team-a", "prod-kubeconfig")
WORD = b"planted-kubeconfig"


@dataclass
class Workload:
    """The workload cluster: its Nodes, and how it is reached."""

    nodes: list[Node] = field(default_factory=list)
    opened: list[bytes] = field(default_factory=list)
    failure: Exception | None = None
    changed: bool = False

    @asynccontextmanager
    async def open(self, kubeconfig: SecretBytes) -> AsyncIterator["Workload"]:
        self.opened.append(kubeconfig.get_secret_value())
        if self.failure:
            raise self.failure
        yield self

    async def list(self) -> Sequence[Node]:
        return tuple(self.nodes)

    async def set_provider_id(self, node: Node, provider_id: str) -> None:
        if self.changed or node not in self.nodes:
            raise kube.Conflict(409, "Conflict", "changed")
        at = self.nodes.index(node)
        self.nodes[at] = replace(node, provider_id=provider_id, resource_version="8")


@dataclass
class World:
    """Everything a test looks at."""

    api: MemoryApi = field(default_factory=MemoryApi)
    workload: Workload = field(default_factory=Workload)
    clock: FakeClock = field(default_factory=FakeClock)
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)

    def __post_init__(self) -> None:
        self.api.put(CAPI_CLUSTERS, {"metadata": metadata("prod"), "spec": {}})
        self.machine("m")
        self.secret(WORD)
        self.workload.nodes = [Node("n", "u", "7", UUID, "")]

    def machine(self, name: str, uuid: str = UUID, **spec: object) -> None:
        body = {
            "clusterName": "prod",
            "providerID": f"vsphere://{uuid}",
            "infrastructureRef": {
                "apiGroup": "infrastructure.banlieue.io",
                "kind": "VSphereMachine",
                "name": name,
            },
            **spec,
        }
        self.api.put(CAPI_MACHINES, {"metadata": metadata(name), "spec": body})

    def secret(self, value: bytes) -> None:
        data = {"value": base64.b64encode(value).decode()}
        self.api.put(SECRETS, {"metadata": metadata("prod-kubeconfig"), "data": data})

    async def look(self) -> Result:
        context = context_for(self.api, clock=self.clock, recorder=self.recorder)
        return await NodePatcher(context, self.workload.open).reconcile(CLUSTER)

    @property
    def told(self) -> str:
        (event,) = self.recorder.events
        assert event.reason is EventReason.NODE_NOT_IDENTIFIED
        assert event.warning
        return event.message


def metadata(name: str) -> dict[str, Any]:
    made = format_time(START)
    return {"namespace": "team-a", "name": name, "creationTimestamp": made}


@pytest.fixture
def world() -> World:
    return World()


async def test_a_node_is_given_the_id_of_its_machine(world: World) -> None:
    assert await world.look() == Result()
    assert [it.provider_id for it in world.workload.nodes] == [f"vsphere://{UUID}"]
    assert world.workload.opened == [WORD]
    (event,) = world.recorder.events
    assert (event.key.name, event.reason) == ("m", EventReason.NODE_IDENTIFIED)
    assert await world.look() == Result(), "and once is enough"
    assert len(world.recorder.events) == 1


async def test_the_management_cluster_is_only_read(world: World) -> None:
    await world.look()
    assert world.api.writes() == []


@pytest.mark.parametrize(
    "spec",
    [
        {"providerID": ""},
        {"clusterName": "other"},
        {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "X"}},
    ],
)
async def test_without_a_machine_of_ours_that_waits_nobody_is_asked(
    world: World, spec: dict[str, Any]
) -> None:
    world.machine("m", **spec)
    assert await world.look() == Result()
    assert world.workload.opened == []
    assert [it.resource for it in world.api.calls] == [], "the kubeconfig is not even read"


def has_node(machine: Obj) -> None:
    machine["status"] = {"nodeRef": {"name": "n"}}


def leaves(machine: Obj) -> None:
    machine["metadata"]["deletionTimestamp"] = format_time(START)
    machine["metadata"]["finalizers"] = ["x"]


@pytest.mark.parametrize("change", [has_node, leaves])
async def test_a_machine_that_has_its_node_or_leaves_is_left_alone(
    world: World, change: Callable[[Obj], object]
) -> None:
    world.api.edit(CAPI_MACHINES, Key("team-a", "m"), change)
    assert await world.look() == Result()
    assert world.workload.opened == []


def paused(cluster: Obj) -> None:
    cluster["spec"]["paused"] = True


def moving(cluster: Obj) -> None:
    cluster["metadata"]["annotations"] = {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}


@pytest.mark.parametrize("change", [paused, moving])
async def test_hands_off_a_cluster_that_is_paused_or_moved(
    world: World, change: Callable[[Obj], object]
) -> None:
    world.api.edit(CAPI_CLUSTERS, CLUSTER, change)
    assert await world.look() == Result()
    assert world.workload.opened == []
    world.api.drop(CAPI_CLUSTERS, CLUSTER)
    assert await world.look() == Result()


async def test_without_the_right_to_the_kubeconfig_the_cluster_says_who_needs_it(
    world: World,
) -> None:
    def refuse(call: Call, _: Moment) -> None:
        if call.resource == SECRETS:
            raise kube.Forbidden(403, "Forbidden", "secrets is forbidden")

    world.api.intercept(refuse)
    assert await world.look() == Result(60.0)
    assert "ServiceAccount banlieue-node-patcher" in world.told
    assert "prod-kubeconfig" in world.told
    assert world.recorder.events[0].key == CLUSTER


async def test_a_kubeconfig_that_is_not_there_yet_is_waited_for(world: World) -> None:
    world.api.drop(SECRETS, SECRET)
    assert (await world.look()).requeue_after == 10.0
    assert world.recorder.events == []


@pytest.mark.parametrize("data", [{}, {"value": "%%%"}, {"value": None}, {"other": "eA=="}])
async def test_a_secret_without_a_kubeconfig_is_told_and_not_quoted(
    world: World, data: dict[str, Any]
) -> None:
    world.api.put(SECRETS, {"metadata": metadata("prod-kubeconfig"), "data": data})
    assert await world.look() == Result(60.0)
    assert world.told == "Secret prod-kubeconfig is not used: it has no kubeconfig in key value"


async def test_a_kubeconfig_that_is_refused_is_told(world: World) -> None:
    world.workload.failure = KubeconfigError("its server has to be https://...")
    assert await world.look() == Result(60.0)
    assert world.told.endswith("is not used: its server has to be https://...")


@pytest.mark.parametrize(
    "failure",
    [kube.Unavailable(0, "GET got no answer"), kube.Forbidden(403, "Forbidden", "no")],
)
async def test_a_workload_cluster_that_does_not_answer_is_no_event(
    world: World, failure: Exception
) -> None:
    world.workload.failure = failure
    assert (await world.look()).requeue_after == 10.0
    assert world.recorder.events == []


async def test_a_node_that_changed_meanwhile_is_looked_at_again_soon(world: World) -> None:
    world.workload.changed = True
    assert await world.look() == Result(10.0)
    world.workload.changed = False
    assert await world.look() == Result()


async def test_it_looks_soon_at_first_and_rarely_later(world: World) -> None:
    world.workload.nodes = []
    pauses = []
    for age in (0, 120, 3600, 10**6):
        world.clock = FakeClock(START + timedelta(seconds=age))
        pauses.append((await world.look()).requeue_after)
    assert pauses == [10.0, 20.0, 300.0, 300.0]
    world.machine("young", "4211d3b8-0f0e-4a68-9a13-5d3ad7f20f11")
    world.api.edit(
        CAPI_MACHINES,
        Key("team-a", "young"),
        lambda it: it["metadata"].update(
            creationTimestamp=format_time(START + timedelta(seconds=10**6))
        ),
    )
    assert (await world.look()).requeue_after == 10.0


async def test_an_id_of_somebody_else_is_told_as_far_as_it_is_fit_to_be(world: World) -> None:
    evil = "k3s://n\x1b[31m\n" + "x" * 500
    world.workload.nodes = [Node("n", "u", "7", UUID, evil)]
    assert (await world.look()).requeue_after == 10.0
    assert world.workload.nodes[0].provider_id == evil
    assert "k3s://n[31m" in world.told
    assert len(world.told) < 400
    assert world.told.isprintable()


async def test_two_nodes_of_one_uuid_are_told(world: World) -> None:
    world.workload.nodes.append(Node("copy", "v", "7", UUID, ""))
    await world.look()
    assert [it.provider_id for it in world.workload.nodes] == ["", ""]
    assert world.told.startswith("several Nodes or machines have the system UUID")


def test_a_cluster_is_woken_by_what_concerns_its_nodes() -> None:
    api = MemoryApi()
    made = app.controller(context_for(api), Workload().open)
    (watch,) = [it for it in made.watches if it.resource == CAPI_MACHINES]
    key = Key("team-a", "m")

    def woken(old: Obj | None, new: Obj | None) -> list[Request]:
        return list(watch.map(Change(CAPI_MACHINES, key, old, new)))

    bare: Obj = {"spec": {"clusterName": "prod"}}
    placed: Obj = {"spec": {"clusterName": "prod", "providerID": "x://y"}}
    assert woken(bare, placed) == [Request(CLUSTER)]
    assert woken(placed, {**placed, "status": {"phase": "Provisioned"}}) == []
    assert woken(placed, None) == []
    assert woken(None, placed) == [Request(CLUSTER)]
    assert all(it.optional for it in made.watches if it.resource.group == "cluster.x-k8s.io")
