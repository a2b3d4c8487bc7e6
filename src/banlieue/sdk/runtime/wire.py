"""What requests to the API server and its answers look like, and which error an answer means."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from banlieue.api.meta import Resource
from banlieue.sdk import kube
from banlieue.sdk.kube import Obj

_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT)
"""Refusals that say nothing about the request."""


class PatchNotApplied(kube.Invalid):
    """422 of a JSON patch whose operations did not fit the object."""


def path(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of a kind, of one of its objects, or of a subresource; no namespace means all."""
    parts = [f"/apis/{resource.group}" if resource.group else "/api", resource.version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """The query of a list or watch; what is empty is not in it."""
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in query.items() if value}


def parse(data: bytes) -> Obj:
    """The object of an answer; what is none becomes its message."""
    try:
        answer = json.loads(data)
    except ValueError:
        return {"message": data[:200].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {}


def retry_after(header: str | None) -> float | None:
    """Seconds a `Retry-After` header asks for."""
    try:
        return float(header) if header else None
    except ValueError:
        return None


def _names_another_object(details: Mapping[str, Any]) -> bool:
    """Whether a write named an object that another one has replaced."""
    return {cause.get("field") for cause in details.get("causes") or ()} == {"metadata.uid"}


def error(status: int, answer: Mapping[str, Any], after: float | None) -> kube.ApiError:
    """The error an answer means; `after` is its `Retry-After`, in seconds."""
    reason, message = answer.get("reason") or "", answer.get("message") or f"HTTP {status}"
    details = answer.get("details") or {}
    if status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return kube.Unavailable(status, message, after or details.get("retryAfterSeconds"))
    if status == HTTPStatus.CONFLICT and reason == "AlreadyExists":
        return kube.AlreadyExists(status, reason, message)
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and _names_another_object(details):
        return kube.Conflict(status, reason, message)
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and not details.get("kind"):
        # Validation names the kind; a patch that does not fit has nothing to name.
        return PatchNotApplied(status, reason, message)
    kinds: dict[int, type[kube.ApiError]] = {
        HTTPStatus.NOT_FOUND: kube.NotFound,
        HTTPStatus.CONFLICT: kube.Conflict,
        HTTPStatus.FORBIDDEN: kube.Forbidden,
        HTTPStatus.UNPROCESSABLE_ENTITY: kube.Invalid,
        HTTPStatus.BAD_REQUEST: kube.Invalid,
    }
    return kinds.get(status, kube.ApiError)(status, reason, message)
