"""How a plan gets into a cluster: looked at first, in order, never over what others set."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CRDS, NAMESPACES
from banlieue.bootstrap import presence
from banlieue.bootstrap.apply import How, Outcome, apply, differences
from banlieue.bootstrap.cluster import MANAGER, BootstrapError
from banlieue.bootstrap.kinds import lost_fields
from banlieue.bootstrap.objects import key_of, resource_of
from banlieue.bootstrap.plan import (
    Target,
    controller_plan,
    grant_plan,
    operator_plan,
    provider_plan,
)
from banlieue.bootstrap.release import Release
from banlieue.sdk.kube import Key, Unavailable
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.bootstrapping import InstallableApi, tools_of

Object = dict[str, Any]
PODS = Resource("", "v1", "Pod", "pods")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
VMS = "virtualmachines.banlieue.io"


class Bench:
    """One cluster and what was said."""

    def __init__(self) -> None:
        self.api = InstallableApi()
        self.said: list[str] = []

    async def apply(self, plan: list[Object], **how: bool) -> Outcome:
        tools = tools_of(self.api, self.said.append)
        return await apply(tools, plan, replace(How(), **how))

    async def differences(self, plan: list[Object], *, force: bool = False) -> list[str]:
        return await differences(tools_of(self.api, self.said.append), plan, force=force)

    def there(self, obj: Object) -> Object | None:
        return self.api.peek(resource_of(obj), key_of(obj))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def plan() -> list[Object]:
    return operator_plan(Target())


async def test_everything_is_applied_in_the_plans_order(bench: Bench, plan: list[Object]) -> None:
    outcome = await bench.apply(plan)
    assert [(kind, key) for kind, key, _ in bench.api.offers] == [
        (it["kind"], key_of(it)) for it in plan
    ]
    assert not any(forced for *_, forced in bench.api.offers)
    assert len(outcome.created) == len(plan)
    assert all(bench.there(it) for it in plan)
    assert str(outcome) == f"{len(plan)} created"


async def test_a_second_run_changes_nothing(bench: Bench, plan: list[Object]) -> None:
    await bench.apply(plan)
    outcome = await bench.apply(plan)
    assert (outcome.created, outcome.changed, outcome.deleted) == ([], [], [])
    assert len(outcome.unchanged) == len(plan)


async def test_what_the_cluster_writes_by_itself_is_no_change(
    bench: Bench, plan: list[Object]
) -> None:
    """Status and collected rules may come between our look and our write."""
    await bench.apply(plan)
    role = next(it for it in plan if "aggregationRule" in it)
    policy = next(it for it in plan if it["kind"] == "ValidatingAdmissionPolicy")

    def write(call: Call, moment: Moment) -> None:
        if call.verb == "get" and moment is Moment.AFTER:
            for obj, change in ((role, {"rules": [{}]}), (policy, {"status": {"x": 1}})):
                if call.key == key_of(obj) and call.resource == resource_of(obj):
                    bench.api.put(call.resource, {**(bench.there(obj) or {}), **change})

    bench.api.intercept(write)
    outcome = await bench.apply(plan)
    assert outcome.changed == []
    assert await bench.differences(plan) == []


async def test_another_version_is_an_upgrade(bench: Bench, plan: list[Object]) -> None:
    await bench.apply(plan)
    newer = operator_plan(Target(release=Release.of("v9.9.9")))
    outcome = await bench.apply(newer)
    assert len(outcome.changed) == len(plan)
    found = bench.there(newer[-1])
    assert found
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "localhost/banlieue:v9.9.9"


# Refusals come before the first write


async def test_what_others_set_is_told_with_all_owners_and_nothing_is_written(
    bench: Bench, plan: list[Object]
) -> None:
    await bench.apply(plan)
    bench.api.offers.clear()
    bench.api.conflicts = {
        ("Deployment", "banlieue-controller"): 'conflict with "kubectl": .spec.replicas',
        ("Namespace", "banlieue-system"): 'conflict with "argocd": .metadata.labels.team',
    }
    with pytest.raises(BootstrapError) as refused:
        await bench.apply(plan)
    for part in ('"kubectl": .spec.replicas', '"argocd"', "--force-conflicts", "nothing was"):
        assert part in str(refused.value)
    assert bench.api.offers == []
    with pytest.raises(BootstrapError, match="argocd"):
        await bench.differences(plan)
    await bench.apply(plan, force=True)
    assert all(forced for *_, forced in bench.api.offers)


async def test_many_conflicts_are_told_in_few_lines(bench: Bench, plan: list[Object]) -> None:
    await bench.apply(plan)
    bench.api.conflicts = {(it["kind"], it["metadata"]["name"]): "conflict" for it in plan}
    with pytest.raises(BootstrapError, match=rf"and {len(plan) - 10} objects more"):
        await bench.apply(plan)


async def test_an_old_server_is_refused(bench: Bench, plan: list[Object]) -> None:
    bench.api.version = (1, 32)
    with pytest.raises(BootstrapError, match=r"Kubernetes 1\.32 is too old: 1\.33"):
        await bench.apply(plan)
    assert bench.api.offers == []


async def test_a_second_installation_is_refused(bench: Bench, plan: list[Object]) -> None:
    await bench.apply(plan)
    with pytest.raises(BootstrapError, match="in namespace banlieue-system already"):
        await bench.apply(operator_plan(Target("elsewhere")))
    await bench.apply(provider_plan("simulated", Target("elsewhere")))


async def test_a_static_provider_needs_the_kinds_and_tells_of_an_operator(
    bench: Bench, plan: list[Object]
) -> None:
    static = provider_plan("simulated", Target())
    with pytest.raises(BootstrapError, match="run `banlieue bootstrap controller` first"):
        await bench.apply(static)
    assert bench.api.offers == []
    await bench.apply(controller_plan(Target()))
    await bench.apply(static)
    assert not any("operator" in line for line in bench.said)
    await bench.apply(plan)
    await bench.apply(static)
    assert any("an operator runs in namespace banlieue-system" in line for line in bench.said)


async def test_a_backend_that_nobody_knows_is_refused_with_those_there_are(
    bench: Bench, plan: list[Object]
) -> None:
    await bench.apply(plan)
    typo = provider_plan("vpshere", Target())
    with pytest.raises(BootstrapError) as refused:
        await bench.apply(typo)
    told = str(refused.value)
    assert "ClusterRole banlieue-provider-vpshere is missing" in told
    assert "Known here: simulated, vsphere." in told
    assert not any(bench.there(it) for it in typo if it["kind"] != "Namespace")
    with pytest.raises(BootstrapError, match="vpshere"):
        await bench.differences(typo)


async def test_a_third_partys_backend_is_known_by_its_role(
    bench: Bench, plan: list[Object]
) -> None:
    await bench.apply(plan)
    role = {
        "apiVersion": presence.CLUSTER_ROLES.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": "banlieue-provider-hyperx"},
        "aggregationRule": {"clusterRoleSelectors": []},
    }
    bench.api.put(presence.CLUSTER_ROLES, role)
    theirs = provider_plan("hyperx", Target())
    await bench.apply(theirs, wait=False)
    assert all(bench.there(it) for it in theirs)
    with pytest.raises(BootstrapError, match="Known here: hyperx, simulated, vsphere"):
        await bench.apply(provider_plan("hyper", Target()))


async def test_kinds_of_a_newer_version_are_not_replaced(bench: Bench, plan: list[Object]) -> None:
    newer = copy.deepcopy(plan)
    (kind,) = [it for it in newer if it["metadata"]["name"] == VMS]
    schema = kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["future"] = {"type": "string"}
    await bench.apply(newer)
    bench.api.offers.clear()
    with pytest.raises(BootstrapError, match=rf"{VMS}.*lose v1alpha1 spec\.future\..*--allow-down"):
        await bench.apply(plan)
    assert bench.api.offers == []
    await bench.apply(plan, downgrade=True)
    assert len(bench.api.offers) == len(plan)


def test_what_a_kind_would_lose_is_found_at_any_depth() -> None:
    def definition(schema: Object) -> Object:
        return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}

    def lost(before: Object, after: Object) -> list[str]:
        return lost_fields(definition(before), definition(after))

    leaf = {"type": "string"}
    deep = {"properties": {"a": {"items": {"properties": {"b": leaf, "c": leaf}}}}}
    less = {"properties": {"a": {"items": {"properties": {"c": leaf}}}}}
    assert lost(deep, deep) == lost(less, deep) == []
    assert lost(deep, less) == ["v1 a[].b"]
    assert lost(deep, {"properties": {}}) == ["v1 a"]
    assert lost(deep, {"x-kubernetes-preserve-unknown-fields": True}) == []
    table = {"properties": {"t": {"additionalProperties": {"properties": {"x": leaf}}}}}
    assert lost(table, {"properties": {"t": {"additionalProperties": {}}}}) == ["v1 t.*.x"]
    assert lost(table, {"properties": {"t": {"properties": {}}}}) == ["v1 t.*"]
    gone = definition(deep)
    gone["spec"]["versions"][0]["name"] = "v2"
    assert lost_fields(definition(deep), gone) == ["v1"]


# Waiting


async def test_what_is_being_deleted_is_waited_for(bench: Bench, plan: list[Object]) -> None:
    """Applying to it would succeed, and then it would go with everything that was written."""
    await bench.apply(plan)
    key = Key("", VMS)
    bench.api.edit(CRDS, key, lambda it: it["metadata"].update(finalizers=["customresources"]))
    bench.api.drop(CRDS, key)
    seen = 0

    def finish(call: Call, moment: Moment) -> None:
        nonlocal seen
        if (call.verb, call.key, moment) == ("get", key, Moment.BEFORE):
            seen += 1
            if seen == 4:
                bench.api.drop(CRDS, key, force=True)

    bench.api.intercept(finish)
    outcome = await bench.apply(plan)
    assert outcome.created == [f"CustomResourceDefinition {VMS}"]
    assert any("being deleted" in line for line in bench.said)


async def test_what_never_goes_ends_it(bench: Bench, plan: list[Object]) -> None:
    await bench.apply(plan)
    key = Key("", "banlieue-system")
    bench.api.edit(NAMESPACES, key, lambda it: it["metadata"].update(finalizers=["kubernetes"]))
    bench.api.drop(NAMESPACES, key)
    bench.api.offers.clear()
    with pytest.raises(BootstrapError, match="Namespace banlieue-system is still being deleted"):
        await bench.apply(plan)
    assert bench.api.offers == []


async def test_nothing_runs_before_its_kinds_are_served(bench: Bench, plan: list[Object]) -> None:
    bench.api.stubborn = {"CustomResourceDefinition"}
    with pytest.raises(BootstrapError, match="is not served"):
        await bench.apply(plan)
    assert "Deployment" not in {kind for kind, *_ in bench.api.offers}


async def test_a_pod_that_does_not_come_up_is_told_with_its_words(
    bench: Bench, plan: list[Object]
) -> None:
    bench.api.stubborn = {"Deployment"}
    labels = plan[-1]["spec"]["selector"]["matchLabels"]
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    bench.api.put(
        PODS,
        {
            "metadata": {"namespace": "banlieue-system", "name": "one", "labels": labels},
            "status": {"containerStatuses": [{"state": {"waiting": waiting}}]},
        },
    )
    for deployment in [it for it in plan if it["kind"] == "Deployment"][:-1]:
        deployment["spec"]["selector"]["matchLabels"] = labels
    with pytest.raises(BootstrapError, match="pod one: ImagePullBackOff no such image"):
        await bench.apply(plan)
    await bench.apply(plan, wait=False)


async def test_an_api_server_that_is_away_for_a_moment_is_asked_again(
    bench: Bench, plan: list[Object]
) -> None:
    for verb in ("get", "apply", "list"):
        failures = iter([True, True])

        def fail(call: Call, moment: Moment, verb: str = verb, failures: Any = failures) -> None:  # noqa: ANN401 - an iterator
            if call.verb == verb and moment is Moment.BEFORE and next(failures, False):
                raise Unavailable(503, "overloaded")

        undo = bench.api.intercept(fail)
        if verb == "list":
            await bench.apply(plan, prune=True)
        else:
            await bench.apply(plan)
        undo()
    assert sum("trying again" in line for line in bench.said) >= 3


async def test_one_that_stays_away_ends_it(bench: Bench, plan: list[Object]) -> None:
    def fail(_call: Call, _moment: Moment) -> None:
        raise Unavailable(0, "connection refused")

    bench.api.intercept(fail)
    with pytest.raises(Unavailable, match="connection refused"):
        await bench.apply(plan)


# What an earlier version had


def _leftover(name: str, manager: str, **labels: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {
            "namespace": "banlieue-system",
            "name": name,
            "labels": {"app.kubernetes.io/part-of": "banlieue", **labels},
            "managedFields": [{"manager": manager, "operation": "Apply"}],
        },
    }


async def test_an_upgrade_deletes_what_this_version_has_no_more_and_nothing_of_others(
    bench: Bench, plan: list[Object]
) -> None:
    await bench.apply(plan, prune=True)
    static = {"app.kubernetes.io/component": "provider-simulated"}
    for obj in (
        _leftover("ours-once", MANAGER),
        _leftover("somebody-elses", "kubectl"),
        _leftover("of-a-static-provider", MANAGER, **static),
    ):
        bench.api.put(ROLES, obj)
    outcome = await bench.apply(plan, prune=True)
    assert outcome.deleted == ["Role banlieue-system/ours-once"]
    left = {it["metadata"]["name"] for it in bench.api.peek_all(ROLES)}
    assert {"somebody-elses", "of-a-static-provider", "banlieue-controller"} <= left


async def test_static_providers_and_grants_survive_an_upgrade(
    bench: Bench, plan: list[Object]
) -> None:
    static, granted = provider_plan("simulated", Target()), grant_plan("team-a", ["simulated"])
    for each in (plan, static, granted):
        await bench.apply(each)
    await bench.apply(operator_plan(Target(release=Release.of("v2"))), prune=True)
    assert all(bench.there(it) for it in (*plan, *static, *granted))


async def test_the_mark_of_a_namespace_in_use_survives_an_upgrade_of_the_rest(
    bench: Bench, plan: list[Object]
) -> None:
    await bench.apply(plan)
    await bench.apply(provider_plan("simulated", Target()))
    await bench.apply(operator_plan(Target(release=Release.of("v2"))))
    namespace = bench.api.peek(NAMESPACES, Key("", "banlieue-system"))
    assert namespace
    assert namespace["metadata"]["labels"][names.LABEL_IN_USE] == "true"


# Differences


async def test_differences_are_shown_and_nothing_is_stored(
    bench: Bench, plan: list[Object]
) -> None:
    found = await bench.differences(plan)
    assert len(found) == len(plan)
    assert all(text.startswith("--- /dev/null") for text in found)
    assert bench.api.offers == []
    await bench.apply(plan)
    bench.api.offers.clear()
    assert await bench.differences(plan) == []
    newer = operator_plan(Target(release=Release.of("v9.9.9")))
    shown = await bench.differences(newer)
    assert len(shown) == len(plan)
    assert "+        image: localhost/banlieue:v9.9.9\n" in shown[-1]
    assert not any("resourceVersion" in text or "managedFields" in text for text in shown)
    assert bench.api.offers == []
