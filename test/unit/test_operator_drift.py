"""What serves a Provider is put right when it drifts, and follows its class."""

from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    DEPLOYMENTS,
    NETWORK_POLICIES,
    PROVIDER_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from banlieue.operator.objects import KINDS
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import FIVE, IMAGE, NAME, OperatorWorld, kinds, served

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


def _alias_hosts(obj: Obj) -> None:
    obj["spec"]["template"]["spec"]["hostAliases"] = [{"ip": "192.0.2.1", "hostnames": ["x"]}]


def _pin(obj: Obj) -> None:
    obj["spec"]["template"]["spec"]["nodeName"] = "node-1"


def _unconfine(obj: Obj) -> None:
    (container,) = obj["spec"]["template"]["spec"]["containers"]
    container["securityContext"]["seccompProfile"] = {"type": "Unconfined"}


def _hook(obj: Obj) -> None:
    (container,) = obj["spec"]["template"]["spec"]["containers"]
    container["lifecycle"] = {"preStop": {"sleep": {"seconds": 1}}}


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
        (DEPLOYMENTS, _alias_hosts),
        (DEPLOYMENTS, _pin),
        (DEPLOYMENTS, _unconfine),
        (DEPLOYMENTS, _hook),
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
    assert not template["spec"]["priorityClassName"]


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
