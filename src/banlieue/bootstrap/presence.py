"""What of banlieue is in a cluster already, where that decides whether a command makes sense."""

from collections.abc import Sequence
from typing import Final

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CRDS, PROVIDERS
from banlieue.bootstrap.cluster import BootstrapError, Tools
from banlieue.bootstrap.objects import key_of
from banlieue.bootstrap.plan import COMPONENT
from banlieue.sdk.kube import Obj
from banlieue.sdk.registry import own_backend_names

_DEPLOYMENTS: Final = Resource("apps", "v1", "Deployment", "deployments")
CLUSTER_ROLES: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False
)


async def check_alone(tools: Tools, namespace: str) -> None:
    """Refuse another namespace than the one banlieue is installed in: a cluster takes one.

    Raises:
        BootstrapError: it is elsewhere; the message says where.
    """
    elsewhere = sorted(await _where(tools, "controller") - {namespace})
    if elsewhere:
        raise BootstrapError(
            f"banlieue is installed in namespace {elsewhere[0]} already, and a cluster takes one: "
            f"repeat with --namespace {elsewhere[0]}, or uninstall that first"
        )


async def check_beneath(tools: Tools, plan: Sequence[Obj]) -> None:
    """Refuse a static provider without its kinds and rights; say when an operator would serve, too.

    Args:
        tools: the cluster.
        plan: what a static provider is made of.

    Raises:
        BootstrapError: the kinds are not there, or nobody says what the backend's provider may do.
    """
    metadata = {"name": PROVIDERS.crd_name}
    kind = {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": metadata}
    if await tools.find(kind) is None:
        raise BootstrapError(
            "the kinds are missing: run `banlieue bootstrap controller` first, or apply its stream"
        )
    await _check_rights(tools, plan)
    for namespace in sorted(await _where(tools, "operator")):
        tools.say(
            f"note: an operator runs in namespace {namespace} and has every Provider served; use "
            "one of both ways for a backend, a second server only waits"
        )


async def _check_rights(tools: Tools, plan: Sequence[Obj]) -> None:
    """A process whose role is missing would start, be refused everything, and never be ready."""
    brought = {key_of(it).name for it in plan if it["kind"] == CLUSTER_ROLES.kind}
    for obj in plan:
        wanted = obj.get("roleRef") or {}
        name = wanted.get("name", "")
        if wanted.get("kind") != CLUSTER_ROLES.kind or name in brought:
            continue
        role = {
            "apiVersion": CLUSTER_ROLES.api_version,
            "kind": CLUSTER_ROLES.kind,
            "metadata": {"name": name},
        }
        if await tools.find(role) is None:
            backend = name.removeprefix(names.provider_cluster_role(""))
            known = ", ".join(await _known_backends(tools))
            raise BootstrapError(
                f"nobody says what a provider of backend {backend} may do: ClusterRole {name} is "
                f"missing. Known here: {known}. Name one of them, "
                f"or apply the manifests of {backend} first, which bring that role and its kinds"
            )


async def _known_backends(tools: Tools) -> list[str]:
    """Backends this command brings, and those whose rights are in the cluster."""
    found = await tools.patiently(lambda: tools.cluster.list(CLUSTER_ROLES))
    prefix = names.provider_cluster_role("")
    # The parts such a role is put together from are called like it, and put together nothing.
    there = [it["metadata"]["name"] for it in found if it.get("aggregationRule")]
    roles = {it.removeprefix(prefix) for it in there if it.startswith(prefix)}
    return sorted(roles | set(own_backend_names()))


async def _where(tools: Tools, component: str) -> set[str]:
    """Namespaces with a Deployment of that component of ours."""
    selector = f"app.kubernetes.io/part-of=banlieue,{COMPONENT}={component}"
    found = await tools.patiently(lambda: tools.cluster.list(_DEPLOYMENTS, label_selector=selector))
    return {it["metadata"]["namespace"] for it in found}
