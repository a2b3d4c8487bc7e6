"""One decision at a time, each seeing the promises before it; and nothing placed is moved."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.resources import NAMESPACES, PROVIDERS, VIRTUAL_MACHINES
from banlieue.controller.vm import virtualmachine
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.reconcile import Controller
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import NAMESPACE, SYSTEM, ControllerWorld, domain


def anti_affine(mode: str = "required") -> dict[str, Any]:
    term = {
        "topologyKey": "banlieue.io/failure-domain",
        "labelSelector": {"matchLabels": {"app": "db"}},
        "mode": mode,
    }
    return {"placement": {"antiAffinity": [term]}}


def reconciler(world: ControllerWorld) -> Controller:
    return next(it for it in world.role.controllers() if it.name == virtualmachine.CONTROLLER)


async def at_once(world: ControllerWorld, names: list[str]) -> None:
    """First passes of all of them at the same moment, as the workers of one process make them."""
    controller = reconciler(world)
    passes = (controller.reconciler.reconcile(Key(NAMESPACE, name)) for name in names)
    await asyncio.gather(*passes)


def places(world: ControllerWorld, names: list[str]) -> list[str]:
    return [(world.status(name).get("scheduled") or {}).get("failureDomain", "") for name in names]


def with_capacity(world: ControllerWorld, name: str, **free: int) -> None:
    """Publish how much memory each failure domain has left, of 64 GiB."""

    def change(obj: Obj) -> None:
        obj["status"]["failureDomains"] = [
            {
                **domain(f"{name}-{letter}"),
                "attributes": {
                    **domain(letter)["attributes"],
                    "capacity": {"memoryMiB": {"total": 65536, "free": left}},
                },
            }
            for letter, left in free.items()
        ]

    world.api.edit(PROVIDERS, Key(SYSTEM, name), change)


@pytest.mark.parametrize("count", [2, 3])
async def test_anti_affine_machines_made_in_the_same_moment_land_apart(count: int) -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b", "c")})
    names = [f"db-{number}" for number in range(count)]
    for name in names:
        world.add_vm(name, labels={"app": "db"}, **anti_affine())
    await at_once(world, names)
    assert len(set(places(world, names))) == count
    await world.settle(seconds=60)
    assert len({vm.domain for vm in world.vms()}) == count


async def test_of_two_for_one_place_one_waits_and_says_for_whom() -> None:
    world = ControllerWorld.ready(one={"domains": ("a",)})
    names = ["db-1", "db-2"]
    for name in names:
        world.add_vm(name, labels={"app": "db"}, **anti_affine())
    await at_once(world, names)
    assert sorted(places(world, names)) == ["", "one-a"]
    loser = names[places(world, names).index("")]
    said = world.condition("Scheduled", loser)
    assert said["reason"] == "AntiAffinityUnsatisfied"
    winner = next(name for name in names if name != loser)
    assert f"excluded by antiAffinity with {winner}" in said["message"]


async def test_room_that_was_just_promised_is_not_promised_again() -> None:
    world = ControllerWorld.ready(one={"domains": ("a",)})
    with_capacity(world, "one", a=2 * 4096)
    names = [f"vm-{number}" for number in range(5)]
    for name in names:
        world.add_vm(name)
    await at_once(world, names)
    assert Counter(places(world, names)) == {"one-a": 2, "": 3}


async def test_a_machine_that_is_being_deleted_still_counts_as_a_neighbour() -> None:
    world = ControllerWorld.ready(one={"domains": ("a",)})
    world.add_vm("db-1", labels={"app": "db"})
    await world.settle(seconds=60)
    world.providers[0].down = True
    world.delete_vm("db-1")
    world.add_vm("db-2", labels={"app": "db"}, **anti_affine())
    await world.settle(seconds=60)
    assert world.vm("db-1") is not None
    assert world.condition("Scheduled", "db-2")["reason"] == "AntiAffinityUnsatisfied"
    world.providers[0].down = False
    world.api.edit(world.providers[0].kind, Key(NAMESPACE, "db-1"), lambda obj: obj.update(x=1))
    await world.settle(seconds=60)
    assert world.vm("db-1") is None
    assert world.condition("Scheduled", "db-2")["status"] == "True"


async def test_a_decision_that_was_not_written_frees_its_place() -> None:
    world = ControllerWorld.ready(one={"domains": ("a",)})
    world.add_vm("db-1", labels={"app": "db"}, **anti_affine())
    world.add_vm("db-2", labels={"app": "db"}, **anti_affine())

    def refuse(call: Call, moment: Moment) -> None:
        first = call.key.name == "db-1" and call.resource == VIRTUAL_MACHINES
        if first and call.subresource and moment is Moment.BEFORE:
            raise Conflict(409, "Conflict", "somebody was faster")

    stop = world.api.intercept(refuse)
    with pytest.raises(Conflict):
        await at_once(world, ["db-1"])
    stop()
    await at_once(world, ["db-2"])
    assert places(world, ["db-1", "db-2"]) == ["", "one-a"]


async def test_what_was_placed_stays_whatever_comes_or_fills_up() -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b")})
    with_capacity(world, "one", a=32768, b=16384)
    names = [f"vm-{number}" for number in range(4)]
    for name in names:
        world.add_vm(name)
    await world.settle(seconds=60)
    before = {name: (world.vm(name), world.machine(name)) for name in names}
    world.add_provider("a-better", domains=("a",))
    with_capacity(world, "one", a=0, b=0)
    await world.settle(seconds=3600)
    assert before == {name: (world.vm(name), world.machine(name)) for name in names}
    assert len(world.vms()) == 4


async def test_figures_that_move_rewrite_no_condition() -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b")})
    with_capacity(world, "one", a=1000, b=2000)
    names = [f"vm-{number}" for number in range(3)]
    for name in names:
        world.add_vm(name)
    await world.settle(seconds=60)
    assert world.condition("Scheduled", names[0])["reason"] == "InsufficientCapacity"
    writes = len(world.api.writes())
    said = len(set(world.recorder.events))
    for left in (1500, 500, 3000, 2999, 100):
        with_capacity(world, "one", a=left, b=left // 2)
        await world.settle(seconds=60)
    assert len(world.api.writes()) == writes
    assert len(set(world.recorder.events)) == said
    with_capacity(world, "one", a=100, b=4096)
    await world.settle(seconds=60)
    assert sorted(places(world, names)) == ["", "", "one-b"]


async def test_a_forbidden_and_a_missing_provider_look_the_same_to_the_tenant() -> None:
    told: list[list[Obj]] = []
    for forbidden in (True, False):
        world = ControllerWorld.ready(one={})
        if forbidden:
            world.add_provider("secret", allowedNamespaces={"from": "Same"})
        world.add_vm("db-1", providerRef={"name": "secret", "namespace": SYSTEM})
        await world.settle(seconds=60)
        told.append(world.status("db-1")["conditions"])
        assert world.condition("Scheduled")["reason"] == "ProviderNotAllowed"
    assert told[0] == told[1]


async def test_room_promised_to_a_machine_that_never_came_serves_another_namespace() -> None:
    world = ControllerWorld.ready(one={"domains": ("a",)})
    with_capacity(world, "one", a=4096)
    world.providers[0].down = True
    world.add_vm("db-1")
    await world.settle(seconds=10)
    other = Key("team-b", "db-2")
    world.api.put(NAMESPACES, {"metadata": {"name": "team-b"}})
    spec = {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}}
    world.api.put(
        VIRTUAL_MACHINES, {"metadata": {"namespace": "team-b", "name": "db-2"}, "spec": spec}
    )
    await world.settle(seconds=10)
    assert "scheduled" not in (world.api.peek(VIRTUAL_MACHINES, other) or {})["status"]
    world.delete_vm("db-1")
    await world.settle(seconds=10)
    assert world.vm("db-1") is None
    status = (world.api.peek(VIRTUAL_MACHINES, other) or {})["status"]
    assert status["scheduled"]["failureDomain"] == "one-a"


async def test_room_that_is_still_too_little_wakes_nobody() -> None:
    world = ControllerWorld.ready(one={"domains": ("a",)})
    with_capacity(world, "one", a=100)
    world.add_vm("db-1")
    await world.settle(seconds=60)
    calls = len(world.api.calls)
    for left in (200, 4095):
        with_capacity(world, "one", a=left)
        assert not any(name == virtualmachine.CONTROLLER for name, _ in world._engine.due)
    assert len(world.api.calls) == calls
    with_capacity(world, "one", a=4096)
    await world.settle(seconds=60)
    assert places(world, ["db-1"]) == ["one-a"]


async def test_a_machine_made_after_all_leaves_no_promise_elsewhere() -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b")})
    world.providers[0].full = {"one-a"}
    world.add_vm("db-1")
    kind = world.providers[0].kind

    def made_meanwhile(call: Call, moment: Moment) -> None:
        moving = call.resource == kind and call.verb == "json_patch" and not call.subresource
        ours = call.manager == names.MANAGER_CONTROLLER
        if moving and ours and moment is Moment.BEFORE:
            world.providers[0].full = set()
            raise Conflict(409, "Conflict", "the provider was faster")

    stop = world.api.intercept(made_meanwhile)

    async def until_refused() -> None:
        while True:
            await at_once(world, ["db-1"])
            await world._serve_machines()

    with pytest.raises(Conflict):
        await until_refused()
    stop()
    there = {place.domain for it in world.role.services.ledger.residents() for place in it.places}
    assert there == {"one-a"}


def moved(world: ControllerWorld, name: str, to: str) -> None:
    """The backend moves a VM by itself, and its provider notices."""
    (vm,) = (it for it in world.vms() if it.owner.name == name)
    vm.domain = to
    mark = {"moved": to}
    world.api.edit(
        world.providers[0].kind,
        Key(NAMESPACE, name),
        lambda obj: obj["metadata"].update(annotations=mark),
    )


async def test_machines_the_backend_brings_together_say_so_and_stay() -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b", "c")})
    names = ["db-1", "db-2", "db-3"]
    for name in names:
        wish = anti_affine() if name == "db-1" else {}
        world.add_vm(name, labels={"app": "db"}, **wish)
    await world.settle(seconds=60)
    home = {vm.owner.name: vm.domain for vm in world.vms()}
    assert len({home["db-1"], home["db-2"]}) == 2
    moved(world, "db-2", home["db-1"])
    await world.settle(seconds=60)
    for name, other in (("db-1", "db-2"), ("db-2", "db-1")):
        told = world.condition("PlacementValid", name)
        assert (told["status"], told["reason"]) == ("False", "AntiAffinityUnsatisfied")
        assert f"apart from {other}" in told["message"]
        assert world.condition("Ready", name)["status"] == "True"
    assert world.condition("PlacementValid", "db-3")["status"] == "True"
    before = [world.machine(name) for name in names]
    world.restart()
    await world.settle(seconds=60)
    assert [world.machine(name) for name in names] == before
    moved(world, "db-2", home["db-2"])
    await world.settle(seconds=60)
    assert [world.condition("PlacementValid", name)["status"] for name in names] == ["True"] * 3


async def test_a_machine_that_is_gone_is_no_trouble_any_more() -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b")})
    world.add_vm("db-1", labels={"app": "db"}, **anti_affine())
    await world.settle(seconds=60)
    world.add_vm("db-2", labels={"app": "db"})
    await world.settle(seconds=60)
    moved(world, "db-2", world.vms()[0].domain)
    await world.settle(seconds=60)
    assert world.condition("PlacementValid", "db-1")["status"] == "False"
    world.delete_vm("db-2")
    await world.settle(seconds=60)
    assert world.condition("PlacementValid", "db-1")["status"] == "True"


async def test_a_restart_writes_nothing_about_placements() -> None:
    world = ControllerWorld.ready(one={"domains": ("a", "b")})
    for name in ("db-1", "db-2"):
        world.add_vm(name, labels={"app": "db"}, **anti_affine())
    await world.settle(seconds=60)
    moved(world, "db-2", world.vms()[0].domain)
    await world.settle(seconds=60)
    writes = len(world.api.writes())
    world.restart()
    await world.settle(seconds=60)
    assert len(world.api.writes()) == writes
