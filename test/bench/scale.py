"""What ten thousand VirtualMachines on fifty Providers cost the controller.

    python -m test.bench.scale [--vms 1000 --vms 10000] [--providers 50]
                               [--output out/bench/scale.json]

One VirtualMachine is made Ready on the simulated backend by real processes. Copies of it, its
machine object and its Provider are put into the API server's store, and the real controller starts
against the real API server. `floor` is the same controller without any of them.
"""

import argparse
import contextlib
import json
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test.bench.beneath import Sample, Store
from test.bench.processes import cpu, rss
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.stack import LOOPBACK, Role, Stack
from test.kit.targets import SIMULATED, new_target
from test.kit.waiting import stays_true, wait_until

_PATIENCE = 1200.0
_QUIET = 3.0
_CHANGES = 100
_MACHINE, _PROVIDER = "sample-machine", "sample-provider"


class Crowd:
    """A controller, and a store to put any number of objects into."""

    def __init__(self, plane: ControlPlane, registered: Registered, controller: Role) -> None:
        self.plane = plane
        self.registered = registered
        self.controller = controller
        self._store = Store(plane.etcd_address)
        kube, provider = registered.kube, registered.provider
        where = registered.stack.namespace
        vm, machine = kube.get("vm", _MACHINE, registered.namespace), registered.machine(_MACHINE)
        group = "/registry/banlieue.io"
        machines = f"/registry/infrastructure.banlieue.io/{registered.plural}"
        self._pair = self._sample(
            (_MACHINE, _PROVIDER),
            (
                vm["metadata"]["uid"],
                machine["metadata"]["uid"],
                machine["spec"]["instance"]["uuid"],
            ),
            f"{group}/virtualmachines/{registered.namespace}/{_MACHINE}",
            f"{machines}/{registered.namespace}/{_MACHINE}",
        )
        uid = kube.get("providers", provider, where)["metadata"]["uid"]
        self._provider = self._sample((_PROVIDER,), (uid,), f"{group}/providers/{where}/{provider}")

    def add_providers(self, count: int) -> None:
        """Copies of the Provider."""
        for number in range(count):
            self._store.write(self._provider.copy(f"p-{number:02}"))

    def add_vms(self, first: int, last: int, providers: int) -> None:
        """Copies of the VirtualMachine and its machine, spread over the Providers."""
        for number in range(first, last):
            self._store.write(self._pair.copy(name_of(number), f"p-{number % providers:02}"))

    def start(self) -> dict[str, float]:
        """Start the controller: what it needs to know everything, and to have looked at all."""
        process = self.controller.process
        process.start(None, _PATIENCE)
        wait_until(self._synced, _PATIENCE, "everything to be read", retry_on=(OSError,))
        read = cpu(process.pid), rss(process.pid)
        self.settle()
        return {
            "objects": self.metric("banlieue_cache_objects"),
            "read_cpu": read[0],
            "read_rss": read[1],
            "settled_cpu": cpu(process.pid),
            "settled_rss": rss(process.pid),
        }

    def _synced(self) -> bool:
        # A controller that stands by for the Lease is ready, too, and knows nothing.
        return self.controller.ready() and self.metric("banlieue_cache_objects") > 0

    def settle(self) -> None:
        """Wait until no more passes are made."""
        seen = -1.0
        while seen != (seen := self.metric("controller_runtime_reconcile_total")):
            stays_true(lambda: self.controller.process.running, _QUIET, "the controller runs")

    def each(self, count: int, change: Callable[[int], object]) -> float:
        """Milliseconds of the controller's processor for each of so many changes."""
        before = cpu(self.controller.process.pid)
        for number in range(count):
            change(number)
        self.settle()
        return (cpu(self.controller.process.pid) - before) / count * 1000

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        url = f"http://{LOOPBACK}:{self.controller.port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(it.rpartition(" ")[2]) for it in lines if it.startswith(f"{name}{{"))

    def edit(self, number: int) -> None:
        """A user's edit, which the controller hands on to the machine."""
        patch = {"spec": {"desiredPowerState": "PoweredOff"}}
        self.registered.kube.patch(
            "virtualmachines", name_of(number), patch, self.registered.namespace
        )

    def publish(self, number: int, providers: int) -> None:
        """A Provider tells of another amount of free memory."""
        name, where = f"p-{number % providers:02}", self.registered.stack.namespace
        kube = self.registered.kube
        domains = kube.get("providers", name, where)["status"]["failureDomains"]
        for domain in domains:
            capacity = domain["attributes"].setdefault("capacity", {})
            capacity.setdefault("memoryMiB", {"total": 1 << 20})["free"] = (1 << 19) + number
        path = kube.resource("providers").path(where, name, "status")
        kube.request(
            "PATCH",
            path,
            body={"status": {"failureDomains": domains}},
            content_type="application/merge-patch+json",
        )

    def _sample(self, names: tuple[str, ...], words: tuple[str, ...], *keys: str) -> Sample:
        return Sample({key: self._store.read(key) for key in keys}, names, words)


def name_of(number: int) -> str:
    """The n-th VirtualMachine."""
    return f"vm-{number:05}"


def measure(sizes: list[int], providers: int, directory: Path) -> list[dict[str, float]]:
    """Start the controller over each size in turn, the floor first; edit VMs and Providers.

    Returns:
        Figures by name: processor time in seconds, of one change in milliseconds, memory in MiB.
    """
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(
            ControlPlane(directory / "control-plane", apiserver_flags={"request-timeout": "10m"})
        )
        target = stack.enter_context(new_target(SIMULATED, directory))
        installed = stack.enter_context(Stack(plane, directory))
        installed.install()
        registered = Registered(installed, target, provider=_PROVIDER)
        registered.register()
        controller = installed.controller().start()
        provider = installed.provider(SIMULATED).start()
        registered.provider_ready()
        registered.create(_MACHINE)
        registered.ready(_MACHINE)
        provider.stop()
        crowd = Crowd(plane, registered, controller)
        controller.stop()
        # The garbage collector would watch all of it, too.
        plane.controller_manager.stop()
        crowd.add_providers(providers)
        found, there = [{"vms": 0.0, **crowd.start()}], 0
        for size in sorted(sizes):
            controller.stop()
            crowd.add_vms(there, size, providers)
            there = size
            found.append({"vms": float(size), **crowd.start(), **_changes(crowd, size, providers)})
        return [found[0], *(_over(figures, found[0]) for figures in found[1:])]


def _changes(crowd: Crowd, size: int, providers: int) -> dict[str, float]:
    """What changes cost; the VMs that came last are edited, as they never were before."""
    return {
        "vm_edit_ms": crowd.each(_CHANGES, lambda it: crowd.edit(size - 1 - it)),
        "capacity_change_ms": crowd.each(_CHANGES, lambda it: crowd.publish(it, providers)),
    }


def _over(figures: dict[str, float], floor: dict[str, float]) -> dict[str, float]:
    """What it is for ten thousand watched objects above the floor."""
    share = 10_000 / (figures["objects"] - floor["objects"])
    return figures | {
        f"{name}_per_10k_objects": (figures[name] - floor[name]) * share
        for name in ("read_cpu", "read_rss", "settled_cpu", "settled_rss")
    }


def main() -> None:
    """Measure every size and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=int, action="append")
    parser.add_argument("--providers", type=int, default=50)
    parser.add_argument("--output", type=Path, default=Path("out/bench/scale.json"))
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="banlieue-bench-") as directory:
        found = measure(options.vms or [1000, 10_000], options.providers, Path(directory))
    shown: list[dict[str, Any]] = [
        {name: round(value, 2) for name, value in figures.items()} for figures in found
    ]
    for figures in shown:
        print(json.dumps(figures))  # noqa: T201 - a benchmark prints what it found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(shown, indent=1), encoding="utf-8")
    print(f"{time.monotonic() - began:.0f} s")  # noqa: T201 - as above


if __name__ == "__main__":
    main()
