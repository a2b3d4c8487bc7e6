"""What of banlieue is in a cluster already, where that decides whether a command makes sense."""

from typing import Final

from banlieue.api.meta import Resource
from banlieue.api.resources import CRDS, PROVIDERS
from banlieue.bootstrap.cluster import BootstrapError, Tools
from banlieue.bootstrap.plan import COMPONENT

_DEPLOYMENTS: Final = Resource("apps", "v1", "Deployment", "deployments")


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


async def check_beneath(tools: Tools) -> None:
    """Refuse a static provider without the kinds; say when an operator would serve as well.

    Raises:
        BootstrapError: the kinds are not there.
    """
    metadata = {"name": PROVIDERS.crd_name}
    kind = {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": metadata}
    if await tools.find(kind) is None:
        raise BootstrapError(
            "the kinds are missing: run `banlieue bootstrap controller` first, or apply its stream"
        )
    for namespace in sorted(await _where(tools, "operator")):
        tools.say(
            f"note: an operator runs in namespace {namespace} and has every Provider served; use "
            "one of both ways for a backend, a second server only waits"
        )


async def _where(tools: Tools, component: str) -> set[str]:
    """Namespaces with a Deployment of that component of ours."""
    selector = f"app.kubernetes.io/part-of=banlieue,{COMPONENT}={component}"
    found = await tools.patiently(lambda: tools.cluster.list(_DEPLOYMENTS, label_selector=selector))
    return {it["metadata"]["namespace"] for it in found}
