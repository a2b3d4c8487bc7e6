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
from banlieue.providers.vsphere.hardware import devices
from banlieue.providers.vsphere.places.inventory import Network
from banlieue.providers.vsphere.places.networks import NETWORK_KEY, Adapter, adapter
from banlieue.providers.vsphere.vms import guestinfo
from banlieue.sdk.driver import NicPlan, NicState
from banlieue.sdk.errors import InvalidSpec

Names = Mapping[str, str]
"""From the MAC address of a card, in lower case, to the name of its interface."""

_FIRST_KEY = -200
_ETHERNET = vim.vm.device.VirtualEthernetCard
_ADAPTERS = {
    Adapter.VMXNET3: vim.vm.device.VirtualVmxnet3,
    Adapter.E1000E: vim.vm.device.VirtualE1000e,
    Adapter.E1000: vim.vm.device.VirtualE1000,
}


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


def states(
    attached: Iterable[Any], names: Names | None, *, running: bool = False
) -> tuple[NicState, ...] | None:
    """All cards of a VM, as its guest sees them or will when it starts.

    None when the VM does not say which of them are ours.
    """
    if names is None:
        return None
    return tuple(
        NicState(
            id=str(card.key),
            name=names.get(_mac(card)),
            mac_address=_mac(card),
            network=_network(card),
            connected=_connected(card, running=running),
            plugged=_plugged(card),
        )
        for card in devices.network_cards(attached)
    )


def change(
    uuid: str,
    nics: Iterable[NicPlan],
    attached: Iterable[Any],
    names: Names,
    find: Callable[[NicPlan], Network],
    *,
    running: bool,
) -> Change | None:
    """What to do so that our cards are those of the plan; None when they are.

    A card that is there keeps its MAC address, whatever the plan says.

    Args:
        uuid: the machine's UUID, which MAC addresses nobody chose are made of.
        nics: the interfaces of the plan.
        attached: the VM's devices.
        names: what is written on the VM.
        find: the network an interface is plugged into.
        running: whether the VM is on.

    Raises:
        InvalidSpec: somebody else's card has the MAC address an interface is to get.
    """
    wanted = list(nics)
    cards = {_mac(card): card for card in devices.network_cards(attached)}
    ours = {mac: name for mac, name in names.items() if mac in cards}
    gone = [mac for mac, name in ours.items() if name not in {nic.name for nic in wanted}]
    missing = [nic for nic in wanted if nic.name not in ours.values()]
    there = {name: cards[mac] for mac, name in ours.items() if mac not in gone}
    edits = [vim.vm.device.VirtualDeviceSpec(operation="remove", device=cards[mac]) for mac in gone]
    for nic in wanted:
        edits += _edited(there[nic.name], nic, find, running=running) if nic.name in there else ()
    if not (edits or missing):
        return None
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
        added = new(uuid, _FIRST_KEY - number, nic, network, adapter(nic.network))
        added.device.backing = _referring(added.device.backing, network)
        edits.append(added)
        kept[mac] = nic.name
    return Change(tuple(edits), kept)


def new(
    uuid: str,
    key: int,
    nic: NicPlan,
    network: Network,
    adapter: Adapter = Adapter.VMXNET3,
) -> Any:  # noqa: ANN401 - a VirtualDeviceSpec
    """The addition of a card; one on a standard network lacks the reference to it yet."""
    return vim.vm.device.VirtualDeviceSpec(
        operation="add",
        device=_ADAPTERS[adapter](  # type: ignore[no-untyped-call] # pyVmomi
            key=key,
            backing=_backing(network),
            addressType="manual",
            macAddress=guestinfo.mac_address(uuid, nic),
            connectable=_plug(connected=nic.connected),
        ),
    )


def _edited(
    card: Any,  # noqa: ANN401 - a VirtualEthernetCard
    nic: NicPlan,
    find: Callable[[NicPlan], Network],
    *,
    running: bool,
) -> list[Any]:
    """The edit that brings a card in line with its plan, if it is not."""
    network = _wanted_network(card, nic, find)
    plugged = card.connectable
    starts = bool(plugged and plugged.startConnected)
    same = starts == nic.connected and _connected(card, running=running) == nic.connected
    if same and network is None:
        return []
    device = type(card)(
        key=card.key,
        controllerKey=card.controllerKey,
        unitNumber=card.unitNumber,
        addressType=card.addressType,
        macAddress=card.macAddress,
        wakeOnLanEnabled=card.wakeOnLanEnabled,
        backing=_referring(_backing(network), network) if network else card.backing,
        connectable=_plug(connected=nic.connected),
    )
    return [vim.vm.device.VirtualDeviceSpec(operation="edit", device=device)]


def _wanted_network(
    card: Any,  # noqa: ANN401 - a VirtualEthernetCard
    nic: NicPlan,
    find: Callable[[NicPlan], Network],
) -> Network | None:
    """The network to plug a card into; None when it is there, or nothing is said about it."""
    target = nic.network.get(NETWORK_KEY)
    if target is None or str(target) in _words(card):
        return None
    network = find(nic)
    own = network.port_group or (network.opaque[0] if network.opaque else network.name)
    same = {network.id, own}
    return None if same & _words(card) else network


def _plug(*, connected: bool) -> Any:  # noqa: ANN401 - a ConnectInfo
    """How a card is plugged in; a guest cannot plug in one that is kept out on purpose."""
    return vim.vm.device.VirtualDevice.ConnectInfo(
        startConnected=connected, connected=connected, allowGuestControl=connected
    )


def _connected(card: Any, *, running: bool) -> bool:  # noqa: ANN401 - a VirtualEthernetCard
    """What the guest sees, or will see when it starts."""
    plugged = card.connectable
    if plugged is None:
        return False
    return bool(plugged.connected if running else plugged.startConnected)


def _backing(network: Network) -> Any:  # noqa: ANN401 - a backing
    if network.opaque is not None:
        identity, kind = network.opaque
        return _ETHERNET.OpaqueNetworkBackingInfo(opaqueNetworkId=identity, opaqueNetworkType=kind)
    if network.port_group is None:
        return _ETHERNET.NetworkBackingInfo(deviceName=network.name)
    return _ETHERNET.DistributedVirtualPortBackingInfo(
        port=vim.dvs.PortConnection(portgroupKey=network.port_group, switchUuid=network.switch_uuid)
    )


def _referring(backing: Any, network: Network) -> Any:  # noqa: ANN401 - a backing
    """The backing with a reference to its network, where it is a standard one."""
    if isinstance(backing, _ETHERNET.NetworkBackingInfo):
        backing.network = vim.Network(network.id, None)
    return backing


def _mac(card: Any) -> str:  # noqa: ANN401 - a VirtualEthernetCard
    return str(card.macAddress or "").lower()


def _plugged(card: Any) -> dict[str, frozenset[str]] | None:  # noqa: ANN401 - a VirtualEthernetCard
    """What of a network class's target means its network; of a port group only the key is told."""
    if getattr(card.backing, "port", None) is not None:
        return None
    return {NETWORK_KEY: _words(card)}


def _words(card: Any) -> frozenset[str]:  # noqa: ANN401 - a VirtualEthernetCard
    """Everything the card itself tells of the network it is plugged into: ids, or the name."""
    backing = card.backing
    port = getattr(backing, "port", None)
    told = (
        getattr(port, "portgroupKey", None),
        getattr(backing, "deviceName", None),
        getattr(getattr(backing, "network", None), "_moId", None),
        getattr(backing, "opaqueNetworkId", None),
    )
    return frozenset(str(word) for word in told if word)


def _network(card: Any) -> str | None:  # noqa: ANN401 - a VirtualEthernetCard
    """The port group's key on a distributed switch, or the network's name."""
    port = getattr(card.backing, "port", None)
    backing = card.backing
    key = (
        getattr(port, "portgroupKey", None)
        or getattr(backing, "deviceName", None)
        or getattr(backing, "opaqueNetworkId", None)
    )
    return str(key) if key else None
