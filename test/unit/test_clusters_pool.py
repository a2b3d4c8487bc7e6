"""The control plane endpoint from an address pool."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.resources import (
    CAPI_CLUSTERS,
    CAPI_MACHINES,
    CONFIG_MAPS,
    IP_ADDRESS_CLAIMS,
    IP_ADDRESSES,
)
from banlieue.controller.clusters import pool
from banlieue.sdk.kube import Conflict, Key, Obj
from test.kit.addresspool import AddressPool
from test.kit.clusterworld import ENDPOINT, THIS_CLUSTER, ClusterWorld
from test.kit.controllerworld import CLUSTER_UID, NAMESPACE, SYSTEM, THIS, restored

HOST = "10.0.0.10"
FIRST = {"host": HOST, "port": 6443}


class PooledWorld(ClusterWorld):
    """A world with a pool of two addresses."""

    pool: AddressPool

    @classmethod
    def made(cls) -> "PooledWorld":
        """With one Provider."""
        world = cls()
        world.add_provider("one")
        world.pool = AddressPool(world.api)
        return world

    @property
    def wish(self) -> dict[str, Any]:
        """What a cluster asks for."""
        return {**self.pool.reference, "port": 6443}

    async def play(self) -> None:
        """Let controller and pool work until both are done."""
        await self.settle(seconds=60.0)
        while self.pool.step():
            await self.settle(seconds=60.0)

    def claims(self) -> list[Obj]:
        """All claims there are."""
        return self.api.peek_all(IP_ADDRESS_CLAIMS)

    def there(self, name: str = "prod") -> bool:
        """Whether the cluster is there."""
        return self.api.peek(THIS_CLUSTER, Key(NAMESPACE, name)) is not None

    def add_node(self, name: str = "node-1", cluster: str = "prod") -> None:
        """A Machine of the cluster."""
        labels = {names.CAPI_LABEL_CLUSTER_NAME: cluster}
        self.api.put(
            CAPI_MACHINES, {"metadata": {"namespace": NAMESPACE, "name": name, "labels": labels}}
        )


@pytest.fixture
def world() -> Iterator[PooledWorld]:
    made = PooledWorld.made()
    yield made
    assert made.faults == []


async def test_an_address_is_claimed_and_becomes_the_endpoint(world: PooledWorld) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.settle()
    status, reason, message = world.is_ready()
    assert (status, reason) == ("False", "WaitingForControlPlaneEndpoint")
    assert "LabPool lab gives no address" in message
    assert not world.provisioned()
    (claim,) = world.claims()
    assert claim["spec"] == {"clusterName": "prod", "poolRef": world.pool.reference}
    assert claim["metadata"]["labels"] == {names.CAPI_LABEL_CLUSTER_NAME: "prod"}
    (reference,) = claim["metadata"]["ownerReferences"]
    assert reference["uid"] == world.cluster()["metadata"]["uid"]
    assert (reference["controller"], reference["blockOwnerDeletion"]) == (True, True)

    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
    assert world.is_ready() == ("True", "Ready", "")
    assert world.provisioned()


async def test_an_endpoint_that_stands_is_left_whatever_the_pool_says(world: PooledWorld) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    (claim,) = world.claims()
    other = {**world.wish, "name": "another"}
    world.edit_cluster(lambda it: it["spec"].update(controlPlaneEndpointPool=other))
    world.api.drop(IP_ADDRESSES, Key.of(claim))
    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
    assert [it["metadata"]["uid"] for it in world.claims()] == [claim["metadata"]["uid"]]


@pytest.mark.parametrize("given", ["here", "cluster"])
async def test_nothing_is_claimed_where_somebody_gives_the_endpoint(
    world: PooledWorld, given: str
) -> None:
    if given == "cluster":
        world.add_owner(controlPlaneEndpoint=ENDPOINT)
    own: dict[str, Any] = {"controlPlaneEndpoint": ENDPOINT} if given == "here" else {}
    world.add_cluster(controlPlaneEndpointPool=world.wish, **own)
    await world.play()
    assert world.claims() == []
    assert world.provisioned()
    assert "finalizers" not in world.cluster()["metadata"]


async def test_nothing_is_claimed_for_a_cluster_that_is_not_ours_to_touch(
    world: PooledWorld,
) -> None:
    world.add_owner("stopped", paused=True)
    world.add_cluster("stopped", controlPlaneEndpointPool=world.wish)
    world.add_cluster("nobodys", owned=False, controlPlaneEndpointPool=world.wish)
    note = {names.CAPI_ANNOTATION_MANAGED_BY: ""}
    world.add_cluster("others", annotations=note, controlPlaneEndpointPool=world.wish)
    await world.play()
    assert world.claims() == []
    for name in ("stopped", "nobodys", "others"):
        assert "finalizers" not in world.cluster(name)["metadata"]
    world.edit_owner("stopped", paused=False)
    await world.play()
    assert world.provisioned("stopped")


async def test_a_pause_that_the_cache_does_not_know_yet_holds_the_claim(
    world: PooledWorld,
) -> None:
    world.add_owner()
    await world.settle()
    world.api.cache.hold()
    world.edit_owner(paused=True)
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    world.api.cache.follow()
    await world.play()
    assert world.claims() == []


async def test_what_the_pool_says_is_told_and_a_free_address_is_taken(world: PooledWorld) -> None:
    world.pool.free = []
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    assert world.is_ready()[1] == "WaitingForControlPlaneEndpoint"
    assert world.is_ready()[2].endswith("(PoolExhausted): no address left")
    world.pool.free = ["10.0.0.12"]
    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"]["host"] == "10.0.0.12"


async def test_the_address_is_given_back_when_the_last_machine_is_gone(world: PooledWorld) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    world.add_node()
    world.add_node("of-another", "another")
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    world.api.drop(CAPI_CLUSTERS, Key(NAMESPACE, "prod"))
    await world.play()
    assert world.there()
    assert len(world.claims()) == 1
    assert "held by banlieue.io/addresses" in world.is_ready()[2]
    world.api.drop(CAPI_MACHINES, Key(NAMESPACE, "node-1"))
    world.clock.advance(10.0)
    await world.play()
    assert not world.there()
    assert world.claims() == []
    assert sorted(world.pool.free) == ["10.0.0.10", "10.0.0.11"]


async def test_a_finalizer_that_was_stripped_comes_back(world: PooledWorld) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    world.edit_cluster(lambda it: it["metadata"].update(finalizers=[]))
    await world.play()
    assert world.cluster()["metadata"]["finalizers"] == [names.FINALIZER_ADDRESSES]


async def test_a_paused_cluster_keeps_its_address(world: PooledWorld) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    world.edit_owner(paused=True)
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    await world.play()
    assert world.there()
    assert len(world.claims()) == 1
    world.edit_owner(paused=False)
    await world.play()
    assert not world.there()


@pytest.mark.parametrize("how", ["managed", "orphaned"])
async def test_a_cluster_nobody_asks_us_to_manage_is_not_held_for_ever(
    world: PooledWorld, how: str
) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()

    def change(it: Obj) -> None:
        if how == "managed":
            it["metadata"]["annotations"] = {names.CAPI_ANNOTATION_MANAGED_BY: ""}
        else:
            del it["metadata"]["ownerReferences"]

    world.edit_cluster(change)
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    await world.play()
    assert not world.there()
    assert world.claims() == []


async def test_a_move_takes_claim_and_endpoint_along(world: PooledWorld) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    world.edit_owner(paused=True)
    await world.play()
    (claim,), cluster = world.claims(), world.cluster()
    note = {names.CAPI_ANNOTATION_DELETE_FOR_MOVE: ""}
    world.edit_cluster(lambda it: it["metadata"].update(annotations=note))
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    await world.play()
    assert world.there(), "the mover takes the finalizer off itself"
    world.edit_cluster(lambda it: it["metadata"].update(finalizers=[]))
    assert not world.there()
    if world.claims():
        world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim))

    fresh = world.api.put(THIS_CLUSTER, restored(cluster, uid="new", status=False))
    moved = restored(claim, uid="new-claim", status=False)
    moved["metadata"]["ownerReferences"][0]["uid"] = fresh["metadata"]["uid"]
    world.api.put(IP_ADDRESS_CLAIMS, moved)
    world.edit_owner(paused=False)
    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
    assert world.provisioned()
    assert [it["metadata"]["uid"] for it in world.claims()] == ["new-claim"]


async def test_a_claim_of_somebody_else_is_not_taken(world: PooledWorld) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.settle()
    (claim,) = world.claims()
    stolen = [{**claim["metadata"]["ownerReferences"][0], "name": "web", "kind": "Other"}]
    world.api.edit(
        IP_ADDRESS_CLAIMS, Key.of(claim), lambda it: it["metadata"].update(ownerReferences=stolen)
    )
    await world.play()
    assert "controlPlaneEndpoint" not in world.cluster()["spec"]
    assert "was made for something else" in world.is_ready()[2]
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    await world.play()
    assert not world.there()
    assert len(world.claims()) == 1, "nor is it ended"


@pytest.mark.parametrize("lost", ["owners", "uid"])
async def test_a_claim_that_was_restored_is_taken_up_again(world: PooledWorld, lost: str) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.settle()
    (claim,) = world.claims()

    def change(it: Obj) -> None:
        if lost == "owners":
            it["metadata"]["ownerReferences"] = []
        else:
            it["metadata"]["ownerReferences"][0]["uid"] = "older"

    world.api.edit(IP_ADDRESS_CLAIMS, Key.of(claim), change)
    world.clock.advance(60.0)
    await world.play()
    world.edit_cluster(lambda it: it["metadata"].update(labels={"looked": "at"}))
    await world.play()
    (found,) = world.claims()
    assert found["metadata"]["ownerReferences"] == claim["metadata"]["ownerReferences"]
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST


async def test_another_pool_before_the_endpoint_stands_ends_the_first_claim(
    world: PooledWorld,
) -> None:
    wrong = {**world.wish, "name": "typo"}
    world.add_cluster(controlPlaneEndpointPool=wrong)
    await world.play()
    (first,) = world.claims()
    world.edit_cluster(lambda it: it["spec"].update(controlPlaneEndpointPool=world.wish))
    await world.play()
    (claim,) = world.claims()
    assert claim["metadata"]["name"] != first["metadata"]["name"]
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it["spec"]["claimRef"].update(name="another"),
        lambda it: it["spec"].update(address="not-one"),
        lambda it: it["spec"].pop("address"),
    ],
)
async def test_an_address_that_is_none_for_the_claim_is_not_used(
    world: PooledWorld, change: Callable[[Obj], object]
) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.settle()
    world.pool.step()
    (address,) = world.api.peek_all(IP_ADDRESSES)
    good = copy.deepcopy(address)
    world.api.edit(IP_ADDRESSES, Key.of(address), change)
    await world.settle(seconds=60.0)
    assert "controlPlaneEndpoint" not in world.cluster()["spec"]
    assert "is no address for IPAddressClaim" in world.is_ready()[2]
    world.api.edit(IP_ADDRESSES, Key.of(address), lambda it: it.update(spec=good["spec"]))
    await world.settle(seconds=60.0)
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST


async def test_two_clusters_never_share_an_address(world: PooledWorld) -> None:
    for name in ("prod", "test"):
        world.add_cluster(name, controlPlaneEndpointPool=world.wish)
    await world.play()
    hosts = {world.cluster(it)["spec"]["controlPlaneEndpoint"]["host"] for it in ("prod", "test")}
    assert hosts == {"10.0.0.10", "10.0.0.11"}


@pytest.mark.parametrize("lost", [False, True], ids=["before", "reply"])
async def test_a_controller_killed_at_any_write_claims_once(*, lost: bool) -> None:
    for write in range(1, 20):
        world = PooledWorld.made()
        world.crash_at(write, before_reply=lost)
        world.add_cluster(controlPlaneEndpointPool=world.wish)
        await world.play()
        assert world.provisioned(), f"killed at {write}"
        assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
        assert len(world.claims()) == 1
        assert world.pool.history == ["10.0.0.10"]
        if not world.crashed:
            assert write > 4
            return
    raise AssertionError("there is no end of writes")


async def test_a_stale_look_at_the_cluster_ends_no_claim_that_the_endpoint_came_by(
    world: PooledWorld,
) -> None:
    world.add_cluster(controlPlaneEndpointPool={**world.wish, "name": "empty"})
    await world.settle(seconds=60.0)
    world.edit_cluster(lambda it: it["spec"].update(controlPlaneEndpointPool=world.wish))
    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
    stale = copy.deepcopy(world.cluster())
    stale["spec"]["controlPlaneEndpointPool"]["name"] = "empty"
    stale["spec"].pop("controlPlaneEndpoint")
    stale["metadata"]["resourceVersion"] = "1"
    with pytest.raises(Conflict):
        await pool.settle(world.role.services, THIS_CLUSTER, stale, Key(NAMESPACE, "prod"))
    (claim,) = world.claims()
    assert not claim["metadata"].get("deletionTimestamp")
    assert list(world.pool.given.values()) == [HOST]


async def test_a_claim_restored_with_an_earlier_owner_is_taken_up_before_it_is_collected(
    world: PooledWorld,
) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    (claim,) = world.claims()

    def outdate(it: Obj) -> None:
        it["metadata"]["ownerReferences"][0]["uid"] = "of-another-life"

    world.api.edit(IP_ADDRESS_CLAIMS, Key.of(claim), outdate)
    await world.play()
    (found,) = world.claims()
    assert found["metadata"]["ownerReferences"] == claim["metadata"]["ownerReferences"]
    assert list(world.pool.given.values()) == [HOST]


async def test_a_virtual_machine_with_the_label_of_a_cluster_does_not_hold_it(
    world: PooledWorld,
) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    labels = {names.CAPI_LABEL_CLUSTER_NAME: "prod"}
    world.api.put(
        THIS,
        {
            "metadata": {"namespace": NAMESPACE, "name": "db-1", "labels": labels},
            "spec": {"virtualMachineRef": {"name": "db-1", "uid": "x"}, "instance": {"uuid": "y"}},
        },
    )
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    await world.play()
    assert not world.there()


async def test_a_cluster_restored_elsewhere_asks_no_pool_before_that_is_confirmed(
    world: PooledWorld,
) -> None:
    await world.settle()
    key = Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)
    uid = {names.INSTALLATION_CLUSTER_UID: "of-the-original"}
    world.api.edit(CONFIG_MAPS, key, lambda it: it["data"].update(uid))
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    assert world.claims() == []
    assert "banlieue recover --confirm" in world.is_ready()[2]
    note = {names.ANNOTATION_CONFIRMED_CLUSTER: CLUSTER_UID}
    world.api.edit(CONFIG_MAPS, key, lambda it: it["metadata"].update(annotations=note))
    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST


def notices(world: PooledWorld) -> list[str]:
    """What the events about addresses say."""
    events = world.recorder.events
    return [it.message for it in events if it.reason == EventReason.ADDRESS_NOT_ASSIGNED]


async def drop_claim(world: PooledWorld) -> str:
    """Delete the claim of an endpoint that stands, as a hand does; its name."""
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    assert notices(world) == []
    (claim,) = world.claims()
    world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim))
    return str(claim["metadata"]["name"])


async def test_a_claim_that_was_deleted_by_hand_is_made_again(world: PooledWorld) -> None:
    name = await drop_claim(world)
    world.pool.step()  # which takes the address back, and gives it again
    await world.play()
    (claim,) = world.claims()
    assert claim["metadata"]["name"] == name
    assert list(world.pool.given.values()) == [HOST]
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
    assert world.is_ready() == ("True", "Ready", "")
    assert notices(world) == [
        f"made IPAddressClaim {name} of endpoint 10.0.0.10 again: it was gone"
    ]


async def test_a_pool_that_gives_another_address_then_is_told_of_until_it_is_put_right(
    world: PooledWorld,
) -> None:
    name = await drop_claim(world)
    world.pool.step()
    world.pool.free.remove(HOST)  # somebody else has it
    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
    status, reason, message = world.is_ready()
    assert (status, reason) == ("True", "Ready")
    assert f"LabPool lab gave 10.0.0.11 to IPAddressClaim {name}, but 10.0.0.10 is" in message
    assert "reserve 10.0.0.10 in the pool it came from" in message
    assert notices(world)[1:] == [message]
    writes = len(world.api.writes())
    world.clock.advance(600.0)
    await world.play()
    assert (len(world.api.writes()), len(notices(world))) == (writes, 2), "told once"

    world.pool.free = [HOST]
    world.api.drop(IP_ADDRESS_CLAIMS, Key(NAMESPACE, name))
    world.pool.step()
    world.pool.free.remove("10.0.0.11")
    await world.play()
    assert world.is_ready() == ("True", "Ready", "")


async def test_a_claim_that_is_being_deleted_is_told_of_while_the_address_may_go(
    world: PooledWorld,
) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    (claim,) = world.claims()
    held = ["ipam.example.com/held"]
    world.api.edit(
        IP_ADDRESS_CLAIMS, Key.of(claim), lambda it: it["metadata"].update(finalizers=held)
    )
    world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim))
    await world.settle()
    assert "is being deleted while 10.0.0.10 is the endpoint" in world.is_ready()[2]
    world.api.edit(
        IP_ADDRESS_CLAIMS, Key.of(claim), lambda it: it["metadata"].update(finalizers=[])
    )
    await world.play()
    assert len(world.claims()) == 1
    assert world.is_ready() == ("True", "Ready", "")


async def test_a_claim_of_an_earlier_pool_that_does_not_go_hides_nothing(
    world: PooledWorld,
) -> None:
    world.add_cluster(controlPlaneEndpointPool={**world.wish, "name": "typo"})
    await world.play()
    (first,) = world.claims()
    held = ["ipam.example.com/held"]
    world.api.edit(
        IP_ADDRESS_CLAIMS, Key.of(first), lambda it: it["metadata"].update(finalizers=held)
    )
    world.edit_cluster(lambda it: it["spec"].update(controlPlaneEndpointPool=world.wish))
    await world.play()
    assert world.cluster()["spec"]["controlPlaneEndpoint"] == FIRST
    assert world.is_ready() == ("True", "Ready", "")
    assert notices(world) == []

    (claim,) = [it for it in world.claims() if it["metadata"]["name"] != first["metadata"]["name"]]
    world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim))
    world.pool.step()
    await world.play()
    assert len(world.claims()) == 2
    assert list(world.pool.given.values()) == [HOST]


async def test_an_address_that_may_go_is_told_beside_what_else_is_wrong(
    world: PooledWorld,
) -> None:
    name = await drop_claim(world)
    world.pool.step()
    world.pool.free.remove(HOST)
    world.edit_cluster(
        lambda it: it["spec"].update(providerRefs=[{"namespace": SYSTEM, "name": "nobody"}])
    )
    await world.play()
    status, _, message = world.is_ready()
    assert status == "False"
    assert "nobody" in message
    assert f"gave 10.0.0.11 to IPAddressClaim {name}" in message
    told = len(notices(world))
    for _ in range(5):
        world.clock.advance(60.0)
        await world.play()
    assert len(notices(world)) == told


@pytest.mark.parametrize("how", ["paused", "no longer held"])
async def test_a_deleted_claim_is_not_made_again_where_it_is_not_ours_to_make(
    world: PooledWorld, how: str
) -> None:
    world.add_cluster(controlPlaneEndpointPool=world.wish)
    await world.play()
    (claim,) = world.claims()
    if how == "paused":
        world.edit_owner(paused=True)
    world.api.drop(IP_ADDRESS_CLAIMS, Key.of(claim))
    if how == "no longer held":
        world.edit_cluster(lambda it: it["metadata"].update(finalizers=[]))
    await world.play()
    assert world.claims() == []
