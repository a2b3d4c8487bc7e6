"""Virtual machines on vCenter: time, calls, writes, memory and processor time, beside a raw script.

    python -m test.bench.vsphere [--vms 1,50,200] [--steady 60] [--capv] [--output FILE]

Each size has a fresh control plane and a fresh vCenter simulator, and so has the raw script: eight
threads of plain pyVmomi that make the same VMs. The script runs in two forms, since the simulator
keeps a template locked while a clone switches its VM on: with that in the clone call, and with a
call of its own. With `--capv` Cluster API's own vSphere provider makes such VMs, too. Times say
something about the machine they were taken on; calls and writes carry over. Nothing is asserted.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from banlieue.sdk.errors import DriverError
from hack.tools.catalog import ToolError
from test.bench import capv
from test.bench.driving import Direct, measure_driver
from test.bench.figures import Figures, table
from test.bench.floor import measure_raw
from test.bench.subject import Column, Subject, measure
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.kube import KubeError, Object
from test.kit.process import ProcessEndedError
from test.kit.stack import Role, Stack, is_ready
from test.kit.tools import tool
from test.kit.vcsim import VCSim
from test.kit.vcsim_control import ControlError
from test.kit.vcsim_values import Machine
from test.kit.vsphere_target import vsphere_target

OURS: Final = "banlieue"
DRIVER: Final = "its driver"
RAW: Final = {"raw, on in clone": True, "raw, on by a call": False}
_ERROR_CHARACTERS: Final = 2000
_FAILURES: Final = (
    *(OSError, KubeError, ProcessEndedError, ControlError, RuntimeError),
    *(AssertionError, ToolError, DriverError),
)
"""What ends the measurement of one subject: a time-out is an OSError, a role that ended while time
had to pass is an AssertionError."""


class Installation(Subject):
    """banlieue on a control plane and a vCenter of its own, ready to make VMs."""

    kind = "virtualmachines"

    def __init__(
        self,
        plane: ControlPlane,
        registered: Registered,
        vcenter: VCSim,
        roles: Mapping[str, Role],
        patience: float,
    ) -> None:
        processes = {name: role.process for name, role in roles.items()}
        super().__init__(plane, vcenter, processes, registered.namespace, patience)
        self._registered, self._provider = registered, roles["provider"]

    @classmethod
    @contextlib.contextmanager
    def fresh(cls, directory: Path, patience: float) -> Iterator["Installation"]:
        """Set one up, and take it down in the end."""
        with contextlib.ExitStack() as stack:
            plane = stack.enter_context(ControlPlane(directory / "control-plane"))
            target = stack.enter_context(vsphere_target(directory))
            installed = stack.enter_context(Stack(plane, directory))
            installed.install()
            registered = Registered(installed, Direct(target.vcenter, target.proxy))
            registered.register()
            roles = {
                "controller": installed.controller().start(),
                "provider": installed.provider("vsphere").start(),
            }
            registered.provider_ready(patience)
            yield cls(plane, registered, target.vcenter, roles, patience)

    def create(self, name: str) -> None:
        self._registered.create(name)

    def is_ready(self, obj: Object) -> bool:
        return bool(is_ready(obj))

    def restart(self) -> None:
        self._provider.kill9()
        self._provider.start()
        self._registered.provider_ready(self.patience)


def measure_ours(
    vms: int, steady: float, directory: Path, patience: float
) -> tuple[Column, Machine]:
    """banlieue: figures and details, and what a VM of ours looks like at vCenter."""
    with Installation.fresh(directory, patience) as ours:
        return measure(ours, vms, steady)


def run(vms: int, steady: float, patience: float, *, peer: bool) -> dict[str, Any]:
    """Everything of one size; who could not be measured has an `error` instead of figures."""
    columns: dict[str, Column] = {}
    like: list[Machine] = []

    def ours(directory: Path) -> Column:
        column, machine = measure_ours(vms, steady, directory, patience)
        like.append(machine)
        return column

    columns[OURS] = column_of(ours)
    if like:
        columns[DRIVER] = column_of(lambda it: measure_driver(vms, like[0], it, patience))
    for name, on_in_clone in RAW.items() if like else ():
        columns[name] = column_of(partial(measure_raw, vms, like[0], on_in_clone=on_in_clone))
    if peer and like:
        columns[capv.name()] = column_of(
            lambda directory: capv.measure_capv(vms, steady, like[0], directory, patience)
        )
    figures = {name: column.get("figures", {}) for name, column in columns.items()}
    ratios = {who: ratio for who in columns if (ratio := over_raw(figures, who)) is not None}
    return {"vms": vms, "subjects": columns, "powered_on_last_over_raw": ratios}


def column_of(measured: Callable[[Path], Column]) -> Column:
    """What was measured in a directory of its own, or the `error` that kept it from being so."""
    with tempfile.TemporaryDirectory(prefix="banlieue-bench-") as directory:
        try:
            return measured(Path(directory))
        except _FAILURES as error:
            # The other subjects and sizes are of use without it.
            return {"error": f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]}


def over_raw(columns: Mapping[str, Figures], who: str = OURS) -> float | None:
    """A subject over the faster form of the script, by the moment the last VM is on."""
    last = "powered on, last, s"
    raw = [columns[name][last] for name in RAW if last in columns.get(name, {})]
    theirs = columns.get(who, {}).get(last)
    return theirs / min(raw) if raw and theirs is not None and who not in RAW else None


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
    lines += [
        f"{who}: the last is on after {ratio:.2f} times the raw script's"
        for who, ratio in found.get("powered_on_last_over_raw", {}).items()
    ]
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
    parser.add_argument("--capv", action="store_true", help="Cluster API's vSphere provider, too")
    options = parser.parse_args()
    if options.capv:
        try:
            tool(capv.BINARY)
        except ToolError as error:
            parser.error(str(error))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"cpus": os.cpu_count(), "steady_seconds": options.steady, "sizes": []}
    for vms in options.vms:
        load, began = os.getloadavg()[0], time.monotonic()
        one = run(vms, options.steady, options.patience, peer=options.capv)
        one |= {"load_before": round(load, 2), "took_seconds": round(time.monotonic() - began, 1)}
        found["sizes"].append(one)
        # Written each time: what was measured stays when a later size is interrupted.
        options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"{shown(one)}\n", flush=True)  # noqa: T201 - a benchmark prints what it found
    return int(any("error" in it for one in found["sizes"] for it in one["subjects"].values()))


if __name__ == "__main__":
    sys.exit(main())
