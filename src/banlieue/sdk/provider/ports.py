"""What machine and image reconcilers need of the Provider their object is on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.driver import Driver, FailureDomain
from banlieue.sdk.errors import DriverError, Unreachable
from banlieue.sdk.kube import Key

T = TypeVar("T")


class OpenProvider(Protocol):
    """A Provider this process serves, with a session that is or was open."""

    @property
    def provider(self) -> Provider:
        """The Provider object, as last read."""

    @property
    def identity(self) -> str:
        """Identity of the backend that answers."""

    @property
    def writable(self) -> bool:
        """Whether this process may change anything: lease held, not paused, mode ReadWrite."""

    @property
    def reports_changes(self) -> bool:
        """Whether the backend tells what moved; else machines have to be looked at again."""

    def is_backend(self, identity: str) -> bool:
        """Whether the backend that answers is the named one, or accepted in its place."""

    def domain(self, name: str) -> FailureDomain | None:
        """The failure domain published under that name."""

    def domain_name(self, domain_id: str) -> str | None:
        """The name a failure domain is published under."""

    async def call(self, call: Callable[[Driver[Any]], T], *, timeout: float = 30.0) -> T:
        """Run a verb of the driver in the Provider's own threads; raises `DriverError`."""


class OpenProviders(Protocol):
    """All Providers this process serves."""

    def open(self, key: Key) -> OpenProvider | None:
        """The Provider, None while it is not served here or was never reached."""

    def provider(self, key: Key) -> Provider | None:
        """The Provider object, also while it was never reached; None when not served here."""

    def trouble(self, key: Key) -> DriverError | None:
        """Why `open` has nothing to give, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """A Provider that is served here but was never reached: every call says why.

    With it machines say what is wrong, and those that are released can go.
    """

    provider: Provider
    problem: DriverError | None
    identity: str = ""
    writable: bool = True
    reports_changes: bool = True

    def is_backend(self, identity: str) -> bool:
        """Nobody knows; the next call says what is wrong."""
        del identity
        return True

    def domain(self, name: str) -> FailureDomain | None:
        """None is known."""
        del name
        return None

    def domain_name(self, domain_id: str) -> str | None:
        """None is known."""
        del domain_id
        return None

    async def call(self, call: Callable[[Driver[Any]], T], *, timeout: float = 30.0) -> T:
        """Raise why the backend cannot be asked."""
        del call, timeout
        if self.problem is None:
            raise Unreachable("the Provider's backend was not reached yet")
        # Raised many times over: without this its traceback would grow with each.
        raise self.problem.with_traceback(None)


def open_or_unreached(providers: OpenProviders, key: Key) -> OpenProvider | None:
    """The Provider as far as it can be used, None when this process does not serve it."""
    opened = providers.open(key)
    if opened is not None:
        return opened
    provider = providers.provider(key)
    return Unreached(provider, providers.trouble(key)) if provider is not None else None
