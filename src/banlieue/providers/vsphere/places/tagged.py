"""Places that classes name by a tag, as `category/name`: read with the inventory."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.tags import Tags
from banlieue.providers.vsphere.places.inventory import Inventory
from banlieue.providers.vsphere.places.stores import TAG_KEY
from banlieue.sdk.errors import DriverError

log = logging.getLogger(__name__)


def declared(capabilities: Capabilities) -> frozenset[str]:
    """The tags that the Provider's classes name."""
    targets = [
        *(entry.target for entry in capabilities.storage_classes),
        *(entry.target for entry in capabilities.network_classes),
    ]
    return frozenset(str(target[TAG_KEY]) for target in targets if target.get(TAG_KEY))


@dataclass(slots=True, kw_only=True)
class Tagged:
    """Reads an inventory with what carries the tags that are named.

    Where tags cannot be read, what was known of them stays, as nothing tells that they are gone.
    """

    tags: Tags
    named: frozenset[str]
    reader: Callable[[Session], Inventory]
    _known: dict[str, frozenset[str] | None] = field(init=False, default_factory=dict)

    def __call__(self, session: Session) -> Inventory:
        """The inventory; raises what its own reader raises."""
        places = self.reader(session)
        for name in sorted(self.named):
            category, _, tag = name.partition("/")
            try:
                found = self.tags.objects(category, tag)
            except DriverError as error:
                log.info("tags cannot be read", extra={"reason": error.reason.value})
                self._known.setdefault(name, None)
                break
            self._known[name] = found if found is not None else frozenset()
        known = {name: self._known.get(name) for name in self.named}
        return replace(places, tagged=known)
