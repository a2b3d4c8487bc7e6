"""A workload cluster of the shipped ClusterClass, and which machines each of its templates made."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from test.kit.contractwatch import ContractWatch
from test.kit.workloadworld import CLUSTERS, PLANES, SETS, Workload, status_of

Object = dict[str, Any]

_TEMPLATES: Final = "vspheremachinetemplates"
_CLONED: Final = "cluster.x-k8s.io/cloned-from-name"
_OWNED: Final = "topology.cluster.x-k8s.io/owned"


def resize(made: Workload, cpus: int) -> None:
    """Edit the Cluster once: control plane and workers are to have so many processors."""
    kube, namespace = made.world.kube, made.namespace
    wanted = kube.get(CLUSTERS, made.name, namespace)["spec"]["topology"]
    for part in (wanted["controlPlane"], *wanted["workers"]["machineDeployments"]):
        (override,) = part["variables"]["overrides"]
        override["value"]["cpus"] = cpus
    kube.patch(CLUSTERS, made.name, {"spec": {"topology": wanted}}, namespace)


def templates_in_use(made: Workload) -> tuple[Object, Object]:
    """What machines of the control plane and workers are made from now."""
    kube, namespace = made.world.kube, made.namespace
    (plane,) = kube.list(PLANES, namespace)
    (workers,) = made.sets()
    references = (
        plane["spec"]["machineTemplate"]["spec"]["infrastructureRef"],
        workers["spec"]["template"]["spec"]["infrastructureRef"],
    )
    first, second = (kube.get(_TEMPLATES, it["name"], namespace) for it in references)
    return first, second


def processors(made: Workload) -> set[int]:
    """What the templates in use ask for."""
    return {it["spec"]["template"]["spec"]["cpus"] for it in templates_in_use(made)}


def unused_templates(made: Workload) -> set[str]:
    """Names of templates that the topology controller made and nothing refers to any more.

    A MachineDeployment keeps its last MachineSet without machines, and that its template.
    """
    kube, namespace = made.world.kube, made.namespace
    found = kube.list(_TEMPLATES, namespace, label_selector=_OWNED)
    used = {it["metadata"]["name"] for it in templates_in_use(made)}
    for it in kube.list("machinesets", namespace):
        used.add(it["spec"]["template"]["spec"]["infrastructureRef"]["name"])
    return {it["metadata"]["name"] for it in found} - used


def generations(made: Workload) -> dict[str, int]:
    """How often control plane and workers were told something else, by kind."""
    kube, namespace = made.world.kube, made.namespace
    found = (*kube.list(PLANES, namespace), *kube.list(SETS, namespace))
    return {it["kind"]: it["metadata"]["generation"] for it in found}


def settled(made: Workload) -> bool:
    """Whether the topology controller has nothing left to do about the newest edit."""
    cluster = made.world.kube.get(CLUSTERS, made.name, made.namespace)
    newest = cluster["metadata"]["generation"]
    return any(
        (it["type"], it["status"]) == ("TopologyReconciled", "True")
        and it.get("observedGeneration") == newest
        for it in status_of(cluster).get("conditions") or ()
    )


def ever_made(watch: ContractWatch, namespace: str) -> Mapping[str, int]:
    """How many machine objects were made so far, by template; those that are gone count."""
    found = {
        it.object["metadata"]["uid"]: it.object["metadata"]["annotations"][_CLONED]
        for it in watch.everything()
        if it.object["kind"] == "VSphereMachine" and it.object["metadata"]["namespace"] == namespace
    }
    return Counter(found.values())


def live_templates(made: Workload) -> Mapping[str, int]:
    """How many machine objects there are, by template."""
    return Counter(it["metadata"]["annotations"][_CLONED] for it in made.nodes())
