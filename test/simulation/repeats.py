"""What a wire says twice, and what somebody scribbles where processes keep hints.

A client library that lost an answer sends its request once more, and both arrive: with the second
answer, with none, or with the first while the other copy is still on its way. Nothing that banlieue
sends may do harm when it is done twice.

These happen beside the actions that a schedule draws, by draws of their own, so that a schedule
in which none does is the one it was.
"""

from functools import partial
from random import Random
from typing import Any

from banlieue.sdk.kube import Key, Obj
from test.simulation.actions import Actor, User, bound
from test.simulation.backend import Repeat
from test.simulation.cluster import Cluster
from test.simulation.kinds import BY_NAME
from test.simulation.oracle import Oracle

SHARE = 0.04
"""How often something of this happens before an action."""

FOCUSED_SHARE = 0.8
"""How often where it is what a hunt is after."""

_CALLS = (
    "create",
    "create",
    "power_*",
    "shutdown",
    "suspend",
    "reconfigure",
    "detach",
    "destroy",
    "remove_mark",
    "take_over",
    "*",
)
_TIMES = ("9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z", None)
_COUNTS = (0, 1, 9, 1_000_000_000, 2**53)
_TASKS: tuple[Obj | None, ...] = (
    {"id": "task-of-nobody", "operation": "create"},
    {"id": "task-of-nobody", "operation": "delete", "deadline": "9999-12-31T23:59:59Z"},
    {"operation": "restart", "startedAt": "1970-01-01T00:00:00Z"},
    None,
)


class Repeats(Actor):
    """Requests that arrive twice, and hints that nobody meant."""

    def call_twice(self) -> None:
        """The next changing calls of a kind are carried out twice."""
        rng, world = self.rng, self.world()
        world.repeat = Repeat(
            method=rng.choice(_CALLS),
            answer=rng.choice(("first", "second", "second", "none")),
            # A copy that arrives long after its answer is more than anybody can promise for.
            after=rng.choice((0.0, 0.1, 0.4)),
            count=rng.choice((1, 3, 50)),
        )
        self.oracle.late_calls = True
        self.cluster.log(f"{world.name} carries out twice: {world.repeat}")

    def create_twice(self) -> None:
        """As what makes VMs is carried out twice, a user creates one."""
        for world in self.cluster.worlds.values():
            answer = self.rng.choice(("first", "second", "none"))
            world.repeat = Repeat("create", answer, after=0.1, count=50)
        self.oracle.late_calls = True
        self.cluster.log("whatever makes a VM is carried out twice")
        User(self.cluster, self.oracle, self.rng).create()

    def write_twice(self) -> None:
        """Writes to the API server arrive twice."""
        weather = self.cluster.network.weather
        weather.repeated = self.rng.choice((0.1, 0.5))
        weather.echoed = self.rng.choice((0.0, 0.5))
        self.cluster.log(f"weather: {weather}")

    def scribble(self) -> None:
        """Somebody writes rubbish into the hints of all machines, and processes begin anew."""
        for machine in self.cluster.machines():
            hints: dict[str, Any] = {
                "nextAttempt": self.rng.choice(_TIMES),
                "failures": {"count": self.rng.choice(_COUNTS)},
                "task": self.rng.choice(_TASKS),
            }
            self.cluster.log(f"somebody scribbles on {Key.of(machine)}: {hints}")
            key, kind = Key.of(machine), BY_NAME[machine["kind"]]
            self.cluster.api.edit(kind, key, partial(_scribble, hints))
        if self.rng.random() < 0.7:
            for name in self.cluster.names:
                for process in self.cluster.alive(name):
                    self.cluster.kill(process)
                self.cluster.start(name)


def _scribble(hints: Obj, machine: Obj) -> None:
    machine.setdefault("status", {}).update(hints)


class Beside:
    """Draws what happens beside the actions of one schedule."""

    def __init__(self, cluster: Cluster, oracle: Oracle, seed: int, focus: frozenset[str]) -> None:
        self._rng = Random(f"beside {seed}")
        self._cluster = cluster
        actions = bound(Repeats(cluster, oracle, self._rng))
        wanted = [it for it in actions.items() if it[0] in focus]
        self._share = FOCUSED_SHARE if wanted else SHARE
        self._actions = wanted or list(actions.items())

    def happen(self) -> None:
        """Perhaps something happens now."""
        if self._rng.random() < self._share:
            name, act = self._rng.choice(self._actions)
            self._cluster.log(f"-- beside it, {name}")
            act()
