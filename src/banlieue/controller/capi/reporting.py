"""The status of a Cluster API machine that no provider serves: what it waits for. Pure."""

from datetime import datetime

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import Machine, MachineStatus
from banlieue.api.reasons import Reason
from banlieue.sdk.conditions import false, merge
from banlieue.sdk.kube import Key
from banlieue.sdk.outcome import Stop, Wait


def waiting_status(machine: Machine, outcome: Wait | Stop, now: datetime) -> MachineStatus:
    """The complete status of one that waits, in the words its provider uses later.

    What a status says already of a VM stays: it came from a provider, before a restore or a move.
    """
    status = machine.status.model_copy(deep=True)
    found = [
        false(ConditionType.READY, outcome.reason, outcome.message),
        false(ConditionType.PAUSED, Reason.NOT_PAUSED),
    ]
    if status.initialization is None or not status.initialization.provisioned:
        found.append(false(ConditionType.PROVISIONED, outcome.reason, outcome.message))
    ours = {finding.type.value for finding in found}
    others = [item for item in status.conditions if item.type not in ours]
    merged = merge(status.conditions, found, generation=machine.metadata.generation, now=now)
    status.conditions = sorted([*others, *merged], key=lambda item: item.type)
    return status


def unserved_status(machine: Machine, provider: Key, now: datetime) -> MachineStatus:
    """The status of one whose Provider does not exist any more, so that nobody else tells."""
    uid, leaving = machine.metadata.uid, machine.metadata.deletion_timestamp is not None
    remedy = (
        "its VM cannot be destroyed: make the Provider again, or leave the VM where it is by "
        f"spec.teardown {{mode: Release, uid: {uid}}}"
        if leaving
        else "nobody serves the machine: make it with its Secret of the same name (clusterctl move "
        "takes neither along), or, where it is gone for good, replace the Machine"
    )
    message = f"Provider {provider} does not exist, so {remedy}"
    status = machine.status.model_copy(deep=True)
    found = [false(ConditionType.READY, Reason.PROVIDER_NOT_FOUND, message)]
    others = [item for item in status.conditions if item.type != ConditionType.READY.value]
    merged = merge(status.conditions, found, generation=machine.metadata.generation, now=now)
    status.conditions = sorted([*others, *merged], key=lambda item: item.type)
    return status
