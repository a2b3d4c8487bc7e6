"""What cloud-init is told of a machine: its identity, host name, network and keys. Pure.

Source: cloud-init's VMware and NoCloud datasources, which read the same keys.
"""

from collections.abc import Sequence
from typing import Any

from banlieue.sdk.driver import MachinePlan
from banlieue.sdk.seed.network import Card, version_2


def metadata(plan: MachinePlan[Any], cards: Sequence[Card]) -> dict[str, Any]:
    """The instance metadata, network configuration included unless the user gives one.

    It stays with the VM for life: with another `instance-id`, or none, a guest would run its first
    boot again. Nothing in it is secret.
    """
    body: dict[str, Any] = {
        "instance-id": plan.ref.uuid or "",
        "local-hostname": plan.hostname,
        "provider-id": plan.provider_id,
    }
    if plan.bootstrap.network_data is None and cards:
        body["network"] = version_2(cards)
    if plan.bootstrap.ssh_authorized_keys:
        body["public-keys-data"] = "\n".join(plan.bootstrap.ssh_authorized_keys)
    return body
