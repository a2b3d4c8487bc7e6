"""Machines of Cluster API over two vCenter simulators: time to Running, and who writes how often.

    python -m test.bench.clusters [--machines 200] [--output out/bench/clusters.json]

Core, bootstrap and control plane of Cluster API, our roles and the API server are processes of one
host; guests are played from guestinfo. "Ours" is from bootstrap data to infrastructure, as the
conditions of Machines tell in whole seconds.
"""

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Final

from test.bench.figures import Figures, per_vm, table, times, writers
from test.kit.controlplane import ControlPlane
from test.kit.namespaces import create_namespace
from test.kit.waiting import wait_until
from test.kit.workloadground import processes_ground
from test.kit.workloadvcenter import OLD
from test.kit.workloadworld import (
    Object,
    Workload,
    is_plane,
    status_of,
    workload_cluster,
    workload_world,
)

_SECONDS: Final = 1800.0
_APART_SECONDS: Final = 1.0


def measure(count: int, directory: Path) -> dict[str, Figures]:
    """Scale a cluster of one control plane machine from two workers by `count`.

    Args:
        count: Workers to add, an even number.
        directory: Where logs go.

    Returns:
        Figures by a title: times, and writes per Machine of each identity.
    """
    with ExitStack() as stack:
        ground = stack.enter_context(processes_ground(directory / "ground"))
        world = stack.enter_context(workload_world(ground, directory / "world"))
        namespace = create_namespace(ground.kube)
        assert ground.plane is not None
        made = stack.enter_context(
            workload_cluster(world, ground.clusterctl, namespace, planes=1, workers=1)
        )
        made.await_running(1, 2, OLD, _SECONDS)
        since = ground.plane.audit_position()
        first = {it["metadata"]["uid"] for it in made.machines()}
        running = _running_times(made, first, count)
        given_up = _given_up(made)
        found = {"creations that core gave up": {"machines": float(given_up)}}
        found |= {"times": {**times("Running", running), **_ours(made, first)}}
        found |= _writes(ground.plane, since, count)
        made.await_vms()
        made.delete(_SECONDS)
        return found


def _running_times(made: Workload, first: set[str], count: int) -> list[float]:
    """Seconds from the wish until each of the Machines that are added runs."""
    started, seen = time.monotonic(), dict[str, float]()
    made.scale(1, (1 + count // 2, 1 + count // 2))

    def all_run() -> bool:
        for machine in made.machines():
            uid = machine["metadata"]["uid"]
            if uid not in first and status_of(machine).get("phase") == "Running":
                seen.setdefault(uid, time.monotonic() - started)
        return len(seen) == count

    wait_until(all_run, _SECONDS, f"{count} Machines to run", apart=_APART_SECONDS)
    return list(seen.values())


def _given_up(made: Workload) -> int:
    """Machines of ours that core made anew, since one was written to before it was done."""
    events = made.world.kube.list("events.events.k8s.io", made.namespace)
    notes = [str(it.get("note")) for it in events]
    failed = [it for it in notes if "failed to create InfraMachine" in it]
    return sum("failed to compute" not in it for it in failed)


def _ours(made: Workload, first: set[str]) -> Figures:
    spans = [
        _since(it, "InfrastructureReady") - _since(it, "BootstrapConfigReady")
        for it in made.machines()
        if it["metadata"]["uid"] not in first and not is_plane(it)
    ]
    return times("ours", spans)


def _since(machine: Object, kind: str) -> float:
    (found,) = [it for it in status_of(machine)["conditions"] if it["type"] == kind]
    return datetime.fromisoformat(found["lastTransitionTime"]).timestamp()


def _writes(plane: ControlPlane, since: int, count: int) -> dict[str, Figures]:
    entries = writers(plane.audit_writes(since))
    return {f"writes per Machine of {who}": per_vm(it, count) for who, it in entries.items()}


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("out/bench/clusters.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="banlieue-bench-") as directory:
        found = measure(options.machines, Path(directory))
    for title, figures in found.items():
        print(table(title, {str(options.machines): figures}))  # noqa: T201 - a benchmark prints what it found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
