"""What can be seen from outside of Cluster API's contract, on a cluster its own controllers run.

Each function shows what its name says, of kinds and rights as they are installed, or of the objects
of one cluster whose Machines all run. `test/kit/capirules.py` names them by rule.
"""

import json
from typing import Final

import pytest

from banlieue.api import names
from test.kit.kube import Kube, KubeError, Object
from test.kit.statusrules import faults_of
from test.kit.workloadworld import CLUSTERS, OF_TEMPLATE, OURS, Workload, status_of

GROUP: Final = names.INFRASTRUCTURE_GROUP
CLUSTER_NAME: Final = names.CAPI_LABEL_CLUSTER_NAME
TEMPLATES: Final = "vspheremachinetemplates"
INFRASTRUCTURE: Final = "vsphereclusters"

_ROLES: Final = (
    "capi-aggregated-manager-role",
    "capi-kubeadm-control-plane-aggregated-manager-role",
)
_VERBS: Final = {"create", "delete", "get", "list", "patch", "update", "watch"}
_CLONED: Final = "cluster.x-k8s.io/cloned-from-"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_INVALID: Final = 422
_LEFTOVERS: Final = {"ready", "failureReason", "failureMessage", "v1beta2", "phase"}
_ADDRESSES: Final = {"Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"}


# Kinds and rights, as they are installed


def kinds_have_the_names_core_computes(kube: Kube) -> None:
    """Namespaced, with lists, templates called after what they make, and plurals as expected."""
    found = {it["spec"]["names"]["kind"]: it for it in _definitions(kube)}
    for kind, definition in found.items():
        called = definition["spec"]["names"]
        assert definition["spec"]["scope"] == "Namespaced", kind
        assert called["plural"] == f"{kind.lower()}s"
        assert called["listKind"] == f"{kind}List"
        assert definition["metadata"]["name"] == f"{called['plural']}.{GROUP}"
        if not kind.endswith("Template"):
            assert f"{kind}Template" in found


def kinds_are_labelled_served_and_stored_in_one_version(kube: Kube) -> None:
    """The version of the contract's label, and no label of an older contract."""
    for definition in _definitions(kube):
        labels = definition["metadata"]["labels"]
        assert labels[names.LABEL_CONTRACT] == names.VERSION
        assert "cluster.x-k8s.io/v1beta1" not in labels
        assert definition["status"]["storedVersions"] == [names.VERSION]
        (version,) = definition["spec"]["versions"]
        assert version["name"] == names.VERSION
        assert version["served"]


def kinds_are_shown_with_status_category_and_columns(made: Workload) -> None:
    """By discovery and by the tables that kubectl asks for."""
    kube = made.world.kube
    served = kube.request("GET", f"/apis/{GROUP}/{names.VERSION}")["resources"]
    listed = {it["name"]: it for it in served}
    for definition in _definitions(kube):
        plural = definition["spec"]["names"]["plural"]
        assert "cluster-api" in listed[plural]["categories"]
        # A template of clusters has nothing to tell.
        assert (f"{plural}/status" in listed) is not plural.endswith("clustertemplates")
    path = kube.resource(OURS).path(made.namespace)
    table = kube.request("GET", path, headers={"Accept": _TABLE})
    columns = {it["name"] for it in table["columnDefinitions"]}
    assert {"Name", "Cluster", "ProviderID", "Ready", "Age"} <= columns


def managers_have_their_rights_by_aggregation(kube: Kube) -> None:
    """Core and the control plane's manager, whose aggregated roles hold nothing of ours itself."""
    for role in _ROLES:
        rules = kube.get("clusterroles", role)["rules"]
        given = [it for it in rules if GROUP in it["apiGroups"]]
        assert any(set(it["verbs"]) >= _VERBS and "*" in it["resources"] for it in given), role


# The objects of a cluster


def machines_have_id_and_word(made: Workload) -> None:
    """The id stands with `provisioned`, the Machine has both, and no two have the same."""
    seen = set()
    for machine, node in _pairs(made):
        provider_id = node["spec"]["providerID"]
        assert status_of(node)["initialization"] == {"provisioned": True}
        assert machine["spec"]["providerID"] == provider_id
        assert status_of(machine)["initialization"]["infrastructureProvisioned"] is True
        assert node["metadata"]["finalizers"]
        seen.add(provider_id)
    assert len(seen) == len(made.machines())


def machines_have_nothing_core_stumbles_over(made: Workload) -> None:
    """No leftover of v1beta1, no null, no failure domain in the spec, addresses of valid types."""
    for machine, node in _pairs(made):
        status = status_of(node)
        assert "failureDomain" not in node["spec"]
        assert not _LEFTOVERS & set(status)
        assert ": null" not in json.dumps(node)
        assert {it["type"] for it in status["addresses"]} <= _ADDRESSES
        assert all(it["address"] for it in status["addresses"])
        assert status_of(machine)["addresses"] == status["addresses"]


def machines_are_where_their_machine_says(made: Workload) -> None:
    """In the failure domain that was asked for, if one was, and they say so."""
    for machine, node in _pairs(made):
        placed = node["spec"]["placement"]["failureDomain"]
        assert machine["spec"].get("failureDomain", placed) == placed
        assert status_of(node)["failureDomain"] == placed


def metadata_of_core_stays(made: Workload) -> None:
    """Labels with those of the template, annotations and the owner, as its managers want them."""
    for machine, node in _pairs(made):
        meta = node["metadata"]
        assert meta["labels"][CLUSTER_NAME] == machine["spec"]["clusterName"] == made.name
        assert OF_TEMPLATE.items() <= meta["labels"].items()
        cloned = {key: it for key, it in meta["annotations"].items() if key.startswith(_CLONED)}
        assert cloned[f"{_CLONED}groupkind"] == f"VSphereMachineTemplate.{GROUP}"
        assert cloned[f"{_CLONED}name"].startswith(made.name)
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["controller"]) == ("Machine", True)
        assert owner["uid"] == machine["metadata"]["uid"]


def templates_have_nothing_of_ours_but_status(made: Workload) -> None:
    """Neither finalizer nor annotation; capacity in strings, for who scales from zero.

    Those of a ClusterClass, which get their size from its variables, tell none.
    """
    sized = 0
    for template in made.world.kube.list(TEMPLATES, made.namespace):
        meta, spec = template["metadata"], template["spec"]["template"]["spec"]
        assert "finalizers" not in meta
        assert not [it for it in meta.get("annotations") or () if names.GROUP in it]
        capacity = status_of(template).get("capacity") or {}
        assert ({"cpu", "memory"} <= set(capacity)) is ("cpus" in spec)
        assert all(isinstance(it, str) for it in capacity.values())
        sized += "cpus" in spec
    assert sized


def templates_cannot_be_changed(made: Workload) -> None:
    """Whoever tries is told why; in a topology's dry run it is allowed."""
    kube = made.world.kube
    (template, *_) = kube.list(TEMPLATES, made.namespace)
    name = template["metadata"]["name"]
    change: Object = {"spec": {"template": {"spec": {"cpus": 16}}}}
    for dry_run in (False, True):
        with pytest.raises(KubeError, match="template"):
            kube.patch(TEMPLATES, name, change, made.namespace, dry_run=dry_run)
    change["metadata"] = {"annotations": {"topology.cluster.x-k8s.io/dry-run": ""}}
    kube.patch(TEMPLATES, name, change, made.namespace, dry_run=True)


def machines_keep_who_they_are(made: Workload) -> None:
    """Identity, Provider and provider id of a machine cannot be changed, by an admin neither."""
    kube = made.world.kube
    (node, *_) = made.nodes()
    name = node["metadata"]["name"]
    for change in (
        {"providerID": "vsphere://another"},
        {"providerRef": {"name": "another", "namespace": "banlieue-system"}},
        {"instance": {**node["spec"]["instance"], "uuid": "6ad0cb5c-3a39-4d52-a1f4-c2a1b29a8b4d"}},
    ):
        spec: Object = {"spec": change}
        with pytest.raises(KubeError) as caught:
            kube.patch(OURS, name, spec, made.namespace, dry_run=True)
        assert caught.value.status == _INVALID, change


def the_infrastructure_is_what_core_took_over(made: Workload) -> None:
    """Endpoint, failure domains that all say whether a control plane may go there, and the word."""
    kube = made.world.kube
    cluster = kube.get(CLUSTERS, made.name, made.namespace)
    name = cluster["spec"]["infrastructureRef"]["name"]
    found = kube.get(INFRASTRUCTURE, name, made.namespace)
    status = status_of(found)
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Cluster", cluster["metadata"]["uid"])
    assert found["metadata"]["labels"][CLUSTER_NAME] == made.name
    assert found["spec"]["controlPlaneEndpoint"] == cluster["spec"]["controlPlaneEndpoint"]
    assert status["initialization"] == {"provisioned": True}
    assert {it["name"] for it in status["failureDomains"]} == set(made.world.domains.values())
    assert all(isinstance(it["controlPlane"], bool) for it in status["failureDomains"])
    by_name = {it["name"]: it for it in status_of(cluster)["failureDomains"]}
    assert by_name == {it["name"]: it for it in status["failureDomains"]}
    assert _told(cluster, "InfrastructureReady") == _told(found, "Ready")
    change = {"spec": {"controlPlaneEndpoint": {"host": "10.9.9.9", "port": 1}}}
    with pytest.raises(KubeError) as caught:
        kube.patch(INFRASTRUCTURE, name, change, made.namespace, dry_run=True)
    assert caught.value.status == _INVALID


def conditions_are_what_core_shows(made: Workload) -> None:
    """All valid, none paused, and `Ready` is what the Machine shows as `InfrastructureReady`."""
    for machine, node in _pairs(made):
        assert list(faults_of(node)) == []
        assert _told(node, "Paused") == ("False", "NotPaused")
        (paused,) = [it for it in status_of(node)["conditions"] if it["type"] == "Paused"]
        assert paused["observedGeneration"] == node["metadata"]["generation"]
        assert _told(machine, "InfrastructureReady") == _told(node, "Ready")


OF_KINDS: Final = (
    kinds_have_the_names_core_computes,
    kinds_are_labelled_served_and_stored_in_one_version,
    managers_have_their_rights_by_aggregation,
)
OF_A_CLUSTER: Final = (
    kinds_are_shown_with_status_category_and_columns,
    machines_have_id_and_word,
    machines_have_nothing_core_stumbles_over,
    machines_are_where_their_machine_says,
    metadata_of_core_stays,
    templates_have_nothing_of_ours_but_status,
    templates_cannot_be_changed,
    machines_keep_who_they_are,
    the_infrastructure_is_what_core_took_over,
    conditions_are_what_core_shows,
)


def walk(made: Workload) -> None:
    """Everything of this module, on a cluster whose Machines all run."""
    for of_kinds in OF_KINDS:
        of_kinds(made.world.kube)
    for of_a_cluster in OF_A_CLUSTER:
        of_a_cluster(made)


def _definitions(kube: Kube) -> list[Object]:
    found = kube.list("customresourcedefinitions")
    return [it for it in found if it["spec"]["group"] == GROUP]


def _pairs(made: Workload) -> list[tuple[Object, Object]]:
    """Each Machine with its machine object."""
    nodes = {it["metadata"]["name"]: it for it in made.nodes()}
    machines = made.machines()
    assert machines
    return [(it, nodes[it["spec"]["infrastructureRef"]["name"]]) for it in machines]


def _told(obj: Object, kind: str) -> tuple[str, str]:
    (found,) = [it for it in status_of(obj)["conditions"] if it["type"] == kind]
    return found["status"], found["reason"]
