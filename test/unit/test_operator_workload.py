"""Applying a Provider is enough: what serves it follows, is put right, and goes with it."""

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    DEPLOYMENTS,
    NAMESPACES,
    PROVIDERS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from banlieue.operator.objects import KINDS
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import FIVE, IMAGE, NAME, OperatorWorld, kinds, served


async def test_a_provider_gets_five_objects_of_one_name() -> None:
    world, key = await served()
    assert tuple(kinds(world, key)) == FIVE
    assert {made.name for _, made in world.made(key)} == {NAME}
    assert world.workload(key) == {
        "namespace": SYSTEM,
        "name": NAME,
        "image": IMAGE,
        "replicas": 1,
        "readyReplicas": 0,
        "updatedReplicas": 0,
        "observedClassGeneration": 1,
        "reason": "WorkloadNotReady",
        "message": world.workload(key)["message"],
    }
    assert NAME in world.workload(key)["message"]
    assert EventReason.WORKLOAD_CREATED in world.recorder.reasons()


async def test_a_provider_costs_seven_writes_and_nothing_at_rest() -> None:
    world, key = await served()
    assert dict(world.writes()) == {
        "json_patch Provider": 1,
        "create ServiceAccount": 1,
        "create Role": 1,
        "create RoleBinding": 1,
        "create ClusterRoleBinding": 1,
        "create Deployment": 1,
        "apply Provider/status": 1,
        "apply ProviderClass/status": 1,
    }
    world.pod_is_ready(key)
    await world.settle()
    assert world.workload(key)["readyReplicas"] == 1
    assert "reason" not in world.workload(key)
    before = len(world.api.calls)
    world.restart()
    await world.settle()
    asked = [(call.verb, call.resource.kind) for call in world.api.calls[before:]]
    assert asked == [("list", "ThisMachine")], "whether the kind is there; all else is known"


async def test_only_what_may_be_owned_is_owned() -> None:
    world, key = await served()
    (provider,) = world.api.peek_all(PROVIDERS)
    for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, DEPLOYMENTS):
        (owner,) = world.object(resource, key)["metadata"]["ownerReferences"]
        assert owner["uid"] == provider["metadata"]["uid"]
        assert owner["controller"]
    assert "ownerReferences" not in world.object(CLUSTER_ROLE_BINDINGS, key)["metadata"]
    assert names.FINALIZER_PROVIDER_WORKLOAD in provider["metadata"]["finalizers"]


async def test_the_operator_owns_the_workload_in_status_and_never_conditions() -> None:
    world, key = await served()
    manager = names.provider_manager("this", key.namespace, key.name)
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    body = {
        "metadata": {"namespace": key.namespace, "name": key.name},
        "status": {"version": "8", "conditions": [condition]},
    }
    await world.api.apply(PROVIDERS, body, manager=manager, subresource="status")
    world.pod_is_ready(key)
    await world.settle()
    status = (world.provider(key) or {})["status"]
    assert status["version"] == "8"
    assert status["conditions"] == [condition]
    assert status["workload"]["readyReplicas"] == 1


# Names


async def test_the_same_name_in_two_namespaces() -> None:
    world, key = await served()
    other = world.register(namespace="elsewhere")
    await world.settle()
    assert kinds(world, key) == kinds(world, other) == list(FIVE)
    (named,) = {made.name for _, made in world.made(other)}
    assert named.startswith(f"{NAME}-")
    assert world.object(ROLES, other)["metadata"]["namespace"] == "elsewhere"
    world.api.drop(PROVIDERS, key)
    await world.settle()
    assert world.provider(key) is None
    assert kinds(world) == list(FIVE)


async def test_a_name_that_is_too_long() -> None:
    world = OperatorWorld()
    world.add_backend()
    keys = [world.register("p" * 200 + it) for it in ("a", "b")]
    await world.settle()
    made = {made.name for _, made in world.made()}
    assert len(made) == 2
    assert all(len(name) == 63 for name in made)
    for key in keys:
        assert kinds(world, key) == list(FIVE)


async def test_two_backends_whose_names_run_together() -> None:
    world = OperatorWorld()
    world.add_backend("this")
    world.add_backend("this-that")
    first = world.register("that-one")
    await world.settle()
    second = world.register("one", of="this-that")
    await world.settle(seconds=60)
    assert kinds(world, first) == list(FIVE)
    assert world.made(second) == set()
    assert world.workload(second)["reason"] == "WorkloadConflict"


# What is not ours


@pytest.mark.parametrize("resource", KINDS, ids=lambda it: it.kind)
async def test_an_object_of_somebody_else_is_never_overwritten(resource: Resource) -> None:
    world = OperatorWorld()
    world.add_backend(networkPolicy={})
    where = SYSTEM if resource.namespaced else ""
    foreign = world.api.put(resource, {"metadata": {"namespace": where, "name": NAME}, "spec": {}})
    key = world.register()
    await world.settle(seconds=300)
    there = world.api.peek(resource, Key(where, NAME))
    assert there == foreign
    told = world.workload(key)
    assert told["reason"] == "WorkloadConflict"
    assert resource.kind in told["message"]
    assert EventReason.WORKLOAD_CONFLICT in world.recorder.reasons()
    assert "conditions" not in (world.provider(key) or {})["status"]
    if resource == SERVICE_ACCOUNTS:
        assert world.made(key) == set(), "nothing is bound to somebody else's account"

    world.api.drop(resource, Key(where, NAME))
    await world.settle(seconds=300)
    assert kinds(world, key) == sorted((*FIVE, "NetworkPolicy"))
    assert world.workload(key)["reason"] == "WorkloadNotReady"


async def test_an_object_of_somebody_else_outlives_the_provider() -> None:
    world = OperatorWorld()
    world.add_backend()
    world.api.put(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": NAME}})
    key = world.register()
    await world.settle(seconds=60)
    world.api.drop(PROVIDERS, key)
    await world.settle()
    assert world.provider(key) is None
    assert world.made() == set()
    assert world.api.peek(CLUSTER_ROLE_BINDINGS, Key("", NAME))


# Another namespace


async def test_a_workload_in_another_namespace() -> None:
    world = OperatorWorld()
    world.add_backend(workloadNamespace="elsewhere")
    key = world.register()
    await world.settle()
    assert kinds(world, key) == list(FIVE)
    for resource in (DEPLOYMENTS, SERVICE_ACCOUNTS):
        meta = world.object(resource, key)["metadata"]
        assert meta["namespace"] == "elsewhere"
        assert "ownerReferences" not in meta
    for resource in (ROLES, ROLE_BINDINGS):
        meta = world.object(resource, key)["metadata"]
        assert meta["namespace"] == SYSTEM
        assert meta["ownerReferences"]
    (subject,) = world.object(ROLE_BINDINGS, key)["subjects"]
    assert subject["namespace"] == "elsewhere"
    assert world.workload(key)["namespace"] == "elsewhere"

    world.api.drop(PROVIDERS, key)
    await world.settle()
    assert world.provider(key) is None
    assert world.made() == set()


async def test_a_workload_moves_and_leaves_nothing() -> None:
    world, key = await served()
    for namespace in ("elsewhere", SYSTEM, "elsewhere"):
        world.edit_backend(workloadNamespace=namespace)
        await world.settle()
        assert kinds(world, key) == list(FIVE)
        assert world.deployment(key)["metadata"]["namespace"] == namespace
        assert world.workload(key)["namespace"] == namespace


async def test_a_workload_stays_while_there_is_no_namespace_to_move_it_to() -> None:
    """A slip of the pen in a class takes no process from any Provider."""
    world, key = await served()
    before = world.made()
    world.edit_backend(workloadNamespace="elsewere")
    await world.settle()
    assert world.made() == before
    told = world.workload(key)
    assert (told["reason"], told["namespace"]) == ("WorkloadRefused", SYSTEM)
    for part in ("'elsewere'", "does not exist", "spec.workloadNamespace"):
        assert part in told["message"]

    gone = world.api.put(NAMESPACES, {"metadata": {"name": "elsewere", "finalizers": ["x.io/y"]}})
    world.api.drop(NAMESPACES, Key.of(gone))
    await world.settle(seconds=20)
    assert "is being deleted" in world.workload(key)["message"]
    assert world.made() == before

    world.api.drop(NAMESPACES, Key.of(gone), force=True)
    world.api.put(NAMESPACES, {"metadata": {"name": "elsewere"}})
    await world.settle(seconds=20)
    assert world.workload(key)["namespace"] == "elsewere"
    assert kinds(world, key) == list(FIVE)


async def test_a_provider_is_deleted_that_was_to_move_nowhere() -> None:
    world, key = await served()
    world.edit_backend(workloadNamespace="nowhere")
    await world.settle()
    world.api.drop(PROVIDERS, key)
    await world.settle()
    assert world.provider(key) is None
    assert world.made() == set()


# Hands off


@pytest.mark.parametrize("where", ["provider", "class"])
async def test_paused_leaves_the_workload_alone(where: str) -> None:
    world, key = await served()
    before = world.made(key)

    def pause(*, paused: bool) -> None:
        if where == "provider":
            world.edit_provider(key, paused=paused)
        else:
            world.edit_backend(paused=paused)

    pause(paused=True)
    await world.settle()
    assert world.workload(key)["reason"] == "Paused"
    world.edit_backend(image={"tag": "v2"})
    scaled = {"replicas": 0}
    world.api.edit(
        DEPLOYMENTS, Key.of(world.deployment(key)), lambda obj: obj["spec"].update(scaled)
    )
    await world.settle()
    assert world.made(key) == before
    assert world.container(key)["image"] == IMAGE
    assert world.deployment(key)["spec"]["replicas"] == 0
    pause(paused=False)
    await world.settle()
    assert world.container(key)["image"] == "registry.example.com/banlieue:v2"
    assert world.deployment(key)["spec"]["replicas"] == 1


async def test_a_new_provider_that_is_paused_gets_nothing() -> None:
    world = OperatorWorld()
    world.add_backend()
    key = world.register(paused=True)
    await world.settle()
    assert world.made() == set()
    assert "finalizers" not in (world.provider(key) or {})["metadata"]


# Rights


async def test_credentials_that_change_are_readable_and_the_old_ones_until_let_go() -> None:
    world, key = await served()
    world.use(key)
    await world.settle()
    to = {"endpoint": "https://a.example.com", "credentialsRef": {"name": "new"}}
    world.edit_provider(key, connection=to)
    await world.settle()
    assert secrets(world, key) == ["new", "prod-creds"]

    def seen(obj: Obj) -> None:
        obj["status"]["observedGeneration"] = obj["metadata"]["generation"]

    world.api.edit(PROVIDERS, key, seen)
    await world.settle()
    assert secrets(world, key) == ["new"]


async def test_credentials_nothing_depends_on_are_dropped_at_once() -> None:
    world, key = await served()
    to = {"endpoint": "https://a.example.com", "credentialsRef": {"name": "new"}}
    world.edit_provider(key, connection=to)
    await world.settle()
    assert secrets(world, key) == ["new"]


def secrets(world: OperatorWorld, key: Key) -> list[str]:
    rules = world.object(ROLES, key)["rules"]
    (found,) = [rule["resourceNames"] for rule in rules if rule["resources"] == ["secrets"]]
    return list(found)


async def test_a_refusal_is_told_and_tried_again() -> None:
    world = OperatorWorld()
    world.add_backend()

    def refuse(call: Call, moment: Moment) -> None:
        if call.verb == "create" and call.resource == DEPLOYMENTS and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", "exceeded quota: pods")

    allow = world.api.intercept(refuse)
    key = world.register()
    await world.settle(seconds=40)
    told = world.workload(key)
    assert told["reason"] == "WorkloadRefused"
    assert "exceeded quota" in told["message"]
    assert EventReason.WORKLOAD_REFUSED in world.recorder.reasons()
    allow()
    await world.settle(seconds=60)
    assert kinds(world, key) == list(FIVE)
    assert world.workload(key)["reason"] == "WorkloadNotReady"


async def test_the_deployments_own_trouble_is_told() -> None:
    world, key = await served()

    def fail(obj: Obj) -> None:
        obj["status"] = {
            "observedGeneration": obj["metadata"]["generation"],
            "conditions": [
                {"type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity"}
            ],
        }

    world.api.edit(DEPLOYMENTS, Key.of(world.deployment(key)), fail)
    await world.settle()
    assert "violates PodSecurity" in world.workload(key)["message"]


async def test_a_restored_status_is_put_right() -> None:
    world, key = await served()

    def restore(obj: Obj) -> None:
        obj["status"]["workload"] = {"name": "other", "readyReplicas": 7, "reason": "Old"}

    world.api.edit(PROVIDERS, key, restore)
    await world.settle()
    assert world.workload(key)["name"] == NAME
    assert world.workload(key)["readyReplicas"] == 0
