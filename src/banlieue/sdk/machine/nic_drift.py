"""How the interfaces of a VM differ from what its machine asks for. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from banlieue.sdk.driver import NicState, Target

Nics = tuple[NicState, ...]


@dataclass(frozen=True, slots=True)
class DesiredNic:
    """What one interface asks for; `target` is None where its class is not declared."""

    connected: bool = True
    mac_address: str | None = None
    target: Target | None = None


Cards = Mapping[str, DesiredNic]


def differing(names: Collection[str], cards: Cards, seen: Nics) -> tuple[str, ...]:
    """Names of interfaces that are missing, are not as asked for, or that nobody asks for any more.

    One that somebody else added is nobody's business.
    """
    ours = _ours(seen)
    other = {name for name, nic in ours.items() if name in cards and _differs(cards[name], nic)}
    return tuple(sorted((ours.keys() ^ set(names)) | other))


def waits_for_edit(names: Collection[str], cards: Cards, seen: Nics) -> bool:
    """Whether interfaces differ only in what is told and left alone until the spec is edited.

    An interface that is plugged into another network may follow a network that was renamed, and
    its MAC address is known to the guest: neither is changed because something else changed.
    """
    ours = _ours(seen)
    switched = any(
        name in cards and cards[name].connected != nic.connected for name, nic in ours.items()
    )
    return ours.keys() == set(names) and not switched


def _ours(seen: Nics) -> dict[str, NicState]:
    return {nic.name: nic for nic in seen if nic.name is not None}


def _differs(want: DesiredNic, nic: NicState) -> bool:
    mac = (want.mac_address or "").lower()
    return (
        nic.connected != want.connected
        or bool(mac and nic.mac_address and nic.mac_address.lower() != mac)
        or _elsewhere(want, nic)
    )


def _elsewhere(want: DesiredNic, nic: NicState) -> bool:
    """Whether an interface is plugged into another network than its class means."""
    if want.target is None or nic.plugged is None:
        return False
    plugged = nic.plugged
    return any(str(value) not in plugged.get(key, ()) for key, value in want.target.items())
