"""Objects that a tenant makes look like the operator's, in a namespace of his own."""

import pytest

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import DEPLOYMENTS, PROVIDERS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from banlieue.operator.objects import MANAGED_BY
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import NAME, OperatorWorld, served

TENANT = "another-team"


def forge(
    world: OperatorWorld, provider: Key, resource: Resource, name: str = NAME, **parts: object
) -> Obj:
    """What only its place tells from an object of the operator's."""
    meta = {
        "namespace": TENANT,
        "name": name,
        "labels": {
            names.LABEL_MANAGED_BY: MANAGED_BY,
            names.LABEL_WORKLOAD_OF: names.provider_hash(provider.namespace, provider.name),
        },
        "annotations": {
            names.ANNOTATION_WORKLOAD_OF: str(provider),
            names.ANNOTATION_BACKEND: "another",
        },
    }
    return world.api.put(resource, {"metadata": meta, **parts})


def wall(call: Call, moment: Moment) -> None:
    """As the admission policy does."""
    own = call.key.name.startswith("banlieue-provider-")
    if moment is Moment.BEFORE and call.verb == "delete" and not own:
        raise Forbidden(403, "Forbidden", "the operator may write objects called banlieue-*")


@pytest.mark.parametrize("name", ["nginx", NAME])
@pytest.mark.parametrize("resource", [DEPLOYMENTS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS])
async def test_they_keep_nobody_from_serving_the_provider(resource: Resource, name: str) -> None:
    world, key = await served()
    world.api.intercept(wall)
    forge(world, key, resource, name)
    world.restart()
    world.edit_backend(image={"repository": "registry.example.com/new", "tag": "v2"})
    await world.settle(seconds=600)
    found = world.api.peek(DEPLOYMENTS, Key(SYSTEM, NAME)) or {}
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/new:v2"
    assert world.workload(key)["namespace"] == SYSTEM
    assert world.workload(key)["reason"] == "WorkloadNotReady"


@pytest.mark.parametrize("name", ["nginx", NAME])
async def test_they_do_not_hold_its_deletion_up(name: str) -> None:
    world, key = await served()
    world.api.intercept(wall)
    forge(world, key, DEPLOYMENTS, name)
    world.restart()
    world.api.drop(PROVIDERS, key)
    await world.settle(seconds=600)
    assert world.provider(key) is None


async def test_they_name_no_secret_that_the_provider_may_read() -> None:
    world, key = await served()
    world.use(key)
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "verbs": ["get"],
        "resourceNames": ["credentials-of-others"],
    }
    forge(world, key, ROLES, rules=[rule])
    # The provider's process, or who has its token, tells that it has not seen the last edit.
    world.api.edit(PROVIDERS, key, lambda it: it["status"].update(observedGeneration=0))
    world.restart()
    await world.settle(seconds=600)
    assert "credentials-of-others" not in str(world.api.peek(ROLES, Key(SYSTEM, NAME)))


async def test_what_they_say_is_not_told_of_the_provider() -> None:
    world, key = await served()
    status = {
        "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "call 555-1234"}]
    }
    forge(world, key, DEPLOYMENTS, "aaa", status=status, spec={"replicas": 1})
    forge(world, key, DEPLOYMENTS, status=status, spec={"replicas": 1})
    world.edit_provider(key, providerClassRef={"name": "gone"})
    world.restart()
    await world.settle(seconds=600)
    assert "555" not in str(world.workload(key))
