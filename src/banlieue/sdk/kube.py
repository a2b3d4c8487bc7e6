"""The Kubernetes API as reconcilers see it: plain objects, a small client, a cache to read from.

The implementation over the real client stands in `banlieue.sdk.runtime`; an in-memory one can
stand in its place, so reconcilers run the same in a simulator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from banlieue.api.meta import Resource

Obj = dict[str, Any]
"""A Kubernetes object as JSON holds it."""

STATUS = "status"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Namespace and name; the namespace is empty for cluster-scoped objects."""

    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Key":
        """The key of an object as the API returned it."""
        meta = obj.get("metadata") or {}
        return cls(meta.get("namespace") or "", meta.get("name") or "")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ApiError(Exception):
    """A request the API server answered with an error; `message` is the server's own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(ApiError):
    """404: the object, or its kind, does not exist."""


class AlreadyExists(ApiError):
    """409 AlreadyExists: a create met an object of that name."""


class Conflict(ApiError):
    """409 Conflict, or a failed JSON patch test: the object changed; read it again."""


class Forbidden(ApiError):
    """403: RBAC or an admission policy refused."""


class Invalid(ApiError):
    """422 or 400: the object does not fit its schema or a rule."""


class Unavailable(ApiError):
    """No usable answer: connection trouble, time-out, 429, 5xx. `retry_after` is in seconds."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(status, "Unavailable", message)
        self.retry_after = retry_after


class ApiClient(Protocol):
    """The calls reconcilers make. Every method raises `ApiError`.

    Writes carry a field manager. Answers are full objects and reach the cache before the method
    returns, so that the next pass does not act on older state.
    """

    async def get(self, resource: Resource, key: Key) -> Obj:
        """Read one object live."""

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Obj]:
        """Read all matching objects live, page by page; an empty namespace means all."""

    async def create(self, resource: Resource, obj: Obj, *, manager: str) -> Obj:
        """POST; raises `AlreadyExists`."""

    async def apply(
        self, resource: Resource, obj: Obj, *, manager: str, subresource: str = ""
    ) -> Obj:
        """Server-side apply of the manager's complete set, forced on its own fields."""

    async def json_patch(
        self,
        resource: Resource,
        key: Key,
        ops: Sequence[Mapping[str, Any]],
        *,
        manager: str,
        subresource: str = "",
    ) -> Obj:
        """JSON patch; a failed `test` raises `Conflict`."""

    async def delete(
        self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete with preconditions where given; raises `NotFound` and `Conflict`."""


class ObjectReader(Protocol):
    """The cache of watched kinds. Objects are fresh copies; the caller may keep or change them."""

    def get(self, resource: Resource, key: Key) -> Obj | None:
        """The newest known version, None when it is not known to exist."""

    def list(self, resource: Resource, *, namespace: str = "") -> Iterator[Obj]:
        """All known objects of a watched kind."""

    def revisions(self, resource: Resource) -> Mapping[Key, object]:
        """What tells a known object from what it was before, by key and without its body.

        The same value (`is`) as long as the object was not replaced. For values that are made from
        objects and kept; no two revisions can be compared otherwise.
        """

    def synced(self, *resources: Resource) -> bool:
        """Whether the first full read of these kinds is through."""
