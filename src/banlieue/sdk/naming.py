"""Names for the devices of a VM that nobody of ours made. Pure.

They depend on nothing but the VM itself, so everybody who looks at it gives the same names, and
the user can read them before deciding.
"""

from collections.abc import Sequence
from itertools import count

from banlieue.api import names

_DISK = "disk"
_INTERFACE = "eth"


def disk_names(known: Sequence[str | None]) -> tuple[str, ...]:
    """Names of disks in their order: `root` for the first, then `disk-1`, `disk-2` and so on.

    Args:
        known: the name each has already, None for those that have none.
    """
    return _named(known, (names.ROOT_DISK,), f"{_DISK}-", first=1)


def interface_names(known: Sequence[str | None]) -> tuple[str, ...]:
    """Names of network interfaces in their order: `eth0`, `eth1` and so on; as `disk_names`."""
    return _named(known, (), _INTERFACE, first=0)


def _named(
    known: Sequence[str | None], special: tuple[str, ...], prefix: str, *, first: int
) -> tuple[str, ...]:
    taken = {name for name in known if name}
    numbered = (f"{prefix}{number}" for number in count(first))
    offered = (name for names_ in (special, numbered) for name in names_ if name not in taken)
    return tuple(name or next(offered) for name in known)
