"""A plain synchronous Kubernetes client for tests.

It has no cache, no retries and no opinion, so that what a test sees is what the server said.
Objects are plain dictionaries.
"""

import functools
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from test.kit.discovery import AGGREGATED, Discovery, Resource
from test.kit.kube_http import ApiConnection, KubeError, error_of
from test.kit.kubeconfig import read_kubeconfig
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

__all__ = ["Kube", "KubeError", "Object", "Objects", "WatchEvent"]

Object = dict[str, Any]
Objects = list[Object]
PatchType = Literal["merge", "json", "strategic-merge"]

_STRICT: Final = "Strict"
_GONE: Final = 404
_FOLLOWED_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Object


class Kube:
    """Requests to one API server as the user of one kubeconfig. May be shared by threads.

    A `kind` is named as for kubectl: `VirtualMachine`, `vm`, `machines.cluster.x-k8s.io`. Writes
    are checked strictly: an unknown or duplicate field is an error. Every method raises KubeError
    when the server refuses or cannot be reached.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *,
        user_agent: str = "banlieue-test-kit",
        field_manager: str = "test-kit",
        timeout: float = 30.0,
    ) -> None:
        """Connect lazily.

        Args:
            kubeconfig: Whose current context to use.
            user_agent: How audit entries show this client.
            field_manager: Owner of the fields it writes.
            timeout: Seconds until an unanswered request is an error.
        """
        self._api = ApiConnection(read_kubeconfig(kubeconfig), user_agent, timeout)
        accept = {"Accept": AGGREGATED}
        self._discovery = Discovery(lambda path: self._api.request("GET", path, headers=accept))
        self._field_manager = field_manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._api.close()

    def resource(self, kind: str) -> Resource:
        """What the server says of a kind."""
        return self._discovery.resource(kind)

    def resources(self) -> tuple[Resource, ...]:
        """All kinds the server serves now."""
        return self._discovery.refresh()

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """Read one object."""
        return self.request("GET", self._path(kind, namespace, name))

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Read one object; None when there is none."""
        try:
            return self.get(kind, name, namespace)
        except KubeError as error:
            if error.status == _GONE:
                return None
            raise

    def list(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Objects:
        """Read all objects of a kind; namespace None means all of them."""
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        return self._list(kind, namespace, query)[0]

    def snapshot(self, kind: str) -> tuple[Objects, str]:
        """All objects of a kind, and the version to watch it from so that nothing is missed."""
        return self._list(kind, None, {})

    def _list(
        self, kind: str, namespace: str | None, query: Mapping[str, str | None]
    ) -> tuple[Objects, str]:
        resource = self.resource(kind)
        answer = self.request("GET", resource.path(namespace), query=query)
        # Items of a list come without these two.
        type_meta = {"apiVersion": resource.api_version, "kind": resource.kind}
        objects = [{**type_meta, **item} for item in answer["items"]]
        return objects, answer["metadata"]["resourceVersion"]

    def create(
        self, obj: Mapping[str, Any], namespace: str | None = None, *, dry_run: bool = False
    ) -> Object:
        """Create an object.

        Args:
            obj: The object; its metadata may have `generateName` instead of `name`.
            namespace: Where, if its metadata does not say.
            dry_run: Have it checked and defaulted only.
        """
        resource, where = self._discovery.resource_of(obj), _namespace_of(obj, namespace)
        if resource.namespaced and not where:
            raise ValueError(f"a {resource.kind} needs a namespace")
        path = resource.path(where)
        return self.request("POST", path, query=self._write_query(dry_run=dry_run), body=obj)

    def apply(
        self,
        obj: Mapping[str, Any],
        namespace: str | None = None,
        *,
        field_manager: str | None = None,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Apply an object server-side.

        Args:
            obj: All fields that the field manager owns.
            namespace: Where, if its metadata does not say.
            field_manager: The owner; None means this client's.
            force: Take over fields of other managers instead of a Conflict.
            subresource: Such as `status`.
            dry_run: Have it checked and merged only.
        """
        query = self._write_query(dry_run=dry_run)
        query["fieldManager"] = field_manager or self._field_manager
        query["force"] = "true" if force else None
        path = self._path_of(obj, namespace, subresource)
        return self.request(
            "PATCH", path, query=query, body=obj, content_type="application/apply-patch+yaml"
        )

    def replace(
        self, obj: Mapping[str, Any], namespace: str | None = None, *, subresource: str = ""
    ) -> Object:
        """Write a whole object back (PUT); its resourceVersion, if given, has to be current."""
        path = self._path_of(obj, namespace, subresource)
        return self.request("PUT", path, query=self._write_query(), body=obj)

    def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Objects,
        namespace: str | None = None,
        *,
        patch_type: PatchType | None = None,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Patch an object.

        Args:
            kind: Its kind.
            name: Its name.
            patch: A JSON merge patch, or a list of JSON patch operations.
            namespace: Where it is.
            patch_type: None means `json` for a list, `merge` for anything else.
            subresource: Such as `status`.
            dry_run: Have it checked only.
        """
        patch_type = patch_type or ("json" if isinstance(patch, list) else "merge")
        return self.request(
            "PATCH",
            self._path(kind, namespace, name, subresource),
            query=self._write_query(dry_run=dry_run),
            body=patch,
            content_type=f"application/{patch_type}-patch+json",
        )

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Literal["Background", "Foreground", "Orphan"] | None = None,
        uid: str | None = None,
        missing_ok: bool = False,
    ) -> None:
        """Ask for the deletion of an object; finalizers may keep it.

        Args:
            kind: Its kind.
            name: Its name.
            namespace: Where it is.
            propagation: What becomes of the objects it owns; None means the kind's default.
            uid: Delete only if the object has this uid (Conflict otherwise).
            missing_ok: Do not mind if there is none.
        """
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation:
            body["propagationPolicy"] = propagation
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self.request("DELETE", self._path(kind, namespace, name), body=body)
        except KubeError as error:
            if not (missing_ok and error.status == _GONE):
                raise

    def delete_all(
        self, kind: str, namespace: str | None = None, *, label_selector: str | None = None
    ) -> None:
        """Ask for the deletion of all objects of a kind in a namespace, or of a cluster kind."""
        path = self.resource(kind).path(namespace)
        self.request("DELETE", path, query={"labelSelector": label_selector})

    def apply_yaml(
        self, text: str, namespace: str | None = None, *, field_manager: str | None = None
    ) -> Objects:
        """Apply all documents of a YAML text in order, waiting for each CRD to be served.

        Args:
            text: Documents; empty ones are skipped, and `List` objects are not taken apart.
            namespace: For objects of namespaced kinds that name none.
            field_manager: The owner; None means this client's.
        """
        applied = []
        for document in filter(None, yaml_documents(text)):
            applied.append(self.apply(document, namespace, field_manager=field_manager))
            if document["kind"] == "CustomResourceDefinition":
                self._await_served(document)
        return applied

    def apply_crds(self, definitions: Iterable[Object]) -> None:
        """Apply CustomResourceDefinitions and wait until the server serves all their versions."""
        definitions = tuple(definitions)
        for definition in definitions:
            self.apply(definition, force=True)
        for definition in definitions:
            self._await_served(definition)

    def watch(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        timeout: float,
        resource_version: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Generator[WatchEvent, None, None]:
        """Yield changes until the server ends the watch; it begins when the first is asked for.

        Args:
            kind: What to watch.
            namespace: Where; None means everywhere.
            timeout: Seconds after which the server is asked to end it (at least 1).
            resource_version: Changes after this one; None begins with what there is, as ADDED.
            label_selector: Only objects with these labels.
            field_selector: Only objects with these fields.

        Raises:
            KubeError: The server sent an ERROR event, such as 410 Expired, or broke off.
        """
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(max(1, round(timeout))),
        }
        path = self.resource(kind).path(namespace)
        for line in self._api.stream(path, query=query, timeout=timeout + 10):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise error_of(event["object"].get("code", 0), json.dumps(event["object"]).encode())
            yield WatchEvent(event["type"], event["object"])

    def log_lines(self, namespace: str, pod: str, container: str) -> Iterator[str]:
        """Yield what a container says, from its beginning to its end.

        Raises:
            KubeError: It has not begun, or is gone, or the connection broke off.
        """
        path = f"{self._path('pods', namespace, pod)}/log"
        query = {"container": container, "follow": "true"}
        for line in self._api.stream(path, query=query, timeout=_FOLLOWED_SECONDS):
            yield line.decode(errors="replace")

    def wait_for(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        until: Callable[[Object], object],
        timeout: float = 30.0,
        what: str = "as expected",
        exact: bool = False,
    ) -> Object:
        """Wait until an object exists and `until` answers something true for it; returns it.

        Args:
            kind: Its kind.
            name: Its name.
            namespace: Where it is.
            until: Asked with the object as it is.
            timeout: Seconds until giving up.
            what: What it has to be, to be read after "waiting for VirtualMachine a/b to be".

        Raises:
            WaitTimeoutError: It did not come to that; the message shows the object.
        """
        last: list[Object | None] = [None]

        def look() -> Object | None:
            last[0] = found = self.find(kind, name, namespace)
            return found if found and until(found) else None

        try:
            awaited = f"{kind} {_where(namespace, name)} to be {what}"
            return wait_until(look, timeout, awaited, exact=exact)
        except TimeoutError as error:
            error.add_note(f"the object: {json.dumps(_readable(last[0]), indent=1)}")
            raise

    def wait_gone(
        self, kind: str, name: str, namespace: str | None = None, *, timeout: float = 30.0
    ) -> None:
        """Wait until an object is gone; raises WaitTimeoutError if it stays."""
        what = f"{kind} {_where(namespace, name)} to be gone"
        try:
            wait_until(lambda: self.find(kind, name, namespace) is None, timeout, what)
        except TimeoutError as error:
            left = _readable(self.find(kind, name, namespace))
            error.add_note(f"the object: {json.dumps(left, indent=1)}")
            raise

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: object = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        """Send any request, for what the other methods do not cover; returns the JSON answer."""
        sent = dict(headers or {})
        if body is not None:
            sent["Content-Type"] = content_type
        data = self._api.request(method, path, query=query, body=body, headers=sent)
        answer: Object = json.loads(data)
        return answer

    def _await_served(self, definition: Object) -> None:
        spec = definition["spec"]
        kind = spec["names"]["kind"]
        for version in spec["versions"]:
            if version["served"]:
                example = {"apiVersion": f"{spec['group']}/{version['name']}", "kind": kind}
                serves = functools.partial(self._serves, example)
                wait_until(serves, 30.0, f"the API server to serve {kind}")

    def _serves(self, example: Mapping[str, str]) -> bool:
        try:
            self.request("GET", self._discovery.resource_of(example).path(None), query=_ONE)
        except KubeError as error:
            if error.status == _GONE:
                return False
            raise
        return True

    def _write_query(self, *, dry_run: bool = False) -> dict[str, str | None]:
        return {
            "fieldManager": self._field_manager,
            "fieldValidation": _STRICT,
            "dryRun": "All" if dry_run else None,
        }

    def _path(
        self, kind: str, namespace: str | None, name: str | None, subresource: str = ""
    ) -> str:
        return self.resource(kind).path(namespace, name, subresource)

    def _path_of(self, obj: Mapping[str, Any], namespace: str | None, subresource: str) -> str:
        resource = self._discovery.resource_of(obj)
        return resource.path(_namespace_of(obj, namespace), obj["metadata"]["name"], subresource)


_ONE: Final = {"limit": "1"}


def _namespace_of(obj: Mapping[str, Any], namespace: str | None) -> str | None:
    given: str | None = obj["metadata"].get("namespace")
    return given or namespace


def _where(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _readable(obj: Object | None) -> Object | None:
    if obj is None or obj.get("kind") == "Secret":
        return None
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}
