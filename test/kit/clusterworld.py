"""The controller role over a memory API, with Clusters of Cluster API and their infrastructure.

    world = ClusterWorld.with_providers(one={"domains": ("a", "b")})
    world.add_cluster("prod", controlPlaneEndpoint=ENDPOINT)
    await world.settle()
    assert world.ready("prod") == ("True", "Ready", "")

Classes of the backends `this` and `that` name the cluster kinds THIS_CLUSTER and THAT_CLUSTER.
"""

from collections.abc import Callable
from typing import Any, Final

from banlieue.api.meta import Resource
from banlieue.api.resources import CAPI_CLUSTERS, PROVIDER_CLASSES, PROVIDERS
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change
from test.kit import statusrules
from test.kit.controllerworld import NAMESPACE, SYSTEM, ControllerWorld, FakeProvider, domain

_GROUP: Final = "infrastructure.example.com"
THIS_CLUSTER: Final = Resource(_GROUP, "v1alpha1", "ThisCluster", "thisclusters")
THAT_CLUSTER: Final = Resource(_GROUP, "v1alpha1", "ThatCluster", "thatclusters")
THIS_TEMPLATE: Final = Resource(_GROUP, "v1alpha1", "ThisMachineTemplate", "thismachinetemplates")
CLUSTER_KINDS: Final = {"this": THIS_CLUSTER, "that": THAT_CLUSTER}
ENDPOINT: Final = {"host": "10.0.0.9", "port": 6443}
LABEL_ZONE: Final = "topology.kubernetes.io/zone"


class ClusterWorld(ControllerWorld):
    """What tests of clusters and templates need beside what a controller has anyway."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.faults: list[str] = []
        self.api.subscribe(self._judge)

    @classmethod
    def with_providers(cls, **providers: dict[str, Any]) -> "ClusterWorld":
        """A world with these Providers; each has the failure domain `<name>-a` unless told."""
        world = cls()
        for name, options in providers.items():
            world.add_provider(name, **options)
        return world

    def add_provider(self, name: str, *, backend: str = "this", **options: Any) -> FakeProvider:  # noqa: ANN401 - as the base has them
        """As ever, of a class that names a cluster kind."""
        made = super().add_provider(name, backend=backend, **options)
        kind = CLUSTER_KINDS[backend]
        spelled = {"apiGroup": kind.group, "version": kind.version, "kind": kind.kind}
        self.api.edit(
            PROVIDER_CLASSES, Key("", backend), lambda it: it["spec"].update(cluster=spelled)
        )
        return made

    def edit_provider(self, name: str, change: Callable[[Obj], object]) -> None:
        """Change a Provider as its admin or its process would."""
        self.api.edit(PROVIDERS, Key(SYSTEM, name), lambda it: _ignore(change(it)))

    def publish(self, name: str, *domains: dict[str, Any]) -> None:
        """Have a Provider tell these failure domains."""
        self.edit_provider(name, lambda it: it["status"].update(failureDomains=list(domains)))

    def add_owner(self, name: str = "prod", **spec: object) -> Key:
        """A Cluster of Cluster API."""
        key = Key(NAMESPACE, name)
        self.api.put(
            CAPI_CLUSTERS,
            {"metadata": {"namespace": NAMESPACE, "name": name}, "spec": dict(spec)},
        )
        return key

    def edit_owner(self, name: str = "prod", **spec: object) -> None:
        """Change the spec of a Cluster."""
        self.api.edit(CAPI_CLUSTERS, Key(NAMESPACE, name), lambda it: it["spec"].update(spec))

    def add_cluster(
        self,
        name: str = "prod",
        *,
        kind: Resource = THIS_CLUSTER,
        owned: bool = True,
        annotations: dict[str, str] | None = None,
        **spec: object,
    ) -> Key:
        """An infrastructure cluster, and the Cluster that owns it unless there is one already."""
        key = Key(NAMESPACE, name)
        if owned and self.api.peek(CAPI_CLUSTERS, key) is None:
            self.add_owner(name)
        meta: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
        meta |= {"annotations": annotations or {}}
        meta |= {"ownerReferences": [owner(name)] if owned else []}
        self.api.put(kind, {"metadata": meta, "spec": dict(spec)})
        return key

    def edit_cluster(self, change: Callable[[Obj], object], name: str = "prod") -> None:
        """Change an infrastructure cluster as somebody else would."""
        self.api.edit(THIS_CLUSTER, Key(NAMESPACE, name), lambda it: _ignore(change(it)))

    def cluster(self, name: str = "prod", kind: Resource = THIS_CLUSTER) -> Obj:
        """An infrastructure cluster as it is."""
        found = self.api.peek(kind, Key(NAMESPACE, name))
        assert found is not None
        return found

    def told(self, kind: str, name: str = "prod") -> tuple[str, str, str]:
        """Status, reason and message of one of its conditions."""
        for it in (self.cluster(name).get("status") or {}).get("conditions") or ():
            if it["type"] == kind:
                return it["status"], it["reason"], it["message"]
        return "", "", ""

    def is_ready(self, name: str = "prod") -> tuple[str, str, str]:
        """Its condition Ready."""
        return self.told("Ready", name)

    def provisioned(self, name: str = "prod") -> bool:
        """What Cluster API waits for."""
        status = self.cluster(name).get("status") or {}
        return bool((status.get("initialization") or {}).get("provisioned"))

    def listed(self, name: str = "prod") -> dict[str, dict[str, Any]]:
        """Its failure domains by name."""
        status = self.cluster(name).get("status") or {}
        return {it["name"]: it for it in status.get("failureDomains") or ()}

    def control_plane(self, name: str = "prod") -> set[str]:
        """Names of those that control plane machines may be in."""
        return {key for key, it in self.listed(name).items() if it["controlPlane"]}

    def _judge(self, change: Change) -> None:
        """What the API server's clients would stumble over, in every version that is written."""
        if change.resource not in CLUSTER_KINDS.values() or change.new is None:
            return
        self.faults += statusrules.faults_of(change.new, change.old)


def owner(name: str) -> dict[str, Any]:
    """The reference Cluster API puts on what a Cluster owns."""
    return {
        "apiVersion": CAPI_CLUSTERS.api_version,
        "kind": CAPI_CLUSTERS.kind,
        "name": name,
        "uid": f"uid-of-{name}",
    }


def zone(name: str, **changes: object) -> dict[str, Any]:
    """A failure domain labelled with a zone of its own."""
    return domain(name, labels={LABEL_ZONE: name}, **changes)


def _ignore(_answer: object) -> None:
    """An edit changes its object in place; what it answers is of no use."""
