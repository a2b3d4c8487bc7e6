"""Errors of the operating system, in words that name the thing and what to do about it."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_NOT_ALLOWED: Final = "run this as the user who owns it (a local cluster belongs to root)"
_NO_ROOM: Final = "make room on that file system"
_IN_THE_WAY: Final = "remove what is in the way, or name another path"
_REMEDIES: Final[Mapping[int, str]] = {
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.EROFS: "that file system is read-only; make it writable, or name another path",
}


def told(error: OSError, at: Path | None = None) -> str:
    """The error as one sentence.

    Args:
        error: What was raised.
        at: What it is about, where the error itself does not know: writes into open files.
    """
    name = error.filename or at
    what = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return "; ".join(filter(None, [f"{name}: {what}" if name else what, remedy]))
