"""Virtual machines on vCenter: time, calls, writes, memory and processor time, beside a raw script.

    python -m test.bench.vsphere [--vms 1,50,200] [--steady 60] [--output out/bench/vsphere.json]

Each size has a fresh control plane and a fresh vCenter simulator, and so has the raw script: eight
threads of plain pyVmomi that make the same VMs. The script runs in two forms, since the simulator
keeps a template locked while a clone switches its VM on: with that in the clone call, and with a
call of its own. Times say something about the machine they were taken on; calls and writes carry
over. Nothing is asserted.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from banlieue.sdk.driver import Connection
from test.bench.figures import Figures, per_vm, share, table, times
from test.bench.floor import measure_raw
from test.bench.installation import (
    LONG_POLL,
    Spending,
    Spent,
    Watch,
    called,
    calls_at,
    switched_on,
    without_polls,
)
from test.bench.processes import rss
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.kube import KubeError
from test.kit.process import ProcessEndedError
from test.kit.stack import Role, Stack
from test.kit.vcsim import VCSim
from test.kit.vcsim_control import ControlError
from test.kit.vcsim_values import Machine
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import stays_true, wait_until

OURS: Final = "banlieue"
RAW: Final = {"raw, on in clone": True, "raw, on by a call": False}
_WRITERS: Final = 4
_LATE: Final = 2.0
_QUIET: Final = 3.0
_WARM_UP: Final = "warm-up"
_ERROR_CHARACTERS: Final = 2000
_FAILURES: Final = (
    *(OSError, KubeError, ProcessEndedError, ControlError, RuntimeError),
    AssertionError,
)
"""What ends the measurement of one subject: a time-out is an OSError, a role that ended while time
had to pass is an AssertionError."""

Column = dict[str, Any]


class _Direct(VSphereTarget):
    """The driver reaches the vCenter itself: the proxy would take its share of the processor."""

    def connection(self) -> Connection:
        return replace(super().connection(), endpoints=(self.vcenter.url,))


class Installation:
    """banlieue on a control plane and a vCenter of its own, ready to make VMs."""

    def __init__(
        self,
        plane: ControlPlane,
        registered: Registered,
        vcenter: VCSim,
        roles: Mapping[str, Role],
        patience: float,
    ) -> None:
        self.plane, self.registered, self.vcenter = plane, registered, vcenter
        self.roles, self.patience = roles, patience

    @classmethod
    @contextlib.contextmanager
    def fresh(cls, directory: Path, patience: float) -> Iterator["Installation"]:
        """Set one up, with a VM made and deleted, and take it down in the end."""
        with contextlib.ExitStack() as stack:
            plane = stack.enter_context(ControlPlane(directory / "control-plane"))
            target = stack.enter_context(vsphere_target(directory))
            installed = stack.enter_context(Stack(plane, directory))
            installed.install()
            registered = Registered(installed, _Direct(target.vcenter, target.proxy))
            registered.register()
            roles = {
                "controller": installed.controller().start(),
                "provider": installed.provider("vsphere").start(),
            }
            registered.provider_ready(patience)
            yield cls(plane, registered, target.vcenter, roles, patience)

    def warm_up(self) -> Machine:
        """Make a VM and delete it; what it was at vCenter."""
        self.registered.create(_WARM_UP)
        self.registered.ready(_WARM_UP, self.patience)
        (made,) = (it for it in self.vcenter.vms() if it.name.startswith(f"{_WARM_UP}-"))
        self.registered.delete(_WARM_UP, self.patience)
        return made

    def spending(self) -> Spending:
        """Measure from now on."""
        processes = {name: role.process for name, role in self.roles.items()}
        return Spending(self.plane, self.vcenter, processes)

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which the roles have to go on."""
        roles = self.roles.values()
        stays_true(lambda: all(it.process.running for it in roles), seconds, "all roles run")

    def settle(self) -> None:
        """Wait until vCenter is left alone, but for the long poll."""

        def quiet() -> bool:
            before = without_polls(calls_at(self.vcenter))
            self.pass_time(_QUIET)
            return without_polls(calls_at(self.vcenter)) == before

        wait_until(quiet, self.patience, "the provider to be at rest")

    def memory(self) -> Figures:
        """MiB that the roles and the vCenter hold."""
        found = {name: role.process.pid for name, role in self.roles.items()}
        found["vcsim"] = self.vcenter.process.pid
        return {f"memory of {name}, MiB": rss(pid) for name, pid in found.items()}

    def at_once(self, work: Callable[[str], object], names: Sequence[str]) -> None:
        """Do something for each VirtualMachine, a few at a time as clients do."""
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(work, names))


def measure(vms: int, steady: float, directory: Path, patience: float) -> tuple[Column, Machine]:
    """Make so many VMs, leave them alone, restart the provider, and delete them.

    Returns:
        Figures and details of ours, and what a VM of ours looks like at vCenter.
    """
    names = [f"vm-{number:03}" for number in range(vms)]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(Installation.fresh(directory, patience))
        like = ours.warm_up()
        watch = stack.enter_context(Watch(ours.plane, ours.registered.namespace))
        figures, create = _create(ours, watch, names)
        figures |= ours.memory()
        rest = ours.spending()
        ours.pass_time(steady)
        spent = rest.stop()
        restart = _restart(ours)
        figures |= {
            f"calls in {steady:.0f} s at rest": without_polls(spent.calls),
            f"long polls in {steady:.0f} s at rest": spent.calls[LONG_POLL],
            f"writes in {steady:.0f} s at rest": sum(it.total() for it in spent.writes.values()),
            **_cpu("at rest", spent),
            "calls of a restart": without_polls(restart),
        }
        # The first deletion of a process opens what all others use.
        ours.warm_up()
        deleted, delete = _delete(ours, watch, names)
        details = {
            "create": _details(create, vms),
            "restart": {"calls": dict(restart)},
            "delete": _details(delete, vms),
        }
        return {"figures": figures | deleted, **details}, like


def _create(ours: Installation, watch: Watch, names: Sequence[str]) -> tuple[Figures, Spent]:
    spending, began = ours.spending(), time.time()
    ours.at_once(ours.registered.create, names)
    wait_until(
        lambda: len(watch.ready.keys() & set(names)) == len(names),
        ours.patience,
        f"{len(names)} VirtualMachines to be Ready",
    )
    # Events and the last writes of a status follow what they tell of.
    ours.pass_time(_LATE)
    spent = spending.stop()
    figures = {
        **times("powered on", (at - began for at in switched_on(ours.vcenter))),
        **times("Ready", (watch.ready[name] - began for name in names)),
        **called("create", spent.calls, len(names)),
    }
    for who, written in spent.writes.items():
        figures[f"writes per VM, {who}"] = written.total() / len(names)
    return figures | _cpu("create", spent), spent


def _delete(ours: Installation, watch: Watch, names: Sequence[str]) -> tuple[Figures, Spent]:
    kube, namespace = ours.registered.kube, ours.registered.namespace
    spending, began = ours.spending(), time.monotonic()
    ours.at_once(lambda name: kube.delete("virtualmachines", name, namespace), names)
    wait_until(lambda: not watch.left(names), ours.patience, "the VirtualMachines to be gone")
    seconds = time.monotonic() - began
    ours.pass_time(_LATE)
    spent = spending.stop()
    left = sum(not it.template for it in ours.vcenter.vms())
    return {
        "all deleted, s": seconds,
        **called("delete", spent.calls, len(names)),
        "VMs left behind": left,
    }, spent


def _restart(ours: Installation) -> Counter[str]:
    """The calls of a provider that is killed and started again and finds all these VMs."""
    ours.settle()
    provider = ours.roles["provider"]
    provider.kill9()
    before = calls_at(ours.vcenter)
    provider.start()
    ours.registered.provider_ready(ours.patience)
    ours.settle()
    return calls_at(ours.vcenter) - before


def _cpu(what: str, spent: Spent) -> Figures:
    found = {f"CPU s, {what}, {name}": seconds for name, seconds in spent.cpu.items()}
    return found | {f"share of vcsim, {what}": share("vcsim", spent.cpu)}


def _details(spent: Spent, vms: int) -> dict[str, Any]:
    return {
        "calls_per_vm": per_vm(spent.calls, vms),
        "writes_per_vm": {who: per_vm(written, vms) for who, written in spent.writes.items()},
    }


def run(vms: int, steady: float, patience: float) -> dict[str, Any]:
    """Everything of one size; who could not be measured has an `error` instead of figures."""
    columns: dict[str, Column] = {}
    like: list[Machine] = []

    def ours(directory: Path) -> Column:
        column, machine = measure(vms, steady, directory, patience)
        like.append(machine)
        return column

    columns[OURS] = column_of(ours)
    for name, on_in_clone in RAW.items() if like else ():
        columns[name] = column_of(partial(measure_raw, vms, like[0], on_in_clone=on_in_clone))
    found: dict[str, Any] = {"vms": vms, "subjects": columns}
    ratio = over_raw({name: column.get("figures", {}) for name, column in columns.items()})
    return found if ratio is None else {**found, "powered_on_last_over_raw": ratio}


def column_of(measured: Callable[[Path], Column]) -> Column:
    """What was measured in a directory of its own, or the `error` that kept it from being so."""
    with tempfile.TemporaryDirectory(prefix="banlieue-bench-") as directory:
        try:
            return measured(Path(directory))
        except _FAILURES as error:
            # The other subjects and sizes are of use without it.
            return {"error": f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]}


def over_raw(columns: Mapping[str, Figures]) -> float | None:
    """Ours over the faster form of the script, by the moment the last VM is on."""
    last = "powered on, last, s"
    raw = [columns[name][last] for name in RAW if last in columns.get(name, {})]
    ours = columns.get(OURS, {}).get(last)
    return ours / min(raw) if raw and ours is not None else None


def shown(found: Mapping[str, Any]) -> str:
    """One size as text."""
    columns: Mapping[str, Column] = found["subjects"]
    lines = [
        table(
            f"N={found['vms']}",
            {name: column["figures"] for name, column in columns.items() if "figures" in column},
        )
    ]
    lines += [f"{name}: {it['error']}" for name, it in columns.items() if "error" in it]
    if "powered_on_last_over_raw" in found:
        lines.append(
            f"the last is on after {found['powered_on_last_over_raw']:.2f} times the raw script's"
        )
    return "\n".join(lines)


def sizes(text: str) -> list[int]:
    """Numbers of VMs from a list such as `1,50,200`.

    Raises:
        ArgumentTypeError: One of them is no positive number.
    """
    try:
        found = [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers of VMs such as 1,50,200")
    return found


def main() -> int:
    """Measure each size, print it and write everything; 1 when something could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=sizes, default=[1, 50, 200])
    parser.add_argument("--steady", type=float, default=60.0, help="seconds at rest to look at")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds to wait for a step")
    parser.add_argument("--output", type=Path, default=Path("out/bench/vsphere.json"))
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"cpus": os.cpu_count(), "steady_seconds": options.steady, "sizes": []}
    for vms in options.vms:
        load, began = os.getloadavg()[0], time.monotonic()
        one = run(vms, options.steady, options.patience)
        one |= {"load_before": round(load, 2), "took_seconds": round(time.monotonic() - began, 1)}
        found["sizes"].append(one)
        # Written each time: what was measured stays when a later size is interrupted.
        options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"{shown(one)}\n", flush=True)  # noqa: T201 - a benchmark prints what it found
    return int(any("error" in it for one in found["sizes"] for it in one["subjects"].values()))


if __name__ == "__main__":
    sys.exit(main())
