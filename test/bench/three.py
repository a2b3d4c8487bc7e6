"""Three vCenters served by one process: one says nothing, one takes seconds, one is healthy.

    python -m test.bench.three [--vms 20] [--rounds 3] [--output out/bench/three.json]

Measured is how long the healthy one's machines take to Ready, alone and beside the other two, which
have as many machines each. Every round measures both, so that other load strikes both alike.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from test.kit.vcenterfleet import Fleet
from test.kit.vsphere_target import VSphereTarget, vsphere_target

_NAMES = ("dead", "slow", "well")
_SLOW = 2.0
_PATIENCE = 600.0
_P95 = 0.95


def measure(vms: int, rounds: int, directory: Path) -> dict[str, Any]:
    """Run rounds of both cases; figures by name, times in seconds."""
    alone: list[float] = []
    beside: list[float] = []
    for number in range(rounds):
        for targets, times in ((_NAMES[-1:], alone), (_NAMES, beside)):
            with contextlib.ExitStack() as stack:
                at = {
                    name: stack.enter_context(vsphere_target(_made(directory, number, name)))
                    for name in targets
                }
                times.extend(asyncio.run(_times(at, vms)))
    return {
        "vms": vms,
        "rounds": rounds,
        "alone": _figures(alone),
        "beside_a_dead_and_a_slow_one": _figures(beside),
        "p95_ratio": round(_p95(beside) / _p95(alone), 2),
    }


def _made(directory: Path, number: int, name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{number}-{name}-", dir=directory))


async def _times(targets: dict[str, VSphereTarget], vms: int) -> list[float]:
    async with Fleet(targets) as fleet:
        await fleet.providers_ready(*targets)
        for name, target in targets.items():
            if name == "dead":
                target.proxy.black_hole()
            elif name == "slow":
                target.vcenter.set_delay("*", _SLOW)
            if name != "well":
                fleet.make(name, [f"{name}-{number}" for number in range(vms)])
        machines = [f"well-{number}" for number in range(vms)]
        fleet.make("well", machines)
        return await fleet.times(machines, _PATIENCE)


def _figures(times: Sequence[float]) -> dict[str, float]:
    return {
        "p50": round(statistics.median(times), 3),
        "p95": round(_p95(times), 3),
        "last": round(max(times), 3),
    }


def _p95(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(_P95 * len(ordered)))]


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("out/bench/three.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="banlieue-bench-") as directory:
        figures = measure(options.vms, options.rounds, Path(directory))
    print(json.dumps(figures))  # noqa: T201 - a benchmark prints what it found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
