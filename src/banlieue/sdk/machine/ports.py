"""What the machine reconciler needs of the Provider its machine is on."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.driver import Driver, FailureDomain
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
