"""A Kubernetes API server in memory, for tests and simulations of reconcilers.

    api = MemoryApi()
    api.put(PROVIDER, {"metadata": {"namespace": "ns", "name": "a"}, "spec": {...}})
    context = context_for(api)                  # banlieue.sdk.testing.fakes
    await ProviderReconciler(..., context).reconcile(Key("ns", "a"))
    assert api.peek(PROVIDER, Key("ns", "a"))["status"]["version"] == "8.0.3"

`MemoryApi` is an `ApiClient`; `api.cache` is an `ObjectReader` over the same objects. It has what
reconcilers lean on: resourceVersion and generation, a status subresource on every kind, uid and
version preconditions, finalizers with deletionTimestamp, field and label selectors, JSON patch,
server-side apply with ownership per field and manager (writes that change nothing are no writes),
and `collect_garbage()` for owner references. It has no schemas, defaults, CEL or RBAC.

Tests act as somebody else, without being recorded, with `put`, `edit`, `drop` and `peek`.
`api.calls` records every call of the client; `api.writes()` are those that changed something.
`api.subscribe(callback)` gets a `Change` for every change, before the write returns.
`api.cache.hold()` freezes the cache against what `put`, `edit` and `drop` do until
`api.cache.follow()`; answers of client calls still reach it, as in the real client.

Faults: `api.intercept(hook)` runs `hook(call, moment)` around each call; an exception raised at
`Moment.BEFORE` keeps the call from happening, one at `Moment.AFTER` loses the reply of a call
that did happen.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from banlieue.api.meta import Resource
from banlieue.sdk.kube import AlreadyExists, Conflict, Key, Obj
from banlieue.sdk.testing import json_patch, selectors
from banlieue.sdk.testing.memory_store import Backup, Call, MemoryStore
from banlieue.sdk.testing.stored import (
    Stored,
    copy_owned,
    hand_over,
    restrict,
)

__all__ = ["Backup", "Call", "Hook", "MemoryApi", "Moment"]


class Moment(Enum):
    """When an interceptor runs."""

    BEFORE = "before the call is executed"
    AFTER = "after it was executed, before the reply arrives"


Hook = Callable[[Call, Moment], None]


class MemoryApi(MemoryStore):
    """An `ApiClient` whose server is a dictionary; see the module's text for its use."""

    def __init__(
        self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC), share: bool = False
    ) -> None:
        """Make an empty server; see `MemoryStore`."""
        super().__init__(now=now, share=share)
        self.calls: list[Call] = []
        self._hooks: list[Hook] = []

    def writes(self) -> list[Call]:
        """The client's calls that changed something."""
        return [call for call in self.calls if call.changed]

    def intercept(self, hook: Hook) -> Callable[[], None]:
        """Run `hook` around every client call; the answer takes the hook off again."""
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook)

    # The client.

    async def get(self, resource: Resource, key: Key) -> Obj:
        """Read one object live."""

        def read(_call: Call) -> Obj:
            return self._shown(self._stored(resource, key).obj)

        return await self._serve(Call("get", resource, key), read)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Obj]:
        """Read all matching objects live."""
        found: list[Obj] = []

        def read(_call: Call) -> Obj:
            found.extend(
                self._shown(obj)
                for obj in self.look(resource)
                if namespace in {"", Key.of(obj).namespace}
                and selectors.matches_labels(obj["metadata"].get("labels") or {}, label_selector)
                and selectors.matches_fields(obj, field_selector)
            )
            return {}

        await self._serve(Call("list", resource, Key(namespace, "")), read)
        return found

    async def create(self, resource: Resource, obj: Obj, *, manager: str) -> Obj:
        """POST; a status is dropped, as the API server does where it is a subresource."""
        key = Key.of(obj)

        def write(call: Call) -> Obj:
            if key in self._objects.get(resource, {}):
                raise AlreadyExists(409, "AlreadyExists", f"{resource.plural} {key} already exists")
            return self._create(call, obj)

        return await self._serve(Call("create", resource, key, manager), write)

    async def apply(
        self, resource: Resource, obj: Obj, *, manager: str, subresource: str = ""
    ) -> Obj:
        """Server-side apply, forced; creates what is missing, but not through a subresource."""
        key = Key.of(obj)

        def write(call: Call) -> Obj:
            if key not in self._objects.get(resource, {}) and not subresource:
                return self._create(call, obj)
            return self._apply(call, obj)

        return await self._serve(Call("apply", resource, key, manager, subresource), write)

    async def json_patch(
        self,
        resource: Resource,
        key: Key,
        ops: Sequence[Mapping[str, Any]],
        *,
        manager: str,
        subresource: str = "",
    ) -> Obj:
        """JSON patch; a failed test is a `Conflict`, and so is a patch that does not fit."""

        def write(call: Call) -> Obj:
            before = self._stored(resource, key)
            try:
                patched = json_patch.apply_patch(before.obj, ops)
            except json_patch.PatchError as error:
                # One that does not fit counts as a failed test: the object is another by now.
                raise Conflict(422, "Conflict", str(error)) from error
            after = Stored(restrict(before.obj, patched, subresource), copy_owned(before.owned))
            hand_over(before, after, (manager, subresource))
            return self._write(call, before, after)

        return await self._serve(Call("json_patch", resource, key, manager, subresource), write)

    async def delete(
        self, resource: Resource, key: Key, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete; marks the object instead while it has finalizers."""

        def write(call: Call) -> Obj:
            before = self._stored(resource, key)
            meta = before.obj["metadata"]
            if (uid and uid != meta["uid"]) or (
                resource_version and resource_version != meta["resourceVersion"]
            ):
                raise Conflict(409, "Conflict", "a precondition of the delete failed")
            call.changed = self._delete(resource, key, before, own=True)
            return {}

        await self._serve(Call("delete", resource, key), write)

    async def _serve(self, call: Call, execute: Callable[[Call], Obj]) -> Obj:
        await asyncio.sleep(0)  # a request lets others run, which is where races come from
        self.calls.append(call)
        for hook in tuple(self._hooks):
            hook(call, Moment.BEFORE)
        answer = execute(call)
        for hook in tuple(self._hooks):
            hook(call, Moment.AFTER)
        return answer
