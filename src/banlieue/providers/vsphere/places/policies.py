"""Storage policies that somebody names: their ids, and which datastores fulfil them."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from pyVmomi import vim

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client import faults, pbm
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.places.inventory import Inventory, Policy
from banlieue.providers.vsphere.places.stores import POLICY_KEY

_RETRY = 30.0
"""Seconds until the service is asked again after it failed."""


def declared(capabilities: Capabilities) -> frozenset[str]:
    """The policies that the Provider's storage classes name."""
    found = (it.target.get(POLICY_KEY) for it in capabilities.storage_classes)
    return frozenset(str(name) for name in found if name is not None and str(name))


@dataclass(slots=True, kw_only=True)
class Policies:
    """What is known of the policies that were named. Thread-safe.

    Without any name nothing is asked. What is told is kept as long as the inventory, and longer
    while the service cannot be asked, as nothing tells that policies are gone.
    """

    session: Session
    monotonic: Callable[[], float]
    max_age: float
    named: Iterable[str] = ()
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _wanted: set[str] = field(init=False, default_factory=set)
    _known: dict[str, Policy] = field(init=False, default_factory=dict)
    _asked: frozenset[str] = field(init=False, default=frozenset())
    _stores: frozenset[str] = field(init=False, default=frozenset())
    _until: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._wanted |= set(self.named)

    def attach(self, places: Inventory, *names: str) -> Inventory:
        """The inventory with the policies that were ever named; raises like the vendor library."""
        with self._lock:
            self._wanted |= set(names)
            wanted = frozenset(self._wanted)
            if not wanted:
                return places
            stores = frozenset(places.datastores)
            current = (self._asked, self._stores) == (wanted, stores)
            if not current or self.monotonic() >= self._until:
                self._ask(wanted, stores)
            return replace(places, policies=dict(self._known))

    def _ask(self, wanted: frozenset[str], stores: frozenset[str]) -> None:
        try:
            ids = pbm.read_policies(self.session, wanted)
            fulfilled = pbm.compatible(self.session, ids, stores)
        except vim.fault.NotAuthenticated:
            raise
        except faults.NATIVE:
            # A service of its own: while it is away, or refuses, the vCenter works all the same.
            self._until = self.monotonic() + min(_RETRY, self.max_age)
        else:
            self._known = {name: Policy(ids[name], name, fulfilled[name]) for name in ids}
            self._until = self.monotonic() + self.max_age
        self._asked, self._stores = wanted, stores
