"""kstatus' published rules, and what they make of a VirtualMachine through its life."""

from typing import Any

import pytest

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.reconcile import Change
from test.kit.controllerworld import ControllerWorld
from test.kit.kstatus import Status, faults_of, status_of


def _obj(*conditions: tuple[str, str, str], observed: int | None = 1, **meta: object) -> Any:  # noqa: ANN401 - JSON
    found = [{"type": kind, "status": status, "reason": why} for kind, status, why in conditions]
    status = {"conditions": found} | ({} if observed is None else {"observedGeneration": observed})
    return {"metadata": {"generation": 1, **meta}, "status": status}


READY = ("Ready", "True", "Ready")
BUSY = ("Reconciling", "True", "Updating")
STUCK = ("Stalled", "True", "InvalidConfiguration")


@pytest.mark.parametrize(
    ("obj", "status"),
    [
        ({"metadata": {"generation": 1}}, Status.CURRENT),
        (_obj(READY), Status.CURRENT),
        (_obj(READY, observed=None), Status.CURRENT),
        (_obj(READY, observed=0), Status.IN_PROGRESS),
        (_obj(READY, BUSY), Status.IN_PROGRESS),
        (_obj(("Ready", "False", "X"), STUCK), Status.FAILED),
        (_obj(BUSY, STUCK), Status.IN_PROGRESS),
        (_obj(STUCK, BUSY), Status.FAILED),
        (_obj(("Ready", "False", "X")), Status.IN_PROGRESS),
        (_obj(("Ready", "Unknown", "X")), Status.IN_PROGRESS),
        (_obj(("Stalled", "False", "X"), READY), Status.CURRENT),
        (_obj(READY, deletionTimestamp="2026-01-01T00:00:00Z"), Status.TERMINATING),
    ],
)
def test_the_published_rules(obj: Any, status: Status) -> None:  # noqa: ANN401 - JSON
    assert status_of(obj) is status


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (_obj(READY), ""),
        (_obj(("Ready", "False", "InvalidConfiguration"), STUCK), ""),
        (_obj(("Ready", "False", "ImageTooLarge"), BUSY), ""),
        (_obj(READY, observed=None), "without observedGeneration"),
        (_obj(READY, ("Reconciling", "False", "X")), "not true"),
        (_obj(("Ready", "False", "X"), BUSY, STUCK), "both"),
        (_obj(READY, STUCK), "says Failed"),
        (
            _obj(("Ready", "False", "X"), ("Stalled", "True", "InsufficientCapacity")),
            "passes by itself",
        ),
        (
            _obj(("Ready", "False", "X"), ("Stalled", "True", "ProviderUnreachable")),
            "passes by itself",
        ),
    ],
)
def test_the_check_finds_what_tools_stumble_over(obj: Any, words: str) -> None:  # noqa: ANN401 - JSON
    found = list(faults_of(obj))
    assert bool(found) == bool(words)
    assert words in " ".join(found)


async def test_a_tool_waits_for_a_machine_and_for_each_edit_and_no_longer() -> None:
    world = ControllerWorld.ready()
    seen: list[Status] = []

    def note(change: Change) -> None:
        if change.resource == VIRTUAL_MACHINES and change.new and change.new.get("status"):
            found = status_of(change.new)
            if seen[-1:] != [found]:
                seen.append(found)

    world.api.subscribe(note)
    world.add_vm()
    await world.settle()
    assert seen == [Status.IN_PROGRESS, Status.CURRENT]
    vm = world.vm()
    assert vm is not None
    # Before anybody looked at an edit it is not current any more.
    assert status_of({**vm, "metadata": {**vm["metadata"], "generation": 99}}) is Status.IN_PROGRESS
    world.delete_vm()
    await world.settle()
    assert seen[-1] is Status.TERMINATING
    assert world.vm() is None
