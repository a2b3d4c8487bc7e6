"""What every driver says of disks, in the same words: kept ones, and those an image brings."""

import re

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.identity import Owner

_OF_IMAGE = re.compile(r"image-[0-9]+")


def image_disk(number: int) -> str:
    """The name of a disk that a VM has from its image, beside the one that boots."""
    return f"image-{number}"


def is_of_image(name: str) -> bool:
    """Whether a disk came with the image, by its name: no object lists it, and it goes with its VM.

    `check_name` lets no other disk have such a name.
    """
    return _OF_IMAGE.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Refuse to make a disk whose name is for those of the image; raises `InvalidSpec`."""
    if is_of_image(name):
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"disk {name}: names such as image-1 are for an image's own disks; choose another",
        )


def disk_not_found(name: str, kept: str, owner: Owner) -> NeedsOperator:
    """No such disk is kept for the owner's namespace; whether another one has it is not told."""
    return NeedsOperator(
        Reason.DISK_NOT_FOUND,
        f"disk {name}: no disk {kept!r} is kept here for namespace {owner.namespace}; correct "
        "`existing`, or choose the Provider that keeps it",
    )


def disk_not_reachable(name: str, kept: str) -> NeedsOperator:
    """The disk is kept in storage that the machine's failure domain does not see."""
    return NeedsOperator(
        Reason.DISK_NOT_FOUND,
        f"disk {name}: {kept!r} cannot be reached from this failure domain; choose another one",
    )


def disk_in_use(name: str, kept: str, holder: str) -> NeedsOperator:
    """Somebody else has the disk, or was promised it first."""
    return NeedsOperator(
        Reason.DISK_IN_USE,
        f"disk {name}: {holder} has {kept!r}, or comes first; take it off there, or use another "
        "disk",
    )
