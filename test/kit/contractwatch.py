"""What must hold of Cluster API's contract at every moment from creation until a cluster runs.

    with ContractWatch(server) as watch:
        ...a cluster is made, and its Machines run...
    watch.check(namespace, machines=3)

Each function shows what its name says, of all versions of the objects of one namespace.
`test/kit/capirules.py` names them by rule.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Final

from banlieue.api import names
from test.kit.kube import Object
from test.kit.statusrules import OURS
from test.kit.statuswatch import StatusWatch, Version

KINDS: Final = ("vsphereclusters", "vspheremachinetemplates")

_WAITS: Final = (
    "WaitingForClusterInfrastructureReady",
    "WaitingForControlPlaneInitialized",
    "WaitingForBootstrapData",
)
"""What a machine waits for, in this order."""

_OF_CORE: Final = ("labels", "annotations")
_MACHINE: Final = "VSphereMachine"
_CLUSTER: Final = "VSphereCluster"
_TEMPLATE: Final = "VSphereMachineTemplate"

Lives = Mapping[str, Sequence[Object]]
"""The versions of each object, by its uid."""


class ContractWatch(StatusWatch):
    """Watches what a cluster has of ours; what it finds by itself is wrong at any time."""

    def check(self, namespace: str, machines: int) -> None:
        """Hold everything of this module against what was seen in a namespace.

        Args:
            namespace: That of the cluster.
            machines: How many there are; core gave none up that somebody disturbed, and made it
                again.

        Raises:
            AssertionError: Something was not as it has to be.
        """
        assert not self.findings, self.report()
        seen = [it for it in self.everything() if _is_in(it, namespace)]
        nodes, clusters, templates = (
            _lives(seen, kind) for kind in (_MACHINE, _CLUSTER, _TEMPLATE)
        )
        assert len(nodes) == machines
        assert clusters
        assert templates
        nothing_is_written_until_a_machine_controls(nodes)
        the_finalizer_stands_before_the_identity_and_that_before_the_id(nodes)
        what_is_waited_for_is_told_in_order(nodes)
        metadata_of_others_is_left_alone(nodes)
        nothing_is_written_until_a_cluster_owns(clusters)
        provisioned_stays({**nodes, **clusters})
        templates_get_nothing_but_status(templates)


def nothing_is_written_until_a_machine_controls(lives: Lives) -> None:
    """No finalizer, no status, no field of ours; the set that owns it at first is not enough."""
    for versions in lives.values():
        early = [it for it in versions if not _has_owner(it, "Machine", controller=True)]
        assert early, "each was seen before a Machine controlled it"
        for version in early:
            _untouched(version)


def nothing_is_written_until_a_cluster_owns(lives: Lives) -> None:
    """Nothing at all of ours."""
    for versions in lives.values():
        early = [it for it in versions if not _has_owner(it, "Cluster")]
        assert early, "each was seen before a Cluster owned it"
        for version in early:
            _untouched(version)


def the_finalizer_stands_before_the_identity_and_that_before_the_id(lives: Lives) -> None:
    """And what it says of itself follows the id, which never changes."""
    for versions in lives.values():
        ids = {it["spec"]["providerID"] for it in versions if "providerID" in it["spec"]}
        assert len(ids) <= 1
        for it in versions:
            spec = it["spec"]
            if "instance" in spec:
                assert it["metadata"].get("finalizers")
            if "providerID" in spec:
                assert "instance" in spec
            if _is_provisioned(it):
                assert spec.get("providerID")
        first = next((it for it in versions if "instance" in it["spec"]), None)
        assert first is not None
        assert "providerID" not in first["spec"], "the identity is there before the VM"


def what_is_waited_for_is_told_in_order(lives: Lives) -> None:
    """Infrastructure, control plane, bootstrap data; the second was waited for by somebody."""
    told = set()
    for versions in lives.values():
        reasons = [_reason(it) for it in versions]
        ranks = [_WAITS.index(it) for it in reasons if it in _WAITS]
        assert ranks == sorted(ranks), reasons
        told |= {it for it in reasons if it in _WAITS}
    assert _WAITS[1] in told


def metadata_of_others_is_left_alone(lives: Lives) -> None:
    """No label and no annotation that core gave a machine is ever missing afterwards."""
    for versions in lives.values():
        for earlier, later in pairwise(versions):
            for part in _OF_CORE:
                before, after = (it["metadata"].get(part) or {} for it in (earlier, later))
                assert before.keys() <= after.keys(), part


def provisioned_stays(lives: Lives) -> None:
    """True once, true ever."""
    for versions in lives.values():
        words = [_is_provisioned(it) for it in versions]
        assert words == sorted(words)
        assert words[-1]


def templates_get_nothing_but_status(lives: Lives) -> None:
    """No finalizer, and of the annotations none of ours."""
    for version in chain.from_iterable(lives.values()):
        assert "finalizers" not in version["metadata"]
        annotations = version["metadata"].get("annotations") or {}
        assert not [it for it in annotations if names.GROUP in it]


def _untouched(version: Object) -> None:
    meta = version["metadata"]
    assert "finalizers" not in meta
    assert "status" not in version
    assert [it["manager"] for it in meta["managedFields"] if it["manager"].startswith(OURS)] == []


def _is_in(version: Version, namespace: str) -> bool:
    gone = version.type == "DELETED"
    return version.object["metadata"].get("namespace") == namespace and not gone


def _lives(seen: Sequence[Version], kind: str) -> Lives:
    found: dict[str, list[Object]] = {}
    for it in seen:
        if it.object["kind"] == kind:
            found.setdefault(it.object["metadata"]["uid"], []).append(it.object)
    return found


def _has_owner(obj: Object, kind: str, *, controller: bool = False) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(it["kind"] == kind and (it.get("controller") or not controller) for it in owners)


def _is_provisioned(obj: Object) -> bool:
    status = obj.get("status") or {}
    return bool((status.get("initialization") or {}).get("provisioned"))


def _reason(obj: Object) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((str(it["reason"]) for it in conditions if it["type"] == "Ready"), "")
