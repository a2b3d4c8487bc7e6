"""Waits until what was installed serves, and says what is the matter when it does not."""

from collections.abc import Sequence
from typing import Any, Final

from banlieue.api.meta import Resource
from banlieue.bootstrap.cluster import BootstrapError, Tools
from banlieue.bootstrap.objects import key_of, title
from banlieue.sdk.kube import Obj

_PODS: Final = Resource("", "v1", "Pod", "pods")


async def await_kinds(tools: Tools, plan: Sequence[Obj]) -> None:
    """Wait until the API server serves every kind of a plan.

    Raises:
        BootstrapError: one was not accepted in time; the message says why.
    """
    for obj in plan:
        if obj["kind"] == "CustomResourceDefinition":
            await _await_kind(tools, obj)


async def _await_kind(tools: Tools, obj: Obj) -> None:
    last: Obj = {}

    async def served() -> bool:
        nonlocal last
        last = await tools.find(obj) or {}
        return condition(last, "Established") == "True"

    if not await tools.until(served):
        why = [it.get("message", "") for it in _conditions(last) if it.get("status") != "True"]
        raise BootstrapError(
            f"{title(obj)} is not served: {'; '.join(filter(None, why)) or 'no answer in time'}"
        )


async def await_deployments(tools: Tools, plan: Sequence[Obj]) -> None:
    """Wait until every Deployment of a plan runs what the plan says.

    Raises:
        BootstrapError: one did not in time; the message says what its pods wait for.
    """
    for obj in plan:
        if obj["kind"] == "Deployment":
            await _await_deployment(tools, obj)


async def _await_deployment(tools: Tools, obj: Obj) -> None:
    tools.say(f"waiting   {title(obj)} to be available")

    async def there() -> bool:
        return available(await tools.find(obj) or {})

    if not await tools.until(there):
        why = await _what_pods_say(tools, obj)
        raise BootstrapError(f"{title(obj)} is not available: {why}")
    tools.say(f"available {title(obj)}")


def available(deployment: Obj) -> bool:
    """Whether a Deployment runs all its pods as its spec says now."""
    status, spec = deployment.get("status") or {}, deployment.get("spec") or {}
    wanted = spec.get("replicas", 1)
    return (
        bool(spec)
        and status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
        and status.get("updatedReplicas", 0) >= wanted
        and status.get("availableReplicas", 0) >= wanted
    )


def condition(obj: Obj, kind: str) -> str:
    """Status of a condition, empty when it is not there."""
    return next((str(it["status"]) for it in _conditions(obj) if it["type"] == kind), "")


def _conditions(obj: Obj) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (obj.get("status") or {}).get("conditions") or []
    return found


async def _what_pods_say(tools: Tools, deployment: Obj) -> str:
    labels = deployment["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    namespace = key_of(deployment).namespace
    pods = await tools.cluster.list(_PODS, namespace=namespace, label_selector=selector)
    said = [text for pod in pods for text in _complaints(pod)]
    if said:
        return "; ".join(said)
    if not pods:
        live = await tools.find(deployment) or {}
        why = [it.get("message", "") for it in _conditions(live) if it.get("status") == "False"]
        return "; ".join(filter(None, why)) or "it has no pod"
    names = ", ".join(pod["metadata"]["name"] for pod in pods)
    return f"look at the log of pod {names} in namespace {namespace}"


def _complaints(pod: Obj) -> list[str]:
    name = pod["metadata"]["name"]
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    states = (it for container in containers for it in (container.get("state") or {}).values())
    found = [
        f"pod {name}: {state['reason']} {state.get('message', '')}".strip()
        for state in states
        if state.get("reason")
    ]
    if not found and condition(pod, "PodScheduled") == "False":
        (told,) = (it for it in _conditions(pod) if it["type"] == "PodScheduled")
        found.append(f"pod {name}: {told.get('reason')} {told.get('message', '')}".strip())
    return found
