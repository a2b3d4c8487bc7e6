"""Which rights the account lacks, looked up now and then."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyVmomi import vim

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.places import privileges
from banlieue.providers.vsphere.places.inventory import InventoryCache
from banlieue.sdk.driver import MissingPrivilege

_AGAIN = 240.0
"""Seconds an answer is good for."""


@dataclass(slots=True, kw_only=True)
class Rights:
    """Remembers what the account lacks."""

    session: Session
    places: InventoryCache
    declared: Capabilities
    monotonic: Callable[[], float]
    _known: tuple[float, tuple[MissingPrivilege, ...]] | None = field(init=False, default=None)

    def missing(self) -> tuple[MissingPrivilege, ...]:
        """What the account lacks, and where; raises what the vendor library raises."""
        now = self.monotonic()
        if self._known is None or self._known[0] <= now:
            self._known = (now + _AGAIN, self._look())
        return self._known[1]

    def _look(self) -> tuple[MissingPrivilege, ...]:
        try:
            return privileges.missing(self.session, self.places.get(), self.declared)
        except vim.fault.NotAuthenticated:
            raise
        except vim.fault.NoPermission:
            return tuple(MissingPrivilege(it, "the root folder") for it in privileges.READ)
