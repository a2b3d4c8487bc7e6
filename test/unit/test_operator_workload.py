"""Applying a Provider is enough: what serves it follows, is put right, and goes with it."""

from collections.abc import Callable
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.reasons import EventReason
from banlieue.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    DEPLOYMENTS,
    NETWORK_POLICIES,
    PROVIDER_CLASSES,
    PROVIDERS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from banlieue.operator.objects import KINDS
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import IMAGE, MACHINES, OperatorWorld

FIVE = ("ClusterRoleBinding", "Deployment", "Role", "RoleBinding", "ServiceAccount")
NAME = "banlieue-provider-this-prod"


async def served(**spec: object) -> tuple[OperatorWorld, Key]:
    """A world with one Provider that is served."""
    world = OperatorWorld()
    world.add_backend()
    key = world.register(**spec)  # type: ignore[arg-type]  # a spec
    await world.settle()
    return world, key


def kinds(world: OperatorWorld, key: Key | None = None) -> list[str]:
    return sorted(kind for kind, _ in world.made(key))


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


# Drift


@pytest.mark.parametrize("resource", KINDS, ids=lambda it: it.kind)
async def test_what_is_deleted_comes_back(resource: Resource) -> None:
    world = OperatorWorld()
    world.add_backend(networkPolicy={})
    key = world.register()
    await world.settle()
    before = {it: without_identity(world.object(it, key)) for it in KINDS}
    world.api.drop(resource, Key.of(world.object(resource, key)))
    await world.settle()
    assert {it: without_identity(world.object(it, key)) for it in KINDS} == before


def without_identity(obj: Obj) -> Obj:
    meta = {k: v for k, v in obj["metadata"].items() if k not in {"uid", "resourceVersion"}}
    return {**obj, "metadata": meta}


def _widen(obj: Obj) -> None:
    obj["rules"][2]["resourceNames"].append("other")


def _rebind(obj: Obj) -> None:
    obj["roleRef"]["name"] = "cluster-admin"


def _add_subject(obj: Obj) -> None:
    obj["subjects"].append({"kind": "User", "name": "mallory"})


def _unlabel(obj: Obj) -> None:
    obj["metadata"]["labels"].pop(names.LABEL_WORKLOAD_OF)


def _disown(obj: Obj) -> None:
    obj["metadata"].pop("ownerReferences")


def _scale(obj: Obj) -> None:
    obj["spec"]["replicas"] = 0


def _add_container(obj: Obj) -> None:
    obj["spec"]["template"]["spec"]["initContainers"] = [{"name": "x", "image": "x"}]


def _share_host(obj: Obj) -> None:
    obj["spec"]["template"]["spec"]["hostNetwork"] = True


def _reselect(obj: Obj) -> None:
    obj["spec"]["selector"]["matchLabels"] = {"app": "other"}


@pytest.mark.parametrize(
    ("resource", "drift"),
    [
        (ROLES, _widen),
        (ROLES, _disown),
        (ROLE_BINDINGS, _rebind),
        (CLUSTER_ROLE_BINDINGS, _rebind),
        (CLUSTER_ROLE_BINDINGS, _add_subject),
        (SERVICE_ACCOUNTS, _unlabel),
        (DEPLOYMENTS, _scale),
        (DEPLOYMENTS, _add_container),
        (DEPLOYMENTS, _share_host),
        (DEPLOYMENTS, _reselect),
        (DEPLOYMENTS, _unlabel),
    ],
    ids=lambda it: getattr(it, "kind", getattr(it, "__name__", "")),
)
async def test_drift_is_put_right(resource: Resource, drift: Any) -> None:  # noqa: ANN401 - a function
    world, key = await served()
    before = world.object(resource, key)
    world.api.edit(resource, Key.of(before), drift)
    await world.settle()
    after = world.object(resource, key)
    for part in before:
        if part != "metadata":
            assert after.get(part) == before[part], part
    for part in ("labels", "annotations", "ownerReferences"):
        assert after["metadata"].get(part) == before["metadata"].get(part)
    assert EventReason.WORKLOAD_UPDATED in world.recorder.reasons()


async def test_what_others_may_add_is_left_alone() -> None:
    world, key = await served()

    def annotate(obj: Obj) -> None:
        obj["metadata"]["labels"]["team"] = "a"
        template = obj["spec"]["template"]
        template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "now"
        template["spec"]["restartPolicy"] = "Always"

    edited = world.api.edit(DEPLOYMENTS, Key.of(world.deployment(key)), annotate)
    await world.settle()
    assert world.deployment(key) == edited


async def test_a_webhook_that_insists_is_not_fought(monkeypatch: pytest.MonkeyPatch) -> None:
    world = OperatorWorld()
    world.add_backend()
    create, json_patch = world.api.create, world.api.json_patch

    def insist(resource: Resource, answer: Obj) -> Obj:
        if resource != DEPLOYMENTS:
            return answer
        return world.api.put(resource, mirrored(answer))

    async def created(resource: Resource, obj: Obj, *, manager: str) -> Obj:
        return insist(resource, await create(resource, obj, manager=manager))

    async def patched(resource: Resource, *args: Any, **more: Any) -> Obj:  # noqa: ANN401 - passed on
        return insist(resource, await json_patch(resource, *args, **more))

    monkeypatch.setattr(world.api, "create", created)
    monkeypatch.setattr(world.api, "json_patch", patched)
    key = world.register()
    await world.settle()
    for _ in range(5):
        world.pod_is_ready(key)
        await world.settle()
    written = [call.verb for call in world.api.writes() if call.resource == DEPLOYMENTS]
    assert written == ["create", "json_patch"]


def mirrored(obj: Obj) -> Obj:
    spec = obj["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    pod = {**pod, "containers": [{**container, "image": "mirror/banlieue:v1"}]}
    return {**obj, "spec": {**spec, "template": {**spec["template"], "spec": pod}}}


# Classes


async def test_an_edit_of_a_class_reaches_every_provider_at_once_and_lists_nothing() -> None:
    world = OperatorWorld()
    world.add_backend()
    world.add_backend(called="pinned", image={"tag": "v0"})
    keys = [world.register(f"p{number}") for number in range(20)]
    other = world.register("kept", of="pinned")
    await world.settle()
    before = len(world.api.calls)
    world.edit_backend(image={"repository": "mirror.example.com/banlieue", "tag": "v2"})
    now = world.clock.monotonic()
    await world.settle()
    assert world.clock.monotonic() == now
    for key in keys:
        assert world.container(key)["image"] == "mirror.example.com/banlieue:v2"
        assert world.workload(key)["observedClassGeneration"] == 2
    assert world.container(other)["image"] == "registry.example.com/banlieue:v0"
    calls = [it for it in world.api.calls[before:] if it.resource != PROVIDER_CLASSES]
    assert {call.verb for call in calls} == {"json_patch", "apply"}
    assert len(calls) == 2 * len(keys)


async def test_a_second_class_of_the_backend_pins_the_image_of_one() -> None:
    world, key = await served()
    other = world.register("second")
    world.add_backend(called="this-next", image={"tag": "v2"})
    await world.settle()
    before = world.object(SERVICE_ACCOUNTS, key)
    world.edit_provider(key, providerClassRef={"name": "this-next"})
    await world.settle()
    assert world.container(key)["image"] == "registry.example.com/banlieue:v2"
    assert world.container(other)["image"] == IMAGE
    assert world.object(SERVICE_ACCOUNTS, key) == before


async def test_a_class_of_another_backend_keeps_the_old_workload() -> None:
    world, key = await served()
    world.add_backend("that")
    before = {it: world.object(it, key) for it in (DEPLOYMENTS, ROLES, CLUSTER_ROLE_BINDINGS)}
    world.edit_provider(key, providerClassRef={"name": "that"})
    await world.settle()
    assert {it: world.object(it, key) for it in before} == before
    told = world.workload(key)
    assert told["reason"] == "ProviderClassMismatch"
    assert told["name"] == NAME

    for it, obj in before.items():
        world.api.drop(it, Key.of(obj))
    await world.settle()
    assert not any(kind == "Deployment" for kind, _ in world.made(key))
    world.edit_provider(key, providerClassRef={"name": "this"})
    await world.settle()
    assert kinds(world, key) == list(FIVE)


async def test_a_class_that_goes_tears_nothing_down() -> None:
    world, key = await served()
    before = world.made(key)
    world.api.drop(PROVIDER_CLASSES, Key("", "this"))
    await world.settle()
    assert world.made(key) == before
    assert world.workload(key)["reason"] == "ProviderClassNotFound"
    world.restart()
    await world.settle()
    assert world.made(key) == before


async def test_a_class_that_comes_late_is_enough() -> None:
    world = OperatorWorld()
    key = world.register()
    await world.settle()
    assert world.made() == set()
    assert world.workload(key)["reason"] == "ProviderClassNotFound"
    world.add_backend()
    await world.settle()
    assert kinds(world, key) == list(FIVE)


async def test_what_a_class_no_longer_says_is_taken_back() -> None:
    world = OperatorWorld()
    world.add_backend(
        nodeSelector={"disk": "ssd"}, podLabels={"team": "a"}, priorityClassName="high"
    )
    key = world.register()
    await world.settle()
    world.edit_backend(nodeSelector={}, podLabels={}, priorityClassName=None)
    await world.settle()
    template = world.deployment(key)["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert "team" not in template["metadata"]["labels"]
    assert "priorityClassName" not in template["spec"]


async def test_a_network_policy_comes_and_goes_with_the_class() -> None:
    world, key = await served()
    world.edit_backend(networkPolicy={})
    await world.settle()
    policy = world.object(NETWORK_POLICIES, key)
    assert policy["spec"]["podSelector"] == world.deployment(key)["spec"]["selector"]
    world.edit_backend(networkPolicy=None)
    await world.settle()
    assert kinds(world, key) == list(FIVE)


async def test_without_any_image_nothing_is_made() -> None:
    world = OperatorWorld()
    world.operator.services.around = type(world.operator.services.around)(SYSTEM, "")
    world.add_backend()
    key = world.register()
    await world.settle()
    assert world.made() == set()
    assert "--image" in world.workload(key)["message"]
    world.edit_backend(image={"repository": "example.com/banlieue"})
    await world.settle()
    assert world.container(key)["image"] == "example.com/banlieue"


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
    world.api.edit(DEPLOYMENTS, Key.of(world.deployment(key)), _scale)
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
