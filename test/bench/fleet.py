"""What the operator costs with many Providers, against a real API server.

    python -m test.bench.fleet [--providers 100] [--output out/bench/fleet.json]

No pod runs: counted are the operator's own writes, reads and processor time while Providers are
registered, while nothing happens, when their class is edited, and when they are deleted.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test.bench.processes import cpu, rss
from test.kit.controlplane import ControlPlane
from test.kit.stack import Role, Stack, provider
from test.kit.waiting import wait_until

_PROVIDERS = "providers.banlieue.io"
_PATIENCE = 900.0
_REST = 30.0


class Fleet:
    """Providers of one class, and the operator that has them served."""

    def __init__(self, stack: Stack, operator: Role, names: list[str]) -> None:
        self._stack = stack
        self._operator = operator
        self._names = names

    def register(self) -> None:
        """Apply them all; their endpoint is nowhere."""
        for name in self._names:
            made = provider(
                self._stack.namespace,
                name,
                backend="simulated",
                connection={"endpoint": "http://vcenter.invalid"},
                storage={"pool": "fast"},
                network={"network": "lan"},
            )
            self._stack.kube.apply(made)

    def edit(self) -> None:
        """Upgrade them all by one edit."""
        patch = {"spec": {"image": {"tag": "v2"}}}
        self._stack.kube.patch("providerclasses", "simulated", patch)

    def delete(self) -> None:
        """Delete them all."""
        self._stack.kube.delete_all(_PROVIDERS, self._stack.namespace)

    def run(self, image: str) -> bool:
        """Whether each is said to run that image."""
        found = self._stack.kube.list(_PROVIDERS, self._stack.namespace)
        told = [(it.get("status") or {}).get("workload", {}).get("image") for it in found]
        return told == [image] * len(self._names)

    def gone(self) -> bool:
        """Whether none is left."""
        return not self._stack.kube.list(_PROVIDERS, self._stack.namespace)

    def rest(self) -> None:
        """Let nothing happen for a while."""
        end = time.monotonic() + _REST
        wait_until(lambda: time.monotonic() >= end, _REST + 5.0, "some time to pass")

    def measured(self, act: Callable[[], None], done: Callable[[], bool]) -> dict[str, float]:
        """Act, wait until it is done, and tell what the operator spent on it."""
        plane, pid = self._stack.control_plane, self._operator.process.pid
        since, used, began = plane.audit_position(), cpu(pid), time.monotonic()
        act()
        wait_until(done, _PATIENCE, "the operator to be done")
        seconds = time.monotonic() - began
        user = self._operator.user
        writes = [it for it in plane.audit_writes(since, user=user) if it.resource != "leases"]
        reads = plane.audit_reads(since, user=user)
        return {
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu(pid) - used, 2),
            "writes": len([it for it in writes if it.resource != "events"]),
            "events": len([it for it in writes if it.resource == "events"]),
            "lists": len([it for it in reads if it.verb == "list"]),
            "gets": len([it for it in reads if it.verb == "get"]),
        }


def measure(providers: int, directory: Path) -> dict[str, Any]:
    """Register so many Providers, edit their class, delete them.

    Returns:
        Figures by name.
    """
    names = [f"p{number:04}" for number in range(providers)]
    with (
        ControlPlane(directory / "control-plane") as plane,
        Stack(plane, directory) as stack,
    ):
        stack.install()
        operator = stack.operator("--image", "registry.example.com/banlieue:v1").start()
        fleet = Fleet(stack, operator, names)
        repository = "registry.example.com/banlieue"
        figures: dict[str, Any] = {"providers": providers}
        figures["registered"] = fleet.measured(
            fleet.register, lambda: fleet.run(f"{repository}:v1")
        )
        figures["at_rest"] = fleet.measured(fleet.rest, lambda: True)
        figures["class_edited"] = fleet.measured(fleet.edit, lambda: fleet.run(f"{repository}:v2"))
        figures["memory_mib"] = round(rss(operator.process.pid))
        figures["deleted"] = fleet.measured(fleet.delete, fleet.gone)
        return figures


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--providers", type=int, default=100)
    parser.add_argument("--output", type=Path, default=Path("out/bench/fleet.json"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="banlieue-fleet-") as directory:
        figures = measure(chosen.providers, Path(directory))
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=1)
    chosen.output.write_text(f"{text}\n", encoding="utf-8")
    print(text)  # noqa: T201 - a benchmark prints what it found


if __name__ == "__main__":
    main()
