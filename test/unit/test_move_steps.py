"""Every order in which the two machines of a move can act: what must never happen never does.

A small world of two machine objects, their VMs and the record of the move is explored to its last
state. Each turn somebody acts: the controller takes the step `next_step` names, a provider looks at
its machine, changes its VM, or reports; the user asks for the move, or no longer; time runs out.
Providers act on what they read earlier, as real ones do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from banlieue.api.devices import ObservedInterface
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine import MoveStatus
from banlieue.controller.moves import course
from banlieue.controller.moves.situation import Situation, Step

START = datetime(2026, 1, 1, tzinfo=UTC)
LATE = START + timedelta(days=1)
ON, OFF = "PoweredOn", "PoweredOff"


@dataclass(frozen=True)
class Spec:
    """What a machine object says."""

    role: str
    epoch: int
    power: str = ON
    plugged: bool = True
    version: int = 1


@dataclass(frozen=True)
class Side:
    """One machine: its object, its VM, what its provider read last and what it reported."""

    spec: Spec
    power: str | None = None
    plugged: bool = True
    mark: tuple[int, str] | None = None
    read: Spec | None = None
    seen_power: str | None = None
    seen_plugged: bool = True
    seen_mark: tuple[int, str] | None = None
    observed: int = 0
    minted: bool = True
    leaving: bool = False

    @property
    def live(self) -> bool:
        return self.power == ON and self.plugged


@dataclass(frozen=True)
class Scene:
    """Everything there is. `ended` is how the move ended, once it has."""

    old: Side
    new: Side | None
    wanted: bool = True
    switched: bool = False
    failed: bool = False
    given_up: bool = False
    late: bool = False
    ended: str = ""
    fixed: bool = True
    fresh: bool = True
    changes: int = 0


def _machine(side: Side, name: str) -> Machine:
    spec, marked = side.spec, side.seen_mark
    nics = [ObservedInterface(name="eth0", connected=side.seen_plugged)]
    there = side.seen_power is not None
    meta = {"name": name, "generation": spec.version, "uid": name}
    if side.leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body = {
        "metadata": meta,
        "spec": {
            "move": {"epoch": spec.epoch, "role": spec.role},
            "powerState": spec.power,
            "providerID": f"x://{name}" if there else None,
            "instance": {
                "uuid": "01234567-89ab-4cde-8f01-23456789abcd",
                "name": name,
                "installationID": "i",
                "backendIdentity": "b",
            }
            if side.minted
            else None,
            "networkInterfaces": [{"name": "eth0", "connected": None if spec.plugged else False}],
            "teardown": {"mode": "Destroy", "uid": name} if side.leaving else None,
        },
        "status": {
            "observedGeneration": side.observed,
            "initialization": {"provisioned": True} if there else None,
            "powerState": side.seen_power,
            "interfaces": [nic.to_api() for nic in nics] if there else None,
            "move": {"epoch": marked[0], "role": marked[1]} if marked else None,
        },
    }
    return Machine.from_api(body)


def _situation(scene: Scene) -> Situation:
    return Situation(
        record=MoveStatus(
            provider_name="two",
            provider_namespace="system",
            epoch=1 if scene.fresh else 2,
            started_at=START,
            switched_at=START if scene.switched else None,
            failure="too late" if scene.failed else None,
            given_up=True if scene.given_up else None,
        ),
        current=_machine(scene.old, "old"),
        incoming=_machine(scene.new, "new") if scene.new else None,
        now=LATE if scene.late else START,
        fresh=scene.fresh,
        wanted=scene.wanted,
        fixed=scene.fixed,
        power=PowerState.POWERED_ON,
    )


def _write(side: Side, **changes: object) -> Side:
    spec = replace(side.spec, **changes, version=side.spec.version)  # type: ignore[arg-type] # fields of Spec
    if spec == side.spec:
        return side
    return replace(side, spec=replace(spec, version=side.spec.version + 1))


def _controller(scene: Scene) -> Scene:
    """One step, and the current machine follows what the move makes of its power."""
    situation = _situation(scene)
    step = course.next_step(situation).step
    after = _take(scene, step)
    if after.ended:
        return after
    wanted = course.current_power(_situation(after))
    return replace(after, old=_write(after.old, power=wanted.value if wanted else ON))


def _take(scene: Scene, step: Step) -> Scene:  # noqa: C901, PLR0911 - one line per step
    old, new = scene.old, scene.new
    if step is Step.AWAIT:
        return scene
    if step is Step.POST:
        undone = scene.failed or scene.given_up or not scene.wanted
        closed, power = scene.fixed or undone, OFF if undone else ON
        spec = Spec("Incoming", 1, power, plugged=not closed)
        return replace(scene, new=Side(spec, minted=False))
    if step is Step.SWITCH:
        return replace(scene, switched=True)
    if step is Step.FAIL:
        return replace(scene, failed=True)
    if step is Step.GIVE_UP:
        return replace(scene, given_up=True)
    if step is Step.FORGET:
        return replace(scene, ended="undone")
    assert new is not None, step
    if step is Step.FINISH:
        return replace(scene, ended="moved")
    if step is Step.RETAIN:
        return replace(scene, ended="undone")
    if step is Step.LEAVE:
        return replace(scene, old=_write(old, role="Previous", power=OFF))
    if step is Step.TURN_ON:
        return replace(scene, old=_write(old, power=ON))
    if step is Step.OVERTAKE:
        return replace(scene, old=_write(old, epoch=new.spec.epoch + 1))
    if step is Step.REMOVE:
        assert scene.fresh
        assert new.spec.role == "Incoming"
        version = new.spec.version + 2
        return replace(
            scene, new=replace(new, leaving=True, spec=replace(new.spec, version=version))
        )
    written = {
        Step.TAKE_BACK: {"role": "Incoming", "epoch": 2, "power": OFF if scene.fixed else ON},
        Step.CLOSE: {"plugged": False} if scene.fresh else {"power": OFF},
        Step.OPEN: {"plugged": True} if scene.fresh else {"power": ON},
        Step.COMMIT: {"role": "Current"},
        Step.FENCE: {"plugged": False, "power": OFF} if scene.fresh else {"power": OFF},
        Step.STEP_BACK: {"role": "Previous", "power": OFF},
    }[step]
    return replace(scene, new=_write(new, **written))


def _provider(side: Side) -> Iterator[Side | None]:
    """What a machine's provider may do next; None: the VM and its object are gone."""
    if side.leaving:
        yield None
        return
    if side.read != side.spec:
        yield replace(side, read=side.spec)
    read = side.read
    if read is None:
        return
    if side.minted:
        yield from _acts(side, read)
    elif read == side.spec:  # the identity is written with a version test
        minted = replace(side.spec, version=side.spec.version + 1)
        yield replace(side, minted=True, spec=minted, read=minted)


def _acts(side: Side, read: Spec) -> Iterator[Side]:
    """One change of the VM, by what was read last, or a report when it is as that says."""
    role = "Incoming" if read.role == "Incoming" else "Current"
    if side.power is None:
        yield replace(side, power=read.power, plugged=read.plugged, mark=(read.epoch, role))
        return
    if side.mark != (read.epoch, role):
        yield replace(side, mark=(read.epoch, role))
    if side.power != read.power:
        yield replace(side, power=read.power)
    if side.plugged != read.plugged:
        yield replace(side, plugged=read.plugged)
    done = (side.power, side.plugged, side.mark) == (read.power, read.plugged, (read.epoch, role))
    if done:
        told = (read.epoch, "Previous" if read.role == "Previous" and side.power == OFF else role)
        yield replace(
            side,
            seen_power=side.power,
            seen_plugged=side.plugged,
            seen_mark=told,
            observed=read.version,
        )


def _turns(scene: Scene) -> Iterator[Scene]:
    if scene.ended:
        return
    yield _controller(scene)
    for old in _provider(scene.old):
        if old is not None:
            yield replace(scene, old=old)
    if scene.new is not None:
        for new in _provider(scene.new):
            yield replace(scene, new=new)
    if scene.changes:
        yield replace(scene, wanted=not scene.wanted, changes=scene.changes - 1)
    if scene.switched and not scene.late:
        yield replace(scene, late=True)


def _check(scene: Scene) -> None:
    old, new = scene.old, scene.new
    if scene.fixed:
        assert not (old.live and new is not None and new.live), "one address twice"
    else:
        assert old.live or (new is not None and new.live), "nothing runs"
    if new is None:
        return
    if not scene.fresh:
        assert not new.leaving, "the data of the earlier machine is destroyed"
    if new.leaving:
        assert new.mark is None or new.mark[1] == "Incoming", "the machine itself is destroyed"


def _explore(first: Scene) -> set[Scene]:
    seen, todo = {first}, [first]
    while todo:
        scene = todo.pop()
        for after in _turns(scene):
            if after not in seen:
                _check(after)
                seen.add(after)
                todo.append(after)
    return seen


def _running() -> Side:
    spec = Spec("Current", 0)
    return Side(
        spec,
        power=ON,
        mark=(0, "Current"),
        read=spec,
        seen_power=ON,
        seen_mark=(0, "Current"),
        observed=1,
    )


def _left() -> Side:
    spec = Spec("Previous", 0, OFF)
    return Side(
        spec,
        power=OFF,
        mark=(0, "Current"),
        read=spec,
        seen_power=OFF,
        seen_mark=(0, "Previous"),
        observed=1,
    )


def _first(*, fixed: bool, fresh: bool, changes: int) -> Scene:
    if fresh:
        return Scene(_running(), None, fixed=fixed, changes=changes)
    spec = Spec("Current", 1)
    current = replace(
        _running(), spec=spec, mark=(1, "Current"), read=spec, seen_mark=(1, "Current")
    )
    return Scene(current, _left(), fixed=fixed, fresh=False, changes=changes)


@pytest.mark.parametrize("fresh", [True, False], ids=["move", "rollback"])
@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "dhcp"])
def test_no_order_of_events_breaks_a_move(*, fixed: bool, fresh: bool) -> None:
    seen = _explore(_first(fixed=fixed, fresh=fresh, changes=2))
    assert {scene.ended for scene in seen} == {"", "moved", "undone"}
    for scene in seen:
        if scene.ended == "undone":
            assert scene.old.spec.power == ON
            assert scene.old.spec.role == "Current"
        if scene.ended == "moved":
            assert scene.new is not None
            assert scene.new.spec.role == "Current"
            assert scene.new.mark == (scene.new.spec.epoch, "Current")
            assert (scene.old.spec.role, scene.old.spec.power) == ("Previous", OFF)


@pytest.mark.parametrize("fresh", [True, False], ids=["move", "rollback"])
@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "dhcp"])
def test_every_move_can_come_to_an_end(*, fixed: bool, fresh: bool) -> None:
    seen = _explore(_first(fixed=fixed, fresh=fresh, changes=2))
    ways: dict[Scene, list[Scene]] = {}
    for scene in seen:
        for after in _turns(scene):
            ways.setdefault(after, []).append(scene)
    ends = todo = [scene for scene in seen if scene.ended]
    reached = set(ends)
    while todo:
        before = [it for scene in todo for it in ways.get(scene, ()) if it not in reached]
        reached.update(before)
        todo = list(set(before))
    assert reached == seen
