"""Programs of the host that a cluster is started and ended with."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError

# By name, with the Debian packages that bring them.
PACKAGES: Final[Mapping[str, str]] = {
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "umount": "mount",
}
# Where they are; the PATH of a plain user, a service or a `sudo` may lack some.
_SEARCHED: Final = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def find_program(name: str) -> Path | None:
    """A program of the host, or None."""
    found = shutil.which(name) or shutil.which(name, path=_SEARCHED)
    return Path(found) if found else None


def program(name: str) -> str:
    """Path of one of `PACKAGES`; raises ClusterError with its package when it is missing."""
    found = find_program(name)
    if found is None:
        raise ClusterError(
            f"the program {name} is missing: "
            f"apt-get install --no-install-recommends {PACKAGES[name]}"
        )
    return str(found)
