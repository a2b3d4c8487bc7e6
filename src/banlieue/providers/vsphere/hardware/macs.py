"""MAC addresses that somebody chose: a network never gets a second card of one of them from us.

Those made of a machine's UUID are not looked at: they do not meet. A vCenter accepts the second
card of an address without a word, and both guests lose packets. So the VMs on the card's network
are asked before it is made; machines that are being made at the same moment are known here. What
is on other networks is not looked at: they may be other segments.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.creates import Creates
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, property_spec, read, walk
from banlieue.providers.vsphere.hardware import devices
from banlieue.providers.vsphere.places.inventory import Network
from banlieue.providers.vsphere.watching.census import VM_STEPS
from banlieue.providers.vsphere.watching.records import MARK
from banlieue.sdk.driver import MachinePlan, NicPlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.identity import Mark

_UUID, _DEVICES, _NETWORKS = "config.instanceUuid", "config.hardware.device", "network"
_CHUNK = 100
_HELD_SECONDS = 10.0
"""How long an address is that of a machine whose create, or change, is about to be sent."""

Wanted = Iterable[tuple[NicPlan, Network]]


@dataclass(slots=True, kw_only=True)
class Macs:
    """Who has, or is about to have, the addresses that are asked for. Thread-safe."""

    session: Session
    creates: Creates
    monotonic: Callable[[], float]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _held: dict[str, tuple[str, float]] = field(init=False, default_factory=dict)

    def check(self, plan: MachinePlan[Any], cards: Wanted) -> None:
        """Look whether the chosen addresses of new cards are free; no call when none is chosen.

        Args:
            plan: the machine; what its owner's other VM has is not in the way of a move.
            cards: the new cards with the networks they are for.

        Raises:
            InvalidSpec: two of them are to have one address.
            NeedsOperator: another VM has one of them, or is being made with it.
        """
        chosen: dict[str, tuple[NicPlan, Network]] = {}
        for nic, network in cards:
            mac = (nic.mac_address or "").lower()
            if mac in chosen:
                raise InvalidSpec(
                    Reason.INVALID_CONFIGURATION,
                    f"interfaces {chosen[mac][0].name} and {nic.name} have the MAC address {mac}; "
                    "choose another one, or none",
                )
            if mac:
                chosen[mac] = nic, network
        if not chosen:
            return
        self._hold(plan, chosen)
        holders = self._holders(plan, {network.id for _, network in chosen.values()})
        for mac, (nic, _) in chosen.items():
            if mac in holders:
                raise _taken(nic, mac, f"VM {holders[mac]}, on the same network,")

    def _hold(self, plan: MachinePlan[Any], chosen: Mapping[str, tuple[NicPlan, Network]]) -> None:
        """Note whose they are about to be; the first of two machines goes on."""
        uuid, now = (plan.ref.uuid or "").lower(), self.monotonic()
        with self._lock:
            held = {mac: it for mac, it in self._held.items() if self._counts(it, now)}
            for mac, (nic, _) in chosen.items():
                if mac in held and held[mac][0] != uuid:
                    raise _taken(nic, mac, "another machine, which is being made,")
            self._held = held | dict.fromkeys(chosen, (uuid, now))

    def _counts(self, held: tuple[str, float], now: float) -> bool:
        """Whether a VM with the address is still to come; then the VM itself tells."""
        uuid, since = held
        create = self.creates.get(uuid)
        if create is not None and create.since >= since:
            return self.creates.pending(create.name) is not None
        return now - since < _HELD_SECONDS

    # Who has them

    def _holders(self, plan: MachinePlan[Any], networks: Collection[str]) -> dict[str, str]:
        """Names of the VMs on the networks, by the addresses of their cards."""
        wanted = (property_spec(vim.VirtualMachine, (_NETWORKS,)),)
        root = self.session.login.content.root_folder
        seen = walk(self.session, root, vim.Folder, VM_STEPS, wanted)
        keys = sorted(it.moid for it in seen if not set(networks).isdisjoint(it.refs(_NETWORKS)))
        holders: dict[str, str] = {}
        for first in range(0, len(keys), _CHUNK):
            for found in self._look(keys[first : first + _CHUNK]):
                if self._is_own(plan, found):
                    continue
                for card in devices.network_cards(found.get(_DEVICES) or ()):
                    holders[str(card.macAddress or "").lower()] = str(found.get("name"))
        return holders

    def _look(self, keys: list[str]) -> list[Found]:
        try:
            paths = ("name", _UUID, MARK, _DEVICES)
            return read(self.session, dict.fromkeys(keys, vim.VirtualMachine), paths)
        except vmodl.fault.ManagedObjectNotFound:
            if len(keys) == 1:
                return []
            # One went meanwhile; the others are still to be known.
            return [found for key in keys for found in self._look([key])]

    @staticmethod
    def _is_own(plan: MachinePlan[Any], found: Found) -> bool:
        uuid = str(found.get(_UUID) or "").lower()
        mark = Mark.decode(getattr(found.get(MARK), "value", None))
        same = mark is not None and mark.owner == plan.ref.owner and mark.uuid.lower() == uuid
        return same or uuid == (plan.ref.uuid or "").lower()


def _taken(nic: NicPlan, mac: str, whose: str) -> NeedsOperator:
    return NeedsOperator(
        Reason.INVALID_CONFIGURATION,
        f"interface {nic.name}: {whose} has the MAC address {mac}; choose another one, or none",
    )
