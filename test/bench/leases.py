"""What the Leases of many Providers cost while nothing happens.

    python -m test.bench.leases [--providers 100] [--seconds 120] [--output out/bench/leases.json]

Each Lease is held by a holder of its own, over a connection of its own, under the account of a
provider with the rights and behind the policies that an install has. What the API server and etcd
use without any of them is measured first and taken off. Processor time carries over between
machines only roughly; writes do.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from banlieue.sdk.kube import Key
from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.client import KubeClient
from banlieue.sdk.runtime.clock import SystemClock
from banlieue.sdk.runtime.connection import Connection
from banlieue.sdk.runtime.elector import Elector
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.metrics import Metrics
from test.bench.figures import Figures
from test.bench.processes import cpu
from test.kit.controlplane import ControlPlane
from test.kit.stack import Stack
from test.kit.walled import account, binding, role, rule, subject

_ACCOUNT: Final = "banlieue-provider-bench"
_HELD_SECONDS: Final = 120.0


def measure(providers: int, seconds: float, directory: Path) -> Figures:
    """Hold that many Leases for a while.

    Args:
        providers: How many.
        seconds: How long each of the two measurements takes: with them and without.
        directory: For what the control plane writes.
    """
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(directory / "control-plane"))
        roles = stack.enter_context(Stack(plane, directory))
        roles.install()
        uids = [str(uuid.uuid4()) for _ in range(providers)]
        _grant(roles, uids)
        kubeconfig = plane.kubeconfig_for_service_account(roles.namespace, _ACCOUNT)
        return asyncio.run(_hold(plane, str(kubeconfig), roles.namespace, uids, seconds))


def _grant(roles: Stack, uids: Sequence[str]) -> None:
    where, group = roles.namespace, "coordination.k8s.io"
    roles.kube.apply(account(where, _ACCOUNT))
    rules = [rule(group, "leases", "create"), rule(group, "leases", "get patch", *uids)]
    roles.kube.apply(role(where, _ACCOUNT, *rules))
    roles.kube.apply(binding(where, _ACCOUNT, _ACCOUNT, subject(where, _ACCOUNT)))


async def _hold(
    plane: ControlPlane, kubeconfig: str, namespace: str, uids: Sequence[str], seconds: float
) -> Figures:
    clock = SystemClock()
    before = await _spent(plane, clock, seconds)
    clients = [await _client(kubeconfig) for _ in uids]
    electors = [
        Elector(
            client,
            Key(namespace, uid),
            identity=f"holder-{number}",
            clock=clock,
            rng=random.Random(number),
        )
        for number, (client, uid) in enumerate(zip(clients, uids, strict=True))
    ]
    tasks = [asyncio.ensure_future(it.run()) for it in electors]
    try:
        await _until_held(electors, clock)
        since = plane.audit_position()
        spent = await _spent(plane, clock, seconds)
        user = f"system:serviceaccount:{namespace}:{_ACCOUNT}"
        writes = plane.audit_writes(since, user=user)
        reads = plane.audit_reads(since, user=user)
        held = sum(it.held for it in electors)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()
    used = {name: (spent[name] - before[name]) / seconds for name in spent}
    return {
        "providers": len(uids),
        "seconds": seconds,
        "held at the end": held,
        "writes per s": len(writes) / seconds,
        "reads per s": len(reads) / seconds,
        "writes refused": sum((it.code or 500) >= 400 for it in writes),
        **{f"{name}, CPU without, % of a core": 100 * before[name] / seconds for name in used},
        **{f"{name}, CPU for them, % of a core": 100 * it for name, it in used.items()},
        "API server, CPU ms per write": 1000 * used["API server"] * seconds / max(1, len(writes)),
    }


async def _client(kubeconfig: str) -> KubeClient:
    connection, metrics = Connection(kubeconfig), Metrics()
    await connection.load()
    client = KubeClient(connection, role="provider", metrics=metrics, writes=Hub(Cache(), metrics))
    await client.open()
    return client


async def _spent(plane: ControlPlane, clock: SystemClock, seconds: float) -> dict[str, float]:
    processes = {"API server": plane.apiserver, "etcd": plane.etcd}
    before = {name: cpu(it.pid) for name, it in processes.items()}
    await clock.sleep(seconds)
    return {name: cpu(it.pid) - before[name] for name, it in processes.items()}


async def _until_held(electors: Sequence[Elector], clock: SystemClock) -> None:
    deadline = clock.monotonic() + _HELD_SECONDS
    while not all(it.held for it in electors):
        if clock.monotonic() > deadline:
            raise TimeoutError(f"only {sum(it.held for it in electors)} Leases are held")
        await clock.sleep(0.5)


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--providers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--output", type=Path, default=Path("out/bench/leases.json"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(given.providers, given.seconds, Path(directory))
    for name, figure in figures.items():
        sys.stdout.write(f"{name:<40} {figure:10.2f}\n")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
