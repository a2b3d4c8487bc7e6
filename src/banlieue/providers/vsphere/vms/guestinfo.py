"""First-boot data as the guest reads it: guestinfo keys for cloud-init and Ignition. Pure.

Sources: cloud-init's VMware datasource, and Ignition's `vmware` platform.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import AddressPlan, Bootstrap, MachinePlan, NicPlan
from banlieue.sdk.errors import InvalidSpec

LARGEST = 60_000
"""Characters of one value; guests read 64 KiB at most."""

_ENCODING = "gzip+base64"
_AUTOMATIC = frozenset({"dhcp", "slaac"})


def mac_address(uuid: str, nic: NicPlan) -> str:
    """The MAC address of an interface: the planned one, or one made of the machine's UUID.

    It must be known before the first boot, since the guest's network configuration is matched by
    it. The made one is locally administered and stays the same however often it is computed.
    """
    if nic.mac_address:
        return nic.mac_address.lower()
    digest = hashlib.sha256(f"{uuid.lower()}/{nic.name}".encode()).digest()
    return ":".join(["02", *(f"{byte:02x}" for byte in digest[:5])])


def extra_config(plan: MachinePlan[Any]) -> dict[str, str]:
    """The guestinfo keys of a plan.

    Raises:
        InvalidSpec: the data is larger than the guest can read.
    """
    bootstrap = plan.bootstrap
    values = {
        "guestinfo.metadata": _pack("metadata", metadata(plan)),
        "guestinfo.metadata.encoding": _ENCODING,
    }
    if bootstrap.user_data is None:
        return values
    key = (
        "guestinfo.ignition.config.data"
        if bootstrap.user_data_format == "ignition"
        else "guestinfo.userdata"
    )
    values[key] = _pack("userData", bootstrap.user_data.get_secret_value())
    values[f"{key}.encoding"] = _ENCODING
    return values


def metadata(plan: MachinePlan[Any]) -> bytes:
    """The instance metadata as JSON, which is YAML too: identity, host name, network, keys."""
    uuid = plan.ref.uuid or ""
    body: dict[str, Any] = {
        "instance-id": uuid,
        "local-hostname": plan.hostname,
        "provider-id": plan.provider_id,
    }
    bootstrap: Bootstrap = plan.bootstrap
    if bootstrap.network_data is not None:
        packed = base64.b64encode(gzip.compress(bootstrap.network_data.get_secret_value(), mtime=0))
        body["network"] = packed.decode()
        body["network.encoding"] = _ENCODING
    elif plan.nics:
        body["network"] = network_config(uuid, plan.nics)
    if bootstrap.ssh_authorized_keys:
        body["public-keys-data"] = "\n".join(bootstrap.ssh_authorized_keys)
    return json.dumps(body, separators=(",", ":")).encode()


def network_config(uuid: str, nics: Iterable[NicPlan]) -> dict[str, Any]:
    """Network configuration, version 2: interfaces matched by MAC address, named as in the API."""
    return {"version": 2, "ethernets": {nic.name: _ethernet(uuid, nic) for nic in nics}}


def _ethernet(uuid: str, nic: NicPlan) -> dict[str, Any]:
    """One interface. Without any address plan the network is asked for an IPv4 address."""
    plans: Sequence[AddressPlan] = nic.addresses or (AddressPlan("IPv4", "dhcp"),)
    four = [plan for plan in plans if plan.family == "IPv4"]
    six = [plan for plan in plans if plan.family == "IPv6"]
    body: dict[str, Any] = {
        "match": {"macaddress": mac_address(uuid, nic)},
        "set-name": nic.name,
        "dhcp4": any(plan.source == "dhcp" for plan in four),
        "dhcp6": any(plan.source == "dhcp" for plan in six),
        "accept-ra": any(plan.source in _AUTOMATIC for plan in six),
    }
    addresses = [
        f"{plan.address}/{plan.prefix or (32 if plan.family == 'IPv4' else 128)}"
        for plan in plans
        if plan.address and plan.source not in _AUTOMATIC
    ]
    routes = [
        {"to": "0.0.0.0/0" if plan.family == "IPv4" else "::/0", "via": plan.gateway}
        for plan in plans
        if plan.gateway and plan.source not in _AUTOMATIC
    ]
    names = {"addresses": list(nic.nameservers), "search": list(nic.search_domains)}
    names = {key: value for key, value in names.items() if value}
    optional = (("addresses", addresses), ("routes", routes), ("nameservers", names))
    body.update({key: value for key, value in optional if value})
    if nic.mtu:
        body["mtu"] = nic.mtu
    return body


def _pack(what: str, data: bytes) -> str:
    """Compressed and encoded; equal data gives equal text."""
    text = base64.b64encode(gzip.compress(data, mtime=0)).decode()
    if len(text) > LARGEST:
        raise InvalidSpec(
            Reason.USER_DATA_TOO_LARGE,
            f"{what} is {len(text)} characters when compressed and encoded, and a guest reads at "
            f"most {LARGEST}; make it smaller, or have it fetch the rest",
        )
    return text
