"""A cluster in memory that can be installed into: the API of the kit with what bootstrap adds."""

from collections.abc import Callable
from typing import Any

from banlieue.api.meta import Resource
from banlieue.bootstrap.cluster import Tools
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.testing.fakes import FakeClock
from banlieue.sdk.testing.memory_api import MemoryApi

Offer = tuple[str, Key, bool]


class InstallableApi(MemoryApi):
    """Serves kinds at once, makes Deployments available at once, and refuses what a test says.

    Attributes:
        version: of the server.
        conflicts: kinds and names whose fields somebody else owns, with the server's words.
        offers: what was applied for real, in order: kind, key, forced.
        stubborn: kinds that never become ready.
    """

    def __init__(self) -> None:
        super().__init__()
        self.version = (1, 34)
        self.conflicts: dict[tuple[str, str], str] = {}
        self.offers: list[Offer] = []
        self.stubborn: set[str] = set()

    async def server_version(self) -> tuple[int, int]:
        """As set."""
        return self.version

    async def offer(
        self,
        resource: Resource,
        obj: Obj,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Apply, unless the test says that somebody else owns a field."""
        key = Key.of(obj)
        told = self.conflicts.get((resource.kind, key.name))
        if told and not force:
            raise Conflict(409, "Conflict", told)
        if dry_run:
            return {**(self.peek(resource, key) or {}), **obj}
        self.offers.append((resource.kind, key, force))
        answer = await self.apply(resource, obj, manager=manager)
        if resource.kind not in self.stubborn and (status := _ready_status(answer)):
            self.edit(resource, key, lambda it: it.update(status=status))
        return answer


def _ready_status(obj: Obj) -> dict[str, Any]:
    if obj["kind"] == "CustomResourceDefinition":
        return {"conditions": [{"type": "Established", "status": "True"}]}
    if obj["kind"] == "Deployment":
        generation = obj["metadata"].get("generation", 1)
        return {"observedGeneration": generation, "updatedReplicas": 1, "availableReplicas": 1}
    return {}


def tools_of(api: InstallableApi, say: Callable[[str], None], *, seconds: float = 60) -> Tools:
    """Tools over a clock that only waiting moves."""
    clock = FakeClock()
    return Tools(api, clock, say, clock.monotonic() + seconds)
