"""The lives of VMs with one call after the other disturbed: a matrix of calls and disturbances.

A course is a life with a step for each call it disturbs. It is lived once for each disturbance,
with a proxy and an API in memory of its own; all share one simulated vCenter. After each step there
must be the same VMs as without the disturbance, and none in the end.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import NotYet
from test.kit import soaprules
from test.kit.certificates import Authority
from test.kit.faultwords import WORDS, Typed
from test.kit.matrix_report import PROPERTY
from test.kit.soapproxy import SoapProxy
from test.kit.soaprules import Rule
from test.kit.vsphere_target import VSphereTarget
from test.kit.vspherebench import IMPATIENT, QUICK, VSphereBench
from test.kit.waiting import WaitTimeoutError, wait_until_async

LATE: Final = IMPATIENT.read + 0.4
LATE_POLL: Final = IMPATIENT.longest_poll + IMPATIENT.poll_slack + 0.4
"""Seconds of a delay past the timeout of a call, and of a long poll."""

_NOBODY: Final[Mapping[str, str | tuple[str, str]]] = {
    "object": ("Folder", "group-d1"),
    "privilegeId": "System.View",
}

_DISTURBED: Final[Mapping[str, Callable[[str], Rule]]] = {
    "503": lambda method: soaprules.http_status(method, 503, count=1),
    "late": lambda method: soaprules.delay(
        method, LATE_POLL if method == "WaitForUpdatesEx" else LATE, count=1
    ),
    "cut": lambda method: soaprules.cut(method, count=1),
    "reply lost": lambda method: soaprules.drop_reply(method, count=1),
    "half body": lambda method: soaprules.half_body(method, count=1),
    "session lost": lambda method: (
        # The simulator's policies are told to everybody.
        soaprules.fault(method, "NotAuthenticated", _NOBODY, count=1)
        if method.startswith("Pbm")
        else soaprules.strip_cookie(method, count=1)
    ),
}

FAULT: Final = "fault"
MODES: Final = (FAULT, *_DISTURBED)
"""What is done to one call: faults of the vCenter, one attempt after the other, an answer of a
gateway without it, an answer past the timeout, a connection reset before and after the call, half
an answer, a session gone."""

_AT_WORK: Final = frozenset(
    map(
        str,
        (
            Reason.CREATING,
            Reason.UPDATING,
            Reason.DELETING,
            Reason.RESTARTING,
            Reason.NOT_OBSERVED,
            Reason.ADDRESS_PENDING,
            Reason.ADDRESSES_NOT_EXPECTED,
            Reason.GUEST_BOOTSTRAP_PENDING,
            Reason.NOT_PAUSED,
        ),
    )
)
"""What conditions say while nothing is wrong."""

ALARMING: Final = frozenset(
    {
        Reason.VM_MISSING,
        Reason.OWNERSHIP_CONFLICT,
        Reason.BACKEND_IDENTITY_CHANGED,
        Reason.TEARDOWN_UNDECIDED,
    }
)
"""Reasons that would have somebody do something about a disturbance that passes by itself."""


ABREAST: Final = len(MODES)
"""Courses that are lived at the same time: most of a life is waiting."""

_PATIENCE: Final = 60.0
_WRONG: Final = (AssertionError, WaitTimeoutError, LookupError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of one call that was disturbed.

    Attributes:
        method: the call.
        mode: the disturbance.
        hit: whether the call was made at all.
        wrong: what there is too much or too little of, as text.
        again: clone calls beyond one for each VM that was made.
        told: reasons of calls that failed meanwhile, and of conditions that told of it.
        trouble: what else went wrong.
    """

    method: str
    mode: str
    hit: bool
    wrong: str = ""
    again: int = 0
    told: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def is_right(self) -> bool:
        """Whether what was wanted is there once, with the right words meanwhile."""
        words, told = WORDS[self.method], frozenset(self.told)
        must = words.must(self.mode)
        right = all(one & told for one in must) and told <= words.allowed(self.mode)
        few = self.again <= (self.mode != FAULT)
        return self.hit and few and right and not self.wrong and not self.trouble

    def as_json(self) -> dict[str, object]:
        """For the file."""
        return {
            "method": self.method,
            "mode": self.mode,
            "right": self.is_right,
            "told": list(self.told),
            **{name: text for name in ("wrong", "trouble") if (text := getattr(self, name))},
        }


@dataclass
class Life:
    """What a course works on.

    Attributes:
        bench: the reconciler, its API and its driver.
        name: what the names of its machines begin with.
        alive: names of the machines there are.
        gone: names of those that were deleted.
        noted: what a step saw to be told in a way of its own.
        hits: tells how often each of the disturbances took place.
    """

    bench: VSphereBench
    name: str
    alive: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    noted: set[str] = field(default_factory=set)
    started: bool = False
    method: str = ""
    mode: str = FAULT
    hits: list[Callable[[], int]] = field(default_factory=list)

    def arm(self) -> None:
        """Disturb the call from now on: once, or once by each of its faults."""
        if self.mode != FAULT:
            self._add(_DISTURBED[self.mode](self.method))
            return
        for fault in self.faults:
            if fault.in_task:
                self._fail_task(fault)
            elif " " in self.method:
                self._add(soaprules.rest_fault(self.method, fault.name, fault.status, count=1))
            else:
                self._add(soaprules.fault(self.method, fault.name, fault.fields, count=1))

    @property
    def faults(self) -> tuple[Typed, ...]:
        """The faults that the call is answered with; none in other modes."""
        return WORDS[self.method].faults if self.mode == FAULT else ()

    @property
    def hit(self) -> bool:
        """Whether the call was made, and disturbed in all ways meant."""
        return bool(self.hits) and not self.missed

    @property
    def missed(self) -> list[int]:
        """Which of the disturbances did not take place."""
        return [number for number, hits in enumerate(self.hits) if not hits()]

    def _add(self, rule: Rule) -> None:
        self.bench.target.proxy.add(rule)
        self.hits.append(lambda: rule.hits)

    def _fail_task(self, fault: Typed) -> None:
        """Have the vCenter take this life's next call, and end its task so."""
        vcenter = self.bench.target.vcenter
        rule = vcenter.add_fault(
            self.method,
            fault.name,
            {name: _as_json(value) for name, value in fault.fields.items()},
            stage="task",
            account=self.bench.target.account,
            count=1,
        )
        self.hits.append(lambda: vcenter.fault_hits(rule))

    async def start(self) -> None:
        """Have a session."""
        if not self.started:
            self.started = True
            await asyncio.to_thread(self.bench.start)

    async def make(self, suffix: str = "vm", /, **spec: object) -> str:
        """Make a machine and wait until it is Ready; its name."""
        name = f"{self.name}-{suffix}"
        await self.start()
        self.alive.append(name)
        self.bench.make_machine(name, **spec)
        await self.bench.until(
            f"{name} is Ready",
            lambda: (
                self.bench.is_ready(name) and self.bench.condition("UpToDate", name)[0] == "True"
            ),
            name,
            timeout=_PATIENCE,
        )
        return name

    async def delete(self, name: str) -> None:
        """Delete a machine and wait until it is gone."""
        self.bench.delete(name)
        await self.bench.until(
            f"{name} is gone", lambda: not self.bench.machine(name), name, timeout=_PATIENCE
        )
        self.alive.remove(name)
        self.gone.append(name)

    async def one(self, **spec: object) -> str:
        """The first machine there is, made if there is none."""
        await self.start()
        return self.alive[0] if self.alive else await self.make(**spec)

    async def power(self, state: str, **spec: object) -> str:
        """Bring the first machine to a power state."""
        name = await self.one()
        bench, wanted = self.bench, state[0].lower() + state[1:]
        bench.edit(name, powerState=state, **spec)
        await bench.until(
            state,
            lambda: bench.is_ready(name) and bench.vm(name).power_state == wanted,
            name,
            timeout=_PATIENCE,
        )
        return name

    async def runs(self) -> str:
        """Have the first machine run, with its guest's tools."""
        name = await self.one()
        if self.bench.vm(name).power_state != "poweredOn":
            await self.power("PoweredOn")
        await wait_until_async(
            lambda: self.bench.vm(name).tools_running, _PATIENCE, "the guest's tools"
        )
        return name

    async def met(self) -> None:
        """Wait until the disturbed call was made."""
        await wait_until_async(lambda: self.hit, _PATIENCE, "the call to be made")

    def wrong(self) -> str:
        """What there is too much or too little of."""
        found = {name: len(self.bench.vms(name)) for name in (*self.alive, *self.gone)}
        return ", ".join(
            f"{count} VMs of {name}"
            for name, count in found.items()
            if count != (1 if name in self.alive else 0)
        )


Step = Callable[[Life], Awaitable[None]]
Course = Mapping[str, Step]
"""The steps of a life in their order, by the call that each disturbs."""


def _as_json(value: str | tuple[str, str]) -> object:
    if isinstance(value, tuple):
        return {"type": value[0], "value": value[1]}
    return int(value) if value.isdigit() else value


async def _cell(life: Life, method: str, mode: str, step: Step) -> Cell:
    bench, proxy = life.bench, life.bench.target.proxy
    life.method, life.mode = method, mode
    life.hits.clear()
    life.noted.clear()
    bench.told.clear()
    bench.shown.clear()
    before, made = proxy.passed["CloneVM_Task"], len(life.alive) + len(life.gone)
    trouble = ""
    try:
        await step(life)
    except _WRONG as error:
        trouble = f"{type(error).__name__}: {error}"[:300]
    made = len(life.alive) + len(life.gone) - made
    if method == "CloneVM_Task":
        made += sum(fault.in_task for fault in life.faults)
    failed = [str(error.reason) for error in bench.told if not isinstance(error, NotYet)]
    told = tuple(
        dict.fromkeys(
            (*failed, *(it for it in bench.shown if it not in _AT_WORK), *sorted(life.noted))
        )
    )
    alarms = {*map(str, ALARMING)} & {*told}.difference(*WORDS[method].must(mode))
    return Cell(
        method=method,
        mode=mode,
        hit=life.hit,
        wrong=life.wrong(),
        again=proxy.passed["CloneVM_Task"] - before - made,
        told=told,
        trouble=trouble
        or (f"told {sorted(alarms)}" if alarms else "")
        or (f"missed {life.missed}" if life.missed else ""),
    )


async def _live(life: Life, mode: str, course: Course) -> list[Cell]:
    cells: list[Cell] = []
    try:
        for method, step in course.items():
            failed = next((cell.method for cell in cells if cell.trouble), "")
            if failed:
                cells.append(Cell(method, mode, hit=False, trouble=f"not reached after {failed}"))
            else:
                cells.append(await _cell(life, method, mode, step))
        for name in () if any(cell.trouble for cell in cells) else tuple(life.alive):
            await life.delete(name)
        if not any(cell.trouble for cell in cells):
            cells[-1] = replace(cells[-1], wrong=cells[-1].wrong or life.wrong())
    finally:
        await asyncio.to_thread(life.bench.stop)
    return cells


def run_course(  # noqa: PLR0917 - what one run is made of
    target: VSphereTarget,
    authority: Authority,
    mode: str,
    name: str,
    course: Course,
    arrived: set[str] | None = None,
    **timings: float,
) -> list[Cell]:
    """Live a course in this thread, with one call of each of its steps disturbed.

    Args:
        target: the vCenter, and what a Provider offers on it.
        authority: what issues the certificate of the course's proxy.
        mode: the disturbance, a key of `MODES`.
        name: of the course.
        course: what it is made of.
        arrived: takes up the names of all calls that were made.
        **timings: limits of the driver that the course needs otherwise.
    """
    with SoapProxy(target.vcenter.address, authority=authority) as proxy:
        own = VSphereTarget(target.vcenter, proxy)
        own.capabilities = target.capabilities
        own.account = f"{name}-{mode}"
        own.vcenter.set_account(own.account, own.vcenter.password)
        bench = VSphereBench(own, replace(IMPATIENT if mode == "late" else QUICK, **timings))
        word = "".join(part[0] for part in mode.split()) + mode[-1]
        life = Life(bench, f"{name}-{word}".lower())
        cells = asyncio.run(_live(life, mode, course))
        if arrived is not None:
            arrived |= set(proxy.arrived)
        return cells


def live_in_all_ways(
    live: Callable[[str], list[Cell]], record_property: Callable[[str, object], None]
) -> None:
    """Live a course once per disturbance, some at a time, and hold all cells against what is right.

    Args:
        live: lives it under the disturbance of that name.
        record_property: takes the cells for the report; the fixture of that name.

    Raises:
        AssertionError: cells are wrong; the message shows them.
    """
    with ThreadPoolExecutor(ABREAST) as pool:
        cells = [cell for found in pool.map(live, MODES) for cell in found]
    record_property(PROPERTY, [asdict(cell) for cell in cells])
    wrong = [cell for cell in cells if not cell.is_right]
    assert not wrong, "\n".join(map(repr, wrong))


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
