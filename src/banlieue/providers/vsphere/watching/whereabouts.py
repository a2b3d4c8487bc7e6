"""Where VMs are, in words: those of hosts and failure domains come from the inventory.

When the inventory is read anew, VMs are told of whose words it changed: a host was renamed, or the
account may read a cluster again, or no longer. No VM changed by that, so the watch tells nothing.
"""

from banlieue.providers.vsphere.places.inventory import Inventory, InventoryCache
from banlieue.providers.vsphere.watching.records import Records, whereabouts


class Whereabouts:
    """Compares one inventory with the next; used by the feed's thread alone."""

    def __init__(self, records: Records, places: InventoryCache) -> None:
        self._records = records
        self._places = places
        self._told: Inventory | None = None

    def changed(self) -> frozenset[str]:
        """Words of all VMs whose host or failure domain is called otherwise since the last time."""
        before, now = self._told, self._places.last()
        self._told = now
        if before is None or now is None or before.hosts is now.hosts:
            return frozenset()
        return frozenset().union(
            *(
                record.words()
                for record in self._records.all()
                if whereabouts(record, before) != whereabouts(record, now)
            )
        )
