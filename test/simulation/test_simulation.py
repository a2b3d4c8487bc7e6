"""The simulation holds, replays exactly, and finds the bugs it is there to find."""

import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from test.simulation.planted import HUNTS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EVERYBODYS = 10_000
"""How many schedules `make simulate` runs."""

SCHEDULES = 150
"""As few run here, beside those."""

ENOUGH = 5
"""Planted bugs that those find."""

EXAMPLES = frozenset({"mint_after_create", "no_intent_uid", "look_in_one_domain"})
"""Planted bugs without which nobody trusts a simulation."""

PLAIN = tuple(bug for bug, hunt in HUNTS.items() if not hunt.focus)
"""Planted bugs that are hunted among the schedules which `make simulate` runs."""

FOCUSED = tuple(bug for bug, hunt in HUNTS.items() if hunt.focus)
"""Those that schedules of their own find sooner."""

PLAINLY = 1000
"""Schedules that are tried for a planted bug which the seed that once found it finds no more."""

FOCUSEDLY = 75
"""As many for those that have schedules of their own."""

MISSED = 1
"""Planted bugs of a half that need not be found by those: a rare one may move far, as a new action
anywhere renumbers schedules."""


def simulate(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "test.simulation", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )


def test_everything_holds_whatever_happens() -> None:
    """What readers of one object share is compared with it each time: nobody may change it."""
    done = simulate("--seeds", SCHEDULES, BANLIEUE_SIMULATION_VERIFY="1")
    assert done.returncode == 0, done.stdout[-20_000:]
    assert f"{SCHEDULES} schedules in" in done.stdout


def test_a_seed_replays_exactly_and_another_is_another_story() -> None:
    first, again, other = (simulate("--seed", seed) for seed in (3, 3, 4))
    assert first.returncode == 0, first.stdout[-20_000:]
    assert first.stdout == again.stdout
    hashes = [re.findall(r"transcript ([0-9a-f]{16})", it.stdout)[0] for it in (first, other)]
    assert len(set(hashes)) == 2


def test_the_schedules_that_everybody_runs_find_planted_bugs() -> None:
    """Each of them, and by nothing but the bug: the same seeds hold without it."""
    assert set(PLAIN) >= EXAMPLES
    assert len(PLAIN) >= ENOUGH
    found = hunted(PLAIN, PLAINLY)
    assert set(found) == set(PLAIN)
    assert max(found.values()) < EVERYBODYS


@pytest.mark.parametrize("bugs", [FOCUSED[::2], FOCUSED[1::2]], ids=["one", "other"])
def test_planted_bugs_are_found_by_schedules_that_lead_to_them(bugs: tuple[str, ...]) -> None:
    found = hunted(bugs, FOCUSEDLY)
    assert set(found) <= set(bugs)
    assert len(found) >= len(bugs) - MISSED


def hunted(bugs: Collection[str], most: int) -> dict[str, int]:
    """Which of these bugs are found, by which seeds; all of those hold without the bug."""
    done = simulate("--bite", "--seeds", most, "--bugs", ",".join(bugs))
    sys.stdout.write(done.stdout)
    assert done.returncode == 0
    answer = re.compile(r"^(\w+): seed (\d+): .*\n  without it: all held$", re.MULTILINE)
    return {bug: int(seed) for bug, seed in answer.findall(done.stdout)}
