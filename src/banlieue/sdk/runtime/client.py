"""The API client over `kubernetes.aio`: plain objects in and out, errors by kind."""

import copy
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient as LibraryClient

import banlieue
from banlieue.api.meta import Resource
from banlieue.sdk import kube
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.runtime import passes, wire
from banlieue.sdk.runtime.cache import Identity, Writer
from banlieue.sdk.runtime.connection import Connection, NoConnectionError, close_connector
from banlieue.sdk.runtime.metrics import Metrics

T = TypeVar("T")

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
JSON = "application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
TIMEOUT = 30.0
CONNECT_TIMEOUT = 5.0
_LIST_ATTEMPTS = 3
_CONNECTIONS = 100


class WriteLog(Protocol):
    """Learns of our writes, so that the cache holds them before the caller goes on."""

    def begin_write(self, resource: Resource, key: Key) -> None:
        """A write to an object is about to be sent."""

    def end_write(
        self, resource: Resource, key: Key, answer: Obj | None, writer: Writer | None
    ) -> None:
        """It was answered with the object, or it failed and `answer` is None."""

    def gone(self, resource: Resource, key: Key, uid: str) -> None:
        """A delete removed the object at once."""


@dataclass(frozen=True, slots=True)
class _Target:
    resource: Resource
    key: Key
    path: str
    query: Mapping[str, str]


class KubeClient:
    """Implements `banlieue.sdk.kube.ApiClient`, plus what only the runtime needs."""

    def __init__(
        self,
        connection: Connection,
        *,
        role: str,
        metrics: Metrics,
        writes: WriteLog,
        timeout: float = TIMEOUT,
    ) -> None:
        self._connection = connection
        self.user_agent = f"banlieue/{banlieue.__version__} ({role})"
        self._metrics = metrics
        self._writes = writes
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        self._library: LibraryClient | None = None
        self._connector: aiohttp.TCPConnector | None = None

    async def open(self) -> None:
        """Make the session. Call after the connection is loaded."""
        self._connector = self._connection.connector(limit=_CONNECTIONS)
        # A pool is ours, the rest of the configuration may be shared.
        configuration = copy.copy(self._connection.configuration)
        configuration.client_session_kwargs = {"connector": self._connector}
        self._library = LibraryClient(configuration)

    async def close(self) -> None:
        """End the session and its connections."""
        library, self._library = self._library, None
        if library is not None:
            await library.close()  # type: ignore[no-untyped-call]  # the library's
        if self._connector is not None:
            await close_connector(self._connector)

    async def get(self, resource: Resource, key: Key) -> Obj:
        """Read one object live."""
        return await self._request("GET", wire.path(resource, key.namespace, key.name))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Obj]:
        """Read all matching objects live, page by page; an empty namespace means all."""
        query = wire.selectors(label_selector, field_selector)
        # Items of a list come without their type.
        return list(
            await self._items(resource, namespace, query, JSON, lambda it: _typed(resource, it))
        )

    async def identities(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> dict[Key, Identity]:
        """Read uid and version of all matching objects live, without their bodies."""
        query = wire.selectors(label_selector, field_selector)
        found = await self._items(resource, namespace, query, METADATA_LIST, _identity)
        return dict(found)

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server serves the kind at this version."""
        root = f"/apis/{resource.group}" if resource.group else "/api"
        try:
            found = await self._request("GET", f"{root}/{resource.version}")
        except kube.NotFound:
            return False
        return any(it.get("name") == resource.plural for it in found.get("resources") or ())

    async def create(self, resource: Resource, obj: Obj, *, manager: str) -> Obj:
        """POST; raises `AlreadyExists`."""
        key = Key.of(obj)
        path = wire.path(resource, key.namespace)
        target = _Target(resource, key, path, {"fieldManager": manager})
        return await self._write("POST", target, _typed(resource, obj))

    async def apply(
        self, resource: Resource, obj: Obj, *, manager: str, subresource: str = ""
    ) -> Obj:
        """Server-side apply of the manager's complete set, forced on its own fields."""
        key = Key.of(obj)
        path = wire.path(resource, key.namespace, key.name, subresource)
        query = {"fieldManager": manager, "force": "true"}
        target = _Target(resource, key, path, query)
        return await self._write("PATCH", target, _typed(resource, obj), content=APPLY)

    async def offer(
        self,
        resource: Resource,
        obj: Obj,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Server-side apply that takes no field from another manager, unless forced.

        With `dry_run` the answer is what would be; nothing is stored.

        Raises:
            Conflict: another manager owns a field with another value; the message names both.
        """
        key = Key.of(obj)
        path = wire.path(resource, key.namespace, key.name)
        query = {"fieldManager": manager, **({"force": "true"} if force else {})}
        if dry_run:
            query["dryRun"] = "All"
            body = _typed(resource, obj)
            return await self._request("PATCH", path, query, body=body, content=APPLY)
        target = _Target(resource, key, path, query)
        return await self._write("PATCH", target, _typed(resource, obj), content=APPLY)

    async def server_version(self) -> tuple[int, int]:
        """Major and minor version of the API server."""
        told = await self._request("GET", "/version")
        numbers = [re.match(r"\d*", str(told.get(part) or "")) for part in ("major", "minor")]
        major, minor = (int(it[0] or 0) if it else 0 for it in numbers)
        return major, minor

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
        path = wire.path(resource, key.namespace, key.name, subresource)
        target = _Target(resource, key, path, {"fieldManager": manager})
        body = [dict(op) for op in ops]
        try:
            return await self._write("PATCH", target, body, content=JSON_PATCH)
        except wire.PatchNotApplied as e:
            raise kube.Conflict(e.status, "Conflict", f"patch of {key}: {e.message}") from e

    async def delete(
        self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete with preconditions where given; raises `NotFound` and `Conflict`."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
        given = {name: value for name, value in preconditions.items() if value}
        if given:
            body["preconditions"] = given
        path = wire.path(resource, key.namespace, key.name)
        await self._write("DELETE", _Target(resource, key, path, {}), body)

    async def _items(
        self,
        resource: Resource,
        namespace: str,
        query: dict[str, str],
        accept: str,
        taken: Callable[[Obj], T],
    ) -> Sequence[T]:
        for _ in range(_LIST_ATTEMPTS):
            try:
                return await self._pages(wire.path(resource, namespace), query, accept, taken)
            except kube.ApiError as e:
                if e.status != HTTPStatus.GONE:
                    raise
        raise kube.Unavailable(HTTPStatus.GONE, "the list expired while it was read")

    async def _pages(
        self, path: str, query: dict[str, str], accept: str, taken: Callable[[Obj], T]
    ) -> Sequence[T]:
        """What is taken of each object; no more than a page of whole ones is in memory at once."""
        found: deque[T] = deque()
        token = ""
        while True:
            page_query = {**query, "limit": str(PAGE)}
            if token:
                page_query["continue"] = token
            page = await self._request("GET", path, page_query, accept=accept)
            found.extend(map(taken, page.get("items") or ()))
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return tuple(found)

    async def _write(
        self, method: str, target: _Target, body: object, *, content: str = JSON
    ) -> Obj:
        run = passes.current()
        writer = (run.controller, run.key) if run is not None else None
        self._writes.begin_write(target.resource, target.key)
        shown: Obj | None = None
        try:
            answer = await self._request(
                method, target.path, target.query, body=body, content=content
            )
            if answer.get("kind") == "Status":
                # A delete that took effect at once leaves no object to show.
                uid = (answer.get("details") or {}).get("uid") or ""
                self._writes.gone(target.resource, target.key, uid)
                return answer
            shown = answer
            return answer
        finally:
            self._writes.end_write(target.resource, target.key, shown, writer)

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> Obj:
        url = f"{self._connection.host}{path}"
        if query:
            url = f"{url}?{urlencode(query)}"
        headers = {"Accept": accept, "User-Agent": self.user_agent}
        if body is not None:
            headers["Content-Type"] = content
        status, data, retry_after = await self._send(method, url, headers, body)
        if status == HTTPStatus.UNAUTHORIZED:
            await self._reload()
            status, data, retry_after = await self._send(method, url, headers, body)
        answer = wire.parse(data)
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        raise wire.error(status, answer, retry_after)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: object
    ) -> tuple[int, bytes, float | None]:
        library = self._library
        if library is None:
            raise kube.Unavailable(0, "the client is closed")
        sent = dict(headers)
        token = await self._connection.authorization()
        if token:
            sent["Authorization"] = token
        try:
            response = await library.call_api(
                method, url, header_params=sent, body=body, _request_timeout=self._timeout
            )
            data = await response.read()  # type: ignore[no-untyped-call]  # as above
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            self._metrics.requests.labels("<error>", method).inc()
            text = str(e) or type(e).__name__
            raise kube.Unavailable(0, f"{method} did not get an answer: {text}") from e
        self._metrics.requests.labels(str(response.status), method).inc()
        return response.status, data, wire.retry_after(response.headers.get("Retry-After"))

    async def _reload(self) -> None:
        try:
            await self._connection.reload()
        except NoConnectionError as e:
            raise kube.Unavailable(HTTPStatus.UNAUTHORIZED, str(e)) from e


def _identity(obj: Obj) -> tuple[Key, Identity]:
    return Key.of(obj), Identity.of(obj)


def _typed(resource: Resource, obj: Obj) -> Obj:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
