"""A Provider is served until its last machine is gone, and then nothing of it is left."""

from collections.abc import Callable

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    DEPLOYMENTS,
    PROVIDERS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.operatorworld import FIVE, MACHINES, OperatorWorld, kinds, served

# The end


async def test_all_goes_with_the_provider() -> None:
    world, key = await served()
    world.api.drop(PROVIDERS, key)
    await world.settle()
    assert world.provider(key) is None
    assert world.made() == set()
    assert EventReason.WORKLOAD_REMOVED in world.recorder.reasons()


async def test_a_deleted_provider_is_served_while_it_has_machines() -> None:
    world, key = await served()
    world.use(key)
    world.api.drop(PROVIDERS, key)
    await world.settle(seconds=60)
    told = world.workload(key)
    assert told["reason"] == "ProviderInUse"
    assert "machines" in told["message"]
    assert EventReason.PROVIDER_IN_USE in world.recorder.reasons()
    assert kinds(world, key) == list(FIVE)

    world.api.drop(DEPLOYMENTS, Key.of(world.deployment(key)))
    world.edit_backend(image={"tag": "v2"})
    await world.settle(seconds=60)
    assert world.container(key)["image"] == "registry.example.com/banlieue:v2"

    world.use(key, used=False)
    await world.settle(seconds=60)
    assert world.provider(key) is None
    assert world.made() == set()


async def test_machines_hold_a_provider_without_its_finalizer() -> None:
    """A backup may have brought the machines back, and the Provider without the finalizer."""
    world, key = await served()
    world.add_machine("one", key)
    world.api.drop(PROVIDERS, key)
    await world.settle(seconds=60)
    assert world.workload(key)["reason"] == "ProviderInUse"
    assert "1 machines" in world.workload(key)["message"]
    world.api.drop(MACHINES, Key("tenant", "one"))
    await world.settle(seconds=60)
    assert world.provider(key) is None
    assert world.made() == set()


def forbid_listing(world: OperatorWorld) -> Callable[[], None]:
    def refuse(call: Call, moment: Moment) -> None:
        if call.resource == MACHINES and call.verb == "list" and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", "cannot list thismachines")

    return world.api.intercept(refuse)


async def test_machines_that_may_not_be_listed_hold_their_provider_and_say_so() -> None:
    world, key = await served()
    allow = forbid_listing(world)
    world.api.drop(PROVIDERS, key)
    await world.settle(seconds=60)
    assert kinds(world, key) == list(FIVE)
    assert world.workload(key)["reason"] == "WorkloadRefused"
    assert "aggregate-to-operator" in world.workload(key)["message"]
    allow()
    await world.settle(seconds=60)
    assert world.provider(key) is None
    assert world.made() == set()


async def test_machines_of_another_backend_that_may_not_be_listed_hold_nothing_up() -> None:
    world = OperatorWorld()
    world.add_backend("this")
    world.add_backend("that")
    key = world.register(of="that")
    await world.settle()
    forbid_listing(world)
    world.api.drop(PROVIDERS, key)
    await world.settle(seconds=60)
    assert world.provider(key) is None
    assert world.made() == set()


async def test_a_provider_deleted_in_the_foreground_is_served_while_it_has_machines() -> None:
    """The garbage collector takes away what it owns at once, and does so again and again."""
    world, key = await served()
    world.use(key)

    def in_foreground(obj: Obj) -> None:
        obj["metadata"]["finalizers"].append("foregroundDeletion")

    world.api.edit(PROVIDERS, key, in_foreground)
    world.api.drop(PROVIDERS, key)
    for resource in (DEPLOYMENTS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS):
        world.api.drop(resource, Key.of(world.object(resource, key)))
    await world.settle(seconds=60)
    assert kinds(world, key) == list(FIVE)
    for resource in (DEPLOYMENTS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS):
        assert "ownerReferences" not in world.object(resource, key)["metadata"]

    def leave(obj: Obj) -> None:
        obj["metadata"]["finalizers"] = [names.FINALIZER_PROVIDER_WORKLOAD]

    world.api.edit(PROVIDERS, key, leave)
    await world.settle(seconds=60)
    assert world.provider(key) is None
    assert world.made() == set()


async def test_a_paused_provider_is_not_taken_apart() -> None:
    world, key = await served()
    world.edit_provider(key, paused=True)
    world.api.drop(PROVIDERS, key)
    await world.settle(seconds=60)
    assert kinds(world, key) == list(FIVE)
    assert world.workload(key)["reason"] == "Paused"
    world.edit_provider(key, paused=False)
    await world.settle(seconds=60)
    assert world.provider(key) is None


async def test_what_a_forced_deletion_leaves_behind_is_found() -> None:
    world, key = await served()
    world.restart()
    world.api.drop(PROVIDERS, key, force=True)
    await world.settle()
    assert world.made() == set()


async def test_an_object_without_its_labels_goes_too() -> None:
    world, key = await served()
    world.edit_provider(key, paused=True)
    binding = Key.of(world.object(CLUSTER_ROLE_BINDINGS, key))
    world.api.edit(CLUSTER_ROLE_BINDINGS, binding, lambda obj: obj["metadata"].pop("labels"))
    world.api.drop(PROVIDERS, key)
    world.edit_provider(key, paused=False)
    await world.settle()
    assert world.provider(key) is None
    assert world.made() == set()


async def test_a_provider_that_is_made_anew_is_served_anew() -> None:
    world, key = await served()
    world.api.drop(PROVIDERS, key, force=True)
    world.register()
    await world.settle()
    (provider,) = world.api.peek_all(PROVIDERS)
    (owner,) = world.deployment(key)["metadata"]["ownerReferences"]
    assert owner["uid"] == provider["metadata"]["uid"]
    assert provider["metadata"]["uid"] in str(world.object(ROLES, key)["rules"])


async def test_a_restored_provider_of_another_uid_takes_its_objects_over() -> None:
    world, key = await served()
    restored = {**(world.provider(key) or {})}
    restored["metadata"] = {**restored["metadata"], "uid": "11111111-2222-3333-4444-555555555555"}
    world.api.put(PROVIDERS, restored)
    await world.settle()
    (owner,) = world.deployment(key)["metadata"]["ownerReferences"]
    assert owner["uid"] == restored["metadata"]["uid"]
