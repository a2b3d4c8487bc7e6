"""Free TCP ports on the loopback address."""

import atexit
import random
import socket
import sys
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_COUNT: Final = 12_000
_ATTEMPTS: Final = 200
_held: list[socket.socket] = []


def free_port() -> int:
    """A TCP port nobody listens on, and that no other process gets from this function.

    It lies below the range the kernel gives to outgoing connections, so that none of those takes it
    while its server is restarted. The claim lasts until this process ends.

    Raises:
        OSError: No free port was found.
    """
    lowest = _first_ephemeral_port() - _COUNT
    # Not the seeded generator of the test run: parallel runs with one seed would collide.
    choose = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        port = lowest + choose.randrange(_COUNT)
        if _claim(port):
            return port
    raise OSError(f"no free port found between {lowest} and {lowest + _COUNT}")


def _first_ephemeral_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:
        return 32_768
    # A widened range leaves nothing below it; then any port is as good as another.
    return max(int(text.split()[0]), 1024 + _COUNT)


def _claim(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    if sys.platform != "linux":
        return True
    # An abstract name vanishes with its owner, so a killed test run leaves no claim behind.
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0banlieue-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _held.append(claim)
    return True


@atexit.register
def _release_all() -> None:
    for claim in _held:
        claim.close()
    _held.clear()
