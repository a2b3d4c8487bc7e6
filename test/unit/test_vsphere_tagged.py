"""Classes that name their datastore or port group by a tag."""

from dataclasses import replace

import pytest

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client.tags import Tags
from banlieue.providers.vsphere.places import domains, networks, stores
from banlieue.providers.vsphere.places.inventory import Datastore, Inventory, Pod
from banlieue.providers.vsphere.places.stores import NotReachable
from banlieue.providers.vsphere.places.tagged import Tagged, declared
from banlieue.sdk.errors import Unreachable
from test.kit.vsphere_places import by_id, inventory

FAST = "tier/fast"


def _tagged(**tags: frozenset[str] | None) -> Inventory:
    return replace(inventory(), tagged={f"tier/{name}": found for name, found in tags.items()})


def test_a_storage_class_means_the_datastores_that_carry_its_tag() -> None:
    places = _tagged(fast=frozenset({"datastore-1"}), slow=frozenset())
    (cluster,) = places.clusters.values()
    assert domains.datastore(places, cluster, {"tag": FAST}).id == "datastore-1"
    with pytest.raises(NotReachable, match="carries tag 'tier/slow'"):
        domains.datastore(places, cluster, {"tag": "tier/slow"})
    with pytest.raises(NotReachable, match="not written as category/name"):
        domains.datastore(places, cluster, {"tag": "fast"})


def test_a_tag_on_a_datastore_cluster_counts_for_its_datastores() -> None:
    places = _tagged(fast=frozenset({"group-p1"}))
    store = replace(next(iter(places.datastores.values())), parent="group-p1")
    places = replace(
        places,
        datastores=by_id([store]),
        pods=by_id([Pod("group-p1", "pod", "group-s1")]),
        folders={**places.folders, **by_id([Pod("group-p1", "pod", "group-s1")])},
    )
    (cluster,) = places.clusters.values()
    assert stores.candidates(places, cluster, {"tag": FAST}) == (store,)
    assert isinstance(store, Datastore)


def test_a_network_class_means_the_one_port_group_that_carries_its_tag() -> None:
    places = _tagged(fast=frozenset({"dvportgroup-1"}), both=frozenset(inventory().networks))
    (cluster,) = places.clusters.values()
    found = domains.network(places, cluster, {"tag": FAST})
    assert found.id == "dvportgroup-1"
    assert networks.tags_of(places, found) == frozenset({FAST, "tier/both"})
    with pytest.raises(NotReachable, match="2 port groups with tag 'tier/both'"):
        domains.network(places, cluster, {"tag": "tier/both"})
    named = {"tag": "tier/both", "portGroup": "prod"}
    assert domains.network(places, cluster, named).id == "dvportgroup-1", "both have to hold"


def test_what_nobody_could_read_is_no_drift_and_no_place() -> None:
    places = _tagged(fast=None)
    (cluster,) = places.clusters.values()
    with pytest.raises(NotReachable, match="does not tell"):
        domains.network(places, cluster, {"tag": FAST})
    assert networks.tags_of(places, next(iter(places.networks.values()))) is None


class _Tags(Tags):
    def __init__(self) -> None:
        self.answers: list[frozenset[str] | Unreachable | None] = []

    def objects(self, category: str, name: str) -> frozenset[str] | None:
        assert f"{category}/{name}" == FAST
        answer = self.answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer


def test_tags_that_cannot_be_read_stay_what_they_were() -> None:
    tags = _Tags()
    capabilities = Capabilities.from_api(
        {"storageClasses": [{"name": "gold", "target": {"tag": FAST}}]}
    )
    assert declared(capabilities) == {FAST}
    reader = Tagged(tags=tags, named=declared(capabilities), reader=lambda _: inventory())
    down = Unreachable("no answer")
    tags.answers = [down, frozenset({"datastore-1"}), down, None]
    told = [reader(None).tagged[FAST] for _ in range(4)]  # type: ignore[arg-type] # no session is used
    known = frozenset({"datastore-1"})
    assert told == [None, known, known, frozenset()], "a tag that is gone is on nothing"
