"""Network cards: how they are made, which of a VM's are ours, and how they follow a plan. Pure.

Which card was made for which interface is written on the VM by its MAC address, in the very call
that adds it. A card whose address does not stand there is somebody else's and is never touched.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere import devices, guestinfo
from banlieue.providers.vsphere.inventory import Network
from banlieue.sdk.driver import NicPlan, NicState
from banlieue.sdk.errors import InvalidSpec

Names = Mapping[str, str]
"""From the MAC address of a card, in lower case, to the name of its interface."""

_FIRST_KEY = -200
_ETHERNET = vim.vm.device.VirtualEthernetCard


@dataclass(frozen=True, slots=True)
class Change:
    """Edits that bring a VM's cards in line, and what is then to be written on it."""

    edits: tuple[Any, ...]
    names: Names


def encode(names: Names) -> str:
    """The names as one line of JSON."""
    return json.dumps(dict(names), separators=(",", ":"))


def decode(text: str | None) -> dict[str, str] | None:
    """The names written on a VM; None when there is nothing or it is damaged."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return {str(mac).lower(): name for mac, name in found.items() if isinstance(name, str)}


def planned(uuid: str, nics: Iterable[NicPlan]) -> dict[str, str]:
    """The names of a plan's interfaces, by the MAC addresses they get."""
    return {guestinfo.mac_address(uuid, nic): nic.name for nic in nics}


def states(attached: Iterable[Any], names: Names | None) -> tuple[NicState, ...] | None:
    """All cards of a VM; None when it does not say which of them are ours."""
    if names is None:
        return None
    return tuple(
        NicState(
            id=str(card.key),
            name=names.get(_mac(card)),
            mac_address=_mac(card),
            network=_network(card),
            connected=bool(card.connectable and card.connectable.startConnected),
        )
        for card in devices.network_cards(attached)
    )


def change(
    uuid: str,
    nics: Iterable[NicPlan],
    attached: Iterable[Any],
    names: Names,
    find: Callable[[NicPlan], Network],
) -> Change | None:
    """What to do so that our cards are those of the plan; None when they are.

    Args:
        uuid: the machine's UUID, which MAC addresses nobody chose are made of.
        nics: the interfaces of the plan.
        attached: the VM's devices.
        names: what is written on the VM.
        find: the network an interface is plugged into.

    Raises:
        InvalidSpec: somebody else's card has the MAC address an interface is to get.
    """
    wanted = list(nics)
    cards = {_mac(card): card for card in devices.network_cards(attached)}
    ours = {mac: name for mac, name in names.items() if mac in cards}
    gone = [mac for mac, name in ours.items() if name not in {nic.name for nic in wanted}]
    missing = [nic for nic in wanted if nic.name not in ours.values()]
    if not (gone or missing):
        return None
    edits = [vim.vm.device.VirtualDeviceSpec(operation="remove", device=cards[mac]) for mac in gone]
    kept = {mac: name for mac, name in ours.items() if mac not in gone}
    for number, nic in enumerate(missing):
        mac = guestinfo.mac_address(uuid, nic)
        if mac in cards and mac not in gone:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION,
                f"interface {nic.name}: another card of the VM has the MAC address {mac}; "
                "choose another one",
            )
        network = find(nic)
        added = new(uuid, _FIRST_KEY - number, nic, network)
        if isinstance(added.device.backing, _ETHERNET.NetworkBackingInfo):
            added.device.backing.network = vim.Network(network.id, None)
        edits.append(added)
        kept[mac] = nic.name
    return Change(tuple(edits), kept)


def new(uuid: str, key: int, nic: NicPlan, network: Network) -> Any:  # noqa: ANN401 - a VirtualDeviceSpec
    """The addition of a card; one on a standard network lacks the reference to it yet."""
    if network.port_group is not None:
        backing: Any = _ETHERNET.DistributedVirtualPortBackingInfo(
            port=vim.dvs.PortConnection(
                portgroupKey=network.port_group, switchUuid=network.switch_uuid
            )
        )
    else:
        backing = _ETHERNET.NetworkBackingInfo(deviceName=network.name)
    return vim.vm.device.VirtualDeviceSpec(
        operation="add",
        device=vim.vm.device.VirtualVmxnet3(
            key=key,
            backing=backing,
            addressType="manual",
            macAddress=guestinfo.mac_address(uuid, nic),
            connectable=vim.vm.device.VirtualDevice.ConnectInfo(
                startConnected=nic.connected, connected=nic.connected, allowGuestControl=True
            ),
        ),
    )


def _mac(card: Any) -> str:  # noqa: ANN401 - a VirtualEthernetCard
    return str(card.macAddress or "").lower()


def _network(card: Any) -> str | None:  # noqa: ANN401 - a VirtualEthernetCard
    """The port group's key on a distributed switch, or the network's name."""
    port = getattr(card.backing, "port", None)
    key = getattr(port, "portgroupKey", None) or getattr(card.backing, "deviceName", None)
    return str(key) if key else None
