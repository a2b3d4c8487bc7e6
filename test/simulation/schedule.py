"""One schedule: random actions in a cluster, and an end at which all must be as it should.

Some schedules follow each other in one cluster, as clusters are not new whenever something happens
to them. Everything follows from the seed: it names the cluster and all that happened there before.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from random import Random

from test.simulation import platform, shortcuts
from test.simulation.actions import Accidents, Actor, User, bound
from test.simulation.adoptions import Adoptions
from test.simulation.backend_actions import BackendAccidents
from test.simulation.cluster import CONTROLLER, Cluster
from test.simulation.coincidences import Coincidences
from test.simulation.data import Data
from test.simulation.drills import Drills
from test.simulation.ending import Ending
from test.simulation.loop import Stuck
from test.simulation.oracle import Oracle
from test.simulation.repeats import Beside
from test.simulation.restores import Restores

shortcuts.take()

_PAUSES = (0.0, 0.0, 0.01, 0.2, 1.0, 5.0, 30.0, 130.0)


_MORE: tuple[dict[str, int], ...] = (
    {"create": 8, "delete": 4, "edit_power": 2, "pin": 6},
    {"crash": 4, "crash_at_call": 3, "crash_at_write": 1},
    {},
    {},
    {"second_thoughts": 2, "roll_back": 2},
    {"adopt": 3, "accept": 1},
    {"create_with_disk": 3, "write": 2, "attach_again": 2},
    {"drill": 1},
)
"""How often actions are drawn beside once or thrice, actor by actor."""


_FOCUSED = 20
"""How often actions are drawn, beside that, which a hunt is after."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule ended; `failure` is empty when all held."""

    seed: int
    failure: str
    digest: str
    steps: int
    lines: tuple[str, ...] = ()


class _Errors(logging.Handler):
    """Passes that raise what nobody expected are defects."""

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(logging.ERROR)
        self._oracle = oracle

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._oracle.blame(f"{record.name}: {record.getMessage()}: {error!r}")


class Schedule:
    """A cluster, what happens to it, and what must hold.

    What is named in `focus` happens far more often than the rest; all else is as ever.
    """

    def __init__(self, seed: int, focus: Collection[str] = ()) -> None:
        self.focus = focus
        rng = Random(seed)
        providers = {"east": "simulated"}
        if rng.random() < 0.65:
            providers["west"] = rng.choice(("simulated", "other"))
        self.cluster = Cluster(rng.getrandbits(64), providers)
        self.oracle = Oracle(self.cluster)
        self.begun = Random(rng.getrandbits(64))
        self._played = False

    def prepare(self) -> None:
        """What there is before anything happens: a platform at rest, perhaps with VMs."""
        cluster = self.cluster
        platform.set_up(cluster.api, cluster.classes)
        for name in cluster.names:
            cluster.add_world(name, platform.backend_state(name, cluster.latencies()))
        self.oracle.watch()
        self._guarded(self._begin)

    def play(self, seed: int) -> Outcome:
        """Let things happen from here on."""
        cluster = self.cluster
        if not self.oracle.failure:
            if self._played:
                cluster.forget()
            beside = Beside(cluster, self.oracle, seed, frozenset(self.focus))
            self._guarded(lambda: self._play(Random(seed), beside))
        self._played = True
        lines = tuple(cluster.lines)
        return Outcome(seed, self.oracle.failure, cluster.digest, cluster.loop.steps, lines)

    def close(self) -> None:
        """Take down what still waits; a process that ends anyway need not."""
        for process in self.cluster.processes:
            process.kill()
        self.cluster.loop.close()

    async def _begin(self) -> None:
        cluster, rng = self.cluster, self.begun
        for role in (CONTROLLER, *cluster.names):
            cluster.start(role)
        await cluster.rest(15.0)
        user = User(cluster, self.oracle, rng)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 2))):
            user.create()
        await cluster.rest(60.0)

    async def _play(self, rng: Random, beside: Beside) -> None:
        cluster = self.cluster
        cluster.network.rng.seed(rng.getrandbits(64))
        cluster.rng.seed(rng.getrandbits(64))
        if self._played:
            Ending(cluster, self.oracle, rng).tidy_up()
        restores = Restores(cluster, self.oracle, rng)
        restores.save_etcd()
        restores.save_objects()
        actions = self._actions(rng, restores)
        for _ in range(rng.randint(2, 7)):
            beside.happen()
            name, act = rng.choice(actions)
            cluster.log(f"-- {name}")
            act()
            await cluster.rest(rng.choice(_PAUSES))
        ending = Ending(cluster, self.oracle, rng)
        ending.heal()
        if wrong := await ending.come_to_rest():
            self.oracle.blame("not at rest: " + "; ".join(wrong))
        if rng.random() < 0.4:
            ending.delete_all()
            if wrong := await ending.come_to_rest():
                self.oracle.blame("not gone: " + "; ".join(wrong))

    def _actions(self, rng: Random, restores: Restores) -> list[tuple[str, Callable[[], None]]]:
        """What may happen in this schedule: one kind of trouble more than others."""
        actors: tuple[Actor, ...] = (
            User(self.cluster, self.oracle, rng),
            Accidents(self.cluster, self.oracle, rng),
            BackendAccidents(self.cluster, self.oracle, rng),
            Coincidences(self.cluster, self.oracle, rng),
            restores,
            Adoptions(self.cluster, self.oracle, rng),
            Data(self.cluster, self.oracle, rng),
            Drills(self.cluster, self.oracle, rng),
        )
        found: list[tuple[str, Callable[[], None]]] = []
        for actor in actors:
            weight = rng.choice((1, 1, 3))
            found += [item for item in bound(actor).items() for _ in range(weight)]
        for actor, more in zip(actors, _MORE, strict=True):
            actions = bound(actor)
            for name, weight in more.items():
                found += [(name, actions[name])] * weight
            found += [item for item in actions.items() if item[0] in self.focus] * _FOCUSED
        return found

    def _guarded(self, what: Callable[[], object]) -> None:
        """Run a part of the schedule; whatever goes wrong is a failure of it."""
        handler = _Errors(self.oracle)
        logger = logging.getLogger("banlieue")
        logger.addHandler(handler)
        propagate, logger.propagate = logger.propagate, False
        try:
            self.cluster.loop.run(what())  # type: ignore[arg-type]  # a coroutine
        except Stuck as stuck:
            self.oracle.blame(f"stuck: {stuck}")
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate
        for process in self.cluster.processes:
            if process.failure:
                self.oracle.blame(process.failure)
        for error in self.cluster.loop.errors:
            self.oracle.blame(error)


def chain(
    number: int, last: int, *, tidy: bool = True, focus: Collection[str] = ()
) -> Iterator[Outcome]:
    """What happens in one cluster, up to the schedule before `last`, or to a failure.

    A process that ends afterwards need not be `tidy`.
    """
    schedule = Schedule(number, focus)
    schedule.prepare()
    try:
        for seed in range(number * CHAINED, min(last, (number + 1) * CHAINED)):
            outcome = schedule.play(seed)
            yield outcome
            if outcome.failure:
                return
    finally:
        if tidy:
            schedule.close()


def run(seed: int, focus: Collection[str] = ()) -> Outcome:
    """One schedule from its seed alone, after those that came before it in its cluster."""
    *_, outcome = chain(seed // CHAINED, seed + 1, focus=focus)
    return outcome


CHAINED = 25
"""How many schedules follow each other in one cluster."""
