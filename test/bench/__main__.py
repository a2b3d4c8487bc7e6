"""`make bench`: time, writes, calls, processor time and memory of VMs made on a vCenter simulator.

    python -m test.bench [--vms 1 --vms 20] [--output out/bench/skeleton.json]

Times say something about the machine they were taken on; writes and calls per VM carry over.
"""

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path

from test.bench.processes import cpu, rss
from test.kit.audit import AuditEntry
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.stack import Role, Stack, is_ready
from test.kit.vsphere_target import vsphere_target
from test.kit.waiting import wait_until

_SECONDS = 600.0


def measure(count: int, directory: Path) -> dict[str, float]:
    """Make `count` VMs at once on a fresh control plane and vCenter, and delete them again.

    Returns:
        Figures by name: times and processor times in seconds, memory in MiB.
    """
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(directory / "control-plane"))
        target = stack.enter_context(vsphere_target(directory))
        roles = stack.enter_context(Stack(plane, directory))
        roles.install()
        registered = Registered(roles, target)
        registered.register()
        controller, provider = roles.controller().start(), roles.provider("vsphere").start()
        registered.provider_ready()
        _one(registered, "warm-up")
        before = cpu(plane.apiserver.pid)
        since = plane.audit_position()
        target.vcenter.reset_counters()
        own = cpu(controller.process.pid), cpu(provider.process.pid)
        started = time.monotonic()
        names = [f"vm-{number}" for number in range(count)]
        for name in names:
            registered.create(name)
        ready = _ready_times(registered, names, started)
        calls = target.vcenter.counters().total
        writes = plane.audit_writes(since)
        figures = {
            "vms": count,
            "first_ready": ready[0],
            "last_ready": ready[-1],
            "vcenter_calls_per_vm": calls / count,
            **_writes(count, writes, {controller.user, provider.user}),
            **_processes(controller, provider),
        }
        figures["controller_cpu"] -= own[0]
        figures["provider_cpu"] -= own[1]
        figures["apiserver_cpu"] = cpu(plane.apiserver.pid) - before
        started = time.monotonic()
        for name in names:
            registered.kube.delete("virtualmachines", name, registered.namespace)
        for name in names:
            registered.gone(name, _SECONDS)
        figures["all_gone"] = time.monotonic() - started
        return figures


def _one(registered: Registered, name: str) -> None:
    registered.create(name)
    registered.ready(name)
    registered.delete(name)


def _ready_times(registered: Registered, names: list[str], started: float) -> list[float]:
    seen: dict[str, float] = {}

    def all_ready() -> bool:
        for obj in registered.kube.list("virtualmachines", registered.namespace):
            if is_ready(obj):
                seen.setdefault(obj["metadata"]["name"], time.monotonic() - started)
        return len(seen) == len(names)

    wait_until(all_ready, _SECONDS, f"{len(names)} VirtualMachines to be Ready")
    return sorted(seen.values())


def _writes(count: int, writes: list[AuditEntry], users: set[str]) -> dict[str, float]:
    ours = [entry for entry in writes if entry.user in users]
    events = [entry for entry in ours if entry.resource == "events"]
    objects = [entry for entry in ours if entry.resource not in {"events", "leases"}]
    return {"object_writes_per_vm": len(objects) / count, "events_per_vm": len(events) / count}


def _processes(controller: Role, provider: Role) -> dict[str, float]:
    return {
        "controller_cpu": cpu(controller.process.pid),
        "provider_cpu": cpu(provider.process.pid),
        "controller_rss": rss(controller.process.pid),
        "provider_rss": rss(provider.process.pid),
    }


def main() -> None:
    """Measure each size and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=int, action="append")
    parser.add_argument("--output", type=Path, default=Path("out/bench/skeleton.json"))
    options = parser.parse_args()
    found = []
    for count in options.vms or (1, 20):
        with tempfile.TemporaryDirectory(prefix="banlieue-bench-") as directory:
            figures = measure(count, Path(directory))
        found.append({key: round(value, 2) for key, value in figures.items()})
        print(json.dumps(found[-1]))  # noqa: T201 - a benchmark prints what it found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")


main()
