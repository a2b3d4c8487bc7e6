"""A backend with hundreds of VMs is away for minutes, against a real API server and in real time.

    python -m test.bench.outage [--vms 500] [--seconds 300] [--backend simulated]
                                [--output out/bench/outage.json]

While it is away some VMs are deleted and some are made. Counted is what our processes write and
tell about the others, and how long everything takes afterwards.
"""

import argparse
import contextlib
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from test.kit.controlplane import ControlPlane
from test.kit.costs import our_writes, wait_out
from test.kit.gate import Gate
from test.kit.installed import Registered
from test.kit.running import Running
from test.kit.stack import Stack, is_ready
from test.kit.targets import KINDS, new_target
from test.kit.waiting import wait_until

_PATIENCE = 3600.0
_SETTLED = 20.0
_CHANGED = 10
"""So many VMs are deleted, and so many are made, while the backend is away."""


def measure(vms: int, seconds: float, backend: str, directory: Path) -> dict[str, Any]:
    """Make the VMs, take their backend away for so long, and give it back.

    Returns:
        Figures by name; times in seconds.
    """
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(
            ControlPlane(directory / "control-plane", apiserver_flags={"request-timeout": "5m"})
        )
        target = stack.enter_context(new_target(backend, directory))
        installed = stack.enter_context(Stack(plane, directory))
        installed.install()
        registered = Registered(installed, target)
        registered.register()
        gate = stack.enter_context(Gate(target.connection().endpoints[0]))
        registered.kube.apply(registered.provider_object(endpoint=gate.url))
        running = Running.start(registered)
        names = [f"vm-{number:03}" for number in range(vms)]
        for name in names:
            registered.create(name)
        wait_until(lambda: _ready(registered) == set(names), _PATIENCE, "all to be Ready")
        wait_out(registered, _SETTLED)
        return _outage(running, gate, names, seconds)


def _outage(running: Running, gate: Gate, names: list[str], seconds: float) -> dict[str, Any]:
    registered = running.registered
    leaving, staying = names[:_CHANGED], names[_CHANGED:]
    coming = [f"late-{number}" for number in range(_CHANGED)]
    placed = _placed(registered, staying)
    processes = [role.process.pid for role in registered.stack.roles]
    since = registered.stack.control_plane.audit_position()
    told = _told(registered)
    with gate.shut():
        wait_until(lambda: not is_ready(_provider(registered)), _PATIENCE, "the loss to be noticed")
        for name in leaving:
            registered.kube.delete("virtualmachines", name, registered.namespace)
        for name in coming:
            registered.create(name)
        wait_out(registered, seconds)
        held = sum(registered.find(name) is not None for name in leaving)
    began = time.monotonic()
    registered.provider_ready(_PATIENCE)
    provider = time.monotonic() - began
    wanted = {*staying, *coming}
    wait_until(lambda: _ready(registered) == wanted, _PATIENCE, "everything to be done")
    everything = time.monotonic() - began
    wait_out(registered, _SETTLED)
    writes = Counter(it.name for it in our_writes(registered, since) if it.name in set(staying))
    events = _told(registered) - told
    return {
        "vms": len(names),
        "outage_seconds": seconds,
        "most_writes_to_one_vm_and_its_machine": max(writes.values(), default=0),
        "writes_to_vms_and_machines": writes.total(),
        "most_events_about_one_vm": max((events[name] for name in staying), default=0),
        "events_about_provider": events[registered.provider],
        "deletes_held_until_the_end": held,
        "provider_ready_after": round(provider, 1),
        "deletes_and_creates_done_after": round(everything, 1),
        "placed_elsewhere": sum(
            now != placed[name] for name, now in _placed(registered, staying).items()
        ),
        "vms_on_backend": len(registered.target.vms()),
        "restarts": sum(
            role.process.pid != pid
            for role, pid in zip(registered.stack.roles, processes, strict=True)
        ),
    }


def _ready(registered: Registered) -> set[str]:
    found = registered.kube.list("virtualmachines", registered.namespace)
    return {it["metadata"]["name"] for it in found if is_ready(it)}


def _placed(registered: Registered, names: list[str]) -> dict[str, Any]:
    """What would differ had a VM been placed or made anew."""
    machines = registered.kube.list(registered.plural, registered.namespace)
    return {
        it["metadata"]["name"]: (it["metadata"]["uid"], it["spec"].get("instance"))
        for it in machines
        if it["metadata"]["name"] in set(names)
    }


def _told(registered: Registered) -> Counter[str]:
    """How many Events there are about each object, by its name."""
    found: Counter[str] = Counter()
    for event in registered.kube.list("events.events.k8s.io"):
        found[event["regarding"]["name"]] += (event.get("series") or {}).get("count", 1)
    return found


def _provider(registered: Registered) -> dict[str, Any]:
    return registered.kube.get("providers", registered.provider, registered.stack.namespace)


def main() -> None:
    """Measure once and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--backend", choices=KINDS, default="simulated")
    parser.add_argument("--output", type=Path, default=Path("out/bench/outage.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="banlieue-bench-") as directory:
        figures = measure(options.vms, options.seconds, options.backend, Path(directory))
    print(json.dumps(figures))  # noqa: T201 - a benchmark prints what it found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
