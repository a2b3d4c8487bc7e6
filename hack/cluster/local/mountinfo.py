"""What is mounted, as /proc/self/mountinfo tells it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FILE: Final = Path("/proc/self/mountinfo")
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system.

    Attributes:
        point: Where it is mounted.
        type: Its type, such as `ext4`.
    """

    point: Path
    type: str


def mounts(mountinfo: str | None = None) -> list[Mount]:
    """All mounts in the order they were made; `mountinfo` as in the file, which is the default."""
    return list(_parsed(_FILE.read_bytes() if mountinfo is None else mountinfo.encode()))


def _parsed(content: bytes) -> Iterator[Mount]:
    for line in content.splitlines():
        fields, _, rest = line.partition(b" - ")
        # Spaces, tabs, line ends and backslashes are written as octal numbers.
        point = _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), fields.split(b" ")[4])
        yield Mount(Path(point.decode(errors="surrogateescape")), rest.split(b" ")[0].decode())
