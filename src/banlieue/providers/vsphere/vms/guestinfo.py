"""First-boot data as the guest reads it: guestinfo keys for cloud-init and Ignition. Pure.

Sources: cloud-init's VMware datasource, and Ignition's `vmware` platform.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable
from typing import Any

import yaml

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.vms import firstboot
from banlieue.sdk.driver import MachinePlan, NicPlan
from banlieue.sdk.errors import InvalidSpec
from banlieue.sdk.seed import check, cloudinit, files, ignition, telling
from banlieue.sdk.seed.network import Card

LARGEST = 60_000
"""Characters of one value; guests read 64 KiB at most."""

_ENCODING = "gzip+base64"
_METADATA = "guestinfo.metadata"
_PROGRAM = "/etc/banlieue/first-boot"
_UNIT = """\
[Unit]
Description=Tell the hypervisor that the first boot is over
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh {program}

[Install]
WantedBy=multi-user.target
"""


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
    """The guestinfo keys of a plan, and ours that says what becomes of them.

    Keys that the plan gives no value are emptied, since a clone inherits those of its template,
    and what a guest of the template's had there is not for this one.

    Raises:
        InvalidSpec: the data is not of its format, or larger than the guest can read.
    """
    check.check(plan.bootstrap)
    values = dict.fromkeys((*firstboot.SECRET_KEYS, firstboot.WORD_KEY), "")
    values |= _packed(_METADATA, "metadata", _metadata(plan))
    user_data = plan.bootstrap.user_data
    given = user_data.get_secret_value() if user_data is not None else None
    if plan.bootstrap.user_data_format == check.IGNITION:
        document = _ignition(plan, given or ignition.NO_DOCUMENT)
        values |= _packed(firstboot.IGNITION, "userData", document)
    else:
        program = telling.for_cloud_init(plan.ref.uuid or "", firstboot.EAR)
        values |= _packed(firstboot.VENDOR_DATA, "vendordata", program.encode())
        if given is not None:
            values |= _packed(firstboot.USER_DATA, "userData", given)
    values[firstboot.STAGE_KEY] = firstboot.KEPT if given is not None else firstboot.PLAIN
    return values


def _cards(plan: MachinePlan[Any]) -> tuple[Card, ...]:
    return cards(plan.ref.uuid or "", plan.nics)


def cards(uuid: str, nics: Iterable[NicPlan]) -> tuple[Card, ...]:
    """The interfaces of a machine with the MAC addresses they get."""
    return tuple(Card(nic, mac_address(uuid, nic)) for nic in nics)


def _metadata(plan: MachinePlan[Any]) -> bytes:
    """The instance metadata as JSON, which is YAML too."""
    body = cloudinit.metadata(plan, _cards(plan))
    if plan.bootstrap.network_data is not None:
        network = yaml.safe_dump(check.network_data(plan.bootstrap.network_data))
        body["network"] = _text(network.encode())
        body["network.encoding"] = _ENCODING
    return json.dumps(body, separators=(",", ":")).encode()


def _ignition(plan: MachinePlan[Any], document: bytes) -> bytes:
    """The user's document, completed with what cloud-init is told by metadata."""
    uuid = plan.ref.uuid or ""
    facts = {
        "BANLIEUE_INSTANCE_ID": uuid,
        "BANLIEUE_PROVIDER_ID": plan.provider_id,
        "BANLIEUE_HOSTNAME": plan.hostname,
    }
    return ignition.complete(
        document,
        files=(
            files.File("/etc/hostname", f"{plan.hostname}\n"),
            files.File("/etc/banlieue/instance.env", files.environment(facts)),
            files.File(_PROGRAM, telling.for_units(uuid, firstboot.EAR), 0o755),
            *files.network(_cards(plan)),
        ),
        units=(ignition.Unit("banlieue-first-boot.service", _UNIT.format(program=_PROGRAM)),),
        keys=plan.bootstrap.ssh_authorized_keys,
    )


def _text(data: bytes) -> str:
    """Compressed and encoded; equal data gives equal text."""
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _packed(key: str, what: str, data: bytes) -> dict[str, str]:
    text = _text(data)
    if len(text) > LARGEST:
        raise InvalidSpec(
            Reason.USER_DATA_TOO_LARGE,
            f"{what} is {len(text)} characters when compressed and encoded, and a guest reads at "
            f"most {LARGEST}; make it smaller, or have it fetch the rest",
        )
    return {key: text, f"{key}.encoding": _ENCODING}
