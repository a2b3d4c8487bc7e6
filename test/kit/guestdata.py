"""First-boot data of a VM on vSphere, decoded as its guest would read it."""

import base64
import gzip
from collections.abc import Mapping
from typing import Final

KEYS: Final = ("metadata", "userdata", "vendordata", "ignition.config.data")
_PREFIX: Final = "guestinfo."


def decoded(extra_config: Mapping[str, str]) -> dict[str, bytes]:
    """What is under each key; one that is absent or empty is left out.

    Raises:
        ValueError: A value is not what its encoding says.
    """
    found = {}
    for key in KEYS:
        text = extra_config.get(_PREFIX + key, "")
        if text:
            found[key] = _decode(text, extra_config.get(f"{_PREFIX}{key}.encoding", ""))
    return found


def _decode(text: str, encoding: str) -> bytes:
    if not encoding:
        return text.encode()
    data = base64.b64decode(text, validate=True)
    if encoding == "base64":
        return data
    if encoding != "gzip+base64":
        raise ValueError(f"there is no encoding {encoding}")
    return gzip.decompress(data)


def environment(extra_config: Mapping[str, str]) -> dict[str, str]:
    """The same as the environment variables that cloud-init's VMware datasource reads, too."""
    return {
        f"VMX_{key}".upper().replace(".", "_"): value
        for key, value in extra_config.items()
        if key.startswith(_PREFIX)
    } | {"VMX_GUESTINFO": "1"}
