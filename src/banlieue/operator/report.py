"""What `status.workload` of a Provider says. Pure."""

from collections.abc import Mapping
from typing import Any

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Workload
from banlieue.operator.scope import Problem, ProviderScope
from banlieue.sdk.kube import Key, Obj

_LINE = 256


def compose(scope: ProviderScope, problem: Problem | None) -> Workload:
    """How what serves the Provider stands, and why it is not as it should be."""
    told = Workload(observed_class_generation=_class_generation(scope))
    deployment = scope.serving()
    if deployment is not None:
        _describe(told, deployment)
        problem = problem or _not_ready(deployment)
    if problem is not None:
        told.reason, told.message = problem.reason.value, problem.message
    return Workload.from_api(told.to_api())


def _class_generation(scope: ProviderScope) -> int | None:
    if scope.settled and scope.provider_class is not None:
        return scope.provider_class.metadata.generation
    before = scope.provider.status.workload
    return before.observed_class_generation if before else None


def _describe(told: Workload, deployment: Obj) -> None:
    key, spec, status = Key.of(deployment), deployment.get("spec") or {}, _status(deployment)
    told.namespace, told.name = key.namespace, key.name
    told.image = next((it[:_LINE] for it in _images(spec) if it), None)
    told.replicas = spec.get("replicas", 1)
    told.ready_replicas = status.get("readyReplicas") or 0
    told.updated_replicas = status.get("updatedReplicas") or 0
    if (status.get("observedGeneration") or 0) < (deployment["metadata"].get("generation") or 0):
        told.updated_replicas = 0


def _images(spec: Mapping[str, Any]) -> list[str]:
    pod = (spec.get("template") or {}).get("spec") or {}
    return [
        container.get("image") or ""
        for container in pod.get("containers") or ()
        if container.get("name") == names.MANAGER_CONTAINER
    ]


def _not_ready(deployment: Obj) -> Problem | None:
    status, spec = _status(deployment), deployment.get("spec") or {}
    wanted = spec.get("replicas", 1)
    current = (status.get("observedGeneration") or 0) >= (
        deployment["metadata"].get("generation") or 0
    )
    ready = min(status.get("readyReplicas") or 0, status.get("updatedReplicas") or 0)
    if current and ready >= wanted:
        return None
    return Problem(Reason.WORKLOAD_NOT_READY, _why(deployment))


def _why(deployment: Obj) -> str:
    """The Deployment's own word where it has one, else how to look."""
    told = {
        condition.get("type"): condition
        for condition in _status(deployment).get("conditions") or ()
    }
    failure, progress = told.get("ReplicaFailure") or {}, told.get("Progressing") or {}
    if failure.get("status") == "True" and failure.get("message"):
        return f"the pod cannot be made: {failure['message']}"
    key = Key.of(deployment)
    look = (
        f"see kubectl get pods -n {key.namespace} -l {names.LABEL_INSTANCE}={key.name}, its log, "
        "and the Provider's conditions"
    )
    if progress.get("status") == "False":
        return f"the pod does not become ready; {look}"
    return f"the pod is not ready yet; {look}"


def _status(deployment: Obj) -> Mapping[str, Any]:
    return deployment.get("status") or {}
