"""Drift, resizes and changes put off are told once, when they are seen first."""

import pytest

from banlieue.api.v1alpha1.virtualmachine_status import VirtualMachineStatus
from banlieue.controller.announce import notes

DRIFT, RESTART = "DriftDetected", "RestartRequired"


def status(
    power: str = "", rest: str = "", *, cpus: int = 2, machine: str = "db", **more: object
) -> VirtualMachineStatus:
    said = {"PowerStateSynced": power, "UpToDate": rest}
    conditions = [
        {
            "type": kind,
            "status": "False" if reason else "True",
            "reason": reason or kind,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, reason in said.items()
    ]
    reference = {"apiGroup": "a.io", "kind": "M", "name": machine, "namespace": "team-a"}
    return VirtualMachineStatus.from_api(
        {
            "conditions": conditions,
            "resources": {"cpus": cpus, "memoryMiB": 1024},
            "infrastructureRef": reference,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (status(), status(), []),
        (status(), status(DRIFT), ["The machine was changed on its backend: powerState"]),
        (status(DRIFT), status(DRIFT), []),
        (status(DRIFT), status(), []),
        (
            status(),
            status(DRIFT, DRIFT, pendingChanges=["cpus"]),
            ["The machine was changed on its backend: powerState, cpus"],
        ),
        (
            status(),
            status(rest=RESTART, pendingChanges=["memoryMiB"]),
            ["A change was put off to a restart: memoryMiB"],
        ),
        (status(), status(cpus=4), ["The machine was resized to 4 CPUs and 1024 MiB"]),
        (status(), status(cpus=4, machine="db-m1"), []),
        (VirtualMachineStatus(), status(), []),
    ],
)
def test_changes_are_told_once(
    before: VirtualMachineStatus, after: VirtualMachineStatus, told: list[str]
) -> None:
    assert [note.message for note in notes(before, after)] == told
