"""Runs many schedules in several processes; each cluster lives in a fork of its own."""

import gc
import os
import pickle
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from test.simulation.schedule import CHAINED, Outcome, Schedule, chain

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Summary:
    """What came out of many schedules."""

    ran: int
    seconds: float
    failures: tuple[Outcome, ...]

    @property
    def rate(self) -> float:
        """Schedules per second, all workers together."""
        return self.ran / self.seconds if self.seconds else 0.0


def group(first: int, last: int, focus: Collection[str] = ()) -> list[Outcome]:
    """Schedules `first` to `last` (excluded) of one cluster, one after the other.

    A failure ends it: nobody knows what a cluster does in which something went wrong.
    """
    played = chain(first // CHAINED, last, tidy=False, focus=focus)
    return [_short(outcome) for outcome in played if outcome.seed >= first]


def _short(outcome: Outcome) -> Outcome:
    """Without the transcript, which nobody reads when all held."""
    return outcome if outcome.failure else replace(outcome, lines=())


def _forked(work: Callable[[], T], seed: int) -> T | Outcome:
    """Work in a child, so that what there is can be used again and needs no tidying up."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reader)
            answer = work()
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(answer, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        return Outcome(seed, "the schedule ended its process", "", 0)
    found: T = pickle.loads(data)  # noqa: S301 - our own child wrote it
    return found


def apart(seed: int, focus: Collection[str] = ()) -> Outcome:
    """One schedule in a process of its own."""
    played = _forked(partial(group, seed, seed + 1, focus), seed)
    return played[-1] if isinstance(played, list) else played


def run_many(
    first: int,
    count: int,
    *,
    workers: int = 2,
    stop_after: int = 5,
    prepare: str = "",
    focus: Collection[str] = (),
) -> Summary:
    """Run `count` schedules from seed `first` on; ends early after so many failures.

    Args:
        first: the first seed.
        count: how many.
        workers: processes at once.
        stop_after: failures after which no more are begun.
        prepare: name of a planted bug to put into the workers, for tests.
        focus: actions that are drawn far more often than others.
    """
    began = time.monotonic()
    context = get_context("fork")
    groups = list(_groups(first, count))
    shared = context.Value("i", 0)
    found = context.Value("i", 0)
    pipes, children = [], []
    for _ in range(workers):
        reader, writer = context.Pipe(duplex=False)
        arguments = (groups, shared, found, stop_after, prepare, tuple(focus), writer)
        child = context.Process(target=_work, args=arguments)
        child.start()
        writer.close()
        pipes.append(reader)
        children.append(child)
    ran, failures = 0, []
    for reader, child in zip(pipes, children, strict=True):
        answer = _receive(reader)
        child.join()
        if answer is None:
            failures.append(Outcome(first, "a worker died", "", 0))
            continue
        ran += answer[0]
        failures += answer[1]
    failures.sort(key=lambda it: it.seed)
    return Summary(ran, time.monotonic() - began, tuple(failures))


def _groups(first: int, count: int) -> Iterator[tuple[int, int]]:
    seed, end = first, first + count
    while seed < end:
        following = min(end, (seed // CHAINED + 1) * CHAINED)
        yield seed, following
        seed = following


def _receive(reader: Connection) -> tuple[int, list[Outcome]] | None:
    try:
        answer: tuple[int, list[Outcome]] = reader.recv()
    except EOFError:
        return None
    return answer


def _work(groups, shared, found, stop_after, prepare, focus, writer) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, PLR0917 - multiprocessing's own types
    if prepare:
        from test.simulation import planted

        planted.plant(prepare)
    ran, failures = 0, []
    gc.disable()
    _warm_up()
    while True:
        with shared.get_lock():
            number, shared.value = shared.value, shared.value + 1
        if number >= len(groups) or found.value >= stop_after:
            break
        begin, end = groups[number]
        outcomes = _forked(partial(group, begin, end, focus), begin)
        for outcome in outcomes if isinstance(outcomes, list) else [outcomes]:
            ran += 1
            if outcome.failure:
                failures.append(outcome)
                sys.stderr.write(f"seed {outcome.seed}: {outcome.failure}\n")
                with found.get_lock():
                    found.value += 1
    writer.send((ran, failures))
    writer.close()


def _warm_up() -> None:
    """Whatever is made on first use is made before the forks, once for all of them."""
    schedule = Schedule(0)
    schedule.prepare()
    schedule.play(0)
    schedule.close()
    gc.freeze()


def with_fixed_hashes(module: str, arguments: list[str]) -> None:
    """Start over with hashes that are the same in every process: they decide orders of sets."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment)  # noqa: S606 - this very program
