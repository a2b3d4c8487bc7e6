"""Drift, resizes, places and addresses are told once, when the change is seen first."""

import pytest

from banlieue.api.v1alpha1.virtualmachine_status import VirtualMachineStatus
from banlieue.controller.vm.announce import notes

DRIFT, RESTART, RESTARTING, MOVED = (
    "DriftDetected",
    "RestartRequired",
    "Restarting",
    "MovedByBackend",
)


def status(
    power: str = "",
    rest: str = "",
    *,
    place: str = "",
    ready: str = "",
    cpus: int = 2,
    machine: str = "db",
    **more: object,
) -> VirtualMachineStatus:
    said = {
        "PowerStateSynced": power,
        "UpToDate": rest,
        "PlacementValid": place,
        "InfrastructureReady": ready,
    }
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


def at(domain: str | None, place: str = "", machine: str = "db") -> VirtualMachineStatus:
    return status(place=place, machine=machine, observedFailureDomain=domain)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (at("a"), at("a"), []),
        (at("a"), at("b", MOVED), ["The machine was moved to failure domain b on its backend"]),
        (at("b", MOVED), at("b", MOVED), []),
        (
            at("b", MOVED),
            at("c", MOVED),
            ["The machine was moved to failure domain c on its backend"],
        ),
        (at("b", MOVED), at("a"), ["The machine was moved to failure domain a on its backend"]),
        (at("b", "ProviderChanged"), at("b", MOVED), []),
        (at(None), at("a"), []),
        (at(None), at("b", MOVED), ["The machine was moved to failure domain b on its backend"]),
        (at("a"), at(None), []),
        (at("a"), at("b", machine="db-m1"), []),
    ],
)
def test_a_move_by_the_backend_is_told_once(
    before: VirtualMachineStatus, after: VirtualMachineStatus, told: list[str]
) -> None:
    assert [note.message for note in notes(before, after)] == told


def on(
    *addresses: str,
    power: str = "PoweredOn",
    ready: str = "",
    machine: str = "db",
    restarted: str | None = None,
) -> VirtualMachineStatus:
    found = [{"type": "InternalIP", "address": address} for address in addresses]
    return status(
        ready=ready,
        machine=machine,
        addresses=found,
        observedPowerState=power,
        lastRestartTime=restarted,
    )


LOST, CAME = "Address 10.0.0.7 went away", "Address 10.0.0.7 became known"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (on(), on("10.0.0.7"), [CAME]),
        (on("10.0.0.7"), on(), [LOST]),
        (on(), on(), []),
        (on("10.0.0.7", "10.0.0.8"), on("10.0.0.7"), []),
        (on("10.0.0.7"), on("10.0.0.8"), []),
        (on("10.0.0.7"), on(ready=RESTARTING), []),
        (on("10.0.0.7", ready=RESTARTING), on(), []),
        (on("10.0.0.7"), on(restarted="2026-01-01T00:00:00Z"), []),
        (on("10.0.0.7"), on(power="PoweredOff"), ["The machine was stopped"]),
        (on("10.0.0.7", power="PoweredOff"), on(power="PoweredOff"), []),
        (on("10.0.0.7"), on(machine="db-m1"), []),
    ],
)
def test_a_lost_address_is_told_once_and_only_of_a_machine_that_ran_on(
    before: VirtualMachineStatus, after: VirtualMachineStatus, told: list[str]
) -> None:
    assert [note.message for note in notes(before, after)] == told
