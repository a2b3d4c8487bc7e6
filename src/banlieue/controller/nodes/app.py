"""The node patcher as a role of its own, so that no other identity ever reads a kubeconfig."""

from collections.abc import Iterable

from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES, PROVIDER_CLASSES
from banlieue.controller.nodes.patcher import CONTROLLER, NodePatcher
from banlieue.sdk.kube import Key
from banlieue.sdk.reconcile import Change, Context, Controller, Request, Watch
from banlieue.sdk.runtime.process import Process
from banlieue.sdk.runtime.workload import open_nodes
from banlieue.sdk.workload import OpenNodes


def build(process: Process, *, namespace: str = "") -> None:
    """Add the node patcher to a process.

    Args:
        process: runs it; nothing is started here.
        namespace: look at Clusters of this namespace only; empty means all.
    """
    process.add_controller(controller(process.context, open_nodes, namespace=namespace))


def controller(ctx: Context, opener: OpenNodes, *, namespace: str = "") -> Controller:
    """The node patcher and what wakes it; Cluster API may be installed later."""
    return Controller(
        CONTROLLER,
        NodePatcher(ctx, opener),
        (
            Watch(CAPI_CLUSTERS, _itself, namespace=namespace, optional=True),
            Watch(CAPI_MACHINES, _cluster, namespace=namespace, optional=True, many=True),
            Watch(PROVIDER_CLASSES, _nobody),
        ),
        workers=4,
    )


def _itself(change: Change) -> Iterable[Request]:
    return (Request(change.key),)


def _cluster(change: Change) -> Iterable[Request]:
    """The Cluster of a Machine, when something happened to it that could concern its Node."""
    if change.new is None or _concern(change.old) == _concern(change.new):
        return ()
    name = (change.new.get("spec") or {}).get("clusterName")
    return (Request(Key(change.key.namespace, name)),) if name else ()


def _concern(machine: object) -> object:
    if not isinstance(machine, dict):
        return None
    spec, status = machine.get("spec") or {}, machine.get("status") or {}
    return spec.get("providerID"), bool(status.get("nodeRef"))


def _nobody(change: Change) -> Iterable[Request]:
    """Classes are looked up in the cache and wake nobody."""
    del change
    return ()
