"""Machine templates tell what a machine would offer, so that a group can grow from none."""

from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.infrastructure.machine import MachineTemplateSpec
from banlieue.api.resources import CRDS, PROVIDER_CLASSES, VM_IMAGES
from banlieue.controller.clusters.capacity import template_status
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.clusterworld import (
    ENDPOINT,
    THAT_CLUSTER,
    THIS_TEMPLATE,
    ClusterWorld,
    owner,
)
from test.kit.controllerworld import NAMESPACE, THIS

KEY = Key(NAMESPACE, "workers")


def add_template(world: ClusterWorld, meta: dict[str, Any] | None = None, **spec: object) -> None:
    """A template of two processors and 4 GiB, unless told otherwise."""
    machine = {"cpus": 2, "memoryMiB": 4096, "imageRef": {"name": "ubuntu"}, **spec}
    world.api.put(
        THIS_TEMPLATE,
        {
            "metadata": {"namespace": NAMESPACE, "name": "workers", **(meta or {})},
            "spec": {"template": {"spec": machine}},
        },
    )


def status_of(world: ClusterWorld) -> dict[str, Any]:
    found = world.api.peek(THIS_TEMPLATE, KEY)
    assert found is not None
    return found.get("status") or {}


def world_with_image(architecture: str = "amd64") -> ClusterWorld:
    world = ClusterWorld()
    world.add_image(architecture=architecture)
    world.add_provider("one")
    return world


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"cpus": 4, "memoryMiB": 512}, {"cpu": "4", "memory": "512Mi"}),
        (
            {"cpus": 1, "memoryMiB": 1024, "disks": [{"name": "root", "sizeGiB": 20}]},
            {"cpu": "1", "memory": "1024Mi", "ephemeral-storage": "20Gi"},
        ),
        (
            {"cpus": 1, "memoryMiB": 1024, "disks": [{"name": "data", "sizeGiB": 20}]},
            {"cpu": "1", "memory": "1024Mi"},
        ),
        ({"cpus": 4}, {}),
        ({"memoryMiB": 512}, {}),
        ({"disks": [{"name": "root", "sizeGiB": 20}]}, {}),
    ],
)
def test_capacity_is_strings_and_whole_or_not_there(
    spec: dict[str, Any], told: dict[str, str]
) -> None:
    found = template_status(MachineTemplateSpec.from_api(spec), None).to_api()
    assert found == ({"capacity": told} if told else {})


async def test_a_template_nobody_uses_tells_it_in_one_write() -> None:
    world = world_with_image(architecture="arm64")
    add_template(world)
    await world.settle()
    assert status_of(world) == {
        "capacity": {"cpu": "2", "memory": "4096Mi"},
        "nodeInfo": {"architecture": "arm64", "operatingSystem": "linux"},
    }
    assert world.controller_writes()["json_patch ThisMachineTemplate/status"] == 1
    found = world.api.peek(THIS_TEMPLATE, KEY)
    assert found is not None
    assert found["metadata"].keys().isdisjoint({"annotations", "finalizers"})
    writes = len(world.api.writes())
    world.restart()
    await world.settle()
    assert len(world.api.writes()) == writes


async def test_an_image_that_comes_later_is_told() -> None:
    world = ClusterWorld.with_providers(one={})
    add_template(world)
    await world.settle()
    assert status_of(world) == {"capacity": {"cpu": "2", "memory": "4096Mi"}}
    world.add_image(osFamily="windows")
    await world.settle()
    assert status_of(world)["nodeInfo"] == {"architecture": "amd64", "operatingSystem": "windows"}
    world.api.drop(VM_IMAGES, Key("", "ubuntu"))
    await world.settle()
    assert "nodeInfo" not in status_of(world)


async def test_what_others_wrote_into_it_is_put_right() -> None:
    world = world_with_image()
    add_template(world)
    await world.settle()
    before = status_of(world)

    def forge(it: Obj) -> None:
        it["status"]["capacity"] = {"cpu": "64"}

    world.api.edit(THIS_TEMPLATE, KEY, forge)
    await world.settle()
    assert status_of(world) == before


async def test_it_is_left_alone_until_its_cluster_is_not_paused_any_more() -> None:
    world = world_with_image()
    world.add_owner("prod", paused=True)
    add_template(world, {"ownerReferences": [owner("prod")]})
    await world.settle()
    assert status_of(world) == {}
    world.edit_owner("prod", paused=False)
    await world.settle()
    assert status_of(world)["capacity"]


@pytest.mark.parametrize(
    "annotation", [names.CAPI_ANNOTATION_PAUSED, names.CAPI_ANNOTATION_DELETE_FOR_MOVE]
)
async def test_it_is_left_alone_where_it_says_so_itself(annotation: str) -> None:
    world = world_with_image()
    add_template(world, {"annotations": {annotation: "false"}})
    await world.settle()
    assert status_of(world) == {}


# Kinds that are known without a class.


def crd(kind: str, label: str) -> Obj:
    group, plural = THIS.group, f"{kind.lower()}s"
    return {
        "metadata": {"name": f"{plural}.{group}", "labels": {label: "true"}},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True}],
        },
    }


async def test_kinds_without_a_class_are_served_by_the_label_on_their_crds() -> None:
    world = ClusterWorld()
    world.api.put(CRDS, crd("ThisCluster", names.LABEL_CLUSTER_KIND))
    world.api.put(CRDS, crd("ThisMachine", names.LABEL_MACHINE_KIND))
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)
    add_template(world)
    await world.role.watch_known_kinds()
    await world.settle()
    assert world.is_ready()[:2] == ("False", "NoFailureDomains")
    assert status_of(world)["capacity"]


async def test_who_may_not_list_crds_serves_the_kinds_of_classes() -> None:
    world = ClusterWorld.with_providers(one={})
    world.add_cluster(controlPlaneEndpoint=ENDPOINT)

    def forbid(call: Call, moment: Moment) -> None:
        if call.resource == CRDS and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", "no")

    world.api.intercept(forbid)
    await world.role.watch_known_kinds()
    await world.settle()
    assert world.provisioned()


async def test_a_class_that_names_another_kind_has_that_served_too() -> None:
    world = ClusterWorld.with_providers(one={})
    world.add_cluster("old", controlPlaneEndpoint=ENDPOINT)
    world.add_cluster("new", kind=THAT_CLUSTER, controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    spelled = {
        "apiGroup": THAT_CLUSTER.group,
        "version": THAT_CLUSTER.version,
        "kind": THAT_CLUSTER.kind,
    }
    world.api.edit(PROVIDER_CLASSES, Key("", "this"), lambda it: it["spec"].update(cluster=spelled))
    await world.settle()
    assert world.cluster("new", THAT_CLUSTER)["status"]["failureDomains"]
    assert world.listed("old") == {}
