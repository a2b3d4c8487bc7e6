"""First-boot data is looked at before anything is made: a guest that cannot read it boots bare."""

import json
from typing import Any

import yaml
from pydantic import SecretBytes

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import Bootstrap
from banlieue.sdk.errors import InvalidSpec
from banlieue.sdk.seed import ignition

CLOUD_CONFIG, IGNITION = "cloud-config", "ignition"
_VERSIONS = frozenset({"1", "2"})


def check(bootstrap: Bootstrap) -> None:
    """Refuse what the guest would not understand.

    Raises:
        InvalidSpec: with UserDataInvalid; the message quotes nothing of the data.
    """
    data = bootstrap.user_data.get_secret_value() if bootstrap.user_data is not None else None
    if bootstrap.user_data_format == IGNITION:
        if bootstrap.network_data is not None:
            raise _invalid(
                "networkData is for cloud-init, and the guest reads Ignition; "
                "put the files of its network service into userData"
            )
        if data is not None:
            ignition.check(data)
    elif data is not None:
        _check_cloud_init(data)
    if bootstrap.network_data is not None:
        network_data(bootstrap.network_data)


def _check_cloud_init(data: bytes) -> None:
    """Almost anything may be for cloud-init, but not nothing, and not what is for Ignition."""
    if not data.strip():
        raise _invalid("userData is empty; give data, or leave userData out")
    if not data.lstrip().startswith(b"{"):
        return
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict) and "ignition" in found:
        raise _invalid(
            "userData is an Ignition configuration, and cloud-init would ignore it; "
            "set format: ignition, or correct the image's bootstrap"
        )


def network_data(secret: SecretBytes) -> dict[str, Any]:
    """The user's network configuration, taken out of a top-level `network` if it is in one.

    Raises:
        InvalidSpec: it is no network configuration.
    """
    try:
        found = yaml.safe_load(secret.get_secret_value())
    except (yaml.YAMLError, ValueError, RecursionError):
        # The parser's own words quote what it read.
        raise _invalid("networkData is not YAML") from None
    if isinstance(found, dict) and set(found) == {"network"}:
        found = found["network"]
    if not isinstance(found, dict) or str(found.get("version")) not in _VERSIONS:
        raise _invalid("networkData must be a network configuration of version 1 or 2")
    return found


def _invalid(what: str) -> InvalidSpec:
    return InvalidSpec(Reason.USER_DATA_INVALID, what)
