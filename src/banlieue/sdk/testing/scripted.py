"""A tiny backend whose endpoint does what a test tells it to; no VMs, only Providers.

    endpoint = ScriptedEndpoint()
    backend = scripted_backend(endpoint)
    endpoint.fail["about"] = Unreachable("nobody home")     # until the test removes it
    endpoint.domains = (FailureDomain("d1", ("dc", "c1")),)
    endpoint.announce(Changes(everything=True))             # what the change feed says next

For machines use the simulated backend, which has VMs.
"""

import queue
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.meta import Resource
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.vmimage import ImageSource
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import (
    About,
    Connection,
    FailureDomain,
    Image,
    MachinePlan,
    MachineRef,
    MachineState,
    Task,
)
from banlieue.sdk.errors import DriverError, NeedsOperator
from banlieue.sdk.powers import Changes

MACHINES = Resource("infrastructure.banlieue.io", "v1alpha1", "ScriptedMachine", "scriptedmachines")


class ScriptedEndpoint:
    """What answers: who it is, what it shows, and which verbs fail. Thread-safe enough for tests.

    `fail` maps a verb, or `login`, to the error it raises; `password` is what a login must bring;
    `calls` counts verbs; `sessions` is how many logins are open.
    """

    def __init__(self) -> None:
        self.about = About("backend-1", "8.0.3")
        self.domains: tuple[FailureDomain, ...] = (FailureDomain("d1", ("dc1", "c1")),)
        self.marked: tuple[MachineState, ...] = ()
        self.creating: tuple[str, ...] = ()
        self.password = "right"  # noqa: S105 - what tests put into their Secrets
        self.fail: dict[str, DriverError] = {}
        self.hold: dict[str, threading.Event] = {}
        self.calls: Counter[str] = Counter()
        self.logins: list[Connection] = []
        self.sessions = 0
        self.feed: queue.SimpleQueue[Changes | DriverError] = queue.SimpleQueue()

    def announce(self, changes: Changes | DriverError) -> None:
        """What the change feed answers, or raises, next."""
        self.feed.put(changes)

    def enter(self, verb: str) -> None:
        """Count a verb, wait where the test holds it, and fail it where the test says so."""
        self.calls[verb] += 1
        if verb in self.hold:
            self.hold[verb].wait()
        if verb in self.fail:
            raise self.fail[verb]

    @contextmanager
    def connect(self, to: Connection) -> Iterator["ScriptedDriver"]:
        """Log in with the key `password` of the credentials."""
        self.logins.append(to)
        self.enter("login")
        given = to.credentials.get("password")
        if given is None or given.get_secret_value() != self.password:
            raise NeedsOperator(Reason.PROVIDER_AUTH_FAILED, "the endpoint refused the password")
        self.sessions += 1
        try:
            yield ScriptedDriver(self)
        finally:
            self.sessions -= 1


class ScriptedDriver:
    """An open session to a `ScriptedEndpoint`, with inventory and change feed."""

    def __init__(self, endpoint: ScriptedEndpoint) -> None:
        self._endpoint = endpoint

    def about(self) -> About:
        """Who answers."""
        self._endpoint.enter("about")
        return self._endpoint.about

    def failure_domains(self) -> Sequence[FailureDomain]:
        """The scripted ones."""
        self._endpoint.enter("failure_domains")
        return self._endpoint.domains

    def marked(self) -> Sequence[MachineState]:
        """The scripted ones."""
        self._endpoint.enter("marked")
        return self._endpoint.marked

    def creating(self) -> Sequence[str]:
        """The scripted ones."""
        self._endpoint.enter("creating")
        return self._endpoint.creating

    def changes(self, timeout: float) -> Changes:
        """What was announced next; nothing when that takes longer than `timeout`."""
        self._endpoint.enter("changes")
        try:
            answer = self._endpoint.feed.get(timeout=timeout)
        except queue.Empty:
            return Changes()
        if isinstance(answer, DriverError):
            raise answer
        return answer

    def find_image(self, image: ImageSource, where: FailureDomain) -> Image | None:
        """There are no images."""
        del image, where
        return None

    def observe(self, ref: MachineRef) -> MachineState | None:
        """The marked VM of that UUID or name."""
        self._endpoint.enter("observe")
        for state in self._endpoint.marked:
            if ref.uuid == state.uuid or ref.name == state.name:
                return state
        return None

    def create(self, plan: MachinePlan[MachineSpec]) -> Task | None:
        """No VMs are made here."""
        raise NeedsOperator(Reason.UNSUPPORTED_BY_PROVIDER, f"{plan.ref.name}: no VMs are made")

    def update(self, plan: MachinePlan[MachineSpec], seen: MachineState) -> Task | None:
        """Nothing is ever different."""
        del plan, seen
        return None

    def delete(self, ref: MachineRef) -> Task | None:
        """Forget the marked VM of that UUID."""
        self._endpoint.marked = tuple(s for s in self._endpoint.marked if s.uuid != ref.uuid)
        return None

    def poll(self, task: Task) -> Task | None:
        """No task ever runs."""
        del task
        return None


def scripted_backend(endpoint: ScriptedEndpoint) -> Backend[Any]:
    """A backend whose every Provider reaches that endpoint."""
    return Backend(
        name="scripted",
        machine_spec=MachineSpec,
        machine=MACHINES,
        kinds=(),
        connect=endpoint.connect,
        storage_target_keys=frozenset({"datastore"}),
        network_target_keys=frozenset({"portGroup"}),
        provider_id_scheme="scripted",
    )
