"""Infrastructure clusters keep the Cluster API contract; tests are named by its rules."""

from collections.abc import Callable, Iterator

import pytest

from banlieue.api import names
from banlieue.api.resources import CAPI_CLUSTERS, NAMESPACES, PROVIDER_CLASSES, PROVIDERS
from banlieue.sdk.kube import Key, Obj
from test.kit.clusterworld import ENDPOINT, THAT_CLUSTER, THIS_CLUSTER, ClusterWorld, owner, zone
from test.kit.controllerworld import NAMESPACE, SYSTEM, domain, restored


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """Two Providers; whatever happens, each status written is one that clients can read."""
    made = ClusterWorld.with_providers(one={}, two={"domains": ("a", "b")})
    yield made
    assert made.faults == []


def annotate(name: str, value: str = "") -> Callable[[Obj], None]:
    return lambda it: it["metadata"].setdefault("annotations", {}).update({name: value})


def ref(name: str, namespace: str = SYSTEM) -> dict[str, str]:
    return {"name": name, "namespace": namespace}


# C1: the control plane endpoint.


async def test_c1_an_endpoint_of_ours_is_enough(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert world.is_ready() == ("True", "Ready", "")
    assert world.provisioned()


async def test_c1_without_one_the_clusters_is_waited_for(world: ClusterWorld) -> None:
    world.add_cluster()
    await world.settle()
    status, reason, message = world.is_ready()
    assert (status, reason) == ("False", "WaitingForControlPlaneEndpoint")
    assert "spec.controlPlaneEndpoint" in message
    assert not world.provisioned()
    assert set(world.listed()) == {"one-a", "two-a", "two-b"}
    world.edit_owner(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert world.is_ready() == ("True", "Ready", "")
    assert world.provisioned()
    assert "controlPlaneEndpoint" not in world.cluster()["spec"]


@pytest.mark.parametrize("given", [{}, {"host": "10.0.0.9"}, {"host": "", "port": 0}])
async def test_c1_half_an_endpoint_is_none(world: ClusterWorld, given: dict[str, object]) -> None:
    world.add_owner(controlPlaneEndpoint=given)
    world.add_cluster()
    await world.settle()
    assert not world.provisioned()


async def test_c1_the_clusters_endpoint_counts_where_both_name_one(world: ClusterWorld) -> None:
    world.add_owner(controlPlaneEndpoint={"host": "api.example.com", "port": 443})
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    status, reason, message = world.is_ready()
    assert (status, reason) == ("True", "Ready")
    assert "the Cluster's endpoint api.example.com:443 counts" in message


# C2: provisioned.


async def test_c2_provisioned_stays_whatever_is_lost(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    world.api.drop(PROVIDERS, Key(SYSTEM, "one"))
    world.api.drop(PROVIDERS, Key(SYSTEM, "two"))
    await world.settle()
    assert world.provisioned()
    assert world.listed() == {}
    assert world.is_ready()[:2] == ("False", "NoFailureDomains")


async def test_c2_a_lost_status_is_computed_again(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    before = world.cluster()
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    world.api.put(THIS_CLUSTER, restored(before, uid="another", status=False))
    await world.settle()
    after = world.cluster()
    for name in ("initialization", "failureDomains"):
        assert after["status"][name] == before["status"][name]


# C3: failure domains.


async def test_c3_domains_of_all_providers_offered_are_listed(world: ClusterWorld) -> None:
    world.publish("one", zone("one-a"))
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    listed = world.cluster()["status"]["failureDomains"]
    assert [it["name"] for it in listed] == ["one-a", "two-a", "two-b"]
    assert all(it["controlPlane"] is True for it in listed)
    assert listed[0]["attributes"] == {
        "provider": "one",
        "providerNamespace": SYSTEM,
        "topology.kubernetes.io/zone": "one-a",
    }
    assert world.told("FailureDomainsAvailable") == ("True", "FailureDomainsAvailable", "")


async def test_c3_references_beat_the_selector(world: ClusterWorld) -> None:
    world.add_cluster(
        controlPlaneEndpoint=ENDPOINT,
        providerRefs=[ref("two")],
        providerSelector={"matchLabels": {"no": "match"}},
    )
    await world.settle()
    assert set(world.listed()) == {"two-a", "two-b"}
    assert world.provisioned()


async def test_c3_a_selector_follows_the_labels_of_providers(world: ClusterWorld) -> None:
    world.add_cluster(
        controlPlaneEndpoint=ENDPOINT, providerSelector={"matchLabels": {"site": "north"}}
    )
    await world.settle()
    assert world.is_ready()[1:] == (
        "NoFailureDomains",
        "providerSelector matches no Provider that is offered: correct it",
    )
    world.edit_provider("two", lambda it: it["metadata"].update(labels={"site": "north"}))
    await world.settle()
    assert set(world.listed()) == {"two-a", "two-b"}


async def test_c3_only_providers_of_the_clusters_backend_count(world: ClusterWorld) -> None:
    world.add_provider("other", backend="that")
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    world.add_cluster("foreign", kind=THAT_CLUSTER, controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert "other-a" not in world.listed()
    names_there = world.cluster("foreign", THAT_CLUSTER)["status"]["failureDomains"]
    assert [it["name"] for it in names_there] == ["other-a"]


async def test_c3_a_named_provider_of_another_backend_is_refused(world: ClusterWorld) -> None:
    world.add_provider("other", backend="that")
    world.add_cluster(controlPlaneEndpoint=ENDPOINT, providerRefs=[ref("one"), ref("other")])
    await world.settle()
    status, reason, message = world.is_ready()
    assert (status, reason) == ("False", "ProviderClassMismatch")
    assert f"Provider {SYSTEM}/other is of a class" in message
    assert "ThisCluster" in message
    assert not world.provisioned()


async def test_c3_missing_and_forbidden_providers_are_one_answer(world: ClusterWorld) -> None:
    world.add_provider("kept", allowedNamespaces={"from": "Same"})
    said = []
    for name in ("kept", "gone"):
        world.add_cluster(name, controlPlaneEndpoint=ENDPOINT, providerRefs=[ref(name)])
        await world.settle()
        assert world.listed(name) == {}
        status, reason, message = world.is_ready(name)
        assert (status, reason) == ("False", "ProviderNotAllowed")
        said.append(message.replace(f"/{name} ", "/x "))
    assert said[0] == said[1]


async def test_c3_labels_of_the_namespace_open_and_close_a_provider(world: ClusterWorld) -> None:
    rule = {"from": "Selector", "selector": {"matchLabels": {"tier": "gold"}}}
    world.add_provider("gold", allowedNamespaces=rule)
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert "gold-a" not in world.listed()
    for tier in ("gold", "iron"):
        namespace = {"metadata": {"name": NAMESPACE, "labels": {"tier": tier}}}
        world.api.put(NAMESPACES, namespace)
        await world.settle()
        assert ("gold-a" in world.listed()) == (tier == "gold")


async def test_c3_control_plane_is_where_the_selector_says(world: ClusterWorld) -> None:
    world.publish("two", zone("two-a"), zone("two-b"))
    world.add_cluster(
        controlPlaneEndpoint=ENDPOINT,
        controlPlaneFailureDomainSelector={"matchLabels": {"topology.kubernetes.io/zone": "two-b"}},
    )
    await world.settle()
    assert world.control_plane() == {"two-b"}
    assert all(it["controlPlane"] in (True, False) for it in world.listed().values())
    assert world.provisioned()


async def test_c3_a_selector_that_matches_nothing_is_told(world: ClusterWorld) -> None:
    world.add_cluster(
        controlPlaneEndpoint=ENDPOINT,
        controlPlaneFailureDomainSelector={"matchLabels": {"tier": "control"}},
    )
    await world.settle()
    assert world.is_ready()[:2] == ("False", "NoFailureDomainMatched")
    assert not world.provisioned()


@pytest.mark.parametrize(
    "close",
    [
        lambda it: it["spec"].update(cordoned=True),
        lambda it: it["spec"].update(paused=True),
        lambda it: it["spec"].update(mode="ReadOnly"),
        lambda it: it["status"]["failureDomains"][0].update(schedulable=False),
        lambda it: it["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["cordoned", "paused", "read-only", "not schedulable", "deleting"],
)
async def test_c3_what_takes_no_new_machines_stays_listed_without_control_plane(
    world: ClusterWorld, close: Callable[[Obj], None]
) -> None:
    world.edit_provider("one", lambda it: it["metadata"].update(finalizers=["example.com/held"]))
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    world.edit_provider("one", close)
    await world.settle()
    assert set(world.listed()) == {"one-a", "two-a", "two-b"}
    assert world.control_plane() == {"two-a", "two-b"}
    assert world.listed()["one-a"]["attributes"]["schedulable"] == "false"
    assert world.is_ready()[0] == "True"


async def test_c3_an_outage_changes_nothing(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    before, writes = world.listed(), len(world.api.writes())

    def outage(it: Obj) -> None:
        it["status"]["conditions"][0].update(status="False", reason="ProviderUnreachable")

    world.edit_provider("one", outage)
    await world.settle()
    assert world.listed() == before
    assert len(world.api.writes()) == writes


async def test_c3_what_a_provider_told_outlives_the_loss_of_its_status(
    world: ClusterWorld,
) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    before = world.listed()
    world.edit_provider("two", lambda it: it.update(status={}))
    await world.settle()
    assert world.listed() == before
    assert world.is_ready()[0] == "True"


async def test_c3_a_missing_class_takes_nothing_away(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    before = world.listed()
    world.api.drop(PROVIDER_CLASSES, Key("", "this"))
    await world.settle()
    assert world.listed() == before
    assert world.is_ready()[0] == "True"


async def test_c3_a_domain_that_its_provider_has_not_any_more_disappears(
    world: ClusterWorld,
) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    world.publish("two", domain("two-b"))
    await world.settle()
    assert set(world.listed()) == {"one-a", "two-b"}
    world.publish("two")
    await world.settle()
    assert set(world.listed()) == {"one-a"}


async def test_c3_a_provider_that_is_gone_takes_its_domains_along(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT, providerRefs=[ref("one"), ref("two")])
    await world.settle()
    world.api.drop(PROVIDERS, Key(SYSTEM, "two"))
    await world.settle()
    assert set(world.listed()) == {"one-a"}
    assert world.is_ready()[:2] == ("False", "ProviderNotAllowed")
    assert world.provisioned()


async def test_c3_every_named_provider_has_to_tell_before_the_first_machine(
    world: ClusterWorld,
) -> None:
    world.edit_provider("two", lambda it: it.update(status={}))
    world.add_cluster(controlPlaneEndpoint=ENDPOINT, providerRefs=[ref("one"), ref("two")])
    await world.settle()
    status, reason, message = world.is_ready()
    assert (status, reason) == ("False", "NoFailureDomains")
    assert f"{SYSTEM}/two" in message
    assert not world.provisioned()
    assert set(world.listed()) == {"one-a"}


async def test_c3_a_silent_provider_nobody_named_keeps_nobody(world: ClusterWorld) -> None:
    world.edit_provider("two", lambda it: it.update(status={}))
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert world.provisioned()


async def test_c3_two_domains_of_one_name_are_a_condition_and_the_first_one_stays(
    world: ClusterWorld,
) -> None:
    world.publish("two", domain("rack"))
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    world.publish("one", domain("rack"), domain("one-a"))
    await world.settle()
    assert set(world.listed()) == {"one-a", "rack"}
    assert world.listed()["rack"]["attributes"]["provider"] == "two"
    status, reason, message = world.told("FailureDomainsAvailable")
    assert (status, reason) == ("False", "FailureDomainNameTaken")
    assert f"rack of Provider {SYSTEM}/one" in message
    assert world.is_ready() == ("True", "Ready", message)
    world.restart()
    await world.settle()
    assert world.listed()["rack"]["attributes"]["provider"] == "two"
    world.publish("two", domain("two-a"))
    await world.settle()
    assert world.listed()["rack"]["attributes"]["provider"] == "one"
    assert world.told("FailureDomainsAvailable")[0] == "True"


async def test_c3_more_than_a_cluster_can_list_is_told_and_the_choice_stays(
    world: ClusterWorld,
) -> None:
    many = [domain(f"two-{number:03}") for number in range(120)]
    world.publish("two", *many)
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    first = set(world.listed())
    assert len(first) == 100
    assert "one-a" in first
    status, reason, message = world.told("FailureDomainsAvailable")
    assert (status, reason) == ("False", "TooManyFailureDomains")
    assert "two-099, two-100, two-101" in message
    assert world.is_ready() == ("True", "Ready", message)
    world.publish("two", domain("two-0"), *many)
    await world.settle()
    assert set(world.listed()) == first


# C4: conditions.


async def test_c4_all_conditions_carry_the_generation(world: ClusterWorld) -> None:
    world.add_cluster()
    await world.settle()
    world.edit_cluster(lambda it: it["spec"].update(controlPlaneEndpoint=ENDPOINT))
    await world.settle()
    found = world.cluster()
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    told = {it["type"]: it for it in found["status"]["conditions"]}
    assert set(told) == {"FailureDomainsAvailable", "Paused", "Ready"}
    assert {it["observedGeneration"] for it in told.values()} == {2}
    assert told["Paused"]["reason"] == "NotPaused"


async def test_c4_everything_that_is_missing_is_told_at_once() -> None:
    world = ClusterWorld.with_providers(other={"backend": "that"})
    world.add_provider("one", allowedNamespaces={"from": "Same"})
    world.add_cluster()
    await world.settle()
    status, reason, message = world.is_ready()
    assert (status, reason) == ("False", "NoFailureDomains")
    assert f"no Provider for a ThisCluster is offered to namespace {NAMESPACE}" in message
    assert "nobody has set the control plane endpoint" in message


async def test_c4_nothing_is_written_when_nothing_changed(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert world.controller_writes()["json_patch ThisCluster/status"] == 1
    writes = len(world.api.writes())
    more = {"total": 9, "free": 7}
    world.edit_provider(
        "one",
        lambda it: it["status"]["failureDomains"][0]["attributes"].update(
            capacity={"memoryMiB": more}
        ),
    )
    world.edit_provider("one", lambda it: it["spec"].update(overcommit={"cpu": 4}))
    world.edit_owner(clusterNetwork={})
    world.restart()
    await world.settle()
    assert len(world.api.writes()) == writes


async def test_c4_a_conflict_is_tried_again(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    world.api.cache.hold()
    world.edit_cluster(lambda it: it["metadata"].update(labels={"a": "b"}))
    await world.settle(seconds=1)
    assert "status" not in world.cluster()
    world.api.cache.follow()
    await world.settle()
    assert world.provisioned()


# C5: externally managed.


async def test_c5_an_externally_managed_cluster_is_left_alone(world: ClusterWorld) -> None:
    world.add_cluster(annotations={names.CAPI_ANNOTATION_MANAGED_BY: ""})
    before = world.cluster()
    await world.settle()
    assert world.cluster() == before


# C7: the owner.


async def test_c7_without_owner_nothing_is_written(world: ClusterWorld) -> None:
    world.add_cluster(owned=False, controlPlaneEndpoint=ENDPOINT)
    before = world.cluster()
    await world.settle()
    assert world.cluster() == before
    world.add_owner()
    world.edit_cluster(lambda it: it["metadata"].update(ownerReferences=[owner("prod")]))
    await world.settle()
    assert world.provisioned()


async def test_c7_an_owner_of_another_group_is_none(world: ClusterWorld) -> None:
    world.add_cluster(owned=False, controlPlaneEndpoint=ENDPOINT)
    other = {**owner("prod"), "apiVersion": "example.com/v1"}
    world.edit_cluster(lambda it: it["metadata"].update(ownerReferences=[other]))
    await world.settle()
    assert "status" not in world.cluster()


async def test_c7_a_cluster_that_is_gone_pauses_nothing(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    world.api.drop(CAPI_CLUSTERS, Key(NAMESPACE, "prod"))
    await world.settle()
    assert world.provisioned()


# 1.8: pause.


@pytest.mark.parametrize("value", ["", "true", "false"])
async def test_pause_by_annotation_is_by_presence(world: ClusterWorld, value: str) -> None:
    world.add_cluster(
        annotations={names.CAPI_ANNOTATION_PAUSED: value}, controlPlaneEndpoint=ENDPOINT
    )
    await world.settle()
    (paused,) = world.cluster()["status"]["conditions"]
    assert (paused["type"], paused["status"], paused["reason"]) == ("Paused", "True", "Paused")
    assert paused["observedGeneration"] == world.cluster()["metadata"]["generation"]
    assert set(world.cluster()["status"]) == {"conditions"}


async def test_pause_of_the_cluster_holds_everything_until_it_ends(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    world.edit_owner(paused=True)
    await world.settle()
    before = world.cluster()
    assert world.told("Paused")[:2] == ("True", "Paused")
    world.publish("one", domain("one-z"))
    world.edit_provider("two", lambda it: it["spec"].update(cordoned=True))
    await world.settle()
    assert world.cluster() == before
    world.edit_owner(paused=False)
    await world.settle()
    assert world.told("Paused")[:2] == ("False", "NotPaused")
    assert set(world.listed()) == {"one-z", "two-a", "two-b"}


async def test_pause_is_seen_on_a_cluster_the_cache_does_not_know_yet(
    world: ClusterWorld,
) -> None:
    world.api.cache.hold()
    world.add_owner(paused=True)
    world.api.cache.follow()
    world.api.cache.hold()
    world.edit_owner(paused=True)
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle(seconds=1)
    world.api.cache.follow()
    await world.settle()
    assert not world.provisioned()


# 2.6 and the end.


async def test_nothing_is_written_while_clusterctl_takes_it_away(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    world.edit_cluster(annotate(names.CAPI_ANNOTATION_DELETE_FOR_MOVE))
    before = world.cluster()
    world.publish("one", domain("one-z"))
    await world.settle()
    assert world.cluster() == before


async def test_we_hold_no_cluster_in_deletion(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert not world.cluster()["metadata"].get("finalizers")
    world.edit_cluster(lambda it: it["metadata"].update(finalizers=["example.com/held"]))
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    await world.settle()
    status, reason, message = world.is_ready()
    assert (status, reason) == ("False", "Deleting")
    assert "example.com/held" in message
    assert world.provisioned()
    assert world.listed()


async def test_deletion_of_a_paused_one_says_paused(world: ClusterWorld) -> None:
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    world.edit_cluster(lambda it: it["metadata"].update(finalizers=["example.com/held"]))
    world.edit_owner(paused=True)
    world.api.drop(THIS_CLUSTER, Key(NAMESPACE, "prod"))
    await world.settle()
    assert world.is_ready()[0] == "True"
    assert world.told("Paused")[0] == "True"


async def test_a_class_that_comes_later_has_its_clusters_served() -> None:
    world = ClusterWorld()
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert "status" not in world.cluster()
    world.add_provider("one")
    await world.settle()
    assert world.provisioned()
