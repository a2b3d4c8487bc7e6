"""Work that is not to be cut short."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

_ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Whoever asks this program to end meanwhile is heard when the block is done.

    The block has to be short, or to have an end of its own.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
