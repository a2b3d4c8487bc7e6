"""Opens sessions to simulated worlds, in this process or behind an HTTP address."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import SystemRandom

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import Connection
from banlieue.sdk.errors import DriverError, NeedsOperator, Unreachable
from banlieue.sdk.image.transfers import Transfers
from banlieue.sdk.simulated.clock import SystemClock
from banlieue.sdk.simulated.driver import SimulatedDriver
from banlieue.sdk.simulated.faultmap import uniform_errors
from banlieue.sdk.simulated.faults import ConnectionLost, WorldFault
from banlieue.sdk.simulated.records import default_state
from banlieue.sdk.simulated.remote import RemoteWorld
from banlieue.sdk.simulated.session import CALL_TIMEOUT, Session, UnresolvedCreates
from banlieue.sdk.simulated.world import PASSWORD, USERNAME, Port, World, account

MEMORY = "simulated://memory/"


class Worlds:
    """The worlds that live in this process, by name; the first look-up makes one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worlds: dict[str, World] = {}

    def get(self, name: str) -> World:
        """The world of that name, made with the default inventory and login when it is new."""
        with self._lock:
            if name not in self._worlds:
                self._worlds[name] = new_world(f"memory-{name}")
            return self._worlds[name]

    def put(self, name: str, world: World) -> None:
        """Let a world made elsewhere answer under that name."""
        with self._lock:
            self._worlds[name] = world


def new_world(identity: str, password: str = PASSWORD) -> World:
    """A world with the default inventory and the login `simulated`, under the clock on the wall."""
    rng = SystemRandom()
    state = default_state(identity)
    state.accounts[USERNAME] = account(password, rng)
    return World(state, clock=SystemClock(), rng=rng)


class Connector:
    """Opens sessions. Create calls without an answer are remembered here, beyond any session."""

    def __init__(
        self,
        worlds: Worlds,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        call_timeout: float = CALL_TIMEOUT,
        make_transfers: Callable[[], Transfers] = Transfers,
    ) -> None:
        self._make_transfers = make_transfers
        self._worlds = worlds
        self._monotonic = monotonic
        self._timeout = call_timeout
        self._lock = threading.Lock()
        self._unresolved: dict[str, UnresolvedCreates] = {}

    @contextmanager
    def __call__(self, to: Connection) -> Iterator[SimulatedDriver]:
        """Log in at the first endpoint that answers, log out at the end; raises `DriverError`."""
        session = self._login(to)
        transfers = self._make_transfers()
        try:
            yield SimulatedDriver(session, to.capabilities, transfers)
        finally:
            transfers.close()
            with contextlib.suppress(WorldFault, ConnectionLost):
                session.logout()

    def _login(self, to: Connection) -> Session:
        username, password = to.credentials.get("username"), to.credentials.get("password")
        if username is None or password is None:
            raise NeedsOperator(
                Reason.SECRET_INVALID,
                "spec.connection.credentialsRef has to name a Secret with the keys username and "
                "password; add what is missing",
            )
        last: DriverError = NeedsOperator(
            Reason.INVALID_CONFIGURATION, "the Provider names no endpoint; set connection.endpoint"
        )
        for endpoint in to.endpoints:
            session = Session(
                self._port(endpoint),
                username,
                password,
                unresolved=self._unresolved_at(endpoint),
                timeout=self._timeout,
            )
            try:
                with uniform_errors():
                    session.login()
            except Unreachable as error:
                last = error
            else:
                return session
        raise last

    def _port(self, endpoint: str) -> Port:
        if endpoint.startswith(MEMORY):
            return self._worlds.get(endpoint.removeprefix(MEMORY))
        with contextlib.suppress(ValueError):
            return RemoteWorld(endpoint)
        raise NeedsOperator(
            Reason.INVALID_CONFIGURATION,
            f"the endpoint must start with {MEMORY} or http://; correct connection.endpoint",
        )

    def _unresolved_at(self, endpoint: str) -> UnresolvedCreates:
        with self._lock:
            if endpoint not in self._unresolved:
                self._unresolved[endpoint] = UnresolvedCreates(self._monotonic, self._timeout)
            return self._unresolved[endpoint]
