"""VMs are told of when the words of their place change, though nothing happened to them."""

from typing import cast

from banlieue.providers.vsphere.places.inventory import Inventory, InventoryCache
from banlieue.providers.vsphere.watching.records import Records, machine_state
from banlieue.providers.vsphere.watching.whereabouts import Whereabouts
from test.kit.vsphere_places import host, inventory

UNREADABLE = inventory(clusters={}, hosts={})


class Places:
    """The inventories of a vCenter as they are read, one after the other."""

    def __init__(self) -> None:
        self.read: Inventory | None = None

    def last(self) -> Inventory | None:
        return self.read


class Watched:
    """Two VMs on two hosts, and what is told of them."""

    def __init__(self) -> None:
        self.records, self.places = Records(), Places()
        for number in (1, 2):
            record = self.records.ensure(f"vm-{number}")
            record.uuid, record.host = f"uuid-{number}", f"host-{number}"
        self.whereabouts = Whereabouts(self.records, cast("InventoryCache", self.places))

    def told(self, places: Inventory) -> frozenset[str]:
        """Who is told of once an inventory was read."""
        self.places.read = places
        return self.whereabouts.changed()


def test_nobody_is_told_of_while_words_stay() -> None:
    watched = Watched()
    assert watched.whereabouts.changed() == frozenset()
    assert watched.told(inventory()) == frozenset()
    assert watched.told(inventory()) == frozenset()
    assert watched.told(inventory(host(1, used_mib=900), host(2))) == frozenset()


def test_a_renamed_host_is_told_of_to_its_vms() -> None:
    watched = Watched()
    watched.told(inventory())
    assert watched.told(inventory(host(1, name="new"), host(2))) == {"uuid-1"}
    assert watched.whereabouts.changed() == frozenset()


def test_rights_to_a_cluster_that_come_and_go_are_told_of_to_its_vms() -> None:
    watched = Watched()
    watched.told(inventory())
    assert watched.told(UNREADABLE) == {"uuid-1", "uuid-2"}
    assert watched.told(inventory()) == {"uuid-1", "uuid-2"}
    record = watched.records.with_uuid("uuid-1")[0]
    state = machine_state(record, watched.places.read)
    assert (state.failure_domain, state.host) == ("domain-c1", "esx1")
