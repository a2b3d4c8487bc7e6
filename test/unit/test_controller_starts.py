"""A controller begins when all that its passes look up is known.

A pass that begins before may do nothing, and no change may ever ask for another one: so what is
looked up in the cache is watched, by the very controller that looks.
"""

from collections.abc import Iterator
from random import Random

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CONFIG_MAPS,
    IP_ADDRESS_CLAIMS,
    NAMESPACES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_IMAGES,
)
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine.reconciler import CONTROLLER
from banlieue.sdk.runtime.process import Options, Process
from banlieue.sdk.runtime.serve import ProviderRole, Scope
from banlieue.sdk.testing.fakes import FakeClock
from banlieue.sdk.testing.memory_cache import MemoryCache
from banlieue.sdk.testing.scripted import ScriptedEndpoint, scripted_backend
from test.kit.addresslab import Lab
from test.kit.capiworld import CapiWorld
from test.kit.controllerworld import ControllerWorld


class Spy:
    """Which kinds the passes of each controller look up."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.world: ControllerWorld | None = None
        self.seen: set[tuple[str, Resource]] = set()
        get, listed = MemoryCache.get, MemoryCache.list

        def one(cache: MemoryCache, resource: Resource, key: Key) -> Obj | None:
            self.note(resource)
            return get(cache, resource, key)

        def many(cache: MemoryCache, resource: Resource, *, namespace: str = "") -> Iterator[Obj]:
            self.note(resource)
            return listed(cache, resource, namespace=namespace)

        patch.setattr(MemoryCache, "get", one)
        patch.setattr(MemoryCache, "list", many)

    def note(self, resource: Resource) -> None:
        """Whoever runs looks up a kind."""
        running = self.world._running if self.world else None
        if running is not None:
            self.seen.add((running[0], resource))

    def unwatched(self) -> set[tuple[str, str]]:
        """What was looked up without being watched."""
        assert self.world is not None
        watched = {(name, watch.resource) for name, watch in self.world._engine.watches}
        # Of these two the passes make changes that others' mappers look around for.
        passive = {"installation", "machine-kinds"}
        return {
            (name, it.kind)
            for name, it in self.seen - watched
            # The ConfigMap is read live where the cache has none.
            if name not in passive and it != CONFIG_MAPS
        }


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


async def test_what_passes_over_virtual_machines_look_up_is_watched(spy: Spy) -> None:
    lab = Lab()
    spy.world = lab.world
    await lab.vm()
    lab.world.edit_vm(networkInterfaces=[])
    await lab.world.settle(seconds=600)
    lab.world.delete_vm()
    await lab.world.settle(seconds=600)
    assert lab.world.api.peek_all(VIRTUAL_MACHINES) == []
    assert lab.world.api.peek_all(IP_ADDRESS_CLAIMS) == []
    assert spy.unwatched() == set()


async def test_what_passes_over_machines_of_cluster_api_look_up_is_watched(spy: Spy) -> None:
    world = CapiWorld.with_cluster()
    spy.world = world
    world.add_machine()
    await world.settle()
    assert world.told() == ("True", "Ready")
    await world.delete_machine()
    assert {it for it in spy.unwatched() if not it[0].startswith("provider/")} == set()


def test_what_passes_of_a_provider_look_up_is_watched() -> None:
    process = Process(Options(role="provider"), clock=FakeClock(), rng=Random(1))
    ProviderRole(process, scripted_backend(ScriptedEndpoint()), Scope(None))
    running = process._engine._controllers[CONTROLLER]
    watched = {watch.resource for watch in running.controller.watches if not watch.optional}
    assert {NAMESPACES, PROVIDERS, VM_IMAGES} < watched
