"""The note on a VM about disks on their way from it, or to it, whose files no VM has. Pure.

It is written in the step that takes a disk off to keep it, or before a kept one is taken to be
attached, and goes when the file lies where kept disks do, or is attached.
"""

import re

from banlieue.providers.vsphere.hardware import devices
from banlieue.sdk.identity import Mark, valid_mark

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,200}")


def is_id(text: str) -> bool:
    """Whether it can be the id of a kept disk; anything else could lead to other folders."""
    return _ID.fullmatch(text) is not None


def of_vm(text: str | None, mark: Mark | None, uuid: str | None) -> dict[str, str]:
    """The files by the ids they are kept under, from the note of a VM with that mark.

    A VM that is a copy has the note as well; the mark tells it from the one it speaks of.
    """
    if mark is None or not valid_mark(mark, uuid or ""):
        return {}
    return {disk: path for disk, path in devices.decode_texts(text).items() if is_id(disk)}
