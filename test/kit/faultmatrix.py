"""The life of one VM with one call of it disturbed, for a matrix of SOAP methods and disturbances.

Each cell has a proxy, a session and an API in memory of its own; all share one simulated vCenter.
A cell must end in the same single VM, and in none after the deletion.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from banlieue.api.meta import format_time
from banlieue.api.reasons import Reason
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import DriverError
from banlieue.sdk.powers import DiskKeeper
from test.kit import soaprules
from test.kit.soapproxy import SoapProxy
from test.kit.soaprules import Rule
from test.kit.vcsim import VCSim
from test.kit.vsphere_target import VSphereTarget
from test.kit.vspherebench import IMPATIENT, QUICK, VSphereBench
from test.kit.waiting import wait_until_async

LATE: Final = IMPATIENT.read + 0.4
LATE_POLL: Final = IMPATIENT.longest_poll + IMPATIENT.poll_slack + 0.4
"""Seconds of a delay past the timeout of a call, and of a long poll."""

Arm = Callable[[], Rule]
Scenario = Callable[[VSphereBench, str, Arm], Awaitable[None]]

MODES: Final[Mapping[str, Callable[[str], Rule]]] = {
    "fault": lambda method: soaprules.fault(
        method, "ResourceInUse", {"type": "VirtualMachine", "name": "web"}, count=1
    ),
    "503": lambda method: soaprules.http_status(method, 503, count=1),
    "late": lambda method: soaprules.delay(
        method, LATE_POLL if method == "WaitForUpdatesEx" else LATE, count=1
    ),
    "cut": lambda method: soaprules.cut(method, count=1),
    "reply lost": lambda method: soaprules.drop_reply(method, count=1),
    "half body": lambda method: soaprules.half_body(method, count=1),
    "session lost": lambda method: soaprules.strip_cookie(method, count=1),
}
"""What is done to one call: a fault of the vCenter, an answer of a gateway without it, an answer
past the timeout, a connection reset before and after the call, half an answer, a session gone."""

_NO_ANSWER: Final = frozenset({Reason.PROVIDER_UNREACHABLE})
_FAILED: Final = frozenset(
    {
        Reason.INVENTORY_FAILED,
        Reason.PROVISIONING_FAILED,
        Reason.UPDATE_FAILED,
        Reason.DELETION_FAILED,
    }
)
"""The step failed: an answer that breaks off, or a second attempt that met the first one's."""

EXPECTED: Final[Mapping[str, frozenset[Reason]]] = {
    "fault": frozenset({Reason.PROVIDER_BUSY}),
    "503": _NO_ANSWER,
    "late": _NO_ANSWER | _FAILED,
    "cut": _NO_ANSWER,
    "reply lost": _NO_ANSWER,
    "half body": _NO_ANSWER | _FAILED,
    "session lost": frozenset(),
}
"""Reasons that may be told meanwhile."""

FOLLOWING: Final = frozenset({Reason.ABSENCE_UNPROVEN, Reason.PROVIDER_BUSY})
"""Reasons that may follow until it is known what became of a call without an answer, and while the
clones of other cells run in the same vCenter."""

ALARMING: Final = frozenset(
    {
        Reason.VM_MISSING,
        Reason.OWNERSHIP_CONFLICT,
        Reason.INVALID_CONFIGURATION,
        Reason.BACKEND_IDENTITY_CHANGED,
        Reason.PROVIDER_AUTH_FAILED,
        Reason.PROVIDER_PERMISSION_DENIED,
        Reason.TEARDOWN_UNDECIDED,
    }
)
"""Reasons that would have somebody do something about a disturbance that passes by itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of one cell; `told` are the reasons of calls that failed."""

    method: str
    mode: str
    hit: bool
    vms: int
    clones: int
    left: int
    told: tuple[str, ...]
    trouble: str = ""

    @property
    def is_right(self) -> bool:
        """Whether one VM was made and one destroyed, with the right words meanwhile."""
        allowed = EXPECTED[self.mode] | FOLLOWING
        one = (self.vms, self.left) == (1, 0) and self.clones <= 1 + (self.mode != "fault")
        words = set(self.told) <= {str(reason) for reason in allowed}
        return self.hit and one and words and not self.trouble

    def as_json(self) -> dict[str, object]:
        """For the file."""
        return {
            "method": self.method,
            "mode": self.mode,
            "right": self.is_right,
            "vms": self.vms,
            "told": list(self.told),
            **({"trouble": self.trouble} if self.trouble else {}),
        }


# What one life is made of


async def _make(bench: VSphereBench, name: str, **spec: object) -> None:
    bench.make_machine(name, **spec)
    await bench.until("Ready", lambda: bench.is_ready(name))


async def _gone(bench: VSphereBench, name: str) -> None:
    bench.delete(name)
    await bench.until("gone", lambda: not bench.machine(name))


async def _power(bench: VSphereBench, name: str, state: str, vm_state: str, **spec: object) -> None:
    bench.edit(name, powerState=state, **spec)
    await bench.until(
        state, lambda: bench.is_ready(name) and bench.vm(name).power_state == vm_state
    )


async def _tools(bench: VSphereBench, name: str) -> None:
    await wait_until_async(lambda: bench.vm(name).tools_running, 20.0, "the guest's tools")


async def opening(bench: VSphereBench, name: str, arm: Arm) -> None:
    """The session and the watch are disturbed."""
    arm()
    await asyncio.to_thread(bench.start)
    await _make(bench, name)


async def making(bench: VSphereBench, name: str, arm: Arm) -> None:
    """The create is disturbed."""
    await asyncio.to_thread(bench.start)
    arm()
    await _make(bench, name)


def making_with(spec: Callable[[str], Mapping[str, object]]) -> Scenario:
    """The create of a machine that asks for something is disturbed; its name gives the spec."""

    async def run(bench: VSphereBench, name: str, arm: Arm) -> None:
        await asyncio.to_thread(bench.start)
        arm()
        await _make(bench, name, **spec(name))

    return run


async def rewatching(bench: VSphereBench, name: str, arm: Arm) -> None:
    """The end of a watch that is built anew is disturbed."""
    await asyncio.to_thread(bench.start)
    rule = arm()
    bench.target.proxy.add(soaprules.fault("WaitForUpdatesEx", "InvalidCollectorVersion", count=1))
    await wait_until_async(lambda: rule.hits > 0, 20.0, "the watch to be built anew")
    await _make(bench, name)


async def reconfiguring(bench: VSphereBench, name: str, arm: Arm) -> None:
    """A change of hardware is disturbed."""
    await asyncio.to_thread(bench.start)
    await _make(bench, name)
    arm()
    root = {"name": "root", "storageClass": "gold"}
    bench.edit(name, disks=[root, {"name": "data", "sizeGiB": 1, "storageClass": "gold"}])
    await bench.until("two disks", lambda: bench.is_ready(name) and len(bench.vm(name).disks) == 2)


def powering(state: str, vm_state: str, before: str = "", **spec: object) -> Scenario:
    """A change of power is disturbed; `before` is the state it comes from."""

    async def run(bench: VSphereBench, name: str, arm: Arm) -> None:
        await asyncio.to_thread(bench.start)
        await _make(bench, name, **({"powerState": before} if before else {}))
        if not before:
            await _tools(bench, name)
        arm()
        await _power(bench, name, state, vm_state, **spec)

    return run


def restarting(mode: str) -> Scenario:
    """A restart is disturbed."""

    async def run(bench: VSphereBench, name: str, arm: Arm) -> None:
        await asyncio.to_thread(bench.start)
        await _make(bench, name, powerOffMode=mode)
        await _tools(bench, name)
        arm()
        bench.clock.advance(60)
        await bench.run_pass(name)
        at = format_time(bench.clock.now() - timedelta(seconds=1))
        bench.edit(name, restartAt=at)
        await bench.until(
            "the restart",
            lambda: (
                bench.is_ready(name) and bench.machine(name)["status"].get("lastRestartTime") == at
            ),
        )

    return run


async def destroying(bench: VSphereBench, name: str, arm: Arm) -> None:
    """The deletion is disturbed."""
    await asyncio.to_thread(bench.start)
    await _make(bench, name)
    arm()


async def keeping(bench: VSphereBench, name: str, arm: Arm) -> None:
    """The deletion of a VM with a disk to retain is disturbed."""
    data = {"name": "data", "sizeGiB": 1, "storageClass": "gold", "reclaimPolicy": "Retain"}
    root = {"name": "root", "storageClass": "gold"}
    await asyncio.to_thread(bench.start)
    await _make(bench, name, disks=[root, data])
    arm()


async def listing(bench: VSphereBench, name: str, arm: Arm) -> None:
    """The search for kept disks is disturbed."""
    await asyncio.to_thread(bench.start)
    rule = arm()

    def kept(driver: Driver[Any]) -> bool:
        assert isinstance(driver, DiskKeeper)
        return driver.kept_disks("installation-1") is not None

    async def known() -> bool:
        return await bench.open_one().call(kept)

    await wait_until_async(known, 20.0, "the kept disks", retry_on=(DriverError,))
    assert rule.hits
    await _make(bench, name)


async def ending(bench: VSphereBench, name: str, arm: Arm) -> None:
    """The end of a session is disturbed; the next process goes on."""
    await asyncio.to_thread(bench.start)
    await _make(bench, name)
    arm()
    await asyncio.to_thread(bench.restart)


async def _live(bench: VSphereBench, name: str, scenario: Scenario, arm: Arm) -> int:
    """One life; the number of VMs there were of it."""
    try:
        await scenario(bench, name, arm)
        found = len(bench.vms(name))
        await _gone(bench, name)
        return found
    finally:
        await asyncio.to_thread(bench.stop)


def run_cell(vcenter: VCSim, method: str, mode: str, scenario: Scenario) -> Cell:
    """Live one life in this thread, with one call disturbed."""
    name = f"{method}-{mode}".lower().replace("_", "-").replace(" ", "-")
    with SoapProxy(vcenter.address) as proxy:
        timings = IMPATIENT if mode == "late" else QUICK
        bench = VSphereBench(VSphereTarget(vcenter, proxy), timings)
        rule = MODES[mode](method)
        vms, trouble = 0, ""
        try:
            vms = asyncio.run(_live(bench, name, scenario, lambda: proxy.add(rule)))
        except (AssertionError, TimeoutError, LookupError, ValueError) as error:
            trouble = f"{type(error).__name__}: {error}"[:300]
        alarms = ALARMING & {*bench.reasons, *bench.told_reasons()}
        return Cell(
            method=method,
            mode=mode,
            hit=rule.hits > 0,
            vms=vms,
            clones=proxy.passed["CloneVM_Task"],
            left=len(bench.vms(name)),
            told=tuple(dict.fromkeys(str(error.reason) for error in bench.told)),
            trouble=trouble or (f"told {sorted(map(str, alarms))}" if alarms else ""),
        )


def table(cells: list[Cell]) -> str:
    """The matrix as text: a row per method, and what was told, shortened, where anything was."""
    short = {
        str(Reason.PROVIDER_UNREACHABLE): "unreachable",
        str(Reason.PROVIDER_BUSY): "busy",
        str(Reason.ABSENCE_UNPROVEN): "unproven",
    }
    by_place = {(cell.method, cell.mode): cell for cell in cells}
    rows = [["method", *MODES]]
    for method in dict.fromkeys(cell.method for cell in cells):
        row = [method]
        for mode in MODES:
            cell = by_place.get((method, mode))
            words = "+".join(short.get(word, word) for word in cell.told) if cell else ""
            row.append(
                "-" if cell is None else f"{'' if cell.is_right else 'WRONG '}{words or 'ok'}"
            )
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def write(cells: list[Cell], path: Path) -> None:
    """Write the matrix as JSON; the latest run replaces the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([cell.as_json() for cell in cells], indent=1) + "\n")
