"""Processor time of placing many VMs over many failure domains, gathering of facts included.

    python -m test.bench.placement [--vms 10000] [--domains 50] [--output out/bench/placement.json]

No API server takes part: objects stand in the controller's real cache, the scheduler reads them as
a pass does, and each promise counts for those after it. Every tenth machine belongs to a group of
three that must be apart, the others would rather be apart from the hundred of their own app.
"""

import argparse
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.controller.app import ControllerRole
from banlieue.controller.scheduling import census, facts
from banlieue.controller.scheduling.placement import Placed
from banlieue.controller.scheduling.placing import place
from banlieue.controller.vm.scope import Scope, Services
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.domains import MAX_INCLUDED
from banlieue.sdk.reconcile import Change, Context
from banlieue.sdk.runtime.cache import Cache, Store
from banlieue.sdk.runtime.sources import Stream
from banlieue.sdk.testing.fakes import FakeClock, MemoryQueue, MemoryRecorder
from banlieue.sdk.testing.memory_api import MemoryApi

INSTALLATION = "00000000-0000-4000-8000-000000000000"
SYSTEM = names.SYSTEM_NAMESPACE
TENANTS = 10
MEMORY_MIB = 4096
APP = 100
CHANGES_EVERY = 20
"""So many placements, and some Provider publishes another figure."""


@dataclass
class World:
    """A cache full of objects, and the controller's services over it."""

    vms: int
    domains: int

    def __post_init__(self) -> None:
        self.cache = Cache()
        self._stores: dict[Resource, Store] = {}
        self._version = 0
        self._placed: dict[str, list[Key]] = {}
        self._promised: Counter[str] = Counter()
        self.total = MEMORY_MIB * (2 * self.vms // self.domains + 8)
        for number in range(TENANTS):
            self.put(NAMESPACES, {"metadata": {"name": f"team-{number}"}})
        self.put(
            PROVIDER_CLASSES,
            {
                "metadata": {"name": "this"},
                "spec": {
                    "backend": "this",
                    "machine": {
                        "apiGroup": "x.example.com",
                        "version": "v1",
                        "kind": "ThisMachine",
                    },
                },
            },
        )
        self.put(VM_CLASSES, {"metadata": {"name": "small"}, "spec": _class()})
        for number in range(self.domains):
            self.publish(number)
        self.put(VM_IMAGES, self._image())
        for number in range(self.vms):
            self.put(VIRTUAL_MACHINES, virtual_machine(number))
        ctx = Context(
            api=MemoryApi(),
            cache=self.cache,
            clock=FakeClock(),
            rng=random.Random(0),
            recorder=MemoryRecorder(),
            enqueue=MemoryQueue().enqueue,
            add_watch=MemoryQueue().add_watch,
        )
        self.role = ControllerRole.of(ctx)

    @property
    def services(self) -> Services:
        return self.role.services

    def put(self, kind: Resource, obj: Obj) -> Change | None:
        """An event of a watch."""
        self._version += 1
        store = self._stores.setdefault(kind, self.cache.open(Stream(kind)))
        meta = {"uid": str(Key.of(obj)), **obj["metadata"], "resourceVersion": str(self._version)}
        seen = store.observe("MODIFIED", {**obj, "metadata": meta})
        return seen.change if seen else None

    def publish(self, number: int) -> Change | None:
        """A Provider tells its failure domain's figures, with the machines they count."""
        name = f"p{number:02}"
        there = self._placed.get(name, [])
        newest = [_digest(key) for key in there[: -MAX_INCLUDED - 1 : -1]]
        strangers = [f"{index:064x}" for index in range(MAX_INCLUDED - len(newest))]
        capacity = {
            "observedAt": "2026-01-01T00:00:00Z",
            "cpus": {"total": 4096},
            "memoryMiB": {
                "total": self.total,
                "free": self.total - MEMORY_MIB * len(there) - self._version % 1000,
            },
            "includedMachines": newest + strangers,
        }
        return self.put(PROVIDERS, _provider(name, capacity))

    def placed(self, key: Key, provider: str) -> None:
        self._placed.setdefault(provider, []).append(key)

    def _image(self) -> Obj:
        rows = [
            {"providerNamespace": SYSTEM, "providerName": f"p{number:02}", "ready": True}
            for number in range(self.domains)
        ]
        source = {"providerClass": "this", "kind": "Template", "ref": "ubuntu"}
        return {
            "metadata": {"name": "ubuntu"},
            "spec": {"sources": [source]},
            "status": {"perProvider": rows},
        }


def _class() -> Obj:
    return {
        "hardware": {
            "cpus": 2,
            "memoryMiB": MEMORY_MIB,
            "disks": [{"name": "root", "sizeGiB": 20, "storageClass": "gold"}],
        },
        "network": {"interfaces": [{"name": "eth0", "networkClass": "prod"}]},
    }


def _provider(name: str, capacity: dict[str, Any]) -> Obj:
    return {
        "metadata": {"namespace": SYSTEM, "name": name, "labels": {"env": "prod"}},
        "spec": {
            "providerClassRef": {"name": "this"},
            "connection": {"endpoint": "https://example.com"},
            "allowedNamespaces": {"from": "All"},
            "capabilities": {
                "storageClasses": [{"name": "gold", "target": {"pool": "x"}}],
                "networkClasses": [{"name": "prod", "target": {"network": "x"}}],
            },
        },
        "status": {
            "failureDomains": [
                {
                    "name": f"{name}-a",
                    "id": name,
                    "attributes": {
                        "availableStorageClasses": ["gold"],
                        "availableNetworkClasses": ["prod"],
                        "capacity": capacity,
                    },
                }
            ],
            "unclaimed": {"complete": True, "count": 0},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Ready",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        },
    }


def virtual_machine(number: int) -> Obj:
    """The n-th VirtualMachine; see the module's text for its anti-affinity."""
    strict = number % 10 == 0
    app = f"strict-{number // 30}" if strict else f"app-{number // APP}"
    term = {
        "topologyKey": "banlieue.io/failure-domain",
        "labelSelector": {"matchLabels": {"app": app}},
        "mode": "required" if strict else "preferred",
    }
    return {
        "metadata": {
            "namespace": f"team-{number // APP % TENANTS}",
            "name": f"vm-{number:05}",
            "labels": {"app": app},
        },
        "spec": {
            "classRef": {"name": "small"},
            "imageRef": {"name": "ubuntu"},
            "placement": {"antiAffinity": [term]},
        },
    }


def _digest(key: Key) -> str:
    return Owner(INSTALLATION, OWNER_VIRTUAL_MACHINE, key.namespace, key.name).digest


def place_one(services: Services, key: Key) -> str | None:
    """One decision as a pass makes it, from the cache to the promise; the Provider chosen."""
    raw = services.ctx.cache.get(VIRTUAL_MACHINES, key)
    if raw is None:
        raise LookupError(key)
    scope = Scope.of(services, raw)
    if scope.vm_class is None or scope.image is None:
        raise LookupError("class and image")
    wanted = facts.demand(scope.vm, scope.vm_class, scope.image, installation_id=INSTALLATION)
    decision = place(
        wanted,
        services.sites(scope.image, key.namespace),
        services.ledger.residents(),
        before=scope.place,
        refused=services.ledger.refusals(wanted),
    )
    if not isinstance(decision, Placed):
        return None
    services.ledger.promise(facts.promised(wanted, decision.place))
    return decision.place.provider.name


def measure(vms: int, domains: int) -> dict[str, float]:
    """Place so many machines; times are of the processor, in seconds, or milliseconds for `_ms`."""
    world = World(vms, domains)
    services = world.services
    keys = [Key.of(virtual_machine(number)) for number in range(vms)]
    started = time.process_time()
    services.ledger.seed(census.residents(world.cache, INSTALLATION))
    seeding = time.process_time() - started
    times: list[float] = []
    unplaced = 0
    for number, key in enumerate(keys):
        if number % CHANGES_EVERY == 0:
            world.publish(number // CHANGES_EVERY % domains)
        before = time.process_time()
        chosen = place_one(services, key)
        times.append(time.process_time() - before)
        if chosen is None:
            unplaced += 1
        else:
            world.placed(key, chosen)
    tenth = max(1, vms // 10)
    spread = Counter(
        place.provider.name for it in services.ledger.residents() for place in it.places
    )
    return {
        "vms": vms,
        "failure_domains": domains,
        "unplaced": unplaced,
        "fewest_at_one": min(spread.values(), default=0),
        "most_at_one": max(spread.values(), default=0),
        "seed_cpu": seeding,
        "placement_cpu": sum(times),
        "mean_ms": _ms(times),
        "first_tenth_ms": _ms(times[:tenth]),
        "last_tenth_ms": _ms(times[-tenth:]),
        "p99_ms": sorted(times)[int(len(times) * 0.99)] * 1000,
        "capacity_change_ms": _capacity_change(world),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _capacity_change(world: World) -> float:
    """What one Provider's new figure costs when everybody is placed: mapping, and reading anew."""
    rounds = 50
    started = time.process_time()
    for number in range(rounds):
        change = world.publish(number % world.domains)
        if change is not None:
            list(world.role.wakes.provider(change))
        world.services.sites(None, "team-0")
    return (time.process_time() - started) / rounds * 1000


def _ms(times: Sequence[float]) -> float:
    return sum(times) / len(times) * 1000


def main() -> None:
    """Measure a tenth and the whole, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=int, default=10_000)
    parser.add_argument("--domains", type=int, default=50)
    parser.add_argument("--output", type=Path, default=Path("out/bench/placement.json"))
    options = parser.parse_args()
    found = []
    for count in (max(1, options.vms // 10), options.vms):
        figures = measure(count, options.domains)
        found.append({name: round(value, 3) for name, value in figures.items()})
        print(json.dumps(found[-1]))  # noqa: T201 - a benchmark prints what it found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
