"""Run the simulation: `python -m test.simulation --seeds 10000`, or `--seed 17` to replay one."""

import argparse
import sys

from test.simulation import planted
from test.simulation.runner import apart, run_many, with_fixed_hashes
from test.simulation.schedule import CHAINED, Outcome, run


def main(arguments: list[str]) -> int:
    """Run what the command line asks for; 1 when a schedule failed."""
    parser = argparse.ArgumentParser(prog="python -m test.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one and print its transcript")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--plant", default="", help="put a planted bug in: see planted.py")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many")
    parser.add_argument("--bite", action="store_true", help="find each of the planted bugs")
    parser.add_argument("--bugs", default="", help="which ones, separated by commas; else all")
    parser.add_argument("--focus", default="", help="actions to draw most, separated by commas")
    given = parser.parse_args(arguments)
    with_fixed_hashes("test.simulation", arguments)
    if given.bite:
        return _bite(given.seeds, tuple(filter(None, given.bugs.split(","))))
    focus = tuple(filter(None, given.focus.split(",")))
    if given.seed is not None:
        return _replay(given.seed, given.plant, focus)
    summary = run_many(
        given.first,
        given.seeds,
        workers=given.workers,
        stop_after=given.failures,
        prepare=given.plant,
        focus=focus,
    )
    for outcome in summary.failures:
        _tell(outcome, given.plant, focus)
    print(
        f"{summary.ran} schedules in {summary.seconds:.1f} s "
        f"({summary.rate:.1f}/s), {len(summary.failures)} failed"
    )
    return int(bool(summary.failures))


def _replay(seed: int, plant: str, focus: tuple[str, ...]) -> int:
    if plant:
        planted.plant(plant)
    outcome = run(seed, focus)
    print("\n".join(outcome.lines))
    print(f"seed {seed}: {outcome.failure or 'all held'}; transcript {outcome.digest}")
    return int(bool(outcome.failure))


def _bite(most: int, bugs: tuple[str, ...]) -> int:
    """Which planted bugs are found: by the seed that did last, then by others of the same focus.

    Answers how many seeds fail without the bug, too: then it was not the bug that was found.
    """
    wrong = 0
    for bug in bugs or tuple(planted.HUNTS):
        hunt = planted.HUNTS[bug]
        first = hunt.seed - hunt.seed % CHAINED
        found = None
        for start, count in ((first, CHAINED), (0, most)):
            summary = run_many(start, count, stop_after=1, prepare=bug, focus=hunt.focus)
            if summary.failures:
                found = summary.failures[0]
                break
        if found is None:
            print(f"{bug}: not found in {most} schedules", flush=True)
            continue
        honest = apart(found.seed, hunt.focus)
        wrong += bool(honest.failure)
        print(f"{bug}: seed {found.seed}: {found.failure}")
        print(f"  without it: {honest.failure or 'all held'}", flush=True)
    return int(bool(wrong))


def _tell(outcome: Outcome, plant: str, focus: tuple[str, ...]) -> None:
    print("\n".join(outcome.lines))
    more = f" --plant {plant}" if plant else ""
    more += f" --focus {','.join(focus)}" if focus else ""
    print(f"FAILED {outcome.failure}")
    print(f"again with: python -m test.simulation --seed {outcome.seed}{more}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
