"""What a machine of Cluster API is put through in rehearsals of its contract, by the whole of us.

`test_capi_contract.py` lists all rules and points of the contract with their tests.
"""

import copy

import pytest

from banlieue.api import names
from banlieue.api.resources import CAPI_MACHINES, CONFIG_MAPS, IP_ADDRESS_CLAIMS, PROVIDERS
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.ports import Unreached
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from test.kit.addresspool import AddressPool
from test.kit.capiworld import CLUSTER, CapiWorld
from test.kit.controllerworld import NAMESPACE, SYSTEM

NODE = Key(NAMESPACE, "node-1")
ODD = "Kein Zugriff: «größe»\r\n\tat line 3\x00\x1b[31m " + "é" * 40_000
CORES = {
    "labels": {names.CAPI_LABEL_CLUSTER_NAME: CLUSTER, "cluster.x-k8s.io/set-name": "workers"},
    "annotations": {
        "cluster.x-k8s.io/cloned-from-name": "workers",
        "cluster.x-k8s.io/cloned-from-groupkind": "SimulatedMachineTemplate.x",
    },
}
"""What Cluster API's owners write into the metadata of a machine object."""


async def made(world: CapiWorld | None = None) -> CapiWorld:
    """A world with one machine that is Ready."""
    world = world or CapiWorld.with_cluster()
    world.add_machine(domain="one-a")
    world.edit("node-1", lambda it: it["metadata"].update(copy.deepcopy(CORES)))
    await world.settle()
    assert world.told() == ("True", "Ready")
    return world


def theirs(obj: Obj) -> dict[str, object]:
    """The metadata that is Cluster API's."""
    return {it: obj["metadata"].get(it) for it in ("labels", "annotations", "ownerReferences")}


@pytest.mark.parametrize("code", ["NoPermission", "InvalidArgument", "NoDiskSpace", "GeneralFault"])
async def test_whatever_a_backend_says_core_can_read_the_conditions(code: str) -> None:
    """Line ends, control characters, a foreign language, more than a message holds."""
    world = CapiWorld.with_cluster()
    for process in world.serving.values():
        rule = {"effect": "fail-task", "code": code, "message": ODD, "method": "create"}
        process.backend.control("inject", {"rule": {**rule, "count": 3}})
    world.add_machine()
    await world.settle(seconds=30.0)
    await world.settle(seconds=900.0)
    assert world.faults == []
    said = world.says()["message"]
    assert not any(ord(it) < ord(" ") for it in said)
    await world.delete_machine()
    assert world.faults == []
    assert (world.node(), world.every_vm()) == ({}, [])


async def test_what_cluster_api_wrote_into_the_metadata_is_left_as_it_is() -> None:
    """Its owners write it anew all the time, and never look where `cloned-from` is missing."""
    world = CapiWorld.with_cluster()
    world.add_machine(domain="one-a")
    world.edit("node-1", lambda it: it["metadata"].update(copy.deepcopy(CORES)))
    before = theirs(world.node())
    seen: list[dict[str, object]] = []
    world.api.subscribe(
        lambda it: (
            seen.append(theirs(it.new)) if it.resource == SIMULATED_MACHINES and it.new else None
        )
    )
    await world.settle()
    world.restart()
    await world.settle()
    await world.delete_machine()
    assert len(seen) > 4
    assert all(it == before for it in seen)


async def test_a_resumed_cluster_is_enough_to_go_on() -> None:
    """Nothing else changes then, so nothing else tells."""
    world = CapiWorld.with_cluster()
    world.pause()
    world.add_machine()
    await world.settle()
    assert world.told(kind="Paused") == ("True", "Paused")
    world.pause(paused=False)
    await world.settle()
    assert world.told() == ("True", "Ready")
    world.pause()
    await world.settle()
    assert world.told(kind="Paused") == ("True", "Paused")
    world.api.drop(CAPI_MACHINES, NODE)
    world.api.drop(SIMULATED_MACHINES, NODE)
    await world.settle()
    assert world.node()
    world.pause(paused=False)
    await world.settle()
    assert (world.node(), world.every_vm()) == ({}, [])


@pytest.mark.identity("2.5")
@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "with an address"])
async def test_finalizers_that_were_stripped_in_a_pause_come_back_exactly(*, pooled: bool) -> None:
    world = CapiWorld.with_cluster()
    wished = names.machine_finalizer(SIMULATED_MACHINES.kind)
    expected = {wished, names.FINALIZER_ADDRESSES} if pooled else {wished}
    nic = {"name": "eth0", "networkClass": "prod"}
    if pooled:
        pool = AddressPool(world.api)
        world.others.append(pool.step)
        world.edit_provider(
            "one",
            lambda it: it["spec"]["capabilities"]["networkClasses"][0].update(
                subnets=[pool.subnet()]
            ),
        )
        world.serving["one"].restart()
        nic["ipam"] = [{"family": "IPv4", "source": "pool"}]  # type: ignore[assignment] # a list
    world.add_machine(domain="one-a", networkInterfaces=[nic])
    await world.settle()
    assert set(world.node()["metadata"]["finalizers"]) == expected
    before = world.every_vm()
    world.pause()
    await world.settle()
    world.edit("node-1", lambda it: it["metadata"].update(finalizers=[]))
    await world.settle()
    assert not world.node()["metadata"].get("finalizers"), "hands off while it is paused"
    world.pause(paused=False)
    await world.settle(seconds=60.0)
    assert set(world.node()["metadata"]["finalizers"]) == expected
    assert world.every_vm() == before
    assert world.told() == ("True", "Ready")


@pytest.mark.identity("2.5")
@pytest.mark.parametrize("why", ["paused", "not reached yet", "restored elsewhere"])
async def test_finalizers_stay_off_where_nothing_may_be_changed(why: str) -> None:
    world = await made()
    serving = world.serving["one"]
    if why == "paused":
        serving.served.writable = False
    elif why == "not reached yet":
        # It may be paused, and its backend switched off for good.
        serving.served = Unreached(serving.served.provider, None)  # type: ignore[assignment] # another way to be open
    else:
        config = Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)
        world.api.edit(
            CONFIG_MAPS, config, lambda it: it["data"].update(clusterUID="of-the-original")
        )
    world.edit("node-1", lambda it: it["metadata"].update(finalizers=[]))
    await world.settle(seconds=60.0)
    assert not world.node()["metadata"].get("finalizers")


async def test_a_machine_whose_owner_reference_was_stripped_and_put_back_is_as_before() -> None:
    world = await made()
    before, calls = world.node(), world.backend_changes()
    world.edit("node-1", lambda it: it["metadata"].update(ownerReferences=[]))
    await world.settle(seconds=120.0)
    assert world.every_vm() == [before["spec"]["instance"]["uuid"]]
    world.claim()
    await world.settle()
    assert world.backend_changes() == calls
    after = world.node()
    assert (after["spec"], after["metadata"]["finalizers"]) == (
        before["spec"],
        before["metadata"]["finalizers"],
    )
    assert world.told() == ("True", "Ready")


async def test_nothing_that_moves_belongs_to_what_does_not() -> None:
    """An owner of a kind that clusterctl does not move keeps an object at the source, silently."""
    world = CapiWorld.with_cluster()
    pool = AddressPool(world.api)
    world.others.append(pool.step)
    world.edit_provider(
        "one",
        lambda it: it["spec"]["capabilities"]["networkClasses"][0].update(subnets=[pool.subnet()]),
    )
    world.serving["one"].restart()
    ipam = [{"family": "IPv4", "source": "pool"}]
    nic = {"name": "eth0", "networkClass": "prod", "ipam": ipam}
    world.add_machine(domain="one-a", networkInterfaces=[nic])
    await world.settle()
    (claim,) = world.api.peek_all(IP_ADDRESS_CLAIMS)
    assert {it["kind"] for it in claim["metadata"]["ownerReferences"]} == {SIMULATED_MACHINES.kind}
    assert {it["kind"] for it in world.node()["metadata"]["ownerReferences"]} == {"Machine"}
    provider = world.api.peek(PROVIDERS, Key(SYSTEM, "one")) or {}
    assert not provider["metadata"].get("ownerReferences")


@pytest.mark.parametrize(
    ("effect", "code"),
    [("refuse", "NotAuthenticated"), ("cut", "GeneralFault"), ("refuse", "NoPermission")],
)
async def test_a_backend_that_does_not_answer_or_refuses_us_frees_no_machine(
    effect: str, code: str
) -> None:
    """Neither counts as gone: the finalizer stays until the backend was asked and the VM went."""
    world = await made()
    (uuid,) = world.every_vm()
    for process in world.serving.values():
        rule = {"effect": effect, "code": code, "count": None}
        process.backend.control("inject", {"rule": rule})
    await world.delete_machine()
    await world.settle(seconds=900.0)
    assert world.node()["metadata"]["finalizers"]
    assert world.told()[0] in {"False", "Unknown"}
    assert world.every_vm() == [uuid]
    for process in world.serving.values():
        process.backend.control("heal", {})
    await world.settle(seconds=900.0)
    assert (world.node(), world.every_vm()) == ({}, [])
