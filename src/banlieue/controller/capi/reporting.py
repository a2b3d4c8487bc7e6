"""The status of a Cluster API machine that has no Provider yet: what it waits for. Pure."""

from datetime import datetime

from banlieue.api.infrastructure.machine import Machine, MachineStatus
from banlieue.api.reasons import ConditionType, Reason
from banlieue.sdk.conditions import false, merge
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
